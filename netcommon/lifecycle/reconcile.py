"""Say what it takes to make one record hold again, worked out before anything is changed: for one NIC, or for many on one picture."""

from __future__ import annotations

from netcommon.host.api.facts import PROTOCOL
from netcommon.host.api.requests import service
from netcommon.lifecycle import execute
from netcommon.lifecycle.context import usable
from netcommon.lifecycle.migration import arrived, owed
from netcommon.lifecycle.renamed_device import left
from netcommon.operations.base import intent, to_json
from netcommon.operations.link import shut
from netcommon.operations.route import at
from runtime.errors import HostRefused
from runtime.record import UP
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.record import Record


class Delta(NamedTuple):
    """Say what it takes to make of what is on record what is wanted; in which order is ``stages``' to say."""

    new: tuple[Operation, ...]  #: what is wanted, and not on record
    gone: tuple[Operation, ...]  #: what is on record, and wanted no more
    make: tuple[Operation, ...]  #: what of the wanted is new or does not hold, and is applied
    shut: tuple[Operation, ...]  #: the device goes down before anything else


def delta(view: View, recorded: Sequence[Operation], wanted: Sequence[Operation], down: Operation, finished: bool, early: bool) -> Delta:
    """Compare what is on record with what is wanted, both resolved, and that with the host. Changes nothing.

    ``down`` takes the device down. Not ``finished``: an up was cut off, and all of it is applied again; ``early``: then the device is up
    before its time.

    The device is down while it moves to another network, and while what keeps it to its own changes together with that: in between, one
    would be without the other.
    """
    gone, new = execute.Among(wanted).lacks(recorded), execute.Among(recorded).lacks(wanted)
    drifted = [operation for operation, _text in execute.drift(view, wanted)]
    wrong = set(map(id, drifted))  # of a trunk thousands
    waiting = {id(one) for one in wanted if id(one) not in wrong and one.waits(view)}  # its device may be gone
    leaving = gone if any(one.opens() for one in wanted) else []
    moves = any(operation.replugs() for operation in (*new, *drifted, *leaving))
    moves = moves or any(operation.place() == down.place() for operation in new)
    moves = moves or ((apart(recorded, wanted) or unlike(view, recorded, new)) and any(one.lets_in() for one in wanted))
    wrong |= set(map(id, new))  # one that holds by chance may not any more when the others have come: an entry in every VLAN of the port
    make = [one for one in wanted if id(one) in wrong or (not finished and id(one) not in waiting) or (moves and one.lets_in())]
    elsewhere = networks(recorded) != networks(wanted)
    leaves = [out for one in gone if (out := one.unplugged()) is not None] if elsewhere else []
    shut = (down, *leaves) if moves or early else ()
    return Delta(tuple(new), tuple(gone), tuple(confining_first(view, recorded, make)), shut)


def apart(recorded: Sequence[Operation], wanted: Sequence[Operation]) -> bool:
    """Tell whether both the NIC's network and what keeps its guest to its own change: between the two, one would be without the other."""
    if networks(recorded) == networks(wanted):
        return False
    return _confining(recorded) != _confining(wanted)


def unlike(view: View, recorded: Sequence[Operation], new: Sequence[Operation]) -> bool:
    """Tell whether two things that keep the guest to its own become others in places of which no message changes both.

    Each may refuse more than before in one way and less in another, so neither of them could go first.
    """
    edited = _edited(execute.Among(_counting(view, recorded)), _counting(view, new))
    return len({one.confines() for one in edited}) > 1 and len({service(each) for one in edited for each in one.apply()}) > 1


def _edited(before: execute.Among, new: Sequence[Operation]) -> list[Operation]:
    """Select what keeps the guest to its own in the place of something that does so too, unless one refuses all that the other does."""
    found = ((one, before.like(one) or before.in_place_of(one)) for one in new if one.confines())
    return [one for one, old in found if old and old.confines() and not (one.firmer(old) or old.firmer(one))]


def _counting(view: View, operations: Sequence[Operation]) -> list[Operation]:
    """Give the operations as they count on this host."""
    return [one.effective(view) for one in operations]


