"""check: what of a NIC's record does not hold on the host. repair: make it hold again."""

from __future__ import annotations

from functools import partial

from netcommon.host.api.facts import PROTOCOL
from netcommon.lifecycle import execute, run_effects
from netcommon.lifecycle.abandoned import at_work
from netcommon.lifecycle.context import Outcome, about, alive, locks, taken_down, to_its_end
from netcommon.lifecycle.lost_traffic import NOTHING, of_nic
from netcommon.lifecycle.mend import mend
from netcommon.lifecycle.migration import arrived, owed
from netcommon.lifecycle.reconcile import examine, intended
from netcommon.lifecycle.renamed_device import drift as drift_of
from netcommon.lifecycle.renamed_device import follow, name_of, refuse_strange
from netcommon.lifecycle.unguarded import unguarded
from netcommon.operations.base import intent
from netcommon.operations.route import at
from netcommon.operations.routed_uplink import UNICAST
from runtime import ganeti
from runtime.errors import FileRefused, HostRefused, NetcommonError, SettingsInvalid, TryAgain
from runtime.record import APPLYING, CHANGING, CLOSING, UP
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.lifecycle.reconcile import Mending
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.locks import Locks
    from runtime.record import Record


#: How long the locks of a NIC are waited for that is to get its address back (seconds), also where the call has used its time.
PATIENCE = 0.2

#: The part of the time that a call has left which it gives to NICs that are to have an address back, and ``PATIENCE`` at least.
SHARE = 0.1


class Report(NamedTuple):
    """What check found of one record."""

    record: Record
    alive: bool  #: its device is there
    drift: tuple[tuple[str, str], ...]  #: operation and what differs, in words
    unknown: tuple[str, ...]  #: kinds of operations that this version cannot check
    owed: tuple[str, ...] = ()  #: what is to be done when its guest, which is still migrating in, is here
    idle: tuple[tuple[str, str], ...] = ()  #: operation, and why it has no effect just now: no drift, and worth a word
    unguarded: bool = False  #: adopted: nothing keeps its guest from forging until its next start
    taken_down: str = ""  #: why it is not alive, if its device is there
    #: why the NIC's traffic does not pass though all of it holds, and what helps: nothing that repair does
    dropped: tuple[tuple[str, str], ...] = ()

    @property
    def good(self) -> bool:
        return self.alive and self.record.state == UP and not (self.drift or self.unknown or self.dropped)


def check(node: Node, view: View, record: Record, known: execute.Known | None = None) -> Report:
    """Verifies every operation of ``record`` against ``view``, which may be a snapshot. Changes nothing. ``known``: as for steps.drift."""
    called, record = record.device, follow(node, view, record)
    operations, unknown = execute.decode(record.before or record)
    there = alive(node, view, record)
    looked_after = [operation for operation in operations if execute.looked_after(node, operation)]
    drift = drift_of(node, view, record, looked_after, known, strict=True) if there else []
    kinds = tuple(str(stored.get("kind")) for stored in unknown)
    later = owed(node, record)
    if there and arrived(node, record):
        having = set(map(intent, operations))  # what could not be completed is on record
        drift += [(operation, "owed, for its guest has arrived") for operation in later if intent(operation) not in having]
        later = []
    drifted = [operation for operation, _text in drift]
    idle = [(each.describe(), why) for each in operations if there and each not in drifted and (why := each.idle(view))]
    differs = tuple((operation.describe(), text) for operation, text in drift)
    if record.device != called:
        differs = ((f"the device {called}", f"it is called {record.device} now"), *differs)
    waiting = tuple(operation.describe() for operation in later)
    down = "" if there else taken_down(view, record)
    try:
        lost = of_nic(view, record, operations, node.settings) if there else NOTHING
    except NetcommonError:
        if not differs:
            raise
        lost = NOTHING  # that something does not hold is said, though what else is lost cannot be told
    idle += lost.some
    return Report(record, there, differs, kinds, waiting, tuple(idle), unguarded(record, node.settings.tag_prefix), down, lost.whole)


