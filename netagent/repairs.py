"""Whether what has drifted is put back: the policy for its kind, and the rule that nobody is fought for ever.

An operation that somebody undoes again after it was repaired is repaired again at once, since one `systemctl restart nftables` flushes
twice; but only ALLOWED times within a window. Beyond that it is reported, and left until the window is over; each time it is longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from netcommon.settings import Settings

OFF, REPORT, ON = "off", "report", "on"

#: So often within one window the same operation is repaired.
ALLOWED = 3

#: Length of a window (seconds): the first, and the longest after doubling.
SHORTEST, LONGEST = 10.0, 600.0

#: Between two attempts at what cannot be repaired (seconds): the first, and the longest after doubling.
FIRST, LAST = 0.5, 300.0


class Window(NamedTuple):
    """The repairs of one operation of one record."""

    begun: float
    length: float
    repairs: int


class Verdict(NamedTuple):
    """What is to be done about one operation: ``repair`` it, or look again at ``again`` (0: when something happens)."""

    repair: bool
    again: float = 0.0
    why: str = ""


class Repairs:
    """Counts the repairs of each operation, and the failures of each record. For all threads. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float], settings: Settings) -> None:
        self._clock, self.settings = clock, settings
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], Window] = {}
        self._failures: dict[str, tuple[float, float]] = {}  #: record -> when it may be tried again, and the pause before

    def policy(self, kind: str) -> str:
        """Of a kind of operation: OFF, REPORT or ON. The kinds of an extension are called EXTENSION/NAME."""
        extension, slash, _name = kind.partition("/")
        found: str = self.settings.extensions.get(extension, {}).get("repair", ON) if slash else self.settings.repair.get(kind, ON)
        return found

    def judge(self, key: str, kind: str, operation: str) -> Verdict:
        """About an operation that does not hold of the record ``key``: ``kind`` is its kind, ``operation`` names it, and the device.

        Counts a repair if it says so.
        """
        policy = self.policy(kind)
        if policy != ON:
            return Verdict(False, why="" if policy == OFF else "the settings say to report it")
        now = self._clock()
        with self._lock:
            window = self._windows.get((key, operation))
            if window is None or now >= window.begun + 2 * window.length:
                window = Window(now, SHORTEST, 0)  # it has held for long enough
            elif now >= window.begun + window.length:
                full = window.repairs >= ALLOWED
                window = Window(now, min(window.length * 2, LONGEST) if full else window.length, 0)
            if window.repairs >= ALLOWED:
                end = window.begun + window.length
                return Verdict(False, end, f"repaired {window.repairs} times in {window.length:g} s, and undone each time: somebody else's")
            self._windows[key, operation] = window._replace(repairs=window.repairs + 1)
            return Verdict(True, why="it was repaired before" if window.repairs else "")

    def failed(self, key: str, longest: float = LAST) -> float:
        """What was tried for the record failed: when it may be tried again, in ``longest`` seconds at most."""
        with self._lock:
            pause = min(self._failures.get(key, (0.0, FIRST / 2))[1] * 2, longest)
            when = self._clock() + pause
            self._failures[key] = when, pause
            return when

    def worked(self, key: str) -> None:
        """What was tried for the record worked, or nothing was to be done."""
        with self._lock:
            self._failures.pop(key, None)

    def not_before(self, key: str) -> float:
        """When the record may be tried again; 0 where nothing has failed."""
        with self._lock:
            return self._failures.get(key, (0.0, 0.0))[0]

    def forget(self, keys: Callable[[str], bool]) -> None:
        """Drops what is of records that are gone (``keys`` says which are there), and windows that are long over."""
        now = self._clock()
        with self._lock:
            for name, window in list(self._windows.items()):
                if not keys(name[0]) or now >= window.begun + 2 * window.length:
                    del self._windows[name]
            for key in [key for key in self._failures if not keys(key)]:
                del self._failures[key]
