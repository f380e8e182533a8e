"""Records of earlier versions get what their operations lack, where the host or the record itself tells it.

An operation that has got a field since is read with that field's default, which may mean less than is known. What the host was like
before our first change cannot be told any more, and stays unsaid.
"""

from __future__ import annotations

from netcommon.lifecycle import execute
from netcommon.lifecycle.context import about, alive, locks
from netcommon.lifecycle.renamed_device import name_of
from netcommon.operations import from_json
from netcommon.operations.base import UnknownKind, replaced, to_json
from runtime.errors import NetcommonError
from runtime.record import SCHEMA, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.operations.base import Operation
    from runtime.record import Record


def lacking(record: Record) -> bool:
    """Whether an earlier version wrote the record, by its schema or by an operation stored without a field that it has today."""
    return record.schema < SCHEMA or any(_missing(stored) for stored in record.operations)


def backfill(node: Node, key: str, call: Call) -> list[str]:
    """Fills in what can be told of the record ``key``, and writes it in today's schema; changes nothing on the host.

    Returns what was filled in, one line each. What is not up, or whose device is gone, stays as it is: it is read all the same.

    Raises HostRefused or TryAgain.
    """
    seen = node.store.read(key)
    if seen is None or not lacking(seen):
        return []
    with locks(node, call) as held:
        held.devices({seen.device})
        held.uuids({seen.uuid})
        record = node.store.read(key)
        view = node.host.view()
        if record is None or record.device != seen.device or record.state != UP or not alive(node, view, record):
            return []
        if name_of(node, view, record) != record.device:
            return []  # repair comes first
        told: list[str] = []
        operations = tuple(_filled(stored, record, view, about(call, record), told) for stored in record.operations)
        if record.schema < SCHEMA:
            told.append(f"schema {record.schema} became {SCHEMA}")
        if told or operations != record.operations:
            written = record._replace(operations=operations)
            node.store.write(written)
            lasting = execute.decode(written)[0]
            held.keys(execute.keys_of(lasting))  # an earlier version had fewer of them
            execute.claim(node, lasting, record.key)
        return told


def _missing(stored: Mapping[str, object]) -> set[str]:
    """The fields that the operation has today and was stored without; none of one that we do not know."""
    try:
        return set(from_json(stored)._asdict()) - set(stored)
    except UnknownKind:
        return set()


def _filled(stored: Mapping[str, object], record: Record, view: View, call: Call, told: list[str]) -> Mapping[str, object]:
    """``stored`` with what can be told of what it lacks."""
    missing = _missing(stored)
    if not missing:
        return stored
    operation = old = from_json(stored)
    if "device" in missing:
        operation = replaced(operation, device=record.device)
    chosen = missing & (operation.CHOSEN - operation.BEFORE)
    if chosen:
        try:
            like = _like(operation, stored, operation.resolve(view, []))
        except NetcommonError as error:
            call.log.warning(f"its record lacks {', '.join(sorted(missing))} of {old.describe()}, which cannot be told: {error}")
            return stored
        if like is None:
            return stored
        now = like._asdict()
        operation = replaced(operation, **{name: now[name] for name in chosen})
    if operation.shared() != old.shared():
        return stored
    before, after = old._asdict(), operation._asdict()
    changed = ", ".join(f"{name} {after[name]}" for name in sorted(missing) if after[name] != before[name])
    if changed:
        told.append(f"{changed}, of {old.describe()}")
        call.log.info(f"filled in on the record: {told[-1]}")
    made = to_json(operation)
    try:
        return made if from_json(made) == operation else stored
    except UnknownKind:  # an extension's, with a field that no record can hold: what nobody could read again is not written
        return stored


def _like(operation: Operation, stored: Mapping[str, object], resolved: Sequence[Operation]) -> Operation | None:
    """The one of today's that agrees with all that was stored, but for what was there before us."""
    kept = (set(stored) & set(operation._asdict())) - operation.BEFORE
    fields = operation._asdict()
    return next((one for one in resolved if all(one._asdict().get(name) == fields[name] for name in kept)), None)
