"""What our install has changed on a system, so that it can be taken back exactly: /var/lib/netcommon/install.json."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netcommon.install.rooted import outside, placed
from runtime.errors import HostRefused

FILE = "/var/lib/netcommon/install.json"
SCHEMA = 1

#: What is replaced is kept beside it under this suffix.
SAVED = ".netcommon-saved"

#: What is being written has this suffix until it is whole.
TEMPORARY = ".netcommon-new"


class Change(NamedTuple):
    """One file or folder of ours. It is on record before it is made."""

    path: str
    kind: str = "file"  #: "file"; "folder": removed with the last of its files
    saved: str = ""  #: where what stood at ``path`` is kept; "" if nothing did
    diverted: bool = False  #: dpkg-divert(1) knows: new versions of the package's file go to ``saved``


class Installs(dict[str, tuple[Change, ...]]):
    """The changes of each install, in the order they were made. ``leaving``: the installs whose changes are only kept to be taken back."""

    def __init__(self, changes: Mapping[str, tuple[Change, ...]] | None = None, leaving: Iterable[str] = ()) -> None:
        super().__init__(changes or {})
        self.leaving = set(leaving)

    def wanted(self, kind: str) -> bool:
        """Tell if the doors of ``kind`` shall be in place."""
        return kind in self and kind not in self.leaving


def read(root: str) -> Installs:
    """Return what is on record. Raises HostRefused for a file that we cannot understand."""
    path = outside(root, placed(root, FILE))
    try:
        with open(path, encoding="utf-8") as stream:
            stored = json.load(stream)
        if stored["schema"] > SCHEMA:
            raise HostRefused(f"{path}: was written by a newer version (schema {stored['schema']})")
        installs = {kind: tuple(Change(**change) for change in changes) for kind, changes in stored["installs"].items()}
        return Installs(installs, stored.get("leaving", ()))
    except FileNotFoundError:
        return Installs()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HostRefused(f"{path}: cannot be read: {error}") from None


def write(root: str, installs: Installs) -> None:
    """Replaces the file as a whole, on disk when this returns; without installs it is removed. Raises OSError.

    Its folder comes and goes with it, by one rename each, but where it was there before: then it stays, as empty as it was.
    """
    path = outside(root, placed(root, FILE))
    folder, name = os.path.split(path)
    aside = folder + TEMPORARY
    _clear(aside, name)
    made = _made(path)
    kept = {kind: [change._asdict() for change in changes] for kind, changes in installs.items() if changes}
    if not kept:
        unlink(path + TEMPORARY)
        if made and os.listdir(folder) == [name]:
            os.rename(folder, aside)
            _clear(aside, name)
        else:
            unlink(path)
        return
    there = os.path.lexists(folder)
    leaving = sorted(installs.leaving & kept.keys())
    stored = {"schema": SCHEMA, "made": not there if made is None else made, "leaving": leaving, "installs": kept}
    data = (json.dumps(stored, indent=1) + "\n").encode()
    if there:
        write_file(path, data, 0o644)
        return
    os.makedirs(aside, 0o755)
    write_file(f"{aside}/{name}", data, 0o644)
    os.rename(aside, folder)
    flush_folder(os.path.dirname(folder))


def _made(path: str) -> bool | None:
    """Tell if our install made the folder of the file; None where there is no file. Version 0.1.0 did not say: as if it had."""
    try:
        with open(path, encoding="utf-8") as stream:
            return bool(json.load(stream).get("made", True))
    except (OSError, ValueError, AttributeError):
        return None


def _clear(folder: str, name: str) -> None:
    """Remove a folder of ours that a run which was killed has left under its temporary name. Raises OSError."""
    if os.path.lexists(folder):
        for inside in (name, name + TEMPORARY):
            unlink(f"{folder}/{inside}")
        os.rmdir(folder)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Puts a file in place by temporary file and rename, on disk when this returns. Raises OSError."""
    temporary = path + TEMPORARY
    unlink(temporary)  # of a run that was killed: never written into, since a hard link may be anybody's file too
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    flush_folder(os.path.dirname(path))


def flush_folder(path: str) -> None:
    """Makes renames in the folder ``path`` outlive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unlink(path: str) -> None:
    """Remove ``path`` if it is there; asked first, since a file system that is read-only refuses either way. Raises OSError."""
    if os.path.lexists(path):
        os.unlink(path)
