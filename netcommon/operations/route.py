"""The routes to a guest's addresses, and to the prefixes behind it (ip-route(8))."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Route
from netcommon.host.api.requests import AddRoute, DeleteRoute
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, IP_FAMILIES, OURS, Operation, Owned, replaced
from netcommon.operations.link import device_link, link_of, marked
from netcommon.operations.table import LOCAL, MAIN, called, renumbered, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

LOOPBACK = 1  #: the index of lo in every network namespace
LOOKUP = 1  #: FR_ACT_TO_TBL: what a policy rule does that looks up a table
SCOPE_LINK, SCOPE_UNIVERSE = 253, 0
OWN = 2  #: RTN_LOCAL: what table local keeps of an address of the node
BITS = {AF_INET: 32, AF_INET6: 128}  #: of an address
METRIC = {AF_INET: 0, AF_INET6: 1024}  #: of a guest's route; in IPv6 the kernel's own where none is given


class ThroughTap(Operation, Protocol):
    """What leads to the guest through its tap. The kernel removes it with the device.

    It is deleted by destination, table, device and protocol together: the late down of a guest whose address another one took
    finds nothing of its own, so this needs no owners. Two NICs that claim one destination at a time take turns all the same: the second
    says so, and notes whose it was.
    """

    @property
    def family(self) -> int: ...
    @property
    def destination(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def ifindex(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def found(self) -> str: ...
    def route(self) -> Route:
        """The route as the kernel has it."""
        ...

    def gateways(self) -> tuple[str, ...]:
        """Name the next hops by which a route through the tap leads to the guest; "" is none: the address itself is asked for."""
        ...

    def leads(self, route: Route, index: int) -> bool:
        """Tell whether ``route`` leads to the guest behind the device ``index``, whoever has made it."""
        return (route.index, route.type) == (index, self.route().type) and route.gateway in self.gateways()

    def locked(self) -> tuple[str, ...]:
        return (f"route-{self.family}-{self.destination}",)

    def leads_to(self) -> tuple[object, ...]:
        return self.family, self.number, self.destination

    def exclusive(self) -> bool:
        """A node that routes the address to a guest of its own answers for it on its uplinks too (proxy ARP)."""
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        if self.family == AF_INET6 and view.sysctl("net/ipv6/conf/all/forwarding") != "1":
            raise HostRefused(
                "a routed IPv6 NIC needs net.ipv6.conf.all.forwarding=1, which is the administrator's to set",
                "sysctl -w net.ipv6.conf.all.forwarding=1 "
                "(and accept_ra=2 on uplinks whose default route comes from router advertisements)",
            )
        if link.master and not marked(link):
            bridge = view.link_at(link.master)
            raise HostRefused(
                f"{self.device} is a port of {bridge.name if bridge else 'a bridge'}, so nothing can be routed to it",
                f"ip link set dev {self.device} nomaster, or correct the NIC's MODE",
            )
        number = table_number(view, self.table, warnings)
        if mine := own(view, self.family, self.destination, number):
            raise HostRefused(mine, "correct the NIC's addresses, or take it from the node")
        found = ABSENT
        for other in sorted(at(view, (self.family, number, self.destination)), key=lambda route: route.metric):
            leads = self.leads(other, link.index)
            if other.metric > METRIC[self.family]:
                break  # ours comes first
            if other.tos and other.protocol != PROTOCOL:
                warnings += [] if leads else [_partly(view, other)]
            elif other.protocol == PROTOCOL:
                found = OURS if other.index != link.index else found
                away = view.link_at(other.index)
                if away is not None and other.index != link.index and away.holders > 0:
                    warnings.append(f"{self.destination} leads to {away.name}: its guest loses it, two NICs have one address")
            elif not leads:
                raise HostRefused(
                    f"{self.destination} in table {self.table or 'main'} is already routed to {_way(view, other)} "
                    f"by a route that is not ours (protocol {other.protocol})",
                    "remove it, or correct the NIC's IP",
                )
            elif other.metric == METRIC[self.family]:
                found = FOREIGN
            if leads and self.family == AF_INET and not other.tos:
                break  # it leads to the guest, and what comes behind leads nothing
        return [replaced(self, number=number, ifindex=link.index, found=found)]

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddRoute(self.route(), new=True)]

    def differs(self, view: View) -> str:
        if moved := renumbered(view, self.table, self.number):
            return moved
        if mine := own(view, self.family, self.destination, self.number):
            return mine
        counting = [route for route in self._there(view) if not route.tos]
        ours = [place for place, route in enumerate(counting) if self.leads(route, self.ifindex)]
        held = any(counting[place].metric == METRIC[self.family] for place in ours)
        first = counting[0] if counting and 0 not in ours else None
        if first is not None and (held or first.metric < METRIC[self.family]):
            return f"a route of metric {first.metric} comes first, by {_way(view, first)} (protocol {first.protocol})"
        if not held:
            return f"it goes to {_way(view, first)}" if first is not None else "the route is gone"
        if beside := next((route for route in counting if self._rivals(route, counting[0].metric)), None):
            return f"a route of metric {beside.metric} stands beside it, by {_way(view, beside)} (protocol {beside.protocol})"
        return ""

    def idle(self, view: View) -> str:
        partly = next((route for route in self._there(view) if route.tos and not self.leads(route, self.ifindex)), None)
        return _partly(view, partly) if partly is not None else ""

    def _there(self, view: View) -> list[Route]:
        """Return what is in the place of the route, or comes before it, in the order in which the kernel takes them."""
        there = view.routes(self.family, self.number, self.destination, METRIC[self.family])
        return sorted((route for route in there if route.metric <= METRIC[self.family]), key=lambda route: route.metric)

    def _rivals(self, route: Route, metric: int) -> bool:
        """Tell whether a route takes packets though it does not come first.

        Of several of one metric IPv6 takes the one by the device that a packet has come in by (rt6_score_route() in net/ipv6/route.c).
        """
        devices = (*route.paths, route.index)
        return self.family == AF_INET6 and route.metric == metric and any(each not in (0, LOOPBACK, self.ifindex) for each in devices)

    def revert(self, view: View) -> Sequence[Request]:
        if self.found == FOREIGN or link_of(view, self.ifindex, self.device) is None:
            return []
        # the kernel alone would take another one too: IPv4's of any metric, IPv6's of any gateway
        there = view.routes(self.family, self.number, self.destination, METRIC[self.family])
        return [DeleteRoute(self.route())] if self.route() in there else []

    def identity(self) -> str:
        return _identity(self.route())

    def place(self) -> str:
        return self.identity()

    def describe(self) -> str:
        version = 4 if self.family == AF_INET else 6
        way = f"via {self.route().gateway} " if self.route().gateway else ""
        table = self.table or "main"
        return f"ip -{version} route replace {self.destination} {way}dev {self.device} table {table} protocol {PROTOCOL}"

    def undo(self) -> str:
        return self.describe().replace(" route replace ", " route del ", 1)


def at(view: View, way: tuple[object, ...]) -> Sequence[Route]:
    """Return what is in the place of a guest's route, or comes before it; ``way``: as Operation.leads_to tells it."""
    family, table, destination = cast("tuple[int, int, str]", way)
    return view.routes(family, table, destination, METRIC[family])


