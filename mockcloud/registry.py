"""Run a real registry among the simulated nodes: its core, streams and leader by the virtual clock, its store a file or memory."""

from __future__ import annotations

import os
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from mockcloud.replaced.process import Lines
from mockcloud.replaced.transport import Client, Wire
from netregistry.model.history import Identity
from netregistry.service.identity import ORIGIN
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry
from netregistry.service.streams import PARTS
from netregistry.stores.sqlite import SqliteStore
from runtime import membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from mockcloud.replaced.scheduler import NodeLoop, Scheduler
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
        self.wire = Wire(Random(scheduler.chance.random()))
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

    def join(self, uuid: str, name: str, paths: Paths) -> dict[str, Any]:
        """Let a simulated node join: the registry knows it, and it knows itself. Raises Problem."""
        body = {"uuid": uuid, "name": name, "kind": "virtual"}
        found: dict[str, Any] = self.client("node", uuid).change("POST", "nodes", body).body
        self.remember(uuid, name, paths)
        return found

    def remember(self, uuid: str, name: str, paths: Paths) -> None:
        """Let a node that has joined know itself."""
        membership.write(paths, membership.Membership(uuid, name))
