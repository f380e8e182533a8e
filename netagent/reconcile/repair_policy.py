"""Judge whether what has drifted is put back: the policy for its kind, the rule that nobody is fought for ever, and pauses after failures.

An operation that somebody undoes again after it was repaired, and held, is repaired again at once, but only ALLOWED times within a
window. Beyond that it is reported, and left until the window is over; each time it is longer. Attempts that failed are our own affair:
they count for nothing, and the next one comes after a pause, or with the object that was missing (``came``). Who flushes a whole table,
or all flows of a bridge, undoes nothing of one NIC in particular, so that is no fight either (``flushed``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from netcommon.settings.model import Settings

OFF, REPORT, ON = "off", "report", "on"

#: So often within one window the same operation is repaired.
ALLOWED = 3

#: Length of a window (seconds): the first, and the longest after doubling.
SHORTEST, LONGEST = 10.0, 600.0

#: Between two attempts at what cannot be repaired (seconds): the first, and the longest after doubling.
FIRST, LAST = 0.02, 300.0

#: So many reasons why a record could not be repaired are remembered.
REASONS = 20

#: In the place of an operation's name: the record as a whole.
RECORD = ""


class Window(NamedTuple):
    """The repairs of one operation of one record that held."""

    begun: float
    length: float
    repairs: int


class Pause(NamedTuple):
    """After attempts that failed: when the next one is due, and how long that pause is."""

    until: float
    length: float


class Verdict(NamedTuple):
    """Say what is to be done about one operation: ``repair`` it, or look again at ``again`` (0: when something happens).

    ``why`` is for the log; "" where there is nothing to say.
    """

    repair: bool
    again: float = 0.0
    why: str = ""


class Repairs:
    """The windows and pauses of each operation, and the pauses of each record. For all threads. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float], settings: Settings) -> None:
        self._clock, self.settings = clock, settings
        self._lock = threading.Lock()
        self._windows: dict[str, dict[str, Window]] = {}  #: record -> operation -> window
        self._pauses: dict[str, dict[str, Pause]] = {}  #: record -> operation, or RECORD -> pause
        self._said: dict[str, set[str]] = {}  #: record -> why it could not be repaired, as far as the log has it

    def policy(self, kind: str) -> str:
        """Of a kind of operation: OFF, REPORT or ON. The kinds of an extension are called EXTENSION/NAME."""
        extension, slash, _name = kind.partition("/")
        found: str = self.settings.extensions.get(extension, {}).get("repair", ON) if slash else self.settings.repair.get(kind, ON)
        return found

    def judge(self, key: str, kind: str, operation: str) -> Verdict:
        """About an operation that does not hold of the record ``key``: ``kind`` is its kind, ``operation`` names it, and the device."""
        policy = self.policy(kind)
        if policy != ON:
            return Verdict(False, why="" if policy == OFF else "the settings say to report it")
        now = self._clock()
        with self._lock:
            pause = self._pauses.get(key, {}).get(operation)
            if pause is not None and now < pause.until:
                return Verdict(False, pause.until)
            window = self._window(key, operation, now)
            if window.repairs >= ALLOWED:
                end = window.begun + window.length
                return Verdict(False, end, f"repaired {window.repairs} times in {window.length:g} s, and undone each time: somebody else's")
            return Verdict(True, why="it was repaired before" if window.repairs else "")

    def _window(self, key: str, operation: str, now: float) -> Window:
        """The window that is open now; a new one where there is none."""
        window = self._windows.get(key, {}).get(operation)
        if window is None or now >= window.begun + 2 * window.length:
            return Window(now, SHORTEST, 0)  # it has held for long enough
        if now >= window.begun + window.length:
            full = window.repairs >= ALLOWED
            return Window(now, min(window.length * 2, LONGEST) if full else window.length, 0)
        return window

    def held(self, key: str, operations: Iterable[str]) -> None:
        """These operations were repaired, and held when they were looked at after it."""
        now = self._clock()
        with self._lock:
            for operation in operations:
                window = self._window(key, operation, now)
                self._windows.setdefault(key, {})[operation] = window._replace(repairs=window.repairs + 1)
                for name in (operation, RECORD):
                    self._pauses.get(key, {}).pop(name, None)

    def failed(self, key: str, operations: Iterable[str] = (RECORD,), longest: float = LAST) -> float:
        """Note that what was tried for these operations, or the record as a whole, failed; say when it may be tried again.

        That is in ``longest`` seconds at most.
        """
        now, when = self._clock(), 0.0
        with self._lock:
            pauses = self._pauses.setdefault(key, {})
            for operation in operations:
                length = min(pauses[operation].length * 2 if operation in pauses else FIRST, longest)
                pauses[operation] = Pause(now + length, length)
                when = min(when or now + length, now + length)
        return when

    def news(self, key: str, why: str) -> bool:
        """Tell whether the log is to say why the record could not be repaired: once, until it could."""
        with self._lock:
            said = self._said.setdefault(key, set())
            new = why not in said
            if len(said) < REASONS:
                said.add(why)
            return new

    def paused(self, key: str, operation: str) -> float:
        """Give when something is tried again that has failed; 0: now."""
        with self._lock:
            pause = self._pauses.get(key, {}).get(operation)
            return pause.until if pause is not None and self._clock() < pause.until else 0.0

    def worked(self, key: str) -> None:
        """All that was tried for the record worked, or nothing was to be done."""
        with self._lock:
            self._pauses.pop(key, None)
            self._said.pop(key, None)

    def came(self, key: str) -> None:
        """Note that what the record's NIC stands on has come: what failed may work now, and what went with it was undone by nobody."""
        with self._lock:
            self._pauses.pop(key, None)
            self._windows.pop(key, None)
            self._said.pop(key, None)

    def flushed(self, key: str) -> None:
        """A whole table was flushed that the record's NIC shares with others, or its bridge: nobody fights over what is this NIC's."""
        with self._lock:
            self._windows.pop(key, None)

    def not_before(self, key: str) -> float:
        """When the record as a whole may be tried again; 0 where it has not failed."""
        with self._lock:
            pause = self._pauses.get(key, {}).get(RECORD)
            return pause.until if pause else 0.0

    def forget(self, keys: Callable[[str], bool]) -> None:
        """Drops what is of records that are gone (``keys`` says which are there), and windows that are long over."""
        now = self._clock()
        with self._lock:
            for key, windows in list(self._windows.items()):
                open_ones = {name: window for name, window in windows.items() if now < window.begun + 2 * window.length}
                if keys(key) and open_ones:
                    self._windows[key] = open_ones
                else:
                    del self._windows[key]
            for known in (self._pauses, self._said):
                for key in [key for key in known if not keys(key)]:
                    known.pop(key)
