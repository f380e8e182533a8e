"""Check a registry whose service and clients were killed again and again, by what they noted and by its file: no code of the registry's."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.support import notes


class Held:
    """A registry's file, as sqlite3 reads it."""

    def __init__(self, path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT revision, key, value FROM versions ORDER BY revision, place").fetchall()
            self.items: dict[str, Any] = dict(database.execute("SELECT key, value FROM items").fetchall())
        self.written: dict[str, list[int]] = {}  #: key -> revisions at which it was written
        self.wanted: list[tuple[int, str, bool]] = []  #: revision, UUID of a NIC, whether it is there then
        for revision, key, value in rows:
            if value is not None:
                self.written.setdefault(key, []).append(revision)
            if key.startswith("nics/"):
                self.wanted.append((revision, key.removeprefix("nics/"), value is not None))

    def below(self, prefix: str) -> dict[str, Any]:
        return {key.removeprefix(prefix): json.loads(value) for key, value in self.items.items() if key.startswith(prefix)}


def faults(folder: Path, file: Path) -> list[str]:
    """List all that is lost, half done, done twice, claimed by nothing, or told wrongly."""
    held = Held(file)
    return [*_requests(folder, held), *_claims(held), *_history(held), *_told(folder, held)]


class Noted:
    """Count the lines of the notes that begin with a word; what was counted before is not read again."""

    def __init__(self, folder: Path, files: str, word: str) -> None:
        self._folder, self._files, self._word, self._count = folder, files, word.encode(), 0
        self._read: dict[Path, int] = {}  #: bytes of each file that are counted: whole lines

    def __call__(self) -> int:
        for path in self._folder.glob(self._files):
            with path.open("rb") as file:
                file.seek(self._read.setdefault(path, 0))
                whole, end, _rest = file.read().rpartition(b"\n")
            self._count += sum(line.startswith(self._word) for line in whole.split(b"\n"))
            self._read[path] += len(whole + end)
        return self._count


def acknowledged(folder: Path) -> Noted:
    """Count the requests that were acknowledged, now and whenever it is called again."""
    return Noted(folder, "writer*", "done ")


def told(folder: Path) -> Noted:
    """Count what the watcher was told of NICs that came, in the same way."""
    return Noted(folder, "watcher", "enter ")


def _requests(folder: Path, held: Held) -> list[str]:
    found = []
    history = held.below("history/")
    names: dict[str, int] = {}
    for nic in held.below("nics/").values():
        name = nic.get("name", "")
        names[name] = names.get(name, 0) + 1
    for path in sorted(folder.glob("writer*")):
        writer = path.name.removeprefix("writer")
        ids: dict[int, str] = {}
        done: dict[int, int] = {}
        for line in notes.lines(path):
            word, which, rest = line.split(" ", 2)
            if word == "begun":
                ids[int(which)] = rest
            elif word == "done":
                done[int(which)] = int(rest.rpartition(":")[2])
            else:
                found.append(f"{path.name}: {line}")
        for number, request in ids.items():
            times = held.written.get(f"history/{request}", [])
            if len(times) > 1:
                found.append(f"{writer}/{number} was done {len(times)} times")
            if number in done and times != [done[number]]:
                found.append(f"{writer}/{number} was acknowledged at {done[number]}, and is at {times}")
            superseded = bool(held.written.get(f"history/{ids.get(number + 2)}"))
            expected = 2 if times and not superseded else 0
            if names.get(f"{writer}/{number}", 0) != expected:
                found.append(f"{writer}/{number}: {names.get(f'{writer}/{number}', 0)} NICs instead of {expected}")
            if times and len(history[request]["changes"]) < 4:
                found.append(f"{writer}/{number}: its history is half")
    return found


def _claims(held: Held) -> list[str]:
    found = []
    nics = held.below("nics/")
    for key, claim in held.below("addresses/").items():
        nic = nics.get(claim.get("holder", ""))
        if claim.get("holder") and (nic is None or nic.get("ip") != key.rpartition("/")[2]):
            found.append(f"{key} is claimed by {claim['holder']}, which does not have it")
    for uuid, nic in nics.items():
        if nic.get("ip") and json.loads(held.items.get(f"addresses/{nic['network']}/{nic['ip']}", b"{}")).get("holder") != uuid:
            found.append(f"{uuid} has {nic['ip']} without a claim")
    addresses = [nic["ip"] for nic in nics.values() if nic.get("ip")]
    if len(set(addresses)) != len(addresses):
        found.append("an address is given out twice")
    return found


def _history(held: Held) -> list[str]:
    numbers = sorted(entry["number"] for entry in held.below("history/").values())
    return [] if numbers == list(range(1, len(numbers) + 1)) else [f"the history has a gap: {numbers[:3]} ... {numbers[-3:]}"]


def _told(folder: Path, held: Held) -> list[str]:
    """Hold what the watcher was told against the file: within one stream every commit behind its beginning once and in order."""
    path = folder / "watcher"
    found: list[str] = []
    known: set[str] = set()
    there = _There(held)
    listing = False
    told: list[tuple[int, str, bool]] = []  # since the last line that said that all was told
    for line in notes.lines(path):
        word, _, rest = line.partition(" ")
        if word == "begin":
            told, listing = [], not rest
        elif word == "ready":
            expected = there.until(int(rest.rpartition(":")[2]))
            if listing:
                known = {uuid for _revision, uuid, _there in told}
            else:
                if told != expected:
                    found.append(f"up to {rest} was told {told[:4]}, and it was {expected[:4]}")
                _follow(known, told)
            told, listing = [], False
            if known != there.now:
                found.append(f"at {rest} the watcher knows {len(known)} NICs, and there are {len(there.now)}")
        else:
            uuid, revision = rest.split()
            told.append((int(revision.rpartition(":")[2]), uuid, word != "leave"))
    return found


class _There:
    """Which NICs there are, revision after revision."""

    def __init__(self, held: Held) -> None:
        self.now: set[str] = set()
        self._wanted, self._place = held.wanted, 0

    def until(self, revision: int) -> list[tuple[int, str, bool]]:
        """Go on to a revision; give what has changed up to it."""
        begin = self._place
        while self._place < len(self._wanted) and self._wanted[self._place][0] <= revision:
            self._place += 1
        _follow(self.now, self._wanted[begin : self._place])
        return self._wanted[begin : self._place]


def _follow(there: set[str], changes: list[tuple[int, str, bool]]) -> None:
    for _revision, uuid, wanted in changes:
        (there.add if wanted else there.discard)(uuid)
