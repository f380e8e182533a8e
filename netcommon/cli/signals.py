"""End a command at SIGTERM, SIGHUP or Ctrl-C: what it has begun of a NIC is done or taken back, nothing more is begun, and it dies so."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from runtime.errors import Interrupted

WAY_BACK = 60.0  #: seconds within which another signal does not cut short what the first one asked for: scripts have 30 of them

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

_came: list[tuple[int, float]] = []  #: the signals that were heeded, and when


def take() -> None:
    """Heed them from here on; one that the caller ignores, as nohup(1) does, goes on being ignored."""
    for number in NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _heed)


def leave() -> None:
    """Heed them no more: the work has ended, and whatever comes while the interpreter does ends it at once."""
    for number in NUMBERS:
        if signal.getsignal(number) is _heed:
            signal.signal(number, signal.SIG_DFL)


def take_no_ctrl_c() -> None:
    """Let Ctrl-C be the ordinary end of a command that has no other: it raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _heed:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def between() -> None:
    """Raise Interrupted where one has come while something was done that ended all the same: nothing more is begun."""
    if _came:
        raise Interrupted(_text(_came[0][0]))


def passes(_uuid: str, _there: object) -> bool:
    """Pass over no NIC of several; raise Interrupted as ``between`` does."""
    between()
    return False


def end(program: str) -> None:
    """Say it in one line as ``program``, and die of the signal as other tools do."""
    number = _came[0][0] if _came else signal.SIGTERM
    sys.stderr.write(f"{program}: {_text(number)}\n")
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _heed(number: int, _frame: FrameType | None) -> None:
    now = time.monotonic()
    if _came and now - _came[-1][1] < WAY_BACK:
        return
    _came.append((number, now))
    raise Interrupted(_text(number))


def _text(number: int) -> str:
    return f"ended by signal {number}"
