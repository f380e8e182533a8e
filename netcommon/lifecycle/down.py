"""down: the site's scripts first, then each recorded operation reverted on its own."""

from __future__ import annotations

from netcommon.lifecycle import execute, site_scripts
from netcommon.lifecycle.context import ADOPT, HOT_REMOVE, MIGRATE, SHUTDOWN, Outcome, about, alive, any_changed, locks, owe, to_its_end
from netcommon.lifecycle.renamed_device import follow, name_of, on_device, refuse_strange
from netcommon.operations import unusable
from netcommon.operations.base import to_json
from netcommon.operations.link import marked_down, orphan, shut
from runtime import ganeti
from runtime.environment import is_twin
from runtime.errors import HostRefused, Interrupted, NetcommonError, TryAgain
from runtime.lookup import find
from runtime.record import APPLYING, CLOSING, REVERTING, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.operations.base import Operation
    from runtime.environment import DownHint
    from runtime.locks import Locks
    from runtime.record import Record


#: Seconds for which a down waits for locks although its time is over: what it has begun is better ended than left to gc.
PATIENCE = 2.0
#: The contexts in which a NIC leaves this node for good: what was changed of it here goes too.
LEAVING = frozenset({HOT_REMOVE, MIGRATE})


def down(node: Node, hint: DownHint, call: Call) -> Outcome:
    """Takes out of the network the NIC that ``hint`` names. Repeated, late, or for a NIC never seen: that is said, and is no failure.

    Raises HostRefused or TryAgain where something could not be undone; it stays on the record, for the next down, up or gc.
    """
    outcome: Outcome | None = None
    try:
        outcome = _found(node, hint, call)
        return outcome
    finally:
        try:
            give_back(node, call)
        except Interrupted as error:
            if outcome is None:
                raise
            left_undone(call, error)


def _found(node: Node, hint: DownHint, call: Call) -> Outcome:
    device = hint.device
    for _attempt in range(5):
        view = execute.once(node)
        hint = _as_recorded(node, view, hint._replace(device=device))
        found = find(node.store, node.paths, hint)
        named = call.log.bind(hint.instance, hint.index, hint.uuid, hint.device)
        for note in found.notes:
            named.info(note)
        if found.record is None:
            left(node, found.nic.uuid if found.nic is not None else hint.uuid, call)
            if found.nic is not None:
                return Outcome(False, f"{found.nic.label} ({found.how}) was never set up by us: nothing to undo")
            return Outcome(False, f"nothing is known of {_named(hint)}: nothing to undo")
        with locks(node, call) as held:
            held.devices({found.record.device, name_of(node, view, found.record)})
            held.uuids({found.record.uuid})
            record = node.store.read(found.record.key)
            if record is None:
                if node.store.read(found.record.uuid) is None:  # else its guest is back, on another device
                    _forget(node, found.record.uuid, call)
                return Outcome(False, f"{found.record.nic.label} is down already")
            # while we waited for the locks the NIC may have come up on the device that the call names, and here again
            meant = find(node.store, node.paths, hint).record if hint.uuid else record
            if record.device != found.record.device or meant is None or meant.key != record.key:
                continue
            call, view = about(call, record), execute.once(node)
            strange = _another(node, view, device, hint, record, call)
            if strange:
                return Outcome(False, strange)
            return _down(node, view, record, call, held)
    raise TryAgain(f"{_named(hint)} is being moved between devices by others")


def left_undone(call: Call, error: Interrupted) -> None:
    """Say that a call was ended behind its own work: its answer stands, and what was to follow is left for the next call."""
    call.log.warning(f"{error}, after the NIC's own work: what other NICs and the network are to have of it is left for the next call")


def give_back(node: Node, call: Call) -> None:
    """Restore the routes that other NICs have lost to those that have let go of them (``owe``): in this call, or in one that was killed.

    Call without locks, at the end of whatever changes NICs (netcommon.lifecycle.check.restore).
    """
    if node.store.owes():
        from netcommon.lifecycle.check import restore  # where two NICs have one address

        restore(node, call)


