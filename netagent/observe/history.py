"""What has happened to NICs lately, in memory: a ring of so many events, from which readers take what they have not seen.

The agent keeps nothing for a reader and never waits for one: a reader says the number of the last event that it has, and asks again.
Who comes too late is told how many it has missed. Nothing is on disk: the log is what lasts (journalctl).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from sys import intern
from typing import NamedTuple

from netagent.index import Entry
from netcommon.lifecycle.gc import REMOVED, Found
from runtime.record import APPLYING, CHANGING, CLOSING, UP, Record

#: The format of the answer: grows when a field goes or changes its meaning.
FORMAT = 1

#: So many events are kept, and so many are told at once: 5000 NICs that come up make 5000 of them.
KEPT, AT_ONCE = 10000, 2000

#: A longer text is cut (characters).
LONGEST = 500

#: What can happen: docs/seeing.md says what each means.
CAME_UP, CHANGED, WENT_DOWN, FAILED = "up", "changed", "down", "failed"
CLOSES, GONE, DRIFTED, REPAIRED, STUCK = "closing", "device gone", "drift", "repaired", "not repaired"
REAPED, ALARM, OVER, LOST, STARTED = "reaped", "alarm", "alarm over", "events lost", "agent started"
KINDS = (CAME_UP, CHANGED, WENT_DOWN, FAILED, CLOSES, GONE, DRIFTED, REPAIRED, STUCK, REAPED, ALARM, OVER, LOST, STARTED)


class Happened(NamedTuple):
    """One event."""

    number: int  #: counted from 1 since the agent started
    when: float  #: seconds since the epoch
    kind: str  #: one of KINDS
    label: str  #: the NIC's, "web1/0"; "" for what is about no NIC
    device: str
    uuid: str
    text: str  #: more of it, for people


class Journal:
    """The ring. ``wall``: seconds since the epoch. Every method may be called by every thread."""

    def __init__(self, wall: Callable[[], float], kept: int = KEPT) -> None:
        self._wall, self._lock = wall, threading.Lock()
        self._ring: deque[Happened] = deque(maxlen=kept)
        self._last = 0
        self._telling = False
        self._drift: dict[str, frozenset[str]] = {}  #: by record: what of it is known not to hold
        self.begun = wall()

    def note(self, kind: str, label: str = "", device: str = "", uuid: str = "", text: str = "") -> None:
        """It has happened, now."""
        with self._lock:
            self._last += 1
            short = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
            about = map(intern, (label, device, uuid, short))  # ten thousand events are about the same NICs: each name is held once
            self._ring.append(Happened(self._last, round(self._wall(), 3), kind, *about))

    # -- what the agent's parts tell

    def begin(self) -> None:
        """The records were read for the first time: what becomes of them from here on is news."""
        self._telling = True
        self.note(STARTED)

    def became(self, before: Entry | None, after: Entry | None) -> None:
        """The record of a NIC was ``before`` and is ``after`` now; None: there is none."""
        entry = after or before
        if entry is None or not self._telling:
            return
        if after is None or before is None or before.ifindex != after.ifindex:
            with self._lock:
                self._drift.pop(entry.key, None)
        kind = change(before, after)
        if kind:
            self.note(kind, entry.label, entry.device, entry.uuid)

    def gone(self, entries: Iterable[Entry]) -> None:
        """The kernel says that the device of these is gone."""
        for entry in entries:
            self.note(GONE, entry.label, entry.device, entry.uuid, f"the record is {entry.state}")

    def drifted(self, record: Record, texts: Iterable[str]) -> None:
        """See netagent.interfaces. What was told of it already, and still is so, is not told again."""
        now = frozenset(texts)
        with self._lock:
            before = self._drift.pop(record.key, frozenset())
            if now:
                self._drift[record.key] = now
        for text in sorted(now - before):
            self._about(DRIFTED, record, text)

    def repaired(self, record: Record, text: str) -> None:
        """See netagent.interfaces."""
        with self._lock:
            self._drift.pop(record.key, None)  # should it drift again, that is news
        self._about(REPAIRED, record, text.removeprefix(f"{record.nic.label} on {record.device}: "))

    def stuck(self, record: Record, text: str) -> None:
        """See netagent.interfaces."""
        self._about(STUCK, record, text)

    def undone(self, record: Record, text: str) -> None:
        """See netagent.interfaces."""
        self._about(REAPED, record, text)

    def reaped(self, found: Iterable[Found]) -> None:
        """What one run of the reaper has found; what it has kept is no news."""
        for one in found:
            if one.action == REMOVED:
                self.note(REAPED, text=f"{one.text}: {one.why}")

    def alarm(self, name: str, on: bool, text: str) -> None:
        """An alarm has come, or is over."""
        self.note(ALARM if on else OVER, text=f"{name}: {text}" if on else name)

    def lost(self, source: str) -> None:
        """The kernel, or another source, had more events than it could keep."""
        self.note(LOST, text=f"events of {source} were lost: everything is looked at")

    def _about(self, kind: str, record: Record, text: str) -> None:
        self.note(kind, record.nic.label, record.device, record.uuid, text)

    # -- readers

    def since(self, number: int) -> Mapping[str, object]:
        """The answer to a reader whose last event had ``number``: the next ones, oldest first, and how many it has missed.

        A number that was never given is that of an agent before this one: everything is told.
        """
        with self._lock:
            start = number if 0 <= number <= self._last else 0
            first = self._ring[0].number if self._ring else self._last + 1
            missed = max(0, first - 1 - start)
            told = list(islice(self._ring, max(0, start - first + 1), max(0, start - first + 1) + AT_ONCE))
            last = self._last
        events = [dict(zip(Happened._fields, one, strict=True)) for one in told]
        return {"format": FORMAT, "begun": self.begun, "last": last, "missed": missed, "events": events}

    def asked(self, rest: str) -> Mapping[str, object]:
        """The answer to "events NUMBER"."""
        return self.since(int(rest) if rest.isascii() and rest.isdecimal() and len(rest) < 16 else 0)


def change(before: Entry | None, after: Entry | None) -> str:
    """Which event a change of a record is, "" for none: what is only begun is told when it is done."""
    old, new = (None if one is None else one.state for one in (before, after))
    if new is None:
        return {None: "", APPLYING: FAILED}.get(old, WENT_DOWN)
    if new == UP and before is not None and old in (UP, CHANGING) and after is not None:
        earlier = before.marks if old == UP else before.before
        return CHANGED if before.ifindex != after.ifindex or earlier != after.marks else ""
    if new == UP:
        return CAME_UP
    return CLOSES if new == CLOSING and old != CLOSING else ""
