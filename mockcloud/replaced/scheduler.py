"""Run the actions of many nodes in one thread, by a virtual clock: time passes when nothing more is to be done at its moment. Or by this
machine's clock, for nodes whose registry is a process of its own.

Which node goes first where several have something to do at one moment is drawn from the seed. Within a node actions of one moment run in
the order in which they were asked for, as netagent.loop does it.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush
from itertools import count
from random import Random

from mockcloud.killing import Killed
from netagent.loop import Action, Timer

BEGIN = 1000.0  #: monotonic seconds at which a run begins that goes on with no other
EPOCH = 1.7e9  #: seconds since the epoch at BEGIN
TURNS = 50  #: actions between two looks at descriptors


class Scheduler:
    """The one clock, and what is to be done by it. ``wall``: seconds since the epoch at which it begins; ``settle`` is called after each
    action. Both clocks of a run that goes on with another's nodes go on with that one's.
    """

    def __init__(self, seed: int | str, wall: float = EPOCH) -> None:
        self.now = BEGIN + wall - EPOCH
        self.chance = Random(seed)
        self.settle: Callable[[], None] = lambda: None
        self.steps = 0  #: actions that were run
        self._turns: list[tuple[float, float, int, NodeLoop]] = []  #: one for each action that waits: whose turn it is
        self._counted: list[tuple[int, int, Action]] = []  #: what is done when so many actions were run
        self._order = count()
        self._descriptors = count(1)
        self._real: dict[int, NodeLoop] = {}  # descriptors of the kernel that are watched, of nodes in namespaces
        self._poll = select.poll()

    def real(self, descriptor: int, loop: NodeLoop) -> None:
        """Watch a descriptor of the kernel for a node."""
        self._real[descriptor] = loop
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more."""
        if self._real.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _settled(self) -> None:
        """See what was done."""
        self.settle()
        for descriptor, _events in self._poll.poll(0) if self._real else ():
            self._real[descriptor].readable(descriptor)

    def hear(self, descriptor: int, pump: Callable[[], None]) -> None:
        """Let ``pump`` hand out what comes at a descriptor for all nodes: here after each action, so that its order is always one."""
        self.settle = pump

    def loop(self) -> NodeLoop:
        """Make the loop of one node."""
        return NodeLoop(self)

    def descriptor(self) -> int:
        """Give a number that no file has, for something that can be watched."""
        return -1 - next(self._descriptors)

    def turn(self, when: float, loop: NodeLoop) -> None:
        """Let a node have a turn."""
        heappush(self._turns, (max(when, self.now), self.chance.random(), next(self._order), loop))

    def until(self, when: float) -> None:
        """Do all that is due by then; then it is that time."""
        self._settled()  # what was done from outside is seen
        while self._turns and self._turns[0][0] <= when:
            self.now, _tie, _order, loop = heappop(self._turns)
            if loop.step():
                self.steps += 1
                self._settled()
                self._count()
        self.now = max(self.now, when)

    def _count(self) -> None:
        """Do what is to be done when so many actions were run."""
        while self._counted and self._counted[0][0] <= self.steps:
            heappop(self._counted)[2]()
            self._settled()

    def counted(self, steps: int, action: Action) -> None:
        """Do something when so many actions were run."""
        heappush(self._counted, (steps, next(self._order), action))

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.until(self.now + seconds)

    def close(self) -> None:
        """Attend to nothing more."""


class RealTime(Scheduler):
    """Run them by this machine's clock. What is late is done at once; descriptors of files are attended to."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed, time.time())
        self._zero = time.monotonic() - self.now
        self._files = select.epoll()
        self._attended: dict[int, Callable[[int], None]] = {}
        self._interrupted = False

    def hear(self, descriptor: int, pump: Callable[[], None]) -> None:
        self.attend(descriptor, lambda _events: pump())

    def _settled(self) -> None:
        """Do nothing: descriptors are attended to when something comes."""

    def real(self, descriptor: int, loop: NodeLoop) -> None:
        self.attend(descriptor, lambda _events: loop.readable(descriptor))

    def forget(self, descriptor: int) -> None:
        self.neglect(descriptor)

    def attend(self, descriptor: int, ready: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call ``ready`` with what has happened (epoll(7)) whenever there is something; it replaces what was called before."""
        if descriptor in self._attended:
            self._files.modify(descriptor, events)
        else:
            self._files.register(descriptor, events)
        self._attended[descriptor] = ready

    def neglect(self, descriptor: int) -> None:
        """Attend to a descriptor no more."""
        if self._attended.pop(descriptor, None) is not None:
            self._files.unregister(descriptor)

    def until(self, when: float) -> None:
        """Do what is due and what comes until then; at least what is due now, however late it is."""
        self._interrupted = False
        while True:
            self._look(when)
            for _ in range(TURNS):
                self.now = time.monotonic() - self._zero
                if not self._turns or self._turns[0][0] > self.now:
                    break
                if heappop(self._turns)[3].step():
                    self.steps += 1
                    self._count()
            if self.now >= when or self._interrupted:
                return

    def passes(self, seconds: float) -> None:
        self.until(time.monotonic() - self._zero + seconds)

    def interrupt(self) -> None:
        """Let ``until`` return: somebody is to be heard outside."""
        self._interrupted = True

    def _look(self, when: float) -> None:
        """Wait until a descriptor is ready, or something is due."""
        self.now = time.monotonic() - self._zero
        due = min(self._turns[0][0], when) if self._turns else when
        for descriptor, events in self._files.poll(max(due - self.now, 0.0)):
            ready = self._attended.get(descriptor)
            if ready is not None:  # it may have been closed by what came before it
                ready(events)

    def close(self) -> None:
        self._files.close()
        self._attended.clear()


