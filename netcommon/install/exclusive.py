"""One install or uninstall at a time: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from netcommon.install.manifest import FILE
from netcommon.install.rooted import outside, placed
from runtime.errors import HostRefused, TryAgain

#: The lock stands beside the folder of the record, which comes and goes with that, under this suffix.
SUFFIX = ".netcommon-lock"

#: Seconds to wait for another run, and between two attempts.
WAIT, PAUSE = 20.0, 0.05


def lock(root: str) -> str:
    """Return the path of the lock, as we see it. Raises HostRefused."""
    return outside(root, placed(root, os.path.dirname(FILE))) + SUFFIX


@contextmanager
def alone(root: str) -> Iterator[None]:
    """Keep other runs on the system below ``root`` out. Raises TryAgain where one goes on for longer than WAIT, HostRefused, OSError.

    The file goes at the end, as all else of ours does; one that a killed run has left is the next one's.
    """
    if not os.path.isdir(root):
        raise HostRefused(f"{root} is not a folder")
    path = lock(root)
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    descriptor = _locked(path, time.monotonic() + WAIT)
    try:
        yield
    finally:
        try:
            with suppress(OSError):  # it harms nobody
                os.unlink(path)
        finally:
            os.close(descriptor)


def _locked(path: str, deadline: float) -> int:
    """Return a descriptor that holds the lock. Only root can open the file: nobody else can hold it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size:
                raise HostRefused(f"{path} is in the way: it is no lock of ours")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.lstat(path)
            if (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass  # it is held, or its holder has just removed it
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise TryAgain(f"another netcommon install is at work: it has held {path} for {WAIT:.0f} seconds")
        time.sleep(PAUSE)
