"""Open and examine the file of a SqliteStore, and raise SQLite's errors as those of a store."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from netregistry.stores.base import Damaged, Unavailable
from runtime.errors import HostRefused, TryAgain, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

APPLICATION = 0x6E657472  #: PRAGMA application_id: "netr"
SCHEMA = 1  #: PRAGMA user_version
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE items (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX items_by_lease ON items (lease) WHERE lease;
CREATE TABLE versions (
    revision INTEGER NOT NULL, place INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, PRIMARY KEY (revision, place)
) WITHOUT ROWID;
CREATE INDEX versions_by_key ON versions (key, revision);
CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, seconds REAL NOT NULL);
"""
REMEDY = "netcommon registry restore brings a backup back"
#: What of a disk, a file system or another process stands in the way; anything else of SQLite's is damage or a fault of ours.
PASSING = frozenset(
    (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM)
)
#: What a commit fails with before it is whole in the log: its last frame is what makes it one (https://www.sqlite.org/fileformat2.html#walformat).
NOT_WRITTEN = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_READONLY))
DAMAGE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
MOVED = ".moved"  #: the end of the name of a file whose content is kept by an etcd now
REPLACED = ".replaced"  #: what stood in the place of one that was brought back; a second one has -2 behind it, and so on
NEW = ".new"  #: what is to stand there
MARK, UNFINISHED = "moved", "unfinished"  #: facts of a file: the etcd that its registry was moved to; that it is a copy being made
ENDS = ("", "-wal", "-shm")  #: a file, its log, and the index of that (https://www.sqlite.org/tempfiles.html)


LONGEST_ADDRESS = 1000  #: characters of an address that are shown


def connect(path: str) -> sqlite3.Connection:
    """Open a file for one process alone. Raises TryAgain where another one has it, Damaged, Unavailable."""
    with translated(path):
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64)
        try:
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("BEGIN EXCLUSIVE")  # takes the lock at once: a second process is refused here, not at its first commit
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
    return database


