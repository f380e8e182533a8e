"""A view of one moment: each table is read once, whole, when first asked for."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET
from netcommon.host.api.host import EVERY, Listed, Remembered, View, least_mtu, mtu_below
from runtime.typed import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import TypeVar

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
        Route,
        Rule,
    )
    from netcommon.host.api.host import RouteList
    from netcommon.host.api.nftables import NftChain, NftElement, NftRule, NftTable

    Value = TypeVar("Value")


LOCAL = 255  #: RT_TABLE_LOCAL (linux/rtnetlink.h)
#: RTN_LOCAL: a route to an address of the node; RTN_ANYCAST: to one that all routers of a network share.
OWN, ANYCAST = 2, 4


class Source(View, Protocol):
    """A live view that can also tell everything at once."""

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridges and their ports."""
        ...

    def every_vlan_state(self) -> Mapping[int, Mapping[int, int]]:
        """States of the VLANs of all bridges and ports that are not forwarding, by device index and VID."""
        ...

    def every_upper(self) -> Mapping[int, Sequence[Upper]]:
        """Return what ``uppers`` tells, by device index."""
        ...

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        ...


class Snapshot:
    """Answers from tables of ``view`` that are read when first needed; those are complete, or TryAgain is raised."""

    def __init__(self, view: Source) -> None:
        self._view = view
        self._read: dict[object, object] = {}

    def _once(self, key: object, read: Callable[[], Value]) -> Value:
        if key not in self._read:
            self._read[key] = read()
        return cast("Value", self._read[key])

    def links(self) -> Sequence[Link]:
        return self._once("links", self._view.links)

    def link(self, name: str) -> Link | None:
        return self._once("names", lambda: {link.name: link for link in self.links()}).get(name)

    def link_at(self, index: int) -> Link | None:
        return self._once("indices", lambda: {link.index: link for link in self.links()}).get(index)

    def ports(self, bridge: int) -> Sequence[Link]:
        if bridge <= 0:
            return []
        return self._once("ports", lambda: _grouped(self.links(), lambda link: link.master)).get(bridge, [])

    def assigned(self, link: Link) -> bool:
        return self._view.assigned(link)

    def least_mtu(self, bridge: Link, but: Callable[[], Collection[str]]) -> int:
        return self._once(("least mtu", bridge.index), lambda: least_mtu(self.ports(bridge.index), but()))

    def mtu_below(self, bridge: Link) -> int:
        return self._once(("mtu below", bridge.index), lambda: mtu_below(bridge, self.ports(bridge.index)))

    def links_of(self, kind: str) -> Sequence[Link]:
        return self._once("links of kinds", lambda: _grouped(self.links(), lambda link: link.kind)).get(kind, [])

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        rules = self._once(("rules", family), lambda: self._view.rules(family))
        if iif is None:
            return rules
        return self._once(("iif", family), lambda: _grouped(rules, lambda rule: rule.iif)).get(iif, [])

    def routes(self, family: int, table: int | None = None, destination: str | None = None, metric: int | None = None) -> Sequence[Route]:
        """Of a table that is too long to be listed each destination is asked for, once."""
        if table is None:
            routes = self._once(("routes", family), lambda: self._view.routes(family))
            return [route for route in routes if destination in (None, route.destination)]
        listed = self._listed(family, table)
        routes_of = self._once(("table", family, table), listed.all)
        if destination is None:
            return self._once(("whole", family, table), lambda: self._view.routes(family, table) if routes_of is None else routes_of)
        if routes_of is None:
            return self._once((family, table, destination, metric), lambda: listed.to(destination, metric))
        return self._once(("to", family, table), lambda: _grouped(routes_of, lambda route: route.destination)).get(destination, [])

    def routes_of(self, family: int, protocol: int = 0, kind: int = 0, index: int = 0, table: int = 0) -> Sequence[Route]:
        key = "sort", family, protocol, kind, index, table
        return self._once(key, lambda: self._view.routes_of(family, protocol, kind, index, table))

    def route_list(self, family: int, table: int | None = None) -> RouteList:
        return Listed(self, family, table) if table is None else Remembered(self, family, table, self._listed(family, table))

    def _listed(self, family: int, table: int) -> RouteList:
        found: RouteList = self._once(("list", family, table), lambda: self._view.route_list(family, table))
        return found

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        entries = self._once(("neighbours", family), lambda: self._view.neighbours(family))
        if index is None:
            return entries
        return self._once(("proxied", family), lambda: _grouped(entries, lambda entry: entry.index)).get(index, [])

    def addresses(self, index: int | None = None) -> Sequence[Address]:
        addresses = self._once("addresses", self._view.addresses)
        if index is None:
            return addresses
        return self._once("addressed", lambda: _grouped(addresses, lambda address: address.index)).get(index, [])

    def tentative(self, index: int) -> frozenset[str]:
        return self._once(("tentative", index), lambda: self._view.tentative(index))

    def local(self, family: int, address: str) -> int:
        if (family, address) in self._once("local", lambda: {(each.family, each.address) for each in self.addresses()}):
            return OWN
        if family == AF_INET:  # table local shares main's trie (net/ipv4/fib_trie.c): to list it is to walk through all routes of main
            return self._once(("broadcast", address), lambda: self._view.local(family, address))
        there = self._once("anycast", lambda: {route.destination for route in self.routes_of(family, kind=ANYCAST, table=LOCAL)})
        return ANYCAST if f"{address}/128" in there else 0

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        by_index = self._once("vlans", lambda: _grouped(self._view.every_vlan(), lambda pair: pair[0]))
        return self._once(("vlans", index), lambda: [vlan for _, vlan in by_index.get(index, [])])

    def vlan_states(self, index: int) -> Mapping[int, int]:
        return self._once("vlan states", self._view.every_vlan_state).get(index, {})

    def carriers(self, vid: int) -> Sequence[int]:
        return self._once(("carriers", vid), lambda: self._view.carriers(vid))

    def port(self, index: int) -> Port | None:
        return self._once(("port", index), lambda: self._view.port(index))

    def fdb_entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        return self._once(("fdb", bridge, mac, vid), lambda: self._view.fdb_entry(bridge, mac, vid))

    def way(self, question: Question) -> Way:
        return self._once(question, lambda: self._view.way(question))

    def unanswered(self, family: int, index: int, address: str) -> bool:
        return self._once(("unanswered", family, index, address), lambda: self._view.unanswered(family, index, address))

    def groups(self, index: int) -> Sequence[str]:
        return self._once(("groups", index), lambda: self._view.groups(index))

    def device_state(self, index: int) -> DeviceState | None:
        return self._once(("device", index), lambda: self._view.device_state(index))

    def uppers(self, index: int) -> Sequence[Upper]:
        return self._once("uppers", self._view.every_upper).get(index, [])

    def addresses_taken(self, index: int) -> frozenset[str]:
        return self._once(("taken", index), lambda: self._view.addresses_taken(index))

    def translated(self, connection: Connection) -> bool:
        return self._once(connection, lambda: self._view.translated(connection))

    def transforms(self) -> Sequence[Transform]:
        return self._once("transforms", self._view.transforms)

    def programs(self, index: int, egress: bool) -> int | None:
        return self._once(("programs", index, egress), lambda: self._view.programs(index, egress))

    def root_qdisc(self, index: int) -> Qdisc | None:
        return self._once(("root", index), lambda: self._view.root_qdisc(index))

    def clsact(self, index: int) -> Qdisc | None:
        return self._once(("clsact", index), lambda: self._view.clsact(index))

    def filters(self, index: int) -> Sequence[Filter]:
        return self._once(("filters", index), lambda: self._view.filters(index))

    def ways_in(self, family: int, table: int) -> Sequence[str]:
        return self._once(("in", family, table), lambda: self._view.ways_in(family, table))

    def link_local(self, index: int) -> str:
        return self._once(("link-local", index), lambda: self._view.link_local(index))

    def nft_tables(self, family: int) -> Sequence[NftTable]:
        return self._once(("nft", family), lambda: self._view.nft_tables(family))

    def nft_table(self, family: int, name: str) -> NftTable | None:
        return self._once(("nft names", family), lambda: {table.name: table for table in self.nft_tables(family)}).get(name)

    def nft_chains(self, family: int) -> Sequence[NftChain]:
        return self._once(("nft chains", family), lambda: self._view.nft_chains(family))

    def nft_chain(self, family: int, table: str, name: str) -> NftChain | None:
        chains = self._once(("nft chain", family), lambda: {(chain.table, chain.name): chain for chain in self.nft_chains(family)})
        return chains.get((table, name))

    def nft_chains_of(self, family: int, table: str) -> Sequence[NftChain]:
        chains = self._once(("nft chains of", family), lambda: _grouped(self.nft_chains(family), lambda chain: chain.table))
        return chains.get(table, [])

    def nft_rules(self, family: int, table: str) -> Sequence[NftRule]:
        return self._once(("nft rules", family, table), lambda: self._view.nft_rules(family, table))

    def nft_elements(self, family: int, table: str, sets: frozenset[str] = EVERY) -> Sequence[NftElement]:
        return self._once(("nft elements", family, table, sets), lambda: self._view.nft_elements(family, table, sets))

    def nft_set_statements(self, family: int, table: str) -> frozenset[str]:
        return self._once(("nft set statements", family, table), lambda: self._view.nft_set_statements(family, table))

    def nft_rules_of(self, family: int, table: str, chain: str) -> Sequence[NftRule]:
        rules = self._once(("nft chained", family, table), lambda: _grouped(self.nft_rules(family, table), lambda rule: rule.chain))
        return rules.get(chain, [])

    def nft_elements_of(self, family: int, table: str, index: bytes, sets: frozenset[str]) -> Sequence[NftElement]:
        key = "nft indexed", family, table, sets
        return self._once(key, lambda: _grouped(self.nft_elements(family, table, sets), lambda element: element.key[:4])).get(index, [])

    def counters(self) -> Mapping[int, Counters]:
        return self._once("counters", self._view.counters)

    def queue_drops(self) -> Mapping[int, int]:
        return self._once("queue drops", self._view.queue_drops)

    def sysctl(self, path: str) -> str | None:
        return self._once(("sysctl", path), lambda: self._view.sysctl(path))

    def legacy_tables(self) -> Sequence[str]:
        return self._once(("legacy",), self._view.legacy_tables)

    def table(self, name: str) -> int | None:
        return self._view.table(name)

    def named_tables(self) -> Mapping[str, int]:
        return self._view.named_tables()

    def template(self, name: str) -> str:
        return self._view.template(name)

    def ovs_bridge(self, name: str) -> bool:
        return self._once(("bridge", name), lambda: self._view.ovs_bridge(name))

    def ovs_port(self, name: str) -> OvsPort | None:
        return self._once("all ports", lambda: {port.name: port for port in self._every_port()}).get(name)

    def ovs_held(self, name: str) -> OvsPort | None:
        return self._once(("held", name), lambda: self._view.ovs_held(name))

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self._every_port() if port.owner]

    def file(self, folder: str, name: str) -> File | None:
        return self._once(("file", folder, name), lambda: self._view.file(folder, name))

    def files(self) -> Sequence[File]:
        return self._once("files", self._view.files)

    def folder(self, folder: str) -> bool:
        return self._once(("folder", folder), lambda: self._view.folder(folder))

    def daemon(self, name: str) -> Daemon | None:
        return self._once(("daemon", name), lambda: self._view.daemon(name))

    def program(self, name: str) -> str:
        return self._view.program(name)

    def ovs_switch(self, name: str) -> OvsBridge | None:
        return self._once(("switch", name), lambda: self._view.ovs_switch(name))

    def ovs_switches(self) -> Sequence[OvsBridge]:
        return self._once("switches", self._view.ovs_switches)

    def ovs_away(self) -> bool:
        return self._once("away", self._view.ovs_away)

    def ovs_bridge_ports(self, bridge: str) -> Sequence[OvsPort]:
        return self._once("ports by bridge", lambda: _grouped(self._every_port(), lambda port: port.bridge)).get(bridge, [])

    def ovs_forwarding(self, bridge: str) -> OvsForwarding:
        return self._once(("forwarding", bridge), lambda: self._view.ovs_forwarding(bridge))

    def ovs_shapers(self) -> Sequence[OvsShaper]:
        return self._once("shapers", self._view.ovs_shapers)

    def flows(self, bridge: str, cookie: int = 0) -> Sequence[Flow]:
        flows = self._once(("flows", bridge), lambda: self._view.flows(bridge))
        if not cookie:
            return flows
        return self._once(("cookies", bridge), lambda: _grouped(flows, lambda flow: flow.cookie)).get(cookie, [])

    def flows_from(self, bridge: str, port: int) -> Sequence[Flow]:
        return self._view.flows_from(bridge, port)

    def flow_texts(self, flows: Sequence[str]) -> Sequence[str]:
        return self._view.flow_texts(flows)

    def _every_port(self) -> Sequence[OvsPort]:
        return self._once("ovs", self._view.every_ovs_port)


def _grouped(values: Sequence[Value], key: Callable[[Value], object]) -> dict[object, list[Value]]:
    groups: dict[object, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups
