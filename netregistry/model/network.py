"""Define a network: its subnets, what may be provisioned of them, and what its guests are told."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, NamedTuple

from netregistry.model import kinds
from netregistry.model.codec import Between, Invalid
from netregistry.model.kinds import REGISTRY, Sixteen

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
    """A network that NICs are in. Without ``ranges`` of a family all of its subnet may be provisioned, but what is excluded anyway."""

    uuid: kinds.Uuid
    name: kinds.Name
    cluster: kinds.Cluster = ""  #: "": of all clusters
    master: kinds.Master = REGISTRY
    subnet: kinds.Subnet4 = ""
    subnet6: kinds.Subnet6 = ""
    ranges: Annotated[tuple[Range, ...], Sixteen] = ()
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

    def bounds(self, family: int) -> tuple[tuple[int, int], ...]:
        """Give what may be provisioned, in rising order, as pairs of numbers, both included."""
        given = sorted((kinds.number(each.first), kinds.number(each.last)) for each in self.ranges if kinds.family(each.first) == family)
        if given:
            return tuple(given)
        return tuple(
            (int(subnet.network_address), int(subnet.broadcast_address))
            for subnet in kinds.subnets(self.subnet, self.subnet6)
            if subnet.version == family
        )

    def excluded(self, family: int) -> frozenset[int]:
        """Give the numbers that are never given out.

        Gateways; an IPv4 network's own and broadcast address; an IPv6 subnet's routers (RFC 4291, 2.6.1).
        """
        found = {kinds.number(each) for each in (self.gateway, self.gateway6) if each and kinds.family(each) == family}
        for subnet in kinds.subnets(self.subnet, self.subnet6):
            if subnet.version == family:
                found |= {int(subnet.network_address), *((int(subnet.broadcast_address),) if family == 4 else ())}
        return frozenset(found)

    def has(self, address: str) -> bool:
        """Tell whether the address is the network's own: no NIC can have it."""
        return kinds.number(address) in self.excluded(kinds.family(address))


def checked(network: Network) -> Network:
    """Give the network back. Raises Invalid where its fields do not fit each other."""
    for field in ("gateway", "gateway6"):
        gateway = getattr(network, field)
        if gateway and not network.holds(gateway):
            raise Invalid(field, gateway, "an address in the network's subnet")
    bounds: list[tuple[int, int, int]] = []
    for place, each in enumerate(network.ranges):
        first, last = kinds.number(each.first), kinds.number(each.last)
        family = kinds.family(each.first)
        if family != kinds.family(each.last) or first > last:
            raise Invalid(
                f"ranges[{place}]", f"{each.first}-{each.last}", "the first address, and one of the same family that is not lower"
            )
        subnets = [subnet for subnet in kinds.subnets(network.subnet, network.subnet6) if subnet.version == family]
        if not any(int(one.network_address) <= first and last <= int(one.broadcast_address) for one in subnets):
            raise Invalid(f"ranges[{place}]", f"{each.first}-{each.last}", "addresses in the network's subnet")
        if any(family == other and first <= end and begin <= last for other, begin, end in bounds):
            raise Invalid(f"ranges[{place}]", f"{each.first}-{each.last}", "ranges that do not overlap")
        bounds.append((family, first, last))
    if len({each.prefix for each in network.routes}) != len(network.routes):
        raise Invalid("routes", "a prefix twice", "each prefix once")
    return network
