"""Define the underlay: the site's prefix, the part of it that each node has, and the records behind guests' names."""

from __future__ import annotations

from _socket import AF_INET6
from ipaddress import IPv6Address, IPv6Network
from typing import Annotated, NamedTuple

from netcommon.settings.types import domain
from netregistry.model.codec import Between, Text
from runtime import validate

WIDEST, NARROWEST, EACH = 48, 60, 64  #: lengths of the site's prefix at most and at least, and of a node's
ITSELF = 1  #: the number of the node's own address in its prefix; 0 is never an address
FIRST = 0x1_0000  #: the number of the first endpoint; those below are reserved
UNICAST = (IPv6Network("2000::/3"), IPv6Network("fc00::/7"))  #: global and unique local addresses (RFC 4291, RFC 4193)


def _site(text: str) -> str:
    found = IPv6Network(validate.prefix(text, "", AF_INET6))
    if not WIDEST <= found.prefixlen <= NARROWEST or not any(found.subnet_of(each) for each in UNICAST):
        raise ValueError
    return str(found)


Site = Annotated[
    str,
    Text(
        _site,
        'an IPv6 prefix of /48 to /60, of unique local (fc00::/7) or global (2000::/3) addresses: "fd12:3456:789a::/48"',
    ),
]
ZoneOrNone = Annotated[str, Text(domain, 'the zone of endpoints\' names, such as "hosts.example.com"', True)]


class Underlay(NamedTuple):
    """The site's prefix, of which each node has a /64, and the zone of endpoints' names; without a zone there are none."""

    prefix: Site
    zone: ZoneOrNone = ""
    minimum_age: Annotated[float, Between(0, 31536000)] = 3600.0  #: seconds before an address that was taken back is forgotten, at least
    ttl: Annotated[int, Between(0, 86400)] = 60  #: seconds for which resolvers keep a name

    @property
    def network(self) -> IPv6Network:
        return IPv6Network(self.prefix)

    @property
    def most(self) -> int:
        """Count the /64s that there are."""
        return 1 << EACH - self.network.prefixlen

    @property
    def rests(self) -> float:
        """Give the seconds from the end of a prefix's use to the next one, at least."""
        return max(self.minimum_age, float(self.ttl))

    def of(self, number: int) -> str:
        """Give the /64 of a number."""
        return f"{IPv6Address(int(self.network.network_address) + (number << EACH))}/{EACH}"


class NodePrefix(NamedTuple):
    """The /64 of a node. ``next``: the number of the next endpoint in it; it never goes back.

    ``generation``: advanced whenever the node is told something else of its underlay. ``freed``: when the node was forgotten, 0 where it
    was not; ``until``: the prefix is nobody else's before.
    """

    number: int
    prefix: str
    next: int = FIRST
    generation: int = 1
    freed: float = 0.0
    until: float = 0.0

    def at(self, number: int) -> str:
        """Give the address of a number in it."""
        return str(IPv6Address(int(IPv6Network(self.prefix).network_address) + number))

    @property
    def itself(self) -> str:
        """Give the node's own address."""
        return self.at(ITSELF)
