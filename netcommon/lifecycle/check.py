"""check: what of a NIC's record does not hold on the host. repair: make it hold again."""

from __future__ import annotations

from netcommon.lifecycle import effects, steps
from netcommon.lifecycle.incoming import arrived, owed
from netcommon.lifecycle.node import Outcome, alive, locks
from netcommon.operations.base import intent, to_json
from netcommon.operations.bridge import BridgePort
from netcommon.operations.vlan import PortVlans
from runtime.errors import HostRefused
from runtime.record import UP
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.base import View
    from netcommon.lifecycle.node import Call, Node
    from netcommon.operations.base import Operation
    from runtime.record import Record


class Report(NamedTuple):
    """What check found of one record."""

    record: Record
    alive: bool  #: its device is there
    drift: tuple[tuple[str, str], ...]  #: operation and what differs, in words
    unknown: tuple[str, ...]  #: kinds of operations that this version cannot check
    owed: tuple[str, ...] = ()  #: what is to be done when its guest, which is still migrating in, is here

    @property
    def good(self) -> bool:
        return self.alive and self.record.state == UP and not self.drift and not self.unknown


def check(node: Node, view: View, record: Record, known: steps.Known | None = None) -> Report:
    """Verifies every operation of ``record`` against ``view``, which may be a snapshot. Changes nothing. ``known``: as for steps.drift."""
    operations, unknown = steps.decode(record)
    there = alive(node, view, record)
    drift = steps.drift(view, operations, known) if there else []
    kinds = tuple(str(stored.get("kind")) for stored in unknown)
    later = owed(node, record)
    if there and arrived(node, record):
        drift += [(operation, "owed, for its guest has arrived") for operation in later]
        later = []
    differs = tuple((operation.describe(), text) for operation, text in drift)
    return Report(record, there, differs, kinds, tuple(operation.describe() for operation in later))


def repair(node: Node, key: str, call: Call, wanted: Callable[[Operation], bool] = lambda operation: True) -> Outcome:
    """Applies those operations of the record ``key`` that do not hold and are ``wanted``: what was recorded, whatever today's settings say.

    What was owed while the guest was migrating in is done if it is here. Raises HostRefused or TryAgain; nothing that held is touched.
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
            raise HostRefused(f"{record.nic.label} is {record.state}, not up", "nothing is repaired; netcommon explain says what to do")
        operations, unknown = steps.decode(record)
        here = arrived(node, record)
        all_of_it = [*operations, *(owed(node, record) if here else ())]
        held.keys(steps.keys_of(all_of_it))
        view = steps.once(node)
        planned: dict[object, Operation] = {intent(operation): operation for operation in all_of_it}
        resolved, refused = steps.resolve_each(node, view, planned.values(), operations, record.key, call.log)
        stuck = [old for old in resolved if any(intent(old) == intent(one) for one, _why in refused)]
        # what was found elsewhere before: on an uplink that is none any more, or one that has only lost its default route for now
        elsewhere = [old for old in operations if not any(steps.same(old, new) for new in resolved)]
        outdated = [operation for operation, _text in steps.drift(view, elsewhere) if wanted(operation)]
        resolved += [old for old in elsewhere if old not in outdated]
        drifted = [operation for operation, _text in steps.drift(view, resolved) if wanted(operation)]
        todo = [operation for operation in drifted if operation not in stuck]
        hopeless = [str(why) for one, why in refused if wanted(one) and not _holds(one, stuck, drifted)]
        stale = [operation for operation, _text in steps.drift(view, operations) if wanted(operation) and operation not in stuck]
        if not (todo or outdated or here or stale):
            if hopeless:
                raise HostRefused("; ".join(hopeless))
            return Outcome(False, f"{record.nic.label} on {record.device} is as it should be")
        later = any(one.exclusive() for one, _why in refused)
        record = record._replace(incoming=record.incoming and (later or not here))
        node.store.write(record._replace(operations=(*unknown, *map(to_json, [*resolved, *outdated]))))
        steps.claim(node, resolved, record.key)
        failures = steps.revert(node, [old for old in outdated if steps.superseded(old, resolved) is None], record.key, call.log)
        if failures:
            raise failures[0][1]
        try:
            steps.apply(node, _joining(record, todo, resolved), call.log)
        except HostRefused as problem:
            raise HostRefused("; ".join([*hopeless, str(problem)])) from problem
        if outdated:
            node.store.write(record._replace(operations=(*unknown, *map(to_json, resolved))))
            for key in set(steps.keys_of(outdated)) - set(steps.keys_of(resolved)):
                node.store.owners.release(key, record.key)
            steps.claim(node, resolved, record.key)
        again = [f"{operation.describe()}: {text}" for operation, text in steps.drift(steps.once(node), todo)]
        if again or hopeless:
            raise HostRefused("; ".join([*hopeless, *(["repaired, but it does not hold", *again] if again else [])]))
    effects.arrived(node, record, call.log)
    did = "; ".join(step.describe() for step in todo or outdated) or "nothing more was to be done"
    return Outcome(True, f"{record.nic.label} on {record.device}: {'its guest has arrived: ' if here else 'repaired '}{did}")


def _holds(refused: Operation, stuck: list[Operation], drifted: list[Operation]) -> bool:
    """Whether what the host refuses to be done anew is there as it was."""
    as_it_was = [operation for operation in stuck if intent(operation) == intent(refused)]
    return bool(as_it_was) and not any(operation in drifted for operation in as_it_was)


def _joining(record: Record, todo: list[Operation], resolved: list[Operation]) -> list[Operation]:
    """What is to be done; where a tap that has VLANs joins its bridge again, it is down meanwhile."""
    down = steps.shut(record)
    if not any(operation.KIND == BridgePort.KIND for operation in todo) or not any(each.KIND == PortVlans.KIND for each in resolved):
        return todo
    return [down, *(operation for operation in resolved if operation in todo or operation.place() == down.place())]
