"""Hold the node's part of an underlay: make what is known of it (runtime.underlay), verify it, put it back, and take away what is over.

The route for the rest of the prefix is made first and goes last, and the node's own address goes behind those of endpoints: so nothing on
the node has an address to speak from without a route. Nothing goes that neither is on record nor bears our mark.
"""

from __future__ import annotations

from netcommon.lifecycle import execute
from netcommon.operations import from_json
from netcommon.operations.base import UnknownKind, inherit, replaced, to_json
from netcommon.operations.underlay import answering
from netcommon.plan.underlay import plan
from runtime import membership, underlay, underlay_record
from runtime.errors import HostRefused, NetcommonError, RecordTooNew, RecordUnreadable
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.underlay import Underlay
    from runtime.underlay_record import UnderlayRecord

    #: Tells whether an operation that does not hold, for this reason, is made again.
    Judge = Callable[[Operation, str], bool]

KEY = ""  #: of no NIC's record
VARIABLE = "NETCOMMON_ENDPOINT_"  #: what variables of the site's scripts begin with
RETIRED = "retired"  #: the state of an endpoint to which no name leads any more


class Held(NamedTuple):
    """Hold what there is of the underlay on the node.

    ``wanted``: how many addresses are to be there; ``there``: those that are, and lead there.
    ``made``: what was made, anew or again; ``failed``: what was tried for that and could not be made; ``problem``: one line, "" for none.
    """

    prefix: str = ""
    generation: int = 0
    wanted: int = 0
    there: tuple[str, ...] = ()
    made: tuple[Operation, ...] = ()
    failed: tuple[Operation, ...] = ()
    problem: str = ""


def known_of(node: Node) -> Underlay | None:
    """Read what this node is to have; None for nothing: it has joined no registry, or what is known is another node's.

    Raises HostRefused, RecordTooNew, RecordUnreadable.
    """
    known = underlay.read(node.paths)
    member = membership.read(node.paths) if known is not None else None
    return known if known is not None and member is not None and member.uuid == known.node else None


def variables(node: Node, instance: str, log: Log, leaves: bool = False) -> dict[str, str]:
    """Give what the site's scripts are told of an instance's endpoints on this node, as last known: nobody waits for a registry.

    For each kind NETCOMMON_ENDPOINT_KIND_ADDRESS and _NAME; of several of a kind that which a name leads to, or is to. One that is over,
    of the guest's last time here, is told only where it ``leaves``: nothing leads there any more, and a new one will be given.
    """
    try:
        known = known_of(node)
    except (HostRefused, RecordTooNew, RecordUnreadable) as error:
        log.warning(f"{node.paths.lib}/{underlay.NAME}: {error}")
        return {}
    found: dict[str, str] = {}
    there = known.endpoints if known is not None and instance else ()
    ours = [each for each in there if each.instance == instance and (leaves or each.state != RETIRED)]
    for each in sorted(ours, key=lambda each: each.state == RETIRED):
        start = f"{VARIABLE}{each.kind.upper().replace('-', '_')}"
        found.setdefault(f"{start}_ADDRESS", each.address)
        found.setdefault(f"{start}_NAME", each.name)
    return found


def hold(node: Node, log: Log, judge: Judge = lambda _operation, _why: True) -> Held:
    """Make the node so. Raises TryAgain where the kernel does not answer, HostRefused where the record cannot be written."""
    problems: list[str] = []
    record, earlier = _on_record(node, problems)
    try:
        known = known_of(node)
        planned = plan(known, node.settings.underlay_device)
    except (HostRefused, RecordTooNew, RecordUnreadable) as error:
        problems.append(f"{node.paths.lib}/{underlay.NAME}: {error}")
        known, planned = None, list(earlier)
    if not planned and not earlier:
        if record is not None:
            underlay_record.remove(node.paths, node.identity.netns)
        return Held(problem="; ".join(problems))
    view = execute.once(node)
    made, standing = _resolved(view, planned, earlier, problems)
    retiring = execute.Among([*made, *standing]).lacks(earlier)
    fresh = frozenset(execute.Among(earlier).lacks(made))
    todo = [one for one in made if (why := one.differs(view)) and (one in fresh or judge(one, why))]
    generation = known.generation if known is not None else 0 if record is None else record.generation
    _write(node, record, generation, [*made, *standing, *retiring])
    failed: list[Operation] = []
    left = retiring
    try:
        execute.apply(node, todo, log)
    except NetcommonError as error:
        problems.append(str(error))
        failed, todo = todo, []
    else:
        left = [operation for operation, _error in execute.revert(node, retiring, KEY, log)]
        problems += [f"{operation.undo()}: could not be undone" for operation in left]
    if left != retiring:
        _write(node, None, generation, [*made, *standing, *left])
    view = node.host.view()
    kept = [*made, *standing]
    problems += dict.fromkeys(idle for one in kept if (idle := one.idle(view)))
    addresses = answering(view, kept)
    wanted = len(addresses if known is None else known.addresses)
    prefix = "" if known is None else known.prefix
    generation = generation if kept or left else 0
    return Held(prefix, generation, wanted, addresses, tuple(todo), tuple(failed), "; ".join(dict.fromkeys(problems)))


