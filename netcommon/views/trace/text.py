"""The way of a frame for people: one paragraph for each thing that it meets, then where it ends and what could not be told."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.log import printable
from netcommon.views.topology.text import BOLD, GREEN, RED, YELLOW, Style
from netcommon.views.trace.frame import FROM_GUEST
from netcommon.views.trace.trail import DROPS, ENDS, FOREIGN, KERNEL, OURS, PASSES, UNTOLD, Path, Step

LEAD = {PASSES: "", DROPS: "DROPPED: ", ENDS: "", UNTOLD: "NOT KNOWN: "}
OF_VERDICT = {DROPS: RED, UNTOLD: YELLOW, ENDS: GREEN}
WHOSE = {OURS: " [ours]", FOREIGN: " [not ours]", KERNEL: ""}


def text(path: Path, style: Style) -> str:
    """All of it."""
    return "\n".join(_lines(path, style))


def _lines(path: Path, style: Style) -> Iterator[str]:
    way = "sends" if path.way == FROM_GUEST else "is sent from outside the node"
    yield f"{style.paint(printable(path.label), BOLD)} on {printable(path.device)} ({path.mode}) {way}: {printable(path.frame)}"
    yield ""
    width = max((len(printable(step.at)) for step in path.steps), default=0)
    for number, step in enumerate(path.steps, 1):
        yield from _step(number, step, width, style)
    yield ""
    yield style.paint("Where it ends" + (", as far as can be told" if path.untold else ""), BOLD)
    yield from (f"  * {printable(end)}" for end in path.ends or ["nowhere: nobody takes it"])
    if path.untold:
        yield style.paint("What is not known here", BOLD)
        yield from (f"  * {printable(each)}" for each in path.untold)


def _step(number: int, step: Step, width: int, style: Style) -> Iterator[str]:
    lead = f"{number:3}. {printable(step.at).ljust(width)}  "
    yield f"{lead}{printable(step.meets)}{WHOSE[step.whose]}"
    code = OF_VERDICT.get(step.verdict)
    said = LEAD[step.verdict] + printable(step.does)
    yield " " * len(lead) + (style.paint(said, code) if code else said)