def confining_first(view: View, recorded: Sequence[Operation], make: Sequence[Operation]) -> list[Operation]:
    """Put what is applied into an order in which no frame passes that both the old and the new refuse.

    First comes what decides where its frames go, what keeps the guest to its own and was not there, and what is firmer than before; then
    what of that is another now, side by side (netcommon.lifecycle.execute.requests_of), then all the rest. What was there and is wanted no
    more goes last: see ``part``.

    A switch goes on with what it remembers of frames until it has looked at each change: the port comes behind the rules even where the
    device is down meanwhile, or frames would go on into its new VLAN by the former rules.
    """
    before, making = execute.Among(_counting(view, recorded)), _counting(view, make)
    edited = _edited(before, making)
    unlike_before = set(map(id, edited))
    turned = any(one.network() for one in edited)  # into other VLANs, without which nothing can be brought to the guest
    joins = any(one.joins() and not _stays(view, one, before.in_place_of(one)) for one in make)

    def rank(one: Operation) -> int:
        if joins and (one.of_port() or any(service(request) != "nftables" for request in one.apply())):
            return 2
        if one.delivers():
            return int(turned)
        old = before.in_place_of(one)
        if (old and one.firmer(old)) or (one.unbroken() and not one.confines()):
            return 0
        if not one.confines() or (old and old.firmer(one)):
            return 2
        return int(id(one) in unlike_before)

    ranks = [rank(one) for one in making]
    return [make[number] for number in sorted(range(len(make)), key=ranks.__getitem__)]


def _stays(view: View, port: Operation, before: Operation | None) -> bool:
    """Tell whether the device is a port of the same bridge already, by an operation that holds."""
    return before is not None and before.network()[:1] == port.network()[:1] and not execute.drift(view, [before])


def _confining(operations: Sequence[Operation]) -> set[object]:
    """Give what keeps the guest to its own in whichever network it is."""
    return {intent(one.anywhere()) for one in operations if one.confines() and not one.network()}


class Mending(NamedTuple):
    """Say what is to be done for a record, as ``follow`` gives it."""

    record: Record
    unknown: tuple[Mapping[str, object], ...]
    resolved: tuple[Operation, ...]  #: what holds once it is done
    outdated: tuple[Operation, ...]  #: what was found elsewhere before, and goes
    leaving: tuple[Operation, ...]  #: what is left under a name that the device had before, and goes
    staying: tuple[Operation, ...]  #: the same, and is not wanted to go
    leaves: tuple[Operation, ...]  #: what takes the device down and out of another bridge, before anything else becomes of it
    stuck: tuple[Operation, ...]  #: what the host refuses to have done anew
    todo: tuple[Operation, ...]  #: what does not hold, and can be made to
    hopeless: tuple[str, ...]  #: why the host refuses what does not hold
    hindered: tuple[str, ...]  #: what of somebody else's stands in the place of what does not hold
    stale: bool  #: something of the record does not hold, though what it means today does
    here: bool  #: its guest has arrived
    given_up: frozenset[object]  #: the intents of what another NIC has by now

    @property
    def needed(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self.todo or self.outdated or self.here or self.stale or self.leaving)

    @property
    def simple(self) -> bool:
        """Tell whether all that is to be done is to apply what is wanted."""
        return not (self.outdated or self.leaving or self.leaves or self.staying or self.hopeless or self.hindered or self.here)

    @property
    def refusals(self) -> list[str]:
        """What cannot be made to hold, each once."""
        return refusals(self.hopeless, self.hindered)

    def stored(self, *more: Operation) -> Record:
        """Give the record with what holds once it is done, and ``more``."""
        return self.record._replace(operations=(*self.unknown, *map(to_json, [*self.resolved, *more])))

    def drifted(self, view: View, wanted: Callable[[Operation], bool]) -> list[Operation]:
        """Select what does not hold now, and can be made to; where something cannot, nothing that lets the guest's frames in."""
        blocked = bool(self.hopeless or self.hindered)
        found = [each for each, _text in execute.drift(view, self.resolved) if self.wants(each, wanted) and each not in self.stuck]
        found = [each for each in found if not each.hindered(view)]
        return [operation for operation in found if not (blocked and operation.lets_in())]

    def wants(self, operation: Operation, wanted: Callable[[Operation], bool]) -> bool:
        """Tell whether it is to be looked after."""
        return wanted(operation) and intent(operation) not in self.given_up

    def order(self, todo: list[Operation]) -> list[Operation]:
        """Give what is applied for ``todo``: where a tap whose port keeps it to its own joins its bridge again, it is down meanwhile.

        So is one that has left another bridge.
        """
        down = shut(self.record.device, self.record.ifindex)
        joins = any(operation.replugs() for operation in todo)
        if not self.leaves and (not joins or not any(each.confines() and each.of_port() for each in self.resolved)):
            return todo
        return [down, *(operation for operation in self.resolved if operation in todo or operation.place() == down.place())]

    def done(self, view: View, todo: list[Operation]) -> None:
        """Raise HostRefused for what the host refuses, and for what of ``todo`` does not hold although it was applied."""
        again, hindered = [], list(self.hindered)
        for operation, text in execute.drift(view, todo):
            if why := operation.hindered(view):
                hindered.append(why)
            else:
                again.append(f"{operation.describe()}: {text}")
        if again or hindered or self.hopeless:
            failed = ["repaired, but it does not hold", *again] if again else []
            raise HostRefused("; ".join([*refusals(self.hopeless, hindered), *failed]))

    def text(self, todo: list[Operation], was: str = "") -> str:
        """Say what was done; ``was``: the name that the device had before."""
        did = "; ".join(step.describe() for step in todo or self.outdated) or "nothing more was to be done"
        why = "its guest has arrived: " if self.here else "repaired "
        return f"{self.record.nic.label} on {self.record.device}: {f'it was {was}, ' if was else ''}{why}{did}"