def _as_recorded(node: Node, view: View, hint: DownHint) -> DownHint:
    """``hint`` with the name that its device has on record, where that was renamed since."""
    record = on_device(node, view, hint.device) if hint.device else None
    return hint if record is None else hint._replace(device=record.device)


def _another(node: Node, view: View, named: str, hint: DownHint, record: Record, call: Call) -> str:
    """Say why a call about the device ``named`` leaves the NIC alone, whose device is another one; "" where it does not.

    The call comes late, after a migration or a start that has ended, or means another NIC. What is held is undone when its device goes.
    """
    link = view.link_at(record.ifindex) if alive(node, view, record) else None
    if not named or link is None or named == link.name:
        return ""
    other = view.link(named)
    if other is None and named in (record.device, record.nic.environment.get("INTERFACE")):
        return ""  # its earlier name, which its hypervisor knows, and which nobody else has
    if link.holders == 0 and (hint.uuid or other is None):
        return ""
    if call.final or (call.parent and node.host.holder(link.name, [call.parent])):
        return ""
    return f"{record.nic.label} is up on {link.name}, and the call is about {named}: nothing was done"


def _named(hint: DownHint) -> str:
    where = f"NIC {hint.index} of {hint.instance}" if hint.instance and hint.index is not None else hint.instance
    return ", ".join(filter(None, (hint.uuid, hint.device, where))) or "this NIC"


def _down(node: Node, view: View, record: Record, call: Call, held: Locks) -> Outcome:
    held_by = holder(node, view, record, call)
    if held_by and not call.final:
        if not record.closing:
            node.store.write(record.closed())
        return Outcome(False, f"{record.device} is still held by {held_by}: {record.nic.label} is closed when the device goes")
    if not record.moved:
        _forget(node, record.uuid, call)  # first: who finishes a down that was cut off does not know where the guest has gone
    finish(node, record, call, held, view)
    return Outcome(True, f"{record.nic.label} is down on {record.device}")


def left(node: Node, uuid: str, call: Call) -> None:
    """Forgets what was changed of a NIC that has left, where gc or the agent has cleaned up before its down came."""
    if uuid and call.context in LEAVING and any_changed(node):
        with locks(node, call) as held:
            held.uuids({uuid})
            if node.store.read(uuid) is None:
                _forget(node, uuid, call)


def _forget(node: Node, uuid: str, call: Call) -> None:
    """Drops what was changed of a NIC, if it leaves this node for good."""
    if call.context in LEAVING and any_changed(node):
        from runtime.kept import plain  # on most nodes nothing was ever changed

        found = plain(node.paths, uuid)
        if found is None or found.local:
            from netcommon.lifecycle.changed_options import forget

            forget(node, uuid, call.log)


def holder(node: Node, view: View, record: Record, call: Call) -> str:
    """Who keeps the guest on the network, "" if nobody does: only then may a shutdown's down undo anything.

    Ganeti 3.2 calls down while the guest still shuts down. QEMU's own downscript is called by the holder itself, which is final.
    """
    if call.context != SHUTDOWN or not alive(node, view, record):
        return ""
    link = view.link_at(record.ifindex)
    if link is None or link.holders < 1:
        return ""
    if call.parent and node.host.holder(link.name, [call.parent]):
        return ""
    pid = ganeti.instance_pid(node.paths, record.nic.instance) if record.nic.instance else 0
    found = node.host.holder(link.name, [pid]) if pid else 0
    return f"process {found}" if found else "its hypervisor"


def _undecided(node: Node, record: Record) -> bool:
    """Tell whether something may be pending of what is kept of a NIC."""
    from runtime.kept import plain

    return is_twin(record.nic) or plain(node.paths, record.uuid) is None


