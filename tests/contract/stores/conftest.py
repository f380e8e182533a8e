"""Each engine of a store, as the tests of all of them get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netregistry.stores.base import Store
from netregistry.stores.sqlite import SqliteStore


class Engine:
    """A store that can be closed and opened again, and whose time the test passes."""

    def __init__(self, path: Path) -> None:
        self._path, self._time = path, 1000.0
        self.store: Store = SqliteStore.create(str(path), "first", self._now)

    def _now(self) -> float:
        return self._time

    def reopen(self) -> Store:
        """End the engine in an orderly way, and start it again."""
        self.store.close()
        self.store = SqliteStore(str(self._path), self._now)
        return self.store

    def passes(self, seconds: float) -> None:
        """Let time pass, and the engine do what is due by then."""
        self._time += seconds
        assert isinstance(self.store, SqliteStore)
        self.store.tick()


@pytest.fixture(params=["sqlite"])
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path / "registry.sqlite")
    yield made
    made.store.close()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Store]:
    """Give one empty store after the other."""
    numbers = iter(range(1 << 30))
    return lambda: SqliteStore.create(str(tmp_path / f"{next(numbers)}.sqlite"), "first")
