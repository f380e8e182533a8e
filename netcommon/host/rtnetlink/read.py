"""Read the kernel's tables by rtnetlink: each answer is the state of now. What few NICs need is loaded when it is asked."""

from __future__ import annotations

import errno
from _socket import AF_INET6, SOCK_CLOEXEC, SOCK_DGRAM, socket

from netcommon.host.api.facts import PROTOCOL
from netcommon.host.rtnetlink import decode, encode
from netcommon.host.rtnetlink.attributes import (
    MalformedError,
    as_bytes,
    attribute,
    attributes,
    number,
    pack_address,
    search,
    split_prefix,
    string,
    text,
    u32,
)
from netcommon.host.rtnetlink.socket import Reply, untold
from runtime.errors import HostRefused, TryAgain
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from netcommon.host.api.datapath import DeviceState, Question, Upper, Way
    from netcommon.host.api.facts import Address, BridgeVlan, Counters, FdbEntry, Filter, Link, Neighbour, Port, Qdisc, Route, Rule
    from netcommon.host.api.host import RouteList
    from netcommon.host.rtnetlink.attributes import Encoded
    from netcommon.host.rtnetlink.socket import Netlink

    Fact = TypeVar("Fact")
    Told = TypeVar("Told")

NOTHING: frozenset[int] = frozenset()
NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EOPNOTSUPP})  #: IPv6 is off since boot
NO_TABLE = NO_FAMILY | {errno.ENOENT, errno.ESRCH}  #: or the table was never made
NO_WAY = NO_TABLE | {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL}  #: unreachable, prohibit, blackhole
UNTOLD = frozenset({errno.EAGAIN, errno.EBUSY, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EPERM, errno.EOPNOTSUPP, errno.ENODEV})
LONG = 1 << 18  #: bytes of a table's list, a few thousand routes, beyond which single destinations are asked for instead
NAME_ROOM = 15  #: bytes of a device's name (IFNAMSIZ less the NUL)

ALL_NODES = "ff02::1"  #: every IPv6 node on the link (RFC 4291, 2.7.1)
DISCARD = 9  #: any port: nothing is sent there


