"""Ask a table of very many routes, such as a routing daemon's, for single destinations: to list it takes longer than all else.

What the kernel says by one lookup is taken only where it can mean one thing; otherwise the table is listed after all.
"""

from __future__ import annotations

import errno

from netcommon.host.api.facts import AF_INET, AF_INET6, RTN_BLACKHOLE, RTN_UNICAST, Route
from netcommon.host.rtnetlink import decode, encode
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attribute, messages, number, pack_address, split_prefix, text
from netcommon.host.rtnetlink.socket import Reply, untold
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netcommon.host.api.facts import Rule
    from netcommon.host.api.host import RouteList
    from netcommon.host.rtnetlink.socket import Netlink

MAIN = 254

#: The kernel is to show the route that it found and its table, not what it makes of them (RTM_F_FIB_MATCH, RTM_F_LOOKUP_TABLE). IPv6
#: tells the table by itself, and refuses to be asked.
SHOW = {AF_INET: 0x3000, AF_INET6: 0x2000}

#: Addresses of IPv6 that nobody is given (RFC 4291, 2.4): only a default route leads there.
NOBODYS = ("4000::1", "c000::1")

#: Preference and table of the rules with which every namespace begins (ip-rule(8)).
KERNELS = ((0, 255), (32766, MAIN), (32767, 253))


class Asked(Protocol):
    """What else is asked of the kernel (netcommon.host.api.host.View)."""

    def rules(self, family: int) -> Sequence[Rule]: ...
    def routes_of(self, family: int, protocol: int = 0, kind: int = 0, index: int = 0, table: int = 0) -> Sequence[Route]: ...


class FullTable:
    """Table main of one family, which is too long to be listed."""

    def __init__(self, view: Asked, netlink: Netlink, family: int, whole: Callable[[], RouteList]) -> None:
        """``whole`` lists all of it."""
        self._view, self._netlink, self._whole = view, netlink, whole
        self.family = family

    def to(self, destination: str, metric: int | None = None) -> Sequence[Route]:
        """See netcommon.host.api.host.RouteList."""
        found = self.asked(destination, metric)
        return self.listed(destination) if found is None else found

    def all(self) -> None:
        """Tell that the table is not to be listed."""

    def listed(self, destination: str) -> Sequence[Route]:
        """All routes to ``destination``: of what the kernel lists only they are kept."""
        try:
            address, length = split_prefix(self.family, destination)
        except (OSError, ValueError):
            return []
        request = encode.dump_routes(self.family, MAIN)
        found = self._netlink.dump(request, attribute(encode.RTA_DST, address)) if length else Reply()
        if isinstance(found, Reply):
            return self._whole().to(destination)  # also where it was refused: that says what there is to be said
        routes = [route for body in found if (route := _route(body)) is not None]
        return [each for each in routes if self._is_of(each) and split_prefix(self.family, each.destination) == (address, length)]

    def asked(self, destination: str, metric: int | None = None) -> Sequence[Route] | None:
        """What can be told without listing the table: see View.routes. None where that is nothing."""
        try:
            address, length = split_prefix(self.family, destination)
        except (OSError, ValueError):
            return []
        try:
            if not length and self.family == AF_INET:
                return self._first_ones()
            if metric is None:
                return None
            return self._looked_up(address, length, metric) if length else self._defaults()
        except MalformedError as problem:
            raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem

    def _is_of(self, route: Route) -> bool:
        return (route.family, route.table) == (self.family, MAIN)

    def _first_ones(self) -> Sequence[Route] | None:
        """The default routes of IPv4: the kernel lists a table by rising addresses (fib_trie.c), so they come before any but 0.0.0.0."""
        found: list[Route] = []
        for data in self._netlink.first(encode.dump_routes(self.family, MAIN)):
            for kind, _flags, _sequence, body in messages(data):
                if kind == encode.RTM_NEWROUTE and (route := decode.route(body)) is not None and self._is_of(route):
                    if not route.destination.startswith("0.0.0.0/"):
                        return found
                    found += [route] if route.destination == decode.ANYWHERE[AF_INET] else []
        return None

    def _looked_up(self, address: bytes, length: int, metric: int) -> Sequence[Route] | None:
        """The first route to an address, or to a prefix, is found by looking up an address in it that no longer prefix has."""
        ones = (1 << 8 * len(address) - length) - 1
        for within in (0, ones) if ones else (0,):
            probe = (int.from_bytes(address, "big") | within).to_bytes(len(address), "big")
            found = self._lookup(probe)
            if isinstance(found, Reply):
                if found.errno == errno.EINVAL and not ones:
                    return self._blackhole(address, length, metric)
                return [] if found.errno == errno.ENETUNREACH and self._rules_only_look_up() else None
            if found is None or found.table != MAIN:
                return None
            there, bits = split_prefix(self.family, found.destination)
            if bits < length:
                return []
            if bits == length:
                return [found] if there == address and found.metric >= metric else None  # behind a lower metric there may be others
        return None

    def _blackhole(self, address: bytes, length: int, metric: int) -> Sequence[Route] | None:
        """The first route to an address that a blackhole was found for: a guest's own, while it is down."""
        holes = self._view.routes_of(self.family, 0, RTN_BLACKHOLE, 0, MAIN)
        own = [route for route in holes if split_prefix(self.family, route.destination) == (address, length)]
        first = min(own, key=lambda route: route.metric, default=None)
        return None if first is None or first.metric < metric else [first]

    def _defaults(self) -> Sequence[Route] | None:
        """The first default route of IPv6 through each device that no guest is behind: the kernel lists them last."""
        found: dict[Route, None] = {}
        bodies = self._netlink.dump(encode.dump_links())
        if isinstance(bodies, Reply):
            raise untold("links", bodies)
        taps = text(encode.INFO_KIND, "tun")
        for link in (decode.link(body) for body in bodies if taps not in body):  # there may be thousands
            if link.kind == "vrf":
                return None  # what goes out by it is looked up in its own table
            if not link.up or link.name == "lo":
                continue
            route = self._default(link.index)
            if route is None:
                return None
            if not isinstance(route, Reply) and route.type == RTN_UNICAST:
                found[route] = None
        return list(found)

    def _default(self, index: int) -> Route | Reply | None:
        for probe in NOBODYS:
            route = self._lookup(pack_address(AF_INET6, probe), index)
            if isinstance(route, Reply):
                return route if route.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH) else None
            if route is None or route.table != MAIN:
                return None
            if route.destination == decode.ANYWHERE[AF_INET6]:
                return route
        return None

    def _lookup(self, address: bytes, index: int = 0) -> Route | Reply | None:
        """The route by which the node's own packets go to ``address`` (through the device ``index``), or why there is none."""
        body = encode.RTMSG.pack(self.family, 8 * len(address), 0, 0, 0, 0, 0, 0, SHOW[self.family]) + attribute(encode.RTA_DST, address)
        found = self._netlink.get(Encoded(encode.RTM_GETROUTE, 0, body + (number(encode.RTA_OIF, index) if index else b"")))
        return found if isinstance(found, Reply) else decode.route(found)

    def _rules_only_look_up(self) -> bool:
        """Whether no rule ends a lookup by itself, so that what was found nowhere is in no table that is looked up."""
        rules = self._view.rules(self.family)
        own = [rule for rule in rules if (rule.preference, rule.table) in KERNELS and not rule.iif]
        return any(rule.table == MAIN for rule in own) and all(rule.plain or rule in own for rule in rules)


def _route(body: bytes) -> Route | None:
    try:
        return decode.route(body)
    except MalformedError as problem:
        raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
