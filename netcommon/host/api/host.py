"""The interface of a host: what can be read of it (View), what it answers, and who is asked (Host).

Both backends, linux and memory, pass one contract suite.
"""

from __future__ import annotations

import errno

from netcommon.host.api.requests import AddVlan, DeleteVlan
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

EVERY: frozenset[str] = frozenset()  #: all sets of a table (View.nft_elements)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

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
    from netcommon.host.api.nftables import NftChain, NftElement, NftRule, NftTable
    from netcommon.host.api.requests import Request


class RouteList(Protocol):
    """Routes of one table, or of all, as they were when they were listed."""

    def all(self) -> Sequence[Route] | None:
        """All of them; None where they are too many to be listed."""
        ...

    def short(self) -> bool:
        """Tell whether they are listed, so that one more question costs nothing."""
        ...

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        """Those to ``destination`` exactly; ``metric``: see View.routes."""
        ...


class Listed(NamedTuple):
    """The route list of a view to which a single question costs nothing."""

    view: View
    family: int
    table: int | None

    def all(self) -> Sequence[Route]:
        return self.view.routes(self.family, self.table)

    def short(self) -> bool:
        return True

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        return self.view.routes(self.family, self.table, destination, metric)


class Remembered(NamedTuple):
    """The route list ``found`` of a view that keeps what was looked for in it."""

    view: View
    family: int
    table: int | None
    found: RouteList

    def all(self) -> Sequence[Route] | None:
        return self.found.all()

    def short(self) -> bool:
        return self.found.short()

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        return self.view.routes(self.family, self.table, destination, metric)


def least_mtu(ports: Iterable[Link], but: Collection[str]) -> int:
    """Give the least MTU of ``ports`` but those of these names; 0 where there are no others."""
    return min((port.mtu for port in ports if port.name not in but), default=0)


def mtu_below(bridge: Link, ports: Iterable[Link]) -> int:
    """Give the least MTU of ``ports``, 0 as soon as one has no more than ``bridge``, or where there are none."""
    least = 0
    for port in ports:
        if port.mtu <= bridge.mtu:
            return 0
        least = min(least or port.mtu, port.mtu)
    return least


