"""Blackholes behind a guest's routes (ip-route(8)): while its device is gone its packets end here, and follow no wider route."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Route
from netcommon.host.api.requests import AddRoute, DeleteRoute
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, IP_FAMILIES, OURS, Operation, Owned
from netcommon.operations.route import METRIC
from netcommon.operations.table import called, renumbered, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

BLACKHOLE = 6  #: RTN_BLACKHOLE


class BlackholeFields(NamedTuple):
    """The fields of Blackhole."""

    family: int
    destination: str
    table: str  #: name or number; "" is main
    number: int = 0
    found: str = ABSENT


class Blackhole(BlackholeFields, Operation):
    """A route to nowhere with the metric next to the guest's own route: it counts from the instant when the device is gone.

    It goes with the NIC's down, or gc. No device takes it along, so the NICs of one destination own it together.
    """

    __slots__ = ()
    KIND = "blackhole"
    REPAIRED = "what holds a guest's addresses while it is down"
    MIGRATION = "packets are to reach the guest on the source"
    CHOSEN = frozenset({"number", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    def route(self) -> Route:
        """The route as it is asked for; in IPv6 the kernel shows lo as its device."""
        return Route(self.family, self.number, self.destination, 0, scope=0, metric=METRIC[self.family] + 1, type=BLACKHOLE)

    def shared(self) -> tuple[str, ...]:
        return (_key(self.family, self.destination, self.number),)

    def exclusive(self) -> bool:
        """While the guest is still on another node, its packets are to go there."""
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self._replace(number=table_number(view, self.table, warnings))
        there = made._there(view)
        if there is not None and there.type != BLACKHOLE:
            raise HostRefused(
                f"{self.destination} in table {self.table or 'main'} has a route of metric {there.metric} that is not ours "
                f"(protocol {there.protocol}), where the NIC's blackhole belongs",
                "remove it, or the NIC's option blackhole",
            )
        found = ABSENT if there is None else OURS if there.protocol == PROTOCOL else FOREIGN
        return [made._replace(found=found)]

    def _there(self, view: View) -> Route | None:
        metric = self.route().metric
        routes = view.routes(self.family, self.number, self.destination, metric)
        return next((route for route in routes if route.metric == metric), None)

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddRoute(self.route(), new=True)]

    def differs(self, view: View) -> str:
        if moved := renumbered(view, self.table, self.number):
            return moved
        there = self._there(view)
        return "" if there is not None and there.type == BLACKHOLE else "the route is gone"

    def revert(self, view: View) -> Sequence[Request]:
        there = self._there(view)
        ours = there is not None and (there.type, there.protocol) == (BLACKHOLE, PROTOCOL)
        return [DeleteRoute(self.route())] if ours and self.found != FOREIGN else []

    def identity(self) -> str:
        return _identity(self.route())

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"While the NIC is down, what is for {self.destination} ends here, in {called(self.table, self.number)}."

    def describe(self) -> str:
        metric = self.route().metric
        version, table = 4 if self.family == AF_INET else 6, self.table or "main"
        return f"ip -{version} route replace blackhole {self.destination} table {table} metric {metric} protocol {PROTOCOL}"

    def undo(self) -> str:
        return self.describe().replace(" route replace ", " route del ", 1) + ", with the last NIC that has it"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        """The device of one is the tap that the guest's own route leads to: the guest may be alive behind it."""
        for family in (AF_INET, AF_INET6):
            ours = view.routes_of(family, PROTOCOL)
            ways_of: dict[tuple[int, str], list[Link | None]] = {}
            for route in ours:
                if route.type != BLACKHOLE:
                    ways_of.setdefault((route.table, route.destination), []).append(view.link_at(route.index))
            for route in ours:
                if (route.type, route.metric) != (BLACKHOLE, METRIC[family] + 1):
                    continue
                ways = ways_of.get((route.table, route.destination), [])
                device = next((link.name for link in ways if link is not None), "")
                key = _key(family, route.destination, route.table)
                text = f"blackhole {route.destination} in table {route.table}"
                yield Owned(_identity(route), text, (DeleteRoute(route._replace(index=0)),), device=device, shared=(key,))


def _key(family: int, destination: str, table: int) -> str:
    return f"blackhole-{family}-{destination}" + (f"@{table}" if table else "")


def _identity(route: Route) -> str:
    return f"blackhole {route.family} {route.table} {route.destination}"
