"""Plan the node's part of an underlay. Pure, as the planner of NICs is."""

from __future__ import annotations

from netcommon.operations.underlay import NodeAddress, UnreachableRest
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from runtime.underlay import Underlay


def plan(known: Underlay | None, device: str) -> list[Operation]:
    """Give the operations that make what is known, in the order in which they are made. ``device``: which has the addresses."""
    if known is None:
        return []
    endpoints = (NodeAddress(device, each.address, endpoint=True) for each in known.endpoints)
    return [UnreachableRest(known.prefix), NodeAddress(device, known.own, endpoint=False), *endpoints]
