"""What top shows: the node, its agent and hooks, and a row for each NIC. Plain values, made of two readings and what was last looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from netcommon.host.api.host import View
from netcommon.lifecycle.check import Report
from netcommon.lifecycle.execute import decode
from netcommon.operations.guard.counters import dropped
from netcommon.operations.guard.table import NicGuard
from netcommon.views.format import natural
from netcommon.views.live.hook_stats import Calls
from netcommon.views.live.rates import Rate, Reading, rate
from netcommon.views.topology.document import plain
from netcommon.views.topology.model import CONDITIONS, GONE, GOOD, UNTOLD, Drift
from netcommon.views.topology.nics import condition, drift
from runtime.errors import NetcommonError
from runtime.record import Record

SCHEMA, VERSION = "netcommon-top", 1

#: A NIC's condition before it was looked at.
UNSEEN = "unseen"


class Look(NamedTuple):
    """What was found of one NIC when it was last looked at, which is less often than its counters are read."""

    record: Record
    condition: str  #: one of netcommon.views.topology.model.CONDITIONS, or UNSEEN
    drift: int  #: how many things do not hold, or keep its traffic from passing
    guard: int | None  #: how many frames of the guest the spoof guard has dropped since it was put in place; None: not known


class Row(NamedTuple):
    """One NIC. Rates are null where two readings do not give one: the device is gone, or new."""

    label: str
    instance: str
    number: int | None
    key: str
    uuid: str
    device: str
    mode: str
    link: str
    state: str
    condition: str
    drift: int
    received_bits: float | None
    sent_bits: float | None
    received_packets: float | None
    sent_packets: float | None
    received_dropped: float | None
    sent_dropped: float | None
    guard_dropped: int | None


class Agent(NamedTuple):
    """The node's agent."""

    running: bool
    text: str  #: "running for 3 h 4 min"; why it is not known
    alarms: tuple[str, ...]


class Top(NamedTuple):
    """The node at one moment."""

    name: str
    seconds: float  #: between the two readings
    looked: float | None  #: how long ago the records and the guards were looked at (seconds); None: not yet
    agent: Agent
    calls: tuple[Calls, ...]
    states: Mapping[str, int]  #: NICs by the state of their records
    conditions: Mapping[str, int]
    problems: tuple[str, ...]
    nics: tuple[Row, ...]


def looked(report: Report, untold: Sequence[Drift], view: View) -> Look:
    """From what check has found of a record; ``view`` is the snapshot that it used."""
    return Look(report.record, condition(report, untold), len(drift(report)) + len(report.unknown), _guarded(report.record, view))


def unlooked(record: Record) -> Look:
    """Of a record that nobody has compared with the host yet."""
    return Look(record, UNSEEN, 0, None)


def _guarded(record: Record, view: View) -> int | None:
    guards = [operation for operation in decode(record)[0] if isinstance(operation, NicGuard)]
    try:
        return sum(sum(dropped(guard, view).values()) for guard in guards) if guards else None
    except NetcommonError:
        return None


def rows(looks: Iterable[Look], before: Reading, after: Reading) -> list[Row]:
    """A row for each, in their order. One whose device is not among the counters now is gone, whatever was found before."""
    return [_row(look, rate(before, after, look.record.ifindex), look.record.ifindex in after.counters) for look in looks]


def _row(look: Look, now: Rate | None, there: bool) -> Row:
    record = look.record
    nic = record.nic
    return Row(
        nic.label,
        nic.instance,
        nic.index,
        record.key,
        record.uuid,
        record.device,
        nic.mode,
        nic.link,
        record.state,
        look.condition if there else GONE,
        look.drift,
        None if now is None else now.received_bits,
        None if now is None else now.sent_bits,
        None if now is None else now.received_packets,
        None if now is None else now.sent_packets,
        None if now is None else now.received_dropped,
        None if now is None else now.sent_dropped,
        look.guard,
    )


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


#: What rows can be sorted by: the most first, or by name as people count.
SORTS: dict[str, Callable[[Row], Any]] = {
    "traffic": lambda row: -_number(row.received_bits) - _number(row.sent_bits),
    "in": lambda row: -_number(row.received_bits),
    "out": lambda row: -_number(row.sent_bits),
    "packets": lambda row: -_number(row.received_packets) - _number(row.sent_packets),
    "drops": lambda row: -_number(row.received_dropped) - _number(row.sent_dropped),
    "guard": lambda row: -_number(row.guard_dropped),
    "condition": lambda row: (row.condition == GOOD, row.condition == UNTOLD, row.condition),
    "name": lambda row: natural(row.label),
}


def ordered(found: Iterable[Row], sort: str) -> list[Row]:
    """By one of SORTS; what is equal, by name."""
    return sorted(found, key=lambda row: (SORTS[sort](row), natural(row.label), row.key))


def counted(found: Sequence[Row]) -> tuple[dict[str, int], dict[str, int]]:
    """NICs by state, and by condition."""
    states, conditions = Counter(row.state for row in found), Counter(row.condition for row in found)
    return dict(sorted(states.items())), {name: conditions[name] for name in (*CONDITIONS, UNSEEN) if conditions[name]}


def document(top: Top) -> dict[str, Any]:
    """As JSON (docs/seeing.md)."""
    return {"schema": SCHEMA, "version": VERSION, **plain(top)}
