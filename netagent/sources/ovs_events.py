"""Say what Open vSwitch's database tells (RFC 7047, 4.1.5 and 4.1.6): ports, interfaces and bridges that come, are changed or removed.

Flows are in no database: netagent.sources.flow_events tells of them. Whether ovs-vswitchd is to wait until somebody has restored them
(flow-restore-wait, ovs-vswitchd.conf.db(5)) is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from netagent.events import NAME, SWITCH, Came, Changed, Event, Gone, Overrun
from netcommon.host.ovs.jsonrpc import CHUNK, LIMIT, JsonRpc, Lost
from netcommon.host.ovs.read import DATABASE
from netcommon.host.ovs.rows import restoring
from netcommon.host.rtnetlink.attributes import MalformedError

SOURCE = "ovsdb"

#: For connecting, and for what we send, which is a few hundred bytes (seconds): the loop waits for it.
PATIENCE = 0.2

#: A daemon that lets a question wait for so long was stopped, or very busy (seconds).
SILENCE = 0.2

#: What is watched of each table, and what is told of it besides changes: rows that are added, and those there are already.
COLUMNS = {
    "Port": (["name", "tag", "trunks", "vlan_mode", "external_ids", "interfaces", "qos", "fake_bridge"], {"insert"}),
    "Interface": (["name", "ofport", "error", "external_ids", "ingress_policing_rate", "ingress_policing_burst"], {"initial", "insert"}),
    "Bridge": (["name", "controller"], {"insert"}),
    DATABASE: (["other_config"], {"initial", "insert"}),
}


class OvsEvents(JsonRpc):
    """A subscription to the database at ``path``. ``open`` begins it, again after it was lost; nothing here waits for an answer."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        super().__init__(path, clock)
        self._clock = clock
        self._numbers: dict[str, tuple[str, int]] = {}  #: of each Interface row the device, and its OpenFlow number
        self.subscribed = False  #: the database has answered: what happens from now on is not missed
        self.late = False  #: it has answered after it was silent for a while
        self._asked = 0.0  #: since when an echo is waited for, 0: none is
        self.restoring = False  #: ovs-vswitchd waits until somebody has restored its flows

    def numbered(self, number: int) -> list[str]:
        """The devices that have this OpenFlow number, of whichever bridge."""
        return [name for name, its in self._numbers.values() if its == number]

    def close(self) -> None:
        super().close()
        self.subscribed, self._asked = False, 0.0

    def ask(self) -> None:
        """Asks for a sign of life; ``late`` says if that took long."""
        if self.subscribed and not self._asked:
            try:
                self.send("echo", [], self._clock() + PATIENCE)
                self._asked = self._clock()
            except (Lost, OSError):
                pass  # what is lost, ``read`` tells

    @property
    def waits(self) -> bool:
        """Tell whether it was asked for a sign of life, and has not answered."""
        return bool(self._asked)

    @property
    def descriptor(self) -> int:
        """Give that of the connection; -1 where there is none."""
        return self._socket.fileno() if self._socket is not None else -1

    def open(self) -> bool:
        """Connects and subscribes, if that is not so already; whether there is a connection now."""
        if self.connected:
            return True
        kinds = ("initial", "insert", "delete", "modify")
        asked = {
            table: [{"columns": columns, "select": {kind: kind in {"delete", "modify", *more} for kind in kinds}}]
            for table, (columns, more) in COLUMNS.items()
        }
        try:
            self.send("monitor", [DATABASE, None, asked], self._clock() + PATIENCE)
        except (Lost, OSError):
            self.close()
        return self.connected

    def read(self) -> list[Event]:
        """What has happened since it was last read; an Overrun when the connection is lost, of which ``descriptor`` tells too."""
        found: dict[Event, None] = {}
        try:
            self._fill()
            while (message := self._message()) is not None:
                if message.get("method") == "echo":
                    self._write({"result": message.get("params"), "error": None, "id": message.get("id")}, self._clock() + PATIENCE)
                elif message.get("method") == "update":
                    parameters = message.get("params")
                    found.update(dict.fromkeys(self._events(parameters[1] if isinstance(parameters, list) and parameters[1:] else None)))
                elif message.get("error") is not None:
                    raise self._lost("it takes no subscription")
                elif not self.subscribed:
                    self._numbers.clear()
                    self.subscribed, self.restoring = True, False
                    found.update(dict.fromkeys(self._events(message.get("result"))))
                elif self._asked:
                    self.late, self._asked = self.late or self._clock() - self._asked > SILENCE, 0.0
        except Lost:
            found[Overrun(SOURCE)] = None
        return list(found)

    def _fill(self) -> None:
        """Takes what has come, without waiting. Raises Lost."""
        while self._socket is not None:
            try:
                self._socket.settimeout(0)
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._lost(str(error)) from error
            if not data:
                raise self._lost("it closed the connection")
            self._buffer += data
            if len(self._buffer) > LIMIT:
                raise self._lost("its message is too large")

    def _events(self, tables: Any) -> Iterator[Event]:
        """Give what an update says: table -> row -> old and new values of the columns; of a change the old ones as far as they differ."""
        for table, rows in tables.items() if isinstance(tables, dict) else ():
            for uuid, row in rows.items() if isinstance(rows, dict) else ():
                old, new = (row.get(which) for which in ("old", "new")) if isinstance(row, dict) else (None, None)
                if table == DATABASE:
                    self.restoring = isinstance(new, dict) and _restoring(new.get("other_config"))
                    continue
                if table == "Interface":
                    self._number(uuid, new)
                yield from of_row(table, old, new)

    def _number(self, uuid: str, new: Any) -> None:
        name, number = (new.get("name"), new.get("ofport")) if isinstance(new, dict) else (None, None)
        if isinstance(name, str) and type(number) is int:
            self._numbers[uuid] = name, number
        else:
            self._numbers.pop(uuid, None)


def of_row(table: str, old: Any, new: Any) -> Iterator[Event]:
    """Give what the old and the new values of a row say."""
    if not isinstance(old, dict):  # it has come: a tap's port is its own NIC's affair
        bridge = isinstance(new, dict) and (table == "Bridge" or new.get("fake_bridge") is True)
        if bridge and isinstance(name := new.get("name"), str):
            yield Came(((SWITCH, name),))
        return
    for columns in (old, new):
        name = columns.get("name") if isinstance(columns, dict) else None
        if isinstance(name, str):
            mark = (SWITCH if table == "Bridge" else NAME, name)
            yield Changed((mark,)) if isinstance(new, dict) else Gone((mark,))


def _restoring(column: Any) -> bool:
    try:
        return restoring(column)
    except MalformedError:
        return False
