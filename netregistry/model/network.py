"""Define a network: its subnets, what may be provisioned of them, and what its guests are told."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Annotated, NamedTuple

from netregistry.model import kinds
from netregistry.model.codec import Between, Invalid
from netregistry.model.kinds import REGISTRY, Sixteen, Thousand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOWEST_MTU, HIGHEST_MTU = 576, 9000  #: bytes


class Range(NamedTuple):
    """Addresses that allocation may give out, the first and the last included."""

    first: kinds.Address
    last: kinds.Address


class Route(NamedTuple):
    """A route that guests are told: the prefix, and the address of the router to it."""

    prefix: kinds.Prefix4
    via: kinds.Router4


class Network(NamedTuple):
    """A network that NICs are in. Without ``ranges`` of a family all of its subnet may be provisioned, but what is excluded anyway.

    What is ``reserved`` is taken out of ``ranges`` too, but where a Ganeti cluster reserves all that is in them: for the registry, then.
    What is ``barred`` is taken out of them in any case.
    """

    uuid: kinds.Uuid
    name: kinds.Name
    cluster: kinds.Cluster = ""  #: "": of all clusters
    master: kinds.Master = REGISTRY
    subnet: kinds.Subnet4 = ""
    subnet6: kinds.Subnet6 = ""
    ranges: Annotated[tuple[Range, ...], Sixteen] = ()
    reserved: Annotated[tuple[Range, ...], Thousand] = ()  #: addresses that are not given out: those that a Ganeti cluster's pool does not
    #: Addresses that guests of its Ganeti cluster have, or may have, and of which no NIC here is known: its importer says it.
    barred: Annotated[tuple[Range, ...], Thousand] = ()
    gateway: kinds.Address4 = ""
    gateway6: kinds.Address6 = ""
    resolvers: Annotated[tuple[kinds.Address, ...], Sixteen] = ()
    search: Annotated[tuple[kinds.Domain, ...], Sixteen] = ()
    routes: Annotated[tuple[Route, ...], Sixteen] = ()
    mtu: Annotated[int, Between(LOWEST_MTU, HIGHEST_MTU, zero=True)] = 0
    vlan: Annotated[int, Between(1, 4094, zero=True)] = 0
    tag: kinds.TagOrNone = ""  #: what a node must provide for it
    mac_prefix: kinds.MacPrefix = ""  #: "": that of the registry's settings
    owners: Annotated[tuple[kinds.Name, ...], kinds.Hundred] = ()  #: whose NICs may be in it; (): everybody's
    tags: Annotated[tuple[kinds.Tag, ...], kinds.Hundred] = ()
    imported: tuple[str, ...] = ()  #: fields that its Ganeti cluster has given: that is their master

    @property
    def families(self) -> tuple[int, ...]:
        """Give the families of its subnets: 4, 6."""
        return tuple(family for family, subnet in ((4, self.subnet), (6, self.subnet6)) if subnet)

    def holds(self, address: str) -> bool:
        """Tell whether the address lies in one of the subnets. A link-local one (RFC 4291) lies in every IPv6 network."""
        found = ip_address(address)
        return any(found in subnet for subnet in kinds.subnets(self.subnet, self.subnet6)) or (bool(self.subnet6) and found.is_link_local)

    def bounds(self, family: int, beside: Iterable[tuple[int, int]] = ()) -> tuple[tuple[int, int], ...]:
        """Give what may be provisioned, but for what is had ``beside``, in rising order, as pairs of numbers, both included."""
        given = _numbers(self.ranges, family) or [
            (int(subnet.network_address), int(subnet.broadcast_address))
            for subnet in kinds.subnets(self.subnet, self.subnet6)
            if subnet.version == family
        ]
        left = given if self._kept(family) else _without(given, _numbers(self.reserved, family))
        return tuple(_without(left, sorted((*_numbers(self.barred, family), *beside))))

    def bars(self, address: str) -> bool:
        """Tell whether the address is among those that may be a guest's of its Ganeti cluster, of whose NIC nothing is known."""
        return _within(kinds.number(address), _numbers(self.barred, kinds.family(address)))

    @property
    def shared(self) -> bool:
        """Tell whether Ganeti's pool gives out its addresses too."""
        return self.master.startswith("ganeti:")

    def _kept(self, family: int) -> bool:
        """Tell whether a Ganeti cluster reserves all that is in the ranges, and so keeps it from its pool for the registry.

        Of ranges that are reserved in part, that part is of devices (routers, printers), as it is of a whole subnet.
        """
        ranges = _numbers(self.ranges, family)
        if not self.shared or not ranges:
            return False
        reserved = sorted((*_numbers(self.reserved, family), *((number, number) for number in self.excluded(family))))
        return next(_without(ranges, reserved), None) is None

    def excluded(self, family: int) -> frozenset[int]:
        """Give the numbers that are never given out.

        Gateways; an IPv4 network's own and broadcast address; an IPv6 subnet's routers (RFC 4291, 2.6.1).
        """
        found = {kinds.number(each) for each in (self.gateway, self.gateway6) if each and kinds.family(each) == family}
        for subnet in kinds.subnets(self.subnet, self.subnet6):
            if subnet.version == family:
                found |= {int(subnet.network_address), *((int(subnet.broadcast_address),) if family == 4 else ())}
        return frozenset(found)

    def reserves(self, address: str) -> bool:
        """Tell whether the address is among those that are not given out."""
        number, family = kinds.number(address), kinds.family(address)
        if not _within(number, _numbers(self.reserved, family)):
            return False
        return not (self._kept(family) and _within(number, _numbers(self.ranges, family)))

    def has(self, address: str) -> bool:
        """Tell whether the address is the network's own: no NIC can have it."""
        return kinds.number(address) in self.excluded(kinds.family(address))


