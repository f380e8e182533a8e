"""Keeping the agent small: what a snapshot of thousands of NICs has used goes back to the system (mallopt(3), malloc_trim(3)).

By itself the C library keeps for each thread what that thread once needed. A library that has no such functions is left as it is.
"""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8

_libc = ctypes.CDLL(None)


def share() -> None:
    """All threads take memory from one place. To be called before there are any."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(M_ARENA_MAX, 1)


def trim() -> None:
    """Gives back what is free."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
