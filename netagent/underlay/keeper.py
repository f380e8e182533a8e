"""Keep the node's part of an underlay: there at the agent's start, put back after a deletion by hand, changed with what is known.

It is made of the file of what is known (runtime.underlay) alone, so no registry need be there. Nothing of it is loaded on a node that has
no such file, and no record of one.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from netagent.reconcile.keyed_pool import Key
from netagent.reconcile.repair_policy import LAST, OFF, Repairs
from netagent.underlay.scripts import EndpointScripts
from runtime import underlay, underlay_record
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from netagent.loop import Scheduler, Timer
    from netagent.reconcile.workers import Worker
    from netagent.state import State
    from netcommon.lifecycle.underlay import Held
    from netcommon.log import Log
    from netcommon.operations.base import Operation

    Work = Callable[[Key, Callable[[Worker], None], bool], None]

UNDERLAY = "underlay"  #: the sort of work, the alarm, and the record by which repairs are counted
GATHER, APART = 0.1, 1.0  #: seconds for which events gather, and between two looks that events have caused
RETRY = 30.0  #: seconds until what is wrong is looked at again
LINE = 300  #: characters of the alarm


class Keeper:
    """See the module. In the main thread, but for the work itself. ``told`` is called when other addresses are there than before."""

    def __init__(self, state: State, loop: Scheduler, work: Work, log: Log) -> None:
        self._state, self._loop, self._work, self._log = state, loop, work, log
        self._repairs = Repairs(state.clock.now, state.settings)
        self.told: Callable[[], None] = lambda: None
        self.scripts = EndpointScripts(state, loop, work)
        self._held: Held | None = None
        self._known: tuple[int, ...] = ()  # tells the file of what was known before the latest look from any other one
        self._picture: tuple[object, ...] = ()  # what the registry and the scripts were told to look at
        self._timer: Timer | None = None
        self._at = 0.0  # when the latest look began
        self._busy = self._again = False
        self._drifted: set[str] = set()  # what did not hold, and was to be made again by the latest look
        self._told_of: set[str] = set()  # what the latest look has left as it is, and said so
        self._later = 0.0  # when what is left alone for a while is looked at again

    def look(self) -> None:
        """Look at all of it soon: at the start, when settings were read, when what is known has changed, and from time to time."""
        self._repairs.settings = self._state.settings
        if self._held is not None or self._is_concerned():
            self._schedule(0.0)

    def changed(self) -> None:
        """Note that something of the node has changed, perhaps this; also while the first look is under way, which may not have seen it."""
        if self._held is not None or self._busy:
            self._schedule(max(GATHER, self._at + APART - self._state.clock.now()))

    def status(self) -> Mapping[str, object]:
        """Say how it stands. For any thread."""
        held = self._held
        if held is None:
            return {}
        return {"underlay": held.problem or f"{held.prefix or 'nothing'}, {len(held.there)} of {held.wanted} addresses"}

    def close(self) -> None:
        """End."""
        self.scripts.close()
        if self._timer is not None:
            self._timer.cancel()

    def _is_concerned(self) -> bool:
        """Tell whether anything is known, or was made since the boot, or scripts are owed word that it has gone. Three looks for a file."""
        state, netns = self._state, self._state.identity.netns
        folder = f"{state.paths.state}/{underlay_record.FOLDER}"
        ours = f"{state.paths.lib}/{underlay.NAME}", f"{folder}/{netns}.json", f"{folder}/{underlay_record.told(netns)}"
        return any(map(os.path.exists, ours))

    def _schedule(self, seconds: float) -> None:
        when = self._state.clock.now() + seconds
        if self._timer is not None and self._timer.action is not None and self._timer.when <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.at(when, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._busy:
            self._again = True
            return
        self._busy, self._at, self._known = True, self._state.clock.now(), self._file()
        self._work(Key(UNDERLAY), self._run, False)

    def _file(self) -> tuple[int, ...]:
        """Tell the file of what is known from any other one: it is replaced whole. None there is another one, too."""
        try:
            found = os.stat(f"{self._state.paths.lib}/{underlay.NAME}")
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _run(self, worker: Worker) -> None:
        """In a worker's thread."""
        from netcommon.lifecycle.underlay import Held, hold  # what a node without an underlay need not have in memory

        self._later, self._drifted = 0.0, set()
        before, self._told_of = self._told_of, set()
        try:
            held = hold(worker.node, worker.log, partial(self._judge, before), self._paced)
        except NetcommonError as error:
            self._loop.tell(partial(self._done, Held(problem=str(error)), False))
            return
        self._loop.tell(partial(self._done, held))

    def unworked(self, why: str) -> None:
        """Note that a worker could not do it."""
        from netcommon.lifecycle.underlay import Held

        self._later = 0.0
        self._done(Held(problem=why), False)

    def _judge(self, before: set[str], operation: Operation, why: str) -> bool | None:
        """Tell whether what does not hold any more is made again, and say so. In a worker's thread.

        ``before``: what was said by the look before, and is not said again.
        """
        metrics, what = self._state.metrics, f"{operation.describe()}: {why}"
        metrics.count("netcommon_drift_total", kind=operation.KIND)
        verdict = self._repairs.judge(UNDERLAY, operation.KIND, operation.identity())
        if verdict.repair:
            self._drifted.add(operation.identity())
            self._log.warning(f"drift repaired: {what}" + (f", though {verdict.why}" if verdict.why else ""))
            return True
        if verdict.again:
            self._look_again(verdict.again)
        if verdict.why:
            text = f"not repaired, {verdict.why}: {what}"
            self._told_of.add(text)
            if text not in before:
                self._log.warning(text)
            metrics.count("netcommon_repairs_total", kind=operation.KIND, outcome="reported")
        return None if self._repairs.policy(operation.KIND) == OFF else False

    def _paced(self, operation: Operation) -> bool:
        """Tell whether what was never there is tried now: at once, and after a failure when its pause is over. In a worker's thread."""
        again = self._repairs.paused(UNDERLAY, operation.identity())
        if again:
            self._look_again(again)
        return not again

    def _look_again(self, when: float) -> None:
        self._later = min(self._later or when, when)

    def _done(self, held: Held, looked: bool = True) -> None:
        """Say how a look has ended, and when the next one is. Not ``looked``: nobody knows what there is, which is not that nothing is."""
        before, self._picture = self._picture, (held.there, held.generation, self._known, looked)
        self._held, self._busy = held, False
        metrics = self._state.metrics
        repaired = [operation for operation in held.made if operation.identity() in self._drifted]
        for operation in repaired:
            metrics.count("netcommon_repairs_total", kind=operation.KIND, outcome="repaired")
        self._repairs.held(UNDERLAY, [operation.identity() for operation in repaired])
        if held.failed:
            again = self._repairs.failed(UNDERLAY, [operation.identity() for operation in held.failed], LAST)
            self._look_again(again)
        if held.problem:
            self._state.alarms.set(UNDERLAY, held.problem[:LINE])
        else:
            self._repairs.worked(UNDERLAY)
            self._state.alarms.clear(UNDERLAY)
        if before != self._picture:
            self.told()
            self.scripts.tell()
        if not (held.wanted or held.there or held.problem) and not self._is_concerned():
            self._held, self._picture = None, ()
        if held.problem and not self._later:
            self._later = self._state.clock.now() + RETRY  # no event need tell that it is over
        if self._again:
            self._again = False
            self._schedule(0.0)
        elif self._later:
            self._schedule(max(self._later - self._state.clock.now(), GATHER))
