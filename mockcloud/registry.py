"""Run a real registry among the simulated nodes: its core, streams and leader by the virtual clock, its store a file or memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mockcloud.replaced.process import Lines
from mockcloud.replaced.transport import Client, Wire
from netregistry.model.history import Identity
from netregistry.service.identity import ORIGIN
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry
from netregistry.service.streams import PARTS
from netregistry.stores.files import bring_back
from netregistry.stores.sqlite import SqliteStore
from runtime import membership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mockcloud.replaced.scheduler import NodeLoop, Scheduler
    from netregistry.service.registry import Part
    from netregistry.stores.base import Item
    from runtime.paths import Paths

TICK = 1.0  #: seconds, as netregistry.service.serve
OPERATOR = Identity("operator", "root", ORIGIN)
MEMORY = ":memory:"


class MockRegistry:
    """A registry's service. ``path``: of its file, MEMORY for none; one that is there is gone on with."""

    def __init__(self, scheduler: Scheduler, note: Callable[[str], None], path: str = MEMORY) -> None:
        self._scheduler, self._path = scheduler, path
        self._log = Lines(note).make()
        self._chance = Random(scheduler.chance.random())
        self.heard: Callable[[MockRegistry], Part] | None = None  #: makes what hears each commit, for each service that starts
        self.wire = Wire(Random(scheduler.chance.random()), scheduler.loop())
        self._loop: NodeLoop = scheduler.loop()
        if path == MEMORY or not os.path.exists(path):
            self._store = SqliteStore.create(path, f"{self._chance.getrandbits(32):08x}", self._loop.now)
        else:
            self._store = SqliteStore(path, self._loop.now)
        self._serve()

    def _serve(self) -> None:
        limits, loop = Limits(), self._loop
        token = lambda: f"{self._chance.getrandbits(128):032x}"  # noqa: E731 - one line
        made = Registry(self._store, "mock", self._log, limits, loop.wall, loop.now, token=token)
        self.wire.registry = made
        if self.heard is not None:
            made.add(self.heard(self))

        def signs_of_life() -> None:
            made.streams.beat(made.local.view, made.streams.due(loop.now(), limits.beat))

        self._every(TICK, made.tick)
        self._every(limits.beat / PARTS, partial(made.keep, PARTS, 2 * limits.beat))
        self._every(limits.beat / PARTS, signs_of_life)
        self._every(limits.beat, made.sift)

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        self._loop.after(seconds, partial(self._every, seconds, work))
        work()

    @property
    def registry(self) -> Registry:
        """The registry that serves now. Raises RuntimeError while it is stopped."""
        if self.wire.registry is None:
            raise RuntimeError("the registry is stopped")
        return self.wire.registry

    def listen(self, make: Callable[[MockRegistry], Part]) -> None:
        """Let what ``make`` makes hear each commit from now on, and another one those of each service that is started later."""
        self.heard = make
        self.registry.add(make(self))

    def items(self) -> Iterable[Item]:
        """Give all that is stored, as it is."""
        return self._store.list("").items

    @property
    def now(self) -> float:
        """Seconds since the epoch, by the virtual clock."""
        return self._loop.wall()

    def client(self, role: str = "operator", name: str = "root") -> Client:
        """Make a client of the registry's, which is answered at once."""
        return Client(self.wire, Identity(role, name, ORIGIN), self._loop.wall)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Stop the service; its file stays."""
        registry, self.wire.registry = self.registry, None
        self._loop.close()
        registry.close()

    def again(self) -> None:
        """Start the service again, on its file."""
        self._loop = self._scheduler.loop()
        self._store = SqliteStore(self._path, self._loop.now)
        self._serve()

    def backup(self, path: str) -> None:
        """Copy the registry, as it is, to a file, in the place of an earlier copy. Raises HostRefused, Unavailable."""
        Path(path).unlink(missing_ok=True)
        self._store.backup(path)

    def restore(self, path: str) -> None:
        """Put a copy in the place of the registry, which begins a new epoch. Raises HostRefused, Damaged."""
        if self.wire.registry is not None:
            self.stop()
        bring_back(path, self._path)
        with SqliteStore(self._path, self._loop.now) as store:
            store.note(epoch=f"{self._chance.getrandbits(32):08x}")  # drawn from the seed, as everything else
        self.again()

    def join(self, uuid: str, name: str, paths: Paths, cluster: str = "") -> dict[str, Any]:
        """Let a simulated node join: the registry knows it, and it knows itself. Raises Problem."""
        body = {"uuid": uuid, "name": name, "kind": "virtual", "cluster": cluster}
        found: dict[str, Any] = self.client("node", uuid).change("POST", "nodes", body).body
        self.remember(uuid, name, paths)
        return found

    def remember(self, uuid: str, name: str, paths: Paths) -> None:
        """Let a node that has joined know itself."""
        membership.write(paths, membership.Membership(uuid, name))
