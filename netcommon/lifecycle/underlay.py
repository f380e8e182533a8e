"""Hold the node's part of an underlay: make what is known of it (runtime.underlay), verify it, put it back, and take away what is over.

The route for the rest of the prefix is made first and goes last, and the node's own address goes behind those of endpoints: so nothing on
the node has an address to speak from without a route. Nothing goes that neither is on record nor bears our mark.
"""

from __future__ import annotations

import os

from netcommon.lifecycle import execute
from netcommon.lifecycle.underlay_back import in_the_way
from netcommon.operations import from_json
from netcommon.operations.base import UnknownKind, inherit, replaced, to_json
from netcommon.operations.underlay import answering
from netcommon.plan.underlay import plan
from runtime import ganeti, membership, underlay, underlay_record
from runtime.errors import HostRefused, NetcommonError, RecordTooNew, RecordUnreadable
from runtime.typed import TYPE_CHECKING, NamedTuple
from runtime.wanted import read as read_wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.underlay import Endpoint, Underlay
    from runtime.underlay_record import UnderlayRecord

    #: Tells whether an operation that does not hold any more, for this reason, is made again; None: nobody looks at it.
    Judge = Callable[[Operation, str], bool | None]
    #: Tells whether an operation that was never there is tried now, perhaps again.
    Paced = Callable[[Operation], bool]

KEY = ""  #: of no NIC's record
VARIABLE = "NETCOMMON_ENDPOINT_"  #: what variables of the site's scripts begin with
FEW = 3  #: things that do not hold of which the problem tells
RETIRED = "retired"  #: the state of an endpoint to which no name leads any more


class Held(NamedTuple):
    """Hold what there is of the underlay on the node.

    ``wanted``: how many addresses are to be there; ``there``: those that are, and lead there.
    ``made``: what was made, anew or again; ``failed``: what was tried for that and could not be made, or is not there after it;
    ``problem``: one line, "" for none.
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


def variables(node: Node, instance: str, log: Log, ends: bool = False, uuid: str = "", cluster: str | None = None) -> dict[str, str]:
    """Give what the site's scripts are told of an instance's endpoints on this node, as last known: nobody waits for a registry.

    For each kind NETCOMMON_ENDPOINT_KIND_ADDRESS and _NAME, of that to which a name leads, or is to (``spoken``). ``ends``: what listens
    there is to end. Then a retired one is told where there is no other: of a guest that has moved away the name may lead elsewhere by now.
    ``uuid``: of the NIC for which they are told, or ``cluster``: of the guest; of two guests of one name they are those of that one.
    """
    try:
        known = known_of(node)
        ours = [each for each in known.endpoints if each.instance == instance] if known is not None and instance else []
        if cluster is not None:
            ours = [each for each in ours if each.cluster == cluster]
        elif ours:
            ours = _of_guest(node, instance, uuid, ours)
    except (HostRefused, RecordTooNew, RecordUnreadable) as error:
        log.warning(f"{node.paths.lib}/{underlay.NAME}: {error}")
        return {}
    found: dict[str, str] = {}
    for each in (*spoken(ours), *(each for each in ours if ends and each.state == RETIRED)):
        start = f"{VARIABLE}{each.kind.upper().replace('-', '_')}"
        found.setdefault(f"{start}_ADDRESS", each.address)
        found.setdefault(f"{start}_NAME", each.name)
    return found


def spoken(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Give those at which something is to listen: of each kind of a guest one, that to which a name leads, or else what was told last.

    A registry that was restored from an older copy may tell two, of which it lets the name lead to the last.
    """
    found: dict[tuple[str, str, str], Endpoint] = {}
    for each in endpoints:
        of = each.cluster, each.instance, each.kind
        if each.state != RETIRED and (of not in found or each.name or not found[of].name):
            found[of] = each
    return list(found.values())


def _of_guest(node: Node, instance: str, uuid: str, endpoints: list[Endpoint]) -> list[Endpoint]:
    """Give those of the endpoints of guests of one name that are of the guest of a NIC: a Ganeti cluster's, or another one of this node.

    The registry's word for the NIC counts, then its definition on this node, then what Ganeti runs here.
    """
    clusters = [each for each in endpoints if each.cluster]
    others = [each for each in endpoints if not each.cluster]
    if uuid and read_wanted(node.paths, uuid, [], readonly=True).tags is not None:
        return clusters
    ganetis = bool(ganeti.has_runtime(node.paths, instance))
    if uuid and os.path.exists(f"{node.paths.definitions}/{uuid}.toml"):
        return others or ([] if ganetis else clusters)
    return clusters or others if ganetis else others or clusters


