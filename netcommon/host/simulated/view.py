"""What can be read of a simulated node."""

from __future__ import annotations

from ipaddress import ip_network

from netcommon.host.api.datapath import ANYCAST, BROADCAST
from netcommon.host.api.datapath import LOCAL as OWN
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Route
from netcommon.host.api.host import EVERY, least_mtu, mtu_below
from netcommon.host.linux.rt_tables import number_of
from netcommon.host.rtnetlink.attributes import LENGTHS, show_address
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING, NamedTuple

LOCAL = 255  #: RT_TABLE_LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from netcommon.host.api.datapath import Connection, DeviceState, OvsForwarding, Question, Transform, Upper, Way
    from netcommon.host.api.facts import (
        Address,
        BridgeVlan,
        Counters,
        Daemon,
        FdbEntry,
        File,
        Filter,
        Flow,
        Link,
        Neighbour,
        OvsBridge,
        OvsPort,
        OvsShaper,
        Port,
        Qdisc,
        Rule,
    )
    from netcommon.host.api.host import RouteList
    from netcommon.host.api.nftables import NftChain, NftElement, NftRule, NftTable
    from netcommon.host.simulated.kernel import Kernel
    from netcommon.host.simulated.machine import Machine
    from netcommon.host.simulated.nft import Ruleset
    from netcommon.host.simulated.ovs import Switch

UNIVERSAL = 2  #: the bit that modified EUI-64 turns round (RFC 4291, appendix A)


class Whole(NamedTuple):
    """The routes of a table, or of all, as they were listed."""

    routes: tuple[Route, ...]

    def all(self) -> Sequence[Route]:
        return self.routes

    def short(self) -> bool:
        return True

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        return [route for route in self.routes if route.destination == destination]


