"""A routing daemon's table, as many routes as one likes, in the calling thread's network namespace."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from tests.support.netns import run

PROTOCOL = 186  #: bgp (rt_protos): neither ours nor the kernel's
NETWORKS = {4: int(ipaddress.ip_address("11.0.0.0")), 6: int(ipaddress.ip_address("2a00::"))}


def prefixes(version: int, count: int) -> Iterator[str]:
    """So many /24 of IPv4, or /48 of IPv6, side by side; up to a few million there is none to 198.18.0.0/15 or 2001:db8::/32 among them."""
    bits, length = (8, 24) if version == 4 else (80, 48)
    made = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    for number in range(count):
        yield f"{made(NETWORKS[version] + (number << bits))}/{length}"


def change(verb: str, count: int, via4: str, via6: str, seconds: float = 120) -> None:
    """``ip route VERB`` ("add", "del") of ``count`` routes of each family by these gateways."""
    for version, via in ((4, via4), (6, via6)):
        lines = "".join(f"route {verb} {prefix} via {via} proto {PROTOCOL}\n" for prefix in prefixes(version, count))
        run("ip", f"-{version}", "-batch", "-", stdin=lines, timeout=seconds)