def repair(node: Node, key: str, call: Call, wanted: Callable[[Operation], bool] = lambda operation: True) -> Outcome:
    """Applies those operations of the record ``key`` that do not hold and are ``wanted``: what was recorded, whatever today's settings say.

    Follows a device that was renamed. What was owed while the guest was migrating in is done if it is here. Raises HostRefused or
    TryAgain; nothing that held is touched.
    """
    try:
        return _repaired(node, key, call, wanted)
    finally:
        if node.store.owes():
            restore(node, call)


def _repaired(node: Node, key: str, call: Call, wanted: Callable[[Operation], bool]) -> Outcome:
    seen = node.store.read(key)
    if seen is None:
        return Outcome(False, f"there is no record {key}")
    names = {seen.device, name_of(node, node.host.view(), seen)}
    with locks(node, call) as held:
        held.devices(names)
        held.uuids({seen.uuid})
        record = node.store.read(key)
        if record is None or record.device != seen.device:
            return Outcome(False, f"{seen.nic.label} was changed by another call meanwhile")
        view = node.host.view()
        if why := _gone(node, view, record):
            return Outcome(False, f"{record.nic.label}: {why}")
        stored, record = record, follow(node, view, record)
        if record.device not in names:
            raise TryAgain(f"{seen.device} is being renamed: it is {record.device} now")
        refuse_strange(node, view, record)
        work = _put_back if record.state == CHANGING else _mended
        became, text = work(node, stored, record, about(call, record), held, wanted)
    if became is None:
        return Outcome(False, text)
    if became.device != stored.device:
        _tell_ganeti(node, became, call)
    if became.state == UP:
        run_effects.arrived(node, became, call.log)
    return Outcome(True, text)


def _gone(node: Node, view: View, record: Record) -> str:
    """Say why there is nothing to repair of ``record``; "" where there may be. Raises HostRefused for one that is not up."""
    if not alive(node, view, record):
        return f"{taken_down(view, record) or f'its device {record.device} is gone'}, which gc cleans up after"
    if record.state not in (UP, CLOSING, CHANGING):
        raise HostRefused(f"{record.nic.label} is {record.state}, not up", "nothing is repaired; netcommon explain says what to do")
    return ""


class Forecast(NamedTuple):
    """Say what repair would do for one record, and what the host would refuse of it."""

    text: str
    steps: tuple[tuple[str, str], ...] = ()  #: what would be done, each with what is so instead
    refused: str = ""


def foretell(node: Node, view: View, key: str, log: Log, before: Sequence[tuple[str, str]] = ()) -> Forecast:
    """Work out what repair would do, by the same means, for what can be seen of the host before it is touched. Changes nothing.

    ``view`` may be a snapshot. ``before``: what would be done for the NIC before that, each with why. Raises HostRefused or TryAgain
    where repair would do so before it does anything.
    """
    stored = node.store.read(key)
    if stored is None:
        return Forecast(f"there is no record {key}")
    if why := _gone(node, view, stored):
        return Forecast(f"{stored.nic.label}: {why}")
    record = follow(node, view, stored)
    refuse_strange(node, view, record)
    name = f"{record.nic.label} on {record.device}"
    if stored.state == CHANGING:
        from netcommon.lifecycle.way_back import worked_out  # few records are in this state

        hopeless = worked_out(node, view, record, log).hopeless
        return Forecast(f"{name}: would be put back to what it was before a change that was cut off", (), "; ".join(hopeless))
    mending = examine(node, view, record, log, lambda _operation: True)
    steps = [*before]
    steps += [(f"the device {stored.device}", f"it is called {record.device} now")] if record.device != stored.device else []
    steps += [(one.undo(), f"it is of the name {one.about()}, which the device had before") for one in mending.leaving]
    steps += [(one.undo(), "it is elsewhere by now") for one in execute.Among(mending.resolved).leaves(mending.outdated)]
    steps += [(one.describe(), differs) for one, differs in execute.drift(view, mending.todo)]
    if mending.here:
        text = "its guest has arrived: would do what is owed"
    elif steps:
        text = "would repair"
    else:
        text = "its record would say what holds, and nothing else is to be done" if mending.needed else "is as it should be"
    return Forecast(f"{name}{' ' if text.startswith('is ') else ': '}{text}", tuple(steps), "; ".join(mending.refusals))


