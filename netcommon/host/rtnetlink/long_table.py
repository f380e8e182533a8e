"""Ask a routing table that is too long to be listed, such as a routing daemon's, for the routes to one destination.

Each answer is the one that the whole list gives. What the kernel says is taken only where it proves that; otherwise the table is listed
after all, and only what was asked for is kept of it.

IPv4: a request for a new route that may not be made, without NLM_F_CREATE, is refused with EEXIST where the table has one of that prefix,
TOS and metric, with ENOENT where it has none; nothing is changed in either case (fib_table_insert, net/ipv4/fib_trie.c). So no route is
overlooked: not one by a device without carrier, nor of type throw, nor by the id of a nexthop. One request for each TOS says whether there
is any. Default routes come first in the kernel's list.

IPv6 has no such answer: there a lookup tells the first route (fib6_table_lookup, net/ipv6/route.c). It passes over routes by devices
without carrier where those are to be ignored, which is looked at before; and of routes by the id of a nexthop it shows any that has the
same one, which proves nothing. A route for packets from some sources alone (``from``), which never is in the place of ours, it does not
find.
"""

from __future__ import annotations

import errno
from struct import Struct

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Route
from netcommon.host.api.requests import AddRoute
from netcommon.host.rtnetlink import decode, encode
from netcommon.host.rtnetlink.attributes import (
    NLM_F_EXCL,
    Encoded,
    MalformedError,
    attribute,
    attributes,
    number,
    pack_address,
    show_address,
    split_prefix,
    u32,
)
from netcommon.host.rtnetlink.socket import Netlink, Reply, untold
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

UNICAST, BLACKHOLE = 1, 6  #: RTN_*
SEARCHED = 4  #: times that the table is listed for one destination, before all of it is kept

#: Flags of a lookup: the kernel shows the route that it found, and its table (RTM_F_FIB_MATCH, RTM_F_LOOKUP_TABLE). IPv6 shows the table
#: by itself, and refuses to be asked.
SHOW = {AF_INET: 0x3000, AF_INET6: 0x2000}

#: Each value of the TOS field without the bits of ECN, which a kernel since 5.18 refuses (net/inet_dscp.h), and one with such a bit.
TOS, WITH_ECN = range(0, 256, 4), 1
TOS_AT = 3  #: of struct rtmsg

#: Addresses of IPv6 that nobody is given (RFC 4291, 2.4): as a rule only a default route leads there.
NOBODYS = tuple(pack_address(AF_INET6, address) for address in ("4000::1", "c000::1"))

RTM_GETNETCONF = 82
NETCONFA_IFINDEX, NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN = 1, 6
VRF = b"vrf"  #: in the message of a VRF's device, and of its ports: their kind. What has it in its name is taken for one
IFINDEX = Struct("=xxxxiI")  #: of struct ifinfomsg: index, flags


