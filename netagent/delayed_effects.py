"""What effects do again (netcommon.effects.base): all that is due at a time is one piece of work, with the worker's own node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from netagent.loop import Scheduler, Timer
from netcommon.host.linux.memo_view import MemoView

if TYPE_CHECKING:
    from netagent.reconcile.workers import Worker
    from netcommon.lifecycle.context import Action, Node
    from netcommon.log import Log

#: What is due within so many seconds is done together: so the announcements of many guests that start cost few turns of the loop.
STEP = 0.02


class DelayedEffect(NamedTuple):
    """One action, and when (the clock's seconds); ``order``: those of one time are done in the order in which they were asked for."""

    when: float
    order: int
    action: Action
    rest: tuple[float, ...]  #: the times after this one


class DelayedEffects:
    """``put`` gives work to a worker, once more if it is asked for while that is done; ``failed`` is told of an action that raised."""

    def __init__(
        self,
        loop: Scheduler,
        now: Callable[[], float],
        put: Callable[[Callable[[Worker], None]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._loop, self._now, self._put, self._failed = loop, now, put, failed
        self._order = count()
        self._waiting: list[DelayedEffect] = []
        self._due: deque[DelayedEffect] = deque()
        self._timer: Timer | None = None

    def later(self, delays: Sequence[float], action: Action, node: Node, log: Log) -> None:
        """See netcommon.lifecycle.context.Later. For any thread."""
        now = self._now()
        first, *rest = (now + delay for delay in delays)
        self._loop.tell(lambda: self._add([DelayedEffect(first, next(self._order), action, tuple(rest))]))

    def _add(self, repeats: Sequence[DelayedEffect]) -> None:
        for repeat in repeats:
            heappush(self._waiting, repeat)
        if self._waiting and (self._timer is None or self._waiting[0].when + STEP < self._timer.when):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.at(self._waiting[0].when + STEP, self._wake)

    def _wake(self) -> None:
        """Hands out what is due."""
        self._timer = None
        now = self._now()
        while self._waiting and self._waiting[0].when <= now:
            self._due.append(heappop(self._waiting))
        if self._due:
            self._put(self._run)
        self._add(())

    def _run(self, worker: Worker) -> None:
        """In a worker's thread. What becomes due meanwhile gets a view of its own time."""
        again: list[DelayedEffect] = []
        view = MemoView(worker.node.host.view())
        for _ in range(len(self._due)):
            repeat = self._due.popleft()
            try:
                more = repeat.action(worker.node, worker.log, view)
            except Exception as error:  # the others' are to be told too
                self._failed(error)
                continue
            if more and repeat.rest:
                again.append(DelayedEffect(repeat.rest[0], repeat.order, repeat.action, repeat.rest[1:]))
        if again:
            self._loop.tell(lambda: self._add(again))
