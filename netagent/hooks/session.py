"""A door's run in the agent: the same as in a process of its own, with a node whose sockets and files stay open from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.hooks.protocol import DOORS, Given
from netcommon.doors.call import Door
from netcommon.lifecycle.context import Clock, Node
from netcommon.log import Journal, Log, Syslog
from netcommon.settings.model import Settings
from runtime.errors import OK
from runtime.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.log import Sender


class Kept:
    """Hold what one call after the other uses, one at a time. ``journal``: where lines go, if not to the node's journal."""

    def __init__(self, paths: Paths, clock: Clock, open_node: Callable[[Settings], Node], journal: Sender | None = None) -> None:
        self.paths, self.clock = paths, clock
        self.syslog = Syslog(paths.log, wall=clock.wall)
        self.journal = journal or Journal(paths.journal, self.syslog)
        self._open_node = open_node
        self._node: Node | None = None

    def node(self, settings: Settings) -> Node:
        """The node by these settings; open already if the last call had the same. Raises TryAgain or HostRefused."""
        node = self._node
        if node is not None and settings is node.settings:
            if not node.store.stands():
                node.store.close()  # it opens what is there now
            node.host.begin()
            return node
        self.close()
        self._node = self._open_node(settings)
        return self._node

    def close(self) -> None:
        """Closes what is open: after an error nobody knows how it stands."""
        if self._node is not None:
            self._node.host.close()
            self._node.store.close()

    def end(self) -> None:
        """Closes the log's sockets too: no call will use this again."""
        self.close()
        self.journal.close()


class Warm(Door):
    """One run, begun now."""

    def __init__(self, given: Given, settings: Settings, kept: Kept) -> None:
        name, self._body = DOORS[given.name]
        super().__init__(name, kept.paths, kept.clock, given.environ, given.parent)
        self._given, self._kept = given, kept
        self.settings = settings
        kept.syslog.facility, kept.syslog.given_pid = settings.syslog_facility, given.pid
        self.log = Log(kept.journal)

    def open(self) -> Node:
        return self._kept.node(self.settings)

    def answer(self) -> tuple[int, str]:
        """Does it: the exit status, and what is to be said on standard error."""
        status = self.perform(lambda: self._body(self, self._given.environ, self._given.argv))
        self.finish()
        if self._node is not None:
            self._node.store.problems.clear()
        if status != OK:
            self._kept.close()
        return status, self.log.summary()
