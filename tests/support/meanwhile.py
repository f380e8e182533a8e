"""Do something in a thread as long as a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let ``run`` go on until the block ends, which it is told by the event; its end is waited for."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
