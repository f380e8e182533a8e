"""Tell what is on a device before its next NIC, and take away what waits for its name and is nobody's: on no record, or Ganeti's."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL
from netcommon.host.api.requests import SetLink
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.facts import Link, OvsPort
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation, Owned

#: Of routes that come and go with a device's addresses, and with its being up (rtnetlink(7)).
RTPROT_KERNEL = 2


def sweep(node: Node, view: View, link: Link, mode: str, known: Iterable[Operation], log: Log, shut: bool = False) -> bool:
    """Removes rules of ours that wait for the device ``link``, and the OVS port that has taken it; whether there were any.

    ``mode``: that of the NIC that is to come. ``shut``: take the device down before: without its rule, what its guest sends goes by table
    main.

    The caller holds the device's lock and has undone every record for it, so whatever else of ours is there is nobody's.
    """
    names = {operation.identity() for operation in known}
    found = [owned for owned in left_behind(view, link, mode) if owned.identity not in names]
    for owned in found:
        log.warning(f"left behind with no record, removed: {owned.text}")
    requests: list[Request] = [SetLink(link.index, up=False)] if found and shut else []
    requests += [request for owned in found for request in owned.requests]
    for request, answer in zip(requests, node.host.execute(requests, stop=False) if requests else [], strict=True):
        if not answer.ok and answer.errno not in request.gone:
            log.error(f"could not be removed: {answer.text}")
    return bool(found)


def left_behind(view: View, link: Link, mode: str) -> list[Owned]:
    """List what of ours is on the name of the device ``link``, in the way of a NIC of ``mode``."""
    found: list[Owned] = []
    rules = [rule for family in (AF_INET, AF_INET6) for rule in view.rules(family, link.name)]
    if rules:
        from netcommon.operations.rule import left_behind as rules_left_behind  # few names have any

        found += rules_left_behind(view, link, rules)
    port = view.ovs_port(link.name) if link.port_kind == "openvswitch" else _held(view, link, mode)
    if port is not None and port.owner:
        from netcommon.operations.ovs import owned_port

        found.append(owned_port(view, port))
    return found


def refuse_port(view: View, link: Link, mode: str) -> None:
    """Raise HostRefused where Open vSwitch has a port of somebody's under the device's name, and the NIC is not to be one.

    A datapath in user space takes every device of such a name, beside its bridge or its routes, and past the guard: the guest would be in
    another network.
    """
    port = _held(view, link, mode)
    if port is not None and not port.owner:
        text = f"Open vSwitch has a port {link.name} on its bridge {port.bridge}, which would take the device"
        raise HostRefused(text, f"ovs-vsctl del-port {link.name}, or correct the NIC's MODE")


def _held(view: View, link: Link, mode: str) -> OvsPort | None:
    return view.ovs_held(link.name) if mode in ("bridged", "routed") else None


def in_use(view: View, link: Link) -> bool:
    """Tell whether the device has addresses or routes of others, which it loses when it goes down."""
    from netcommon.options.addresses import link_local

    if any(each.address != link_local(link.address) for each in view.addresses(link.index)):
        return True
    routes = (route for family in (AF_INET, AF_INET6) for route in view.routes_of(family, 0, 0, link.index))
    return any(route.protocol not in (RTPROT_KERNEL, PROTOCOL) for route in routes)
