"""The ratios that must not worsen: of our hooks to Ganeti's script, mode by mode. Stored in ratios.json by tests/bench/run --ratios.

Stored is, for each, the greatest of three machines' figures of one version (827ec99): where page faults are dear, Python's start takes half
as long again as elsewhere, in times of a shell's.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench import latency
from tests.bench.nics import KERNEL, SWITCHED
from tests.bench.place import prepared
from tests.bench.subjects import BASH, COLD_GUARD, COLD_ONE, WARM_GUARD, WARM_ONE

STORED = Path(__file__).with_name("ratios.json")
STORED_ROUNDS = 31
WORSE = 1.25
MODES = (*KERNEL, *SWITCHED[:1])
SUBJECTS = (BASH, WARM_ONE, COLD_ONE, WARM_GUARD, COLD_GUARD)

#: By "MODE, SUBJECT, DIRECTION": the ratio of each round, of two calls that were made within a tenth of a second of one another.
Rounds = dict[str, list[float]]


def measured(rounds: int, modes: Sequence[str] = MODES) -> Rounds:
    """Wall times of our up and down in times of Ganeti's up of the same round. Raises RuntimeError."""
    told: Rounds = {}
    for switched, chosen in ((False, KERNEL), (True, SWITCHED)):
        wanted = [mode for mode in chosen if mode in modes]
        if not wanted:
            continue
        with prepared(switched) as place:
            for mode in wanted:
                found = latency.measured(place, mode, rounds, SUBJECTS)
                base = found[BASH.name, "up"]
                for (name, direction), samples in found.items():
                    if name != BASH.name:
                        told[f"{mode}, {name}, {direction}"] = [a.wall / b.wall for a, b in zip(samples, base, strict=True)]
    return told


def store(found: Rounds) -> None:
    STORED.write_text(json.dumps({name: round(statistics.median(values), 3) for name, values in found.items()}, indent=1) + "\n")


def stored() -> dict[str, float]:
    ratios: dict[str, float] = json.loads(STORED.read_text())
    return ratios


def worse(found: Mapping[str, Sequence[float]], limits: Mapping[str, float]) -> list[str]:
    """Those whose median is more than a quarter above what is stored, in words."""
    return [
        f"{name}: {statistics.median(values):.2f} times Ganeti's, stored is {limits[name]:.2f}"
        for name, values in found.items()
        if statistics.median(values) > WORSE * limits[name]
    ]


def wide(values: Sequence[float]) -> bool:
    """Whether the rounds disagree by more than the quarter that is looked for: then the machine did something else beside."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low > (WORSE - 1) * middle
