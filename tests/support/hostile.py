"""Sweeps of hostile inputs through what reads them: each ends in a typed error or a valid value, soon, and touches nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from runtime.errors import NetcommonError
from tests.support.mutate import Mutator
from tests.support.netns import slowness
from tests.support.sample import FULL
from tests.support.watch import WATCH, Slow, patience, peak

#: No input may take longer (seconds of this process), and none may take more memory at its worst (bytes).
LIMIT = 2.0
MEMORY = 512 << 20

#: Of the inputs of a full run, the default run tries one in so many.
SHARE = 100


class Target(NamedTuple):
    """What reads one kind of input. ``read`` raises NetcommonError for what is wrong, and nothing else."""

    name: str
    amount: int  #: inputs of a full run
    make: Callable[[Mutator], Any]
    read: Callable[[Any], object]
    seeds: tuple[bytes, ...] = (b"",)


class Report(NamedTuple):
    """How many inputs were tried, how many of them were taken for good, and what went wrong."""

    tried: int
    good: int
    failures: list[str]


def sweep(target: Target, root: str, count: int = 0) -> Report:
    """Tries ``count`` inputs (those of a full run, or a share). Stops at twenty failures."""
    count = count or (target.amount if FULL else max(target.amount // SHARE, 50))
    mutator = Mutator(target.name, target.seeds)
    failures: list[str] = []
    tried = good = 0
    before = peak()
    with WATCH.within(root) as strange, patience(LIMIT * slowness()) as wound:
        while tried < count:
            tried += 1
            given = target.make(mutator)
            wound()
            try:
                wrong = attempt(target.read, given)
            except Slow as slow:
                wrong = str(slow)
            good += wrong is None
            if wrong or strange:
                failures.append(f"{target.name}: {wrong or strange} for {given!r:.400}")
                strange.clear()
            if len(failures) >= 20:
                break
    if peak() - before > MEMORY:
        failures.append(f"{target.name}: {(peak() - before) >> 20} MB of memory")
    return Report(tried, good, failures)


def attempt(read: Callable[[Any], object], given: Any) -> str | None:
    """None where ``given`` was taken, "" where it was refused with a typed error, else what happened and where."""
    try:
        read(given)
    except NetcommonError as error:
        text = str(error)
        return "" if text and text.replace("\n", " ").isprintable() else f"an unprintable message {text!r}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error!s:.200} at {place.filename.rpartition('/')[2]}:{place.lineno}"
    return None
