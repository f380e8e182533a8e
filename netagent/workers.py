"""What each worker thread has of its own: a node with its own sockets and files, and a tender that works with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from netagent.gates import GATES
from netagent.repairs import Repairs
from netagent.telling import NOBODY, Chronicle, Meter
from netagent.tend import Tender
from netcommon.custom import HOOKS, Execute
from netcommon.host.linux import LinuxHost
from netcommon.lifecycle.node import Clock, Node
from netcommon.log import Log
from netcommon.settings import Settings
from runtime.paths import Paths
from runtime.store import Store

#: Schedules in a resident process what an effect does again (netcommon.effects.base.Later), for the worker whose node it uses.
Schedule = Callable[["Worker", Sequence[float], Callable[[], bool]], None]


class Worker:
    """The context of one thread. ``lock``: whoever uses the node holds it, since what an effect does again runs in any thread."""

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        settings: Settings,
        log: Log,
        repairs: Repairs,
        meter: Meter,
        schedule: Schedule,
        execute: Execute,
        chronicle: Chronicle = NOBODY,
    ) -> None:
        self.lock = threading.Lock()
        self.log = log
        self._clock, self._repairs, self._meter, self._schedule, self._execute = clock, repairs, meter, schedule, execute
        self._chronicle = chronicle
        self.node = self._open(paths, settings)
        self.tender = Tender(self.node, repairs, meter, log, chronicle)

    def _open(self, paths: Paths, settings: Settings) -> Node:
        host = LinuxHost(paths, settings.service_timeout, self._clock.now, settings.folders)
        identity = host.identity()
        store = Store(paths, identity.netns, identity.boot, gates=GATES)
        return Node(paths, settings, host, store, identity, self._clock, self._later, (HOOKS,), self._execute)

    def _later(self, delays: Sequence[float], action: Callable[[], bool]) -> None:
        self._schedule(self, delays, action)

    def use(self, settings: Settings) -> None:
        """``settings`` are in force now. What was opened is opened anew if they are others, or its folders were removed."""
        if settings is not self.node.settings or removed(self.node.store):
            paths = self.node.paths
            self.close()
            self.node = self._open(paths, settings)
            self.tender = Tender(self.node, self._repairs, self._meter, self.log, self._chronicle)

    def report(self) -> None:
        """Says what was wrong with files met on the way."""
        problems = self.node.store.problems
        for problem in problems:
            self.log.warning(problem)
        problems.clear()

    def close(self) -> None:
        self.node.host.close()
        self.node.store.close()


def removed(store: Store) -> bool:
    """Whether a folder of the records that ``store`` has open was removed: it would write where nobody looks."""
    return any(os.fstat(store.folder(name).descriptor).st_nlink == 0 for name in ("nics", "locks"))
