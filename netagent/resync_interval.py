"""How far apart the looks at everything are: on a node with very many NICs they would use much of a CPU while nothing happens."""

from __future__ import annotations

#: So much of a CPU is spent on comparisons of all records with the host at most, and as much on inventories.
SHARE = 0.002


def apart(interval: float, spent: float) -> float:
    """The seconds to the next one: those that the settings say, or more where the last one used ``spent`` seconds of a CPU."""
    return max(interval, spent / SHARE)
