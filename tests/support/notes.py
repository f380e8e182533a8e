"""Notes of a process that is killed at any moment: a line each. The last one may be half there (write(2) ends early at a signal)."""

from __future__ import annotations

import os
from pathlib import Path


def lines(path: Path) -> list[str]:
    """Give the lines that are whole; none where there is no file."""
    return path.read_text(encoding="ascii").rpartition("\n")[0].splitlines() if path.exists() else []


def opened(path: Path) -> int:
    """Open notes to go on with them: half a line was not noted, and goes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.ftruncate(descriptor, path.read_bytes().rfind(b"\n") + 1)
    return descriptor