def identities(path: str, ends: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Give device and number of a file, and of what belongs to it, of those that are there; nothing of one in memory."""
    found = {}
    for end in ends if path != ":memory:" else ():
        with contextlib.suppress(OSError):
            there = os.stat(path + end)
            found[end] = there.st_dev, there.st_ino
    return found


def in_place(path: str, files: dict[str, tuple[int, int]]) -> None:
    """Raise Unavailable where a file, or its log, is no longer what was opened: what is committed would be gone with it."""
    if identities(path, ("", "-wal")) != files:
        what = f"{escaped(path)} or its log was moved, removed or replaced while it was open"
        raise Unavailable(f"{what}: nothing more is committed to it; systemctl restart netcommon-registry opens what is there")


def new_file(path: str, remedy: str) -> None:
    """Make an empty file, mode 0600. Raises HostRefused where there is one already, with a remedy; Unavailable."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise HostRefused(f"{escaped(path)} is there already", remedy) from None
    except OSError as error:
        raise Unavailable(f"cannot make {escaped(path)}: {error.strerror}") from None


def removed(path: str) -> None:
    """Remove a file of SQLite's, if it is there, and what belongs to it. Raises OSError."""
    for end in ENDS:
        Path(path + end).unlink(missing_ok=True)


def examine(path: str, moved: bool = False) -> None:
    """Raise Damaged for a file that cannot be used, TryAgain where another process has it open. Changes nothing of it.

    ``moved``: also one whose registry was moved to an etcd can be used; otherwise that is refused (HostRefused).
    """
    if not os.path.exists(path):
        if os.path.exists(path + MOVED):
            raise gone(path, moved_to(path + MOVED))
        raise not_there(path) or HostRefused(f"{escaped(path)} is not there", "netcommon registry init makes one")
    if os.path.exists(path + MOVED) and not moved:
        raise gone(path, moved_to(path + MOVED))  # what lies here now is what was there before, or a copy of it
    try:
        with contextlib.closing(_reading(path)) as database:
            application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
            if application != APPLICATION:
                raise Damaged(f"{escaped(path)} is no registry", REMEDY)
            if version > SCHEMA:
                raise Damaged(f"{escaped(path)} was written by a newer version: its schema is {version}, this one knows {SCHEMA}")
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise Damaged(f"{escaped(path)} is damaged: {escaped(found)}", REMEDY)
            facts = dict(database.execute("SELECT name, value FROM facts"))
            if missing := {"epoch", "revision", "floor"} - set(facts):
                raise Damaged(f"{escaped(path)} is damaged: it does not say its {' and '.join(sorted(missing))}", REMEDY)
            if UNFINISHED in facts:
                raise Damaged(f"{escaped(path)} is part of a registry: what copied it was ended before it had all", "make another copy")
            if MARK in facts and not moved:
                raise gone(path, str(facts[MARK]))
    except sqlite3.Error as error:
        code = _code(error)
        if code == sqlite3.SQLITE_BUSY:
            raise TryAgain(f"{escaped(path)} is open in another process") from None
        if code in PASSING:
            raise Unavailable(_passing(path, error)) from None
        raise Damaged(f"{escaped(path)} is damaged: {error}", REMEDY) from None


def not_there(path: str) -> HostRefused | None:
    """Say of a file that is not there that a registry was: what a restore that was killed, or was done, has left lies beside it."""
    begun = [path + NEW] if os.path.lexists(path + NEW) else []
    for beside, what in ((begun, "a restore was begun, and not finished"), (kept(path + REPLACED), "what stood in its place is kept")):
        if beside:
            remedy = (
                f"netcommon registry restore FILE, of a backup or of what is kept; to begin with nothing, move {escaped(beside[-1])} away"
            )
            return HostRefused(f"{escaped(path)} is not there, but {escaped(beside[-1])}: {what}", remedy)
    return None


def kept(name: str) -> list[str]:
    """Give the files that were kept by a name, the latest one last: NAME, NAME-2, NAME-3 and so on."""
    begins, found = os.path.basename(name), []
    with contextlib.suppress(OSError):
        for each in os.listdir(os.path.dirname(name) or "."):
            number = each.removeprefix(begins).removeprefix("-") if each.startswith(begins) else "none"
            if each == begins or (each == f"{begins}-{number}" and number.isascii() and number.isdigit()):
                found.append((int(number or "1"), os.path.join(os.path.dirname(name), each)))
    return [path for _number, path in sorted(found)]


def unused(name: str) -> str:
    """Give a name for one more that is to be kept: no earlier one is written over, nor anything that belongs to it."""
    names = chain((name,), (f"{name}-{number}" for number in count(2)))
    return next(each for each in names if not any(os.path.lexists(each + end) for end in ENDS))


def gone(path: str, where: str) -> HostRefused:
    """Say of a file that its registry is kept by an etcd now; ``where`` "": nobody knows by which one."""
    to = escaped(where, LONGEST_ADDRESS) if where else "an etcd"
    remedy = "[registry] store in /etc/netcommon/config.toml is to name that etcd; netcommon registry move --back brings it back from there"
    if where:
        remedy = f"{remedy}; a move that was interrupted is finished by netcommon registry move --to {to}"
    return HostRefused(f"{escaped(path)} is not the registry any more: it was moved to {to}", remedy)


def moved_to(path: str) -> str:
    """Give the address of the etcd that a file says its registry was moved to; "" where it says nothing, is not there, or is damaged."""
    if not os.path.exists(path):
        return ""
    whole = "" if os.path.lexists(f"{path}-wal") else "&immutable=1"  # without a log nothing is to be left beside it
    try:
        with contextlib.closing(_reading(path, whole)) as database:
            row = database.execute("SELECT value FROM facts WHERE name = ?", (MARK,)).fetchone()
            return str(row[0]) if row else ""
    except sqlite3.Error:
        return ""


def _reading(path: str, more: str = "") -> sqlite3.Connection:
    """Open a file to read it alone. ``more``: of the address (https://sqlite.org/uri.html)."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro{more}", uri=True, timeout=0)


def no_log_alone(path: str) -> None:
    """Raise HostRefused where the log of a file is there without it: SQLite would take it for that of the next file of this name."""
    if not os.path.lexists(path) and os.path.lexists(f"{path}-wal"):
        remedy = f"move it to where {escaped(os.path.basename(path))} was moved: it has its latest commits"
        raise HostRefused(f"{escaped(path)}-wal is there without the file that it belongs to", remedy)


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise SQLite's errors as the store's."""
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error)
        if code == sqlite3.SQLITE_BUSY:
            raise TryAgain(f"{escaped(path)} is open in another process") from None
        if code in DAMAGE:
            raise Damaged(f"{escaped(path)} is damaged: {error}", REMEDY) from None
        if code in PASSING:
            raise Unavailable(_passing(path, error)) from None
        raise


def _passing(path: str, error: sqlite3.Error) -> str:
    """Say what is in the way: of a file system that is read-only SQLite only knows that it cannot open a file."""
    with contextlib.suppress(OSError):
        if os.statvfs(os.path.dirname(os.path.abspath(path))).f_flag & os.ST_RDONLY:
            return f"{escaped(path)}: its file system is read-only ({error})"
    return f"{escaped(path)}: {error}"


def _code(error: sqlite3.Error) -> int:
    """Give the primary code of an error (https://www.sqlite.org/rescode.html)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def synchronise_folder(path: str) -> None:
    """Let a file that was made survive a crash of the machine."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
