"""Read the pool of addresses of a Ganeti network: two strings of 0 and 1, one digit for each address (lib/network.py of Ganeti)."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any

from netregistry.model import kinds
from netregistry.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_RANGES = 1000  #: of one network: netregistry.model.network.Network.reserved


def reserved(texts: Iterable[Any], fields: Mapping[str, Any], used: Iterable[str]) -> list[dict[str, str]]:
    """Give what the pool of a network does not give out, beside what NICs have and what no host can have: ranges in rising order.

    ``texts``: what instances have, and what is reserved; ``fields``: the network's; ``used``: the addresses of its NICs. What is reserved
    is so beside a NIC that has it: where a block is reserved in which there is a guest, that is no hole in it. Raises ValueError.
    """
    subnet = IPv4Network(fields["subnet"]) if fields["subnet"] else None
    size = subnet.num_addresses if subnet is not None else 0
    pools: list[int] = []
    for text in texts:
        if not isinstance(text, str) or len(text) > size or not set(text) <= {"0", "1"}:
            raise ValueError(f"a pool that is none of {size} addresses")
        pools.append(int(text.ljust(size, "0") or "0", 2))
    if subnet is None or not any(pools):
        return []
    first, plain = int(subnet.network_address), Network("", "", subnet=fields["subnet"], gateway=fields["gateway"])
    had = [kinds.number(each) for each in used if each and kinds.family(each) == 4]
    instances, kept = pools
    instances &= ~_bits(had, first, size)
    bits = (instances | kept) & ~_bits(plain.excluded(4), first, size)
    runs = [match.span() for match in re.finditer("1+", f"{bits:0{size}b}")]
    if len(runs) > MOST_RANGES:  # rather some too many than one that is given out twice
        runs[MOST_RANGES - 1 :] = [(runs[MOST_RANGES - 1][0], runs[-1][1])]
    return [{"first": str(IPv4Address(first + begin)), "last": str(IPv4Address(first + end - 1))} for begin, end in runs]


def _bits(numbers: Iterable[int], first: int, size: int) -> int:
    """Give the bits of those numbers that are in a pool of ``size`` addresses from ``first`` on; the first one's is the highest."""
    return sum(1 << size - 1 - place for place in {number - first for number in numbers} if 0 <= place < size)
