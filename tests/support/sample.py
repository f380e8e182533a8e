"""Choose which of many cases the default run takes; ``tests/run --full`` takes all, but of those that are drawn by a seed a part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

FULL = os.environ.get("NETCOMMON_TESTS_FULL") == "1"
DRAWN = os.environ.get("NETCOMMON_TESTS_DRAWN") == "all"  #: all of the drawn ones, in a full run: hours

T = TypeVar("T")


def sample(cases: Sequence[T], count: int, full: int = 0) -> list[T]:
    """``count`` of ``cases``, evenly spread, first and last included, the same each time; all of them in a full run, or so many as
    ``full`` says, where there are thousands.
    """
    if FULL:
        count = full if full and not DRAWN else len(cases)
    if count >= len(cases):
        return list(cases)
    if count < 2:
        return list(cases[:count])
    return [cases[round(position * (len(cases) - 1) / (count - 1))] for position in range(count)]


def drawn(by_default: int, full: int, every: int) -> int:
    """Give how many drawn cases are tried, the first ones of ``every``: those of a full run end within its time."""
    return by_default if not FULL else every if DRAWN else full
