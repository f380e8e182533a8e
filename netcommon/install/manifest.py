"""What our install has changed on a system, so that it can be taken back exactly: /var/lib/netcommon/install.json."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from netcommon.install.rooted import outside
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


Installs = dict[str, tuple[Change, ...]]


def read(root: str) -> Installs:
    """The changes of each install, in the order they were made. Raises HostRefused for a file that we cannot understand."""
    path = outside(root, FILE)
    try:
        with open(path, encoding="utf-8") as stream:
            stored = json.load(stream)
        if stored["schema"] > SCHEMA:
            raise HostRefused(f"{path}: was written by a newer version (schema {stored['schema']})")
        return {kind: tuple(Change(**change) for change in changes) for kind, changes in stored["installs"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HostRefused(f"{path}: cannot be read: {error}") from None


def write(root: str, installs: Installs) -> None:
    """Replaces the file as a whole, on disk when this returns; without installs it is removed. Raises OSError."""
    path = outside(root, FILE)
    kept = {kind: [change._asdict() for change in changes] for kind, changes in installs.items() if changes}
    folder = os.path.dirname(path)
    if not kept:
        for name in (path + TEMPORARY, path):
            if os.path.lexists(name):
                os.unlink(name)
        try:
            os.rmdir(folder)
        except OSError:
            return  # it was not there, or somebody else keeps files in it
        return
    os.makedirs(folder, 0o755, exist_ok=True)
    write_file(path, (json.dumps({"schema": SCHEMA, "installs": kept}, indent=1) + "\n").encode(), 0o644)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Puts a file in place by temporary file and rename, on disk when this returns. Raises OSError."""
    temporary = path + TEMPORARY
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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
