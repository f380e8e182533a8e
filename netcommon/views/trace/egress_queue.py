"""Tell what a device's queue does with one frame while nothing else waits there (tc(8)): the root qdisc that somebody has put there."""

from __future__ import annotations

from netcommon.host.api.facts import Link, Qdisc
from netcommon.host.rtnetlink.encode_tc import HANDLE
from netcommon.views import format as words
from netcommon.views.trace.trail import FOREIGN, OURS, Trail

#: Queues that hold a frame back, drop it only where many wait, and have neither filters nor other queues within.
BLACKHOLE, BY_PACKETS, BY_BYTES = "blackhole", ("pfifo", "pfifo_head_drop"), "bfifo"
PLAIN = ("pfifo_fast", "noqueue")


def queued(trail: Trail, link: Link, queue: Qdisc | None, length: int) -> bool:
    """Tell whether a frame of ``length`` bytes gets through ``queue``, None: the kernel's default; say what it meets."""
    if queue is None:
        return True
    whose = OURS if queue.handle == HANDLE else FOREIGN
    meets = f"qdisc {queue.kind} {queue.handle >> 16:x}: of {link.name}"
    why = _refused(queue, length)
    if why:
        trail.drops(link.name, meets, why, whose)
        return False
    if whose == OURS:
        trail.passes(link.name, meets, f"sends at most {words.rate(queue.rate)}; what is more waits, then is dropped", whose)
    elif queue.kind in (*PLAIN, *BY_PACKETS, BY_BYTES):
        trail.passes(link.name, meets, "queues it", whose)
    else:
        trail.doubt(link.name, meets, f"what it, its classes and its filters do is not known here: tc -s qdisc show dev {link.name}", whose)
    return True


def _refused(queue: Qdisc, length: int) -> str:
    """Tell why the queue takes no such frame, be it empty; "" where it does, or that is not known."""
    if queue.kind == BLACKHOLE:
        return "it drops all"
    if queue.kind in BY_PACKETS and not queue.limit:
        return "its limit is 0 packets: it drops all"
    if queue.kind == BY_BYTES and queue.limit < length:
        return f"its limit is {queue.limit} bytes, and the frame has {length}"
    return ""
