"""Read files of nodes as they lie there, for what is held against them: one that is missing or damaged says nothing, and is no error."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def names(path: str | Path) -> list[str]:
    """Give the names in a folder, in their order."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def text(path: Path) -> str:
    """Give the text of a file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read(path: Path) -> Any:
    """Give the JSON of a file; None for nothing."""
    try:
        return json.loads(text(path))
    except (ValueError, RecursionError):
        return None


def fields(path: Path, *wanted: str) -> dict[str, Any]:
    """Give the JSON object of a file; nothing of one that lacks a field that is ``wanted``."""
    found = read(path)
    return found if isinstance(found, dict) and found.keys() >= {*wanted} else {}
