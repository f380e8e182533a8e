"""Say what a rehearsal has found: as a table, NIC by NIC in words, and as plain values for JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.rehearsal.rehearsing import AT_LEASE, AT_START
from netcommon.cli.output import table
from netcommon.log import printable
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mockcloud.rehearsal.rehearsing import Foretold
    from mockcloud.rehearsal.settings import Differs
    from mockcloud.rehearsal.upgrading import Upgraded
    from netcommon.lifecycle.change import Difference
    from netcommon.operations.base import Operation

WORDS = ("undone", "released", "replaced", "done")  #: what becomes of operations, as netcommon change --dry-run says it
ALONE = "on record alone"
WHEN = {AT_START: "at their guests' next start", AT_LEASE: "when their guests renew their lease, or start"}
MOST = 40  #: refusals that are said one by one
LONGEST = 60  #: characters of a cell


class Totals(NamedTuple):
    """Say how many NICs become what, and what that costs."""

    nics: int = 0
    nodes: int = 0  #: on which NICs are
    unplaced: int = 0  #: NICs of which nobody says where they are
    change: int = 0
    recorded: int = 0  #: whose records alone would become others
    refused: int = 0
    requests: int = 0  #: to simulated hosts, for all changes
    seconds: float = 0.0  #: of CPU, for all changes


def totals(found: Sequence[Foretold]) -> Totals:
    """Count what was rehearsed."""
    return Totals(
        len(found),
        len({one.node for one in found if one.node}),
        sum(not one.node for one in found),
        sum(one.changes for one in found),
        sum(one.recorded for one in found),
        sum(one.refused is not None for one in found),
        sum(one.requests for one in found if one.changes),
        sum(one.seconds for one in found if one.changes),
    )


def operations(one: Difference) -> dict[str, Sequence[Operation]]:
    """Give what becomes of operations, by WORDS."""
    return dict(zip(WORDS, (one.gone, one.released, one.replaced, one.made), strict=True))


# -- for JSON


def document(
    found: Sequence[Foretold], differs: Iterable[tuple[str, Differs]], notes: Iterable[str], other: Iterable[Upgraded] = ()
) -> dict[str, Any]:
    """Give plain values.

    ``differs``: settings that differ, each with the node whose own they are, "" for all others'; ``other``: what an upgrade comes to.
    """
    return {
        **totals(found)._asdict(),
        "settings": [{"node": node, **one._asdict()} for node, one in differs],
        "notes": list(notes),
        "results": [_plain(one) for one in found],
        "upgrade": [_upgrade(one) for one in other],
    }


def _plain(one: Foretold) -> dict[str, Any]:
    difference = one.difference
    said: dict[str, Any] = {"nic": one.nic.label, "uuid": one.nic.uuid, "node": one.node, "running": one.running, "device": one.device}
    said |= {"changed": one.changes, "recorded": one.recorded}
    said["options"] = [_option(*each) for each in (difference.options if difference else ())]
    for word, made in (operations(difference) if difference else dict.fromkeys(WORDS, ())).items():
        said[word] = [{"kind": each.KIND, "text": each.describe()} for each in made]
    said |= {"needs": list(one.needs), "warnings": list(one.warnings), "requests": one.requests, "seconds": round(one.seconds, 6)}
    for name, why in (("refused", one.refused), ("refused_today", one.before)):
        said[name] = None if why is None else why._asdict()
    return said


def _upgrade(one: Upgraded) -> dict[str, Any]:
    parts = {name: [{"kind": each.KIND, "text": each.describe()} for each in getattr(one, name)] for name in ("also", "no_more")}
    return {**one._asdict(), **parts, "unknown": list(one.unknown), "refused": None if one.refused is None else one.refused._asdict()}


def _option(name: str, before: object, after: object) -> dict[str, str]:
    return {"name": name, "before": shown(name, before), "after": shown(name, after)}


# -- for people


def text(found: Sequence[Foretold], differs: Sequence[tuple[str, Differs]], notes: Iterable[str], each: bool) -> Iterator[str]:
    """Give lines. ``each``: every NIC that changes in words, instead of a table of those that change alike."""
    said = totals(found)
    same = said.nics - said.change - said.recorded - said.refused
    alone = f"{said.recorded} would be {ALONE}, " if said.recorded else ""
    where = f"on {said.nodes} node{'s' if said.nodes > 1 else ''}" if said.nodes else "of which nobody says on which node they are"
    yield f"{said.nics} NICs {where}: {said.change} would change, {alone}{said.refused} would be refused, {same} stay as they are"
    if said.nodes and said.unplaced:
        yield f"of {said.unplaced} NICs nobody says on which node they are: they have the settings of all nodes"
    yield from notes
    if differs:
        yield ""
        rows = [(one.key, _short(one.before), _short(one.after), one.source, node or "all", one.needs) for node, one in differs]
        yield table(("SETTING", "IS", "WOULD BE", "FROM", "NODES", "BESIDES"), rows)
    changing = [one for one in found if one.changes]
    if told := [one for one in found if one.changes or one.recorded]:
        yield ""
        if each:
            yield from (line for one in told for line in _in_words(one))
        else:
            yield table(("NICS", "SUCH AS", "OPTIONS", *(word.upper() for word in WORDS)), _alike(told))
    yield from _refusals(found)
    yield from _when(changing)
    if changing:
        yield ""
        yield (
            f"the changes were {said.requests} requests and {said.seconds:.2f} s of CPU on simulated hosts, one after the other; "
            "a real kernel and real services are not in that"
        )


def _alike(told: Iterable[Foretold]) -> Iterator[tuple[object, ...]]:
    """Give a row for each kind of change: how many NICs, the first one, and the kinds of operations."""
    groups: dict[tuple[str, ...], list[Foretold]] = {}
    for one in told:
        if one.difference is not None:
            options = "; ".join(
                f"{name} = {shown(name, after)}, is {shown(name, before)}" for name, before, after in one.difference.options
            )
            options = options or (ALONE if one.recorded else "")
            parts = [_kinds(made) for made in operations(one.difference).values()]
            groups.setdefault((options, *parts), []).append(one)
    for (options, *kinds), same in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield (len(same), same[0].nic.label, _short(options), *kinds)


def _kinds(made: Iterable[Operation]) -> str:
    return ", ".join(kind if number == 1 else f"{number} {kind}" for kind, number in Counter(one.KIND for one in made).items())


def _in_words(one: Foretold) -> Iterator[str]:
    if one.difference is None:
        return
    would = "come up, which it does not today" if one.before else "change" if one.changes else "be on record, and change nothing"
    yield f"{printable(one.nic.label)} on {one.node or 'a node'}: would {would}"
    for name, before, after in one.difference.options:
        yield f"  {name} = {shown(name, after)}, is {shown(name, before)}"
    for word, made in operations(one.difference).items():
        yield from (f"  {word}: {each.describe()}" for each in made)
    yield from (f"  warning: {warning}" for warning in one.warnings)


def _refusals(found: Iterable[Foretold]) -> Iterator[str]:
    refused = [one for one in found if one.refused is not None]
    if refused:
        yield ""
    for one in refused[:MOST]:
        today = "; today too" if one.before is not None else ""
        yield f"refused: {printable(one.nic.label)} on {one.node or 'a node'}: {one.refused.text if one.refused else ''}{today}"
    if len(refused) > MOST:
        yield f"refused: {len(refused) - MOST} more, which --json has"


def _when(changing: Iterable[Foretold]) -> Iterator[str]:
    counts = Counter(need for one in changing for need in one.needs)
    if counts:
        yield ""
    for need, number in counts.items():
        yield f"{number} of them have all of it only {WHEN[need]}"


def upgrade(other: Sequence[Upgraded], each: bool) -> Iterator[str]:
    """Give lines that say what an upgrade comes to. ``each``: every NIC that becomes another in words, instead of how many."""
    changing = [one for one in other if one.changes]
    yield ""
    yield (
        f"{len(other)} NICs on record: {len(changing)} would become others by this version, at their next start or netcommon change --all; "
        f"{sum(one.rewritten for one in other)} records are for netcommon upgrade to complete"
    )
    if each:
        for one in changing:
            yield f"{printable(one.nic)} on {one.node}:"
            yield from (f"  also: {operation.describe()}" for operation in one.also)
            yield from (f"  no more: {operation.describe()}" for operation in one.no_more)
    elif changing:
        groups: dict[tuple[str, str], list[Upgraded]] = {}
        for one in changing:
            groups.setdefault((_kinds(one.also), _kinds(one.no_more)), []).append(one)
        yield table(("NICS", "SUCH AS", "ALSO", "NO MORE"), [(len(same), same[0].nic, *kinds) for kinds, same in groups.items()])
    for one in other:
        if one.unknown:
            yield f"{printable(one.nic)} on {one.node}: this version does not know {', '.join(map(printable, one.unknown))}"
        if one.refused is not None:
            yield f"refused: {printable(one.nic or one.file)} on {one.node}: {one.refused.text}"


def _short(value: str) -> str:
    return value if len(value) <= LONGEST else value[: LONGEST - 3] + "..."
