"""Carrying operations out on the host: resolve, apply, revert; and who owns what several NICs share."""

from __future__ import annotations

import errno

from netcommon.host.api.host import NOT_TRIED, View
from netcommon.host.api.requests import NftChange, achieved
from netcommon.host.linux.memo_view import MemoView
from netcommon.lifecycle.run_effects import perform
from netcommon.operations import from_json
from netcommon.operations.base import ABSENT, FOREIGN, OURS, Operation, UnknownKind, Waiting, inherit, intent, replaced
from runtime.errors import HostRefused, NetcommonError, RecordTooNew, TryAgain, typed
from runtime.typed import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from netcommon.effects.base import Effect
    from netcommon.host.api.host import Answer
    from netcommon.host.api.requests import Request
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from runtime.record import Record

    Failure = tuple[Operation, NetcommonError]

    #: What was found of an operation, by its kind and without its device.
    Known = dict[tuple[str, Operation], str]

#: Refusals that time may heal.
TRANSIENT = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOBUFS, errno.ENOMEM, errno.ETIMEDOUT})


def taken(record: Record) -> set[tuple[object, ...]]:
    """Give where operations of a record lead to (Operation.leads_to) that have found another NIC's in their place."""
    return {way for each in decode(record)[0] if each._asdict().get("found") == OURS and (way := each.leads_to())}


def decode(record: Record) -> tuple[list[Operation], list[Mapping[str, object]]]:
    """The operations of a record, and those of a kind that this version does not know."""
    known: list[Operation] = []
    unknown: list[Mapping[str, object]] = []
    for stored in record.operations:
        try:
            known.append(from_json(stored))
        except UnknownKind:
            unknown.append(stored)
    return known, unknown


def once(node: Node) -> View:
    """The host as it is now, for one decision (netcommon.host.linux.memo_view)."""
    return cast("View", MemoView(node.host.view()))


def keys_of(operations: Iterable[Operation]) -> list[str]:
    """The shared keys of some operations, sorted, each once."""
    return sorted({key for operation in operations for key in operation.shared()})


def locks_of(operations: Iterable[Operation]) -> list[str]:
    """Name what is locked while some operations are resolved, applied or reverted, each once."""
    return sorted({key for operation in operations for key in operation.locked()})


def resolve(
    node: Node, view: View, planned: Iterable[Operation], earlier: Sequence[Operation], record_key: str, log: Log
) -> list[Operation]:
    """The planned operations with what the host is like; what ``earlier``, the NIC's own record, found before us is kept.

    Raises HostRefused or TryAgain; nothing was changed.
    """
    made, refused, warnings = _resolve(node, view, planned, earlier, record_key)
    for _operation, error in refused:
        raise error
    for text in warnings:
        log.warning(text)
    return made


def resolve_each(
    node: Node, view: View, planned: Iterable[Operation], earlier: Sequence[Operation], record_key: str, log: Log
) -> tuple[list[Operation], list[Failure]]:
    """As ``resolve``, but what the host refuses is as it was on record, and the second answer; the others are resolved all the same.

    What is in table main and has another one by now is refused too: of its rule, which main needs none of, nothing is on record.
    """
    from netcommon.operations.table import out_of_main  # where something is repaired

    planned = list(planned)
    staying = [old for old in earlier if out_of_main(view, old)]
    stays = {intent(old) for old in staying}
    made, refused, warnings = _resolve(node, view, [one for one in planned if intent(one) not in stays], earlier, record_key)
    for text in warnings:
        log.warning(text)
    if staying:
        order = {intent(one): number for number, one in enumerate(planned)}
        made = sorted([*made, *staying], key=lambda one: order.get(intent(one), len(order)))
        refused += [(old, HostRefused(old.differs(view), "the NIC uses table main until its next up")) for old in staying]
    return made, refused


