"""check: what of a NIC's record does not hold on the host. repair: make it hold again."""

from __future__ import annotations

from typing import NamedTuple

from netcommon.host.base import View
from netcommon.lifecycle import steps
from netcommon.lifecycle.node import Call, Node, Outcome, alive, locks
from netcommon.operations.base import Operation, intent, to_json
from runtime.errors import HostRefused
from runtime.record import UP, Record


class Report(NamedTuple):
    """What check found of one record."""

    record: Record
    alive: bool  #: its device is there
    drift: tuple[tuple[str, str], ...]  #: operation and what differs, in words
    unknown: tuple[str, ...]  #: kinds of operations that this version cannot check

    @property
    def good(self) -> bool:
        return self.alive and self.record.state == UP and not self.drift and not self.unknown


def check(node: Node, view: View, record: Record) -> Report:
    """Verifies every operation of ``record`` against ``view``, which may be a snapshot. Changes nothing."""
    operations, unknown = steps.decode(record)
    there = alive(node, view, record)
    drift = steps.drift(view, operations) if there else []
    kinds = tuple(str(stored.get("kind")) for stored in unknown)
    return Report(record, there, tuple((operation.describe(), text) for operation, text in drift), kinds)


def repair(node: Node, key: str, call: Call) -> Outcome:
    """Applies those operations of the record ``key`` that do not hold: what was recorded, whatever today's settings say.

    Raises HostRefused or TryAgain; nothing that held is touched.
    """
    seen = node.store.read(key)
    if seen is None:
        return Outcome(False, f"there is no record {key}")
    with locks(node, call) as held:
        held.devices({seen.device})
        held.uuids({seen.uuid})
        record = node.store.read(key)
        if record is None or record.device != seen.device:
            return Outcome(False, f"{seen.nic.label} was changed by another call meanwhile")
        view = node.host.view()
        if not alive(node, view, record):
            return Outcome(False, f"{record.nic.label}: its device {record.device} is gone, which gc cleans up after")
        if record.state != UP:
            raise HostRefused(f"{record.nic.label} is {record.state}, not up: nothing is repaired")
        operations, unknown = steps.decode(record)
        held.keys(steps.keys_of(operations))
        planned: dict[object, Operation] = {intent(operation): operation for operation in operations}
        resolved = steps.resolve(node, view, planned.values(), operations, record.key, call.log)
        todo = [operation for operation, _text in steps.drift(view, resolved)]
        if not todo:
            return Outcome(False, f"{record.nic.label} on {record.device} is as it should be")
        node.store.write(record._replace(operations=(*unknown, *map(to_json, resolved))))
        steps.claim(node, resolved, record.key)
        steps.apply(node, todo, call.log)
        again = [f"{operation.describe()}: {text}" for operation, text in steps.drift(node.host.view(), todo)]
        if again:
            raise HostRefused("repaired, but it does not hold: " + "; ".join(again))
        return Outcome(True, f"{record.nic.label} on {record.device}: repaired " + "; ".join(step.describe() for step in todo))
