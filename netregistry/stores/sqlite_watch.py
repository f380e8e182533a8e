"""Watch a SqliteStore of the same process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from netregistry.stores.base import Batch, Changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class SqliteWatch:
    """As netregistry.stores.base.Watch says.

    ``since``: waits for commits from a revision on (netregistry.stores.sqlite.SqliteStore.since); ``wake``: lets all who wait look
    whether they have ended.
    """

    def __init__(self, since: Callable[[int, float, Callable[[], bool]], tuple[Batch, ...]], wake: Callable[[], None], start: int) -> None:
        self._since, self._wake, self._start, self._ended = since, wake, start, False
        self._found: deque[Batch] = deque()

    def next(self, seconds: float) -> Batch:
        """Give the next commit, or a heartbeat; see netregistry.stores.base.Watch."""
        if not self._found:
            self._found.extend(self._since(self._start, seconds, lambda: self._ended))
            self._start = self._found[-1].revision + 1
        return self._found.popleft()

    def close(self) -> None:
        """End it; see netregistry.stores.base.Watch."""
        self._ended = True
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def batches(rows: Iterable[tuple[int, str, bytes | None]], last: int) -> tuple[Batch, ...]:
    """Give the commits of rows (revision, key, value), in their order; up to ``last`` there are no others."""
    found: dict[int, list[Changed]] = {}
    for revision, key, value in rows:
        found.setdefault(revision, []).append(Changed(key, value))
    made = tuple(Batch(revision, tuple(changes)) for revision, changes in found.items())
    return made if made and made[-1].revision == last else (*made, Batch(last, ()))


def behind(prefix: str) -> str:
    """Give a text that is greater than every key below ``prefix``: keys are ASCII."""
    return prefix + "\x7f"
