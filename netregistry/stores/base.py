"""Define the interface of a store: keys with values, changed by commits, each of which has a revision of its own.

Whatever engine there is holds to this, and tests/contract/stores tests each in the same way:

* A commit is done whole or not at all, and is durable before ``commit`` returns.
* Revisions are whole numbers that grow with each commit; a commit that changes nothing has none. They mean something within one epoch
  alone: ``epoch`` is another where the content was moved to another engine, or restored from a backup.
* A reader sees commits whole and in order: a listing is of one revision, a batch of a watch is one commit.
* What is older than the floor of the last compaction is gone: who asks for it gets Compacted, and never less than there was. A watch that
  is open may still tell it, whole; its heartbeats say what was delivered, and no more.
* What is larger than MOST, LONGEST_VALUE or LARGEST is refused before anything is done. A commit is never split.
* A lease lasts as long as was asked for at least, and up to two seconds longer.

Revisions begin anywhere, and need not follow each other: a commit may be the next one after another, and a thousand higher.

Keys and values are those of etcd, so that either engine can hold what the other does: a key has printable ASCII characters without
blanks, a value any bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from runtime.errors import HostRefused, NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

LONGEST_KEY = 512  #: characters
LONGEST_VALUE = 1 << 20  #: bytes; etcd takes a request of 1.5 MiB
MOST = 120  #: tests, and changes, of one commit; etcd takes 128 of each
LARGEST = 1_400_000  #: bytes of all keys and values of one commit; with what etcd adds for each it stays below its 1.5 MiB
LONGEST_LEASE = 86400.0  #: seconds


class Conflict(NetcommonError):
    """A test of a commit does not hold: ``key`` is at another revision. Nothing was changed."""

    def __init__(self, key: str, revision: int) -> None:
        self.key, self.revision = key, revision
        super().__init__(f"{key} is at revision {revision}" if revision else f"{key} is not there")


class Unknown(TryAgain):
    """A commit was sent and not answered: it may be done. The same sent again decides it, where one of its tests allows it once only."""


class Unavailable(TryAgain):
    """The engine cannot do it for now: a full disk, a file system that is read-only, no majority. Nothing was changed."""


class Compacted(NetcommonError):
    """Refuse what is older than the store remembers: ``floor`` is the last revision that a compaction has taken."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"the store remembers what came after revision {floor} alone")


class Ahead(NetcommonError):
    """Refuse a revision that there has not been: it is of another epoch."""

    def __init__(self, revision: int, newest: int) -> None:
        self.revision, self.newest = revision, newest
        super().__init__(f"revision {revision} has not been: the newest is {newest}")


class Lost(TryAgain):
    """A watch has ended, and may have missed nothing so far: list, compare and watch again."""


class Damaged(HostRefused):
    """The store's content cannot be read, or is not what this program writes. It was not touched."""


class Item(NamedTuple):
    """One key with its value, and the revision of the commit that wrote it."""

    key: str
    value: bytes
    revision: int


class Listing(NamedTuple):
    """Some of the items below a prefix, sorted by key, as they were at one revision. ``more``: others follow the last of them."""

    items: tuple[Item, ...]
    revision: int
    more: bool


class Expect(NamedTuple):
    """A condition of a commit: ``key`` was last written at ``revision``; 0: it is not there."""

    key: str
    revision: int


class Put(NamedTuple):
    """Write ``key``. With a ``lease`` it is removed when that ends; 0 for none."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Remove ``key``; that it is not there is no error."""

    key: str


class Changed(NamedTuple):
    """Tell what a commit has done to one key; ``value`` None: it was removed."""

    key: str
    value: bytes | None


class Batch(NamedTuple):
    """One commit, as far as it is below the prefix of a watch; without changes a heartbeat: all up to ``revision`` was delivered."""

    revision: int
    changes: tuple[Changed, ...]


