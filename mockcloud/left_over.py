"""Say what a node has of NICs that are not there, or that is not wanted of those that are: on its kernel, its switch and in its files."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.in_device import BLACKHOLE, MAIN, OURS, blackholes, table_of
from mockcloud.in_routing import mark_of
from mockcloud.wanted import OF_ADDRESSES
from netcommon.host.api.datapath import UNICAST
from netcommon.host.api.facts import AF_INET, AF_INET6, REST
from netcommon.host.simulated.host import MemoryHost

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mockcloud.node import MockNode
    from mockcloud.wanted import Told, Wanted
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View

INET, ARP, NETDEV, BRIDGE = 1, 3, 5, 7  #: families of nftables (linux/netfilter.h)
#: Tables in which NICs have elements that begin with their device's index, by family and how their names begin, and those sets; (): all.
OF_DEVICES: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (INET, "netcommon-access", ("nics", "services", "ping")),
    (BRIDGE, "netcommon-access", ("nics", "services", "ping")),
    (INET, "netcommon-fw-", ("nics",)),
    (BRIDGE, "netcommon-fw-", ("nics",)),
    (BRIDGE, "netcommon-delivery", ()),
    (NETDEV, "netcommon-guard-", ()),
    (ARP, "netcommon-arp", ()),
    (INET, "netcommon-mark-", ("taps",)),
    (ARP, "netcommon-mark-", ("taps",)),
)
FILLED = frozenset({"sources4", "sources6"})  #: sets that rules fill: what is in them goes by time


class Running(NamedTuple):
    """Hold what is known of a NIC that runs on a node."""

    wanted: Wanted
    nic: Mapping[str, Any]
    link: Link
    told: Told


def has_switch(node: MockNode) -> bool:
    """Tell whether Open vSwitch is on a node: none is beside the running kernel, and nobody is to be asked there."""
    return isinstance(node.machine, MemoryHost) and node.machine.switch.condition.there


def left_over(node: MockNode, nics: Sequence[Running]) -> Iterator[str]:
    """Say it. ``nics``: all that run there."""
    with node.inside:
        view = node.machine.view()
        yield from _elements(view, {each.link.index for each in nics})
        yield from _rules(view, nics)
        yield from _routes(view, nics)
        yield from _blackholes(view, nics)
        yield from _neighbours(view, nics)
        yield from (
            f"Open vSwitch has the port {port.name} of NIC {port.owner}, which is nobody's"
            for port in (view.ovs_ports() if has_switch(node) else ())
            if port.owner not in {each.nic["uuid"] for each in nics}
        )
        if has_switch(node):
            yield from (f"Open vSwitch has a queue of NIC {each.owner} for {each.port}, and no port uses it" for each in view.ovs_shapers())
            yield from _flows(view, {each.nic["uuid"] for each in nics})
        yield from _files(view, nics)


def _flows(view: View, owners: Collection[str]) -> Iterator[str]:
    """Name each number for which a bridge has flows of ours, and no NIC's port."""
    known: dict[str, set[int]] = {bridge.name: set() for bridge in view.ovs_switches()}
    for port in view.ovs_ports():
        bridge = view.ovs_switch(port.bridge) if port.owner in owners else None
        if bridge is not None:
            known.setdefault(bridge.name, set()).add(port.ofport)
    for name, numbers in sorted(known.items()):
        for number in sorted({flow.port for flow in view.flows(name)} - numbers):
            yield f"Open vSwitch has flows on {name} for port {number}, which is nobody's"


def _elements(view: View, indices: set[int]) -> Iterator[str]:
    known = {struct.pack("=I", index) for index in indices}
    for family, begin, names in OF_DEVICES:
        for table in view.nft_tables(family):
            if table.name.startswith(begin):
                found = (
                    each for each in view.nft_elements(family, table.name) if each.set not in FILLED and (not names or each.set in names)
                )
                left = {(each.set, each.key[:4]) for each in found if each.key[:4] not in known}
                for name, key in sorted(left):
                    yield f"the set {name} of {table.name} has the device {struct.unpack('=I', key)[0]}, which is nobody's"