def farewell(node: Node, record: Record, call: Call, known: bool = False) -> Record:
    """Runs the scripts of down, if they are owed, and puts that on the record, which is from now on on its way out.

    ``known``: ``record`` is what is on disk.

    It says so before the first script: a hook killed meanwhile leaves a down that gc finishes, not a NIC that seems to be up.
    """
    if record.state in (UP, CLOSING) and any_changed(node) and _undecided(node, record):
        from netcommon.lifecycle.changed_options import settle

        problems: list[str] = []
        try:
            settle(node, record.nic, problems)  # what is pending is decided as long as the record tells
        except NetcommonError as error:
            problems.append(f"what was changed of it may not be remembered: {error}")
        for problem in problems:
            call.log.error(problem)
    if record.scripts:
        _note(node, record._replace(state=REVERTING, before=None), call)
        site_scripts.Scripts(node, call, record.nic).down()
    earlier, record = record if known else None, record._replace(state=REVERTING, scripts=False, before=None)
    _note(node, record, call, earlier)
    return record


def _note(node: Node, record: Record, call: Call, earlier: Record | None = None) -> None:
    try:
        node.store.write(record, earlier)
    except NetcommonError as error:  # a full disk keeps nobody from cleaning up: the record as it is names every operation
        call.log.warning(f"the record could not be written: {error}")


def finish(node: Node, record: Record, call: Call, held: Locks, view: View | None = None) -> None:
    """Undoes a record whole, under the locks of its device and UUID, and removes it. ``view``: what was seen under these locks.

    The scripts' failures stop nothing. Raises the first failure of an operation after all were tried; those stay on the record.

    A kill while the record was moved aside has left two of the NIC on this device: the other one goes too, or it would be undone under
    whoever has the device next.
    """
    view = view or node.host.view()
    aside = None if record.moved else node.store.read(record._replace(moved=True).key)
    try:
        if aside is not None and (aside.device, aside.boot) == (record.device, record.boot):
            finish(node, aside, call, held, view)
    finally:
        if aside is None or node.store.read(record.key) is not None:  # it is not gone with the other one
            _finish(node, record, call, held, view)


def _finish(node: Node, record: Record, call: Call, held: Locks, view: View) -> None:
    stored, record = record, follow(node, view, record)
    operations = execute.decode(record)[0]
    _shut_strange(node, view, record, operations, call)
    twin = node.store.read(record.uuid) if record.moved else None
    here = twin is not None and (twin.device, twin.ifindex, twin.boot) == (record.device, record.ifindex, record.boot)
    if here and twin and twin.monotonic == record.monotonic:
        _one_of_two(node, record, twin, operations)
        twin = None
    owe(node, record, record.operations, call.log)
    # where the NIC has come back to this device, what it has there now is not undone with what was left of before
    again = execute.decode(twin)[0] if here and twin else []

    def undo() -> None:
        _undo(node, stored, farewell(node, record, call), operations, again, call, held)

    def undo_the_rest() -> None:
        there = node.store.read(record.key)
        if there is not None and there.state == REVERTING:  # else nothing of it has begun
            last = record._replace(state=REVERTING, scripts=False, before=None)
            _undo(node, stored, last, operations, again, call, held)

    to_its_end(undo, undo_the_rest, call.log)


def _undo(
    node: Node, stored: Record, record: Record, operations: Sequence[Operation], again: Sequence[Operation], call: Call, held: Locks
) -> None:
    """Revert the operations of a record and remove it, ``stored`` by its device's former name. ``again``: what is kept."""
    held.lasts(max(call.deadline, node.clock.now() + PATIENCE))  # scripts may have used up all there was
    held.anew(execute.locks_of(operations))  # a device that was renamed since has others than those by which this call began
    if record.device != stored.device:
        for key in set(execute.keys_of(execute.decode(stored)[0])) - set(execute.keys_of(operations)):
            node.store.owners.release(key, record.key)
    left = execute.in_place(execute.in_order(operations))
    if again:
        both, left = left, execute.Among(again).leaves(left)
        its = [operation for operation in both if operation not in left]
        for key in set(execute.keys_of(its)) - set(execute.keys_of(left)):
            node.store.owners.release(key, record.key)
    if record.door == ADOPT:
        # it did not come to its end, which says that the device was not up before: the guest was on the network without us, and stays
        left = [operation for operation in left if not (operation.opens() and operation._asdict()["was"])]
    if node.identity.boot != record.boot:
        left = [orphan(operation) for operation in left]
    try:
        close(node, record, execute.revert(node, left, record.key, call.log), call)
    except NetcommonError:
        tell_by_device(node, record, call)
        raise


