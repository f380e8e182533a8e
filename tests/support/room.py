"""A file system that is full, or nearly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.netns import run

PAGE = 4096


@contextlib.contextmanager
def room(inodes: int, pages: int, place: str = "/run") -> Iterator[None]:
    """So many inodes and pages are left in /run, or another tmpfs of the test's own."""
    run("mount", "-o", "remount,size=2m,nr_inodes=400", place)
    fillers = [Path(f"{place}/filler-{number}") for number in range(500)]
    made = 0
    with contextlib.suppress(OSError):
        for filler in fillers:
            filler.touch()
            made += 1
    with contextlib.suppress(OSError), fillers[0].open("wb", buffering=0) as file:
        while True:
            file.write(bytes(PAGE))
    os.truncate(fillers[0], max(fillers[0].stat().st_size - pages * PAGE, 0))
    for filler in fillers[1:made][:inodes]:
        filler.unlink()
    try:
        yield
    finally:
        for filler in fillers:
            filler.unlink(missing_ok=True)
        run("mount", "-o", "remount,size=64m,nr_inodes=10000", place)
