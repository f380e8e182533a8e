"""Later, for a caller that does not stay: the action runs in a process of its own that holds nothing of the caller's."""

from __future__ import annotations

import os

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Node = TypeVar("Node")
    Log = TypeVar("Log")
else:
    import _signal as signal  # without its enums, which cost a hook 2 ms


#: Beyond the last delay the process ends itself, whatever it hangs in (seconds).
OVERTIME = 2


class Detached:
    """A hook's ``later`` (netcommon.lifecycle.context). The process is no child of the caller's, so nobody has to wait for it.

    It is in a session of its own. Ganeti waits for the end of a script's outputs, and a lock (flock(2)) is held as long as any copy of
    its descriptor is open: so every descriptor is closed in the first child, and the caller goes on only when that one has ended.
    ``close`` makes the objects that actions use forget theirs before, to open new ones when they need them.
    """

    def __init__(self, close: Sequence[Callable[[], None]], now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._close, self._now, self._sleep = close, now, sleep

    def __call__(self, delays: Sequence[float], action: Callable[[Node, Log, None], bool], node: Node, log: Log) -> None:
        """Raises OSError where no process can be made."""
        times = [self._now() + delay for delay in delays]
        child = os.fork()
        if child == 0:
            try:
                self._leave()
                if os.fork() == 0:
                    self._run(times, lambda: action(node, log, None))
            finally:
                os._exit(0)  # whatever went wrong: nothing of the caller's work is done twice
        try:
            os.waitpid(child, 0)
        except ChildProcessError:
            pass  # the caller's parent has us ignore SIGCHLD: then this returns when the child has ended, and says so (waitpid(2))

    def _leave(self) -> None:
        """Lets go of everything that was the caller's."""
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir("/")
        for close in self._close:
            close()
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)  # the lowest free number each: no file or socket shall be taken for an output

    def _run(self, times: Sequence[float], action: Callable[[], bool]) -> None:
        signal.alarm(int(max(times[-1] - self._now(), 0.0)) + 1 + OVERTIME)
        for moment in times:
            self._sleep(max(moment - self._now(), 0.0))
            if not action():
                return
