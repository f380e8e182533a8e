"""gc: undo what no NIC needs any more. Records whose device is gone or whose hook died, then whatever bears our mark and is on none.

Nothing is deleted before the whole picture was read: first the host, then the records, so that what a hook makes meanwhile is on a
record by the time we look for its owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from netcommon.host.base import View
from netcommon.lifecycle import steps
from netcommon.lifecycle.down import finish
from netcommon.lifecycle.node import DEVICE_GONE, Call, Node, about, alive, locks
from netcommon.operations import KINDS, kind
from netcommon.operations.base import Owned
from netcommon.operations.link import marked
from runtime.errors import NetcommonError, TryAgain
from runtime.record import APPLYING, CLOSING, REVERTING, Record


class Found(NamedTuple):
    """One thing gc found: what it is, why it goes or stays, and what became of it."""

    text: str
    why: str
    action: str  #: "removed", "would be removed", "kept", "failed"


def gc(node: Node, call: Call, dry_run: bool = False, progress: Callable[[str], None] = lambda text: None) -> list[Found]:
    """Collects; ``dry_run`` only says. Raises TryAgain or HostRefused if the inventory is not complete: then nothing was deleted."""
    progress("reading the host")
    view = node.host.snapshot()
    view.links()
    owned = [thing for name in KINDS for thing in kind(name).owned(view)]
    progress("reading the records")
    records, problems = node.store.all()
    found = [Found(problem, "not readable", "kept") for problem in problems]
    for record in records:
        why = _abandoned(node, view, record)
        if why:
            progress(f"{record.nic.label} on {record.device}")
            found.append(Found(f"{record.nic.label} ({record.key}) on {record.device}", why, "would be removed"))
            if not dry_run:
                found[-1] = found[-1]._replace(action=_collect(node, record, call))
    found += _unrecorded(node, view, owned, records, call, dry_run)
    if not dry_run:
        node.store.clean_temporary(node.clock.wall())  # before the folders they lie in are looked at
        node.store.owners.sweep()
        node.store.clean_links(node.clock.wall())
    return found


def _abandoned(node: Node, view: View, record: Record, locked: bool = False) -> str:
    """Why nobody needs ``record`` any more; "" if somebody may. ``locked``: we hold its lock, so no hook is at work on it."""
    if record.boot == node.identity.boot and record.netns != node.identity.netns:
        return ""  # another node on this machine
    if not alive(node, view, record):
        return "made before this boot" if record.boot != node.identity.boot else "its device is gone"
    if record.state in (APPLYING, REVERTING) and (locked or not _at_work(node, record.uuid)):
        return f"a hook died while {record.state} it"
    link = view.link_at(record.ifindex)
    if record.state == CLOSING and link is not None and link.holders == 0:
        return "it is closing, and nobody holds its device any more"
    return ""


def _at_work(node: Node, uuid: str) -> bool:
    """Whether a hook holds the NIC's lock just now."""
    now = node.clock.now
    if node.store.readonly:
        return False  # nothing is done on this word
    with node.store.locks(now(), now, node.clock.sleep) as asked:
        return asked.held(uuid)


def _collect(node: Node, record: Record, call: Call) -> str:
    """Undoes an abandoned record under its locks, after a second look. A NIC that is being worked on is left alone."""
    now, call = node.clock.now(), about(call, record)
    short = call._replace(context=DEVICE_GONE, deadline=min(call.deadline, now + 0.2))
    try:
        with locks(node, short) as held:
            held.devices({record.device})
            held.uuids({record.uuid})
            current = node.store.read(record.key)
            if current is None:
                return "removed"
            if not _abandoned(node, node.host.view(), current, locked=True):
                return "kept"
            limit = min(call.deadline, node.clock.now() + node.settings.hook_timeout)
            finish(node, current, call._replace(context=DEVICE_GONE, deadline=limit), held)
            return "removed"
    except TryAgain as error:
        call.log.warning(str(error))
        return "kept"
    except NetcommonError as error:
        call.log.error(str(error))
        return "failed"
    except Exception as error:  # one record must not keep the others from being collected
        call.log.error(f"{type(error).__name__}: {error}")
        return "failed"


def _unrecorded(node: Node, view: View, owned: list[Owned], records: list[Record], call: Call, dry_run: bool) -> list[Found]:
    """What bears our mark and is on no record.

    It stays while its device is there and no record tells of that device but one may have been lost (quarantine, a newer version's
    record): the guest may be alive behind it.
    """
    held = {operation.identity() for record in records for operation in steps.decode(record)[0]}
    told = {record.device for record in records}
    lost = bool(node.store.quarantined())
    found = []
    for thing in owned:
        if thing.identity in held:
            continue
        link = view.link(thing.device) if thing.device else None
        if link and thing.device not in told and (lost or (marked(link) and link.holders != 0)):
            found.append(Found(thing.text, f"on no record, but {thing.device} is there: adopt it, or down it", "kept"))
            continue
        found.append(Found(thing.text, "on no record", "would be removed"))
        if not dry_run:
            found[-1] = found[-1]._replace(action=_remove(node, thing, call))
    return found


def _remove(node: Node, thing: Owned, call: Call) -> str:
    """Removes one unrecorded thing under its device's lock, if still no record holds it."""
    call = call._replace(log=call.log.bind(uuid=thing.owner, tap=thing.device))
    try:
        with locks(node, call._replace(deadline=min(call.deadline, node.clock.now() + 0.2))) as held:
            held.devices({thing.device} if thing.device else set())
            record = node.store.by_device(thing.device) if thing.device else None
            if record and any(operation.identity() == thing.identity for operation in steps.decode(record)[0]):
                return "kept"
            answers = node.host.execute(thing.requests, stop=False)
    except NetcommonError as error:
        call.log.warning(f"{thing.text}: {error}")
        return "kept"
    for request, answer in zip(thing.requests, answers, strict=True):
        if not answer.ok and answer.errno not in request.gone:
            call.log.error(f"{thing.text}: {answer.text}")
            return "failed"
    call.log.info(f"removed, on no record: {thing.text}")
    return "removed"


def collect_instance(node: Node, instance: str, call: Call) -> list[Found]:
    """Undoes the abandoned records of one instance: what a hypervisor that calls no script on the way down leaves."""
    view = node.host.view()
    records, _problems = node.store.all()
    found = []
    for record in records:
        why = _abandoned(node, view, record) if record.nic.instance == instance else ""
        if why:
            found.append(Found(f"{record.nic.label} ({record.key}) on {record.device}", why, _collect(node, record, call)))
    return found
