"""How the hooks' calls go, from what the agent has counted: numbers, and times as far as a histogram tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Calls(NamedTuple):
    """Those of one door for one mode, done by the agent ("warm") or by the hook itself ("cold"), since the agent started."""

    door: str
    mode: str
    path: str
    number: int
    failed: int  #: those that did not end with exit status 0
    mean: float  #: seconds; 0 without any
    half: float | None  #: half of them took no longer than this (seconds); null: longer than the last bound
    most: float | None  #: and 99 of 100 no longer than this


def calls(answer: Mapping[str, Any]) -> tuple[Calls, ...]:
    """From the agent's answer to "hooks"; the busiest first."""
    bounds = [float(each) for each in answer["bounds"]]
    found = []
    for one in answer["calls"]:
        buckets = [int(each) for each in one["buckets"]]
        number = sum(buckets)
        outcomes = {str(name): int(value) for name, value in one["outcomes"].items()}
        failed = sum(value for name, value in outcomes.items() if name != "ok")
        mean = float(one["sum"]) / number if number else 0.0
        names = str(one["door"]), str(one["mode"]), str(one["path"])
        found.append(Calls(*names, sum(outcomes.values()), failed, mean, bound(bounds, buckets, 0.5), bound(bounds, buckets, 0.99)))
    return tuple(sorted(found, key=lambda each: (-each.number, each[:3])))


def bound(bounds: Sequence[float], buckets: Sequence[int], share: float) -> float | None:
    """The smallest bound that at least ``share`` of all observations keep; None where none does, 0 where nothing was observed.

    A histogram knows no more: what is said is an upper limit, not a measurement.
    """
    wanted, seen = share * sum(buckets), 0
    if not wanted:
        return 0.0
    for limit, number in zip(bounds, buckets, strict=False):
        seen += number
        if seen >= wanted:
            return limit
    return None
