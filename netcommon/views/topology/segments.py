"""The bridges and tables of a node with their uplinks, from one view of the host; each NIC on record in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from netcommon.host.api.facts import AF_INET, AF_INET6, Link, OvsPort
from netcommon.host.api.host import View
from netcommon.operations.link import marked
from netcommon.operations.routed_uplink import Uplinks, uplinks
from netcommon.operations.table import MAIN, table_number
from netcommon.operations.vlan import DEAD_ENDS
from netcommon.views.format import natural
from netcommon.views.topology.model import BRIDGE, EXT, KINDS, OPENVSWITCH, TABLE, NicView, Port, Segment
from runtime.errors import HostRefused, NetcommonError

OVS_PORTS = "its Open vSwitch ports"
VHOST = "dpdkvhostuser"  #: so begin the types of interfaces behind which guests are, without a device of the kernel's

T = TypeVar("T")
Named = dict[str, tuple[str, ...]]


class Host:
    """What the segments need of a view, each question asked once; what is not answered becomes a problem, and the rest is shown."""

    def __init__(self, view: View, named: Named) -> None:
        self.view, self.named = view, named
        self.problems: list[str] = []
        self._tables: dict[str, int] = {}
        self.silent: set[str] = set()  #: what was not answered is not asked again: each question may take seconds
        self.links = self.all("its devices", view.links)
        self.switches = {each.name for each in self.all("its Open vSwitch bridges", view.ovs_switches)}

    def all(self, what: str, question: Callable[[], Sequence[T]]) -> Sequence[T]:
        """The answer, or nothing."""
        return self.ask(what, question, ())

    def ask(self, what: str, question: Callable[[], T], otherwise: T) -> T:
        """The answer, or ``otherwise``."""
        if what in self.silent:
            return otherwise
        try:
            return question()
        except NetcommonError as error:
            self.silent.add(what)
            self.problems.append(f"{what}: {error}")
            return otherwise

    def table(self, name: str) -> int:
        """Its number; 0 where it is not known."""
        if name not in self._tables:
            self._tables[name] = self.ask(f"table {name}", partial(_number, self.view, name), 0)
        return self._tables[name]


def segments(view: View, nics: Sequence[NicView], named: Named) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
    """Every bridge there is, and whatever a NIC on record is on; and what could not be told. ``named``: uplinks by the settings."""
    host = Host(view, named)
    places: dict[tuple[str, str], list[NicView]] = {}
    for link in host.links:
        if link.kind == "bridge":
            places[BRIDGE, link.name] = []
    for name in host.switches:
        places[OPENVSWITCH, name] = []
    tables: dict[str, int] = {}
    for nic in nics:
        kind, name = _place(host, nic, tables)
        places.setdefault((kind, name), []).append(nic)
    taken = {nic.device for nic in nics}
    ordered = sorted(places, key=lambda place: (KINDS.index(place[0]), natural(place[1])))
    make = {BRIDGE: _bridge, OPENVSWITCH: _switch}
    made = [
        make[kind](host, name, taken) if kind in make else _table(host, name, tables[name]) if kind == TABLE else _none(kind, name)
        for kind, name in ordered
    ]
    found = [segment._replace(nics=_sorted(places[place])) for place, segment in zip(ordered, made, strict=True)]
    return tuple(found), tuple(host.problems)


def _sorted(nics: Iterable[NicView]) -> tuple[NicView, ...]:
    """By VLAN, then as people count."""
    return tuple(sorted(nics, key=lambda nic: (-1 if nic.access is None else nic.access, nic.trunks, natural(nic.label), nic.key)))


def _place(host: Host, nic: NicView, tables: dict[str, int]) -> tuple[str, str]:
    """Where a NIC is shown. A table goes by one name, by whatever name its NICs call it."""
    if nic.mode in (BRIDGE + "d", OPENVSWITCH):
        return {BRIDGE + "d": BRIDGE}.get(nic.mode, nic.mode), nic.link
    if nic.mode != "routed":
        return EXT, ""
    number = host.table(nic.link)
    name = "main" if number == MAIN else next((one for one, its in tables.items() if its == number and number), nic.link)
    tables.setdefault(name, number)
    return TABLE, name


def _number(view: View, name: str) -> int:
    try:
        return table_number(view, name, [])
    except HostRefused:  # no name of a table any more: check says what that does to the NIC
        return 0


def _none(kind: str, name: str) -> Segment:
    return Segment(kind, name, True, True, 0, False, 0, (), (), ())


def _port(link: Link, vlans: Sequence[int] = ()) -> Port:
    return Port(link.name, link.kind, link.up, tuple(vlans))


def is_guests(link: Link) -> bool:
    """A tap, a vif, or what bears our mark."""
    return link.kind in DEAD_ENDS or link.holders >= 0 or link.name.startswith("vif") or marked(link)


def _bridge(host: Host, name: str, taken: set[str]) -> Segment:
    """A Linux bridge. Its uplinks are those of the settings, else its ports that are no guest's; a veth is one only if it is alone."""
    view, made = host.view, _none(BRIDGE, name)
    link = next((link for link in host.links if link.name == name and link.kind == "bridge"), None)
    if link is None:
        return made._replace(there=False, up=False)
    ports = [port for port in host.all(f"the ports of {name}", lambda: view.ports(link.index)) if port.name not in taken]
    outward = [port for port in ports if not is_guests(port)]
    better = [port for port in outward if port.kind != "veth"]
    ways = better or (outward if len(outward) == 1 else [])
    if name in host.named:
        ways = [port for port in ports if port.name in host.named[name]]

    def vlans(port: Link) -> list[int]:
        if not link.vlan_filtering:
            return []
        return [vlan.vid for vlan in host.all(f"the VLANs of {port.name}", lambda: view.vlans(port.index))]

    up = tuple(_port(port, vlans(port)) for port in ways)
    others = tuple(_port(port) for port in ports if port not in ways)
    return made._replace(up=link.up, mtu=link.mtu, aware=link.vlan_filtering, uplinks=up, others=others)


