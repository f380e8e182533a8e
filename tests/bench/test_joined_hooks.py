"""A cold hook costs hardly more on a node that has joined a registry, whether that wants an option of the NIC or not.

Judged by the processor's time, in which a busy machine counts least, as a part of what the hook costs in the same round without a registry.
It was 5 to 7 % where a hook loaded four modules more, 1.5 to 2.5 % where it loads one.
"""

from __future__ import annotations

import statistics

from tests.bench import joined_hooks
from tests.bench.place import prepared

ROUNDS = 45
MOST = 0.04  #: of what the hook costs


def test_a_registry_costs_a_hook_hardly_anything() -> None:
    with prepared() as place:
        found = joined_hooks.measured(place, "bridged", ROUNDS)
    print("\n" + joined_hooks.text(found))
    parts = {case: statistics.median(more.part) for case, more in found.items()}
    assert len(parts) == 4 and {case: part for case, part in parts.items() if part > MOST} == {}
