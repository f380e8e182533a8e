"""Many NICs in one process: as one by one, but with one picture of the host, and with messages that are for all of them.

What is simple is done together, under the locks of all: NICs that come up where nobody was, without scripts, NICs that go, none of
whose scripts is owed, and NICs of which something is only to be applied again. Every other one, and every one that does not get through
the first look, is done alone by up, down, gc or repair, which say why. A refusal is one NIC's: it is rolled back, or stays on its record,
and the others go on.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from netcommon.lifecycle import execute, run_effects
from netcommon.lifecycle.bring_up import BringUp
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import Outcome, about, alive, locks, owe, to_its_end
from netcommon.lifecycle.down import close, down, farewell, give_back, holder, tell_by_device
from netcommon.lifecycle.left_out import may_help
from netcommon.lifecycle.reconcile import examine, intended
from netcommon.lifecycle.renamed_device import as_recorded
from netcommon.lifecycle.stale_state import left_behind, refuse_port
from netcommon.lifecycle.up import up, with_kept
from netcommon.operations.base import ABSENT
from netcommon.operations.link import device_link
from runtime.errors import Interrupted, NetcommonError, typed
from runtime.record import APPLYING, REVERTING, UP
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Action, Call, Node
    from netcommon.lifecycle.reconcile import Mending
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.environment import DownHint
    from runtime.locks import Locks
    from runtime.nic import Nic
    from runtime.record import Record

    Result = Outcome | NetcommonError

#: So many NICs have their locks at a time: hooks that come meanwhile wait for some tenths of a second.
TOGETHER = 512


def up_all(node: Node, nics: Sequence[Nic], calling: Callable[[Nic], Call]) -> Iterator[tuple[Nic, Result]]:
    """Joins them to the network (netcommon.lifecycle.up), in their order; each with its outcome or its failure."""
    for start in range(0, len(nics), TOGETHER):
        chunk = nics[start : start + TOGETHER]
        done: dict[int, Result] = {}
        left = list(range(len(chunk)))
        while left:
            made = _up_together(node, {number: chunk[number] for number in left}, calling)
            done |= made
            left = [number for number in left if number not in done]
            if not made:
                break
        for number, nic in enumerate(chunk):
            yield nic, done[number] if number in done else _alone(lambda nic=nic: up(node, nic, calling(nic)))  # type: ignore[misc]


def down_all(node: Node, hints: Sequence[DownHint], calling: Callable[[DownHint], Call]) -> Iterator[tuple[DownHint, Result]]:
    """Takes them out of the network (netcommon.lifecycle.down), in their order; each with its outcome or its failure."""
    for start in range(0, len(hints), TOGETHER):
        chunk = hints[start : start + TOGETHER]
        done = _down_together(node, chunk, calling)
        for number, hint in enumerate(chunk):
            yield hint, done[number] if number in done else _alone(lambda hint=hint: down(node, hint, calling(hint)))  # type: ignore[misc]


def repair_all(
    node: Node,
    keys: Sequence[str],
    calling: Callable[[Record], Call],
    wanted: Callable[[str, Operation], bool] = lambda _key, _operation: True,
) -> Iterator[tuple[str, Result]]:
    """Makes the records of ``keys`` hold again (netcommon.lifecycle.check.repair), in their order; each with its outcome or its failure.

    ``wanted``: whether an operation of the record of a key is to be repaired.
    """
    for start in range(0, len(keys), TOGETHER):
        chunk = keys[start : start + TOGETHER]
        done = repair_together(node, chunk, calling, wanted)
        for key in chunk:
            yield key, done[key] if key in done else _alone(partial(_repair, node, key, calling, partial(wanted, key)))


def repair_together(
    node: Node, keys: Sequence[str], calling: Callable[[Record], Call], wanted: Callable[[str, Operation], bool]
) -> dict[str, Result]:
    """Makes those of the records hold again that need nothing but to have something applied; says what became of them.

    Nothing was done to the others. At most TOGETHER of them at a time. Does not raise NetcommonError.
    """
    done: dict[str, Result] = {}
    while left := [key for key in keys if key not in done]:
        made = _repair_together(node, left, calling, wanted)
        done |= made
        if not made:
            break
    return done


def _repair(node: Node, key: str, calling: Callable[[Record], Call], wanted: Callable[[Operation], bool]) -> Outcome:
    record = node.store.read(key)
    return repair(node, key, calling(record), wanted) if record else Outcome(False, f"there is no record {key}")


def _alone(work: Callable[[], Outcome]) -> Result:
    try:
        return work()
    except Exception as error:  # an extension of the site's raises what it likes: that is no other NIC's failure
        return typed(error)


def _given_up(error: Exception, call: Call) -> None:
    """Say that several NICs could not be done together: each is done alone, which says why, and names the one that it is about."""
    if not isinstance(error, NetcommonError):
        call.log.warning(f"each NIC is done by itself: {typed(error)}")


class _Ready(NamedTuple):
    """A NIC that is to come up, and all that is known before the host is changed."""

    attempt: BringUp
    link: Link
    operations: list[Operation]


class _Sharing:
    """Which NICs of a chunk may go together: of what several share, one at most makes it, and then the others wait until it is there."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._made: set[str] = set()

    def admits(self, operations: Sequence[Operation]) -> bool:
        """Tell whether these fit to those admitted so far; then they are admitted."""
        shared = {key for operation in operations for key in operation.shared()}
        new = [operation for operation in operations if operation._asdict().get("found", ABSENT) == ABSENT]
        making = [operation for operation in new if not operation.shared() or operation.apply()]
        made = {key for operation in making for key in (*operation.shared(), operation.place()) if key}
        made |= {f"to {to}" for operation in operations if (to := operation.leads_to())}  # whose address it is the second asks
        if self._made & (shared | made) or self._seen & made:
            return False
        self._made |= made
        self._seen |= shared
        return True