def _switch(host: Host, name: str, taken: set[str]) -> Segment:
    """A bridge of Open vSwitch: all of them know VLANs."""
    view, made = host.view, _none(OPENVSWITCH, name)
    there = name in host.switches or host.ask(f"bridge {name}", lambda: view.ovs_bridge(name), True)
    link = next((link for link in host.links if link.name == name), None)
    up, others = _ways(host, name, taken, set())
    # it switches while its own device is down, which is that of the node's own port
    return made._replace(there=there, up=there, mtu=link.mtu if link else 0, aware=True, uplinks=up, others=others)


def _ways(host: Host, name: str, taken: set[str], passed: set[str]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Give what leads out of the node by a bridge of Open vSwitch, and the other devices that are its ports.

    A bond leads out by its members, a patch port by what does so on the bridge beyond it. ``passed``: takes the bridges looked at.
    """
    passed.add(name)
    links = {link.name: link for link in host.links}
    ways, others = dict[str, Port](), dict[str, Port]()
    for port in _ovs_ports(host, name):
        if port.peer:
            beyond = host.ask(OVS_PORTS, partial(host.view.ovs_port, port.peer), None)
            if beyond is not None and beyond.bridge not in passed:
                ways |= {way.name: way for way in _ways(host, beyond.bridge, taken, passed)[0]}
            continue
        vlans = port.trunks or (() if port.tag is None else (port.tag,))
        for device in port.members or (port,):
            link = links.get(device.name)
            if device.name in (name, port.bridge) or device.name in taken:  # a bridge's name is that of the node's own port
                continue
            if link is None:
                if device.ofport > 0 and not device.internal and not device.kind.startswith(VHOST):  # a tunnel, or DPDK's
                    ways[device.name] = Port(device.name, device.kind, True, vlans)
            elif is_guests(link) or link.kind in ("openvswitch", "veth"):
                others[device.name] = _port(link, vlans)
            else:
                ways[device.name] = _port(link, vlans)
    return tuple(ways.values()), tuple(others.values())


def _ovs_ports(host: Host, name: str) -> list[OvsPort]:
    """Give the ports of a bridge; of a fake one, which is a VLAN of another, those of that one too that carry the VLAN among others."""
    view = host.view
    ports = list(host.all(OVS_PORTS, partial(view.ovs_bridge_ports, name)))
    real = host.ask(f"bridge {name}", partial(view.ovs_switch, name), None)
    if real is not None and real.name != name:
        own = host.ask(OVS_PORTS, partial(view.ovs_port, name), None)
        vid = own.tag if own is not None else None
        ports += [port for port in host.all(OVS_PORTS, partial(view.ovs_bridge_ports, real.name)) if _carries(port, vid)]
    return ports


def _carries(port: OvsPort, vid: int | None) -> bool:
    """Tell whether a port carries a VLAN (ovs-vswitchd.conf.db(5), vlan_mode)."""
    if port.vlan_mode == "access" or (port.tag is not None and not port.vlan_mode):
        return port.tag == vid
    return not port.trunks or vid in (port.tag, *port.trunks)


def _table(host: Host, name: str, number: int) -> Segment:
    """A routing table; its uplinks are those that a NIC of it has."""
    found: dict[str, Port] = {}
    for family in (AF_INET, AF_INET6) if number else ():
        ways = host.ask(f"the uplinks of table {name}", partial(uplinks, host.view, family, number), Uplinks([], ""))
        found |= {link.name: _port(link) for link in ways.links}
    return _none(TABLE, name)._replace(there=bool(number), number=number, uplinks=tuple(found.values()))
