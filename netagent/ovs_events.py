"""What Open vSwitch's database tells (RFC 7047, 4.1.5 and 4.1.6): ports, interfaces and bridges that are changed or removed.

Flows are in no database: those of a switch that was started anew are gone, and its new management socket says so (netagent.agent
watches for that).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from netagent.events import NAME, SWITCH, Changed, Event, Gone, Overrun
from netcommon.host.jsonrpc import CHUNK, LIMIT, JsonRpc, Lost
from netcommon.host.ovsread import DATABASE

SOURCE = "ovsdb"

#: For connecting, and for what we send, which is a few hundred bytes (seconds): the loop waits for it.
PATIENCE = 0.2

#: What is watched of each table; rows that are added are nothing to us, and what there is already is not asked for.
COLUMNS = {
    "Port": ["name", "tag", "trunks", "vlan_mode", "external_ids", "interfaces", "qos"],
    "Interface": ["name", "ofport", "error", "external_ids", "ingress_policing_rate", "ingress_policing_burst"],
    "Bridge": ["name", "controller"],
}
SELECT = {"initial": False, "insert": False, "delete": True, "modify": True}


class OvsEvents(JsonRpc):
    """A subscription to the database at ``path``. ``open`` begins it, again after it was lost; nothing here waits for an answer."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        super().__init__(path, clock)
        self._clock = clock

    @property
    def descriptor(self) -> int:
        """Of the connection; -1 where there is none."""
        return self._socket.fileno() if self._socket is not None else -1

    def open(self) -> bool:
        """Connects and subscribes, if that is not so already; whether there is a connection now."""
        if self.connected:
            return True
        asked = {table: [{"columns": columns, "select": SELECT}] for table, columns in COLUMNS.items()}
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
                    found.update(dict.fromkeys(_events(message.get("params"))))
                elif message.get("error") is not None:
                    raise self._lost("it takes no subscription")
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


def _events(parameters: Any) -> Iterator[Event]:
    """What an update says: table -> row -> old and new values of the columns, as far as they changed."""
    tables = parameters[1] if isinstance(parameters, list) and len(parameters) == 2 else None
    for table, rows in tables.items() if isinstance(tables, dict) else ():
        for row in rows.values() if isinstance(rows, dict) else ():
            old, new = (row.get(which) for which in ("old", "new")) if isinstance(row, dict) else (None, None)
            for columns in (old, new):
                name = columns.get("name") if isinstance(columns, dict) else None
                if isinstance(name, str):
                    mark = (SWITCH if table == "Bridge" else NAME, name)
                    yield Changed((mark,)) if isinstance(new, dict) else Gone((mark,))
