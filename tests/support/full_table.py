"""A routing daemon's table, as many routes as one likes, in the calling thread's network namespace; faster than ``ip -batch``."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import islice

from netcommon.host.api.facts import AF_INET, AF_INET6, Route
from netcommon.host.api.requests import AddRoute, DeleteRoute
from netcommon.host.rtnetlink.encode import encode
from netcommon.host.rtnetlink.socket import Netlink

PROTOCOL = 186  #: bgp (rt_protos): neither ours nor the kernel's
MAIN = 254
AT_ONCE = 10_000
NETWORKS = {AF_INET: (int(ipaddress.ip_address("11.0.0.0")), 32, 24), AF_INET6: (int(ipaddress.ip_address("2a00::")), 128, 48)}


def prefixes(family: int, count: int, first: int = 0) -> Iterator[str]:
    """So many /24 of IPv4, or /48 of IPv6, side by side; up to a few million there is none to 198.18.0.0/15 or 2001:db8::/32 among them."""
    network, bits, length = NETWORKS[family]
    made = ipaddress.IPv4Address if family == AF_INET else ipaddress.IPv6Address
    for number in range(first, first + count):
        yield f"{made(network + (number << bits - length))}/{length}"


def change(family: int, count: int, via: str, add: bool = True, first: int = 0) -> None:
    """Make ``count`` routes by the gateway ``via`` in main, or remove them."""
    netlink = Netlink(60)
    routes = (Route(family, MAIN, each, 0, PROTOCOL, 0, via) for each in prefixes(family, count, first))
    while some := list(islice(routes, AT_ONCE)):
        said = netlink.ask([encode(AddRoute(route) if add else DeleteRoute(route)) for route in some])
        assert not any(reply.errno for reply in said), next(reply for reply in said if reply.errno)
    netlink.close()
