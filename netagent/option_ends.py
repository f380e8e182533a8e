"""Tell when the agent ends options that were changed for a while (runtime.wanted), and which NICs wait because their end failed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from runtime import wanted
from runtime.errors import NetcommonError, TryAgain

if TYPE_CHECKING:
    from netcommon.lifecycle.ends import Passes
    from runtime.paths import Paths
    from runtime.wanted import Moment, Wanted

#: When the end of a NIC's options that failed is tried again (seconds): one that the host refuses; and one of a NIC that somebody works
#: on, at first, which doubles until it is as long. From then on there is an alarm.
REFUSED, BUSY = 30.0, 2.0


class Failed(NamedTuple):
    """The last attempt at what has ended of one NIC: when it was (monotonic seconds), and why it failed.

    ``why`` is "" where the end is left to others: the NIC is up in another network namespace.
    """

    at: float
    why: str
    pause: float = REFUSED  #: until the next attempt (seconds)


class OptionEnds:
    """Keep a pause for each NIC whose end failed, so that it holds up no other. In memory alone: a restarted agent tries all anew.

    As long as no end fails, the link that tells of the first one is asked. A NIC whose end failed keeps that due: then the files of all
    NICs are read once after each attempt, and later the file of one that was changed since.
    """

    def __init__(self, paths: Paths, boot: str) -> None:
        self._paths, self._boot = paths, boot
        self._failed: Mapping[str, Failed] = {}  #: by UUID; replaced as a whole, by the worker alone
        self._passed: set[str] = set()  #: the NICs that the present attempt passes over
        self._first: float | None = None  #: what ``first`` tells; None: the link tells it
        self._altered: set[str] = set()  #: the NICs that may have changed since the last attempt was asked for

    # -- in a worker's thread

    def passes(self, now: Moment) -> Passes:
        """Give the rule of an attempt at ``now``: it passes over the NICs whose pause is not over."""
        failed, passed = self._failed, set[str]()
        self._passed = passed

        def rule(uuid: str, there: Wanted) -> bool:
            waits = uuid in failed and now.monotonic < self._when(uuid, there)
            if waits:
                passed.add(uuid)
            return waits

        return rule

    def attempted(self, now: Moment, refused: Mapping[str, NetcommonError]) -> float | None:
        """Note how an attempt at ``now`` went. ``refused``: why, of the NICs whose end failed.

        Returns when the next attempt is due (monotonic seconds, infinity for never); None where the link tells it. Raises HostRefused.
        """
        failed = {uuid: Failed(now.monotonic, str(why), self._pause(uuid, why)) for uuid, why in refused.items()}
        failed |= {uuid: self._failed[uuid] for uuid in self._passed if uuid not in failed}
        if not failed and not wanted.due(self._paths, now):
            self._failed = failed
            return None
        there = wanted.all_of(self._paths, [])
        for uuid, one in there.items():
            if uuid not in failed and min(self._clocks(one), default=math.inf) <= now.monotonic:
                failed[uuid] = Failed(now.monotonic, "")
        self._failed = failed
        return min((self._when(uuid, there.get(uuid, wanted.NOTHING)) for uuid in {*there, *failed}), default=math.inf)

    # -- in the main thread

    def begin(self) -> None:
        """Note that an attempt is asked for: what is changed from now on, it may not see."""
        self._altered.clear()

    def ended(self, first: float | None) -> None:
        """Take what ``attempted`` has returned. Raises HostRefused."""
        self._first = first
        for uuid in self._altered:
            self._take(uuid)

    def altered(self, uuid: str) -> None:
        """Note that the options of a NIC may have changed. Raises HostRefused."""
        self._altered.add(uuid)
        self._take(uuid)

    def first(self) -> float:
        """Tell when an attempt is due (monotonic seconds), infinity for never. Raises HostRefused."""
        if self._first is not None:
            return self._first
        told = wanted.first_end(self._paths)
        return math.inf if told is None else self._clock(told)

    @property
    def problems(self) -> list[str]:
        """List what keeps options from their end, of each NIC."""
        return [f"{uuid}: {failed.why}" for uuid, failed in sorted(self._failed.items()) if failed.why and failed.pause >= REFUSED]

    # -- times

    def _pause(self, uuid: str, why: NetcommonError) -> float:
        if not isinstance(why, TryAgain):
            return REFUSED
        before = self._failed.get(uuid)
        return min(before.pause * 2, REFUSED) if before is not None and before.why else BUSY

    def _take(self, uuid: str) -> None:
        if self._first is not None:
            self._first = min(self._first, self._when(uuid, wanted.read(self._paths, uuid, [], readonly=True)))

    def _when(self, uuid: str, there: Wanted) -> float:
        """Tell when the NIC is due: at its first end, but if that was tried and failed at the next one, or after the pause."""
        failed = self._failed.get(uuid)
        if failed is None:
            return min(self._clocks(there), default=math.inf)
        return min((failed.at + failed.pause, *(when for when in self._clocks(there) if when > failed.at)))

    def _clocks(self, there: Wanted) -> list[float]:
        return [self._clock(end.until) for end in wanted.ends(there)]

    def _clock(self, moment: Moment) -> float:
        """Give the time by this boot's clock; one of another boot is due at once, and written down by this one's then."""
        return moment.monotonic if moment.boot == self._boot else 0.0
