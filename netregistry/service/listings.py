"""Keep lists that are read in parts as they were at one revision: for a while, and so many at once as there is room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEPT = 2_000_000  #: rows of all lists together; each takes 24 bytes, for what it lists is the view's
OVERHEAD = 50  #: rows that take as much as a list has beside its own
SECONDS = 120.0  #: since the last part was read


class Row(NamedTuple):
    """One object of a list, as it was."""

    key: str
    revision: int
    value: Any


class Rows(NamedTuple):
    """Objects of a list, as they were: a column for each of what a Row has, of equal length."""

    keys: Sequence[str]
    revisions: Sequence[int]
    values: Sequence[Any]

    def part(self, begin: int, end: int) -> tuple[Row, ...]:
        """Give some of the rows."""
        return tuple(map(Row, self.keys[begin:end], self.revisions[begin:end], self.values[begin:end]))


class Part(NamedTuple):
    """A part of a list. ``cursor``: of the next one; "": there is none."""

    revision: str
    rows: tuple[Row, ...]
    cursor: str


class _List(NamedTuple):
    what: str
    revision: str
    rows: Rows
    until: float
    whose: tuple[str, str]


class Listings:
    """Lists of which more was asked for. ``now``: seconds; ``token``: a new name for a list, which nobody can guess."""

    def __init__(self, now: Callable[[], float], token: Callable[[], str]) -> None:
        self._now, self._token = now, token
        self._lists: dict[str, _List] = {}  # the one read longest ago first
        self._held: dict[tuple[str, str], int] = {}  # whose they are -> their rows, with OVERHEAD
        self._rows = 0

    def first(self, what: str, revision: str, rows: Rows, limit: int, whose: tuple[str, str] = ("", "")) -> Part:
        """Give the first part of a list. ``what``: tells lists apart that were asked for otherwise."""
        if len(rows.keys) <= limit:
            return Part(revision, rows.part(0, limit), "")
        name = self._token()
        self._keep(name, _List(what, revision, rows, 0.0, whose))
        return Part(revision, rows.part(0, limit), f"{name}.{limit}")

    def more(self, what: str, cursor: str, limit: int) -> Part:
        """Give a further part. Raises Refused where the list is not kept any more, or was another one."""
        name, _, place = cursor.partition(".")
        found = self._lists.get(name)
        if found is None or found.until < self._now() or not (place.isdecimal() and place.isascii() and len(place) <= 9):
            raise Refused("compacted", "the list that the cursor is of is not kept any more: list anew, without a cursor", field="cursor")
        if found.what != what:
            raise Refused("invalid", "the cursor is of another list: give the filters that it was begun with", field="cursor")
        begin = int(place)
        end = begin + limit
        self._keep(name, found)
        return Part(found.revision, found.rows.part(begin, end), f"{name}.{end}" if end < len(found.rows.keys) else "")

    def _keep(self, name: str, kept: _List) -> None:
        now = self._now()
        self._drop(name)
        while self._lists:
            oldest, each = next(iter(self._lists.items()))
            if each.until >= now:
                break
            self._drop(oldest)
        size = len(kept.rows.keys) + OVERHEAD
        while self._lists and self._rows + size > KEPT:  # of whoever has the most: nobody throws away what others read
            most = max(self._held, key=lambda whose: self._held[whose] + (size if whose == kept.whose else 0))
            self._drop(next(other for other, each in self._lists.items() if each.whose == most))
        self._lists[name] = kept._replace(until=now + SECONDS)
        self._held[kept.whose] = self._held.get(kept.whose, 0) + size
        self._rows += size

    def _drop(self, name: str) -> None:
        gone = self._lists.pop(name, None)
        if gone is not None:
            size = len(gone.rows.keys) + OVERHEAD
            self._rows -= size
            self._held[gone.whose] -= size
            if not self._held[gone.whose]:
                del self._held[gone.whose]