def refusals(hopeless: Sequence[str], hindered: Sequence[str]) -> list[str]:
    """List why something cannot be made to hold, each reason once."""
    return [*hopeless, *dict.fromkeys(hindered)]


class Leaving(NamedTuple):
    """Say when what is wanted no more is reverted, while a NIC becomes another."""

    early: tuple[Operation, ...] = ()  #: makes room for what comes
    deciding: tuple[Operation, ...] = ()  #: leads to the guest, or decides where its frames go, which is down meanwhile
    late: tuple[Operation, ...] = ()  #: the same of one that stays up
    confining: tuple[Operation, ...] = ()  #: keeps the guest to its own: it stays if what the guest had beside it could not be removed
    delivering: tuple[Operation, ...] = ()  #: brings to the guest what it gets no other way until then


def stages(
    shut: Sequence[Operation], leaving: Leaving, make: Callable[[], Sequence[Operation]]
) -> Iterator[tuple[bool, Sequence[Operation]]]:
    """Give the one order in which a NIC becomes another: True with what is applied, False with what is reverted.

    Its device goes down where it must, what is wanted no more makes room, what ``make`` says by then comes, and last goes what has kept
    the guest to its own meanwhile, or has led to it. Of a device that is down, what decided where its frames go leaves before it comes up,
    and after what decides that then: frames that it had sent before are still on their way.
    """
    yield True, shut
    yield False, leaving.early
    made = make()
    opening = next((number for number, one in enumerate(made) if one.opens()), len(made)) if leaving.deciding else 0
    yield True, made[:opening]
    yield False, leaving.deciding
    yield True, made[opening:]
    yield False, leaving.late
    yield False, leaving.confining
    yield False, leaving.delivering


def networks(operations: Iterable[Operation]) -> set[tuple[object, ...]]:
    """Give the networks in which the NIC's device is by its operations (Operation.network); a family more or less changes none."""
    return {one.network() for one in operations if one.network()}


def part(view: View, outdated: Sequence[Operation], wanted: Sequence[Operation], moves: bool, shut: bool) -> Leaving:
    """Part what makes room from what goes last: as long as the device is up, that keeps the guest to its own, or leads to it.

    Of what is ``outdated`` the place of which something ``wanted`` takes neither goes: it is another by then. ``moves``: the network
    changes too; what was of its former port goes before it leaves that, and its VLANs. ``shut``: the device is down meanwhile.
    """
    early: list[Operation] = []
    lasting: list[Operation] = []
    confining: list[Operation] = []
    delivering: list[Operation] = []
    for one in execute.Among(wanted).leaves(outdated):
        lasts = bool(one.unbroken() or one.leads_to())
        if one.effective(view).confines() and (lasts or not moves):
            confining.append(one)
        elif one.delivers() and not moves:
            delivering.append(one)
        else:
            (lasting if lasts else early).append(one)
    deciding, late = (lasting, []) if moves and shut else ([], lasting)
    return Leaving(tuple(early), tuple(deciding), tuple(late), tuple(confining), tuple(delivering))


def intended(node: Node, record: Record) -> list[Operation]:
    """Give everything that the record stands for, what is left under old names too, and what was owed if its guest is here.

    Raises SettingsInvalid where something may be owed, and the settings cannot be read.
    """
    here = record.state == UP and arrived(node, record)
    if here:
        usable(node.settings)
    return [*execute.replacing(execute.in_order(execute.decode(record)[0]))[0], *(owed(node, record) if here else ())]