def hold(node: Node, log: Log, judge: Judge = lambda _operation, _why: True, paced: Paced = lambda _operation: True) -> Held:
    """Make the node so. Raises TryAgain where the kernel does not answer, HostRefused where the record cannot be written.

    What was there and does not hold any more is for ``judge``. What was never there is made whatever that says, as often as ``paced`` lets.
    """
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
    if known is not None:
        is_up = _is_up(view, known, node.settings.underlay_device, record, earlier)
        if why := in_the_way(node, view, known, is_up):
            problems.append(why)
            planned = planned if is_up else []
    made, standing = _resolved(view, planned, earlier, problems)
    retiring = execute.Among([*made, *standing]).leaves(earlier)  # what a device has that is renamed stays in its place
    off = [(one, why) for one in made if (why := one.differs(view))]
    new = frozenset(execute.Among(earlier).lacks(made))
    begun = frozenset(() if record is None else record.pending)
    pending = frozenset(one for one, _why in off if one in new or one.identity() in begun)
    refused = [one for one in standing if one.identity() in begun]
    verdicts = {one: paced(one) if one in pending else judge(one, why) for one, why in off}
    todo = [one for one, verdict in verdicts.items() if verdict]
    generation = known.generation if known is not None else 0 if record is None else record.generation
    record = _write(node, record, generation, [*made, *standing, *retiring], [*pending, *refused])
    unmade, left = _done(node, todo, retiring, problems, log)
    failed = frozenset(unmade)
    view = execute.once(node)
    kept = [*made, *standing]
    lacking = [(one, why) for one, _why in off if one not in failed and verdicts[one] is not None and (why := one.differs(view))]
    problems += _said(lacking)
    problems += dict.fromkeys(idle for one in kept if (idle := one.idle(view)))
    _write(node, record, generation, [*kept, *left], [*(one for one in pending if one.differs(view)), *refused])
    addresses = answering(view, kept)
    wanted = len(addresses if known is None else known.addresses)
    prefix = "" if known is None else known.prefix
    generation = generation if kept or left else 0
    done = tuple(one for one in todo if one not in failed)
    return Held(prefix, generation, wanted, addresses, done, tuple(unmade), "; ".join(dict.fromkeys(problems)))


def _is_up(view: View, known: Underlay, device: str, record: UnderlayRecord | None, earlier: Iterable[Operation]) -> bool:
    """Tell whether any of a node's /64 is there already, which nothing takes away but the registry's word. A record may have been lost."""
    begun = frozenset(() if record is None else record.pending)
    own = [_what(one) for one in plan(known._replace(endpoints=()), device)]
    if any(_what(one) in own and one.identity() not in begun for one in earlier):
        return True
    link = view.link(device)
    return link is not None and any(each.address == known.own for each in view.addresses(link.index))


def _done(
    node: Node, todo: Sequence[Operation], retiring: Sequence[Operation], problems: list[str], log: Log
) -> tuple[list[Operation], Sequence[Operation]]:
    """Make what is to be made, and then take away what is over. Give what has failed of the first, and what is left of the second."""
    try:
        execute.apply(node, todo, log)
    except NetcommonError as error:
        problems.append(str(error))
        return list(todo), retiring
    view = execute.once(node)
    failed = [(one, why) for one in todo if (why := one.differs(view))]  # the kernel has not refused it
    if failed:
        problems += _said(failed)
        return [one for one, _why in failed], retiring
    left = [operation for operation, _error in execute.revert(node, retiring, KEY, log)]
    problems += [f"{operation.undo()}: could not be undone" for operation in left]
    return [], left


def _said(lacking: Sequence[tuple[Operation, str]]) -> list[str]:
    """Say what does not hold: the first few of it, since it may be thousands."""
    more = [f"and {len(lacking) - FEW} more"] if len(lacking) > FEW else []
    return [*(f"{operation.describe()}: {why}" for operation, why in lacking[:FEW]), *more]


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
                there = before.in_place_of(one)
                made.append(inherit(one, there) if there is not None else one)
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


def _write(
    node: Node, before: UnderlayRecord | None, generation: int, operations: Sequence[Operation], pending: Iterable[Operation]
) -> UnderlayRecord | None:
    """Write the record, unless it is as ``before``, and give it; nothing to record removes it. ``pending``: what was never there yet."""
    if not operations:
        underlay_record.remove(node.paths, node.identity.netns)
        return None
    named = tuple(sorted(one.identity() for one in pending))
    record = underlay_record.UnderlayRecord(node.identity.boot, generation, tuple(to_json(one) for one in operations), named)
    same = before is not None and (before.generation, before.pending) == (generation, named) and _operations(before) == list(operations)
    if not same:
        underlay_record.write(node.paths, node.identity.netns, record)
    return record