def _up_together(node: Node, nics: dict[int, Nic], calling: Callable[[Nic], Call]) -> dict[int, Result]:
    """The results of those that could be done together."""
    calls = {number: calling(nic) for number, nic in nics.items()}
    done: dict[int, Result] = {}
    attempts: dict[int, BringUp] = {}
    try:
        with locks(node, next(iter(calls.values()))) as held:
            held.devices({nic.interface for nic in nics.values()})
            held.uuids({nic.uuid for nic in nics.values()})
            kept = {number: with_kept(node, nic, calls[number].log) for number, nic in nics.items()}
            attempts = {number: BringUp(node, nic, calls[number], held, run_scripts=True) for number, nic in kept.items()}
            ready = _prepared(node, attempts, held)
            for number, result in zip(ready, _carry_out(node, list(ready.values())), strict=True):
                if result is not None:
                    done[number] = result
    except Exception as error:  # locks or a view that are not to be had: alone each says so
        _given_up(error, next(iter(calls.values())))
        return done
    finally:  # after Ctrl-C too
        give_back(node, next(iter(calls.values())))
    _tell(node, [one.attempt for one in ready.values()])
    return done


def _tell(node: Node, attempts: Sequence[BringUp]) -> None:
    """Tells of those that are up; what is to be said again is said by one process for all of them."""
    again, view = _Again(), execute.once(node)
    for one in attempts:
        if one.settled is not None:
            run_effects.arrived(node._replace(later=again), one.settled, one.log, view, first=one.first_up)
    if attempts:
        again.hand_over(node, attempts[0].log)


class _Again:
    """A ``Later`` that waits for more."""

    def __init__(self) -> None:
        self._actions: dict[tuple[float, ...], list[Action]] = {}

    def __call__(self, delays: Sequence[float], action: Action, node: Node, log: Log) -> None:
        self._actions.setdefault(tuple(delays), []).append(action)

    def hand_over(self, node: Node, log: Log) -> None:
        """Each list of actions with the same delays, as one."""
        for delays, actions in self._actions.items():
            node.later(delays, partial(self._run, actions), node, log)

    def _run(self, actions: list[Action], node: Node, log: Log, view: View | None) -> bool:
        actions[:] = [action for action in actions if action(node, log, view)]
        return bool(actions)


def _prepared(node: Node, attempts: dict[int, BringUp], held: Locks) -> dict[int, _Ready]:
    """Those that nobody is in the way of, resolved against one picture of the host."""
    planned: dict[int, list[Operation]] = {}
    names: set[str] = set()
    for number, one in attempts.items():
        try:
            if not names & {one.nic.uuid, one.nic.interface} and one.first():
                planned[number] = one.plan(None)
                names |= {one.nic.uuid, one.nic.interface}
        except Exception:  # alone it says so
            continue
    held.keys({key for operations in planned.values() for key in execute.locks_of(operations)})
    view, sharing = node.host.snapshot(), _Sharing()
    ready: dict[int, _Ready] = {}
    for number, operations in planned.items():
        one = attempts[number]
        try:
            link = device_link(view, one.nic.interface)
            refuse_port(view, link, one.nic.mode)
            resolved = execute.resolve(node, view, operations, [], one.nic.uuid, one.log)
            if not (one.incoming or link.up or left_behind(view, link, one.nic.mode)) and sharing.admits(resolved):
                ready[number] = _Ready(one, link, resolved)
        except Exception:  # alone it says so
            continue
    return ready


