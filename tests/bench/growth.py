"""What one NIC more costs where many are: and what the agent needs of the machine then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.bench.latency import measured, summary
from tests.bench.place import Place
from tests.bench.subjects import BASH, COLD_ONE, FLOOR, WARM_GUARD, WARM_ONE

MODES = ("bridged", "routed + table")
SUBJECTS = (BASH, FLOOR, WARM_ONE, WARM_GUARD, COLD_ONE)

#: How long the agent must have done nothing to be idle, and how long that is waited for (seconds).
QUIET, SETTLING = 4.0, 120.0

#: From one comparison of all NICs to the next an agent may let so much time pass (seconds).
PERIOD = 1500.0

#: A comparison costs more than so much of a processor (seconds).
WORTH = 0.02


def growth(place: Place, mode: str, counts: Sequence[int], rounds: int, resting: bool) -> dict[str, Any]:
    """For each number of guarded NICs present: the latencies, memory and descriptors; ``resting``: at the last what an idle agent uses.

    Memory is at rest: the larger one of an agent that has seen the NICs come, and where it is restarted for ``resting``, that one's too.
    """
    told: dict[str, Any] = {}
    for count in counts:
        place.present(mode, count)
        settle(place)
        found = summary(measured(place, mode, rounds, SUBJECTS))
        place.agent.rested(120)
        told[str(count)] = {"subjects": found, "memory": place.agent.memory, "descriptors": place.agent.descriptors}
    if resting:
        last = told[str(counts[-1])]
        last["idle"] = idle(place)
        last["memory"] = max(last["memory"], last["idle"]["memory"])
    return told


def settle(place: Place) -> None:
    """Waits until the agent is idle: the kernel tells of thousands of taps that were just made for a while."""
    limit, before = time.monotonic() + SETTLING, -1.0
    while (now := place.agent_cpu()) != before and time.monotonic() < limit:
        before = now
        time.sleep(QUIET)


def idle(place: Place) -> dict[str, float]:
    """While nothing happens: the part of one processor that the agent uses, from the end of one comparison of all NICs to that of the next.

    That is its whole cycle, "period" seconds. The first ones are the shortest, since it does not know yet what a comparison costs, so an
    agent that has just been started is soon at the begin of a whole one.
    """
    place.agent.restart()
    place.agent.rested(120)
    settle(place)
    memory = place.agent.memory  # it has just read everything
    _compared(place)
    _compared(place)
    used, begin = place.agent_cpu(), time.monotonic()
    _compared(place)
    period = time.monotonic() - begin
    return {"cpu": (place.agent_cpu() - used) / period, "period": period, "memory": max(memory, place.agent.memory)}


def _compared(place: Place) -> None:
    """Waits until the next comparison of all NICs is over. The agent is asked for its figures seldom: to tell them costs as well."""
    before, limit = place.agent.surveys(), time.monotonic() + PERIOD
    while time.monotonic() < limit:
        used = place.agent_cpu()
        time.sleep(1)
        if place.agent_cpu() - used > WORTH:
            while (now := place.agent_cpu()) - used > WORTH:  # it works still
                used = now
                time.sleep(1)
            if place.agent.surveys() > before:
                return
    raise AssertionError(f"no comparison of all NICs in {PERIOD:g} s")
