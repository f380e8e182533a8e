"""Check the history of a store that was killed again and again: python -m tests.support.histories FOLDER.

It holds what writers and watcher have noted (tests.support.store_writers) against the SQLite file itself, by no code of the registry's.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path

from tests.support import notes


def faults(folder: Path) -> list[str]:
    """List all that is lost, half done, done twice, seen twice or not seen."""
    with contextlib.closing(sqlite3.connect(folder / "registry.sqlite")) as database:
        rows = database.execute("SELECT revision, key, value IS NULL FROM versions ORDER BY revision, place").fetchall()
        facts = dict(database.execute("SELECT name, value FROM facts").fetchall())
        present = {key for (key,) in database.execute("SELECT key FROM items")}
    newest, floor = facts["revision"], facts["floor"]
    found: list[str] = []
    written: dict[str, list[int]] = {}  # by key: the revisions at which it was written
    for revision, key, removed in rows:
        if not removed:
            written.setdefault(key, []).append(revision)
    if rows and rows[-1][0] != newest:
        found.append(f"the newest revision is said to be {newest}, and is {rows[-1][0]}")
    for path in sorted(folder.glob("writer*")):
        writer = path.name.removeprefix("writer")
        begun = 0
        for line in notes.lines(path):
            word, *numbers = line.split()
            number = int(numbers[0])
            request, name = f"request/{writer}/{number}", f"{writer}/{number}"
            if word == "begun":
                begun = number
            elif written.get(request) != [int(numbers[1])]:
                found.append(f"{name} was acknowledged at {numbers[1]}, and is at {written.get(request)}")
        for number in range(1, begun + 1):
            request = f"request/{writer}/{number}"
            done = request in present
            if done and len(written.get(request, [])) != 1:
                found.append(f"{writer}/{number} was done {len(written.get(request, []))} times")
            there = {side: f"{side}/{writer}/{number}" in present for side in ("left", "right")}
            superseded = f"request/{writer}/{number + 2}" in present
            if any(here != (done and not superseded) for here in there.values()):
                found.append(f"{writer}/{number} is half done: done {done}, superseded {superseded}, {there}")
    requests = [(revision, key) for revision, key, removed in rows if key.startswith("request/") and not removed]
    seen = [(int(line.split()[0]), line.split()[1]) for line in notes.lines(folder / "watcher")]
    if seen != requests[: len(seen)]:
        first = next((pair for pair in zip(seen, requests, strict=False) if pair[0] != pair[1]), "its length")
        found.append(f"the watcher saw something else: {first}")
    if floor > newest:
        found.append(f"compacted to {floor}, beyond {newest}")
    return found


def acknowledged(folder: Path) -> int:
    """Count the commits that were acknowledged."""
    return sum(line.startswith("done ") for path in folder.glob("writer*") for line in notes.lines(path))


if __name__ == "__main__":
    problems = faults(Path(sys.argv[1]))
    print("\n".join(problems) or "no faults")
    sys.exit(bool(problems))
