"""One NIC after the other, all subjects in turn: what each up and down takes."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.bench.nics import Measured
from tests.bench.place import Place, Spent
from tests.bench.subjects import BASH, SUBJECTS, Subject, there, tidy
from tests.support.tap import Tap

#: What is measured, by subject's name and direction.
Found = dict[tuple[str, str], list[Spent]]

FIRST = 0x10000  #: the first number of NICs that come and go
_numbers: Iterator[int] = itertools.count(FIRST)


def through(
    place: Place, mode: str, subject: Subject, checked: bool = False, before: Callable[[Measured], None] | None = None
) -> dict[str, Spent]:
    """One NIC up and down. Making its tap and ending it (15 ms, the kernel's) is not counted, nor ``before``. Raises RuntimeError."""
    nic = Measured(mode, next(_numbers), subject.guard)
    if before is not None:
        before(nic)
    tap = Tap(nic.tap)
    try:
        place.quiet()
        spent = {"up": subject.up(place, nic)}
        if checked and not there(nic):
            raise RuntimeError(f"{subject.name} has not brought up {mode}: {place.said()}")
        if subject.downs:
            spent["down"] = subject.down(place, nic)
            if checked and there(nic):
                raise RuntimeError(f"{subject.name} has not taken down {mode}: {place.said()}")
        else:
            tidy(nic)
    finally:
        tap.close()
    return spent


def measured(place: Place, mode: str, rounds: int, subjects: Sequence[Subject] = SUBJECTS) -> Found:
    """All ``subjects`` in each round, every time another first; two rounds before are not counted, in which the result is looked at."""
    found: Found = {}
    for number in range(-2, rounds):
        turned = number % len(subjects)
        for subject in (*subjects[turned:], *subjects[:turned]):
            for direction, spent in through(place, mode, subject, checked=number == -1).items():
                if number >= 0:
                    found.setdefault((subject.name, direction), []).append(spent)
    return found


def spread(values: Sequence[float]) -> list[float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return [round(middle, 4), round(low, 4), round(high, 4)]


def summary(found: Found) -> dict[str, Any]:
    """For each subject and direction: wall and CPU, and the ratios of their medians to those of Ganeti's up.

    The CPU of warm hooks is with the agent's, and that of programs that it runs.
    """
    told: dict[str, Any] = {}
    base = found.get((BASH.name, "up"))
    for (name, direction), samples in found.items():
        warm = name.startswith("warm")  # what the agent makes of the events of others' work is no part of that
        children = statistics.mean(one.children for one in samples) if warm else 0.0
        each: dict[str, Any] = {
            "wall": spread([one.wall for one in samples]),
            "cpu": spread([one.cpu + (one.agent if warm else 0.0) + children for one in samples]),
            "agent": round(statistics.median(one.agent for one in samples) + children, 4) if warm else 0.0,
        }
        if base:
            each["wall ratio"] = round(each["wall"][0] / statistics.median(one.wall for one in base), 3)
            each["cpu ratio"] = round(each["cpu"][0] / statistics.median(one.cpu for one in base), 3)
        told.setdefault(name, {})[direction] = each
    return told