def _mended(
    node: Node, stored: Record, record: Record, call: Call, held: Locks, wanted: Callable[[Operation], bool]
) -> tuple[Record | None, str]:
    """Makes again what does not hold of ``record``; returns it as it is then, None where nothing was to be done, and what is said of it.

    ``stored``: as it is on disk.
    """
    renamed = stored.device if record.device != stored.device else ""

    def found(record: Record) -> tuple[View, Mending]:
        held.anew(execute.locks_of(intended(node, record)))
        view = execute.once(node)
        return view, examine(node, view, record, call.log, wanted)

    def again() -> None:
        there = node.store.read(stored.key) or stored
        mend(node, there, found(follow(node, node.host.view(), there))[1], call.log, wanted)

    view, mending = found(record)
    if not (mending.needed or renamed):
        mending.done(view, [])
        return None, f"{record.nic.label} on {record.device} is as it should be"
    todo = to_its_end(lambda: mend(node, stored, mending, call.log, wanted), again, call.log)
    mending.done(execute.once(node), todo)
    return mending.record, mending.text(todo, renamed)


def _put_back(
    node: Node, stored: Record, _record: Record, call: Call, held: Locks, _wanted: Callable[[Operation], bool]
) -> tuple[Record | None, str]:
    """Brings a NIC back whose change was cut off; whatever of it is wanted, all of it is one."""
    from netcommon.lifecycle.way_back import change_back  # few repairs need it

    back = change_back(node, stored, call, held)
    return back, f"{back.nic.label} on {back.device} is as it was before a change that was cut off"


def _tell_ganeti(node: Node, record: Record, call: Call) -> None:
    """Write the device's new name to Ganeti's file of the NIC."""
    if node.settings.ganeti_nic_files != "off":
        try:
            ganeti.write_nic_file(node.paths, record.nic)
        except (OSError, NetcommonError) as error:
            call.log.warning(f"Ganeti's nic file was not written: {error}")


def restore(node: Node, call: Call) -> None:
    """Repair the routes of other NICs to what is owed to them (runtime.owed). Call without locks. What fails is logged: it stays owed.

    What is owed by a NIC, or to one, that a process is at work on is left to that process, which comes here at its end. The call gives a
    share of its time: what is left then stays owed, for the next one. The records are read once, however much is owed, which may take that
    time: then the call still gives back what it comes to first. Raises Interrupted.
    """
    now = node.clock.now()
    until = now + max(PATIENCE, (call.deadline - now) * SHARE)
    try:
        debts = _debts(node, call.log)
        begin = int(now * 1000) % max(len(debts), 1)  # anywhere: one that takes all the time must not keep the others from what is theirs
        having: Having | None = None
        for name, debt in (*debts[begin:], *debts[:begin]):
            if node.clock.now() >= until:
                return
            having = _having(node, debts, call.log) if having is None else having
            try:
                if not at_work(node, debt.uuid) and _restored(node, debt, having, call):
                    node.store.owed.settled(name)
            except NetcommonError as error:
                call.log.error(f"what {debt.nic.label} had taken from another NIC is not given back yet: {error}")
    except NetcommonError as error:
        call.log.error(f"who is to have back what is owed cannot be told: {error}")


def _debts(node: Node, log: Log) -> list[tuple[str, Record]]:
    """List what is owed, with its name, as far as that can be told: what this process knows of itself comes first."""
    found: list[tuple[str, Record]] = []
    try:
        for one in node.store.owed.each():
            found.append(one)  # one by one: what came before a failure counts
    except HostRefused as error:
        log.error(f"what other NICs are to have back cannot be told: {error}")
    return found


class Having(NamedTuple):
    """The NICs that have on record what is owed, by where it leads to (Operation.leads_to)."""

    records: Mapping[tuple[object, ...], Sequence[Record]]
    untold: bool  #: there are records of a newer version, which may have it too


