"""Make, copy, compact and bring back the file of a registry while no service has it open."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from netregistry.stores.sqlite import SqliteStore
from netregistry.stores.sqlite_file import ENDS, MARK, MOVED, gone, moved_to, no_log_alone, removed, synchronise_folder
from runtime.errors import HostRefused, TryAgain, escaped

FILE = "/var/lib/netregistry/registry.sqlite"
REPLACED = ".replaced"  #: what stood in the place of one that was brought back
BACKUP = ".backup-"  #: folders beside the registry in which its service makes copies


def swept(path: str) -> None:
    """Remove the copies that services of this registry were killed at. Only for who has it open: then no other service is at one."""
    for left in Path(path).parent.glob(f"{BACKUP}*"):
        shutil.rmtree(left, ignore_errors=True)


def begin(path: str) -> str:
    """Make a registry that holds nothing, and its folder; give its epoch. Raises HostRefused, also where it was moved; Unavailable."""
    if os.path.exists(path + MOVED):
        raise gone(path, moved_to(path + MOVED))
    _folder(path)
    epoch = secrets.token_hex(4)
    SqliteStore.create(path, epoch).close()
    return epoch


def _folder(path: str) -> None:
    """Make the folder of a registry, root's alone, unless it is there. Raises HostRefused."""
    folder = Path(path).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HostRefused(f"cannot make {escaped(folder)}: {error.strerror}") from None


def copy(path: str, target: str) -> None:
    """Copy a registry that no service has open. Raises HostRefused, TryAgain, Damaged, Unavailable."""
    with SqliteStore(path) as store:
        store.backup(target)


def compact(path: str) -> tuple[int, int, str]:
    """Compact a registry that no service has open; give its bytes before and after, and the revision. Raises as ``copy`` does."""
    with SqliteStore(path) as store:
        revision = store.list("ledger", limit=1).revision
        store.compact(revision)
        return (*store.shrink(), f"{store.epoch}:{revision}")


def bring_back(backup: str, path: str) -> str:
    """Put a copy in the place of the registry, in a new epoch; give that. What stood there is kept beside it.

    The folder is made if need be. The copy itself is read alone. Whoever calls it has made sure that no etcd keeps the registry
    (netregistry.moving).

    Raises HostRefused, Damaged, Unavailable; TryAgain where a service has the registry open.
    """
    beside = f"{path}.new"
    copied = f"{beside}.copy"
    _folder(path)
    try:
        removed(beside)
        removed(copied)
        try:
            with open(backup, "rb") as source, open(os.open(copied, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                while data := source.read(1 << 20):
                    target.write(data)
            with SqliteStore(copied, moved=True) as store:  # examined as any that is opened: a damaged one is refused here
                store.note(epoch=secrets.token_hex(4), **{MARK: ""})
                epoch = store.epoch
                store.backup(beside)
        finally:
            removed(copied)
        replaced(path, beside)
    except OSError as error:
        raise HostRefused(f"cannot put {escaped(backup)} in the place of {escaped(path)}: {error.strerror}") from None
    return epoch


def replaced(path: str, beside: str) -> None:
    """Put the file ``beside`` in the place of a registry, which is kept, with the log that belongs to it. Raises OSError, TryAgain.

    One that was moved to an etcd is kept too, under a name by which nobody takes the new one for moved.
    """
    no_log_alone(path)
    if os.path.exists(path):
        _closed(path)
        _renamed(path, path + REPLACED)
    os.replace(beside, path)
    set_aside(path)


def set_aside(path: str) -> None:
    """Rename what was moved to an etcd, where it was brought back from there. Raises OSError."""
    if os.path.exists(path + MOVED):
        _renamed(path + MOVED, path + MOVED + REPLACED)
    synchronise_folder(path)


def _renamed(path: str, name: str) -> None:
    """Rename a file of SQLite's in the place of another one. Raises OSError."""
    removed(name)
    for end in ENDS:  # the file first: one without its log would pass for whole
        if os.path.exists(path + end):
            os.replace(path + end, name + end)


def _closed(path: str) -> None:
    """Raise TryAgain where a service has the file open; a damaged one is to be replaced, whatever it holds."""
    try:
        SqliteStore(path, moved=True).close()
    except TryAgain:
        raise TryAgain(f"{escaped(path)} is open in another process: stop the service first: systemctl stop netcommon-registry") from None
    except HostRefused:
        pass
