"""Processes that a test has started, or that its scripts have: whether they run, and waiting for what they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.netns import wait_until


def alive(pid: int | str) -> bool:
    """Say whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], bool], seconds: float = 3.0) -> bool:
    """Wait as wait_until does; False if the condition is not met within the time."""
    try:
        wait_until(condition, seconds)
    except AssertionError:
        return False
    return True
