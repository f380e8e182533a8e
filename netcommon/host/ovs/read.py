"""What Open vSwitch's database says: ports, bridges, and rows of ours that nobody uses."""

from __future__ import annotations

import os

from netcommon.host.api.facts import OVS_MARK, OvsBridge, OvsShaper
from netcommon.host.ovs import rows as ovsrows
from netcommon.host.ovs.jsonrpc import Deadline, JsonRpc, Lost
from netcommon.host.ovs.rows import select
from netcommon.host.rtnetlink.attributes import MalformedError
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from netcommon.host.api.facts import OvsPort
    from netcommon.host.ovs.rows import Fake, Operation, Row

DATABASE = "Open_vSwitch"

BRIEFLY = 0.5  #: seconds for a question whose answer is not needed
SILENT = 1.0  #: seconds after one that was not answered in that time until the next is asked

#: Of a bridge.
BRIDGE_COLUMNS = ["name", "controller", "datapath_type"]

#: What tells the number of a port, by its name.
NUMBERED = (("Port", ["_uuid"]), ("Interface", ["ofport"]))


class OvsReader:
    """A connection that is made when first needed, and kept. Each method takes ``timeout`` seconds at most.

    Where there is no socket there are no ports, and no bridges: ``away`` tells whether that is all there is to say. ``kept``: the
    database's file.
    """

    def __init__(self, path: str, timeout: float, clock: Callable[[], float], kept: str = "") -> None:
        self.rpc, self._kept = JsonRpc(path, clock), kept
        self.deadline, self._clock = Deadline(timeout, clock), clock
        self._silent = clock() - 1  #: until when nobody is asked whose answer is not needed

    def begin(self) -> None:
        """See Host."""
        self.deadline.forget()
        self._silent = self._clock() - 1

    def close(self) -> None:
        self.rpc.close()

    @property
    def _timeout(self) -> float:
        return self.deadline.seconds

    def away(self) -> bool:
        """Tell whether Open vSwitch is stopped, rather than not on this node: no socket, but the database on disk.

        Its ports are in that database, and come back with it.
        """
        path = self.rpc.path
        beside = os.path.join(os.path.dirname(path), "conf.db")  # of a switch that somebody tries out
        return not os.path.exists(path) and (os.path.exists(self._kept) or os.path.exists(beside))

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

    def held(self, name: str) -> OvsPort | None:
        """The port of that name; None too where the database does not answer within BRIEFLY, or has not answered another a moment ago.

        Who asks keeps a guest out of another's network by it: what else has waited for the database in vain says nothing here.
        """
        if self._clock() < self._silent:
            return None
        spent = self.deadline.spent
        try:
            return self._port(name, self._clock() + min(self._timeout, BRIEFLY))
        except FileNotFoundError:
            return None
        except TryAgain:
            self._silent = self._clock() + SILENT
            if not spent:  # nor does so short a wait say anything of others
                self.deadline.forget()
            return None

    def ports(self) -> Sequence[OvsPort]:
        """All ports. Raises TryAgain."""
        whole = [
            select("Port", ovsrows.PORT_COLUMNS),
            select("Interface", [*ovsrows.INTERFACE_COLUMNS, ovsrows.OPTIONS]),
            select("Bridge", ["name", "ports"]),
            select("QoS", ovsrows.QOS_COLUMNS),
        ]
        try:
            rows = self._rows(whole, self._clock() + self._timeout)
        except FileNotFoundError:
            return []
        try:
            interfaces, shapers = (ovsrows.by_uuid(found) for found in (rows[1], rows[3]))
            bridges = {ovsrows.uuid(port): ovsrows.word(row["name"]) for row in rows[2] for port in ovsrows.a_set(row["ports"])}
            fakes = ovsrows.fakes(rows[0], rows[2])
            found = [ovsrows.a_port(row, interfaces, bridges.get(ovsrows.uuid(row["_uuid"]), ""), shapers) for row in rows[0]]
            return [ovsrows.shown(port, fakes) for port in found] if fakes else found
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def switch(self, name: str) -> OvsBridge | None:
        """The real bridge that ``name`` is, or is a VLAN of. Raises TryAgain."""
        deadline = self._clock() + self._timeout
        try:
            found = self._bridges(deadline, ["name", "==", name])
            if not found:
                parents = [fake.parent for fake in self._fakes(deadline) if fake.name == name]
                found = self._bridges(deadline, ["name", "==", parents[0]]) if parents else []
            return found[0] if found else None
        except FileNotFoundError:
            return None

    def switches(self) -> Sequence[OvsBridge]:
        """All real bridges. Raises TryAgain."""
        try:
            return self._bridges(self._clock() + self._timeout)
        except FileNotFoundError:
            return []

    def shapers(self) -> Sequence[OvsShaper]:
        """QoS rows with our mark that no port uses. Raises TryAgain."""
        try:
            shapers, ports = self._rows([select("QoS", ovsrows.QOS_COLUMNS), select("Port", ["qos"])], self._clock() + self._timeout)
        except FileNotFoundError:
            return []
        try:
            used = {ovsrows.reference(row["qos"]) for row in ports}
            ids = [dict(ovsrows.a_map(row["external_ids"])) for row in shapers if ovsrows.uuid(row["_uuid"]) not in used]
            return [OvsShaper(each.get(ovsrows.SHAPED, ""), each[OVS_MARK]) for each in ids if each.get(OVS_MARK)]
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def numbers(self, bridge: str, names: Sequence[str]) -> Mapping[str, int]:
        """The OpenFlow numbers of those of these ports that the real bridge has, and has numbered. Raises TryAgain."""
        found = self.rows([select(table, columns, ["name", "==", name]) for name in names for table, columns in NUMBERED])
        pairs = zip(names, found[::2], found[1::2], strict=True)
        rows = {name: (port[0], interface[0]) for name, port, interface in pairs if port and interface}
        homes = self.rows([select("Bridge", ["name"], ["ports", "includes", ["uuid", self._uuid(port)]]) for port, _ in rows.values()])
        there = {name for name, home in zip(rows, homes, strict=True) if home and home[0].get("name") == bridge}
        numbers = {name: rows[name][1].get("ofport") for name in there}
        return {name: value for name, value in numbers.items() if isinstance(value, int) and value > 0}

    def restored(self, seconds: float) -> bool:
        """Wait until no flows are being restored (flow-restore-wait); whether that is so within ``seconds``. Raises TryAgain.

        What is put meanwhile is lost: whoever restores gives each bridge exactly the flows that it had (ovs-ctl(8), restart).
        """
        deadline = self._clock() + seconds
        try:
            found = self._rows([select(DATABASE, ["other_config"])], deadline)[0]
            return not self._restoring(found[:1]) or self._released(deadline)
        except FileNotFoundError:
            return True

    def _restoring(self, rows: Sequence[Row]) -> bool:
        try:
            return any(ovsrows.restoring(row["other_config"]) for row in rows)
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _released(self, deadline: float) -> bool:
        """Wait for the database to say that flow-restore-wait is gone; whether it has in time."""
        self.rpc.send("monitor", [DATABASE, "restore", {DATABASE: {"columns": ["other_config"]}}], deadline)
        asked = self.rpc.calls
        try:
            while True:
                message = self.rpc.receive(deadline)
                updates: Any = message.get("result") if message.get("id") == asked else None
                if message.get("method") == "update":
                    parameters: Any = message.get("params")
                    updates = parameters[1] if isinstance(parameters, list) and len(parameters) == 2 else None
                rows = updates.get(DATABASE) if isinstance(updates, dict) else None
                told = rows.values() if isinstance(rows, dict) else ()
                new = [row["new"] for row in told if isinstance(row, dict) and isinstance(row.get("new"), dict)]
                if new and not self._restoring(new):
                    break
        except Lost as lost:
            if not lost.late:
                raise
            return False
        self.rpc.send("monitor_cancel", ["restore"], deadline)
        return True

    def rows(self, operations: Sequence[Operation]) -> list[list[Row]]:
        """The rows of each select; none where there is no database. Raises TryAgain."""
        try:
            return self._rows(operations, self._clock() + self._timeout)
        except FileNotFoundError:
            return [[] for _ in operations]

    def _port(self, name: str, deadline: float) -> OvsPort | None:
        """See ``port``; its bridge is the real one. Raises Lost and FileNotFoundError."""
        named = ["name", "==", name]
        rows = self._rows([select("Port", ovsrows.PORT_COLUMNS, named), select("Interface", ovsrows.INTERFACE_COLUMNS, named)], deadline)
        if not rows[0]:
            return None
        row = rows[0][0]
        try:
            asked = [select("Bridge", ["name"], ["ports", "includes", ["uuid", ovsrows.uuid(row["_uuid"])]])]
            shaper = ovsrows.reference(row["qos"])
            if shaper:
                asked.append(select("QoS", ovsrows.QOS_COLUMNS, ["_uuid", "==", ["uuid", shaper]]))
            bridges, *shapers = self._rows(asked, deadline)
            bridge = ovsrows.word(bridges[0]["name"]) if bridges else ""
            return ovsrows.a_port(row, ovsrows.by_uuid(rows[1]), bridge, ovsrows.by_uuid(shapers[0]) if shapers else {})
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _bridges(self, deadline: float, *where: list[Any]) -> list[OvsBridge]:
        """The real bridges that meet the condition. Raises Lost and FileNotFoundError."""
        rows = self._rows([select("Bridge", BRIDGE_COLUMNS, *where)], deadline)[0]
        try:
            return [
                OvsBridge(ovsrows.word(row["name"]), bool(ovsrows.a_set(row["controller"])), row.get("datapath_type") == "netdev")
                for row in rows
            ]
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

    def _rows(self, operations: Sequence[Operation], deadline: float) -> list[list[Row]]:
        """The rows of each select. A kept connection may have died since: one more attempt. Raises Lost, FileNotFoundError."""
        kept = self.rpc.connected
        try:
            results, failed, why = self._transact(operations, deadline)
        except Lost as lost:
            if lost.late:
                self.deadline.lost()
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

    def _uuid(self, row: Row) -> str:
        try:
            return ovsrows.uuid(row["_uuid"])
        except (MalformedError, KeyError) as problem:
            raise self._nonsense(problem) from problem

    def _nonsense(self, why: object) -> Lost:
        self.close()
        return Lost(f"OVSDB at {self.rpc.path} gives an answer that makes no sense: {why}")