def _carry_out(node: Node, ready: Sequence[_Ready]) -> list[Result | None]:
    """Each one's intent to disk, then the host for all, then each is done, or rolled back. None: alone it may come up with less."""
    going: dict[int, Record] = {}
    results: dict[int, Result | None] = {}
    try:
        for number, one in enumerate(ready):
            try:
                going[number] = one.attempt.begin(one.link, one.operations)
            except Exception as error:
                results[number] = typed(error)
        begun = [ready[number] for number in going]
        failures = execute.apply_each(node, [one.operations for one in begun], [one.attempt.log for one in begun])
        for number, failure in zip(list(going), failures, strict=True):
            record = going.pop(number)
            try:
                results[number] = ready[number].attempt.end(record, failure)
            except Exception as error:
                results[number] = None if may_help(ready[number].attempt, error) else typed(error)
    except BaseException as error:
        for number, one in enumerate(ready):
            # what is on disk tells which have begun: a signal may come when that is written, and nothing else says so yet
            there = None if number in results else node.store.read(one.attempt.nic.uuid)
            if there is not None and there.state == APPLYING:
                one.attempt.roll_back(there, error)
        raise
    return [results[number] for number in range(len(ready))]


def _repair_together(
    node: Node, keys: Sequence[str], calling: Callable[[Record], Call], wanted: Callable[[str, Operation], bool]
) -> dict[str, Result]:
    """The results of those that need nothing, or nothing but to be applied, and that no other one of them must be waited for."""
    done: dict[str, Result] = {}
    calls: dict[str, Call] = {}
    try:
        records = {key: record for key in keys if (record := node.store.read(key)) and record.state == UP and not record.incoming}
        calls = {key: calling(record) for key, record in records.items()}
        if not calls:
            return done
        with locks(node, next(iter(calls.values()))) as held:
            held.devices({record.device for record in records.values()})
            held.uuids({record.uuid for record in records.values()})
            seen, records = records, {key: record for key in records if (record := node.store.read(key))}
            held.keys({key for record in records.values() for key in execute.locks_of(intended(node, record))})
            view, sharing = node.host.snapshot(), _Mended()
            going: dict[str, Mending] = {}
            for key, record in records.items():
                if record == seen[key] and alive(node, view, record) and as_recorded(node, view, record):
                    with suppress(Exception):  # alone it says so
                        mending = examine(node, view, record, calls[key].log, partial(wanted, key))
                        if not (mending.needed or mending.hopeless or mending.hindered):
                            done[key] = Outcome(False, f"{record.nic.label} on {record.device} is as it should be")
                        elif mending.simple and sharing.admits(mending.todo):
                            going[key] = mending
            done |= _mend(node, going, calls, wanted)
    except Exception as error:  # locks or a view that are not to be had: alone each says so
        for call in list(calls.values())[:1]:
            _given_up(error, call)
        return done
    give_back(node, next(iter(calls.values())))
    again = _Again()
    for key, mending in going.items():
        if isinstance(done.get(key), Outcome):
            run_effects.arrived(node._replace(later=again), mending.record, calls[key].log)
    for key in list(going)[:1]:
        again.hand_over(node, calls[key].log)
    return done


class _Mended:
    """Which NICs may be mended together: of what several share one makes it, and then the others look whether it is there."""

    def __init__(self) -> None:
        self._made: set[object] = set()

    def admits(self, operations: Sequence[Operation]) -> bool:
        """Tell whether these fit to those admitted so far; then they are admitted."""
        made = {name for one in operations for name in (*one.shared(), one.place(), one.leads_to()) if name}
        if self._made & made:
            return False
        self._made |= made
        return True


def _mend(
    node: Node, going: Mapping[str, Mending], calls: Mapping[str, Call], wanted: Callable[[str, Operation], bool]
) -> dict[str, Result]:
    """Each one's intent to disk, then the host for all, then one look whether it holds."""
    if not going:
        return {}
    for mending in going.values():
        node.store.write(mending.stored())
        execute.claim(node, mending.resolved, mending.record.key)
    logs = [calls[key].log for key in going]

    def again() -> None:
        view = node.host.snapshot()
        execute.apply_each(node, [each.order(each.drifted(view, partial(wanted, key))) for key, each in going.items()], logs)

    asked = [each.order(list(each.todo)) for each in going.values()]
    failures = to_its_end(lambda: execute.apply_each(node, asked, logs), again, logs[0])
    view = node.host.snapshot()
    done: dict[str, Result] = {}
    for (key, mending), failure in zip(going.items(), failures, strict=True):
        try:
            if failure is not None:
                raise failure
            mending.done(view, list(mending.todo))
            done[key] = Outcome(True, mending.text(list(mending.todo)))
        except Exception as error:
            done[key] = typed(error)
    return done


