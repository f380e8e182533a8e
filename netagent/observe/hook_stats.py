"""What the agent's socket tells of the hooks' calls: how many by outcome, and how long they took, by door, mode and path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netagent.observe.metrics import BUCKETS, Metrics

#: The format of the answer: grows when a field goes or changes its meaning.
FORMAT = 1

Place = tuple[str, str, str]


def hooks(metrics: Metrics) -> dict[str, object]:
    """The answer to "hooks". Buckets are not cumulative: each holds what took longer than the one before, up to its bound (seconds)."""
    calls: dict[Place, dict[str, Any]] = {}

    def of(labels: Mapping[str, str]) -> dict[str, Any]:
        place = labels["door"], labels["mode"], labels["path"]
        names = dict(zip(("door", "mode", "path"), place, strict=True))
        return calls.setdefault(place, {**names, "outcomes": {}, "buckets": [0] * (len(BUCKETS) + 1), "sum": 0.0})

    for labels, value in metrics.series("netcommon_hook_calls_total"):
        of(labels)["outcomes"][labels["outcome"]] = int(value)
    for labels, buckets, total in metrics.observed("netcommon_hook_seconds"):
        of(labels).update(buckets=buckets, sum=round(total, 6))
    return {"format": FORMAT, "bounds": list(BUCKETS), "calls": [calls[place] for place in sorted(calls)]}
