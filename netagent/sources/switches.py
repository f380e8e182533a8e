"""The agent's connections to Open vSwitch: its database, and each bridge that has flows of ours, for as long as NICs need them.

A daemon's socket is there a moment before it listens (bind(2), listen(2)), so a refusal says nothing of the next moment: a connection
that is needed is tried again and again, soon after the socket has appeared, and then less and less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from netagent.events import FLOWS, SWITCH, Came, Event, Mark
from netagent.index import Entry, Nics
from netagent.loop import Scheduler, Timer
from netagent.sources.flow_events import FlowEvents
from netagent.sources.ovs_events import OvsEvents

#: Between two attempts to connect (seconds): the first, and the longest after doubling.
SOONEST, LATEST = 0.002, 0.5

#: In the place of a bridge's name: the database.
DATABASE = ""


class Connection(Protocol):
    """OvsEvents, or FlowEvents. ``subscribed``: what happens from now on is not missed. ``late``: it was silent for a while."""

    subscribed: bool
    late: bool

    @property
    def connected(self) -> bool: ...
    @property
    def descriptor(self) -> int: ...
    def open(self) -> bool: ...
    def ask(self) -> None: ...
    def read(self) -> list[Event]: ...
    def close(self) -> None: ...


class Database(Connection, Protocol):
    """The connection to the database. ``restoring``: ovs-vswitchd waits until somebody has restored its flows."""

    restoring: bool

    def numbered(self, number: int) -> list[str]:
        """Give the devices that have this OpenFlow number, of whichever bridge."""
        ...


class Dial(NamedTuple):
    """Make connections: to the database at a path; to a bridge at a path, by its name, with what names the ports of a number."""

    database: Callable[[str, Callable[[], float]], Database] = OvsEvents
    bridge: Callable[[str, str, Callable[[int], Iterable[str]], Callable[[], float]], Connection] = FlowEvents


class _Line:
    """One connection, and the attempts at it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.descriptor = -1  #: that the loop watches
        self.told = False  #: that it is subscribed
        self.pause = SOONEST
        self.timer: Timer | None = None


class Switches:
    """``path``: the database's socket; those of bridges are beside it. ``ready`` is called when there is something to ``read``.

    ``restored``: somebody has restored the flows of ovs-vswitchd, among them perhaps some of NICs that have gone since.
    """

    def __init__(
        self,
        path: str,
        clock: Callable[[], float],
        loop: Scheduler,
        nics: Nics,
        ready: Callable[[], None],
        restored: Callable[[], None],
        dial: Dial = Dial(),  # noqa: B008  # a value that never changes
    ) -> None:
        self._folder, self._file = os.path.split(path)
        self._clock, self._dial = clock, dial
        self._loop, self._nics, self._ready, self._restored = loop, nics, ready, restored
        self._database = dial.database(path, clock)
        self._lines = {DATABASE: _Line(self._database)}
        self._restoring = False

    @property
    def connected(self) -> bool:
        """Tell whether the database tells."""
        return self._database.subscribed

    def close(self) -> None:
        for line in self._lines.values():
            line.connection.close()

    def need(self, entry: Entry) -> None:
        """A record has come, or changed: what it needs is connected to, if it is not yet."""
        if entry.switched:
            for name in (DATABASE, *_bridges(entry)):
                self._connect(name)

    def appeared(self, file: str) -> None:
        """A file has come into the folder of the sockets."""
        names = [name for name in self._lines if file == self._socket(name)]
        for name in names:
            self._lines[name].pause = SOONEST
            self._connect(name)

    def again(self) -> None:
        """Connects to whatever is needed and is not connected to: for when an event was lost."""
        for entry in self._nics.all():
            self.need(entry)

    def ask(self) -> None:
        """Something of Open vSwitch failed: asks for signs of life, since a daemon that was stopped tells nobody that it goes on."""
        for line in self._lines.values():
            line.connection.ask()

    def read(self) -> list[Event]:
        """Give what has happened since it was last read."""
        return [event for name, line in self._lines.items() if line.connection.connected for event in self._read(name, line)]

    def _socket(self, name: str) -> str:
        return f"{name.replace('/', '_')}.mgmt" if name else self._file

    def _connect(self, name: str) -> None:
        """Connects, or sets the time of the next attempt."""
        line = self._lines.get(name)
        if line is None:
            connection = self._dial.bridge(f"{self._folder}/{self._socket(name)}", name, self._database.numbered, self._clock)
            line = self._lines[name] = _Line(connection)
        if line.connection.connected:
            return
        if line.timer is not None:
            line.timer.cancel()
        if line.connection.open():
            line.timer, line.told, line.descriptor = None, False, line.connection.descriptor
            self._loop.watch(line.descriptor, self._ready)
        else:
            line.timer = self._loop.after(line.pause, lambda: self._try(name))
            line.pause = min(line.pause * 2, LATEST)

    def _try(self, name: str) -> None:
        """Connects once more, if any NIC needs that still."""
        if any(entry.switched and (not name or name in _bridges(entry)) for entry in self._nics.all()):
            self._connect(name)
        else:
            self._lines[name].timer = None

    def _read(self, name: str, line: _Line) -> list[Event]:
        found = line.connection.read()
        if not line.connection.connected:
            self._loop.forget(line.descriptor)
            line.pause = SOONEST
            self._connect(name)
        elif line.connection.late or (line.connection.subscribed and not line.told):
            line.told, line.pause, line.connection.late = True, SOONEST, False
            found.append(Came(((SWITCH, name),) if name else self._all()))
        if not name:
            found += self._freed()
        return found

    def _freed(self) -> list[Event]:
        """Where somebody has ended to restore flows."""
        before, self._restoring = self._restoring, self._database.restoring or (self._restoring and not self._database.subscribed)
        if self._restoring or not before:
            return []
        self._restored()
        return [Came(self._all())]

    def _all(self) -> tuple[Mark, ...]:
        return tuple({mark for entry in self._nics.all() for mark in entry.marks if mark[0] == SWITCH})


def _bridges(entry: Entry) -> set[str]:
    """The bridges that have flows of this NIC."""
    return {which[0] for sort, which in entry.marks if sort == FLOWS and isinstance(which, tuple) and isinstance(which[0], str)}
