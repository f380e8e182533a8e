"""Make, copy, compact and bring back the file of a registry while no service has it open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from netregistry.stores.base import Damaged
from netregistry.stores.sqlite import SqliteStore
from netregistry.stores.sqlite_file import (
    ENDS,
    MARK,
    MOVED,
    NEW,
    REMEDY,
    REPLACED,
    gone,
    kept,
    moved_to,
    no_log_alone,
    not_there,
    removed,
    synchronise_folder,
    unused,
)
from runtime.errors import HostRefused, TryAgain, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE = "/var/lib/netregistry/registry.sqlite"
HERE = "move it away where it is not wanted; netcommon registry authority rotate makes an authority, where init was ended before it did"
ANOTHER = "name another backup"
LOGGING = 2  #: in the head of a file that is written by way of a log
BACKUP = ".backup-"  #: folders beside the registry, or its keys, in which its service makes copies


def swept(path: str) -> None:
    """Remove the copies beside ``path`` that services of this registry were killed at. Only where no other service can be at one."""
    for left in Path(path).parent.glob(f"{BACKUP}*"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Let no other process make, replace or move the registry of a file meanwhile: they would share the names of what they make.

    The file's folder is made if need be, and locked. Raises TryAgain where another one is at work, HostRefused.
    """
    folder = Path(path).absolute().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise HostRefused(f"cannot make {escaped(str(folder))}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TryAgain(f"another netcommon registry init, restore or move is at work in {escaped(str(folder))}") from None
        yield
    finally:
        os.close(descriptor)


def begin(path: str) -> str:
    """Make a registry that holds nothing, and its folder; give its epoch. It is there as a whole, or not at all.

    Raises HostRefused, also where it was moved, or where what a restore has begun or kept is there without it; TryAgain, Unavailable.
    """
    if os.path.exists(path + MOVED):
        raise gone(path, moved_to(path + MOVED))
    made, epoch = f"{path}.init", secrets.token_hex(4)
    with alone(path):
        if os.path.lexists(path):
            raise HostRefused(f"{escaped(path)} is there already", HERE)
        if (refusal := not_there(path)) is not None:
            raise refusal
        no_log_alone(path)
        try:
            removed(made)
            SqliteStore.create(made, epoch).close()
            os.link(made, path)
            removed(made)
            synchronise_folder(path)
        except FileExistsError:
            raise HostRefused(f"{escaped(path)} is there already", HERE) from None
        except OSError as error:
            raise HostRefused(f"cannot make {escaped(path)}: {error.strerror}") from None
    return epoch


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


def bring_back(backup: str, path: str, told: Callable[[str], object] = lambda _name: None) -> str:
    """Put a copy in the place of the registry, in a new epoch; give that. What stood there is kept beside it.

    ``told``: called with the name of the file in which that is kept.

    The copy itself is read alone, with its log where it has one beside it. Whoever calls it has
    made sure that no etcd keeps the registry (netregistry.moving).

    Raises HostRefused, Damaged, Unavailable; TryAgain where a service has the registry open.
    """
    with alone(path):
        return _brought_back(backup, path, told)


def _brought_back(backup: str, path: str, told: Callable[[str], object]) -> str:
    """Do what ``bring_back`` says, while no other process does."""
    beside = path + NEW
    copied = f"{beside}.copy"
    try:
        removed(beside)
        removed(copied)
        try:
            with opened(backup, copied) as store:
                store.note(epoch=secrets.token_hex(4), **{MARK: ""})
                epoch = store.epoch
                store.backup(beside)
        finally:
            removed(copied)
        aside = replaced(path, beside)
    except OSError as error:
        raise HostRefused(f"cannot put {escaped(backup)} in the place of {escaped(path)}: {error.strerror}") from None
    if aside:
        told(aside)
    return epoch


@contextlib.contextmanager
def opened(backup: str, copied: str) -> Iterator[SqliteStore]:
    """Open a copy of a backup, which is examined as any file that is opened. What is wrong with it is said of the backup.

    Raises OSError, HostRefused, Damaged, Unavailable.
    """
    duplicated(backup, copied)
    try:
        with SqliteStore(copied, moved=True) as store:
            yield store
    except Damaged as error:  # it names the copy, which is removed, and the remedy for a registry's own file
        named = Damaged(str(error).replace(escaped(copied), escaped(backup)).replace(REMEDY, ANOTHER))
        named.advice = error.advice
        raise named from None


def duplicated(backup: str, copied: str) -> None:
    """Copy a file of SQLite's that is to be read, and its log with it: the log has the latest commits, up to a thousand pages of them.

    To look at the file itself would empty its log into it, and what was given is not to be changed. Raises OSError; HostRefused where what
    lies beside it does not belong to a registry that is whole (https://www.sqlite.org/fileformat2.html#file_format_version_numbers).
    """
    log, journal = f"{backup}-wal", f"{backup}-journal"
    if _holds(journal):
        remedy = f"{ANOTHER}, or open it where it was made"
        raise HostRefused(f"{escaped(backup)} was being written when it was copied: {escaped(journal)} lies beside it", remedy)
    logged = _holds(log)
    _bytes(backup, copied)
    with open(copied, "rb") as file:
        head = file.read(20)
    if logged and len(head) == 20 and LOGGING not in head[18:]:
        remedy = f"move {escaped(log)} away: {escaped(backup)} is whole without it"
        raise HostRefused(f"{escaped(log)} is the log of another file: {escaped(backup)} is of a kind that has none", remedy)
    if logged:
        _bytes(log, f"{copied}-wal")


def _holds(path: str) -> bool:
    """Tell whether a file is there, and not empty. Raises OSError."""
    return os.path.lexists(path) and os.stat(path).st_size > 0


def _bytes(path: str, target: str) -> None:
    """Copy the bytes of a file to a new one, mode 0600. Raises OSError."""
    with open(path, "rb") as source, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as made:
        shutil.copyfileobj(source, made, 1 << 20)


def replaced(path: str, beside: str) -> str:
    """Put the file ``beside`` in the place of a registry, which is kept, with the log that belongs to it; give its name, "" without one.

    Where it has no log there is a registry at every moment. One that was moved to an etcd is kept too, under a name by which nobody takes
    the new one for moved. Raises OSError, TryAgain.
    """
    aside = ""
    no_log_alone(path)
    if os.path.exists(path):
        _closed(path)
        there = [each for each in kept(path + REPLACED) if os.path.samefile(each, path)]  # one that was ended here has linked it already
        aside = there[-1] if there else unused(path + REPLACED)
        if os.path.exists(f"{path}-wal"):
            _renamed(path, aside)
        else:
            Path(f"{path}-shm").unlink(missing_ok=True)  # an index of nothing
            if not there:
                os.link(path, aside)
    os.replace(beside, path)
    set_aside(path)
    return aside


def set_aside(path: str) -> None:
    """Rename what was moved to an etcd, where it was brought back from there. Raises OSError."""
    if os.path.exists(path + MOVED):
        _renamed(path + MOVED, unused(path + MOVED + REPLACED))
    synchronise_folder(path)


def _renamed(path: str, name: str) -> None:
    """Rename a file of SQLite's. Raises OSError."""
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