class MemoryView:
    """The state of now. Raises TryAgain while the host is ``busy``."""

    def __init__(self, host: Machine) -> None:
        self._host = host

    @property
    def _kernel(self) -> Kernel:
        self._host.reads += 1
        if self._host.busy:
            raise TryAgain("the simulated kernel is busy")
        return self._host.kernel

    @property
    def _switch(self) -> Switch | None:
        self._host.reads += 1
        condition = self._host.switch.condition
        if not condition.there:
            return None
        if not condition.database or self._host.busy:
            raise TryAgain("the simulated OVSDB does not answer")
        return self._host.switch

    def link(self, name: str) -> Link | None:
        return self._kernel.named(name)

    def link_at(self, index: int) -> Link | None:
        return self._kernel.links.get(index)

    def links(self) -> Sequence[Link]:
        return list(self._kernel.links.values())

    def ports(self, bridge: int) -> Sequence[Link]:
        return self._kernel.ports(bridge) if bridge > 0 else []

    def assigned(self, link: Link) -> bool:
        return link.index in self._kernel.assigned

    def least_mtu(self, bridge: Link, but: Callable[[], Collection[str]]) -> int:
        return least_mtu(self.ports(bridge.index), but())

    def mtu_below(self, bridge: Link) -> int:
        return mtu_below(bridge, self.ports(bridge.index))

    def links_of(self, kind: str) -> Sequence[Link]:
        return [link for link in self._kernel.links.values() if link.kind == kind]

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        return [rule for rule in self._kernel.rules if rule.family == family and iif in (None, rule.iif)]

    def routes(self, family: int, table: int | None = None, destination: str | None = None, metric: int | None = None) -> Sequence[Route]:
        own = [Route(each.family, LOCAL, f"{each.address}/{LENGTHS[family] * 8}", each.index, 2, type=2) for each in self._kernel.addresses]
        return [
            route
            for route in (*self._kernel.routes, *(own if table == LOCAL else ()))
            if route.family == family and table in (None, route.table) and destination in (None, route.destination)
        ]

    def routes_of(self, family: int, protocol: int = 0, kind: int = 0, index: int = 0, table: int = 0) -> Sequence[Route]:
        kept = (_kept(each, family) for each in self._kernel.addresses if _shared(each, family))
        return [
            route
            for route in (*self._kernel.routes, *(kept if table == LOCAL else ()))
            if route.family == family
            and table in (0, route.table)
            and protocol in (0, route.protocol)
            and kind in (0, route.type)
            and (not index or index in (route.index, *route.paths))
        ]

    def route_list(self, family: int, table: int | None = None) -> RouteList:
        return Whole(tuple(self.routes(family, table)))

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        return [each for each in self._kernel.neighbours if each.family == family and index in (None, each.index)]

    def unanswered(self, family: int, index: int, address: str) -> bool:
        return (family, index, address) in self._kernel.unanswered

    def addresses(self, index: int | None = None) -> Sequence[Address]:
        return [each for each in self._kernel.addresses if index in (None, each.index)]

    def tentative(self, index: int) -> frozenset[str]:
        return frozenset()

    def local(self, family: int, address: str) -> int:
        if any((each.family, each.address) == (family, address) for each in self._kernel.addresses):
            return OWN
        shared = BROADCAST if family == AF_INET else ANYCAST
        return shared if any(_shared(each, family) == address for each in self._kernel.addresses) else 0

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        return sorted(self._kernel.vlans.get(index, {}).values())

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridges and their ports."""
        return [(index, vlan) for index in self._kernel.vlans for vlan in self.vlans(index)]

    def vlan_states(self, index: int) -> Mapping[int, int]:
        return {}

    def carriers(self, vid: int) -> Sequence[int]:
        return [index for index, vlans in self._kernel.vlans.items() if vid in vlans]

    def port(self, index: int) -> Port | None:
        return self._kernel.bridge_ports.port(index)

    def fdb_entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        return self._kernel.bridge_ports.entry(bridge, mac, vid)

    def way(self, question: Question) -> Way:
        from netcommon.host.simulated.routing import Routing

        return Routing(self._kernel).way(question)

    def groups(self, index: int) -> Sequence[str]:
        from netcommon.host.simulated.routing import Routing

        return Routing(self._kernel).groups(index)

    def device_state(self, index: int) -> DeviceState | None:
        from netcommon.host.simulated.routing import Routing

        return Routing(self._kernel).device_state(index)

    def root_qdisc(self, index: int) -> Qdisc | None:
        return self._kernel.tc.roots.get(index)

    def clsact(self, index: int) -> Qdisc | None:
        return self._kernel.tc.ingress.get(index)

    def filters(self, index: int) -> Sequence[Filter]:
        return self._kernel.tc.filters(index)

    def counters(self) -> Mapping[int, Counters]:
        from netcommon.host.api.facts import Counters

        kernel = self._kernel
        return {index: kernel.counters.get(index, Counters()) for index in kernel.links}

    def every_upper(self) -> Mapping[int, Sequence[Upper]]:
        from netcommon.host.api.datapath import UPPERS, Upper

        found: dict[int, list[Upper]] = {}
        for each in self._kernel.links.values():
            if each.kind in UPPERS and each.lower and not each.foreign_lower:
                found.setdefault(each.lower, []).append(Upper(each.name, each.kind, each.address, each.up, each.protocol, each.vlan))
        return found

    def uppers(self, index: int) -> Sequence[Upper]:
        return self.every_upper().get(index, [])

    def addresses_taken(self, index: int) -> frozenset[str]:
        return frozenset()

    def every_vlan_state(self) -> Mapping[int, Mapping[int, int]]:
        return {}

    def queue_drops(self) -> Mapping[int, int]:
        return dict(self._kernel.tc.drops)

    def sysctl(self, path: str) -> str | None:
        return self._kernel.settings.get(path)

    def translated(self, connection: Connection) -> bool:
        return False

    def transforms(self) -> Sequence[Transform]:
        return ()

    def programs(self, index: int, egress: bool) -> int | None:
        return 0

    def legacy_tables(self) -> Sequence[str]:
        return ()

    def table(self, name: str) -> int | None:
        known = self._host.tables.get(name)
        return number_of(name) if known is None else known

    def named_tables(self) -> Mapping[str, int]:
        return self._host.tables

    def template(self, name: str) -> str:
        from netcommon.templates import read

        own = self._host.templates.get(name)
        return read(name, "/nonexistent") if own is None else own

    def ovs_bridge(self, name: str) -> bool:
        switch = self._switch
        return switch is not None and switch.has_bridge(name)

    def ovs_port(self, name: str) -> OvsPort | None:
        switch = self._switch
        return None if switch is None else switch.port(name)

    def ovs_held(self, name: str) -> OvsPort | None:
        switch = self._host.switch
        return switch.port(name) if switch.condition.there and switch.condition.database else None

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.owner]

    def ovs_switch(self, name: str) -> OvsBridge | None:
        switch = self._switch
        return None if switch is None else switch.switch(name)

    def ovs_switches(self) -> Sequence[OvsBridge]:
        switch = self._switch
        return [] if switch is None else switch.switches()

    def ovs_away(self) -> bool:
        return self._host.switch.away

    def ovs_bridge_ports(self, bridge: str) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.bridge == bridge]

    def ovs_forwarding(self, bridge: str) -> OvsForwarding:
        return self._host.openflow.forwarding_of(bridge)

    def ovs_shapers(self) -> Sequence[OvsShaper]:
        switch = self._switch
        return [] if switch is None else switch.unused_shapers()

    def flows(self, bridge: str, cookie: int = 0) -> Sequence[Flow]:
        self._host.reads += 1
        return self._host.openflow.flows(bridge, cookie)

    def flows_from(self, bridge: str, port: int) -> Sequence[Flow]:
        self._host.reads += 1
        return self._host.openflow.flows_from(bridge, port)

    def flow_texts(self, flows: Sequence[str]) -> Sequence[str]:
        return self._host.openflow.texts(flows)

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        switch = self._switch
        return [] if switch is None else switch.ports()

    # -- how the outside reaches this node

    def ways_in(self, family: int, table: int) -> Sequence[str]:
        rules = [rule for rule in self._host.kernel.rules if (rule.family, rule.table) == (family, table)]
        return list(dict.fromkeys(rule.iif for rule in rules if rule.iif and rule.protocol != PROTOCOL))

    def link_local(self, index: int) -> str:
        link = self._host.kernel.links.get(index)
        if link is None or not link.up or not link.address or self._off(link.name):
            return ""
        octets = bytes.fromhex(link.address.replace(":", ""))
        identifier = bytes((octets[0] ^ UNIVERSAL,)) + octets[1:3] + b"\xff\xfe" + octets[3:]
        return show_address(AF_INET6, b"\xfe\x80" + bytes(6) + identifier)

    def _off(self, device: str) -> bool:
        return self._host.kernel.settings.get(f"net/ipv6/conf/{device}/disable_ipv6") == "1"

    # -- nftables

    @property
    def _nft(self) -> Ruleset:
        self._host.reads += 1
        if self._host.busy:
            raise TryAgain("the simulated kernel is busy")
        self._host.nftables.look()
        return self._host.nftables

    def nft_table(self, family: int, name: str) -> NftTable | None:
        found = self._nft.tables.get((family, name))
        return None if found is None else found.table

    def nft_tables(self, family: int) -> Sequence[NftTable]:
        return [each.table for each in self._nft.tables.values() if each.table.family == family]

    def nft_chain(self, family: int, table: str, name: str) -> NftChain | None:
        found = self._nft.tables.get((family, table))
        return None if found is None or name not in found.chains else found.seen(name)

    def nft_chains(self, family: int) -> Sequence[NftChain]:
        return [each.seen(name) for each in self._nft.tables.values() if each.table.family == family for name in each.chains]

    def nft_chains_of(self, family: int, table: str) -> Sequence[NftChain]:
        return [chain for chain in self.nft_chains(family) if chain.table == table]

    def nft_rules(self, family: int, table: str) -> Sequence[NftRule]:
        found = self._nft.tables.get((family, table))
        return [] if found is None else [rule for rules in found.rules.values() for rule in rules]

    def nft_elements(self, family: int, table: str, sets: frozenset[str] = EVERY) -> Sequence[NftElement]:
        found = self._nft.tables.get((family, table))
        return [] if found is None else [each for each in found.elements.values() if not sets or each.set in sets]

    def nft_set_statements(self, family: int, table: str) -> frozenset[str]:
        found = self._nft.tables.get((family, table))
        kinds = [(each.counter, each.limit) for each in found.sets.values()] if found is not None else []
        return frozenset(name for kind in kinds for name, has in zip(("counter", "limit"), kind, strict=True) if has)

    def nft_rules_of(self, family: int, table: str, chain: str) -> Sequence[NftRule]:
        return [rule for rule in self.nft_rules(family, table) if rule.chain == chain]

    def nft_elements_of(self, family: int, table: str, index: bytes, sets: frozenset[str]) -> Sequence[NftElement]:
        return [element for element in self.nft_elements(family, table, sets) if element.key[:4] == index]

    # -- files and daemons

    def file(self, folder: str, name: str) -> File | None:
        self._host.reads += 1
        return self._host.files.contents.get((folder, name))

    def files(self) -> Sequence[File]:
        self._host.reads += 1
        return [file for file in self._host.files.contents.values() if file.owner]

    def folder(self, folder: str) -> bool:
        """See View."""
        return self._host.files.there(folder)

    def daemon(self, name: str) -> Daemon | None:
        self._host.reads += 1
        return self._host.daemons.running.get(name)

    def program(self, name: str) -> str:
        return self._host.daemons.programs.get(name, "")


def _shared(each: Address, family: int) -> str:
    """The broadcast address that comes with an address of IPv4; in IPv6 the anycast address of a network's routers (the node is one)."""
    network = ip_network(f"{each.address}/{each.length}", strict=False)
    if each.family != family or network.num_addresses <= 2:
        return ""
    return str(network.broadcast_address if family == AF_INET else network.network_address)


def _kept(each: Address, family: int) -> Route:
    """The route to it that the kernel keeps in table local."""
    kind, length = (BROADCAST, 32) if family == AF_INET else (ANYCAST, 128)
    return Route(family, LOCAL, f"{_shared(each, family)}/{length}", each.index, 2, type=kind)
