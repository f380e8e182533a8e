"""Read what devices have carried since they were made (RTM_GETSTATS, linux/if_link.h), and what their queues have dropped
(RTM_GETQDISC, linux/gen_stats.h): one dump each for all of them.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.facts import Counters
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attributes
from netcommon.host.rtnetlink.encode_tc import RTM_GETQDISC, TC_H_ROOT, TCMSG
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RTM_GETSTATS = 94
HEADER = Struct("=BxxxII")  #: struct if_stats_msg: family, index, filter
IFLA_STATS_LINK_64 = 1
TCA_STATS2, STATS_QUEUE = 7, 3
QUEUE = Struct("=3I")  #: the beginning of struct gnet_stats_queue: frames and bytes that wait, drops
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


def dump_queues() -> Encoded:
    """Ask for the qdiscs of all devices."""
    return Encoded(RTM_GETQDISC, 0, TCMSG.pack(0, 0, 0, 0, 0))


def queue_drops(bodies: Iterable[bytes]) -> dict[int, int]:
    """Read by the device's index what its root qdisc has dropped, with those within it. Raises MalformedError."""
    found = {}
    for body in bodies:
        if len(body) < TCMSG.size:
            raise MalformedError("a message shorter than its header")
        _, index, _, parent, _ = TCMSG.unpack_from(body)
        if parent != TC_H_ROOT:
            continue
        queue = attributes(attributes(body, TCMSG.size).get(TCA_STATS2, b"")).get(STATS_QUEUE, b"")
        if len(queue) < QUEUE.size:
            raise MalformedError("a queue's counters are missing")
        found[index] = QUEUE.unpack_from(queue)[2]
    return found
