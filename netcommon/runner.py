"""Runs a program that is not ours: own session, time limit, capped output; never waits for what it leaves behind.

Imported only where there is a program to run: a hook without custom scripts does not pay for the subprocess module.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

#: Between SIGTERM and SIGKILL, and then for the kernel to take the process away (seconds).
GRACE = 0.5
REAP = 1.0

#: Reads at most so much at once (bytes).
CHUNK = 1 << 16

#: A variable in the program's environment whose value no other run has (netcommon.custom.GUARD). By it are found those of its descendants
#: whose parents have ended, which nothing else ties to it any more: unless they were started without it.
MARK = b"NETCOMMON_DOOR"

#: So many descendants, at most, are ended one by one.
MOST = 4096


class Outcome(NamedTuple):
    """How a program ended. Neither ``status`` nor ``signal`` is known if it could not be started or not be killed."""

    status: int | None = None
    signal: int = 0
    timed_out: bool = False
    output: bytes = b""  #: standard output and error, as they came, at most the limit
    written: int = 0  #: how many bytes it wrote
    error: str = ""  #: why it could not be started

    @property
    def ok(self) -> bool:
        return self.status == 0 and not self.timed_out

    @property
    def text(self) -> str:
        """What went wrong, in words; "" if nothing."""
        if self.error:
            return f"could not be started: {self.error}"
        if self.timed_out:
            return "was ended at the time limit"
        if self.signal:
            return f"was ended by signal {self.signal}"
        return f"ended with status {self.status}" if self.status else ""


def run(
    argv: Sequence[str],
    environment: Mapping[bytes, bytes],
    seconds: float,
    limit: int,
    clock: Callable[[], float],
    proc: str = "/proc",
    given: bytes = b"",
) -> Outcome:
    """Runs ``argv`` for at most ``seconds``; back within GRACE + REAP after them, whatever the program does.

    It gets a session of its own, "/" as its folder, ``given`` as its input, and one pipe for both outputs. At the limit it, its
    process group and its descendants get SIGTERM, then SIGKILL: also those that have left its session, and whose parents have ended
    (by MARK). When it ends by itself, what is left of its process group is killed at once; what has made itself a session of its own
    (a daemon that the site starts on purpose) stays.
    """
    if seconds <= 0:
        return Outcome(timed_out=True)
    end = clock() + seconds
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    source = _input(given) if given else subprocess.DEVNULL
    try:
        os.set_blocking(writer, True)
        try:
            child = subprocess.Popen(  # no shell; the caller has checked whose program it is
                list(argv),
                stdin=source,
                stdout=writer,
                stderr=writer,
                cwd="/",
                env=dict(environment),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Outcome(error=getattr(error, "strerror", None) or str(error))
        finally:
            os.close(writer)
            if source != subprocess.DEVNULL:
                os.close(source)
        mark = MARK + b"=" + environment[MARK] if MARK in environment else b""
        return _watch(child, _Output(reader, limit), end, clock, _Family(child.pid, mark, proc))
    finally:
        os.close(reader)


def _input(given: bytes) -> int:
    """A file that holds what the program reads: nobody need write to it while the program runs (memfd_create(2))."""
    descriptor = os.memfd_create("netcommon-input", os.MFD_CLOEXEC)
    with open(os.dup(descriptor), "wb") as stream:
        stream.write(given)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class _Output:
    """What a program writes: the first ``limit`` bytes are kept, the rest is counted."""

    def __init__(self, reader: int, limit: int) -> None:
        self.reader, self.limit = reader, limit
        self.kept = bytearray()
        self.written = 0
        self.ended = False

    def read(self) -> None:
        """Reads once: all that a pipe of the usual size holds. Notes if nobody has it open for writing any more."""
        try:
            chunk = os.read(self.reader, CHUNK)
        except BlockingIOError:
            return
        self.ended = not chunk
        self.written += len(chunk)
        self.kept += chunk[: self.limit - len(self.kept)]


def _watch(child: subprocess.Popen[bytes], output: _Output, end: float, clock: Callable[[], float], family: _Family) -> Outcome:
    """Reads until the child has ended or its time is over, ends what is left, and says how it ended."""
    handle = os.pidfd_open(child.pid)
    try:
        timed_out = not _follow(handle, output, end, clock)
        if timed_out:
            _end(handle, output, clock, family)
        # The child is not reaped yet, so its number is still its own, and that of its group.
        code = _reap(child, handle)
    except BaseException:
        _reap(child, handle)
        raise
    finally:
        os.close(handle)
    if code is None:
        return Outcome(timed_out=True, output=bytes(output.kept), written=output.written)
    return Outcome(None if code < 0 else code, max(-code, 0), timed_out, bytes(output.kept), output.written)


def _reap(child: subprocess.Popen[bytes], handle: int) -> int | None:
    """Ends what is left of the child and its group; its exit status, None if it hangs in the kernel and cannot be ended."""
    _signal_group(child.pid, signal.SIGKILL)
    if _readable(handle, REAP):
        return child.wait()
    child.returncode = -signal.SIGKILL  # nobody can wait for it; Popen shall not try either
    return None


def _follow(handle: int, output: _Output, end: float, clock: Callable[[], float]) -> bool:
    """Reads output until the process of ``handle`` has ended (True) or the time has come (False).

    poll(2) looks at the handle first: where that says "ended", all that the process wrote is in the pipe and read in the same turn.
    What others write after that is not waited for.
    """
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(output.reader, select.POLLIN)
    while True:
        left = end - clock()
        if left <= 0:
            return False
        ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
        if output.reader in ready:
            output.read()
            if output.ended:
                poll.unregister(output.reader)
        if handle in ready:
            return True


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether ``descriptor`` becomes readable within ``seconds``."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(seconds, 0) * 1000))


def _end(handle: int, output: _Output, clock: Callable[[], float], family: _Family) -> None:
    """SIGTERM, then after GRACE SIGKILL, to the group and to its descendants, also those in other sessions."""
    try:
        family.find()
        family.signal(signal.SIGTERM)
        end = clock() + GRACE
        _follow(handle, output, end, clock)
        for other in family.handles:  # a child may need its grace though the script ended at once
            _readable(other, end - clock())
        family.find()  # those that were born meanwhile too
        family.signal(signal.SIGKILL)
    finally:
        family.close()


class _Family:
    """A program's process group, and what descends from it: found only when it has to be ended."""

    def __init__(self, pid: int, mark: bytes, proc: str) -> None:
        self.pid, self._mark, self._proc = pid, mark, proc
        self._known: dict[int, int] = {}  #: process -> handle (pidfd_open(2))

    @property
    def handles(self) -> Sequence[int]:
        return tuple(self._known.values())

    def find(self) -> None:
        """Looks for descendants: children of children, and whoever bears the mark and has begun after us."""
        waiting = [self.pid, *self._known]
        while waiting and len(self._known) < MOST:
            waiting += [each for each in self._children(waiting.pop()) if self._hold(each)]
        began = self._began(self.pid)
        if not self._mark or not began:
            return
        for name in os.listdir(self._proc):
            if name.isdigit() and int(name) not in (self.pid, os.getpid(), *self._known) and len(self._known) < MOST:
                self._hold(int(name), began)

    def signal(self, number: int) -> None:
        """Sends it to all."""
        _signal_group(self.pid, number)
        for handle in self._known.values():
            try:
                signal.pidfd_send_signal(handle, number)
            except OSError as error:
                if error.errno not in (errno.ESRCH, errno.EPERM):
                    raise

    def close(self) -> None:
        """Lets go of the handles."""
        while self._known:
            os.close(self._known.popitem()[1])

    def _hold(self, pid: int, began: int = 0) -> bool:
        """Opens the process, if it is new to us; with ``began`` only one that bears the mark and is not older."""
        if pid in self._known:
            return False
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
        # looked at only now that its number cannot become another's
        if began and not (self._marked(pid) and self._began(pid) >= began):
            os.close(handle)
            return False
        self._known[pid] = handle
        return True

    def _children(self, pid: int) -> list[int]:
        """By /proc/PID/task/PID/children (proc(5)); none where the kernel has no such file."""
        try:
            with open(f"{self._proc}/{pid}/task/{pid}/children", encoding="ascii") as stream:
                return [int(word) for word in stream.read().split()]
        except (OSError, ValueError):
            return []

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"{self._proc}/{pid}/environ", "rb") as stream:
                return self._mark in stream.read().split(b"\0")
        except OSError:
            return False

    def _began(self, pid: int) -> int:
        """When the process began, in ticks since boot; 0 if it is gone."""
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as stream:
                return int(stream.read().rpartition(b")")[2].split()[19])  # the name may hold anything
        except (OSError, ValueError, IndexError):
            return 0


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise
