"""Runs a program that is not ours: own session, time limit, capped output; never waits for what it leaves behind.

Imported only where there is a program to run: a hook without custom scripts does not pay for the subprocess module.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading

from netcommon.process.descendants import MARK, Family, signal_group
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

#: Between SIGTERM and SIGKILL, and then for the kernel to take the process away (seconds).
GRACE = 0.5
REAP = 1.0

#: Reads at most so much at once (bytes).
CHUNK = 1 << 16

#: Between two looks for those that are being born still (seconds).
PAUSE = 0.01


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
    held = Held()
    source = subprocess.DEVNULL
    try:
        os.set_blocking(writer, True)
        try:
            source = _input(given) if given else source
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
        return _watch(child, _Output(reader, limit), end, clock, Family(child.pid, mark, clock, proc), held)
    finally:
        os.close(reader)
        held.release()


class Held:
    """Hold back the signals that end this process: while it starts a program it does not know yet what it would have to end.

    Handlers are the main thread's (signal(7)); nothing is held back in others, where none runs.
    """

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._came: list[tuple[int, FrameType | None]] = []
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGINT):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))

    def release(self) -> None:
        """Let them come again, and do what those ask for that have come meanwhile."""
        before, self._before = self._before, {}
        came, self._came = self._came, []
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in came:
            before[number](number, frame)


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


def _watch(child: subprocess.Popen[bytes], output: _Output, end: float, clock: Callable[[], float], family: Family, held: Held) -> Outcome:
    """Reads until the child has ended or its time is over, ends what is left, and says how it ended."""
    try:
        handle = os.pidfd_open(child.pid)
    except OSError:  # no descriptor is left: what cannot be watched does not go on
        signal_group(child.pid, signal.SIGKILL)
        child.wait()
        raise
    try:
        held.release()
        timed_out = not _follow(handle, output, end, clock)
        last = _end(handle, output, clock, family) if timed_out else clock() + REAP
        # The child is not reaped yet, so its number is still its own, and that of its group.
        code = _reap(child, handle, last - clock())
    except BaseException:  # such as SIGTERM to the hook: what the script has begun ends with it
        try:
            _end(handle, output, clock, family)
        finally:
            _reap(child, handle, REAP)
        raise
    finally:
        os.close(handle)
    if code is None:
        return Outcome(timed_out=True, output=bytes(output.kept), written=output.written)
    return Outcome(None if code < 0 else code, max(-code, 0), timed_out, bytes(output.kept), output.written)


def _reap(child: subprocess.Popen[bytes], handle: int, seconds: float) -> int | None:
    """Ends what is left of the child and its group; its exit status, None if it hangs in the kernel and cannot be ended in time."""
    signal_group(child.pid, signal.SIGKILL)
    if _readable(handle, seconds):
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


def _end(handle: int, output: _Output, clock: Callable[[], float], family: Family) -> float:
    """SIGTERM, then SIGKILL when GRACE is over, to the group and to its descendants, also those in other sessions.

    To look for them takes time too, on a busy machine or where there are thousands: it is part of GRACE, and then of REAP. All are found
    before the first gets SIGTERM, since what is born after that is what they clean up with. Returns until when (by ``clock``) the end of
    the program may be waited for.
    """
    end = clock() + GRACE
    last = end + REAP
    try:
        family.descend(end - GRACE / 2)
        family.search(end - GRACE / 2)
        family.signal(signal.SIGTERM)
        _follow(handle, output, end, clock)
        for other in family.handles:  # a child may need its grace though the script ended at once
            _readable(other, end - clock())
        family.descend(last)  # those that were born meanwhile too
        family.signal(signal.SIGKILL)
        family.close()
        while family.search(last, kill=True):
            select.poll().poll(PAUSE * 1000)
    finally:
        family.close()
    return last
