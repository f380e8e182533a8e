"""Do the workers' work in the one thread there is: each piece a moment after it was asked for, by chance, so that orders differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from mockcloud.replaced.scheduler import NodeLoop
from netagent.reconcile.keyed_pool import Job, Key, Keyed

AGAIN = 1.0  #: seconds from one look at whether a node is cut off to the next
LONGEST = 0.004  #: seconds until a free thread has begun what it was given


class AtOnce:
    """Do at once what an agent has a thread of its own for; while its node is cut off (``cut``) nothing would come of it, and it waits."""

    def __init__(self, loop: NodeLoop, cut: Callable[[], bool]) -> None:
        self._loop, self._cut = loop, cut

    def __call__(self, name: str, work: Callable[[], None]) -> None:
        if self._cut():
            self._loop.after(AGAIN, partial(self, name, work))
        else:
            work()


class InlinePool:
    """A netagent.reconcile.keyed_pool.Works. What is slept for while a piece is done is how long it takes.

    ``reached`` is told when a piece is about to begin ("work"), and when it is done and nobody knows yet ("worked").
    """

    def __init__(
        self,
        loop: NodeLoop,
        chance: Random,
        reached: Callable[[str], None],
        size: int,
        make: Callable[[], Any],
        end: Callable[[Any], None],
        failed: Callable[[Key, Exception], None],
        limits: Mapping[str, int],
        clock: Callable[[], float],
    ) -> None:
        self._loop, self._chance, self._reached, self._size, self._clock = loop, chance, reached, size, clock
        self._make, self._end, self._failed = make, end, failed
        self._queue: Keyed[Any] = Keyed(limits)
        self._begun: dict[Key, float] = {}
        self._context: Any = None
        self._closed = False

    def put(self, key: Key, job: Job[Any]) -> None:
        if not self._closed:
            self._queue.put(key, job)
            self._soon()

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    def running(self) -> Mapping[Key, float]:
        return dict(self._begun)

    def close(self, _seconds: float) -> None:
        self._closed = True
        if self._context is not None:
            self._end(self._context)
            self._context = None

    def _soon(self) -> None:
        self._loop.after(self._chance.uniform(0.0, LONGEST), self._work)

    def _work(self) -> None:
        if self._closed or len(self._begun) >= self._size:
            return
        taken = self._queue.take()
        if taken is None:
            return
        key, job = taken
        self._begun[key] = self._clock()
        self._reached("work")
        try:
            if self._context is None:
                self._context = self._make()
            job(self._context)
        except Exception as error:  # as a pool of threads
            self._failed(key, error)
        self._reached("worked")
        took, self._loop.behind = self._loop.behind, 0.0
        if took:
            self._loop.after(took, partial(self._done, key))
        else:
            self._done(key)

    def _done(self, key: Key) -> None:
        self._queue.done(key)
        del self._begun[key]
        if self._queue.waiting:
            self._soon()
