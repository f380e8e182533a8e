"""Watch a SqliteStore of the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.stores.base import Batch


class SqliteWatch:
    """As netregistry.stores.base.Watch says.

    ``since``: waits for commits from a revision on (netregistry.stores.sqlite.SqliteStore.since); ``wake``: lets all who wait look
    whether they have ended.
    """

    def __init__(self, since: Callable[[int, float, Callable[[], bool]], tuple[Batch, ...]], wake: Callable[[], None], start: int) -> None:
        self._since, self._wake, self._start, self._ended = since, wake, start, False
        self._found: tuple[Batch, ...] = ()

    def next(self, seconds: float) -> Batch:
        """Give the next commit, or a heartbeat; see netregistry.stores.base.Watch."""
        if not self._found:
            self._found = self._since(self._start, seconds, lambda: self._ended)
            self._start = self._found[-1].revision + 1
        first, *rest = self._found
        self._found = tuple(rest)
        return first

    def close(self) -> None:
        """End it; see netregistry.stores.base.Watch."""
        self._ended = True
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
