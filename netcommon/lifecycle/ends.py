"""End options that were changed for a while (runtime.wanted), when their time is over: the NICs are what they would be without."""

from __future__ import annotations

from netcommon.lifecycle import changed_options
from netcommon.lifecycle.abandoned import at_work
from netcommon.lifecycle.context import Outcome, about, alive, any_changed, locks, usable
from netcommon.options.model import INSTANCE_COMMUNICATION, mode_of
from netcommon.scripts import site as custom
from runtime import wanted
from runtime.environment import is_twin
from runtime.errors import NetcommonError, RecordTooNew, TryAgain, typed
from runtime.record import CHANGING, CLOSING, UP
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from netcommon.lifecycle.context import Call, Node
    from runtime.record import Record
    from runtime.wanted import Moment, Wanted

    #: What became of a NIC's options, by its UUID.
    Ended = tuple[str, Outcome | NetcommonError]

    #: Tells of a NIC that has something to end, by its UUID and what is wanted of it, whether it is passed over this time.
    Passes = Callable[[str, Wanted], bool]

#: Of the time that a hook has left, the part that it has for other NICs: at most so many seconds, and at most such a share.
LONGEST, SHARE = 0.2, 0.1

#: Seconds that a hook waits for a lock of another NIC, and whoever has more time: one that is being worked on is left for the next time.
PATIENCE, LONG_PATIENCE = 0.2, 1.0

#: The modes whose NICs need a service beside the kernel, which may not answer: Open vSwitch, and a daemon that is started.
SERVED = frozenset({"openvswitch", INSTANCE_COMMUNICATION})

#: Why options go: their time is over, or (OthersKept) what is kept of the NIC is something else.
OVER, UNKEPT = "their time is over", "they are not those that are kept"

#: What is said where nobody can tell whether something has ended.
LASTING = "options that were changed for a while may last longer"


def nothing_passed(_uuid: str, _there: Wanted) -> bool:
    """Pass over no NIC."""
    return False


class OthersKept(Outcome):
    """Say what became of a NIC that had other options than are kept of it, whether they were for a while or for good."""


class Haste(NamedTuple):
    """How little time there is for one of many NICs."""

    patience: float  #: how long its locks are waited for (seconds), besides the call's own deadline
    hook: bool = False  #: a hook's, which was called for another NIC: nothing is begun that may last


def end_due(node: Node, call: Call, passes: Passes = nothing_passed) -> list[Ended]:
    """End all that has ended, but of the NICs that ``passes`` passes over; return what became of each.

    What fails of one NIC, whatever it is, keeps no other from its end: its locks are waited for LONG_PATIENCE, and its scripts have a
    hook's time limit. Raises no NetcommonError.

    An end that was set in an earlier boot is written down by this boot's clock too, and so is what became of a change whose file was
    written no more. A NIC that has what no file holds loses that too, and
    an emulated twin of Xen's gets what its NIC has.

    Where the store is read only nothing is done: each outcome is what would become of the NIC.
    """
    found: list[Ended] = []
    if not any_changed(node):
        return found
    now, problems = changed_options.moment(node), list[str]()
    try:
        if node.store.readonly:
            _look_at_all(node, now, call, found, passes)
        else:
            pending: list[str] = []
            if not wanted.due(node.paths, now):
                pending = wanted.note_ends(node.paths)  # the link that tells of them may be lost
            if wanted.due(node.paths, now):
                _look_at_all(node, now, call, found, passes)
                pending = wanted.note_ends(node.paths)
            for uuid in pending:
                _write_down(node, uuid, call)
        for record in node.store.each(problems):
            if (record.nic.wanted or is_twin(record.nic)) and _there(node, record, (UP, CLOSING)):
                _held(node, record, now, call, found, Haste(LONG_PATIENCE), passes)
    except NetcommonError as error:
        call.log.error(f"{LASTING}: {error}")
    for problem in problems:
        call.log.warning(problem)
    return found


def _look_at_all(node: Node, now: Moment, call: Call, found: list[Ended], passes: Passes) -> None:
    for uuid in wanted.uuids(node.paths):
        _look(node, uuid, now, call, found, Haste(LONG_PATIENCE), passes)