def _owing(node: Node, debt: Record) -> set[tuple[object, ...]]:
    """Give where what ``debt`` is of leads to (Operation.leads_to); nothing of an earlier boot, whose routes have gone."""
    return execute.taken(debt) if debt.boot == node.identity.boot else set()


def _having(node: Node, debts: Sequence[tuple[str, Record]], log: Log) -> Having:
    """Read all records; give those of NICs whose guests are there, or on their way, which have on record what is owed."""
    owed = {way for _name, debt in debts for way in _owing(node, debt)}
    problems, newer = list[str](), list[str]()
    having: dict[tuple[object, ...], list[Record]] = {}
    for record in node.store.each(problems, newer) if owed else ():
        if record.state in (UP, CLOSING, APPLYING, CHANGING):
            for way in owed.intersection(operation.leads_to() for operation in execute.decode(record)[0]):
                having.setdefault(way, []).append(record)
    for problem in problems:
        log.warning(problem)
    return Having(having, bool(newer))


def _restored(node: Node, debt: Record, having: Having, call: Call) -> bool:
    """Repair the routes of NICs that are up to destinations that ``debt`` is of; False where that is to be tried again.

    It is where one is at work or on its way up, where a file cannot be written, while the settings cannot be read, and where a newer
    version may know of more. Who has it by now has taken it over with what is owed of it (execute.taken). What the host
    itself refuses, such as an address that is the node's own by now, it would refuse each time: it is no debt any more, and ``check``
    finds that the NIC lacks it.

    Of several NICs that have lost one destination the one that came up last gets it; none gets what leads to another NIC by now.
    """
    now = node.store.read(debt.key)
    kept = execute.taken(now) if now is not None else set()
    others: dict[str, tuple[Record, set[tuple[object, ...]]]] = {}
    for way in _owing(node, debt) - kept:
        for record in having.records.get(way, ()):
            if record.uuid != debt.uuid:
                others.setdefault(record.key, (record, set()))[1].add(way)
    done = not having.untold
    for record, shared in sorted(others.values(), key=lambda other: (other[0].state != CLOSING, other[0].monotonic), reverse=True):
        view = execute.once(node)
        if record.state not in (UP, CLOSING):
            done = done and not alive(node, view, record)
            continue
        lost = {way for way in shared if not _leads_to_another(view, way)}
        done = done and all(_taken_over(view, way, having, record) for way in shared - lost)
        if not lost:
            continue
        named = about(call, record)._replace(deadline=node.clock.now() + PATIENCE)
        try:
            outcome = _repaired(node, record.key, named, partial(_lacks, node, lost))
            if outcome.changed:
                call.log.warning(f"has its address back: {outcome.text}")
        except (TryAgain, FileRefused, SettingsInvalid) as error:  # time heals them, or the administrator
            call.log.warning(f"{record.nic.label} on {record.device} has not got its address back yet: {error}")
            done = False
        except NetcommonError as error:  # check says that it has not what is on its record, and repair tries again
            call.log.error(f"{record.nic.label} on {record.device} may have lost its address to this NIC: {error}")
    return done


def _lacks(node: Node, ways: set[tuple[object, ...]], operation: Operation) -> bool:
    """Tell whether it is one of what was lost, and still leads to nobody: somebody may have come while the locks were waited for."""
    return operation.leads_to() in ways and not _leads_to_another(node.host.view(), operation.leads_to())


def _taken_over(view: View, way: tuple[object, ...], having: Having, creditor: Record) -> bool:
    """Tell whether the NIC to which it leads has found another's in its place, so that it owes it when it goes; or is ``creditor``."""
    indices = {route.index for route in at(view, way)}
    return creditor.ifindex in indices or any(
        way in execute.taken(record) for record in having.records.get(way, ()) if record.ifindex in indices
    )


def _leads_to_another(view: View, way: tuple[object, ...]) -> bool:
    """Tell whether a route of ours leads to a device there; a blackhole leads to none."""
    found = at(view, way)
    return any(route.protocol == PROTOCOL and route.type == UNICAST and view.link_at(route.index) is not None for route in found)
