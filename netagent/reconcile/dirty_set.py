"""Which records an event concerns, and when they are looked at: without threads, clock or host, so that every order can be tried.

Events only mark records; the look itself reads the record and the host anew (netagent.reconcile.reconciler). So an event that is late,
doubled or about something else costs one look, and decides nothing. A burst is one batch: what has gathered while the last was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from netagent.events import INDEX, Came, Changed, Event, Gone, LinkGone, LockClosed, Overrun
from netagent.index import Entry, Nics
from runtime.locks import number
from runtime.record import CHANGING, CLOSING

#: How long marks gather before they are looked at (seconds): what one command does is one batch.
GATHER = 0.003

#: So many records are looked at one by one, each with questions of its own to the kernel; more share a snapshot.
FEW = 8

#: A record that a hook is at work on is looked at again after this, and after twice that, up to the longest (seconds).
SOON, LATE = 0.002, 1.0

NEVER = float("inf")


class Batch(NamedTuple):
    """What to look at now, each with the time of the first event that asked for it."""

    single: tuple[tuple[str, float], ...] = ()  #: records, each by itself
    many: tuple[tuple[str, float], ...] = ()  #: records, from one snapshot
    everything: float = 0.0  #: not 0: all records, since then


class DirtySet:
    """The marks. ``now`` is monotonic seconds in all methods; ``not_before`` says until when a record that failed is left alone."""

    def __init__(self, nics: Nics, not_before: Callable[[str], float]) -> None:
        self._nics, self._not_before = nics, not_before
        self._urgent: dict[str, float] = {}  #: looked at whatever failed before, and each by itself: the device has gone
        self._marked: dict[str, float] = {}
        self._later: dict[str, float] = {}  #: record -> when it is due
        self._pauses: dict[str, float] = {}  #: of records that a hook is at work on
        self._unsettled: set[str] = set()  #: something of theirs was removed while a hook was at work: it may have made it before
        self._everything = 0.0
        self._since = NEVER  #: the first of the marks
        self._busy = False  #: a snapshot is being looked at
        self._rest = 0.0  #: until when no other is

    # -- what happens

    def take(self, event: Event, now: float) -> None:
        """Any event but RecordChanged, which ``changed`` and ``removed`` are for."""
        if isinstance(event, LinkGone):
            for entry in self._nics.about(((INDEX, event.ifindex),)):
                self._urgent.setdefault(entry.key, now)
        elif isinstance(event, Gone | Changed | Came):
            for entry in self._nics.about(event.marks):
                if isinstance(event, Came) and entry.key in self._later:
                    self._later[entry.key] = now  # what failed, of a record in whatever state, is tried again
                else:
                    self._concern(entry, not isinstance(event, Changed), now)
        elif isinstance(event, LockClosed):
            for key in [key for key in self._later if (known := self._nics.get(key)) and number(known.uuid) == event.number]:
                self._pauses.pop(key, None)
                self._later[key] = min(self._later[key], now + SOON)  # the kernel tells of the closing before it lets the lock go
        elif isinstance(event, Overrun):
            self.everything(now)

    def _concern(self, entry: Entry, gone: bool, now: float) -> None:
        if entry.settled or entry.state in (CLOSING, CHANGING):
            self.mark(entry.key, now)
        elif gone:
            self._unsettled.add(entry.key)

    def mark(self, key: str, now: float) -> None:
        """The record is to be looked at."""
        if key not in self._marked:
            self._marked[key] = now
            self._since = min(self._since, now)

    def everything(self, now: float) -> None:
        """All records are to be looked at."""
        self._everything = self._everything or now

    def changed(self, entry: Entry, now: float) -> None:
        """The record was written, and is now as ``entry`` says."""
        if entry.settled or entry.state == CLOSING:
            late = self._later.pop(entry.key, NEVER)
            self._pauses.pop(entry.key, None)
            # what failed is due again, whoever has written the record: it may have been our own repair, as far as that came
            failed = late < NEVER and self._not_before(entry.key) > now
            if entry.key in self._unsettled or failed or late <= now:
                self._unsettled.discard(entry.key)
                self.mark(entry.key, now)
        else:
            self._later.setdefault(entry.key, now + LATE)  # long before that its hook has closed its locks

    def removed(self, key: str) -> None:
        """The record is gone."""
        for marks in (self._urgent, self._marked, self._later, self._pauses):
            marks.pop(key, None)
        self._unsettled.discard(key)

    # -- what became of a look

    def again(self, key: str, when: float) -> None:
        """The record is to be looked at again, at ``when``."""
        if key in self._nics:
            self._later[key] = min(self._later.get(key, NEVER), when)

    def at_work(self, key: str, now: float) -> None:
        """A hook is at work on the record: we look again when it closes its lock; and soon, should that be missed."""
        if key in self._nics:
            pause = self._pauses[key] = min(self._pauses.get(key, SOON) * 2, LATE)
            self._later[key] = now + pause
            self._unsettled.add(key)  # what was to be seen is looked for again when the hook has written the record

    def rested(self, now: float, seconds: float) -> None:
        """The snapshot's records have been looked at, which took ``seconds``: for as long at least there is no other."""
        self._busy, self._rest = False, now + seconds

    # -- what to do

    def due(self) -> float:
        """When ``batch`` has something to give, as far as is known now."""
        times = [0.0] if self._urgent else []
        if self._marked:
            gathered = self._since + GATHER
            times.append(gathered if len(self._marked) <= FEW else NEVER if self._busy else max(gathered, self._rest))
        if self._everything:
            times.append(NEVER if self._busy else self._rest)
        return min((*times, *self._later.values()), default=NEVER)

    def batch(self, now: float) -> Batch:
        """What is to be looked at now; it is marked no more."""
        single, self._urgent = self._urgent, {}
        for key in [key for key, when in self._later.items() if when <= now]:
            del self._later[key]
            if not self._put_off(key, now):
                single.setdefault(key, now)
        everything, many = 0.0, {}
        free = not self._busy and now >= self._rest
        if self._everything and free:
            everything, self._everything, self._busy = self._everything, 0.0, True
            self._unmark()
        elif self._marked and now >= self._since + GATHER:
            ready = {key: since for key, since in self._marked.items() if not self._put_off(key, now)}
            if len(ready) <= FEW:
                single = {**ready, **single}
                self._unmark()
            elif free:
                many, self._busy = ready, True
                self._unmark()
        return Batch(tuple(single.items()), tuple(many.items()), everything)

    def _unmark(self) -> None:
        self._marked, self._since = {}, NEVER

    def _put_off(self, key: str, now: float) -> bool:
        when = self._not_before(key)
        if when > now:
            self.again(key, when)
        return when > now