class KernelView:
    """The part of a live view that rtnetlink tells. Every method raises TryAgain where the kernel gives no complete answer."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink

    def link(self, name: str) -> Link | None:
        """The link of that name; its alternative names do not count."""
        if not 0 < len(as_bytes(name)) <= NAME_ROOM or "\0" in name:
            return None
        found = self._link(encode.get_link(name=name))
        return found if found is not None and found.name == name else None

    def link_at(self, index: int) -> Link | None:
        return self._link(encode.get_link(index=index)) if 0 < index < 1 << 31 else None

    def listened_to(self, name: str) -> bool:
        """Whether somebody wants every frame that the link receives; also where there is no such link, or the kernel does not say."""
        found = self._netlink.get(encode.get_link(name=name))
        return not isinstance(found, bytes) or decode.listened_to(found)

    def links(self) -> Sequence[Link]:
        return [_sane(decode.link, body) for body in self._dump("links", encode.dump_links())]

    def ports(self, bridge: int) -> Sequence[Link]:
        found = [_sane(decode.link, body) for body in self._dump("ports", encode.dump_links(bridge))] if bridge > 0 else []
        return [link for link in found if link.master == bridge]

    def links_of(self, kind: str) -> Sequence[Link]:
        found = [_sane(decode.link, body) for body in self._dump("links", encode.dump_links(kind=kind))]
        return [link for link in found if link.kind == kind]

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        # The kernel can only dump them all: thousands are passed over by their bytes.
        needle = text(encode.FRA_IIFNAME, iif) if iif else b""
        bodies = self._dump("rules", encode.dump_rules(family), needle, NO_FAMILY)
        found = [_sane(decode.rule, body) for body in bodies]
        return [rule for rule in found if rule.family == family and iif in (None, rule.iif)]

    def routes(self, family: int, table: int | None = None, destination: str | None = None, metric: int | None = None) -> Sequence[Route]:
        if destination is not None:
            return self.route_list(family, table).to(destination, metric)
        found = self._dump("routes", encode.dump_routes(family, table or 0), gone=NO_TABLE)
        return _routes(self._netlink, found, family, table)

    def route_list(self, family: int, table: int | None = None) -> RouteList:
        request = encode.dump_routes(family, table or 0)
        found: list[bytes] | Reply | None = None
        if not table:
            found = self._netlink.listing(request)
        elif not self._netlink.long(request):
            found = self._netlink.short(request, LONG)
        if found is not None:
            return KernelRoutes(family, table, _there("routes", found, NO_TABLE), self._netlink)
        from netcommon.host.rtnetlink.long_table import LongTable  # few nodes have one

        return LongTable(self._netlink, family, table or 0, lambda bodies: _routes(self._netlink, bodies, family, table))

    def routes_of(self, family: int, protocol: int = 0, kind: int = 0, index: int = 0, table: int = 0) -> Sequence[Route]:
        found = self._dump("routes", encode.dump_routes(family, table, protocol, kind, index), gone=NO_TABLE | {errno.ENODEV})
        return [
            route
            for route in _routes(self._netlink, found, family, table or None)
            if protocol in (0, route.protocol) and kind in (0, route.type) and (not index or index in (route.index, *route.paths))
        ]

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        gone = NO_FAMILY | {errno.ENODEV, errno.ENOENT}
        bodies = self._dump("neighbours", encode.dump_neighbours(family, index or 0), gone=gone)
        found = [neighbour for body in bodies if (neighbour := _sane(decode.neighbour, body)) is not None]
        return [neighbour for neighbour in found if neighbour.family == family and index in (None, neighbour.index)]

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        """Empty, too, for what is no bridge port and where the kernel knows no VLAN filtering."""
        return [vlan for at, vlan in self._vlans(index) if at == index] if index > 0 else []

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridges and their ports."""
        return self._vlans(0)

    def vlan_states(self, index: int) -> Mapping[int, int]:
        return self.every_vlan_state().get(index, {})

    def every_vlan_state(self) -> Mapping[int, Mapping[int, int]]:
        """Return what ``vlan_states`` tells, by device index."""
        from netcommon.host.rtnetlink import encode_datapath

        found = self._netlink.dump(encode.dump_vlans())
        if isinstance(found, list):
            return _sane(encode_datapath.vlan_states, found)
        if found.errno == errno.EOPNOTSUPP:  # a kernel without VLAN filtering
            return {}
        raise untold("VLANs", found)

    def counters(self) -> Mapping[int, Counters]:
        from netcommon.host.rtnetlink import counters  # no hook asks

        return _sane(counters.counters, self._dump("counters", counters.dump()))

    def queue_drops(self) -> Mapping[int, int]:
        from netcommon.host.rtnetlink import counters  # no hook asks

        return _sane(counters.queue_drops, self._dump("qdiscs", counters.dump_queues()))

    # -- bridge ports and forwarding databases

    def port(self, index: int) -> Port | None:
        from netcommon.host.rtnetlink.encode_port import port

        found = self._netlink.get(encode.get_link(index=index)) if 0 < index < 1 << 31 else Reply(errno.ENODEV)
        if isinstance(found, bytes):
            return _sane(port, found)
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return None
        raise untold("bridge ports", found)

    def fdb_entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        from netcommon.host.rtnetlink.encode_port import entry, get_entry

        found = self._netlink.get(get_entry(bridge, mac, vid)) if bridge > 0 else Reply(errno.ENODEV)
        if isinstance(found, bytes):
            return _sane(entry, found)
        # no entry; no such device; the device is no bridge
        if found.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP):
            return None
        raise untold("forwarding databases", found)

    def carriers(self, vid: int) -> Sequence[int]:
        from netcommon.host.rtnetlink.encode_port import carriers

        found = self._netlink.dump(encode.dump_vlans())
        if isinstance(found, list):
            return _sane(lambda bodies: list(carriers(bodies, vid)), found)
        if found.errno == errno.EOPNOTSUPP:  # a kernel without VLAN filtering
            return []
        raise untold("VLANs", found)

    # -- the way of a frame: asked by people's commands alone

    def way(self, question: Question) -> Way:
        from netcommon.host.api.datapath import Way
        from netcommon.host.rtnetlink import encode_datapath

        found = self._netlink.get(encode_datapath.question(question))
        if not isinstance(found, bytes):
            # the kernel gives no reason for a verdict: what has one is about the question
            if not found.errno or found.errno in UNTOLD or (found.errno == errno.EINVAL and found.text):
                raise untold("routes", found)
            return Way(found.errno)
        chosen = _sane(encode_datapath.way, found)
        found = self._netlink.get(encode_datapath.question(question, match=True))
        if not isinstance(found, bytes):
            return chosen._replace(destination="")
        route = _sane(encode_datapath.way, found)
        shared = _sane(encode_datapath.shared, found)
        if shared and not route.paths:  # with net.ipv4.nexthop_compat_mode=0 a route tells the id alone
            from netcommon.host.rtnetlink import nexthop

            route = route._replace(paths=_sane(lambda asked: nexthop.devices(self._netlink, asked), shared))
        if route.nexthop:
            # IPv6 keeps one cached way in a nexthop for all routes that name it, and shows the route that it was first made for
            return chosen._replace(table=0, destination="", protocol=0, paths=route.paths, nexthop=route.nexthop)
        table = chosen.table or route.table
        return chosen._replace(table=table, destination=route.destination, protocol=route.protocol, mtu=route.mtu, paths=route.paths)

    def unanswered(self, family: int, index: int, address: str) -> bool:
        from netcommon.host.rtnetlink import encode_datapath

        found = self._netlink.get(encode_datapath.get_neighbour(family, index, address))
        if isinstance(found, bytes):
            return _sane(encode_datapath.unanswered, found)
        if found.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):  # nobody has asked for it yet, or nobody asks there
            return False
        raise untold("neighbours", found)

    def groups(self, index: int) -> Sequence[str]:
        from netcommon.host.rtnetlink import encode_datapath

        bodies = self._dump("groups", encode_datapath.dump_groups(), gone=NO_FAMILY)
        return [group for at, group in (_sane(encode_datapath.group, body) for body in bodies) if at == index]

    def device_state(self, index: int) -> DeviceState | None:
        from netcommon.host.rtnetlink.encode_datapath import device

        found = self._netlink.get(encode.get_link(index=index)) if 0 < index < 1 << 31 else Reply(errno.ENODEV)
        if isinstance(found, bytes):
            return _sane(device, found)
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return None
        raise untold("links", found)

    def uppers(self, index: int) -> Sequence[Upper]:
        return self.every_upper().get(index, [])

    def every_upper(self) -> Mapping[int, Sequence[Upper]]:
        """Return what ``uppers`` tells, by device index."""
        from netcommon.host.rtnetlink import encode_upper

        found = _sane(encode_upper.uppers, self._dump("links", encode.dump_links()))
        gone = frozenset({errno.EINVAL, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP})  # gone meanwhile, or another user's
        told = self._dump("network namespaces", encode_upper.dump_namespaces(), gone=gone)
        there = sorted({_sane(encode_upper.namespace, body) for body in told})
        bodies = {each: self._dump("links", encode_upper.dump_links_of(each), gone=gone) for each in there}
        # only now: the kernel gives this namespace an id of its own where one of those names it
        with open("/proc/thread-self/ns/net", "rb") as this:
            own = self._netlink.get(encode_upper.own_namespace(this.fileno()))
        here = _sane(encode_upper.namespace, own) if isinstance(own, bytes) else encode_upper.NO_ID
        for links in (links for each, links in bodies.items() if each != here):
            for at, uppers in _sane(lambda links: encode_upper.uppers(links, here), links).items():
                found.setdefault(at, []).extend(uppers)
        return found

    def addresses_taken(self, index: int) -> frozenset[str]:
        from netcommon.host.rtnetlink import encode_upper

        gone = frozenset({errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP})
        bodies = self._dump("addresses of devices", encode_upper.dump_addresses(index), gone=gone)
        return frozenset(mac for body in bodies if (mac := _sane(lambda each: encode_upper.address(each, index), body)))

    # -- traffic control

    def root_qdisc(self, index: int) -> Qdisc | None:
        return self._qdisc(index, root=True)

    def clsact(self, index: int) -> Qdisc | None:
        return self._qdisc(index, root=False)

    def filters(self, index: int) -> Sequence[Filter]:
        return [*self._filters(index, egress=False), *self._filters(index, egress=True)]

    def _filters(self, index: int, egress: bool) -> list[Filter]:
        from netcommon.host.rtnetlink import encode_tc

        found = self._netlink.dump(encode_tc.dump_filters(index, egress))
        if isinstance(found, list):
            return _sane(lambda bodies: encode_tc.filters(bodies, egress), found)
        if found.errno in (errno.EINVAL, errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP):  # nothing to hang filters on
            return []
        raise untold("filters", found)

    def _qdisc(self, index: int, root: bool) -> Qdisc | None:
        from netcommon.host.rtnetlink import encode_tc

        found = self._netlink.get(encode_tc.get_qdisc(index, encode_tc.TC_H_ROOT if root else encode_tc.TC_H_CLSACT))
        if isinstance(found, bytes):
            qdisc = _sane(encode_tc.qdisc, found)
            return qdisc if qdisc.handle else None  # the kernel's own default
        if found.errno in (0, errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return None
        raise untold("qdiscs", found)

    # -- addresses

    def addresses(self, index: int | None = None) -> Sequence[Address]:
        from netcommon.host.rtnetlink import encode_address

        if index is not None and index <= 0:
            return []
        found = self._netlink.dump(encode_address.dump_addresses(index or 0))
        if isinstance(found, list):
            made = [_sane(encode_address.decode, body) for body in found]
            return [address for address in made if index in (None, address.index)]
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return []
        raise untold("addresses", found)

    def tentative(self, index: int) -> frozenset[str]:
        from netcommon.host.rtnetlink import encode_address

        bodies = self._dump("addresses", encode_address.dump_addresses(index), gone=frozenset({errno.ENODEV, errno.ENXIO}))
        found = [_sane(encode_address.decode, body) for body in bodies if _sane(encode_address.tentative, body)]
        return frozenset(each.address for each in found if each.index == index)

    def local(self, family: int, address: str) -> int:
        """One lookup: a node has thousands of addresses where each tap has some."""
        found = self._netlink.get(encode.get_route(family, pack_address(family, address)))
        if isinstance(found, bytes):
            return _sane(decode.kept, found)
        if found.errno in NO_WAY:
            return 0
        raise untold("routes", found)

    # -- how the outside reaches this node

    def ways_in(self, family: int, table: int) -> Sequence[str]:
        """The interfaces whose packets a rule that is not ours looks up in ``table``."""
        ours = attribute(encode.FRA_PROTOCOL, bytes((PROTOCOL,)))
        found = self._netlink.dump(encode.dump_rules(family), number(encode.FRA_TABLE, table))
        if not isinstance(found, list):
            if found.errno in NO_FAMILY:
                return []
            raise HostRefused(f"the kernel does not list its rules: {found.text or errno.errorcode.get(found.errno, found.errno)}")
        try:
            fields = [attributes(body, encode.RULE.size) for body in found if ours not in body]  # there is one of ours for each guest
            names = [string(each.get(encode.FRA_IIFNAME)) for each in fields if u32(each.get(encode.FRA_TABLE)) == table]
        except MalformedError as problem:
            raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
        return [name for name in dict.fromkeys(names) if name]

    def link_local(self, index: int) -> str:
        """The address from which the kernel speaks to all IPv6 nodes on the link: normally its link-local one; "" if it has none yet."""
        if index <= 0:
            return ""
        try:
            asked = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC)
        except OSError:  # IPv6 is off since boot
            return ""
        try:
            asked.connect((ALL_NODES, DISCARD, 0, index))
            return str(asked.getsockname()[0]).partition("%")[0]
        except OSError:  # it is off on the device, that is gone or down, or its address is still tentative
            return ""
        finally:
            asked.close()

    # -- questions and answers

    def _vlans(self, index: int) -> list[tuple[int, BridgeVlan]]:
        gone = frozenset({errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOENT})
        bodies = self._dump("VLANs", encode.dump_vlans(index), gone=gone)
        return [pair for body in bodies for pair in _sane(_vlans, body)]

    def _link(self, request: Encoded) -> Link | None:
        found = self._netlink.get(request)
        if isinstance(found, bytes):
            return _sane(decode.link, found)
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return None
        raise untold("links", found)

    def _dump(self, what: str, request: Encoded, needle: bytes = b"", gone: frozenset[int] = NOTHING) -> list[bytes]:
        return _there(what, self._netlink.dump(request, needle), gone)


