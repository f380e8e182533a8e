"""The gates of the agent's threads: who waits for a lock that another thread holds is woken when it is free (runtime.locks)."""

from __future__ import annotations

import threading

from runtime.locks import FILES, SETS

GATES = {(which, file): threading.Lock() for which in SETS for file in range(FILES)}