def checked(network: Network) -> Network:
    """Give the network back. Raises Invalid where its fields do not fit each other."""
    for field in ("gateway", "gateway6"):
        gateway = getattr(network, field)
        if gateway and not network.holds(gateway):
            raise Invalid(field, gateway, "an address in the network's subnet")
    _fit(network, "ranges", network.ranges)
    _fit(network, "reserved", network.reserved)
    _fit(network, "barred", network.barred)
    if len({each.prefix for each in network.routes}) != len(network.routes):
        raise Invalid("routes", "a prefix twice", "each prefix once")
    return network


def _fit(network: Network, field: str, ranges: tuple[Range, ...]) -> None:
    """Raise Invalid where ranges are none, lie outside the network's subnets or overlap."""
    subnets = kinds.subnets(network.subnet, network.subnet6)
    bounds: list[tuple[int, int, int, int]] = []
    for place, each in enumerate(ranges):
        first, last = kinds.number(each.first), kinds.number(each.last)
        family, where = kinds.family(each.first), f"{field}[{place}]"
        if family != kinds.family(each.last) or first > last:
            raise Invalid(where, f"{each.first}-{each.last}", "the first address, and one of the same family that is not lower")
        if not any(one.version == family and int(one.network_address) <= first and last <= int(one.broadcast_address) for one in subnets):
            raise Invalid(where, f"{each.first}-{each.last}", "addresses in the network's subnet")
        bounds.append((family, first, last, place))
    bounds.sort()
    for before, after in pairwise(bounds):
        if before[0] == after[0] and after[1] <= before[2]:
            place = max(before[3], after[3])
            raise Invalid(f"{field}[{place}]", f"{ranges[place].first}-{ranges[place].last}", "ranges that do not overlap")


def _numbers(ranges: tuple[Range, ...], family: int) -> list[tuple[int, int]]:
    """Give the ranges of one family as pairs of numbers, in rising order."""
    return sorted((kinds.number(each.first), kinds.number(each.last)) for each in ranges if kinds.family(each.first) == family)


def _within(number: int, bounds: list[tuple[int, int]]) -> bool:
    return any(first <= number <= last for first, last in bounds)


def _without(bounds: Iterable[tuple[int, int]], reserved: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Give what is left of some bounds; both are in rising order, and of the bounds none overlaps another."""
    place = 0
    for first, last in bounds:
        while place < len(reserved) and reserved[place][1] < first:
            place += 1
        left = first
        for begin, end in islice(reserved, place, None):
            if begin > last:
                break
            if left < begin:
                yield left, begin - 1
            left = max(left, end + 1)
        if left <= last:
            yield left, last
