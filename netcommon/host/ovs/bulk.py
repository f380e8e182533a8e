"""Ports of many NICs in one transaction of Open vSwitch's database, and one wait for ovs-vswitchd.

Only what is as plain as with thousands of NICs at a node's start: new ports of real bridges, and ports that go and have no limits of
ours. What is not, and all ports of a transaction that is refused or whose answer is lost, are changed one by one as if they were alone.
"""

from __future__ import annotations

from netcommon.host.api.facts import OVS_MARK
from netcommon.host.api.host import DONE
from netcommon.host.api.requests import DeleteOvsPort, PutOvsPort, ReleaseOvsPort
from netcommon.host.ovs import rows as ovsrows
from netcommon.host.ovs import transaction as ovschange
from netcommon.host.ovs.rows import select
from netcommon.host.rtnetlink.attributes import MalformedError
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from netcommon.host.api.host import Answer
    from netcommon.host.api.requests import OvsChange
    from netcommon.host.ovs.client import Ovsdb
    from netcommon.host.ovs.rows import Operation

#: So many ports at once: vswitchd takes them within the time limit of one also where it is slow.
MOST = 64


def execute_all(database: Ovsdb, changes: Sequence[OvsChange]) -> list[Answer]:
    """What became of each change, as ``database.execute`` says it."""
    found: dict[int, Answer] = {}
    if len({_name(change) for change in changes}) == len(changes) > 1:
        for some in _parts([number for number, change in enumerate(changes) if isinstance(change, PutOvsPort)]):
            found.update(_put(database, {number: change for number in some if isinstance(change := changes[number], PutOvsPort)}))
        for some in _parts([number for number, change in enumerate(changes) if isinstance(change, DeleteOvsPort)]):
            found.update(_deleted(database, {number: change for number in some if isinstance(change := changes[number], DeleteOvsPort)}))
    return [found[number] if number in found else database.execute(change) for number, change in enumerate(changes)]


def _name(change: OvsChange) -> str:
    if isinstance(change, ReleaseOvsPort):
        return change.made.name
    return change.port.name if isinstance(change, PutOvsPort) else change.name


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[start : start + MOST] for start in range(0, len(numbers), MOST))


def _put(database: Ovsdb, changes: dict[int, PutOvsPort]) -> Iterable[tuple[int, Answer]]:
    """The ports that could be made together, by number."""
    try:
        taken = {port.name for port in database.ports()}
        real = {switch.name for switch in database.switches()}
        new = {number: change.port for number, change in changes.items() if change.port.name not in taken and change.port.bridge in real}
        operations = [
            operation
            for number, port in new.items()
            for operation in ovschange.put(port, None, ovschange.Standing(), str(number)).operations[: -ovschange.COUNTING]
        ]
        if len(new) < 2 or not database.together(operations, f"{len(new)} ports"):
            return []
        there = {port.name: port for port in database.ports()}
    except TryAgain:
        return []
    said = [(number, ovsrows.said_of(there.get(port.name), port)) for number, port in new.items()]
    return [(number, answer) for number, answer in said if answer is not None and answer.ok and database.attached(new[number].name)]


def _deleted(database: Ovsdb, changes: dict[int, DeleteOvsPort]) -> Iterable[tuple[int, Answer]]:
    """The ports that could be deleted together, by number."""
    try:
        rows = _plain_ports(database)
        found = {number: row for number, change in changes.items() if (row := rows.get((change.name, change.owner)))}
        operations: list[Operation] = [ovschange.take_out(row) for row in found.values()]
        wait = any(changes[number].wait for number in found)
        if len(found) < 2 or not database.together(operations, f"{len(found)} ports removed", wait, gone=True):
            return []
    except TryAgain:
        return []
    return [(number, DONE) for number in found]


def _plain_ports(database: Ovsdb) -> dict[tuple[str, str], str]:
    """The UUIDs of the rows of our ports without limits of ours, by name and owner. Raises TryAgain."""
    asked = [
        select("Port", ["_uuid", "name", "external_ids"]),
        select("Interface", ["name", "external_ids"]),
        select("QoS", ["external_ids"]),
    ]
    ports, interfaces, shapers = database.rows(asked)
    try:
        policed = {row["name"] for row in interfaces if ovsrows.POLICED in dict(ovsrows.a_map(row["external_ids"]))}
        shaped = {dict(ovsrows.a_map(row["external_ids"])).get(ovsrows.SHAPED, "") for row in shapers}
        owners = {
            (ovsrows.word(row["name"]), owner): ovsrows.uuid(row["_uuid"])
            for row in ports
            if (owner := dict(ovsrows.a_map(row["external_ids"])).get(OVS_MARK, ""))
        }
    except (MalformedError, KeyError):
        return {}
    return {names: row for names, row in owners.items() if names[0] not in policed | shaped}
