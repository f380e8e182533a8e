"""Keep the locks of one simulated node in memory: no file is locked, and who lets one go is told of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from runtime.locks import UUID, Locks, number

if TYPE_CHECKING:
    from runtime.folder import Folder
    from runtime.locks import Gates, Lock


class Table:
    """The locks of a node: who has which. ``closed`` is told of each of a NIC that is let go, by its number."""

    def __init__(self, closed: Callable[[int], None]) -> None:
        self.closed = closed
        self.holders: dict[tuple[str, int], object] = {}

    def __call__(
        self,
        folder: Folder,
        deadline: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        proc: str,
        gates: Gates | None,
        kept: Iterable[str],
    ) -> Locks:
        """Make the locks of one call: a runtime.locks.Locking."""
        return MemoryLocks(self, folder, deadline, clock, sleep, proc, gates, kept)

    def hold(self, uuid: str) -> Lock:
        """Be a hook that is at work on a NIC, until the lock is closed."""
        lock = MemoryLock(self, UUID, number(uuid))
        if not lock.taken():
            raise RuntimeError(f"somebody is at work on {uuid} already")
        return lock


class MemoryLock:
    """One lock, open."""

    def __init__(self, table: Table, which: str, file: int) -> None:
        self._table, self._place = table, (which, file)
        self._open = True

    def taken(self, shared: bool = False) -> bool:
        holder = self._table.holders.get(self._place)
        if holder is None and not shared:
            self._table.holders[self._place] = self
        return holder is None or holder is self

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._table.holders.get(self._place) is self:
            del self._table.holders[self._place]
        if self._place[0] == UUID:
            self._table.closed(self._place[1])


class MemoryLocks(Locks):
    """The locks that one call holds."""

    def __init__(
        self,
        table: Table,
        folder: Folder,
        deadline: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        proc: str,
        gates: Gates | None,
        kept: Iterable[str],
    ) -> None:
        super().__init__(folder, deadline, clock, sleep, proc, gates, kept)
        self._table = table

    def _opened(self, which: str, file: int) -> Lock:
        return MemoryLock(self._table, which, file)

    def _holders(self, which: str, file: int) -> Iterator[str]:
        if (which, file) in self._table.holders:
            yield "another"
