"""The whole model: every record examined on one snapshot of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from netcommon.host.api.host import View
from netcommon.lifecycle import execute
from netcommon.lifecycle.check import Report, check
from netcommon.lifecycle.context import Node, alive
from netcommon.lifecycle.lost_traffic import NOTHING, of_nic
from netcommon.lifecycle.renamed_device import drift as drift_of
from netcommon.lifecycle.renamed_device import follow
from netcommon.views.topology.model import Drift, NodeView
from netcommon.views.topology.nics import nic_view
from netcommon.views.topology.segments import segments
from runtime.errors import NetcommonError
from runtime.record import Record


def examine(node: Node, view: View, record: Record, known: execute.Known | None = None) -> tuple[Report, tuple[Drift, ...]]:
    """As check; and of what it cannot be told whether it holds: one silent service does not hide the rest."""
    try:
        return check(node, view, record, known), ()
    except NetcommonError:
        return _one_by_one(node, view, record)


def _one_by_one(node: Node, view: View, record: Record) -> tuple[Report, tuple[Drift, ...]]:
    """What a guest that is migrating in is owed is left out: without all of the picture it is not known to be here."""
    drift: list[tuple[str, str]] = []
    untold: list[Drift] = []
    try:
        there, record = alive(node, view, record), follow(node, view, record)
    except NetcommonError as error:
        unread = tuple(str(stored.get("kind")) for stored in execute.decode(record)[1])
        return Report(record, True, (), unread), (Drift("whether its device is there", str(error)),)
    operations, unknown = execute.decode(record.before or record)
    kinds = tuple(str(stored.get("kind")) for stored in unknown)
    for operation in operations if there else ():
        if not execute.looked_after(node, operation):
            continue
        try:
            drift += [(each.describe(), text) for each, text in drift_of(node, view, record, [operation], strict=True)]
        except NetcommonError as error:
            untold.append(Drift(operation.describe(), str(error)))
    lost = NOTHING
    try:
        lost = of_nic(view, record, operations, node.settings) if there else NOTHING
    except NetcommonError as error:
        untold.append(Drift("whether its traffic passes", str(error)))
    return Report(record, there, tuple(drift), kinds, dropped=lost.whole), tuple(untold)


def gather(
    node: Node,
    view: View,
    name: str,
    records: Iterable[Record],
    problems: Sequence[str] = (),
    tick: Callable[[int], None] = lambda done: None,
) -> NodeView:
    """The node as it is in ``view``, which is best a snapshot. ``tick`` is told how many records were examined."""
    examined = []
    known: execute.Known = {}
    for record in records:
        examined.append(examine(node, view, record, known))
        tick(len(examined))
    return node_view(view, name, examined, dict(node.settings.uplinks), problems)


def node_view(
    view: View,
    name: str,
    examined: Sequence[tuple[Report, tuple[Drift, ...]]],
    uplinks: dict[str, tuple[str, ...]],
    problems: Sequence[str] = (),
) -> NodeView:
    """The model of what was found. ``uplinks``: of bridges for which the settings name them."""
    guests: dict[str, list[str]] = {}
    for report, _untold in examined:
        guests.setdefault(report.record.nic.instance, []).append(report.record.nic.label)
    guests.pop("", None)
    nics = []
    for report, untold in examined:
        nic = report.record.nic
        nics.append(nic_view(report, untold, [label for label in guests.get(nic.instance, ()) if label != nic.label]))
    found, more = segments(view, nics, uplinks)
    why = dict.fromkeys(each.differs for _report, untold in examined for each in untold)
    said = [f"not all can be told: {each}" for each in why]
    return NodeView(name, found, (*problems, *said, *more))