def _there(node: Node, record: Record, states: Collection[str]) -> bool:
    """Tell whether the NIC is up in one of the states, on the device for which its record was made."""
    return record.state in states and not record.moved and alive(node, node.host.view(), record)


def _held(node: Node, record: Record, now: Moment, call: Call, found: list[Ended], haste: Haste, passes: Passes) -> None:
    """Take from a NIC what it has of options that no file of it holds: the file was damaged or lost, or ended by others.

    An emulated twin gets what its NIC's file holds too: a change of both may have been cut off between them.
    """
    if record.uuid in {uuid for uuid, _became in found}:
        return
    problems: list[str] = []
    try:
        uuid = changed_options.kept_uuid(node, record.nic)
        wanted.refuse_newer(node.paths, uuid)
        there = changed_options.read(node, uuid, problems)
        kept = there.force(now)
        for problem in problems:
            call.log.error(problem)
        can = changed_options.fitting(node, record.nic, kept, []) if is_twin(record.nic) else ()
        lacks = [each for each in can if each not in record.nic.wanted]
        if (not lacks and all(each in kept for each in record.nic.wanted)) or passes(record.uuid, there):
            return
        outcome = _changed(node, record, call, haste)
    except RecordTooNew:
        return  # a newer version's affair
    except TryAgain as error:
        call.log.info(f"{record.nic.label} on {record.device} has other options than are kept, which is left for the next time: {error}")
        found.append((record.uuid, error))
        return
    except Exception as error:  # an extension of the site's raises what it likes
        call.log.error(f"{record.nic.label} on {record.device} has other options than are kept: {typed(error)}")
        found.append((record.uuid, typed(error)))
        return
    if outcome.changed:
        _say(node, call, f"what was changed is {'kept of its NIC' if lacks else 'not kept any more'}: {outcome.text}")
        found.append((record.uuid, OthersKept(*outcome)))


def end_some(node: Node, call: Call) -> None:
    """End what a hook that was called for another NIC has the time for. Raises nothing: no failure of another NIC is the hook's.

    The rest is still due: for the next hook, gc, repair or the agent, and what may last longer (``_lasts``) for the last three alone.
    What has not ended is left alone, also an end of an earlier boot.
    """
    try:
        _end_some(node, call)
    except NetcommonError as error:
        call.log.error(f"{LASTING}: {error}")
    except Exception as error:  # whatever it is, the hook's own NIC is up or down
        call.log.error(f"{LASTING}: {type(error).__name__}: {error}")


def _end_some(node: Node, call: Call) -> None:
    now = changed_options.moment(node)
    until = now.monotonic + min(LONGEST, (call.deadline - now.monotonic) * SHARE)
    if not wanted.over(node.paths, now):
        return
    uuids = wanted.uuids(node.paths)
    begin = int(now.monotonic * 1000) % max(len(uuids), 1)  # anywhere: one that fails each time must not keep the others from their end
    for uuid in (*uuids[begin:], *uuids[:begin]):
        if node.clock.now() >= until:
            return
        _look(node, uuid, now, call._replace(deadline=until), [], Haste(PATIENCE, hook=True))
    wanted.note_ends(node.paths)


def _lasts(node: Node, record: Record) -> bool:
    """Tell whether a change of the NIC, or its way back, may last longer than a hook has for another NIC, however little is left to do.

    The site's code may, and so may a service that does not answer: then the way back has none either.
    """
    if custom.beside(node.paths, "ifchange.d", node.hooks):
        return True
    for each in (record, record.before):
        if each is not None and (mode_of(each.nic) in SERVED or any("/" in str(one.get("kind")) for one in each.operations)):
            return True  # with a "/" it is an extension's
    return record.described_anew and record.scripts  # the way back tells them


