"""Open vSwitch by its database: what ports there are, and changes that are known to be done, or said not to be known."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import OVS_MARK, STOPPED, OvsPort
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import PutOvsPort, ReleaseOvsPort, TakeOvsPort
from netcommon.host.ovs import rows as ovsrows
from netcommon.host.ovs import transaction as ovschange
from netcommon.host.ovs.jsonrpc import Lost
from netcommon.host.ovs.read import DATABASE, OvsReader
from netcommon.host.ovs.rows import select
from netcommon.host.rtnetlink.attributes import MalformedError
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from netcommon.host.api.requests import OvsChange
    from netcommon.host.ovs.rows import Fake, Operation

ATTEMPTS = 5  #: at a change that others' changes, or lost connections, get in the way of
LET_GO = 0.2  #: the part of the time limit that vswitchd is waited for after a deletion
READ_BACK = 0.2  #: the part of a request's time that is kept for reading what became of it, and for what is undone then


class Ovsdb(OvsReader):
    """The changes. Each method takes ``timeout`` seconds at most. ``attached``: whether a switch has the device of that name."""

    def __init__(
        self,
        path: str,
        timeout: float,
        clock: Callable[[], float],
        attached: Callable[[str], bool] = lambda name: True,
        kept: str = "",
    ) -> None:
        super().__init__(path, timeout, clock, kept)
        self.attached = attached

    def execute(self, request: OvsChange) -> Answer:
        """Carries it out."""
        if isinstance(request, ReleaseOvsPort):
            return self.release(request.made, request.found)
        if isinstance(request, TakeOvsPort):
            return self.take(request.name, request.bridge, request.owner)
        return self.put(request.port) if isinstance(request, PutOvsPort) else self.delete(request.name, request.owner, request.wait)

    def put(self, port: OvsPort) -> Answer:
        """Makes the port and waits until ovs-vswitchd has taken it. See PutOvsPort.

        Where a device went and another came with its name, and vswitchd has looked at neither in between, it keeps the port that it
        has, and with it the device that has gone, for ever; that it has seen the port go makes it open the new one.
        """
        answer = self._put(port)
        if answer.ok and not self.attached(port.name):
            self.delete(port.name, port.owner, wait=True)
            answer = self._put(port)
            if answer.ok and not self.attached(port.name):
                return Answer(errno.EIO, f"OVS port {port.name}: ovs-vswitchd has it, but has not opened the device")
        return answer

    def _put(self, port: OvsPort) -> Answer:
        limit = self._timeout
        end = self._clock() + limit
        soon = end - limit * READ_BACK
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
                return self._none()
            except Lost as lost:
                if lost.late:
                    self.deadline.lost()
                said = self._became(meant, lost, end)
                if said is not None:
                    return said
        return Answer(errno.EAGAIN, f"OVS port {port.name}: the database changes all the time")

    def delete(self, name: str, owner: str, wait: bool = False) -> Answer:
        """Deletes the port if it bears our mark with this owner. See DeleteOvsPort."""
        limit = self._timeout
        end = self._clock() + limit
        soon = end - limit * READ_BACK
        for _ in range(ATTEMPTS):
            try:
                row, policed, shapers = self._to_delete(name, owner, soon)
                if not (row or shapers):
                    return Answer(errno.ENOENT, f"OVS port {name}: there is none of this NIC")
                if wait and row and (policed or shapers):
                    results, failed, why = self._transact(ovschange.unlimited(row, policed, shapers), soon)
                    if failed < 0 and not self._let_go(self._count(results[-1], "next_cfg"), self._clock() + self._timeout * LET_GO):
                        return Answer(errno.ETIMEDOUT, f"OVS port {name}: ovs-vswitchd has not taken its limits from the device in time")
                    shapers = []
                results, failed, why = self._transact(ovschange.delete(name, row, shapers, wait), soon)
                if failed >= 0:
                    return Answer(errno.EIO, f"OVS port {name}: {why}")
                if wait:
                    self._let_go(self._count(results[-1], "next_cfg"), self._clock() + self._timeout * LET_GO)
                return DONE
            except FileNotFoundError:
                return self._none()
            except Lost as lost:
                try:
                    there = self._port(name, end)
                except (Lost, FileNotFoundError):
                    there = OvsPort(name, "", external_ids=(("unknown", ""),))
                if there is None:
                    if wait and not lost.late:
                        self._let_go_of_all(self._clock() + self._timeout * LET_GO)
                    return DONE
                if lost.late or self._clock() >= soon:
                    return Answer(errno.ETIMEDOUT, f"OVS port {name}: whether it is deleted is not known ({lost})")
        return Answer(errno.ETIMEDOUT, f"OVS port {name}: whether it is deleted is not known, the connection is lost each time")

    def take(self, name: str, bridge: str, owner: str) -> Answer:
        """Marks a port of somebody's. See TakeOvsPort."""
        deadline = self._clock() + self._timeout
        try:
            port = self.port(name)
            if port is None or port.bridge != bridge or port.owner not in ("", owner):
                return Answer(errno.ENOENT, f"OVS port {name}: {bridge} has none without a mark")
            rows = self._rows([select("Port", ["_uuid", "external_ids"], ["name", "==", name])], deadline)[0]
            if not rows or OVS_MARK in dict(ovsrows.a_map(rows[0]["external_ids"])):
                return DONE if rows and port.owner else Answer(errno.EAGAIN, f"OVS port {name}: somebody else changes it just now")
            _, failed, why = self._transact(ovschange.take(port, rows[0], owner), deadline)
        except FileNotFoundError:
            return self._none()
        except (MalformedError, KeyError) as problem:
            return Answer(errno.EIO, f"OVS port {name}: {problem}")
        except TryAgain as lost:
            return Answer(errno.ETIMEDOUT, f"OVS port {name}: whether it is marked is not known ({lost})")
        return DONE if failed < 0 else Answer(errno.EAGAIN, f"OVS port {name}: somebody else changes it just now ({why})")

    def release(self, made: OvsPort, found: OvsPort) -> Answer:
        """Gives a port back as it was found. See ReleaseOvsPort."""
        soon = self._clock() + self._timeout
        for _ in range(ATTEMPTS):
            try:
                inside = ovsrows.inside(made, self._fakes(soon)) if not (made.tag or made.trunks or made.vlan_mode) else None
                real, was = made, found
                if isinstance(inside, ovsrows.Fake):
                    real, was = made._replace(bridge=inside.parent), found._replace(tag=inside.tag)
                before = self._standing(real, soon)
                if not before.interface:
                    return Answer(errno.ENOENT, f"OVS port {made.name}: there is none of this NIC")
                results, failed, _why = self._transact(ovschange.release(real, was, before), soon)
                if failed < 0:
                    self._let_go(self._count(results[-1], "next_cfg"), self._clock() + self._timeout * LET_GO)
                    return DONE
            except FileNotFoundError:
                return self._none()
            except Lost as lost:
                if lost.late or self._clock() >= soon:
                    return Answer(errno.ETIMEDOUT, f"OVS port {made.name}: whether it is given back is not known ({lost})")
        return Answer(errno.EAGAIN, f"OVS port {made.name}: the database changes all the time")

    def _none(self) -> Answer:
        """Say that there is no socket. Of a switch that is only stopped nothing has gone."""
        if self.away():
            return Answer(errno.EAGAIN, STOPPED)
        return Answer(errno.ENOENT, f"there is no Open vSwitch on this node: no {self.rpc.path}")

    def together(self, operations: Sequence[Operation], words: str, wait: bool = True, gone: bool = False) -> bool:
        """One transaction for many ports; whether it was done, and is taken by vswitchd, which need not be known where ports go."""
        limit = self._timeout
        try:
            end = ovschange.counted(words) if wait else [ovschange.comment(words)]
            results, failed, _ = self._transact([*operations, *end], self._clock() + limit)
            if failed >= 0:
                return False
            return not wait or self._let_go(self._count(results[-1], "next_cfg"), self._clock() + limit * (LET_GO if gone else 1)) or gone
        except Lost as lost:
            if lost.late:
                self.deadline.lost()
        except FileNotFoundError:
            pass
        return False

    def _to_delete(self, name: str, owner: str, deadline: float) -> tuple[str, str, list[str]]:
        """The Port row ("": none), its Interface row if we limit it, and the QoS rows that we made. Raises Lost, FileNotFoundError."""
        asked = [
            select("Port", ["_uuid"], ["name", "==", name], ovschange.owned_by(owner)),
            select("QoS", ["_uuid"], ovschange.made_for(name, owner)),
            select("Port", ["name", "qos"], ovsrows.SHAPED_PORTS),
            select("Interface", ["_uuid", "external_ids"], ["name", "==", name]),
        ]
        ports, shapers, users, interfaces = self._rows(asked, deadline)
        made = [self._uuid(row) for row in shapers]
        try:
            lent = ovschange.lent(name, made, users)
            policed = [row for row in interfaces if ovsrows.POLICED in dict(ovsrows.a_map(row["external_ids"]))] if ports else []
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem
        left = [row for row in made if row not in lent]
        return self._uuid(ports[0]) if ports else "", self._uuid(policed[0]) if policed else "", left

    def _taken(self, port: OvsPort, number: int, deadline: float) -> Answer:
        """Waits until vswitchd shows ``number`` or a later one, and says what became of the port. Raises Lost."""
        self._wait(number, deadline)
        return self._state(port, deadline) or Answer(errno.EIO, f"OVS port {port.name}: ovs-vswitchd has not attached it")

    def _let_go(self, number: int, deadline: float) -> bool:
        """Waits as long for vswitchd to let go of something; whether it has. After a deletion silence is no failure: the row is gone.

        A connection that is lost says nothing of vswitchd: it is waited for on another one. It writes the flags of a device that it
        closes, so who does not wait may take the device down too early.
        """
        for _ in range(ATTEMPTS):
            try:
                self._wait(number, deadline)
                return True
            except FileNotFoundError:  # the database has gone meanwhile
                break
            except Lost as lost:
                self.close()
                if lost.late:
                    break
        self.deadline.lost()
        return False

    def _let_go_of_all(self, deadline: float) -> None:
        """Waits as long for vswitchd to take whatever there is, where the answer was lost that tells the number of a change."""
        try:
            result = {"rows": self._rows([select("Open_vSwitch", ["next_cfg"])], deadline)[0]}
            self._let_go(self._count(result, "next_cfg"), deadline)
        except (Lost, FileNotFoundError):
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
        return ovsrows.said_of(self._port(port.name, deadline), port)

    def _became(self, port: OvsPort, lost: Lost, deadline: float) -> Answer | None:
        """After an answer was lost: what the database says of the change; None if it is worth another attempt."""
        try:
            said = self._state(port, deadline)
            if said is not None and said.errno != errno.EAGAIN and not self._caught_up(deadline):
                said = None  # of a row that was there before, what vswitchd said may be of its former VLANs
        except (Lost, FileNotFoundError):
            return Answer(errno.ETIMEDOUT, f"OVS port {port.name}: whether it was made is not known ({lost})")
        if said is None:
            return (
                None
                if not lost.late
                else Answer(
                    errno.ETIMEDOUT, f"OVS port {port.name}: it is in the database, but ovs-vswitchd has not taken it in time ({lost})"
                )
            )
        if said.errno == errno.EAGAIN:
            return None if not lost.late else Answer(errno.ETIMEDOUT, f"OVS port {port.name}: it was not made in time ({lost})")
        return said

    def _standing(self, port: OvsPort, deadline: float) -> ovschange.Standing:
        """The row that has the name of ``port``, which is of a real bridge. Raises Lost and FileNotFoundError."""
        named = ["name", "==", port.name]
        asked = [
            select("Port", ovsrows.PORT_COLUMNS, named),
            select("Interface", ovsrows.INTERFACE_COLUMNS, named),
            select("Bridge", ["ports"], ["name", "==", port.bridge]),
            select("QoS", ["_uuid", "external_ids"], ovschange.made_for(port.name, port.owner)),
            select("Port", ["name", "qos"], ovsrows.SHAPED_PORTS),
        ]
        rows = self._rows(asked, deadline)
        try:
            found = ovschange.standing(port, *rows)
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem
        if found.qos_before and not self._rows([select("QoS", ["_uuid"], ["_uuid", "==", ["uuid", found.qos_before]])], deadline)[0]:
            return found._replace(qos_before="")  # its owner has deleted it meanwhile
        return found

    def _caught_up(self, deadline: float) -> bool:
        """Whether vswitchd has taken everything there is. Raises Lost and FileNotFoundError."""
        result = {"rows": self._rows([select("Open_vSwitch", ["cur_cfg", "next_cfg"])], deadline)[0]}
        return self._count(result, "cur_cfg") >= self._count(result, "next_cfg")

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
