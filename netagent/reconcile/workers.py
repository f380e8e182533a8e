"""Give each worker thread what it has of its own: a node with its own sockets and files, and a reconciler that works with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.interfaces import NOBODY, Chronicle, Meter
from netagent.reconcile.reconciler import Reconciler
from netagent.reconcile.repair_policy import Repairs
from netcommon.lifecycle.context import Node
from netcommon.log import Log
from netcommon.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Callable


class Worker:
    """The context of one thread, which alone uses it."""

    def __init__(
        self,
        open_node: Callable[[Settings], Node],
        settings: Settings,
        log: Log,
        repairs: Repairs,
        meter: Meter,
        chronicle: Chronicle = NOBODY,
        ports: set[int] | None = None,
        frugal: bool = False,
    ) -> None:
        """``ports``: where the number of its socket to nftables goes, by which its own changes are told from others'.

        ``frugal``: nothing of the records stays open after a piece of work.
        """
        self.log = log
        self._open_node, self._repairs, self._meter, self._frugal = open_node, repairs, meter, frugal
        self._chronicle, self._ports = chronicle, ports if ports is not None else set()
        self.node = self._open(settings)
        self.reconciler = Reconciler(self.node, repairs, meter, log, chronicle)

    def _open(self, settings: Settings) -> Node:
        node = self._open_node(settings)
        self._port = node.host.nftables_port()
        if self._port:
            self._ports.add(self._port)
        return node

    def use(self, settings: Settings) -> None:
        """``settings`` are in force now. What is open is opened anew if they are others, or if its folders are not those at their paths."""
        if settings is not self.node.settings or not self.node.store.stands():
            self.close()
            self.node = self._open(settings)
            self.reconciler = Reconciler(self.node, self._repairs, self._meter, self.log, self._chronicle)

    def report(self) -> None:
        """Says what was wrong with files met on the way."""
        problems = self.node.store.problems
        for problem in problems:
            self.log.warning(problem)
        problems.clear()

    def rest(self) -> None:
        """A piece of work is done."""
        if self._frugal:
            self.node.store.close()

    def close(self) -> None:
        self._ports.discard(self._port)  # the number may be another's next
        self.node.host.close()
        self.node.store.close()
