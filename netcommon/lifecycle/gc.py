"""gc: undo what no NIC needs any more: abandoned records (netcommon.lifecycle.abandoned), then whatever bears our mark and is on none.

Nothing is deleted before the whole picture was read (netcommon.lifecycle.inventory). Before each deletion there is a second look,
under locks.
"""

from __future__ import annotations

from netcommon.lifecycle import execute, inventory
from netcommon.lifecycle.abandoned import UNRECORDED, abandoned
from netcommon.lifecycle.context import DEVICE_GONE, about, locks
from netcommon.lifecycle.down import finish, give_back, left
from netcommon.lifecycle.ends import OVER, UNKEPT, OthersKept, end_due, nothing_passed
from netcommon.lifecycle.renamed_device import name_of
from runtime.errors import NetcommonError, TryAgain
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.lifecycle.context import Call, Node, Outcome
    from netcommon.lifecycle.ends import Passes
    from netcommon.operations.base import Owned
    from runtime.record import Record

#: What became of a thing that was found.
REMOVED, WOULD, KEPT, FAILED = "removed", "would be removed", "kept", "failed"

#: Why a record in quarantine stays, and what comes of it.
QUARANTINED = (
    "a record that does not parse: what NICs add to uplinks (VLANs, switches) stays while it is there; when its NIC is up anew, or gone, "
    "delete the file"
)

#: Seconds that gc waits for a lock: a NIC that is being worked on is left for the next time.
PATIENCE = 0.2


class Found(NamedTuple):
    """One thing gc found: what it is, why it goes or stays, and what became of it."""

    text: str
    why: str
    action: str  #: REMOVED, WOULD, KEPT or FAILED


def gc(
    node: Node,
    call: Call,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    passes: Passes = nothing_passed,
) -> list[Found]:
    """Collects; ``dry_run`` only says, of a node that is read only. ``passes``: of options that end (netcommon.lifecycle.ends).

    Raises TryAgain or HostRefused if the inventory is not complete: then nothing was deleted.
    """
    ended = [_ended(uuid, became, dry_run) for uuid, became in end_due(node, call, passes)]
    progress("reading the host")
    seen = inventory.look(node)
    progress("reading the records")
    aside = node.store.quarantined()  # what goes there now is among the problems
    known = inventory.records(node)
    found = [*ended, *(Found(problem, "not readable", KEPT) for problem in known.problems)]
    found += [Found(f"quarantine/{name}", QUARANTINED, KEPT) for name in aside]
    for record in known.all:
        why = abandoned(node, seen.view, record)
        if why:
            progress(f"{record.nic.label} on {record.device}")
            found.append(Found(named(record), why.text, WOULD if dry_run else collect(node, record, call)))
    again: inventory.Records | None = None
    for thing, stays in inventory.unrecorded(seen, known):
        action = KEPT if stays else WOULD
        if not (stays or dry_run):
            again = again or inventory.records(node)
            action = remove(node, thing, again, call)
        found.append(Found(thing.text, stays or UNRECORDED.text, action))
    if not dry_run:
        give_back(node, call)
        tidy(node)
    return found


def _ended(uuid: str, became: Outcome | NetcommonError, dry_run: bool) -> Found:
    what = f"changed options of NIC {uuid}"
    if isinstance(became, NetcommonError):
        return Found(what, str(became), KEPT if isinstance(became, TryAgain) else FAILED)
    return Found(what, UNKEPT if isinstance(became, OthersKept) else OVER, WOULD if dry_run else REMOVED)


def named(record: Record) -> str:
    """A record for people: its NIC, its key, its device."""
    return f"{record.nic.label} ({record.key}) on {record.device}"