def _rules(view: View, nics: Sequence[Running]) -> Iterator[str]:
    """Name each policy rule of ours that belongs to no NIC. A rule for a mark belongs to all NICs of its table."""
    taps = {each.link.name for each in nics}
    tables = {table_of(view, each.nic["link"]) for each in nics if each.nic["mode"] == "routed"} - {MAIN}
    for family in (AF_INET, AF_INET6):
        for rule in view.rules(family):
            if rule.protocol == OURS and rule.iif and rule.iif not in taps:
                yield f"a rule leads what comes in by {rule.iif}, which is nobody's, to table {rule.table}"
            elif rule.protocol == OURS and not rule.iif and (rule.table not in tables or rule.mark != mark_of(rule.table, rule.mask)):
                yield f"a rule leads what bears the mark {rule.mark:#x} to table {rule.table}, which is no NIC's"


def _routes(view: View, nics: Sequence[Running]) -> Iterator[str]:
    """Find what leads elsewhere than to NICs, or refuses what is for them; at NICs' own mockcloud.in_routing looks.

    At the route for the rest of a node's underlay prefix mockcloud.in_underlay does.
    """
    devices = {each.link.index for each in nics}
    for family in (AF_INET, AF_INET6):
        for route in view.routes(family):
            if (route.type, route.protocol) == (UNICAST, OURS) and route.index not in devices:
                link = view.link_at(route.index)
                yield f"{route.destination} is routed to {link.name if link is not None else route.index}, which is no NIC's"
            elif route.protocol == OURS and route.type not in (UNICAST, BLACKHOLE) and route.metric != REST:
                yield f"{route.destination} in table {route.table} is refused by a route of type {route.type}, which nobody wants"


def _blackholes(view: View, nics: Sequence[Running]) -> Iterator[str]:
    """A blackhole is of all NICs that have the destination in the table."""
    known = {
        (table_of(view, each.nic["link"]), destination)
        for each in nics
        if each.nic["mode"] == "routed" and (each.wanted.options.blackhole or "blackhole" in each.wanted.unsure)
        for family in (AF_INET, AF_INET6)
        for destination in each.wanted.addresses.destinations(family)
    }
    unsure = any(each.wanted.unsure & OF_ADDRESSES for each in nics)
    for route in blackholes(view) if not unsure else ():
        if (route.table, route.destination) not in known:
            yield f"{route.destination} in table {route.table} leads nowhere, for no NIC that is to have that"


def _neighbours(view: View, nics: Sequence[Running]) -> Iterator[str]:
    """Find what answers for guests on uplinks; on their own devices mockcloud.in_device looks."""
    families = {AF_INET: {"both"}, AF_INET6: {"both", "ndp"}}
    known = {
        host
        for each in nics
        if each.nic["mode"] == "routed"
        for family, words in families.items()
        if each.wanted.options.uplink_proxy in words or "uplink_proxy" in each.wanted.unsure
        for host in each.wanted.addresses.hosts(family)
    }
    devices = {each.link.index for each in nics}
    unsure = any(each.wanted.unsure & OF_ADDRESSES for each in nics)
    for family in families if not unsure else ():
        for each in view.neighbours(family):
            if each.protocol == OURS and each.index not in devices and each.address not in known:
                yield f"the node answers for {each.address}, which is no address of a NIC that is to have that"


def _files(view: View, nics: Sequence[Running]) -> Iterator[str]:
    """A network's file is of all its NICs, whichever has written it."""
    owners = {each.nic["uuid"] for each in nics}
    networks = {name for each in nics for name in (each.told.name, each.told.uuid) if name}
    for file in view.files():
        if file.owner not in owners and file.name not in networks:
            yield f"{file.path} of NIC {file.owner} is nobody's"
