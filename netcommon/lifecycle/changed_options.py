"""The options of a NIC that were changed while it ran (runtime.wanted), as the lifecycle meets them: those in force, and those that end."""

from __future__ import annotations

from netcommon.lifecycle.context import any_changed
from runtime.environment import described_uuid, emulated_uuid, is_twin
from runtime.errors import HostRefused, NetcommonError, NicInvalid
from runtime.nic import LOCAL
from runtime.record import CLOSING, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from runtime.nic import Changed, Nic
    from runtime.record import Record
    from runtime.wanted import Moment, Wanted


def moment(node: Node) -> Moment:
    """Give the time as both clocks have it."""
    from runtime.wanted import Moment

    return Moment(node.identity.boot, node.clock.now(), node.clock.wall())


def in_force(node: Node, nic: Nic, log: Log) -> tuple[Changed, ...]:
    """Give what was changed of ``nic`` and has not ended. A file that is damaged is put aside, and that is an error in the log.

    Nothing counts as changed where others could have written it, or where it cannot be read; that is an error in the log too.
    """
    if not any_changed(node):
        return ()
    from netcommon.options.tags import of_changed
    from runtime import wanted

    problems: list[str] = []
    try:
        found = settle(node, nic, problems).force(moment(node))
    except HostRefused as error:
        log.error(f"{nic.label} has its tags' and settings' options, whatever was changed: {error}")
        return ()
    try:
        list(of_changed(found))
    except NicInvalid as error:
        problems.append(str(error) if node.store.readonly else wanted.set_aside(node.paths, kept_uuid(node, nic), str(error)))
        found = ()
    for problem in problems:
        log.error(problem)
    return found


def read(node: Node, uuid: str, problems: list[str], look: bool = False) -> Wanted:
    """Give what is wanted of the NIC (runtime.wanted.read), with what was pending decided. ``look``: a damaged file stays."""
    from runtime import wanted

    return decided(node, uuid, wanted.read(node.paths, uuid, problems, look or node.store.readonly))


def settle(node: Node, nic: Nic, problems: list[str]) -> Wanted:
    """As ``read``; what became of what is pending is on disk then. Under the lock of the UUID, before the record says something else.

    An emulated twin has what its NIC has; it writes nothing, since the lock of that is not held for it.
    """
    from runtime import wanted

    uuid = kept_uuid(node, nic)
    found = wanted.read(node.paths, uuid, problems, node.store.readonly)
    settled = decided(node, uuid, found)
    if settled != found and uuid == nic.uuid and not node.store.readonly:
        try:
            wanted.write(node.paths, uuid, settled)
        except NetcommonError as error:  # a full disk: it is decided again by whoever reads it next
            problems.append(f"what was changed may not be remembered: {error}")
    return settled


def decided(node: Node, uuid: str, found: Wanted) -> Wanted:
    """Say what became of what is pending: a change holds from the moment when the NIC's record says so, and a kill may come right then."""
    if found.pending is None:
        return found
    try:
        record = node.store.read(uuid)
    except NetcommonError:
        record = None
    has = {each.option: (each.value, each.until) for each in record.nic.wanted if each.source == LOCAL} if record is not None else None
    pending = {each.option: (each.value, each.until) for each in found.pending_force}
    held = record is not None and record.state in (UP, CLOSING) and has == pending
    return found._replace(local=found.pending if held else found.local, pending=None)


def kept_uuid(node: Node, nic: Nic) -> str:
    """Give the UUID under which is kept what was changed of ``nic``: of an emulated twin of Xen's its NIC's.

    A twin whose variables are damaged on record is known by its own UUID, which is made from that of its NIC. Raises HostRefused where
    that is on no record either: nobody can tell then what is kept of the twin.
    """
    uuid = described_uuid(nic) if is_twin(nic) else nic.uuid
    if not uuid:
        of_instance = (each.nic for each in node.store.each([]) if each.nic.instance == nic.instance)
        uuid = next((one.uuid for one in of_instance if emulated_uuid(one.instance, one.index, one.uuid) == nic.uuid), "")
    if not uuid:
        what = f"the record of {nic.label} on {nic.interface}, an emulated twin, is damaged"
        raise HostRefused(f"{what}: it does not say of which NIC", "start the guest anew")
    return uuid


def twin_of(node: Node, nic: Nic) -> Record | None:
    """Give the record of the emulated twin of a NIC of Xen; None where there is none."""
    if nic.index is None or "XENBUS_PATH" not in nic.environment:
        return None
    return node.store.read(emulated_uuid(nic.instance, nic.index, nic.uuid))


def forget(node: Node, uuid: str, log: Log) -> None:
    """Drop what was changed of a NIC that has left this node for good, unless it is up in another network namespace."""
    if any_changed(node):
        from runtime import wanted

        try:
            if not node.store.elsewhere(uuid) and wanted.remove(node.paths, uuid):
                log.info("the options that were changed on this node are forgotten")
        except NetcommonError as error:
            log.error(f"the options that were changed on this node are kept: {error}")
