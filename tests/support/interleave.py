"""Calls that run at the same time, one step at a time: a scheduler decides at every host call, file operation and wait who goes on.

Each call has a thread of its own, but only one runs: at each of its steps it hands the baton on. So a history is told by its seed alone,
and thousands of orders are tried that processes on a machine would hardly ever meet. Time is simulated: a step takes STEP seconds, and
where all wait, the next one to wake is next.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import runtime.folder
import runtime.locks
from netcommon.host.api.host import NOT_TRIED, Answer, Identity
from netcommon.host.api.requests import Request
from netcommon.host.linux.snapshot import Snapshot
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle.context import Clock, Node
from runtime.store import Store
from tests.support.sim import Killed, Sim

STEP = 0.0001  #: seconds that one step takes
LIMIT = 60.0  #: real seconds after which a step that does not come back is a fault of the test

#: What of os is a step: every system call by which processes see each other's files.
CALLS = ("open", "mkdir", "rename", "link", "symlink", "readlink", "unlink", "rmdir", "listdir", "stat")


class Ended(NamedTuple):
    """How a call ended."""

    result: Any
    error: BaseException | None
    began: float  #: by the simulated clock
    ended: float
    point: float  #: when it had the last of its locks: its place in the serial order
    early: float  #: when it had its device's and its NIC's, and went on to look at the device


class _Worker:
    def __init__(self, number: int, call: Callable[[], Any], priority: float, life: int | None) -> None:
        self.number, self.call, self.priority, self.life = number, call, priority, life
        self.baton = threading.Semaphore(0)
        self.wake = self.began = self.ended = self.point = self.early = 0.0
        self.steps = 0
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None


class Scheduler:
    """Runs calls interleaved. ``changes``: at so many random steps another one gets the lowest priority; 0: every step is a draw."""

    def __init__(self, random: Random, changes: int = 0, horizon: int = 2000) -> None:
        self.now = 1000.0
        self.switches = 0  #: how often another call went on than the one before
        self._random, self._uniform = random, changes == 0
        self._horizon, self._changes = horizon, changes
        self._at: set[int] = set()
        self._steps = 0
        self._workers: list[_Worker] = []
        self._local = threading.local()
        self._finished = threading.Semaphore(0)

    # -- what calls do

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """A wait of a call: others go on meanwhile."""
        me = self._me()
        if me is None:
            self.now += seconds
            return
        me.wake = self.now + seconds
        self._step(me)

    def step(self, *_what: object) -> None:
        """A point at which others may go on; nothing, outside of calls. Raises Killed in one whose life is over."""
        me = self._me()
        if me is not None:
            self._step(me)

    def locked(self, which: str) -> None:
        """The running call has got a lock of the set."""
        me = self._me()
        if me is not None:
            me.point = self.now
            if which != runtime.locks.KEY:
                me.early = self.now

    # -- what tests do

    def run(self, calls: Sequence[Callable[[], Any]], lives: Sequence[int | None] = ()) -> list[Ended]:
        """All ``calls`` at once; ``lives``: after how many steps each is killed (None: never)."""
        count = len(calls)
        self._workers = [
            _Worker(number, call, self._random.random(), lives[number] if lives else None) for number, call in enumerate(calls)
        ]
        self._at = {self._random.randrange(self._horizon) for _ in range(self._changes)}
        self._steps = 0
        threads = [threading.Thread(target=self._body, args=(worker,), daemon=True) for worker in self._workers]
        for thread in threads:
            thread.start()
        self._next().baton.release()
        for _ in range(count):
            if not self._finished.acquire(timeout=LIMIT):
                raise AssertionError(f"no call went on for {LIMIT:g} s: {[worker.number for worker in self._workers if not worker.done]}")
        for thread in threads:
            thread.join(LIMIT)
        return [Ended(one.result, one.error, one.began, one.ended, one.point or one.ended, one.early or one.ended) for one in self._workers]

    @contextmanager
    def files(self) -> Iterator[None]:
        """The file operations of runtime/ are steps, and each lock that is taken is noted."""
        stepping = _Os(self)
        before = runtime.locks.Locks._lock

        def lock(locks: runtime.locks.Locks, which: str, file: int, name: str, held: dict[int, runtime.locks.Lock]) -> None:
            before(locks, which, file, name, held)
            self.locked(which)

        vars(runtime.folder)["os"] = vars(runtime.locks)["os"] = stepping
        setattr(runtime.locks.Locks, "_lock", lock)  # noqa: B010 -- the type checker allows no other way
        try:
            yield
        finally:
            vars(runtime.folder)["os"] = vars(runtime.locks)["os"] = os
            setattr(runtime.locks.Locks, "_lock", before)  # noqa: B010

    # -- inside

    def _me(self) -> _Worker | None:
        found: _Worker | None = getattr(self._local, "worker", None)
        return found

    def _body(self, me: _Worker) -> None:
        self._local.worker = me
        me.baton.acquire()
        me.began = self.now
        try:
            me.result = me.call()
        except BaseException as error:  # whatever it was, the others go on, and the test judges it
            me.error = error
        me.ended, me.done = self.now, True
        self._local.worker = None
        if any(not worker.done for worker in self._workers):
            self._next().baton.release()
        self._finished.release()

    def _step(self, me: _Worker) -> None:
        me.steps += 1
        self.now += STEP
        if me.life is not None and me.steps > me.life:
            raise Killed
        chosen = self._next(me)
        if chosen is not me:
            self.switches += 1
            chosen.baton.release()
            me.baton.acquire()

    def _next(self, current: _Worker | None = None) -> _Worker:
        living = [worker for worker in self._workers if not worker.done]
        ready = [worker for worker in living if worker.wake <= self.now]
        if not ready:
            first = min(living, key=lambda worker: (worker.wake, worker.number))
            self.now = first.wake
            ready = [first]
        if self._uniform:
            return self._random.choice(ready)
        self._steps += 1
        if current is not None and self._steps in self._at:
            current.priority = -self._random.random()
        return max(ready, key=lambda worker: worker.priority)


class _Os:
    """The os module, each of CALLS a step of its own, right before it is done."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def stepped(*positional: Any, **named: Any) -> Any:
            self._scheduler.step(name)
            return real(*positional, **named)

        vars(self)[name] = stepped
        return stepped