def collect(node: Node, record: Record, call: Call) -> str:
    """Undoes an abandoned record under its locks, after a second look. A NIC that is being worked on is left alone.

    Returns REMOVED, also where it is gone already; KEPT where somebody needs it or is at work on it; FAILED where something of it could
    not be undone, which stays on the record and is in the log. Never raises; ends with ``call.deadline`` and one hook's time limit.
    """
    call = about(call, record)
    action = _collected(node, record, call)
    try:
        give_back(node, call)
    except Exception as error:  # one record must not keep the others from being collected
        call.log.error(str(error) if isinstance(error, NetcommonError) else f"{type(error).__name__}: {error}")
    return action


def _collected(node: Node, record: Record, call: Call) -> str:
    now = node.clock.now()
    short = call._replace(context=DEVICE_GONE, deadline=min(call.deadline, now + PATIENCE))
    try:
        with locks(node, short) as held:
            held.devices({record.device, name_of(node, node.host.view(), record)})
            held.uuids({record.uuid})
            current = node.store.read(record.key)
            if current is None:
                return REMOVED
            if not abandoned(node, node.host.view(), current, locked=True):
                return KEPT
            limit = min(call.deadline, node.clock.now() + node.settings.hook_timeout)
            finish(node, current, call._replace(context=DEVICE_GONE, deadline=limit), held)
            return REMOVED
    except TryAgain as error:
        call.log.warning(str(error))
        return KEPT
    except NetcommonError as error:
        call.log.error(str(error))
        return FAILED
    except Exception as error:  # one record must not keep the others from being collected
        call.log.error(f"{type(error).__name__}: {error}")
        return FAILED


def remove(node: Node, thing: Owned, again: inventory.Records, call: Call) -> str:
    """Removes one thing that was on no record, under the locks of its device, of the NIC that its mark names, and of what NICs share.

    A NIC may have come since the records were read that has it on its own: it stays.

    ``again``: the records, read anew since. Returns REMOVED, KEPT or FAILED; never raises NetcommonError.
    """
    if thing.identity in again.held:
        return KEPT
    call = call._replace(log=call.log.bind(uuid=thing.owner, tap=thing.device))
    try:
        with locks(node, call._replace(deadline=min(call.deadline, node.clock.now() + PATIENCE))) as held:
            held.devices({thing.device} if thing.device else set())
            held.uuids({thing.owner} if thing.owner else set())
            if thing.detached and node.host.view().link(thing.device) is not None:
                return KEPT
            for record in (node.store.by_device(thing.device), node.store.read(thing.owner)):
                if record and any(operation.identity() == thing.identity for operation in execute.decode(record)[0]):
                    return KEPT
            held.keys(thing.shared)
            if any(node.store.owners.others(key, "") for key in thing.shared):
                return KEPT
            answers = node.host.execute(thing.requests, stop=False)
    except NetcommonError as error:
        call.log.warning(f"{thing.text}: {error}")
        return KEPT
    for request, answer in zip(thing.requests, answers, strict=True):
        if not answer.ok and answer.errno not in request.gone:
            call.log.error(f"{thing.text}: {answer.text}")
            return FAILED
    call.log.info(f"removed, on no record: {thing.text}")
    return REMOVED


def tidy(node: Node) -> None:
    """Removes what killed processes left among our own files: temporary files, claims and links of records that do not exist."""
    node.store.clean_temporary(node.clock.wall(), modified=node.clock.modified)  # before the folders they lie in are looked at
    node.store.owners.sweep()
    node.store.clean_links(node.clock.wall(), modified=node.clock.modified)


def collect_instance(node: Node, instance: str, call: Call) -> list[Found]:
    """Undoes the abandoned records of one instance: what a hypervisor that calls no script on the way down leaves.

    ``call``: its context tells whether the NICs leave this node for good; then what was changed of them goes too.
    """
    view = node.host.view()
    found = []
    for record in node.store.each([]):
        why = abandoned(node, view, record) if record.nic.instance == instance else None
        if why:
            found.append(Found(named(record), why.text, collect(node, record, call)))
            left(node, record.uuid, about(call, record))
    return found