def own(view: View, family: int, destination: str, table: int) -> str:
    """Say that a guest's address is one of the node's own, which then gets what is for it; "" where it is not.

    The kernel looks for its own addresses, and those of broadcasts, before any table, unless somebody has moved its rule for table local
    behind one that leads to the guest's. A VRF's table is of a network of its own, which may use them again.
    """
    address, _, length = destination.partition("/")
    kind = view.local(family, address) if int(length) == BITS[family] else 0
    if not kind:
        return ""
    if table != MAIN and any(vrf.table == table for vrf in view.links_of("vrf")):
        return ""
    rules = [rule for rule in view.rules(family) if rule.action == LOOKUP and rule.protocol != PROTOCOL]
    first = min((rule.preference for rule in rules if rule.table == LOCAL), default=0)
    if any(rule.table == table and rule.preference < first for rule in rules):
        return ""
    if any(each.address == address for each in view.addresses()):
        return f"{address} is an address of this node itself, which gets what is for it: no route leads it to a guest"
    if kind == OWN:
        return f"a route of type local (ip-route(8)) has this node take what is for {address} for its own: no route leads it to a guest"
    what = "the broadcast address of a network" if family == AF_INET else "the anycast address of the routers in a network"
    return f"{address} is {what} that this node is in, and gets what is for it: no route leads it to a guest"


class GuestRouteFields(NamedTuple):
    """The fields of GuestRoute."""

    family: int
    destination: str
    table: str  #: name or number; "" is main
    device: str
    number: int = 0
    ifindex: int = 0
    found: str = ABSENT


