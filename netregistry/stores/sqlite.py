"""Keep a registry in one SQLite file: no server, one process at a time, on one machine.

Every version of a key stays until a compaction, so that listings of an earlier revision and watches are plain queries. The journal is a
write-ahead log, and each commit is synchronised to the disk before it is acknowledged (https://www.sqlite.org/wal.html,
https://www.sqlite.org/pragma.html#pragma_synchronous). A second process is refused by SQLite's own exclusive lock.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Self

from netregistry.stores.base import (
    LONGEST_LEASE,
    Ahead,
    Batch,
    Changed,
    Compacted,
    Conflict,
    Delete,
    Expect,
    Item,
    Listing,
    Lost,
    Put,
    Unavailable,
    Unknown,
    checked,
    checked_key,
    checked_prefix,
)
from netregistry.stores.sqlite_file import (
    APPLICATION,
    NOT_WRITTEN,
    SCHEMA,
    TABLES,
    UNFINISHED,
    connect,
    examine,
    identities,
    in_place,
    new_file,
    no_log_alone,
    removed,
    synchronise_folder,
    translated,
)
from netregistry.stores.sqlite_watch import SqliteWatch, batches, behind
from runtime.errors import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

AT_ONCE = 256  #: commits that a watch reads at once, and leases that end in one
COPIED = 500  #: pages of a copy that are written before others have their turn


class SqliteStore:
    """A store in one file. ``now``: the clock by which leases end, monotonic seconds."""

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic, moved: bool = False) -> None:
        """Open the file, which ``create`` has made. ``moved``: also where its registry was moved to an etcd.

        Raises Damaged for a file that is none of ours, of a newer version, or damaged: it stays as it is; HostRefused for one that was
        moved; TryAgain where another process has it; Unavailable.
        """
        self.path, self._now = path, now
        self._begin()
        if path != ":memory:":
            examine(path, moved)
        self._connect()
        try:
            self._ready()
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def create(cls, path: str, epoch: str, now: Callable[[], float] = time.monotonic, unfinished: bool = False) -> SqliteStore:
        """Make a store that holds nothing, mode 0600, and open it; ``:memory:`` for one that is gone when it is closed.

        ``unfinished``: it says of itself that it is a part, and is refused once it is closed, until ``note`` takes that away.

        Raises HostRefused where there is a file already.
        """
        if path != ":memory:":
            no_log_alone(path)
            new_file(path, "name another file, or move it away")
        store = cls.__new__(cls)
        store.path, store._now = path, now
        store._begin()
        try:
            store._connect()
            store._fill(epoch, unfinished)
            if path != ":memory:":
                synchronise_folder(path)
        except BaseException:  # a file half made would keep the next try off
            if path != ":memory:":
                with contextlib.suppress(OSError):
                    removed(path)
            raise
        return store

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._first = threading.Lock()  # held by who copies while it waits for its next turn: otherwise it might have none
        self._closed, self._copies = False, 0

    def _connect(self) -> None:
        """Open the file, and keep in mind which it is. Raises as netregistry.stores.sqlite_file.connect does."""
        self._files = identities(self.path, ("",))  # before: of a file that is replaced meanwhile nothing is committed
        self._database = connect(self.path)
        self._files |= identities(self.path, ("-wal",))

    def _fill(self, epoch: str, unfinished: bool) -> None:
        """Make the tables of a new file; the connection is closed where that fails."""
        try:
            with translated(self.path):
                self._database.executescript(f"BEGIN IMMEDIATE; {TABLES}")
                self._database.execute(f"PRAGMA application_id={APPLICATION}")
                self._database.execute(f"PRAGMA user_version={SCHEMA}")
                facts = [("epoch", epoch), ("revision", 0), ("floor", 0), *([(UNFINISHED, "yes")] if unfinished else [])]
                self._database.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                self._database.execute("COMMIT")
            self._ready()
        except BaseException:
            self._database.close()
            raise

    def _ready(self) -> None:
        with translated(self.path):
            facts = dict(self._database.execute("SELECT name, value FROM facts").fetchall())
            self._epoch, self._revision, self._floor = str(facts["epoch"]), int(facts["revision"]), int(facts["floor"])
            leases = self._database.execute("SELECT id, seconds FROM leases").fetchall()
            self._granted = int(self._database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0])
        now = self._now()
        self._leases = {number: (seconds, now + seconds) for number, seconds in leases}
        self._soonest = now  # none of them ends before
        self._newest = Batch(0, ())  # the latest commit, if it was done by us
        self._unused: dict[int, None] = {}  # leases with which nothing was written yet: they are not in the file

    @property
    def epoch(self) -> str:
        """Give the epoch of the file's content."""
        return self._epoch

    # -- reading

    def get(self, key: str) -> Item | None:
        """As netregistry.stores.base.Store says; so do all methods below."""
        checked_key(key)
        self._let_copy()
        with self._reading() as database:
            row = database.execute("SELECT key, value, revision FROM items WHERE key = ?", (key,)).fetchone()
        return Item(*row) if row else None

    def list(self, prefix: str, after: str = "", limit: int = 0, revision: int = 0) -> Listing:
        low = max(checked_prefix(prefix), checked_prefix(after))
        more_than = ">" if after and after >= prefix else ">="
        where = f"key {more_than} ? AND key < ?"
        bounds = (low, behind(prefix))
        self._let_copy()
        with self._reading() as database:
            if revision > self._revision:
                raise Ahead(revision, self._revision)
            if revision and revision < self._floor:
                raise Compacted(self._floor)
            if revision in (0, self._revision):
                query = f"SELECT key, value, revision FROM items WHERE {where} ORDER BY key LIMIT ?"  # noqa: S608
                rows = database.execute(query, (*bounds, limit + 1 if limit else -1)).fetchall()
            else:  # of the columns without max() SQLite takes those of the row that has it
                query = (
                    f"SELECT key, value, max(revision) FROM versions WHERE {where} AND revision <= ? GROUP BY key "  # noqa: S608
                    "HAVING value IS NOT NULL ORDER BY key LIMIT ?"
                )
                rows = database.execute(query, (*bounds, revision, limit + 1 if limit else -1)).fetchall()
            at = revision or self._revision
        more = bool(limit) and len(rows) > limit
        return Listing(tuple(Item(*row) for row in (rows[:limit] if more else rows)), at, more)

    # -- changing

    def commit(self, tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
        checked(tests, changes)
        self._let_copy()
        with self._lock:
            self._open()
            for change in changes:
                if isinstance(change, Put) and change.lease and change.lease not in self._leases:
                    raise ValueError(f"{change.key}: lease {change.lease} is not there")
            with self._transaction() as database:
                for key, expected in tests:
                    row = database.execute("SELECT revision FROM items WHERE key = ?", (key,)).fetchone()
                    if (row[0] if row else 0) != expected:
                        raise Conflict(key, row[0] if row else 0)
                used = {change.lease: None for change in changes if isinstance(change, Put) and change.lease in self._unused}
                for lease in used:
                    database.execute("INSERT OR REPLACE INTO leases (id, seconds) VALUES (?, ?)", (lease, self._leases[lease][0]))
                done = self._change(database, changes)
            for lease in used:
                del self._unused[lease]
            return self._made(done)

    def _change(self, database: sqlite3.Connection, changes: Sequence[Put | Delete]) -> Batch:
        """Do the changes in the transaction that is open; return what it is when it is committed."""
        revision, done = self._revision + 1, list[Changed]()
        for change in changes:
            if isinstance(change, Put):
                value: bytes | None = change.value
                row = (change.key, change.value, revision, change.lease)
                database.execute("INSERT OR REPLACE INTO items (key, value, revision, lease) VALUES (?, ?, ?, ?)", row)
            else:
                value = None
                if not database.execute("DELETE FROM items WHERE key = ?", (change.key,)).rowcount:
                    continue
            database.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", (revision, len(done), change.key, value))
            done.append(Changed(change.key, value))
        if not done:
            return Batch(self._revision, ())
        database.execute("UPDATE facts SET value = ? WHERE name = 'revision'", (revision,))
        return Batch(revision, tuple(done))

    def _made(self, batch: Batch) -> int:
        if batch.changes:
            self._revision, self._newest = batch.revision, batch
            self._news.notify_all()
        return batch.revision

    def compact(self, revision: int) -> None:
        with self._lock:
            self._open()
            if revision > self._revision:
                raise Ahead(revision, self._revision)
            if revision < self._floor:
                raise Compacted(self._floor)
            with self._transaction() as database:
                # by what came since the last time, for it is done every minute: of what is older only that is left which is there still
                new = (self._floor, revision)
                database.execute(
                    "DELETE FROM versions WHERE (revision, place) IN (SELECT older.revision, older.place FROM versions AS later "
                    "CROSS JOIN versions AS older ON older.key = later.key AND older.revision = "
                    "(SELECT max(revision) FROM versions AS earlier WHERE earlier.key = later.key AND earlier.revision < later.revision) "
                    "WHERE later.revision > ? AND later.revision <= ?)",
                    new,
                )
                database.execute("DELETE FROM versions WHERE revision > ? AND revision <= ? AND value IS NULL", new)
                database.execute("UPDATE facts SET value = ? WHERE name = 'floor'", (revision,))
            self._floor = revision
            self._news.notify_all()

    # -- watching

    def watch(self, prefix: str, start: int) -> SqliteWatch:
        checked_prefix(prefix)
        with self._lock:
            self._open()
            if start <= self._floor:
                raise Compacted(self._floor)
            if start > self._revision + 1:
                raise Ahead(start, self._revision)
        return SqliteWatch(partial(self.since, prefix), self.wake, start)

    def since(self, prefix: str, start: int, seconds: float, ended: Callable[[], bool]) -> tuple[Batch, ...]:
        """Wait for commits from ``start`` on; give some of them, and how far they reach as a heartbeat at the end. For SqliteWatch."""
        with self._lock:
            if seconds > 0:
                self._news.wait_for(lambda: self._closed or ended() or self._revision >= start or self._floor >= start, seconds)
            if self._closed or ended():
                raise Lost("the store was closed" if self._closed else "the watch was closed")
            if start <= self._floor:
                raise Compacted(self._floor)
            last = min(self._revision, start + AT_ONCE - 1)
            if last < start:
                return (Batch(start - 1, ()),)  # as it mostly is: a service asks this before and after whatever it does
            if start == self._newest.revision:  # as it is after each commit, for whoever has made it
                return (Batch(start, tuple(change for change in self._newest.changes if change.key.startswith(prefix))),)
            with self._reading() as database:
                rows = database.execute(
                    "SELECT revision, key, value FROM versions WHERE revision BETWEEN ? AND ? AND key >= ? AND key < ? "
                    "ORDER BY revision, place",
                    (start, last, prefix, behind(prefix)),
                )
                return batches(rows.fetchall(), last)

    def wake(self) -> None:
        """Let every watch look whether it has ended."""
        with self._news:
            self._news.notify_all()

    # -- leases

    def grant(self, seconds: float) -> int:
        if not 0 < seconds <= LONGEST_LEASE:
            raise ValueError(f"a lease of {seconds} seconds: more than 0 and at most {LONGEST_LEASE}")
        with self._lock:
            self._open()
            self._granted += 1  # it is written with what is written first with it: one that nobody has used may be another's after a crash
            self._unused[self._granted] = None
            self._leases[self._granted] = (seconds, self._now() + seconds)
            self._soonest = min(self._soonest, self._now() + seconds)
            return self._granted

    def keep(self, lease: int) -> bool:
        with self._lock:
            self._open()
            if lease not in self._leases:
                return False
            seconds, until = self._leases[lease]
            if until <= self._now():
                return False  # it ends with the next tick
            self._leases[lease] = (seconds, self._now() + seconds)
            return True

    def keep_all(self, leases: Sequence[int]) -> frozenset[int]:
        with self._lock:
            return frozenset(lease for lease in leases if self.keep(lease))

    def revoke(self, lease: int) -> None:
        with self._lock:
            self._open()
            if lease in self._leases:
                self._end([lease])

    def _end(self, leases: Sequence[int]) -> None:
        """End leases that are there, and what was written with them, in one commit."""
        # "AND lease" lets SQLite use the index, which has none of the many keys without a lease: https://www.sqlite.org/partialindex.html
        query = "SELECT key FROM items WHERE lease = ? AND lease ORDER BY key"
        with self._transaction() as database:
            keys = [key for lease in leases for (key,) in database.execute(query, (lease,)).fetchall()]
            done = self._change(database, [Delete(key) for key in keys])
            database.executemany("DELETE FROM leases WHERE id = ?", [(lease,) for lease in leases])
        for lease in leases:
            del self._leases[lease]
            self._unused.pop(lease, None)
        self._made(done)

    def renew(self) -> None:
        """Begin all leases anew: nobody could keep one while this process was held up, as while there was none."""
        with self._lock:
            now = self._now()
            self._leases = {number: (seconds, now + seconds) for number, (seconds, _until) in self._leases.items()}

    def tick(self) -> float:
        """End the leases whose time is over; give the seconds until one may end again, infinity where there is none.

        SQLite does nothing by itself: whoever has the store open calls this in time. Thousands end together where a service was held up.
        """
        with self._lock:
            self._open()
            in_place(self.path, self._files)
            now = self._now()
            if self._soonest <= now:
                over = [number for number, (_seconds, until) in self._leases.items() if until <= now]
                for place in range(0, len(over), AT_ONCE):
                    self._end(over[place : place + AT_ONCE])
                self._soonest = min((until for _seconds, until in self._leases.values()), default=float("inf"))
            return self._soonest - self._now()

    # -- the file

    def backup(self, path: str) -> None:
        """Copy the store, as it is at the end, to a new file, while others use it.

        Raises HostRefused where there is a file already; Unavailable, also where the store is closed meanwhile.
        """
        new_file(path, "name another file")
        try:
            with translated(path), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as copy:
                copy.execute("PRAGMA synchronous=OFF")  # that is done in the end, and keeps nobody waiting
                self._copy(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # the copy is one file
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            synchronise_folder(path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    def _copy(self, copy: sqlite3.Connection) -> None:
        """Write all to another database, part by part: what is committed in between by our connection goes there too.

        https://www.sqlite.org/c3ref/backup_finish.html: "the backup database is updated automatically at the same time".
        """

        least = float("inf")

        def between(_status: int, left: int, _pages: int) -> None:
            nonlocal least
            if left > least - COPIED // 2:
                return  # others write so much that it might come to no end
            least = left
            self._lock.release()
            time.sleep(0.001)  # others have their turn
            with self._first:
                self._lock.acquire()
            self._open()

        with self._news:
            self._open()
            self._copies += 1
            try:
                self._database.backup(copy, pages=COPIED, progress=between)
            finally:
                self._copies -= 1
                self._news.notify_all()

    def _let_copy(self) -> None:
        """Let a copy that waits for its next turn have it first."""
        with self._first:
            pass

    def shrink(self) -> tuple[int, int]:
        """Give the space of what was forgotten back to the file system; give the file's bytes before and after.

        Nobody else is served meanwhile. It needs as much space again as the file has.
        """
        with self._lock, translated(self.path):
            self._open()
            if self._copies:
                raise Unavailable(f"{escaped(self.path)} is being copied: it is made smaller after that")
            before = self._size()
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return before, self._size()

    def _size(self) -> int:
        pages, each = (self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * each)

    def note(self, **facts: str) -> None:
        """Write facts of the file: its epoch, or a mark of netregistry.stores.sqlite_file; "" removes one.

        With another epoch, what is known elsewhere by revisions of the one before counts no more.
        """
        with self._lock:
            self._open()
            with self._transaction() as database:
                for name, value in facts.items():
                    database.execute("DELETE FROM facts WHERE name = ?", (name,))
                    database.executemany("INSERT INTO facts VALUES (?, ?)", [(name, value)] if value else [])
            self._epoch = facts.get("epoch", self._epoch)

    def close(self) -> None:
        with self._news:
            if not self._closed:
                self._closed = True
                self._news.notify_all()
                self._news.wait_for(lambda: not self._copies)
                self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise Unavailable(f"{escaped(self.path)} was closed")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translated(self.path):
            self._open()
            yield self._database

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is done within; nothing of it stays where anything is raised. Raises Unknown where the commit itself fails."""
        in_place(self.path, self._files)
        with translated(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._roll_back()
                raise
            try:
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                if error.sqlite_errorcode in NOT_WRITTEN:
                    raise
                # what was written to the log may count after a crash, unless the next commit is written over it
                raise Unknown(f"{escaped(self.path)}: it may be done or not: {error}") from None

    def _roll_back(self) -> None:
        if self._database.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