def _resolve(
    node: Node, view: View, planned: Iterable[Operation], earlier: Sequence[Operation], record_key: str
) -> tuple[list[Operation], list[Failure], list[str]]:
    """What was resolved, what was refused, and what is to be said of the rest."""
    view = _with_marks(node, view)
    warnings: list[str] = []
    made: list[Operation] = []
    refused: list[Failure] = []
    known: dict[object, list[Operation]] = {}
    for old in earlier:
        known.setdefault(intent(old), []).append(old)
    before = Among(earlier)
    for operation in planned:
        waiting = [old for old in known.get(intent(operation), ()) if old.waits(view)] if known else []
        if waiting:
            made += waiting
            continue
        try:
            for resolved in operation.resolve(view, warnings):
                if isinstance(resolved, Waiting):  # what was done before stays as it is, for when its object is there again
                    made += known.get(intent(operation)) or [resolved]
                    continue
                alike = before.like(resolved)
                like = alike or before.in_place_of(resolved)
                way = resolved.leads_to()
                there = resolved._asdict()["found"] if way else ""
                took = there == OURS or (there == ABSENT and _is_owed(node, way))
                one = inherit(resolved.retained(alike, earlier) if alike else resolved, like) if like else resolved
                made.append(_shared(node, replaced(one, found=OURS) if took else one, record_key))
                if like is None and took:
                    from netcommon.lifecycle.address_conflict import contested

                    warnings += contested(node, view, resolved, record_key)
        except HostRefused as error:
            refused.append((operation, error))
            made += known.get(intent(operation), ())
    return made, refused, warnings


def refuse_another(resolved: Iterable[Operation], device: str, ifindex: int) -> None:
    """Raise HostRefused where what was resolved for ``device`` is for one that has its name by now, and may be another guest's."""
    for operation in resolved:
        fields = operation._asdict()
        index = fields.get("tap", fields.get("ifindex", ifindex))  # what is on an uplink has its own, and the tap's beside it
        if fields.get("device") == device and index != ifindex:
            raise HostRefused(f"{device} is another device than a moment ago: nothing was done to it")


def _with_marks(node: Node, view: View) -> View:
    """Give the view on which every tap of ours bears our mark."""
    if node.settings.tap_alias:
        return view
    from netcommon.lifecycle.unaliased_taps import Recorded

    return cast("View", Recorded(view, node))


def looked_after(node: Node, operation: Operation) -> bool:
    """Tell whether it is to hold as it was recorded: not the mark on a device, where devices are to bear none by now."""
    return node.settings.tap_alias or not operation.marks()


#: Fields that tell where on the host an operation is: of two that ask for the same, those that differ in one are two.
PLACES = ("ifindex", "port", "table", "number")


def likeness(operation: Operation) -> tuple[object, ...]:
    """Give what two operations have in common that ask for the same on the same device (and uplink, table of a template, routing table)."""
    fields = operation._asdict()
    chosen = operation.CHOSEN
    asked = (value for name, value in fields.items() if name not in chosen)
    return operation.KIND, isinstance(operation, Waiting), *(fields.get(name) for name in PLACES), *asked


class Among:
    """Find operations among many by what they ask for, and by their place: a trunk has thousands."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._like: dict[tuple[object, ...], Operation] = {}
        self._placed: dict[str, Operation] = {}
        for operation in operations:
            self._like.setdefault(likeness(operation), operation)
            if place := operation.place():
                self._placed.setdefault(place, operation)

    def like(self, operation: Operation) -> Operation | None:
        """The first of them that asks for the same on the same device."""
        return self._like.get(likeness(operation))

    def in_place_of(self, operation: Operation) -> Operation | None:
        """The first of them whose place on the host ``operation`` has."""
        place = operation.place()
        return self._placed.get(place) if place else None

    def lacks(self, operations: Iterable[Operation]) -> list[Operation]:
        """Select those of ``operations`` that none of them is like."""
        return [operation for operation in operations if likeness(operation) not in self._like]

    def leaves(self, operations: Iterable[Operation]) -> list[Operation]:
        """Select those of ``operations`` whose place none of them has."""
        return [operation for operation in operations if self.in_place_of(operation) is None]


def in_place(operations: Sequence[Operation]) -> list[Operation]:
    """Put what an unfinished up has replaced, which stands last on the record, beside what has its place.

    Else a guard whose rules still hold would be undone before the link is down, and frames would pass unchecked.
    """
    first: dict[str, int] = {}
    places = [operation.place() or f"#{number}" for number, operation in enumerate(operations)]
    for number, place in enumerate(places):
        first.setdefault(place, number)
    return [operations[number] for number in sorted(range(len(operations)), key=lambda number: (first[places[number]], number))]


def replacing(operations: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Split what is wanted from what an unfinished up has replaced by it."""
    wanted: list[Operation] = []
    gone: list[Operation] = []
    places: set[str] = set()
    for operation in operations:
        place = operation.place()
        (gone if place and place in places else wanted).append(operation)
        places.add(place)
    return wanted, gone


