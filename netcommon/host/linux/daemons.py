"""Daemons: the one that we run once for the whole node, and those of others that read files of ours.

A process is taken for what a pid file says only if its program is the right one: numbers are used again.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time

from netcommon.host.api.facts import Daemon
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import Hangup, StartDaemon
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.requests import StopDaemon
    from netcommon.host.linux.files import MakeLayout
    from runtime.folder import Folder

#: Where the system's programs lie.
PROGRAMS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")

#: The daemon's pid file in its folder.
PID = "pid"

#: All that it gets of an environment: the hypervisor's is nobody else's business.
ENVIRONMENT = {b"PATH": ":".join(PROGRAMS).encode(), b"LC_ALL": b"C"}

#: Between SIGTERM and SIGKILL, and then for the kernel to take the process away (seconds).
GRACE, REAP = 2.0, 1.0

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def program(name: str) -> str:
    """The path of a program of the system's, "" where it is not installed. The environment's PATH is not asked."""
    paths = (f"{folder}/{name}" for folder in PROGRAMS)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


class Daemons:
    """The daemons of this machine. ``layout``: our own state; ``proc``: where procfs is; ``timeout``: for a start (seconds)."""

    def __init__(self, layout: MakeLayout, proc: str, timeout: float) -> None:
        self._layout, self._proc, self._timeout = layout, proc, timeout

    def daemon(self, name: str) -> Daemon | None:
        """See View."""
        layout = self._layout()
        try:
            folder = layout.find(name)
            return None if folder is None else self._running(name, folder)
        finally:
            layout.close()

    def execute(self, request: StartDaemon | StopDaemon | Hangup) -> Answer:
        """Carries it out."""
        try:
            if isinstance(request, Hangup):
                return self._hang_up(request)
            return self._start(request) if isinstance(request, StartDaemon) else self._stop(request.name)
        except HostRefused as error:
            return Answer(errno.EIO, str(error))
        except OSError as error:
            return Answer(error.errno or errno.EIO, f"{type(request).__name__}: {error.strerror}")

    def _start(self, request: StartDaemon) -> Answer:
        layout = self._layout()
        try:
            folder = layout.make(request.name)
            running = self._running(request.name, folder)
            if running is not None and running.options == request.options:
                return DONE
            if running is not None and not self._end(running.pid, folder):
                return Answer(errno.EBUSY, f"process {running.pid} cannot be ended")
            folder.remove(PID)
            said = _spawn([request.program, *(option.replace("{folder}", folder.path) for option in request.options)], self._timeout)
            if said.ok and self._running(request.name, folder) is None:
                return Answer(errno.EIO, f"{request.program} ended at once")
            return said
        finally:
            layout.close()

    def _stop(self, name: str) -> Answer:
        layout = self._layout()
        try:
            folder = layout.find(name)
            if folder is None:
                return DONE
            running = self._running(name, folder)
            if running is not None and not self._end(running.pid, folder):
                return Answer(errno.EBUSY, f"process {running.pid} cannot be ended")
            folder.remove(PID)
            layout.remove_empty(name)
            return DONE
        finally:
            layout.close()

    def _running(self, name: str, folder: Folder) -> Daemon | None:
        """The daemon, if the process of its pid file was started by us for this folder and lives in our network namespace."""
        pid = _pid(PID, folder.descriptor)
        words = self._words(pid) if pid else []
        if f"--pid-file={folder.path}/{PID}" not in words[1:] or self._program(pid) != os.path.basename(words[0]):
            return None
        try:
            here, there = (os.stat(f"{self._proc}/{who}/ns/net").st_ino for who in ("thread-self", pid))
        except OSError:
            return None
        options = tuple(word.replace(folder.path, "{folder}") for word in words[1:])
        return Daemon(name, pid, options) if here == there else None

    def _end(self, pid: int, folder: Folder) -> bool:
        """SIGTERM, then SIGKILL; whether the process is gone."""
        handle = _handle(pid)
        if handle < 0:
            return True
        try:
            if self._running("", folder) is None:
                return True  # it has ended since, and the number may be another's
            for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, REAP)):
                signal.pidfd_send_signal(handle, number)
                if _readable(handle, seconds):
                    return True
            return False
        except ProcessLookupError:
            return True
        finally:
            os.close(handle)

    def _hang_up(self, request: Hangup) -> Answer:
        pid = self._noted(request.pid_file)
        handle = _handle(pid) if pid else -1
        if handle < 0:
            return Answer(errno.ESRCH, f"no {request.program} runs ({request.pid_file})")
        try:
            if self._program(pid) != request.program:
                return Answer(errno.ESRCH, f"process {pid} of {request.pid_file} is no {request.program}")
            signal.pidfd_send_signal(handle, signal.SIGHUP)
            return DONE
        finally:
            os.close(handle)

    def _noted(self, path: str) -> int:
        if path.startswith("/"):
            return _pid(path)
        layout = self._layout()
        try:
            top, name = path.split("/")
            folder = layout.find(top)
            return 0 if folder is None else _pid(name, folder.descriptor)
        finally:
            layout.close()

    def _words(self, pid: int) -> list[str]:
        """The command line of a process, [] where it is gone."""
        try:
            with open(f"{self._proc}/{pid}/cmdline", "rb") as file:
                return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:
            return []

    def _program(self, pid: int) -> str:
        """The file name of the program that a process runs, "" where that cannot be told."""
        try:
            return os.path.basename(os.readlink(f"{self._proc}/{pid}/exe")).removesuffix(" (deleted)")
        except OSError:
            return ""


def _pid(path: str, within: int | None = None) -> int:
    """The number in a pid file, 0 where there is none. The file may belong to the daemon's own user."""
    try:
        descriptor = os.open(path, _OPEN, dir_fd=within)
    except OSError:
        return 0
    try:
        text = os.read(descriptor, 32).strip()
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _handle(pid: int) -> int:
    """A pidfd (pidfd_open(2)), -1 where there is no such process."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _readable(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _spawn(argv: Sequence[str], seconds: float) -> Answer:
    """Runs a program that goes to the background by itself, for at most ``seconds`` until then. It has let go of its outputs by then."""
    from netcommon.process import run as runner  # only for the first NIC of the node that needs it

    outcome = runner.run(argv, ENVIRONMENT, seconds, 4096, time.monotonic)
    if outcome.ok:
        return DONE
    lines = outcome.output.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
    number = errno.ETIMEDOUT if outcome.timed_out else errno.EIO
    return Answer(number, f"{argv[0]} {outcome.text}" + ("" if outcome.error else f": {last}"))
