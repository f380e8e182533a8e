"""The processor on which frames are sent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """Keep the calling thread on one processor: frames that it sends on two may overtake each other."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