class GuestRoute(GuestRouteFields, ThroughTap):
    """The guest's address, or a prefix whose every address it answers for, is on its tap."""

    __slots__ = ()
    KIND = "route"
    REPAIRED = "routes to the guest's addresses"
    MIGRATION = "the node answers for the address on its uplinks (proxy ARP), and its own guests would lose the one on the source"
    CHOSEN = frozenset({"number", "ifindex", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    @classmethod
    def like(cls, route: Route) -> Route:
        """The route that we would make to this destination: it tells ours from another's with the same protocol number."""
        return cls(route.family, route.destination, "", "", route.table, route.index).route()

    def route(self) -> Route:
        scope = SCOPE_LINK if self.family == AF_INET else SCOPE_UNIVERSE
        return Route(self.family, self.number, self.destination, self.ifindex, scope=scope, metric=METRIC[self.family])

    def gateways(self) -> tuple[str, ...]:
        address, _, length = self.destination.partition("/")
        return ("", address) if int(length) == BITS[self.family] else ("",)

    def taken_over(self, view: View) -> Operation:
        return self._replace(found=ABSENT) if self.found == FOREIGN else self

    def taking_over(self, view: View, before: Operation) -> Sequence[Request]:
        from netcommon.operations.ganeti_rule import RTPROT_BOOT, RTPROT_UNSPEC  # where a NIC is adopted

        there = [route for route in self._there(view) if route.metric == METRIC[self.family] and self.leads(route, self.ifindex)]
        left = any(route.protocol in (RTPROT_UNSPEC, RTPROT_BOOT) for route in there)  # who took it over was ended before this
        return [AddRoute(self.route())] if self.found != FOREIGN and (left or self != before) else []

    def sentence(self) -> str:
        return f"What is for {self.destination} goes to the guest, in {called(self.table, self.number)}."

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for family in (AF_INET, AF_INET6):
            for route in view.routes_of(family, PROTOCOL):
                link = view.link_at(route.index) if route.index else None
                # what is no host route of a guest's device was made by another with our number
                if link is not None and (link.holders >= 0 or marked(link)) and route in (GuestRoute.like(route), PrefixRoute.like(route)):
                    text = f"route {route.destination} in table {route.table} through {link.name}"
                    yield Owned(_identity(route), text, (DeleteRoute(route),), device=link.name)


class PrefixRouteFields(NamedTuple):
    """The fields of PrefixRoute."""

    family: int
    destination: str
    gateway: str  #: an address of the guest
    table: str  #: name or number; "" is main
    device: str
    number: int = 0
    ifindex: int = 0
    found: str = ABSENT


class PrefixRoute(PrefixRouteFields, ThroughTap):
    """A prefix behind the guest, which is its router: the node asks for the guest's own address alone (ARP, NDP).

    The kernel takes the gateway for near because the route to it, in the same table, was made before this one.
    """

    __slots__ = ()
    KIND = "prefix-route"
    REPAIRED = "routes to the prefixes behind the guest"
    MIGRATION = "as for `route`"
    CHOSEN = frozenset({"number", "ifindex", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    @classmethod
    def like(cls, route: Route) -> Route:
        """The route that we would make to this destination by this gateway."""
        return cls(route.family, route.destination, route.gateway, "", "", route.table, route.index).route()

    def route(self) -> Route:
        metric = METRIC[self.family]
        return Route(self.family, self.number, self.destination, self.ifindex, scope=SCOPE_UNIVERSE, gateway=self.gateway, metric=metric)

    def gateways(self) -> tuple[str, ...]:
        return self.gateway, ""  # without one the guest is asked for each address, which some answer

    def sentence(self) -> str:
        return f"What is for {self.destination} goes to the guest, by its address {self.gateway}, in {called(self.table, self.number)}."


def _identity(route: Route) -> str:
    return f"route {route.family} {route.table} {route.destination} {route.index}"


def _way(view: View, route: Route) -> str:
    """Name where a route leads: its devices, and its next hop."""
    devices = [link.name for index in (*route.paths, route.index) if (link := view.link_at(index) if index else None) is not None]
    by = f"{route.gateway} on " if route.gateway and devices else ""
    return by + (" and ".join(dict.fromkeys(devices)) or "nowhere")


def _partly(view: View, route: Route) -> str:
    return f"packets to {route.destination} with TOS {route.tos:#04x} go to {_way(view, route)}, by a route that is not ours"