def _shared(node: Node, operation: Operation, record_key: str) -> Operation:
    """What looks foreign is ours where another NIC's record says that we added it (a VLAN on an uplink can bear no mark).

    What a newer version has added stays that version's.
    """
    if operation._asdict().get("found") != FOREIGN:
        return operation
    for key in operation.shared():
        for other in node.store.owners.others(key, record_key):
            record = _readable(node, other)
            for theirs in decode(record)[0] if record and record.boot == node.identity.boot else ():
                if theirs.identity() == operation.identity() and theirs._asdict().get("found") != FOREIGN:
                    return replaced(operation, found=OURS)
    return operation


def _is_owed(node: Node, way: tuple[object, ...]) -> bool:
    """Tell whether what leads there is owed to somebody: whoever takes it now owes it too, when it goes."""
    if not node.store.owes():
        return False
    try:
        return any(debt.boot == node.identity.boot and way in taken(debt) for _name, debt in node.store.owed.each())
    except HostRefused:
        return False  # netcommon.lifecycle.check.restore says why


def _readable(node: Node, key: str) -> Record | None:
    try:
        return node.store.read(key)
    except RecordTooNew:
        return None


def claim(node: Node, operations: Iterable[Operation], record_key: str) -> None:
    """Makes the record an owner of every shared key of its operations."""
    for key in keys_of(operations):
        node.store.owners.claim(key, record_key)


def apply(node: Node, operations: Sequence[Operation], log: Log) -> None:
    """Applies them in order, in as few messages as possible. Raises HostRefused or TryAgain, naming the one that failed."""
    pairs = requests_of(operations)
    _carry_out(node, pairs, node.host.execute([request for _operation, request in pairs], stop=True) if pairs else [])
    applied(node, operations, log)


def apply_each(node: Node, lists: Sequence[Sequence[Operation]], logs: Sequence[Log]) -> list[NetcommonError | None]:
    """As ``apply`` for each of several NICs, whose requests travel together; the failure of each that failed. Never raises it."""
    pairs: list[list[tuple[Operation, Request]]] = []
    begun: list[NetcommonError | None] = []
    for operations in lists:
        try:
            pairs.append(requests_of(operations))
            begun.append(None)
        except Exception as error:  # an extension's, which is no other NIC's failure
            pairs.append([])
            begun.append(typed(error))
    answers = node.host.execute_each([[request for _operation, request in each] for each in pairs], stop=True)
    failures: list[NetcommonError | None] = []
    for operations, failure, each, said, log in zip(lists, begun, pairs, answers, logs, strict=True):
        try:
            if failure is not None:
                raise failure
            _carry_out(node, each, said)
            applied(node, operations, log)
            failures.append(None)
        except Exception as error:
            failures.append(typed(error))
    return failures


def retire(node: Node, operations: Sequence[Operation], key: str, log: Log) -> None:
    """Revert ``operations`` of the record ``key``, each on its own. Raises the first failure."""
    failures = revert(node, operations, key, log) if operations else []
    if failures:
        raise failures[0][1]


def settle_owners(node: Node, key: str, before: Iterable[Operation], lasting: Iterable[Operation]) -> None:
    """Make the record ``key`` an owner of what ``lasting`` shares with others, and of nothing else that it had: of ``before``."""
    lasting = list(lasting)
    for shared in set(keys_of(before)) - set(keys_of(lasting)):
        node.store.owners.release(shared, key)
    claim(node, lasting, key)


