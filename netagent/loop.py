"""The main thread's loop: descriptors that become readable, timers, and what other threads want done here. Nothing in it blocks."""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

Action = Callable[[], None]

#: So many timers are kept whatever became of them; of more, those that are cancelled go whenever there are twice as many as were left.
CROWD = 64


class Timer:
    """One action at one time; ``cancel`` before that, and it never runs."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Action | None) -> None:
        self.when, self.action = when, action

    def cancel(self) -> None:
        self.action = None


class Scheduler(Protocol):
    """Runs actions in one thread, one after the other: ``Loop``, or what runs those of many nodes by a clock of its own."""

    def watch(self, descriptor: int, ready: Action) -> None:
        """``ready`` runs whenever there is something to read of ``descriptor``, until ``forget``."""
        ...

    def forget(self, descriptor: int) -> None:
        """Nothing more is done for ``descriptor``."""
        ...

    def at(self, when: float, action: Action) -> Timer:
        """Runs ``action`` once, at ``when`` of the clock or soon after; those of one moment in the order in which they were set."""
        ...

    def after(self, seconds: float, action: Action) -> Timer:
        """Runs ``action`` once, in ``seconds``."""
        ...

    def tell(self, action: Action) -> None:
        """Runs ``action`` soon. For every thread."""
        ...

    def run(self) -> None:
        """Runs until ``stop``."""
        ...

    def stop(self) -> None:
        """``run`` returns, after what was told before this. For any thread."""
        ...

    def close(self) -> None:
        """Closes what is open; nothing runs any more."""
        ...


class Loop:
    """``clock``: monotonic seconds. ``failed`` is told of an action that raised: the loop goes on, whatever it was."""

    def __init__(self, clock: Callable[[], float], failed: Callable[[Exception], None]) -> None:
        self._clock, self._failed = clock, failed
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._crowd = CROWD  # how many timers may be kept
        self._order = count()  # timers of one moment run in the order in which they were set
        self._told: deque[Action] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopped = False
        self.turns = 0  #: how often it woke up: for tests and figures
        self.watch(self._wake, self._woken)

    def close(self) -> None:
        self._selector.close()
        os.close(self._wake)

    def watch(self, descriptor: int, ready: Action) -> None:
        """``ready`` runs whenever ``descriptor`` is readable, until ``forget``."""
        self._selector.register(descriptor, selectors.EVENT_READ, ready)

    def forget(self, descriptor: int) -> None:
        """Nothing more is done for ``descriptor``; to be called before it is closed."""
        try:
            self._selector.unregister(descriptor)
        except KeyError:
            pass  # it was not watched

    def at(self, when: float, action: Action) -> Timer:
        """Runs ``action`` once, at ``when`` of the clock or soon after."""
        if len(self._timers) >= self._crowd:  # one that is cancelled long before its time would stay until then
            self._timers = [each for each in self._timers if each[2].action is not None]
            heapify(self._timers)
            self._crowd = max(CROWD, 2 * len(self._timers))
        timer = Timer(when, action)
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def after(self, seconds: float, action: Action) -> Timer:
        """Runs ``action`` once, in ``seconds``."""
        return self.at(self._clock() + seconds, action)

    def tell(self, action: Action) -> None:
        """Runs ``action`` in the loop's thread, soon. The one method for other threads, and for signal handlers."""
        self._told.append(action)
        try:
            os.eventfd_write(self._wake, 1)
        except OSError:
            pass  # the counter is full, so it wakes up anyway; or the loop is closed, and nobody is there to be told

    def stop(self) -> None:
        """``run`` returns, after what it was told before this. For any thread."""
        self.tell(self._stop)

    def _stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Runs until ``stop``."""
        while not self._stopped:
            self.turn()

    def turn(self, limit: float | None = None) -> None:
        """Waits for the next thing to do, for ``limit`` seconds at most (None: for ever), and does it."""
        self.turns += 1
        for key, _events in self._selector.select(self._patience(limit)):
            self._do(key.data)
        while self._timers and self._timers[0][0] <= self._clock():
            timer = heappop(self._timers)[2]
            if timer.action is not None:
                self._do(timer.action)

    def _patience(self, limit: float | None) -> float | None:
        while self._timers and self._timers[0][2].action is None:
            heappop(self._timers)
        if not self._timers:
            return limit
        left = max(self._timers[0][0] - self._clock(), 0.0)
        return left if limit is None else min(left, limit)

    def _woken(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass
        for _ in range(len(self._told)):
            self._do(self._told.popleft())

    def _do(self, action: Action) -> None:
        try:
            action()
        except Exception as error:  # one action's failure must not end the agent; what it left undone, the next resync finds
            self._failed(error)