class SteppedView:
    """A view each of whose questions is a step."""

    def __init__(self, view: Any, scheduler: Scheduler) -> None:
        self._view, self._scheduler = view, scheduler

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._view, name)

        def asked(*positional: Any, **named: Any) -> Any:
            self._scheduler.step(name)
            return real(*positional, **named)

        vars(self)[name] = asked
        return asked


class SteppedHost:
    """A simulated host, every question and every request of which is a step."""

    def __init__(self, host: MemoryHost, scheduler: Scheduler) -> None:
        self._host, self._scheduler = host, scheduler

    def identity(self) -> Identity:
        return self._host.identity()

    def view(self) -> Any:
        return SteppedView(self._host.view(), self._scheduler)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.view())

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        self._scheduler.step("holder")
        return self._host.holder(device, candidates)

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        answers: list[Answer] = []
        for request in requests:
            self._scheduler.step(type(request).__name__)
            failed = stop and any(not each.ok for each in answers)
            answers += [NOT_TRIED] if failed else self._host.execute([request], stop)
        return answers

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def process(sim: Sim, scheduler: Scheduler) -> Iterator[Node]:
    """What one process of the machine sees of it, its own store and all, while the scheduler decides when it goes on."""
    identity = sim.host.identity()
    clock = Clock(scheduler.clock, time.time, scheduler.sleep)  # the files' own times are of this clock
    with Store(sim.paths, identity.netns, identity.boot) as store:
        host: Any = SteppedHost(sim.host, scheduler)
        yield Node(sim.paths, sim.settings, host, store, identity, clock, lambda delays, action, node, log: None)
