"""Each engine of a store, as the tests of all of them get it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netregistry.stores.base import Store
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.sqlite import SqliteStore
from tests.support.etcd import Cluster
from tests.support.netns import wait_until

ENGINES = ("sqlite", "etcd", "etcd-three")


class Engine(ABC):
    """A store that can be closed and opened again, and whose time the test passes. ``second``: of a lease, in the test's time."""

    store: Store
    second = 1.0

    @abstractmethod
    def reopen(self) -> Store:
        """End the engine in an orderly way, and start it again."""

    @abstractmethod
    def passes(self, seconds: float, until: Callable[[], bool] = lambda: True) -> None:
        """Let time pass, and the engine do what is due by then: ``until`` says that it is done."""

    @abstractmethod
    def fresh(self) -> Store:
        """Give an empty store."""


class SqliteEngine(Engine):
    """SQLite's, by a clock that is turned."""

    def __init__(self, path: Path) -> None:
        self._path, self._time, self._made = path, 1000.0, 0
        self.store = SqliteStore.create(str(path), "first", self._now)

    def _now(self) -> float:
        return self._time

    def reopen(self) -> Store:
        self.store.close()
        self.store = SqliteStore(str(self._path), self._now)
        return self.store

    def passes(self, seconds: float, until: Callable[[], bool] = lambda: True) -> None:
        self._time += seconds
        assert isinstance(self.store, SqliteStore)
        self.store.tick()
        assert until()

    def fresh(self) -> Store:
        self._made += 1
        return SqliteStore.create(f"{self._path}.{self._made}", "first")


class EtcdEngine(Engine):
    """Etcd's, whose leases have a time that nobody turns."""

    second = 0.5
    LATE = 10.0  #: seconds that a lease may end later on a machine that is busy

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.store = self.fresh()

    def reopen(self) -> Store:
        self.store.close()
        for member in self._cluster.members:
            if member.process is not None:
                member.process.terminate()
                member.process.wait(30)
        self._cluster.start()
        self.store = EtcdStore(self._cluster.place)
        return self.store

    def passes(self, seconds: float, until: Callable[[], bool] = lambda: True) -> None:
        end = time.monotonic() + seconds * self.second
        wait_until(lambda: time.monotonic() >= end and until(), seconds * self.second + self.LATE)

    def fresh(self) -> Store:
        self._cluster.clear()
        return EtcdStore.create(self._cluster.place, "first")


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Etcds that run as long as the tests; started when the first one needs them."""
    folder = tmp_path_factory.mktemp("etcd")
    made = {name: Cluster(folder / name, members) for name, members in (("etcd", 1), ("etcd-three", 3))}
    yield made
    for cluster in made.values():
        cluster.stop()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made: Engine
    if request.param == "sqlite":
        made = SqliteEngine(tmp_path / "registry.sqlite")
    else:
        cluster: Cluster = request.getfixturevalue("clusters")[request.param]
        if cluster.members[0].process is None:
            cluster.folder.mkdir()
            cluster.start()
        made = EtcdEngine(cluster)
    yield made
    made.store.close()


@pytest.fixture
def store(engine: Engine) -> Store:
    return engine.store


@pytest.fixture
def fresh(engine: Engine) -> Callable[[], Store]:
    """Give one empty store after the other."""
    return engine.fresh
