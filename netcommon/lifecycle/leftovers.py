"""Take away what waits for a device's name and is nobody's, before the next NIC of that name: what is on no record, and Ganeti's."""

from __future__ import annotations

from netcommon.host.requests import SetLink
from netcommon.operations.rule import left_behind as rules_left_behind
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.base import View
    from netcommon.host.facts import Link
    from netcommon.host.requests import Request
    from netcommon.lifecycle.node import Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation, Owned


def sweep(node: Node, view: View, link: Link, known: Iterable[Operation], log: Log, shut: bool = False) -> bool:
    """Removes rules of ours that wait for the device ``link``, and the OVS port that has taken it; whether there were any.

    ``shut``: take the device down before: without its rule, what its guest sends goes by table main.

    The caller holds the device's lock and has undone every record for it, so whatever else of ours is there is nobody's.
    """
    names = {operation.identity() for operation in known}
    found = [owned for owned in left_behind(view, link) if owned.identity not in names]
    for owned in found:
        log.warning(f"left behind with no record, removed: {owned.text}")
    requests: list[Request] = [SetLink(link.index, up=False)] if found and shut else []
    requests += [request for owned in found for request in owned.requests]
    for request, answer in zip(requests, node.host.execute(requests, stop=False) if requests else [], strict=True):
        if not answer.ok and answer.errno not in request.gone:
            log.error(f"could not be removed: {answer.text}")
    return bool(found)


def left_behind(view: View, link: Link) -> list[Owned]:
    """What of ours is on the name of the device ``link``."""
    found = rules_left_behind(view, link)
    if link.port_kind == "openvswitch":
        from netcommon.operations.ovs import owned_port

        port = view.ovs_port(link.name)
        if port and port.owner:
            found.append(owned_port(view, port))
    return found
