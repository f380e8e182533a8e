"""Writes folders of made files, or says which of them are out of date."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

#: A folder, its files, and the pattern of those in it that are made.
Made = tuple[Path, Mapping[str, str], str]


def stale(made: Made) -> list[Path]:
    """Files that are not what they should be, are missing, or should not be there."""
    folder, files, pattern = made
    found = {path.name: path.read_text() for path in folder.glob(pattern)}
    return sorted(folder / name for name in {*found, *files} if found.get(name) != files.get(name))


def main(*folders: Made) -> None:
    """Ends the process: 1 where ``--check`` finds something."""
    paths = [path for made in folders for path in stale(made)]
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(f"{path} is out of date: run {sys.argv[0]}" for path in paths) or 0)
    if sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} [--check]")
    texts = {folder / name: text for folder, files, _pattern in folders for name, text in files.items()}
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path in texts:
            path.write_text(texts[path])
        else:
            path.unlink()
        print(path)
