"""Run what is drawn, seed by seed, and shrink what violates something."""

from __future__ import annotations

import gc
import shutil
from typing import TYPE_CHECKING, NamedTuple

from mockcloud.explore.drawing import draw
from mockcloud.explore.shrinking import shrunk
from mockcloud.scenarios.running import Result, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mockcloud.scenarios.file import Scenario, Step

OFTEN = 50_000  #: objects that are made until Python looks for cycles: each cloud is one


class Found(NamedTuple):
    """A seed that violates something. ``result``: of all of it; ``scenario``: the fewest steps; ``last``: what those come to."""

    seed: int
    result: Result
    scenario: Scenario
    last: Result
    runs: int


def explore(seeds: Iterable[int], folder: str, more: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, Found | None]]:
    """Run the scenario of each seed, below a folder; give what it violates, shrunk, or None. ``more``: whether there is time for another.

    Raises HostRefused.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OFTEN, *before[1:])
    try:
        for seed in seeds:
            if not more():
                return
            scenario = draw(seed)
            result = tried(scenario, folder, seed)
            yield seed, _shrunk(scenario, folder, result) if result.violations else None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def tried(scenario: Scenario, folder: str, seed: int) -> Result:
    """Run a scenario up to its first violation on a cloud that goes again. Raises HostRefused."""
    root = f"{folder}/cloud"
    try:
        return play(scenario, root, seed, hasty=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _shrunk(scenario: Scenario, folder: str, result: Result) -> Found:
    """Leave out what the violation does without: one of the same kind counts."""
    kind, runs = result.violations[0].when, [0]

    def fails(steps: tuple[Step, ...]) -> bool:
        runs[0] += 1
        found = tried(scenario._replace(steps=steps), folder, result.seed)
        return bool(found.violations) and found.violations[0].when == kind

    least = scenario._replace(steps=shrunk(scenario.steps, fails))
    return Found(result.seed, result, least, tried(least, folder, result.seed), runs[0])