class Watch(Protocol):
    """Give what has been committed below one prefix since a revision, batch by batch."""

    def next(self, seconds: float) -> Batch:
        """Give the next commit; a heartbeat where none came within so many seconds. Raises Compacted, Lost."""

    def close(self) -> None:
        """End the watch: a ``next`` that waits in another thread raises Lost."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Store(Protocol):
    """A store that is open. Its methods may be called by several threads at the same time.

    All of them raise Unavailable where the engine cannot answer, and ValueError for what no store can hold.
    """

    @property
    def epoch(self) -> str:
        """Give the id of what the revisions belong to; another after a move or a restore."""

    def get(self, key: str) -> Item | None:
        """Give the item as it is now; None where there is none."""

    def list(self, prefix: str, after: str = "", limit: int = 0, revision: int = 0) -> Listing:
        """Give the items below ``prefix``, behind the key ``after``, ``limit`` at most (0: all); as they were at ``revision``, 0 for now.

        Raises Compacted for a revision below the floor, Ahead for one that has not been.
        """

    def commit(self, tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
        """Do all the changes if all the tests hold; return its revision, or the newest where it changes nothing.

        Raises Conflict for the first test that does not hold, and Unknown where it may be done or not. No key may be in two tests, nor
        in two changes.
        """

    def watch(self, prefix: str, start: int) -> Watch:
        """Watch from the commit of revision ``start`` on: one more than the revision of a listing.

        Raises Compacted where ``start`` is not above the floor, Ahead where it is above the newest revision and one more.
        """

    def grant(self, seconds: float) -> int:
        """Begin a lease; return its id, above 0. After a restart of the engine its time begins anew."""

    def keep(self, lease: int) -> bool:
        """Let the lease's time begin anew; False where it has ended."""

    def keep_all(self, leases: Sequence[int]) -> frozenset[int]:
        """Keep several leases, as ``keep`` does; give those of them that have not ended. There may be thousands."""

    def revoke(self, lease: int) -> None:
        """End the lease, as its time does: all keys written with it are removed in one commit."""

    def compact(self, revision: int) -> None:
        """Forget what was overwritten or removed up to ``revision``. Raises Ahead, and Compacted below the floor."""

    def close(self) -> None:
        """Close it; its watches end."""


def checked(tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> None:
    """Raise ValueError for a commit that not every engine would take."""
    if len(tests) > MOST or len(changes) > MOST:
        raise ValueError(f"{len(tests)} tests and {len(changes)} changes: at most {MOST} of each")
    for what, keys in (("tests", [test.key for test in tests]), ("changes", [change.key for change in changes])):
        for key in keys:
            checked_key(key)
        if len(set(keys)) != len(keys):
            raise ValueError(f"one key twice among the {what}")
    if (size := commit_size(tests, changes)) > LARGEST:
        raise ValueError(f"{size} bytes of keys and values: at most {LARGEST}")
    for test in tests:
        if test.revision < 0:
            raise ValueError(f"{test.key}: a revision below 0")
    for change in changes:
        if isinstance(change, Put) and len(change.value) > LONGEST_VALUE:
            raise ValueError(f"{change.key}: {len(change.value)} bytes, more than {LONGEST_VALUE}")


def commit_size(tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
    """Give the bytes of all keys and values of a commit."""
    values = sum(len(change.value) for change in changes if isinstance(change, Put))
    return sum(len(test.key) for test in tests) + sum(len(change.key) for change in changes) + values


def checked_key(key: str) -> str:
    """Give ``key`` back; raise ValueError where no store can have it."""
    if not (0 < len(key) <= LONGEST_KEY and checked_prefix(key)):
        raise ValueError(f"not 1 to {LONGEST_KEY} printable ASCII characters without blanks: {key[:LONGEST_KEY]!a}")
    return key


def checked_prefix(prefix: str) -> str:
    """Give ``prefix`` back; raise ValueError where no key can begin with it."""
    if not (prefix.isascii() and (not prefix or prefix.isprintable()) and " " not in prefix and len(prefix) <= LONGEST_KEY):
        raise ValueError(f"not printable ASCII characters without blanks: {prefix[:LONGEST_KEY]!a}")
    return prefix
