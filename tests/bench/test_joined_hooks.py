"""A cold hook costs hardly more on a node that has joined a registry, whether that wants an option of the NIC or not.

Judged by the processor's time, in which a busy machine counts least, as a part of what the hook costs in the same round without a registry.
It was 5 to 7 % where a hook loaded four modules more, 1.5 to 4 % where it loads one. What is over the limit is measured once more, with
twice the rounds, and must be over it again.
"""

from __future__ import annotations

import statistics

from tests.bench import joined_hooks
from tests.bench.place import prepared

ROUNDS = 45
MOST = 0.04  #: of what the hook costs


def over(rounds: int) -> set[str]:
    """Measure; say which case costs too much."""
    with prepared() as place:
        found = joined_hooks.measured(place, "bridged", rounds)
    print("\n" + joined_hooks.text(found))
    assert len(found) == 4
    return {case for case, more in found.items() if statistics.median(more.part) > MOST}


def test_a_registry_costs_a_hook_hardly_anything() -> None:
    assert not (dear := over(ROUNDS)) or not dear & over(2 * ROUNDS)
