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


def growth(place: Place, mode: str, counts: Sequence[int], rounds: int, idle: float) -> dict[str, Any]:
    """For each number of guarded NICs present: the latencies, memory and descriptors; at the last, what an idle agent uses."""
    told: dict[str, Any] = {}
    for count in counts:
        place.present(mode, count)
        settle(place)
        found = summary(measured(place, mode, rounds, SUBJECTS))
        place.agent.rested(120)
        told[str(count)] = {"subjects": found, "memory": place.agent.memory, "descriptors": place.agent.descriptors}
    told[str(counts[-1])]["idle cpu"] = idle_cpu(place, idle)
    return told


def settle(place: Place) -> None:
    """Waits until the agent is idle: the kernel tells of thousands of taps that were just made for most of a minute (linkwatch)."""
    limit, before = time.monotonic() + SETTLING, -1.0
    while (now := place.agent_cpu()) != before and time.monotonic() < limit:
        before = now
        time.sleep(QUIET)


def idle_cpu(place: Place, seconds: float) -> float:
    """The part of one processor that the agent uses while nothing happens."""
    settle(place)
    used, begin = place.agent_cpu(), time.monotonic()
    while time.monotonic() - begin < seconds:
        time.sleep(0.25)
    return (place.agent_cpu() - used) / (time.monotonic() - begin)