def seen(node: Node, view: View) -> tuple[int, tuple[str, ...]]:
    """Give the generation that the node has been made by, and the addresses of ours that are there; 0 and none where nothing is."""
    record, operations = _on_record(node, [])
    return 0 if record is None else record.generation, answering(view, operations)


def identities(node: Node) -> frozenset[str]:
    """Name what of the underlay is somebody's on this node, for an inventory. Raises HostRefused where that cannot be told."""
    try:
        record = _recorded(node)
        if record is not None:
            return frozenset(one.identity() for one in _operations(record))
        planned = plan(known_of(node), node.settings.underlay_device)
    except (RecordTooNew, RecordUnreadable) as error:
        raise HostRefused(f"what the underlay has made cannot be told: {error}") from None
    if not planned:
        return frozenset()
    link = node.host.view().link(node.settings.underlay_device)
    index = 0 if link is None else link.index
    return frozenset((replaced(one, ifindex=index) if one.about() else one).identity() for one in planned)


def _resolved(
    view: View, planned: Iterable[Operation], earlier: Sequence[Operation], problems: list[str]
) -> tuple[list[Operation], list[Operation]]:
    """Give what is planned as the host is like, and of what the host refuses what is on record; ``problems`` says why."""
    before = execute.Among(earlier)
    places = {_what(one): one for one in earlier}
    made: list[Operation] = []
    standing: list[Operation] = []
    for operation in planned:
        try:
            for one in operation.resolve(view, []):
                like = before.like(one)
                made.append(inherit(one, like) if like is not None else one)
        except HostRefused as error:
            problems.append(str(error))
            standing += [old for old in [places.get(_what(operation))] if old is not None]
    return made, standing


def _what(operation: Operation) -> tuple[object, ...]:
    """Give what it is to make, on whichever device."""
    fields = operation._asdict()
    return operation.KIND, *(value for name, value in fields.items() if name != "device" and name not in operation.CHOSEN)


def _recorded(node: Node) -> UnderlayRecord | None:
    return underlay_record.read(node.paths, node.identity.netns, node.identity.boot)


def _on_record(node: Node, problems: list[str]) -> tuple[UnderlayRecord | None, list[Operation]]:
    """Read what was made since the boot. A damaged record is put aside: what bears our mark is found without it."""
    try:
        record = _recorded(node)
        return record, [] if record is None else _operations(record)
    except RecordUnreadable as error:
        problems.append(underlay_record.put_aside(node.paths, node.identity.netns, str(error)))
    return None, []


def _operations(record: UnderlayRecord) -> list[Operation]:
    """Give the operations of a record. Raises RecordUnreadable."""
    try:
        return [from_json(each) for each in record.operations]
    except UnknownKind as error:
        raise RecordUnreadable(str(error)) from None


def _write(node: Node, before: UnderlayRecord | None, generation: int, operations: Sequence[Operation]) -> None:
    """Write the record, unless it is as ``before``; nothing to record removes it."""
    if not operations:
        underlay_record.remove(node.paths, node.identity.netns)
        return
    stored = tuple(to_json(one) for one in operations)
    record = underlay_record.UnderlayRecord(node.identity.boot, generation, stored)
    if before is None or before.generation != generation or _operations(before) != list(operations):
        underlay_record.write(node.paths, node.identity.netns, record)