def _look(node: Node, uuid: str, now: Moment, call: Call, found: list[Ended], haste: Haste, passes: Passes = nothing_passed) -> None:
    """End what of one NIC has ended; whoever is no hook rewrites its file too where that is of an earlier boot."""
    try:
        problems: list[str] = []
        there = wanted.read(node.paths, uuid, problems, node.store.readonly)
        for problem in problems:
            call.log.error(problem)
        one = changed_options.decided(node, uuid, there)
        over, noted = one.without(now) != one, there.pending is None and (haste.hook or one.rebased(now) == one)
        if (not over and noted) or passes(uuid, there):
            return
        if over:
            became = _ended(node, uuid, call, found, haste)
            if became is not None:
                found.append((uuid, became))
        else:
            _rewrite(node, uuid, call, lambda there: there.rebased(now), haste)  # after a reboot the boot's clock is another one
    except Exception as error:  # an extension of the site's raises what it likes
        if isinstance(error, TryAgain):
            call.log.info(f"an option of NIC {uuid} that was changed for a while is left for the next time: {error}")
        else:
            call.log.error(f"an option that was changed for a while has ended, and holds still: {typed(error)}")
        found.append((uuid, typed(error)))


def _write_down(node: Node, uuid: str, call: Call) -> None:
    """Write down what became of a change that a full disk, or a kill, has left pending: a reboot would forget it."""
    try:
        if not at_work(node, uuid):
            _rewrite(node, uuid, call, lambda there: there, Haste(LONG_PATIENCE))
    except TryAgain:
        pass  # whoever is at work on the NIC writes it
    except Exception as error:  # an extension of the site's raises what it likes
        call.log.error(f"what was changed of NIC {uuid} is still written down as pending: {typed(error)}")


def _rewrite(node: Node, uuid: str, call: Call, edit: Callable[[Wanted], Wanted], haste: Haste) -> None:
    """Write what is wanted of a NIC anew, under its lock: somebody may be changing it. Not of one of another network namespace."""
    if node.store.readonly:
        return
    with locks(node, call._replace(deadline=min(call.deadline, node.clock.now() + haste.patience))) as held:
        held.uuids({uuid})
        if node.store.read(uuid) is None and node.store.elsewhere(uuid):
            return  # its record, which alone tells what became of what is pending, is another network namespace's
        wanted.refuse_newer(node.paths, uuid)
        there = wanted.read(node.paths, uuid, [])
        after = edit(changed_options.decided(node, uuid, there))
        if after != there:
            wanted.write(node.paths, uuid, after)


def _ended(node: Node, uuid: str, call: Call, found: list[Ended], haste: Haste) -> Outcome | None:
    """End what of one NIC has ended; None where that is left to others. ``found`` gets what became of its emulated twin.

    They are those of the network namespace in which it is up, and gc, repair and the agent where a hook has not the time.
    """
    usable(node.settings)
    record = node.store.read(uuid)
    if record is None and node.store.elsewhere(uuid):
        return None
    if record is None or not _there(node, record, (UP, CLOSING, CHANGING)):
        # its next up has the tags' options
        _rewrite(node, uuid, call, lambda there: there.without(changed_options.moment(node)), haste)
        return Outcome(False, f"NIC {uuid} is not up")
    if haste.hook and _lasts(node, record):
        return None
    twin = changed_options.twin_of(node, record.nic)
    if twin is not None and _there(node, twin, (UP, CLOSING, CHANGING)):
        # first: as long as that is refused, the end of both is due
        of_twin = _changed(node, twin, call, haste)
        found.append((twin.uuid, of_twin))
        _say(node, call, f"what was changed for a while has ended: {of_twin.text}")
    outcome = _changed(node, record, call, haste)
    _say(node, call, f"what was changed for a while has ended: {outcome.text}")
    return outcome


def _say(node: Node, call: Call, text: str) -> None:
    """Log what has become of a NIC; a look ahead is answered, and logs nothing of what has not happened."""
    if not node.store.readonly:
        call.log.warning(text)


def _changed(node: Node, record: Record, call: Call, haste: Haste) -> Outcome:
    from netcommon.lifecycle.change import Difference, change, ended, in_words  # most hooks find that nothing is over

    limit = min(call.deadline, node.clock.now() + node.settings.hook_timeout)
    call = about(call, record)._replace(deadline=limit)
    if not node.store.readonly:
        return change(node, record.key, call, ended, closing=True, patience=haste.patience)
    told: list[Difference] = []
    change(node, record.key, call, ended, closing=True, held_back=told.append)
    return Outcome(told[0].any, f"{record.nic.label} on {told[0].device}: {in_words(told[0].options) or 'brought up to date'}")
