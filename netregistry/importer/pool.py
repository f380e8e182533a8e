"""Read the pool of addresses of a Ganeti network: two strings of 0 and 1, one digit for each address (lib/network.py of Ganeti)."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import kinds
from netregistry.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Runs = list[tuple[int, int]]

MOST_RANGES = 1000  #: of one network: netregistry.model.network.Network.reserved, and barred
MOST_OF_IPV6 = 100  #: of what is barred


class Pool(NamedTuple):
    """Give what a pool does not give out, as pairs of numbers in rising order, both included.

    ``reserved``: all but what no host can have, and what NICs alone have that were read. ``stray``: of it what instances have, and of no
    NIC is known. ``ranges``: as many of ``reserved`` as a network may have, as the registry answers them.
    """

    reserved: Runs
    stray: Runs
    ranges: list[dict[str, str]]


def read(texts: Iterable[Any], fields: Mapping[str, Any], used: Iterable[str], known: Iterable[str]) -> Pool:
    """Read the pool of a network.

    ``texts``: what instances have, and what is reserved; ``fields``: the network's subnet and gateway; ``used``: the addresses of its NICs
    that were read; ``known``: those of all. What is reserved is so beside a NIC that has it: where a block is reserved in which there is a
    guest, that is no hole in it. Raises ValueError.
    """
    subnet = IPv4Network(fields["subnet"]) if fields["subnet"] else None
    size = subnet.num_addresses if subnet is not None else 0
    pools: list[int] = []
    for text in texts:
        if not isinstance(text, str) or len(text) > size or not set(text) <= {"0", "1"}:
            raise ValueError(f"a pool that is none of {size} addresses")
        pools.append(int(text.ljust(size, "0") or "0", 2))
    if subnet is None or not any(pools):
        return Pool([], [], [])
    first, plain = int(subnet.network_address), Network("", "", subnet=fields["subnet"], gateway=fields["gateway"])
    instances, kept = pools
    nobodys = ~_bits(plain.excluded(4), first, size)
    reserved = _runs((instances & ~_of(used, first, size) | kept) & nobodys, first, size)
    stray = _runs(instances & ~_of(known, first, size) & nobodys, first, size)
    return Pool(reserved, stray, _ranges(reserved[:MOST_RANGES], 4))


def barred(pool: Pool | None, fields: Mapping[str, Any], guests: Iterable[str]) -> list[dict[str, str]]:
    """Give what of a network is given out in no case, as it would be: ranges in rising order.

    That is what ``guests`` have, addresses of NICs that the registry does not have; what instances have of whose NICs nothing is known; and
    what Ganeti reserves and ``reserved`` does not say, or the other way round. Without a ``pool`` that can be read it is all of IPv4.
    """
    found: dict[int, Runs] = {4: [], 6: []}
    for each in guests:
        found[kinds.family(each)].append((kinds.number(each),) * 2)
    if pool is not None:
        found[4] += pool.stray
        if fields["reserved"] != pool.ranges or len(pool.ranges) < len(pool.reserved):
            said = [(kinds.number(each["first"]), kinds.number(each["last"])) for each in fields["reserved"] if ":" not in each["first"]]
            found[4] += _differing(pool.reserved, said)
    ranges: list[dict[str, str]] = []
    for subnet in kinds.subnets(fields["subnet"], fields["subnet6"]):
        first, last = int(subnet.network_address), int(subnet.broadcast_address)
        runs = [(first, last)] if pool is None and subnet.version == 4 else _joined(found[subnet.version])
        inside = [(max(first, begin), min(last, end)) for begin, end in runs if begin <= last and first <= end]
        most = MOST_OF_IPV6 if subnet.version == 6 else MOST_RANGES - MOST_OF_IPV6
        if len(inside) > most:  # rather some too many than one that is given out twice
            inside[most - 1 :] = [(inside[most - 1][0], inside[-1][1])]
        ranges += _ranges(inside, subnet.version)
    return ranges


def _bits(numbers: Iterable[int], first: int, size: int) -> int:
    """Give the bits of those numbers that are in a pool of ``size`` addresses from ``first`` on; the first one's is the highest."""
    return sum(1 << size - 1 - place for place in {number - first for number in numbers} if 0 <= place < size)


def _of(addresses: Iterable[str], first: int, size: int) -> int:
    return _bits((kinds.number(each) for each in addresses if each and kinds.family(each) == 4), first, size)


def _runs(bits: int, first: int, size: int) -> Runs:
    return [(first + match.start(), first + match.end() - 1) for match in re.finditer("1+", f"{bits:0{size}b}")]


def _ranges(runs: Runs, family: int) -> list[dict[str, str]]:
    return [{"first": kinds.text(begin, family), "last": kinds.text(end, family)} for begin, end in runs]


def _differing(one: Runs, other: Runs) -> Runs:
    """Give what is in one of two lists of runs, and not in both; in neither does a run overlap or touch another."""
    ends = [{end for first, last in runs for end in (first, last + 1)} for runs in (one, other)]
    points = sorted(ends[0] ^ ends[1])
    return [(begin, end - 1) for begin, end in zip(points[::2], points[1::2], strict=True)]


def _joined(runs: Runs) -> Runs:
    """Give runs in rising order, those that overlap or touch as one."""
    found: Runs = []
    for begin, end in sorted(runs):
        if found and begin <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
