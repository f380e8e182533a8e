"""Give each worker thread what it has of its own: a node with its own sockets and files, and a reconciler that works with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.interfaces import NOBODY, Chronicle, Meter
from netagent.reconcile.reconciler import Reconciler
from netagent.reconcile.repair_policy import Repairs
from netagent.record_cache import PARSED
from netagent.thread_locks import GATES
from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.context import Clock, Node, open_node
from netcommon.log import Log
from netcommon.scripts.site import Execute
from netcommon.settings.model import Settings
from runtime.paths import Paths

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Later


class Worker:
    """The context of one thread, which alone uses it."""

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        settings: Settings,
        log: Log,
        repairs: Repairs,
        meter: Meter,
        later: Later,
        execute: Execute,
        chronicle: Chronicle = NOBODY,
        ports: set[int] | None = None,
    ) -> None:
        """``ports``: where the number of its socket to nftables goes, by which its own changes are told from others'."""
        self.log = log
        self._clock, self._repairs, self._meter, self._later, self._execute = clock, repairs, meter, later, execute
        self._chronicle, self._ports = chronicle, ports if ports is not None else set()
        self.node = self._open(paths, settings)
        self.reconciler = Reconciler(self.node, repairs, meter, log, chronicle)

    def _open(self, paths: Paths, settings: Settings) -> Node:
        node = open_node(paths, settings, self._clock, later=self._later, execute=self._execute, gates=GATES, parse=PARSED)
        self._port = 0
        try:
            if isinstance(node.host, LinuxHost):
                self._port = node.host.nftables.netlink.port()
                self._ports.add(self._port)
        except OSError:
            pass  # a kernel without it tells nothing of it either
        return node

    def use(self, settings: Settings) -> None:
        """``settings`` are in force now. What is open is opened anew if they are others, or if its folders are not those at their paths."""
        if settings is not self.node.settings or not self.node.store.stands():
            paths = self.node.paths
            self.close()
            self.node = self._open(paths, settings)
            self.reconciler = Reconciler(self.node, self._repairs, self._meter, self.log, self._chronicle)

    def report(self) -> None:
        """Says what was wrong with files met on the way."""
        problems = self.node.store.problems
        for problem in problems:
            self.log.warning(problem)
        problems.clear()

    def close(self) -> None:
        self._ports.discard(self._port)  # the number may be another's next
        self.node.host.close()
        self.node.store.close()