class View(Protocol):
    """What can be read. A live view asks each time; a snapshot answers from one complete picture.

    Every method raises TryAgain where the kernel or the service does not answer in time; an answer is never partial.
    """

    def link(self, name: str) -> Link | None: ...
    def link_at(self, index: int) -> Link | None: ...
    def links(self) -> Sequence[Link]: ...
    def ports(self, bridge: int) -> Sequence[Link]:
        """Return the ports of a bridge, or of another master."""
        ...

    def assigned(self, link: Link) -> bool:
        """Tell whether somebody has given the device its MAC; False where the kernel has made it up, or does not say."""
        ...

    def least_mtu(self, bridge: Link, but: Callable[[], Collection[str]]) -> int:
        """Return the least MTU of the ports of a Linux bridge but those whose names ``but`` gives; 0 where there are no others."""
        ...

    def mtu_below(self, bridge: Link) -> int:
        """Return the least MTU of the ports of a Linux bridge where all have more than the bridge itself, else 0.

        The kernel gives a bridge the least of its ports until somebody sets it: then somebody has.
        """
        ...

    def links_of(self, kind: str) -> Sequence[Link]:
        """Return the links of a kind, such as "vlan" (of both protocols) or "vrf"."""
        ...

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]: ...
    def routes(self, family: int, table: int | None = None, destination: str | None = None, metric: int | None = None) -> Sequence[Route]:
        """Unicast, blackhole and other routes of ``table`` (None: all), optionally only those to ``destination`` exactly.

        ``metric``: what is asked is whether there is a route of ours with it, or what is in its place, or in IPv6 comes before it. Where
        the table is too long to be listed the rest may be missing: what comes behind, and in IPv4 what has another metric. Of default
        routes of IPv6 only the first by each device is told then.
        """
        ...

    def routes_of(self, family: int, protocol: int = 0, kind: int = 0, index: int = 0, table: int = 0) -> Sequence[Route]:
        """The routes of a protocol, a type and an output interface (0: any), in ``table`` (0: all). The kernel sorts them out."""
        ...

    def route_list(self, family: int, table: int | None = None) -> RouteList:
        """The same routes, listed once for several destinations to be looked for."""
        ...

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]: ...
    def addresses(self, index: int | None = None) -> Sequence[Address]:
        """The addresses of both families, of one device or of all."""
        ...

    def tentative(self, index: int) -> frozenset[str]:
        """Return the addresses of a device that it may not use yet, since another node may have them (ip-address(8), tentative)."""
        ...

    def local(self, family: int, address: str) -> int:
        """Return the type (RTN_*) of what table local keeps of the address, 0 where it keeps nothing: what is for it goes no further.

        That is the node's own, or a broadcast or anycast address there. Whichever other route there is, as long as table local is looked
        up before (netcommon.operations.route.own).
        """
        ...

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        """Return the VLANs of a bridge or a port of one, VIDs rising."""
        ...

    def vlan_states(self, index: int) -> Mapping[int, int]:
        """Return by VID the states (netcommon.host.api.datapath) of those VLANs of a bridge or a port that are not forwarding."""
        ...

    def carriers(self, vid: int) -> Sequence[int]:
        """The indices of all bridges and bridge ports that carry the VLAN."""
        ...

    def port(self, index: int) -> Port | None:
        """What the port of a Linux bridge does; None where the device is none."""
        ...

    def fdb_entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        """The bridge's entry for an address in one VLAN, 0 while the bridge is not VLAN-aware."""
        ...

    def way(self, question: Question) -> Way:
        """Ask where a packet goes. An errno in the answer is the kernel's verdict; raises HostRefused where it does not give one."""
        ...

    def unanswered(self, family: int, index: int, address: str) -> bool:
        """Tell whether a neighbour on a device was asked for and has not answered (ip-neighbour(8): FAILED or INCOMPLETE)."""
        ...

    def groups(self, index: int) -> Sequence[str]:
        """Return the groups of IPv6 that a device is a member of."""
        ...

    def device_state(self, index: int) -> DeviceState | None:
        """Return how a device takes frames and hands them on; None where there is none."""
        ...

    def uppers(self, index: int) -> Sequence[Upper]:
        """Return the devices that take frames from this one, also those in other network namespaces that this one has an id for."""
        ...

    def addresses_taken(self, index: int) -> frozenset[str]:
        """Return the MAC addresses, beside its own, that somebody has had the device take from the wire."""
        ...

    def translated(self, connection: Connection) -> bool:
        """Tell whether connection tracking changes addresses or ports of a connection's packets, as NAT has it do."""
        ...

    def transforms(self) -> Sequence[Transform]:
        """Return the policies of IPsec."""
        ...

    def programs(self, index: int, egress: bool) -> int | None:
        """Return how many programs see what the device receives, or sends, by TCX; None where the kernel does not say."""
        ...

    def root_qdisc(self, index: int) -> Qdisc | None:
        """The root qdisc that somebody has put on the device; None where it has its default one."""
        ...

    def clsact(self, index: int) -> Qdisc | None:
        """What the device has in clsact's place: clsact, or ingress."""
        ...

    def filters(self, index: int) -> Sequence[Filter]:
        """The filters of the device's ingress and egress."""
        ...

    def nft_table(self, family: int, name: str) -> NftTable | None: ...
    def nft_tables(self, family: int) -> Sequence[NftTable]: ...
    def nft_chain(self, family: int, table: str, name: str) -> NftChain | None: ...
    def nft_chains(self, family: int) -> Sequence[NftChain]:
        """The chains of all tables of the family."""
        ...

    def nft_chains_of(self, family: int, table: str) -> Sequence[NftChain]:
        """Those of ``nft_chains`` that are in one table."""
        ...

    def nft_rules(self, family: int, table: str) -> Sequence[NftRule]:
        """The rules of one table, those of a chain in their order."""
        ...

    def nft_elements(self, family: int, table: str, sets: frozenset[str] = EVERY) -> Sequence[NftElement]:
        """The elements of these sets of one table, or of all of them. Others may have sets of their own in a table of ours."""
        ...

    def nft_set_statements(self, family: int, table: str) -> frozenset[str]:
        """The names of the statements that the sets of one table give their elements, such as "counter" and "connlimit"."""
        ...

    def nft_rules_of(self, family: int, table: str, chain: str) -> Sequence[NftRule]:
        """Those of ``nft_rules`` that are in one chain."""
        ...

    def nft_elements_of(self, family: int, table: str, index: bytes, sets: frozenset[str]) -> Sequence[NftElement]:
        """Those of ``nft_elements`` whose key begins with a device's index, as four bytes."""
        ...

    def counters(self) -> Mapping[int, Counters]:
        """What every device has carried, by its index."""
        ...

    def queue_drops(self) -> Mapping[int, int]:
        """Return what the root qdiscs have dropped since they were put there, by the device's index; no device counts that as dropped."""
        ...

    def sysctl(self, path: str) -> str | None:
        """The value of /proc/sys/``path``, or None where there is no such file. ``path`` uses slashes: "net/ipv4/ip_forward"."""
        ...

    def legacy_tables(self) -> Sequence[str]:
        """The tables of iptables-legacy and ip6tables-legacy that this namespace has, such as "nat"."""
        ...

    def ways_in(self, family: int, table: int) -> Sequence[str]:
        """The interfaces whose packets a rule that is not ours looks up in ``table``."""
        ...

    def link_local(self, index: int) -> str:
        """The address from which the kernel speaks to all IPv6 nodes on the link: normally its link-local one; "" if it has none yet."""
        ...

    def table(self, name: str) -> int | None:
        """The number of the routing table ``name`` (/etc/iproute2/rt_tables, rt_tables.d, or a number), None if unknown."""
        ...

    def named_tables(self) -> Mapping[str, int]:
        """The routing tables that have a name, the kernel's own among them, with their numbers."""
        ...

    def template(self, name: str) -> str:
        """The text of the template ``name``, the site's or ours. Raises SettingsInvalid where there is none that may be used."""
        ...

    def ovs_bridge(self, name: str) -> bool: ...
    def ovs_port(self, name: str) -> OvsPort | None: ...
    def ovs_held(self, name: str) -> OvsPort | None:
        """The port of that name, for a NIC to which Open vSwitch can only be in the way. Waits for half a second at most.

        None too where there is no Open vSwitch, or it does not answer: that keeps no such NIC from its network.
        """
        ...

    def ovs_ports(self) -> Sequence[OvsPort]:
        """Every port that bears our mark. Empty where Open vSwitch is not there at all."""
        ...

    def ovs_switch(self, name: str) -> OvsBridge | None:
        """The real bridge that ``name`` is, or is a VLAN of (a fake bridge)."""
        ...

    def ovs_switches(self) -> Sequence[OvsBridge]:
        """Every real bridge."""
        ...

    def ovs_bridge_ports(self, bridge: str) -> Sequence[OvsPort]:
        """Every port of a bridge, with our mark or without."""
        ...

    def ovs_forwarding(self, bridge: str) -> OvsForwarding:
        """Tell how a real bridge takes frames on. It costs processes: people's commands alone ask. Raises HostRefused without ovs-ofctl."""
        ...

    def ovs_shapers(self) -> Sequence[OvsShaper]: ...
    def ovs_away(self) -> bool:
        """Tell whether Open vSwitch has no database now, but had, and will have: of ports and bridges nothing can be told meanwhile.

        A port that is not told of may be there, and ovs-vswitchd may go on. Where Open vSwitch was removed for good it is not away.
        """
        ...

    def flows(self, bridge: str, cookie: int = 0) -> Sequence[Flow]:
        """The flows of a real bridge with our mark, or with exactly this cookie. None where the bridge or the switch is not there."""
        ...

    def flows_from(self, bridge: str, port: int) -> Sequence[Flow]:
        """The flows of a real bridge for what comes in by the port of that number, whoever has made them."""
        ...

    def flow_texts(self, flows: Sequence[str]) -> Sequence[str]:
        """Flows as somebody wrote them, with neither cookie nor in_port, each as Open vSwitch prints it (see Flow).

        Raises SettingsInvalid for what is no flow that may be added so, HostRefused where there is no ovs-ofctl.
        """
        ...

    def file(self, folder: str, name: str) -> File | None:
        """What is called ``name`` in ``folder`` (see PutFile). None where there is nothing, or no such folder."""
        ...

    def files(self) -> Sequence[File]:
        """Every file that bears our mark, in the folders that the settings name and in our own."""
        ...

    def folder(self, folder: str) -> bool:
        """Tell whether ``folder`` (see PutFile) takes files: it is there, or is one of our own, which is made.

        Raises HostRefused where it is not to be trusted.
        """
        ...

    def daemon(self, name: str) -> Daemon | None:
        """The node's daemon ``name`` where it runs."""
        ...

    def program(self, name: str) -> str:
        """The path of an installed program of the system's, "" where there is none."""
        ...


