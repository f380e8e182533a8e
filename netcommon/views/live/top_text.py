"""What top shows as lines: a head, and as many NICs as there is room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netcommon.log import printable
from netcommon.views import format as words
from netcommon.views.live.hook_stats import Calls
from netcommon.views.live.top import SORTS, UNSEEN, Row, Top
from netcommon.views.topology.model import DRIFTED, GONE, UNFINISHED, UNTOLD
from netcommon.views.topology.text import BOLD, DIM, OF_CONDITION, RED, YELLOW, Style

REVERSE = "7"  #: SGR
HEADINGS = ("GUEST", "TAP", "MODE", "IN bit/s", "pkt/s", "OUT bit/s", "pkt/s", "DROPS/s", "GUARD", "CONDITION")
#: Which of them stand at the right of their column: numbers.
NUMBERS = range(3, 9)
#: Doors and modes that are shown at most; on a low screen fewer.
CALLS = 6
#: Conditions that are told in the head.
BAD = {
    DRIFTED: "drifted",
    GONE: "with the device gone",
    UNFINISHED: "not up",
    UNTOLD: "good as far as can be told",
    UNSEEN: "not looked at",
}
UNITS = "kMGTPE"
#: An agent's loop turns every ten seconds; one that has not for so long hangs (seconds).
HANGS = 30.0


def text(top: Top, sort: str, style: Style) -> str:
    """All of it, every NIC."""
    return "\n".join(_all(top, sort, list(top.nics), CALLS, 0, style))


def screen(top: Top, sort: str, first: int, width: int, height: int, style: Style) -> list[str]:
    """As much as fits in ``height`` lines of ``width`` columns, NICs from position ``first`` on."""
    few = max(0, min(CALLS, height - 10))
    head = sum(1 for _line in _head(top, few, Style())) + 2  # an empty line, and the headings
    room = max(0, height - head - 1)
    shown = list(top.nics[first : first + room])
    last = f"{first + 1}-{first + len(shown)} of {len(top.nics)}" if shown else words.several(len(top.nics), "NIC")
    foot = f"{last} by {sort}   q quit, s sort by {_next(sort)}, arrows and space turn pages"
    lines = [*list(_all(top, sort, shown, few, width, style))[: max(0, height - 1)]]
    lines += [""] * (height - 1 - len(lines))
    return [*lines, style.paint(foot[:width], DIM)][-height:] if height > 0 else []


def _next(sort: str) -> str:
    names = list(SORTS)
    return names[(names.index(sort) + 1) % len(names)]


def _all(top: Top, sort: str, shown: Sequence[Row], few: int, width: int, style: Style) -> Iterator[str]:
    for line, code in _head(top, few, style):
        yield style.paint(_cut(line, width), code) if code else _cut(line, width)
    yield ""
    yield from _table(shown, sort, width, style)


def _cut(line: str, width: int) -> str:
    return line[:width] if width else line


def _head(top: Top, few: int, style: Style) -> Iterator[tuple[str, str]]:
    """Lines, and what each is painted with."""
    states = ", ".join(f"{number} {state}" for state, number in top.states.items()) or "no NICs"
    bad = ", ".join(f"{top.conditions[name]} {word}" for name, word in BAD.items() if top.conditions.get(name))
    ago = "not looked at yet" if top.looked is None else f"looked at {top.looked:.0f} s ago"
    yield f"{printable(top.name)}: {words.several(len(top.nics), 'NIC')}, {states}; {bad or 'all good'} ({ago})", BOLD
    yield f"agent: {printable(top.agent.text)}" + ("" if top.agent.alarms else ", no alarms" if top.agent.running else ""), ""
    for alarm in top.agent.alarms:
        yield f"ALARM {printable(alarm)}", RED
    for problem in top.problems:
        yield f"! {printable(problem)}", YELLOW
    for one in top.calls[:few]:
        yield f"hooks: {_calls(one)}", ""
    if len(top.calls) > few and few:
        yield f"hooks: {len(top.calls) - few} more kinds of calls (--json shows all)", DIM


def _calls(one: Calls) -> str:
    failed = f", {one.failed} failed" if one.failed else ""
    half, most = ("longer than all bounds" if each is None else f"<= {seconds(each)}" for each in (one.half, one.most))
    where = f"{printable(one.door)} {printable(one.mode)} {one.path}"
    return f"{where}: {words.several(one.number, 'call')}{failed}, mean {seconds(one.mean)}, half {half}, 99 % {most}"


def seconds(value: float) -> str:
    """A time: "4.2 ms", "1.5 s"."""
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def standing(state: str, uptime: float, turned: float) -> str:
    """How an agent stands, by its own word: "running for 3 h 4 min"; and that its loop hangs, where that has not turned for long."""
    minutes = int(uptime) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    short_time = f"{minutes} min" if minutes else f"{uptime:.0f} s"
    lasting = f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min" if hours else short_time
    return f"{state} for {lasting}" + (f", but its loop has not turned for {turned:.0f} s" if turned > HANGS else "")


def short(value: float | None) -> str:
    """A number in four or five characters: "0", "999", "1.23k", "45.6M"; "-" where there is none."""
    if value is None:
        return "-"
    power, number = 0, value
    while round(number, 0 if number >= 99.95 else 1 if number >= 9.995 else 2) >= 1000 and power < len(UNITS):
        power, number = power + 1, number / 1000
    if not power:
        return f"{number:.0f}" if number >= 9.95 or number == int(number) else f"{number:.1f}"
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{UNITS[power - 1]}"


def _cells(row: Row) -> tuple[str, ...]:
    drops = None if row.received_dropped is None or row.sent_dropped is None else row.received_dropped + row.sent_dropped
    return (
        printable(row.label),
        printable(row.device),
        row.mode,
        short(row.received_bits),
        short(row.received_packets),
        short(row.sent_bits),
        short(row.sent_packets),
        short(drops),
        short(row.guard_dropped),
        _condition(row),
    )


def _condition(row: Row) -> str:
    if row.condition == DRIFTED:
        return f"drifted ({row.drift})"
    return {GONE: "device gone", UNFINISHED: row.state, UNSEEN: "-"}.get(row.condition, row.condition)


def _table(shown: Sequence[Row], sort: str, width: int, style: Style) -> Iterator[str]:
    cells = [_cells(row) for row in shown]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        sides = (str.rjust if number in NUMBERS else str.ljust for number in range(len(row)))
        return "  ".join(side(cell, room) for side, cell, room in zip(sides, row, widths, strict=True)).rstrip()

    yield style.paint(_cut(line(HEADINGS), width), REVERSE)
    start = sum(widths[:-1]) + 2 * (len(widths) - 1)
    for row, one in zip(shown, cells, strict=True):
        whole = _cut(line(one), width)
        code = OF_CONDITION.get(row.condition, DIM if row.condition == UNSEEN else YELLOW)
        yield whole[:start] + (style.paint(whole[start:], code) if len(whole) > start else "")
