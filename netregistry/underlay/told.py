"""Say what a node is to have of the underlay, as its stream tells it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from netregistry.model import keys
from netregistry.underlay import names

if TYPE_CHECKING:
    from netregistry.model.underlay import Endpoint, Name, NodePrefix, Placement, Underlay


class Known(Protocol):
    """Read what it is made from: a View, or what one was."""

    def get(self, key: str) -> Any: ...

    def members(self, name: str, *of: str) -> tuple[str, ...]: ...


def of(view: Known, node: str) -> dict[str, Any]:
    """Give the prefix of a node that has one, and the endpoints that are to be there, those that are retired too."""
    underlay: Underlay = view.get(keys.UNDERLAY)
    prefix: NodePrefix = view.get(keys.prefix(node))
    placements: list[Placement] = [view.get(key) for key in sorted(view.members("placed", node))]
    shown = [
        _endpoint(view, placement, each, underlay.zone)
        for placement in placements
        for each in placement.endpoints
        if each.node == node and each.state != "leaving"
    ]
    return {"generation": prefix.generation, "prefix": prefix.prefix, "endpoints": shown}


def _endpoint(view: Known, placement: Placement, each: Endpoint, zone: str) -> dict[str, Any]:
    name = names.of(placement, each, zone)
    there: Name | None = view.get(keys.name(zone, name)) if name else None
    return {
        "cluster": placement.cluster,
        "instance": placement.instance,
        "kind": each.kind,
        "address": each.address,
        "name": name if there is not None and there.address == each.address else "",
        "migrating": each.live and each.node == placement.incoming,
        "state": each.state,
    }