class KernelRoutes(NamedTuple):
    """Routes as the kernel has listed them, thousands: the few that are asked for are looked for in its bytes."""

    family: int
    table: int | None  #: None: of all tables
    datagrams: Sequence[bytes]
    netlink: Netlink

    def short(self) -> bool:
        return True

    def all(self) -> Sequence[Route]:
        """Return all of them."""
        return _routes(self.netlink, _sane(lambda datagrams: search(datagrams, b""), self.datagrams), self.family, self.table)

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        """Return those to ``destination``."""
        try:
            address, length = split_prefix(self.family, destination)
        except (OSError, ValueError):
            return []
        # struct rtmsg: a default route has a length, 0, and no destination
        needle, at = (attribute(encode.RTA_DST, address), None) if length else (b"\0", 1)
        bodies = _sane(lambda datagrams: search(datagrams, needle, at), self.datagrams)
        found = _routes(self.netlink, bodies, self.family, self.table)
        return [route for route in found if split_prefix(self.family, route.destination) == (address, length)]


def _routes(netlink: Netlink, bodies: Sequence[bytes], family: int, table: int | None) -> list[Route]:
    found = [route for body in bodies if (route := _sane(decode.route, body)) is not None]
    wanted = [route for route in found if route.family == family and table in (None, route.table)]
    if not any(route.nexthop and not (route.index or route.paths) for route in wanted):
        return wanted
    from netcommon.host.rtnetlink import nexthop  # few nodes have such routes

    return _sane(lambda routes: nexthop.with_devices(netlink, routes), wanted)


def _there(what: str, found: list[bytes] | Reply, gone: frozenset[int]) -> list[bytes]:
    if isinstance(found, list):
        return found
    if found.errno in gone:
        return []
    raise untold(what, found)


def _vlans(body: bytes) -> list[tuple[int, BridgeVlan]]:
    return list(decode.vlans(body))


def _sane(decoder: Callable[[Told], Fact], body: Told) -> Fact:
    """What ``decoder`` makes of a message; one that it cannot read is no answer."""
    try:
        return decoder(body)
    except MalformedError as problem:
        raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
