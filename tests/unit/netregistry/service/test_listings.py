"""Lists that are read in parts are kept as long as there is room for them, and the one that nobody has read on for longest goes first."""

from __future__ import annotations

import pytest

from netregistry.refusal import Refused
from netregistry.service import listings
from netregistry.service.listings import Listings, Rows


class World:
    def __init__(self) -> None:
        self.time, self.names = 1000.0, 0
        self.listings = Listings(lambda: self.time, self.name)

    def name(self) -> str:
        self.names += 1
        return f"list{self.names}"

    def begin(self, rows: int, whose: tuple[str, str] = ("operator", "root")) -> str:
        keys = [f"k{number}" for number in range(rows)]
        return self.listings.first("nics", "first:1", Rows(keys, [1] * rows, keys), 10, whose).cursor

    def read_on(self, cursor: str) -> str:
        return self.listings.more("nics", cursor, 10).cursor

    def gone(self, cursor: str) -> bool:
        try:
            self.read_on(cursor)
        except Refused as refused:
            assert refused.kind == "compacted"
            return True
        return False


def test_many_read_long_lists_at_once() -> None:
    """A cluster has more than sixteen programs that list its NICs."""
    world = World()
    cursors = [world.begin(100) for _ in range(200)]
    for _ in range(9):
        cursors = [world.read_on(cursor) for cursor in cursors]
    assert cursors == [""] * 200


def test_what_is_kept_has_a_bound_by_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "KEPT", 1000)
    world = World()
    first, second = world.begin(400), world.begin(400)
    assert not world.gone(first), "read last, so it goes last"
    world.begin(400)
    assert world.gone(second) and not world.gone(first)
    short = [world.begin(11) for _ in range(100)]
    assert sum(not world.gone(cursor) for cursor in short) == 1000 // (11 + listings.OVERHEAD), "lists without rows take something, too"
    large = world.begin(5000)
    assert not world.gone(large), "the latest one can be read, however long it is"


def test_nobody_throws_away_what_others_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node begins lists without end: its own go, and not those of whom it has more than."""
    monkeypatch.setattr(listings, "KEPT", 1000)
    world = World()
    lists = [world.begin(200, whose) for whose in (("operator", "ann"), ("importer", "gnt"))]
    for _ in range(100):
        last = world.begin(100, ("node", "liar"))
    assert not any(world.gone(cursor) for cursor in lists) and not world.gone(last)
    assert world.listings._rows == sum(world.listings._held.values()) <= 1000


def test_what_nobody_reads_on_goes() -> None:
    world = World()
    cursor = world.begin(100)
    world.time += listings.SECONDS
    cursor = world.read_on(cursor)
    world.time += listings.SECONDS + 1
    assert world.gone(cursor)
    world.begin(100)
    assert len(world.listings._lists) == 1
