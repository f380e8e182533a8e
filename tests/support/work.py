"""Count the work that something is, by the lines that are run for it: the same on each machine, however busy that is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def lines(done: Callable[[], object]) -> int:
    """Do something, and give how many lines of Python were run by it, each turn of a loop anew."""
    count = 0

    def line(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        done()
    finally:
        sys.settrace(before)
    return count