def _down_together(node: Node, hints: Sequence[DownHint], calling: Callable[[DownHint], Call]) -> dict[int, Result]:
    """The results of those whose UUID says which NIC is meant, and that nobody holds."""
    meant = {number: hint for number, hint in enumerate(hints) if hint.uuid and hint.device}

    def leaves(view: View, record: Record, call: Call) -> bool:
        return call.final or not holder(node, view, record, call)

    calls = {number: calling(hint) for number, hint in meant.items()}
    names = {number: (hint.uuid, hint.uuid, hint.device) for number, hint in meant.items()}
    return undo_together(node, names, calls, leaves, min((call.deadline for call in calls.values()), default=0.0))


def undo_together(
    node: Node,
    names: Mapping[int, tuple[str, str, str]],
    calls: Mapping[int, Call],
    leaves: Callable[[View, Record, Call], bool],
    deadline: float,
) -> dict[int, Result]:
    """Undoes those of the records, by key, UUID and device, for which ``leaves`` says so under their locks.

    Those are waited for until ``deadline``. The answer has the results of those that could be undone together; nothing was done to the
    others. Does not raise NetcommonError.
    """
    done: dict[int, Result] = {}
    if not names:
        return done
    first = next(iter(calls.values()))
    try:
        with locks(node, first._replace(deadline=deadline)) as held:
            held.devices({device for _key, _uuid, device in names.values()})
            held.uuids({uuid for _key, uuid, _device in names.values()})
            now: dict[int, tuple[Record, list[Operation]]] = {}
            keys: set[str] = set()
            for number, (key, _uuid, device) in names.items():
                record = node.store.read(key)
                if record is None or record.device != device or record.moved or record.scripts or record.boot != node.identity.boot:
                    continue
                operations, unknown = execute.decode(record)
                if not unknown and key not in keys:
                    now[number] = (record, operations)
                    keys.add(key)
            calls = {number: about(calls[number], record) for number, (record, _operations) in now.items()}
            held.keys({key for _record, operations in now.values() for key in execute.locks_of(operations)})
            view = node.host.snapshot()
            same = {number: each for number, each in now.items() if as_recorded(node, view, each[0])}
            going = {number: each for number, each in same.items() if leaves(view, each[0], calls[number])}
            last = _last(going)
            done |= _undo(node, view, {number: each for number, each in going.items() if number not in last}, calls)
    except Exception as error:  # locks or a view that are not to be had: alone each says so
        _given_up(error, first)
        return done
    except Interrupted:
        give_back(node, first)
        raise
    if done:
        give_back(node, first)
    return done


def _last(going: Mapping[int, tuple[Record, list[Operation]]]) -> set[int]:
    """Those that are the last ones of several to leave something that they share: what becomes of it shows when the others have left."""
    sharing: dict[str, list[int]] = {}
    for number, (_record, operations) in going.items():
        for key in execute.keys_of(operations):
            sharing.setdefault(key, []).append(number)
    return {numbers[-1] for numbers in sharing.values() if len(numbers) > 1}


def _undo(node: Node, view: View, going: Mapping[int, tuple[Record, list[Operation]]], calls: Mapping[int, Call]) -> dict[int, Result]:
    """Undoes them; told to end, the rest of those whose down is on record, and nothing of the others."""
    if not going:
        return {}

    def again() -> None:
        there = {number: (node.store.read(record.key), operations) for number, (record, operations) in going.items()}
        begun = {number: (now, each) for number, (now, each) in there.items() if now is not None and now.state == REVERTING}
        _undo_all(node, node.host.snapshot(), begun, calls)

    return to_its_end(lambda: _undo_all(node, view, going, calls), again, next(iter(calls.values())).log)


def _undo_all(node: Node, view: View, going: Mapping[int, tuple[Record, list[Operation]]], calls: Mapping[int, Call]) -> dict[int, Result]:
    """Undoes them: requests first, since none of them takes away what another needs."""
    undoing = {
        number: execute.undo(node, view, execute.in_place(execute.in_order(operations)), record.key, calls[number].log)
        for number, (record, operations) in going.items()
    }
    for number, (record, _operations) in going.items():
        owe(node, record, record.operations, calls[number].log)
    records = {number: farewell(node, record, calls[number], known=True) for number, (record, _operations) in going.items()}
    answers = node.host.execute_each([each.requests for each in undoing.values()], stop=False)
    done: dict[int, Result] = {}
    for (number, each), said in zip(undoing.items(), answers, strict=True):
        record, call = records[number], calls[number]
        try:
            close(node, record, execute.undone(node, each, said, record.key, call.log), call)
            done[number] = Outcome(True, f"{record.nic.label} is down on {record.device}")
        except Exception as error:
            tell_by_device(node, record, call)
            done[number] = typed(error)
    return done
