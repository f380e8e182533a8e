"""Keep what a list shows in the order in which people look for it: by name, web2 before web10.

A page of a list begins behind, or ends before, one place of that order, which is named by what stands there. So a page can be kept as a
bookmark, is never too old, and leaves nothing out that was there all the time, whatever comes and goes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from netregistry.stores.base import Batch
    from netregistry.view import View

DIGITS = 12  #: to which numbers in names are filled up, so that they compare
FEW = 2000  #: keys that are sorted when they are asked for
_NUMBER = re.compile(r"[0-9]+")

Entry = tuple[str, str]  #: by what something is sorted, and its key


class Place(NamedTuple):
    """Say where a page of a list begins or ends: UUID:NAME of what it comes after, or before; "" for either end."""

    after: str = ""
    before: str = ""


class Part(NamedTuple):
    """Hold what one page of a list shows. ``earlier``, ``later``: there is more before and behind it."""

    keys: tuple[str, ...]
    earlier: bool
    later: bool


def name_of(value: Any) -> str:
    """Give what people call a NIC, a network or a node."""
    found: str = getattr(value, "label", "") or value.name
    return found


def place_of(value: Any) -> str:
    """Give the place of an object in its list."""
    return f"{value.uuid}:{name_of(value)}"


def words(name: str) -> str:
    """Give the text by which a name is sorted."""
    return _NUMBER.sub(lambda found: found[0].lstrip("0").zfill(DIGITS), name.casefold())


class Order:
    """The objects of one kind by name; kept by ``hear`` as a view is."""

    def __init__(self, view: View, kind: str) -> None:
        self._kind = kind
        self._words: dict[str, str] = {}
        self._sorted: list[Entry] = []
        self.hear(view, None)

    def __len__(self) -> int:
        return len(self._sorted)

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""
        if batch is None:
            self._words = {key: words(name_of(value)) for key, value in view.all(self._kind).items()}
            self._sorted = sorted((text, key) for key, text in self._words.items())
            return
        for change in batch.changes:
            if keys.kind(change.key) == self._kind:
                self._put(change.key, view.get(change.key))

    def _put(self, key: str, value: Any) -> None:
        before, after = self._words.get(key), words(name_of(value)) if value is not None else None
        if before == after:
            return
        if before is not None:
            del self._sorted[bisect_left(self._sorted, (before, key))], self._words[key]
        if after is not None:
            self._words[key] = after
            insort(self._sorted, (after, key))

    def part(self, place: Place, limit: int, fits: Callable[[str], bool], among: Iterable[str] | None = None) -> Part:
        """Give what fits of one page. ``among``: no others than these keys, which are few."""
        entries = self._sorted if among is None else sorted((self._words[key], key) for key in among if key in self._words)
        if place.before:
            end = bisect_left(entries, self._entry(place.before))
            found = _first(reversed(range(end)), entries, fits, limit + 1)
            shown = found[:limit][::-1]
            behind = range(end, len(entries))
            return Part(_keys(entries, shown), len(found) > limit, bool(_first(behind, entries, fits, 1)))
        begin = bisect_right(entries, self._entry(place.after)) if place.after else 0
        found = _first(range(begin, len(entries)), entries, fits, limit + 1)
        return Part(_keys(entries, found[:limit]), bool(_first(reversed(range(begin)), entries, fits, 1)), len(found) > limit)

    def _entry(self, place: str) -> Entry:
        uuid, _, name = place.partition(":")
        return words(name), f"{self._kind}/{uuid}"


def _first(places: Iterable[int], entries: Sequence[Entry], fits: Callable[[str], bool], most: int) -> list[int]:
    """Give the first places, in the order in which they are given, whose entry fits."""
    found: list[int] = []
    for place in places:
        if fits(entries[place][1]):
            found.append(place)
            if len(found) == most:
                break
    return found


def _keys(entries: Sequence[Entry], places: Iterable[int]) -> tuple[str, ...]:
    return tuple(entries[place][1] for place in places)


class Orders:
    """The orders of lists that somebody has looked at: nobody pays for pages that are not asked for."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view
        self._made: dict[str, Order] = {}

    def of(self, kind: str) -> Order:
        """Give the order of a kind, which is kept from then on."""
        if kind not in self._made:
            self._made[kind] = Order(self._view(), kind)
        return self._made[kind]

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in."""
        for each in self._made.values():
            each.hear(view, batch)

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)