def kept_up(node: Node, view: View, record: Record, operation: Operation) -> bool:
    """Tell whether ``operation`` is to be made again; of a NIC that is closing not what another one has by now.

    Its guest is still there, and is guarded until its device goes. One that has come up on another device has its address there.
    """
    if not execute.looked_after(node, operation):
        return False
    if record.state == UP:
        return True
    if record.moved and operation.of_guest():
        return False
    way = operation.leads_to()
    index = operation._asdict().get("ifindex")
    return not way or all(route.index in (0, index) for route in at(view, way) if route.protocol == PROTOCOL)


def examine(
    node: Node, view: View, record: Record, log: Log, wanted: Callable[[Operation], bool], also: Sequence[Operation] = ()
) -> Mending:
    """Work out what it takes, of what is ``wanted``. Changes nothing. Raises TryAgain, and NicInvalid for tags that are taken no more.

    ``also``: what else of the NIC is on record, which knows what was there before us.
    """
    known, unknown = execute.decode(record)
    former = left(record, known)
    operations, replaced = execute.replacing([operation for operation in execute.in_order(known) if operation not in former])
    all_of_it = [operation for operation in intended(node, record) if operation not in former]
    given_up = frozenset(intent(operation) for operation in all_of_it if not kept_up(node, view, record, operation))

    def wants(operation: Operation) -> bool:
        return wanted(operation) and intent(operation) not in given_up

    here = record.state == UP and arrived(node, record)
    planned: dict[object, Operation] = {intent(operation): operation for operation in all_of_it if intent(operation) not in given_up}
    resolved, refused = execute.resolve_each(node, view, planned.values(), [*operations, *also], record.key, log)
    execute.refuse_another(resolved, record.device, record.ifindex)
    if not also:  # on its way back it becomes what it was, and nothing more
        resolved = [one.outgrown(view, node.store.devices) if wants(one) else one for one in resolved]
    stuck = [old for old in resolved if any(intent(old) == intent(one) for one, _why in refused)]
    # what was found elsewhere before: on an uplink that is none any more, or one that has only lost its default route for now
    elsewhere = execute.Among(resolved).lacks(operations)
    outdated = [operation for operation, _text in execute.drift(view, elsewhere) if wants(operation)]
    outdated += [operation for operation in replaced if wants(operation)]
    resolved += [old for old in [*elsewhere, *replaced] if old not in outdated]
    drifted = [operation for operation, _text in execute.drift(view, resolved) if wants(operation)]
    hopeless = tuple(dict.fromkeys(str(why) for one, why in refused if wants(one) and not _holds(one, stuck, drifted)))
    stale = any(wants(operation) and operation not in stuck for operation, _text in execute.drift(view, operations))
    others = {id(one): why for one in drifted if one not in stuck and (why := one.hindered(view))}
    hindered = tuple(dict.fromkeys(others.values()))
    later = any(one.exclusive() for one, _why in refused)
    leaving = tuple(operation for operation in former if wanted(operation))
    staying = tuple(operation for operation in former if operation not in leaving)
    record = record._replace(incoming=record.incoming and (later or not here))
    blocked = bool(hopeless or hindered)
    todo = tuple(one for one in drifted if one not in stuck and id(one) not in others and not (blocked and one.lets_in()))
    out = [away for one in todo if len(todo) > 1 and (away := one.unplugged()) is not None and away.differs(view)]
    leaves = (shut(record.device, record.ifindex), *out) if out else ()
    all_resolved, old, refusals = tuple(resolved), tuple(outdated), (hopeless, hindered)
    strange, kept = tuple(unknown), tuple(stuck)
    return Mending(record, strange, all_resolved, old, leaving, staying, leaves, kept, todo, *refusals, stale, here, given_up)


def _holds(refused: Operation, stuck: list[Operation], drifted: list[Operation]) -> bool:
    """Tell whether what the host refuses to be done anew is there as it was."""
    as_it_was = [operation for operation in stuck if intent(operation) == intent(refused)]
    return bool(as_it_was) and not any(operation in drifted for operation in as_it_was)


def exchanged(now: Mapping[Operation, Operation], operations: Iterable[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    """Give stored ``operations`` with those in the place of others that ``now`` says."""
    others = [(to_json(old), to_json(new)) for old, new in now.items()]
    return tuple(next((new for old, new in others if stored == old), stored) for stored in operations)
