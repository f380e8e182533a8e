"""A call that is told to end at one moment, as by SIGTERM: before one of its requests, or at any line of the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from netcommon.host.simulated.host import MemoryHost
from runtime.errors import Interrupted
from tests.support.bootstrap import ROOT

SIGNAL = "ended by signal 15"

#: Where a line counts: the simulated host is the kernel, in which no signal is heeded.
PROGRAM = tuple(f"{ROOT}/{folder}/" for folder in ("netcommon/lifecycle", "netcommon/operations", "runtime"))


@contextmanager
def at_request(host: MemoryHost, number: int, ends: type[BaseException] = Interrupted) -> Iterator[Callable[[], bool]]:
    """Let the request ``number`` from now on (from 0) be the one that the signal comes before; tells whether it came to that.

    ``ends``: what that raises.
    """
    left = [number]

    def fail(_request: Request) -> Answer | None:
        left[0] -= 1
        if left[0] == -1:
            raise ends(SIGNAL)
        return None

    host.fail = fail
    try:
        yield lambda: left[0] < 0
    finally:
        host.fail = lambda _request: None


class Lines:
    """The lines that a call runs while ``which`` says so: counted, and with ``at`` the signal comes at that one (from 0)."""

    def __init__(self, at: int = -1, which: Callable[[], bool] = lambda: True) -> None:
        self.at, self.count, self._which = at, 0, which
        self.where = ""  #: the line at which it came

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        # no signal's handler runs within what the interpreter calls when an object goes
        counts = frame.f_code.co_filename.startswith(PROGRAM) and frame.f_code.co_name not in ("__del__", "close")
        return self._line if counts else None

    def _line(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line" and not self.where and self._which():
            self.count += 1
            if self.count == self.at + 1:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise Interrupted(SIGNAL)
        return self._line