def requests_of(operations: Sequence[Operation]) -> list[tuple[Operation, Request]]:
    """Give what applies them: each request with its operation, or with the first of those that one transaction changes.

    What keeps the guest to its own is changed by one transaction of nftables, where it is side by side: no frame meets a part of it.
    """
    pairs: list[tuple[Operation, Request]] = []
    for operation in operations:
        for request in operation.apply():
            operation_before, before = pairs[-1] if pairs else (operation, None)
            if isinstance(before, NftChange) and isinstance(request, NftChange) and _own(operation_before) and _own(operation):
                both = NftChange(f"{before.what}, {request.what}", (*before.steps, *request.steps), request.otherwise)
                pairs[-1] = (operation_before, both)
            else:
                pairs.append((operation, request))
    return pairs


def _own(operation: Operation) -> bool:
    """Tell whether it keeps this one guest to its own; tables are of all NICs."""
    return bool(operation.confines()) and not operation.common()


def _carry_out(node: Node, pairs: Sequence[tuple[Operation, Request]], answers: Sequence[Answer]) -> None:
    """Goes on behind a refusal that says that it is so already. Raises HostRefused or TryAgain for the first other one."""
    while True:
        failed = [position for position, answer in enumerate(answers) if not answer.ok][:1]
        for position in failed:
            operation, request = pairs[position]
            if not achieved(request, answers[position].errno):
                if isinstance(request, NftChange) and answers[position].errno == errno.ENOENT:
                    raise Changed(f"{operation.describe()}: {answers[position].text}: nftables was changed meanwhile")
                raise refusal(operation, answers[position])
        pairs = pairs[failed[0] + 1 :] if failed else []
        if not pairs:
            return
        answers = node.host.execute([request for _operation, request in pairs], stop=True)


def applied(node: Node, operations: Sequence[Operation], log: Log) -> None:
    """They hold: that is logged, and told to whom they say."""
    for operation in operations:
        log.info(f"it waits for {operation.why}: {operation.describe()}" if isinstance(operation, Waiting) else operation.describe())
    perform(node, [effect for operation in operations for effect in operation.effects()], log)


class Changed(TryAgain):
    """Say that what was there a moment ago is not any more."""


def in_order(operations: Sequence[Operation]) -> list[Operation]:
    """Put what must stand whenever the device is up before that comes up; in records of earlier versions it stands behind."""
    up = next((number for number, operation in enumerate(operations) if operation.opens()), len(operations))
    behind = [operation for operation in operations[up:] if operation.unbroken()]
    return [*operations[:up], *behind, *(operation for operation in operations[up:] if operation not in behind)]


def refusal(operation: Operation, answer: Answer) -> NetcommonError:
    """The error for a refused step, with what was tried."""
    kind = TryAgain if answer.errno in TRANSIENT else HostRefused
    return kind(f"{operation.describe()}: {answer.text}")


def revert(node: Node, operations: Sequence[Operation], record_key: str, log: Log) -> list[Failure]:
    """Reverts them in reverse order, each on its own: none stops the next. Returns those that failed.

    What another NIC owns too is left to its last owner.
    """
    undoing = undo(node, once(node), operations, record_key, log)
    requests = undoing.requests
    return undone(node, undoing, node.host.execute(requests, stop=False) if requests else [], record_key, log)


class Undoing(NamedTuple):
    """How some operations are to be reverted."""

    done: list[Operation]  #: those that can be told to be undone once the requests are carried out
    failures: list[Failure]  #: what is known to fail already
    pairs: list[tuple[Operation, Request]]

    @property
    def requests(self) -> list[Request]:
        return [request for _operation, request in self.pairs]