def _one_of_two(node: Node, record: Record, twin: Record, operations: Sequence[Operation]) -> None:
    """Remove the other file of a NIC that a kill has left two of, while its record was moved aside: it must not share its own things.

    What the two have in common is the record's own before: a kill on the way would leave it to nobody, and the next NIC that needs it
    would take it for the administrator's. No lock of a key is needed for that: the NIC is an owner before and after.
    """
    execute.claim(node, operations, record.key)
    node.store.remove(twin, record)
    for key in execute.keys_of(operations):
        node.store.owners.release(key, twin.key)


def _shut_strange(node: Node, view: View, record: Record, operations: Sequence[Operation], call: Call) -> None:
    """Shut a device whose name no record may hold, and raise HostRefused: nothing else that goes by its name could be undone.

    The record stays: the rest is undone when the device has another name, or has gone.
    """
    try:
        refuse_strange(node, view, record)
    except HostRefused:
        _note(node, record._replace(state=REVERTING, before=None), call)
        if any(operation.lets_in() for operation in operations):
            execute.apply(node, [shut(record.device, record.ifindex)], call.log)
        raise


def close(node: Node, record: Record, failures: list[execute.Failure], call: Call) -> None:
    """The record of a NIC goes that is undone but for ``failures``. With those, and what we do not know, it stays, and that is raised."""
    here = node.identity.boot == record.boot
    operations, unknown = execute.decode(record)
    if unknown:
        call.log.warning(f"{len(unknown)} operations of {record.key} are of kinds that this version does not know: they are kept on record")
    if failures or unknown:
        failed = [operation for operation, _error in failures]
        kept = [to_json(operation) for operation in operations if operation in failed or (not here and orphan(operation) in failed)]
        node.store.write(record._replace(operations=(*unknown, *kept)))
    if failures:
        raise failures[0][1]
    if unknown:
        raise HostRefused(f"{record.key} keeps what cannot be undone: {'; '.join(sorted(set(map(unusable, unknown))))}")
    living = node.store.read(record.uuid) if record.moved else None
    if node.settings.ganeti_nic_files != "off" and (living is None or living.device != record.device):
        for name in dict.fromkeys((record.device, record.nic.environment.get("INTERFACE", record.device))):  # renamed since, perhaps
            ganeti.remove_nic_file(node.paths, record.nic._replace(interface=name))
    node.store.remove(record)
    if not record.moved:
        _forget(node, record.uuid, call)


def tell_by_device(node: Node, record: Record, call: Call) -> None:
    """Note on the device of a NIC that was undone that it is down, if its record says still that it is up: nothing shall mend it then."""
    try:
        stored = node.store.read(record.key)
        if stored is None or stored.state in (APPLYING, REVERTING) or not alive(node, node.host.view(), record):
            return
        if not any(operation.marks() for operation in execute.decode(record)[0]):
            call.log.error("its record says still that it is up: repeat netcommon down when that can be written, or it is joined again")
            return
        execute.apply(node, [marked_down(record.device, record.ifindex, record.uuid)], call.log)
        call.log.warning(f"its record says still that it is up, and the alias of {record.device} that it is down")
    except NetcommonError as error:
        call.log.error(f"its record says still that it is up, and its device could not be marked: {error}")
