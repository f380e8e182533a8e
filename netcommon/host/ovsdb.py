"""Open vSwitch by its database: what ports there are, and changes that are known to be done, or said not to be known."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from netcommon.host import ovschange, ovsrows
from netcommon.host.attributes import MalformedError
from netcommon.host.base import DONE, Answer
from netcommon.host.facts import OvsPort
from netcommon.host.jsonrpc import JsonRpc, Lost
from netcommon.host.ovsrows import Fake, Operation, Row, select
from netcommon.host.requests import DeleteOvsPort, PutOvsPort

DATABASE = "Open_vSwitch"
ATTEMPTS = 5  #: at a change that others' changes, or lost connections, get in the way of
LET_GO = 0.2  #: the part of the time limit that vswitchd is waited for after a deletion
READ_BACK = 0.1  #: the part of a request's time that is kept for reading what became of it


class Ovsdb:
    """A connection that is made when first needed, and kept. Each method takes ``timeout`` seconds at most."""

    def __init__(self, path: str, timeout: float, clock: Callable[[], float]) -> None:
        self.rpc = JsonRpc(path, clock)
        self._timeout, self._clock = timeout, clock

    def close(self) -> None:
        self.rpc.close()

    def bridge(self, name: str) -> bool:
        """Whether there is such a bridge, a real one or a fake one. Raises TryAgain."""
        deadline = self._clock() + self._timeout
        try:
            real = self._rows([select("Bridge", ["name"], ["name", "==", name])], deadline)[0]
            return bool(real) or any(fake.name == name for fake in self._fakes(deadline))
        except FileNotFoundError:
            return False

    def port(self, name: str) -> OvsPort | None:
        """The port of that name, on whatever bridge. Raises TryAgain."""
        deadline = self._clock() + self._timeout
        try:
            port = self._port(name, deadline)
            return ovsrows.shown(port, self._fakes(deadline)) if port and ovsrows.may_be_inside(port) else port
        except FileNotFoundError:
            return None

    def ports(self) -> Sequence[OvsPort]:
        """All ports. Raises TryAgain."""
        whole = [
            select("Port", ovsrows.PORT_COLUMNS),
            select("Interface", ovsrows.INTERFACE_COLUMNS),
            select("Bridge", ["name", "ports"]),
        ]
        try:
            rows = self._rows(whole, self._clock() + self._timeout)
        except FileNotFoundError:
            return []
        try:
            interfaces = {ovsrows.uuid(row["_uuid"]): row for row in rows[1]}
            bridges = {ovsrows.uuid(port): ovsrows.word(row["name"]) for row in rows[2] for port in ovsrows.a_set(row["ports"])}
            fakes = ovsrows.fakes(rows[0], rows[2])
            found = [ovsrows.a_port(row, interfaces, bridges.get(ovsrows.uuid(row["_uuid"]), "")) for row in rows[0]]
            return [ovsrows.shown(port, fakes) for port in found] if fakes else found
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def execute(self, request: PutOvsPort | DeleteOvsPort) -> Answer:
        """Carries it out."""
        return self.put(request.port) if isinstance(request, PutOvsPort) else self.delete(request.name, request.owner, request.wait)

    def put(self, port: OvsPort) -> Answer:
        """Makes the port and waits until ovs-vswitchd has taken it. See PutOvsPort."""
        end = self._clock() + self._timeout
        soon = end - self._timeout * READ_BACK
        fake: Fake | None = None
        meant, before = port, ovschange.Standing()
        for _ in range(ATTEMPTS):
            try:
                change = ovschange.put(meant, fake, before)
                results, failed, why = self._transact(change.operations, soon)
                if failed < 0:
                    return self._taken(meant, self._count(results[-1], "next_cfg"), soon)
                if failed < change.of_bridge:
                    found = ovsrows.inside(port, self._fakes(soon))
                    if isinstance(found, Answer):
                        return found
                    fake, meant = found, port._replace(bridge=found.parent, tag=found.tag)
                elif failed < change.of_bridge + change.of_row:
                    before = self._standing(meant, soon)
                else:
                    # A value out of range fails its operation; a name that a bond has already fails the whole, at the end.
                    refused = errno.EINVAL if failed < len(results) - 1 else errno.EEXIST
                    return Answer(refused if "constraint" in why else errno.EIO, f"OVS port {port.name}: {why}")
            except FileNotFoundError:
                return Answer(errno.ENOENT, f"Open vSwitch does not run: there is no {self.rpc.path}")
            except Lost as lost:
                said = self._became(meant, lost, end)
                if said is not None:
                    return said
        return Answer(errno.EAGAIN, f"OVS port {port.name}: the database changes all the time")

    def delete(self, name: str, owner: str, wait: bool = False) -> Answer:
        """Deletes the port if it bears our mark with this owner. See DeleteOvsPort."""
        end = self._clock() + self._timeout
        soon = end - self._timeout * READ_BACK
        for _ in range(ATTEMPTS):
            try:
                where = ["name", "==", name], ovschange.owned_by(owner)
                found = self._rows([select("Port", ["_uuid"], *where)], soon)[0]
                if not found:
                    return Answer(errno.ENOENT, f"OVS port {name}: there is none of this NIC")
                results, failed, why = self._transact(ovschange.delete(name, self._uuid(found[0]), wait), soon)
                if failed >= 0:
                    return Answer(errno.EIO, f"OVS port {name}: {why}")
                if wait:
                    self._let_go(self._count(results[-1], "next_cfg"), self._clock() + self._timeout * LET_GO)
                return DONE
            except FileNotFoundError:
                return Answer(errno.ENOENT, f"Open vSwitch does not run: there is no {self.rpc.path}")
            except Lost as lost:
                try:
                    there = self._port(name, end)
                except (Lost, FileNotFoundError):
                    there = OvsPort(name, "", external_ids=(("unknown", ""),))
                if there is None:
                    return DONE
                if lost.late or self._clock() >= soon:
                    return Answer(errno.ETIMEDOUT, f"OVS port {name}: whether it is deleted is not known ({lost})")
        return Answer(errno.ETIMEDOUT, f"OVS port {name}: whether it is deleted is not known, the connection is lost each time")

    def _taken(self, port: OvsPort, number: int, deadline: float) -> Answer:
        """Waits until vswitchd shows ``number`` or a later one, and says what became of the port. Raises Lost."""
        self._wait(number, deadline)
        return self._state(port, deadline) or Answer(errno.EIO, f"OVS port {port.name}: ovs-vswitchd has not attached it")

    def _let_go(self, number: int, deadline: float) -> None:
        """Waits as long for vswitchd after a deletion: the row is gone, so its silence is no failure."""
        try:
            self._wait(number, deadline)
        except Lost:
            self.close()

    def _wait(self, number: int, deadline: float) -> None:
        """Waits until vswitchd shows ``number`` or a later one. Raises Lost."""
        self.rpc.send("monitor", [DATABASE, "netcommon", {DATABASE: {"columns": ["cur_cfg"]}}], deadline)
        asked = self.rpc.calls
        while True:
            message = self.rpc.receive(deadline)
            if message.get("id") == asked:
                updates: Any = message.get("result")
            elif message.get("method") == "update":
                parameters: Any = message.get("params")
                updates = parameters[1] if isinstance(parameters, list) and len(parameters) == 2 else None
            else:
                continue
            if self._shown(updates) >= number:
                break
        self.rpc.send("monitor_cancel", ["netcommon"], deadline)

    def _state(self, port: OvsPort, deadline: float) -> Answer | None:
        """What vswitchd says of the port; None where it says nothing yet. Raises Lost."""
        there = self._port(port.name, deadline)
        if there is None or not ovsrows.agrees(there, port):
            return Answer(errno.EAGAIN, f"OVS port {port.name}: somebody else has changed it meanwhile")
        if there.error or there.ofport < 0:
            return Answer(errno.EIO, f"OVS port {port.name}: {there.error or 'ovs-vswitchd could not open it'}")
        return DONE if there.ofport else None

    def _became(self, port: OvsPort, lost: Lost, deadline: float) -> Answer | None:
        """After an answer was lost: what the database says of the change; None if it is worth another attempt."""
        try:
            said = self._state(port, deadline)
            if said is not None and said.errno != errno.EAGAIN and not self._caught_up(deadline):
                said = None  # of a row that was there before, what vswitchd said may be of its former VLANs
        except (Lost, FileNotFoundError):
            return Answer(errno.ETIMEDOUT, f"OVS port {port.name}: whether it was made is not known ({lost})")
        if said is None:
            return None if not lost.late else Answer(
                errno.ETIMEDOUT, f"OVS port {port.name}: it is in the database, but ovs-vswitchd has not taken it in {self._timeout:g} s"
            )
        if said.errno == errno.EAGAIN:
            return None if not lost.late else Answer(errno.ETIMEDOUT, f"OVS port {port.name}: it was not made in time ({lost})")
        return said

    def _port(self, name: str, deadline: float) -> OvsPort | None:
        """See ``port``; its bridge is the real one. Raises Lost and FileNotFoundError."""
        named = ["name", "==", name]
        rows = self._rows(
            [select("Port", ovsrows.PORT_COLUMNS, named), select("Interface", ovsrows.INTERFACE_COLUMNS, named)], deadline
        )
        if not rows[0]:
            return None
        row = rows[0][0]
        bridges = self._rows([select("Bridge", ["name"], ["ports", "includes", ["uuid", self._uuid(row)]])], deadline)[0]
        try:
            bridge = ovsrows.word(bridges[0]["name"]) if bridges else ""
            return ovsrows.a_port(row, {ovsrows.uuid(each["_uuid"]): each for each in rows[1]}, bridge)
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _fakes(self, deadline: float) -> list[Fake]:
        """The fake bridges. Raises Lost and FileNotFoundError."""
        columns = ["_uuid", "name", "tag", "fake_bridge"]
        rows = self._rows([select("Port", columns, ["fake_bridge", "==", True]), select("Bridge", ["name", "ports"])], deadline)
        try:
            return ovsrows.fakes(*rows)
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _standing(self, port: OvsPort, deadline: float) -> ovschange.Standing:
        """The row that has the name of ``port``, which is of a real bridge. Raises Lost and FileNotFoundError."""
        named = ["name", "==", port.name]
        asked = [
            select("Port", ovsrows.PORT_COLUMNS, named),
            select("Interface", ["_uuid"], named),
            select("Bridge", ["ports"], ["name", "==", port.bridge]),
        ]
        rows = self._rows(asked, deadline)
        try:
            return ovschange.standing(port, *rows)
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _caught_up(self, deadline: float) -> bool:
        """Whether vswitchd has taken everything there is. Raises Lost and FileNotFoundError."""
        result = {"rows": self._rows([select("Open_vSwitch", ["cur_cfg", "next_cfg"])], deadline)[0]}
        return self._count(result, "cur_cfg") >= self._count(result, "next_cfg")

    def _rows(self, operations: Sequence[Operation], deadline: float) -> list[list[Row]]:
        """The rows of each select. A kept connection may have died since: one more attempt. Raises Lost, FileNotFoundError."""
        kept = self.rpc.connected
        try:
            results, failed, why = self._transact(operations, deadline)
        except Lost as lost:
            if not kept or lost.late:
                raise
            results, failed, why = self._transact(operations, deadline)
        if failed >= 0:
            raise self._nonsense(why)
        return [self._selected(result) for result in results[: len(operations)]]

    def _transact(self, operations: Sequence[Operation], deadline: float) -> tuple[list[Any], int, str]:
        """The results, the place of the first that is an error (-1: none), and what it says. Raises Lost, FileNotFoundError."""
        results = self.rpc.call("transact", [DATABASE, *operations], deadline)
        if not isinstance(results, list) or len(results) < len(operations):
            raise self._nonsense("not a list of results")
        for position, result in enumerate(results):
            if isinstance(result, dict) and result.get("error"):
                return results, position, f"{result['error']}: {result.get('details', '')}"[:300]
        return results, -1, ""

    def _selected(self, result: Any) -> list[Row]:
        rows = result.get("rows") if isinstance(result, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._nonsense("not a list of rows")
        return rows

    def _count(self, result: Any, column: str) -> int:
        rows = self._selected(result)
        number = rows[0].get(column) if rows else None
        if type(number) is not int:
            raise self._nonsense(f"no {column}")
        return number

    def _shown(self, updates: Any) -> int:
        """cur_cfg in a monitor's update, -1 where it is not in it."""
        rows = updates.get(DATABASE) if isinstance(updates, dict) else None
        for row in rows.values() if isinstance(rows, dict) else ():
            new = row.get("new") if isinstance(row, dict) else None
            number = new.get("cur_cfg") if isinstance(new, dict) else None
            if type(number) is int:
                return number
        return -1

    def _uuid(self, row: Row) -> str:
        try:
            return ovsrows.uuid(row["_uuid"])
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _nonsense(self, why: object) -> Lost:
        self.close()
        return Lost(f"OVSDB at {self.rpc.path} gives an answer that makes no sense: {why}")