class NodeLoop:
    """The loop of one node: a netagent.loop.Scheduler.

    Work is done at once, and takes no time but what it sleeps: ``behind`` says by how much its clock is then ahead of the others'.
    ``ahead``: by how many seconds the node's idea of the date is wrong; ``around``: what its actions are done within; ``died``: called when
    one of them was killed.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.failed: Callable[[Exception], None] = _raised
        self.behind = self.ahead = 0.0
        self.inside: AbstractContextManager[object] = nullcontext()  #: in which the node's work is done
        self.around: Callable[[], AbstractContextManager[object]] | None = None
        self.died: Callable[[], None] | None = None
        self._queue: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._watched: dict[int, Action] = {}
        self._readable: set[int] = set()
        self.closed = False

    # -- the node's clock

    def now(self) -> float:
        """Monotonic seconds."""
        return self.scheduler.now + self.behind

    def wall(self) -> float:
        """Seconds since the epoch."""
        return EPOCH - BEGIN + self.now() + self.ahead

    def sleep(self, seconds: float) -> None:
        """Let time pass for what is being done; the other nodes go on meanwhile."""
        self.behind += max(seconds, 0.0)

    def cpu(self) -> float:
        """No work costs anything: nothing depends on how fast this machine is."""
        return 0.0

    # -- netagent.loop.Scheduler

    def begin(self, _clock: Callable[[], float], failed: Callable[[Exception], None]) -> NodeLoop:
        """Be the loop of an agent: see netagent.surroundings."""
        self.failed = failed
        return self

    def watch(self, descriptor: int, ready: Action) -> None:
        self._watched[descriptor] = ready
        if descriptor >= 0:
            self.scheduler.real(descriptor, self)

    def forget(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        self.scheduler.forget(descriptor)

    def readable(self, descriptor: int) -> None:
        """There is something to read of ``descriptor``."""
        if descriptor in self._watched and descriptor not in self._readable:
            self._readable.add(descriptor)
            self.at(self.scheduler.now, lambda: self._read(descriptor))

    def _read(self, descriptor: int) -> None:
        self._readable.discard(descriptor)
        ready = self._watched.get(descriptor)
        if ready is not None:
            ready()

    def at(self, when: float, action: Action) -> Timer:
        timer = Timer(when, action)
        if when < math.inf and not self.closed:
            heappush(self._queue, (max(when, self.scheduler.now), next(self._order), timer))
            self.scheduler.turn(when, self)
        return timer

    def after(self, seconds: float, action: Action) -> Timer:
        return self.at(self.now() + seconds, action)

    def tell(self, action: Action) -> None:
        self.at(self.now(), action)

    def run(self) -> None:
        raise RuntimeError("the scheduler of all nodes runs this one")

    def stop(self) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self._queue.clear()
        for descriptor in list(self._watched):
            self.forget(descriptor)

    def end(self) -> None:
        """Be nobody's loop any more: turns that are due much later hold the loop, and are not to hold a node that is gone."""
        self.close()
        self.failed, self.around, self.died = _raised, None, None

    def step(self) -> bool:
        """Run the first action that is due; tell whether there was one. A turn may be of an action that went when the loop was closed."""
        due = bool(self._queue) and self._queue[0][0] <= self.scheduler.now
        action = heappop(self._queue)[2].action if due else None
        if action is None:
            return False
        try:
            with self.inside, self.around() if self.around is not None else nullcontext():
                action()
        except Exception as error:  # as netagent.loop
            self.failed(error)
        except Killed:
            if self.died is None:
                raise
            self.died()
        return True


def _raised(error: Exception) -> None:
    raise error