class Answer(NamedTuple):
    """What became of one request: errno 0 done; ECANCELED not tried since an earlier one failed; ETIMEDOUT unknown."""

    errno: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.errno == 0


DONE = Answer()
NOT_TRIED = Answer(errno.ECANCELED, "not tried")


def is_behind(request: Request) -> bool:
    """Tell whether the answers to the requests before it say if it is carried out (AddVlan)."""
    return isinstance(request, AddVlan) and request.behind


def held_up(request: Request, requests: Iterable[Request], answers: Iterable[Answer]) -> bool:
    """Tell whether it is not to be tried, by ``answers`` to the ``requests`` before it."""
    return is_behind(request) and any(
        isinstance(before, DeleteVlan) and before.index == request.index and not (said.ok or said.errno in before.gone)
        for before, said in zip(requests, answers, strict=False)
    )


class Service(Protocol):
    """Carries the requests of one service out, one after the other (netcommon.host.api.requests.SERVICES)."""

    def execute(self, request: Any) -> Answer: ...


class Identity(NamedTuple):
    """Where and when a record was made: ``boot`` is /proc/sys/kernel/random/boot_id, ``netns`` SO_NETNS_COOKIE (socket(7))."""

    boot: str
    netns: int


class Host(Protocol):
    """The machine, or a simulated one."""

    def identity(self) -> Identity: ...
    def view(self) -> View:
        """A live view: each answer is the state of now."""
        ...

    def snapshot(self) -> View:
        """A view of one moment, for work over many NICs: each table is read once, whole, when first asked for."""
        ...

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """Carries the requests out in order, in as few messages as the services take; one answer each.

        ``stop``: after the first failure the rest is not tried. Neighbouring SetLink requests for one link travel as one
        message; if that is refused they are sent one by one, so that the answer names the one that failed.
        """
        ...

    def execute_each(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
        """Carries several lists out side by side, each as ``execute`` does: what they ask for at a time travels together.

        The lists must not need each other: in which order two of them come to something is not said.
        """
        ...

    def begin(self) -> None:
        """Begins a hook's call: that a service did not answer one before is forgotten."""
        ...

    def close(self) -> None:
        """Closes what is open; the next request opens it again."""
        ...

    def nftables_port(self) -> int:
        """Give the number of the socket whose changes of nftables the kernel tells with that number; 0 where there is none."""
        ...

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        """The first process among ``candidates`` that has the tap ``device`` open (/proc/PID/fdinfo, "iff:"), else 0."""
        ...
