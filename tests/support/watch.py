"""What code does while it reads something hostile: whether it starts programs, connects, or touches files it has no business with.

Python's own audit events tell (PEP 578, sys.addaudithook): they cannot be evaded by the code that is watched.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Never, whatever is read.
FORBIDDEN = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.", "socket.connect", "socket.bind",
    "socket.sendto", "ctypes.dlopen", "os.startfile", "webbrowser.", "urllib.", "pickle.", "code.", "os.chown", "os.setxattr",
    "os.kill", "os.killpg", "signal.pthread_kill", "shutil.",
)  # fmt: skip

#: Events whose first two arguments (or one) are paths.
PATHS = {
    "open": 1, "os.listdir": 1, "os.scandir": 1, "os.mkdir": 1, "os.rmdir": 1, "os.remove": 1, "os.rename": 2, "os.link": 2,
    "os.truncate": 1, "os.chmod": 1, "os.utime": 1, "os.chdir": 1,
}  # fmt: skip

#: What the interpreter itself reads when a module is imported late.
PYTHON = tuple(os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, f"{os.path.dirname(__file__)}/../.."))


class Slow(BaseException):
    """One input took longer than it may."""


class Watch:
    """The one hook of this process; it sees nothing while ``root`` is empty."""

    def __init__(self) -> None:
        self.root = ""
        self.seen: list[str] = []
        self._hooked = False

    @contextmanager
    def within(self, root: str) -> Iterator[list[str]]:
        """Notes whatever is done outside ``root``, or at all, that nobody who reads files may do."""
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._hook)
        self.seen, self.root = [], os.path.realpath(root)
        try:
            yield self.seen
        finally:
            self.root = ""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Looks away while a test itself prepares something."""
        root, self.root = self.root, ""
        try:
            yield
        finally:
            self.root = root

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.root:
            return
        if event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "os.symlink":
            self._path(event, arguments[1])
            if not _harmless(os.fsdecode(arguments[0])):
                self.seen.append(f"{event} {arguments!r:.200}")
        elif event in PATHS:
            for path in arguments[: PATHS[event]]:
                self._path(event, path)

    def _path(self, event: str, path: object) -> None:
        if not isinstance(path, str | bytes):
            return  # a descriptor, or the working directory
        name = os.fsdecode(path)
        inside = name == self.root or name.startswith(self.root + "/") or name == os.devnull
        python = event in ("open", "os.listdir", "os.scandir") and name.startswith(PYTHON)
        # a name without a slash is one in a folder that is open: openat(2)
        if ".." in name.split("/") or not (python or inside or ("/" not in name and name not in ("", "."))):
            self.seen.append(f"{event} {name!r:.200}")


def _harmless(target: str) -> bool:
    """Whether a link leads to a record, or to a file beside it."""
    return "/" not in target.removeprefix("../").removeprefix("../").removeprefix("nics/")


WATCH = Watch()


#: Wall time within which an input must be done with, whatever else the machine does (seconds): it waits for something.
HANGS = 60.0


@contextmanager
def patience(seconds: float) -> Iterator[Callable[[], None]]:
    """Raises Slow in the main thread where this process works for ``seconds``, or waits, between two calls of what it yields."""

    def ended(number: int, frame: FrameType | None) -> None:
        raise Slow(f"longer than {seconds} s" if number == signal.SIGPROF else f"hangs, after {HANGS} s")

    def wind() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, HANGS)

    before = {number: signal.signal(number, ended) for number in (signal.SIGPROF, signal.SIGALRM)}
    try:
        yield wind
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def peak() -> int:
    """The most memory that this process has ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
