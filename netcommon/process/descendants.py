"""A program's process group, and what descends from it: found only when it has to be ended."""

from __future__ import annotations

import errno
import os
import signal

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: A variable in the program's environment whose value no other run has (netcommon.scripts.site.environment). By it are found those of
#: its descendants whose parents have ended, which nothing else ties to it any more: unless they were started without it.
MARK = b"NETCOMMON_SCRIPT"

#: So many descendants, at most, are given GRACE: each is held open, and a process may have 1024 files. Others are killed.
MOST = 512

#: A thread of the kernel's own, among the flags of proc_pid_stat(5) (include/linux/sched.h). It has no memory.
PF_KTHREAD = 0x00200000


class Family:
    """The group of process ``pid``, whose environment bears ``mark``, and its descendants. ``proc``: where procfs is."""

    def __init__(self, pid: int, mark: bytes, clock: Callable[[], float], proc: str) -> None:
        self.pid, self._mark, self._clock, self._proc = pid, mark, clock, proc
        self._known: dict[int, int] = {}  #: process -> handle (pidfd_open(2))

    @property
    def handles(self) -> Sequence[int]:
        return tuple(self._known.values())

    def descend(self, until: float) -> None:
        """Opens the children of children, as long as they are tied to us."""
        waiting = [self.pid, *self._known]
        while waiting and len(self._known) < MOST and self._clock() < until:
            for child in self._children(waiting.pop()):
                if len(self._known) < MOST and child not in self._known and (handle := _opened(child)) >= 0:
                    self._known[child] = handle
                    waiting.append(child)

    def search(self, until: float, kill: bool = False) -> bool:
        """Opens all others that bear the mark and have begun after us, or kills them; whether there was one, and there is time.

        Those that there is no room for are killed. One that runs another program just now counts too: it may bear the mark.
        """
        began, found = self._began(self.pid), False
        if not self._mark or not began:
            return False
        try:
            names = os.listdir(self._proc)
        except OSError:
            return False  # no descriptor is left; there are some when those that are open have been let go
        for name in names:
            if self._clock() >= until:
                return False
            # The number of one that is this young can only become that of a younger one before it is opened.
            if not name.isdigit() or int(name) in self._known or int(name) == self.pid or self._began(int(name)) < began:
                continue
            handle = _opened(int(name))
            if handle < 0:
                continue
            marked = self._marked(int(name))
            found = found or marked is not False
            if not marked:
                os.close(handle)
            elif kill or len(self._known) >= MOST:
                _send(handle, signal.SIGKILL)
                os.close(handle)
            else:
                self._known[int(name)] = handle
        return found

    def signal(self, number: int) -> None:
        """Sends it to the group and to all that are open, once to each: who cleans up at a signal does so again at the next."""
        apart = [handle for pid, handle in self._known.items() if not self._in_group(pid)]
        signal_group(self.pid, number)
        for handle in apart:
            _send(handle, number)

    def _in_group(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self.pid
        except ProcessLookupError:
            return False

    def close(self) -> None:
        """Lets go of the handles."""
        while self._known:
            os.close(self._known.popitem()[1])

    def _children(self, pid: int) -> list[int]:
        """By /proc/PID/task/PID/children (proc(5)); none where the kernel has no such file."""
        try:
            with open(f"{self._proc}/{pid}/task/{pid}/children", encoding="ascii") as stream:
                return [int(word) for word in stream.read().split()]
        except (OSError, ValueError):
            return []

    def _marked(self, pid: int) -> bool | None:
        """Tell whether the process bears the mark; None while that is not to be seen, since its program is being replaced."""
        try:
            with open(f"{self._proc}/{pid}/environ", "rb") as stream:
                environment = stream.read()
            return self._mark in environment.split(b"\0") if environment else (None if self._in_exec(pid) else False)
        except (OSError, ValueError, IndexError):
            return False

    def _in_exec(self, pid: int) -> bool:
        """Tell whether the process, whose environment was empty, has a place for one by now, or none yet (execve(2)).

        The place is env_start and env_end in proc_pid_stat(5). Where it holds nothing the program was given nothing.
        """
        words = self._stat(pid)
        memory = words[0] not in (b"Z", b"X") and not int(words[6]) & PF_KTHREAD
        return memory and (words[48] == b"0" or words[47] != words[48])

    def _stat(self, pid: int) -> list[bytes]:
        """Give the fields of proc_pid_stat(5) from the third one on, which is the state."""
        with open(f"{self._proc}/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()  # the name may hold anything

    def _began(self, pid: int) -> int:
        """When the process began, in ticks since boot; 0 if it is gone."""
        try:
            return int(self._stat(pid)[19])
        except (OSError, ValueError, IndexError):
            return 0


def _opened(pid: int) -> int:
    """A handle of the process, -1 if there is none to be had."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _send(handle: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def signal_group(group: int, number: int) -> None:
    """Sends it to the process group, if there is one that takes it."""
    try:
        os.killpg(group, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise
