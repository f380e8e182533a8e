"""What NICs send and receive: two readings of the devices' counters, and the rates between them, as the guest sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netcommon.host.api.facts import Counters
from netcommon.host.api.host import View

BITS = 8  #: of a byte


class Reading(NamedTuple):
    """The counters of all devices at one moment."""

    when: float  #: monotonic seconds
    counters: Mapping[int, Counters]  #: by the device's index
    queues: Mapping[int, int] = {}  #: the same, what their queues have dropped


class Rate(NamedTuple):
    """Of one NIC, a second, as its guest sees it."""

    received_bits: float
    sent_bits: float
    received_packets: float
    sent_packets: float
    received_dropped: float  #: frames for the guest that the device's queue had no room for, or that a limit cut off
    sent_dropped: float  #: frames of the guest's that the device has dropped


def read(view: View, now: float) -> Reading:
    """Read two dumps for all devices. Raises TryAgain, HostRefused."""
    return Reading(now, view.counters(), view.queue_drops())


def rate(before: Reading, after: Reading, index: int) -> Rate | None:
    """None where it cannot be told: the device is gone, or is another one, or no time has passed."""
    old, new = before.counters.get(index), after.counters.get(index)
    seconds = after.when - before.when
    if old is None or new is None or seconds <= 0:
        return None
    grown = Counters(*(late - early for late, early in zip(new, old, strict=True)))
    if min(grown) < 0:
        return None
    queued = max(0, after.queues.get(index, 0) - before.queues.get(index, 0))  # another queue begins anew
    return Rate(
        grown.sent_bytes * BITS / seconds,
        grown.received_bytes * BITS / seconds,
        grown.sent_packets / seconds,
        grown.received_packets / seconds,
        (grown.sent_dropped + queued) / seconds,
        grown.received_dropped / seconds,
    )
