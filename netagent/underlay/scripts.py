"""Let the site's scripts be told of endpoints, and again what has failed of that, after a pause. The keeper says when there is news."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from netagent.reconcile.keyed_pool import Key
from netagent.reconcile.repair_policy import Repairs
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable

    from netagent.loop import Scheduler, Timer
    from netagent.reconcile.workers import Worker
    from netagent.state import State
    from netcommon.lifecycle.endpoint_scripts import Told

    Work = Callable[[Key, Callable[[Worker], None], bool], None]

ENDPOINTS = "endpoint-scripts"  #: the sort of work, which nothing of the node's own waits for, and the alarm
LONGEST = 30.0  #: seconds until what has failed is tried again
LINE = 300  #: characters of the alarm


class EndpointScripts:
    """See the module. In the main thread, but for the work itself."""

    def __init__(self, state: State, loop: Scheduler, work: Work) -> None:
        self._state, self._loop, self._work = state, loop, work
        self._pauses = Repairs(state.clock.now, state.settings)
        self._timer: Timer | None = None
        self._unwritten: Told | None = None  # the workers': there is one at a time

    def tell(self) -> None:
        """Start the scripts of endpoints in a worker, where there are endpoints, or were."""
        from netcommon.lifecycle.endpoint_scripts import concerned  # what a node without an underlay need not have in memory

        self.close()
        try:
            is_concerned = concerned(self._state.paths, self._state.identity.netns)
        except NetcommonError as error:
            self.unworked(str(error))
            return
        if is_concerned or ENDPOINTS in self._state.alarms.active():
            self._work(Key(ENDPOINTS), self._run, False)

    def close(self) -> None:
        """Try nothing again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def unworked(self, why: str) -> None:
        """Note that the scripts could not be run, and try again after a pause."""
        self._state.alarms.set(ENDPOINTS, why[:LINE])
        self.close()
        self._timer = self._loop.at(self._pauses.failed(ENDPOINTS, longest=LONGEST), self.tell)

    def _run(self, worker: Worker) -> None:
        """Run the scripts, in a worker's thread."""
        from netcommon.lifecycle.endpoint_scripts import tell

        self._unwritten, problem = tell(worker.node, worker.log, self._unwritten)
        self._loop.tell(partial(self.unworked, problem) if problem else self._worked)

    def _worked(self) -> None:
        self._pauses.worked(ENDPOINTS)
        self._state.alarms.clear(ENDPOINTS)
