"""An explanation in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime, tzinfo

from netcommon.log import printable
from netcommon.views.explain.model import DEFINED, DIFFERS, HOLDS, Explanation, Origin, Step
from netcommon.views.topology.text import BOLD, DIM, GREEN, RED, Style
from runtime.record import UP

WIDTH = 110

#: Defaults that say nothing.
OFF = frozenset({"false", "none"})


def text(one: Explanation, style: Style, zone: tzinfo | None = None) -> str:
    """All of one NIC; times are of ``zone``, or of this machine's."""
    lines = [f"{style.paint(printable(one.label), BOLD)} on {printable(one.device)} ({one.key})", f"  {_verdict(one, style)}", ""]
    lines += ["Where its settings come from", *_origins(one.origins, style), ""]
    if one.steps:
        lines += [f"What was done{_when(one, zone)}" if one.state != DEFINED else "What an up will do"]
        for number, step in enumerate(one.steps, 1):
            lines += _step(number, step, one, style)
    else:
        lines.append("Nothing of ours: what is done is left to the site's scripts")
    lines += [line for does in one.owed for line in _filled("  owed: ", does)]
    if one.today:
        lines += ["", "With today's settings", *(line for each in one.today for line in _filled("  ", each))]
    if one.advice:
        lines += ["", style.paint("What to do next", BOLD), *(line for each in one.advice for line in _filled("  * ", each))]
    whole = "\n".join(lines)
    return whole if style.branch[0] == "├" else whole.encode("ascii", "backslashreplace").decode("ascii")


def _filled(lead: str, text: str) -> list[str]:
    """Lines of at most WIDTH, the later ones under the first one's text; commands in them are not broken."""
    wrapped = textwrap.wrap(printable(text), WIDTH - len(lead), break_long_words=False, break_on_hyphens=False) or [""]
    return [(lead if number == 0 else " " * len(lead)) + line for number, line in enumerate(wrapped)]


def _verdict(one: Explanation, style: Style) -> str:
    """How it is, in one sentence."""
    wrong = sum(step.holds == DIFFERS for step in one.steps)
    unknown = sum(step.holds not in (HOLDS, DIFFERS) for step in one.steps)
    if one.state == DEFINED:
        return "It is defined, and not up."
    if not one.alive:
        return style.paint(f"Its record says {one.state}, but {one.taken_down or 'its device is gone'}.", RED)
    if one.state != UP:
        return style.paint(f"It is {one.state}, not up.", RED)
    if wrong:
        return style.paint(f"It is up, but {wrong} of {len(one.steps)} things that were done do not hold.", RED)
    if unknown:
        return style.paint(f"It is up; of {unknown} of {len(one.steps)} things that were done nobody can tell whether they hold.", RED)
    if one.dropped:
        return style.paint(f"It is up, but not all of its traffic passes: {printable(one.dropped[0])}.", RED)
    idle = sum(step.holds == HOLDS and bool(step.differs) for step in one.steps)
    if idle:
        return style.paint(f"It is up; without effect on this host: {idle} of {len(one.steps)} things that were done.", RED)
    return style.paint("It is up, and all that was done holds.", GREEN) if one.good else style.paint("It is up, with something owed.", RED)


def _when(one: Explanation, zone: tzinfo | None) -> str:
    by = f", by {'the command line' if one.door == 'cli' else printable(one.door)}" if one.door else ""
    if not one.created:
        return by
    return f"{by}, at {datetime.fromtimestamp(one.created, zone).astimezone(zone).strftime('%Y-%m-%d %H:%M:%S %z')}"


def _origins(origins: tuple[Origin, ...], style: Style) -> Iterator[str]:
    given = [each for each in origins if each.given]
    width = max((len(f"{each.name} = {each.value}") for each in given), default=0)
    for each in given:
        head = printable(f"{each.name} = {each.value}").ljust(min(width, 40))
        more = f"; it does nothing: {each.note}" if each.note else ""
        more += f"; it overrules {', '.join(each.overrules)}" if each.overrules else ""
        yield from _filled(f"  {head}  ", f"{each.origin if each.origin.startswith('set by ') else f'from {each.origin}'}{more}")
    default = [f"{each.name} = {each.value}" for each in origins if not each.given and each.value not in OFF]
    if default:
        yield from (style.paint(line, DIM) for line in _filled("  by default: ", ", ".join(default) + "; all other options are off"))


def _step(number: int, step: Step, one: Explanation, style: Style) -> Iterator[str]:
    lead = f"{number:>3}. "
    yield from _filled(lead, step.means)
    yield from (style.paint(line, DIM) for line in _filled(" " * len(lead), step.does))
    shared = f", shared with {words_of(step.shared_with)}" if step.shared_with else ""
    if step.holds == HOLDS and step.differs:
        yield from (style.paint(line, RED) for line in _filled(" " * len(lead), f"stands, without effect: {step.differs}{shared}"))
    elif step.holds == HOLDS:
        yield style.paint(f"{' ' * len(lead)}holds{shared}", GREEN)
    elif one.state != DEFINED:
        said = ("does NOT hold: " if step.holds == DIFFERS else "") + step.differs + shared
        yield from (style.paint(line, RED) for line in _filled(" " * len(lead), said))


def words_of(keys: tuple[str, ...], most: int = 3) -> str:
    """The first few."""
    return ", ".join(keys[:most]) + (f" and {len(keys) - most} more" if len(keys) > most else "")
