"""What devices have carried since they were made: RTM_GETSTATS (rtnetlink, linux/if_link.h), one dump for all of them."""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.facts import Counters
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attributes
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RTM_GETSTATS = 94
HEADER = Struct("=BxxxII")  #: struct if_stats_msg: family, index, filter
IFLA_STATS_LINK_64 = 1
STATS = Struct("=8Q")  #: the beginning of struct rtnl_link_stats64


def dump() -> Encoded:
    """The question: those of all devices, by 64 bits, and nothing else."""
    return Encoded(RTM_GETSTATS, 0, HEADER.pack(0, 0, 1 << (IFLA_STATS_LINK_64 - 1)))


def counters(bodies: Iterable[bytes]) -> dict[int, Counters]:
    """The answers, by the device's index. Raises MalformedError."""
    found = {}
    for body in bodies:
        stats = attributes(body, HEADER.size).get(IFLA_STATS_LINK_64, b"")
        if len(stats) < STATS.size:
            raise MalformedError("a device's counters are missing")
        found[HEADER.unpack_from(body)[1]] = Counters(*STATS.unpack_from(stats))
    return found
