"""Say how a node speaks with its registry: what the settings have a say in."""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    """Seconds, but for ``reap`` and ``cap``."""

    pause: float = 5.0  #: after an error, half as much more or less by chance
    first: tuple[float, float] = (120.0, 600.0)  #: from the start to the first comparison, by chance between
    every: float = 3600.0  #: between two comparisons, and until what was refused is tried again
    confirm: float = 10.0  #: between two looks at what may go
    check: float = 300.0  #: between two looks at what the registry knows of the node, and what it should provide
    reap: str = "on"  #: "on", "report" (an alarm says what would go), "off"
    cap: int = 20  #: wanted NICs that one comparison removes
