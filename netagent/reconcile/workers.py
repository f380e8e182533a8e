"""What each worker thread has of its own: a node with its own sockets and files, and a tender that works with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.gates import GATES
from netagent.parsed import PARSED
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

if TYPE_CHECKING:
    from netcommon.lifecycle.node import Later


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
        self.tender = Tender(self.node, repairs, meter, log, chronicle)

    def _open(self, paths: Paths, settings: Settings) -> Node:
        host = LinuxHost(paths, settings.service_timeout, self._clock.now, settings.folders)
        identity = host.identity()
        try:
            self._ports.add(host.nftables.netlink.port())
        except OSError:
            pass  # a kernel without it tells nothing of it either
        store = Store(paths, identity.netns, identity.boot, gates=GATES, parse=PARSED)
        return Node(paths, settings, host, store, identity, self._clock, self._later, (HOOKS,), self._execute)

    def use(self, settings: Settings) -> None:
        """``settings`` are in force now. What is open is opened anew if they are others, or if its folders are not those at their paths."""
        if settings is not self.node.settings or not self.node.store.stands():
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
