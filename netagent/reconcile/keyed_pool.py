"""What may block is done by a few threads: work has a key, and for one key there is never more than one piece of work at once.

Work for a key that is asked for while it is being done is done once more after that; asked for ten times, once. So a burst costs what
one event costs, and the last event is never lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

Context = TypeVar("Context")
Job = Callable[[Context], None]


class Key(NamedTuple):
    """What a piece of work is about: its sort, and which one of these."""

    sort: str
    name: str = ""


class Keyed(Generic[Context]):
    """The queue, without threads. ``limits``: how much work of a sort may be done at once; no limit for one that is not named."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._waiting: dict[Key, Job[Context]] = {}
        self._running: set[Key] = set()
        self._sorts: dict[str, int] = {}

    def put(self, key: Key, job: Job[Context]) -> None:
        """``job`` is to be done for ``key``: the last one that was put counts, at the place in the queue of the first."""
        self._waiting[key] = job

    def take(self) -> tuple[Key, Job[Context]] | None:
        """The next piece of work that may be begun, None if there is none now. ``done`` must follow."""
        for key, job in self._waiting.items():
            if key not in self._running and self._sorts.get(key.sort, 0) < self._limits.get(key.sort, len(self._running) + 1):
                del self._waiting[key]
                self._running.add(key)
                self._sorts[key.sort] = self._sorts.get(key.sort, 0) + 1
                return key, job
        return None

    def done(self, key: Key) -> None:
        """The work that ``take`` gave for ``key`` is over."""
        self._running.discard(key)
        self._sorts[key.sort] -= 1

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._running)

    @property
    def waiting(self) -> int:
        """Count the keys that wait."""
        return len(self._waiting)


class Works(Protocol):
    """Does work, by key: ``Pool``, or what does it in the thread that asks for it."""

    def put(self, key: Key, job: Job[Any]) -> None:
        """See Keyed.put. Returns at once, and before the work is begun."""
        ...

    @property
    def waiting(self) -> int:
        """Count the keys that wait."""
        ...

    def running(self) -> Mapping[Key, float]:
        """Say what is being done, and since when (the clock's seconds)."""
        ...

    def close(self, seconds: float) -> None:
        """Begins no more work, and waits for what is being done, for ``seconds`` at most."""
        ...


class Pool(Generic[Context]):
    """Threads that work the queue off, started as they are needed. Each has a context of its own, from ``make`` to ``end``.

    ``failed`` is told, in the thread, of a job that raised.
    """

    def __init__(
        self,
        size: int,
        make: Callable[[], Context],
        end: Callable[[Context], None],
        failed: Callable[[Key, Exception], None],
        limits: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size, self._make, self._end, self._failed = size, make, end, failed
        self._queue: Keyed[Context] = Keyed(limits or {})
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._closing = False
        self._clock = clock
        self._begun: dict[Key, float] = {}

    def put(self, key: Key, job: Job[Context]) -> None:
        """See Keyed.put. For any thread; returns at once."""
        with self._changed:
            if self._closing:
                return
            self._queue.put(key, job)
            # a free thread that was woken is free still until it runs: what waits already is its
            if self._queue.waiting > self._free and len(self._threads) < self._size:
                thread = threading.Thread(target=self._work, name=f"worker {len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """How many keys wait for a thread."""
        with self._changed:
            return self._queue.waiting

    def running(self) -> Mapping[Key, float]:
        """Say what is being done, and since when (the clock's seconds)."""
        with self._changed:
            return dict(self._begun)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, and nothing is being done."""
        with self._changed:
            return self._queue.idle

    def close(self, seconds: float) -> None:
        """Begins no more work, and waits for what is being done, for ``seconds`` at most: what is cut off, the records tell of."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(seconds / len(self._threads), 0.0))

    def _work(self) -> None:
        context: Context | None = None
        while (taken := self._next()) is not None:
            key, job = taken
            try:
                if context is None:
                    context = self._make()
                job(context)
            except Exception as error:  # the thread is for the next job; what this one left undone, the next resync finds
                self._failed(key, error)
            finally:
                with self._changed:
                    self._queue.done(key)
                    del self._begun[key]
                    self._changed.notify()
        if context is not None:
            self._end(context)

    def _next(self) -> tuple[Key, Job[Context]] | None:
        with self._changed:
            while not self._closing:
                taken = self._queue.take()
                if taken is not None:
                    self._begun[taken[0]] = self._clock()
                    return taken
                self._free += 1
                self._changed.wait()
                self._free -= 1
            return None
