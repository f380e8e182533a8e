"""Choose how long after the start the first reaping is: not at the same moment on all nodes of a cluster that is switched on at once."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping

from netcommon.settings.model import Settings
from runtime.paths import Paths

#: The range of an automatic delay (seconds).
SHORTEST, LONGEST = 120.0, 600.0


def start_delay(settings: Settings, environ: Mapping[str, str], paths: Paths, chance: Callable[[], float] = random.random) -> float:
    """Give the seconds from the start to the first reaping. By itself: a random time where systemd has started us on a node with
    Ganeti, whose other nodes may be starting too and whose files may come late; else at once. ``chance`` gives 0 to 1."""
    if settings.agent_start_delay != "auto":
        return float(settings.agent_start_delay)
    if "INVOCATION_ID" in environ and os.path.isdir(paths.ganeti_run):
        return SHORTEST + (LONGEST - SHORTEST) * chance()
    return 0.0