class LongTable:
    """A table whose routes are not listed."""

    def __init__(self, netlink: Netlink, family: int, table: int, made: Callable[[Sequence[bytes]], list[Route]]) -> None:
        """``made`` reads routes of the table from messages about them, and passes over those of others; raises TryAgain."""
        self._netlink, self.family, self.table, self._made = netlink, family, table, made
        self._request = encode.dump_routes(family, table)
        self._searched: list[tuple[bytes, int]] = []
        self._whole: list[Route] | None = None
        self._hidden: bool | None = None

    def all(self) -> None:
        """Say that there is no list (netcommon.host.api.host.RouteList)."""

    def short(self) -> bool:
        return False

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        """Return the routes to ``destination``; see View.routes for ``metric``."""
        try:
            address, length = split_prefix(self.family, destination)
        except (OSError, ValueError):
            return []
        try:
            found = self._asked(address, length, metric)
        except MalformedError as problem:
            raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
        return self._listed(address, length) if found is None else found

    def _asked(self, address: bytes, length: int, metric: int | None) -> Sequence[Route] | None:
        """Return what is told without the list, None where that proves nothing."""
        if not length:
            return self._first_ones() if self.family == AF_INET else self._defaults()
        if metric is None:
            return None
        return self._ipv4(address, length, metric) if self.family == AF_INET else self._ipv6(address, length, metric)

    # -- the list

    def _listed(self, address: bytes, length: int) -> list[Route]:
        # struct rtmsg: a default route has a length, 0, and no destination
        needle, at = (attribute(encode.RTA_DST, address), None) if length else (b"\0", 1)
        if self._whole is None and len(self._searched) >= SEARCHED:
            self._whole = self._made(self._there(self._netlink.dump(self._request)))
        if self._whole is None:
            self._searched.append((address, length))
            found = self._made(self._there(self._netlink.dump(self._request, needle, at)))
        else:
            found = self._whole
        return [route for route in found if split_prefix(self.family, route.destination) == (address, length)]

    def _there(self, found: list[bytes] | Reply) -> list[bytes]:
        if isinstance(found, list):
            return found
        if found.errno in (errno.ENOENT, errno.ESRCH):  # the table is gone
            return []
        raise untold("routes", found)

    # -- IPv4

    def _first_ones(self) -> Sequence[Route] | None:
        """Return the default routes of IPv4: the list has rising addresses (fib_trie.c), so they come before any of another address."""
        own = Netlink(self._netlink.timeout)  # a new socket is given little at a time
        try:
            found = own.first(self._request, lambda body: not any(attributes(body, encode.RTMSG.size).get(encode.RTA_DST, b"")))
        finally:
            own.close()
        return [route for route in self._made(self._there(found)) if route.destination == decode.ANYWHERE[AF_INET]]

    def _ipv4(self, address: bytes, length: int, metric: int) -> Sequence[Route] | None:
        """Return the routes of this metric; ours alone, where it comes first."""
        for probe in _ends(address, length):
            found = self._lookup(probe)
            if isinstance(found, Route) and (split_prefix(AF_INET, found.destination), found.metric) == ((address, length), metric):
                return [found] if found.protocol == PROTOCOL and self._has(found) else None  # one of table local is shown as main's
        shape = Route(AF_INET, self.table, f"{show_address(AF_INET, address)}/{length}", 0, PROTOCOL, 0, metric=metric, type=BLACKHOLE)
        asked = list(_exist(shape, (WITH_ECN, *TOS), NLM_F_EXCL))
        ecn, *said = (reply.errno for reply in self._netlink.ask(asked))
        if ecn != errno.EINVAL or not set(said) <= {errno.ENOENT, errno.EEXIST}:
            return None
        there = [tos for tos, code in zip(TOS, said, strict=True) if code == errno.EEXIST]
        if there != [0]:
            return None if there else []
        return [shape] if self._has(shape) else None  # a guest's blackhole, behind its route

    def _has(self, route: Route) -> bool:
        """Tell whether the table has exactly this route, without a TOS."""
        (reply,) = self._netlink.ask(list(_exist(route, (0,), 0)))
        return reply.errno == errno.EEXIST

    # -- IPv6

    def _ipv6(self, address: bytes, length: int, metric: int) -> Sequence[Route] | None:
        """Return the first route, if it is ours and of this metric; none where there is none up to this metric."""
        if self._hides():
            return None
        for probe in _ends(address, length):
            found = self._lookup(probe)
            if not isinstance(found, Route) or found.nexthop:
                return None
            bits = split_prefix(AF_INET6, found.destination)[1]
            if bits < length or (bits == length and found.metric > metric):
                return []
            if bits == length:
                return [found] if (found.protocol, found.metric, found.paths) == (PROTOCOL, metric, ()) else None  # ours has one way
        return None

    def _defaults(self) -> Sequence[Route] | None:
        """Return the first default route of IPv6 by each device: who asks wants to know the devices."""
        if self._hides():
            return None
        bodies = self._there(self._netlink.dump(encode.dump_links()))
        if any(VRF in body for body in bodies):
            return None  # what goes out by a VRF, or a port of one, is looked up in its own table
        indices = [index for index, flags in (IFINDEX.unpack_from(body) for body in bodies) if flags & encode.IFF_UP]
        found: dict[Route, None] = {}
        for index, said in zip(indices, self._netlink.get_each([self._ask(NOBODYS[0], index) for index in indices]), strict=True):
            route = self._default(said, index)
            if route is None or (isinstance(route, Route) and (route.nexthop or route.protocol == PROTOCOL or route.type != UNICAST)):
                return None
            if isinstance(route, Route):
                found[route._replace(paths=tuple(sorted(route.paths)))] = None  # the one that was found stands first
        return sorted(found, key=lambda route: route.metric)

    def _default(self, said: bytes | Reply, index: int) -> Route | Reply | None:
        """Return the default route by a device, of which ``said`` tells, or why there is none; None where that is not told."""
        for probe in (b"", *NOBODYS[1:]):
            route = self._lookup(probe, index) if probe else self._found(said)
            if isinstance(route, Reply):
                return route if route.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH) else None
            if route is None or route.nexthop or route.destination == decode.ANYWHERE[AF_INET6]:
                return route
        return None

    def _hides(self) -> bool:
        """Tell whether lookups of IPv6 may pass over a route: by a device without carrier, of which that is wanted (ip-sysctl.rst)."""
        if self._hidden is None:
            ignoring = number(NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN, 1)
            bodies = self._netlink.dump(Encoded(RTM_GETNETCONF, 0, bytes((AF_INET6, 0, 0, 0))), ignoring)
            if isinstance(bodies, Reply):
                raise untold("devices' settings", bodies)
            indices = [u32(attributes(body, 4).get(NETCONFA_IFINDEX)) for body in bodies]
            links = self._netlink.get_each([encode.get_link(index=index) for index in indices if 0 < index < 1 << 31])
            self._hidden = any(isinstance(body, Reply) or _lacks_carrier(body) for body in links)
        return self._hidden

    # -- lookups

    def _ask(self, address: bytes, index: int = 0) -> Encoded:
        """Ask by which route the node's own packets go to ``address``, through the device ``index``."""
        body = encode.RTMSG.pack(self.family, 8 * len(address), 0, 0, 0, 0, 0, 0, SHOW[self.family]) + attribute(encode.RTA_DST, address)
        return Encoded(encode.RTM_GETROUTE, 0, body + (number(encode.RTA_OIF, index) if index else b""))

    def _lookup(self, address: bytes, index: int = 0) -> Route | Reply | None:
        return self._found(self._netlink.get(self._ask(address, index)))

    def _found(self, said: bytes | Reply) -> Route | Reply | None:
        """Return the route of the table that was found, or why there is none; None where it is of another table."""
        return said if isinstance(said, Reply) else next(iter(self._made([said])), None)


def _exist(route: Route, every_tos: Iterable[int], flags: int) -> Iterator[Encoded]:
    """Ask whether there is ``route`` with each TOS, or with NLM_F_EXCL any other of its metric in its place."""
    kind, _flags, body = encode.encode(AddRoute(route))
    for tos in every_tos:
        yield Encoded(kind, flags, body[:TOS_AT] + bytes((tos,)) + body[TOS_AT + 1 :])


def _lacks_carrier(body: bytes) -> bool:
    """Tell of a link whether it is up without a carrier: the kernel removes the routes of IPv6 by one that is not up."""
    up = IFINDEX.unpack_from(body)[1] & encode.IFF_UP
    return bool(up) and attributes(body, encode.IFINFO.size).get(decode.IFLA_CARRIER) != b"\1"


def _ends(address: bytes, length: int) -> Iterator[bytes]:
    """Yield the first and the last address of a prefix: there may be a longer one to one of them."""
    yield address
    ones = (1 << 8 * len(address) - length) - 1
    if ones:
        yield (int.from_bytes(address, "big") | ones).to_bytes(len(address), "big")