def undo(node: Node, view: View, operations: Sequence[Operation], record_key: str, log: Log) -> Undoing:
    """What reverts them, in reverse order."""
    view = _with_marks(node, view)
    failures: list[Failure] = []
    done: list[Operation] = []
    pairs: list[tuple[Operation, Request]] = []
    for operation in reversed(operations):
        try:
            others = [other for key in operation.shared() for other in _sharer(node, operation, key, record_key)]
            if not others and operation.unmarked() and node.store.quarantined():
                others = ["whoever is in quarantine"]
            if others:
                log.info(f"kept, shared with {', '.join(others)}: {operation.describe()}")
            else:
                pairs += [(operation, request) for request in operation.revert(view)]
            done.append(operation)
        except NetcommonError as error:
            failures.append((operation, error))
        except Exception as error:  # whatever a damaged record made of it: the others are reverted all the same
            failures.append((operation, HostRefused(f"{type(error).__name__}: {error}")))
    return Undoing(done, failures, pairs)


def undone(node: Node, undoing: Undoing, answers: Sequence[Answer], record_key: str, log: Log) -> list[Failure]:
    """Give what failed of it; take the record from the owners of the rest, if that can be written, and tell who is to be told."""
    done, failures, pairs = undoing
    for (operation, request), answer in zip(pairs, answers, strict=True):
        if not answer.ok and answer.errno not in request.gone and answer != NOT_TRIED:  # that follows from a failure, which is told
            failures.append((operation, refusal(operation, answer)))
    failed = [operation for operation, _error in failures]
    found = {id(operation) for (operation, _request), answer in zip(pairs, answers, strict=True) if answer.ok}
    told: list[Effect] = []
    left: list[str] = []
    for operation in done:
        if operation not in failed:
            if id(operation) in found:
                log.info(f"undone: {operation.describe()}")
            if any(operation is tried for tried, _request in pairs):
                told += operation.effects()  # also where it had gone already: who is told may not know that
            left += [key for key in operation.shared() if not any(key in other.shared() for other in failed)]
    for operation, why in failures:
        log.error(f"could not be undone: {operation.describe()}: {why}")
    try:
        for key in left:
            node.store.owners.release(key, record_key)
    finally:
        perform(node, told, log)
    return failures


def _sharer(node: Node, operation: Operation, key: str, record_key: str) -> list[str]:
    """One other record that needs what ``operation`` has made, which ``key`` names, if there is any.

    A key names it by a name that another device may have by now, or by that of a table with another number: what is of another identity
    is another thing, and needs nothing of this one.

    A link alone says nothing: a hook killed between its record and its links leaves one of an earlier life of the record. A NIC of an
    earlier boot needs nothing any more. What cannot be read may need it. Where the links are lost the records tell.
    """
    for other in node.store.owners.each_other(key, record_key, node.store.keys):
        try:
            record = node.store.read(other)
        except RecordTooNew:
            return [other]
        now = record is None or record.boot == node.identity.boot
        wanted = operation.KIND, operation.identity()
        if now and (record is None or any((one.KIND, one.identity()) == wanted and key in one.shared() for one in decode(record)[0])):
            return [other]
    return []


def drift(view: View, operations: Iterable[Operation], known: Known | None = None, strict: bool = False) -> list[tuple[Operation, str]]:
    """The operations that do not hold, each with what differs.

    ``known``, for many NICs on one snapshot: what was found of operations that they have in common. What the host refuses to tell of one
    operation, such as of a file in a folder that others can write to, counts as what differs: it keeps nobody from the others. Only
    ``strict`` raises that too. Raises TryAgain: of what does not answer nothing is known.
    """
    found = []
    for operation in operations:
        if known is None or not operation.common():
            text = _differs(view, operation, strict)
        else:
            like = operation.KIND, replaced(operation, device="") if "device" in operation._asdict() else operation
            if like not in known:
                known[like] = _differs(view, operation, strict)
            text = known[like]
        if text:
            found.append((operation, text))
    return found


def _differs(view: View, operation: Operation, strict: bool) -> str:
    try:
        return operation.differs(view)
    except Exception as error:  # whatever a damaged record made of it: the others are looked at all the same
        told = isinstance(error, NetcommonError)
        if isinstance(error, TryAgain) or (told and strict):
            raise
        return f"cannot be told: {error if told else f'{type(error).__name__}: {error}'}"
