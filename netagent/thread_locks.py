"""Make the gates of an agent's threads: who waits for a lock that another thread holds is woken when it is free (runtime.locks)."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from runtime.locks import FILES, SETS


def gates() -> Mapping[tuple[str, int], threading.Lock]:
    """Make them: one set for all threads that lock the same files."""
    return {(which, file): threading.Lock() for which in SETS for file in range(FILES)}
