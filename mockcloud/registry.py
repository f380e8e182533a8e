"""Run a real registry among the simulated nodes: its core, streams and leader by the virtual clock, its store a file or memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.name_service import NameService
from mockcloud.replaced.process import Lines
from mockcloud.replaced.transport import memory
from mockcloud.replaced.transport.memory import Wire
from mockcloud.replaced.transport.sockets import Sockets
from mockcloud.sysinfo import ANOTHER
from netagent.dispatcher import tell
from netregistry.client import Problem
from netregistry.model.history import Identity
from netregistry.service.identity import ORIGIN
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry
from netregistry.service.streams import PARTS
from netregistry.stores.files import bring_back
from netregistry.stores.sqlite import SqliteStore
from runtime import membership
from runtime.errors import HostRefused, NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mockcloud.replaced.scheduler import NodeLoop, Scheduler
    from netregistry.client import Asker
    from netregistry.service.registry import Part
    from netregistry.stores.base import Batch, Item
    from netregistry.view import View
    from runtime.paths import Paths

TICK = 1.0  #: seconds, as netregistry.service.serve
OPERATOR = Identity("operator", "root", ORIGIN)
MEMORY = ":memory:"


class Commands(NamedTuple):
    """Name programs, each with its arguments, that end a member of an etcd and start it again; none for members of our own."""

    lose: tuple[str, ...] = ()
    back: tuple[str, ...] = ()


class Reached(ABC):
    """A registry, as the nodes and the operator of a cloud reach it. ``wire``: the way of the nodes."""

    wire: Wire | Sockets

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds since the epoch, by its clock."""

    @abstractmethod
    def client(self, role: str = "operator", name: str = "root") -> Asker:
        """Give a client of the registry's, which waits for each answer."""

    @property
    def registry(self) -> Registry:
        """The registry that serves in this process. Raises HostRefused where it is in another one."""
        raise HostRefused("the registry of this mock cloud is a process of its own", "what is to happen to it is done to that process")

    @property
    def stopped(self) -> bool:
        """Tell whether a registry in this process does not serve now."""
        return False

    @abstractmethod
    def stop(self) -> None:
        """Stop the service of a registry in this process, or ask the other process nothing more."""

    def halt(self) -> None:
        """Stop the service, as a fault. Raises HostRefused where it is a process of others."""
        _ = self.registry

    def again(self) -> None:
        """Start the service again. Raises HostRefused where it is a process of others."""
        _ = self.registry

    def lose(self, members: int, frozen: bool, commands: Commands) -> None:
        """Lose so many members of the etcd that keeps it, ``frozen`` or killed, or what ``commands`` end. Raises HostRefused."""
        raise HostRefused("the registry of this mock cloud is kept in no etcd", "begin one with --registry etcd:3")

    def back(self) -> None:
        """Let what was lost come back. Raises HostRefused."""
        _ = self.registry

    def join(self, uuid: str, name: str, paths: Paths, cluster: str = "") -> dict[str, Any]:
        """Let a simulated node join: the registry knows it, and it knows itself. Raises Problem."""
        body = {"uuid": uuid, "name": name, "kind": "virtual", "cluster": cluster}
        with self.client("node", uuid) as asked:
            found: dict[str, Any] = asked.change("POST", "nodes", body).body
        self.remember(uuid, name, paths)
        return found

    def remember(self, uuid: str, name: str, paths: Paths) -> None:
        """Let a node that has joined know itself."""
        membership.write(paths, membership.Membership(uuid, name))

    def recognise(self, uuid: str, paths: Paths) -> None:
        """Raise HostRefused where the files of a node do not say who it is: its agent would ask for ever, or nobody."""
        with suppress(HostRefused):
            if (found := membership.read(paths)) is not None and found.uuid == uuid:
                return
        raise HostRefused(f"{paths.lib}/{membership.NAME} does not say which node this is", ANOTHER)


class MockRegistry(Reached):
    """Be a registry's service. ``path``: of its file, MEMORY for none; one that is there is gone on with.

    ``servers``: how many name servers have the names of an underlay.
    """

    wire: Wire

    def __init__(self, scheduler: Scheduler, note: Callable[[str], None], path: str = MEMORY, servers: int = 1) -> None:
        self._scheduler, self._path, self.servers = scheduler, path, servers
        self._log = Lines(note).make()
        self._chance = Random(scheduler.chance.random())
        self.heard: Callable[[MockRegistry], Part] | None = None  #: makes what hears each commit, for each service that starts
        self._ear: Part | None = None  # what that has made
        self.names: NameService | None = None  #: the name servers of an underlay's zone
        on_the_way = Random(scheduler.chance.random())
        self.wire = Wire(on_the_way, scheduler.loop())
        self.wire.fault = partial(tell, self._log)
        self.wire.loop.failed = self._fault
        self._loop: NodeLoop = scheduler.loop()
        if path == MEMORY or not os.path.exists(path):
            self._store = SqliteStore.create(path, f"{self._chance.getrandbits(32):08x}", self._loop.now)
        else:
            self._store = SqliteStore(path, self._loop.now)
            # where cloud.json is gone, is an older copy or could not be written, an earlier process would have drawn the same: the id of a
            # request that it has done is no other one's. Each process has changed the registry
            revision = self._store.list("", limit=1).revision
            for chance in (self._chance, on_the_way, scheduler.chance):
                chance.seed(f"{chance.random()} {revision}")
        self._serve()

    def _fault(self, error: Exception) -> None:
        """Log an error of the registry's own code, and go on, as its service does."""
        self.wire.fault("what is due is not done", error)

    def _serve(self) -> None:
        limits, loop = Limits(), self._loop
        loop.failed = self._fault
        token = lambda: f"{self._chance.getrandbits(128):032x}"  # noqa: E731 - one line
        made = Registry(self._store, "mock", self._log, limits, loop.wall, loop.now, token=token)
        self.wire.registry = made
        self._ear = self.heard(self) if self.heard is not None else None
        made.add(self)
        if made.local.view.underlay is not None or self.names is not None:
            self._publish(made)

        def signs_of_life() -> None:
            made.streams.beat(made.local.view, made.streams.due(loop.now(), limits.beat))

        self._every(TICK, made.tick)
        self._every(limits.beat / PARTS, partial(made.keep, PARTS, 2 * limits.beat))
        self._every(limits.beat / PARTS, signs_of_life)
        self._every(limits.beat, made.sift)

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        self._loop.after(seconds, partial(self._every, seconds, work))
        try:
            work()
        except NetcommonError as error:  # the disk is full, say: it is done later, also where this is the first time
            self._fault(error)

    def publish(self) -> None:
        """Have the names of the underlay published, once for all."""
        if self.names is None:
            self._publish(self.registry)

    def _publish(self, made: Registry) -> None:
        if self.names is None:
            self.names = NameService(self.servers, Random(self._chance.random()), lambda: self.now)
        self.names.begin(made, self._loop, self._log)

    @property
    def registry(self) -> Registry:
        """The registry that serves now. Raises RuntimeError while it is stopped."""
        if self.wire.registry is None:
            raise RuntimeError("the registry is stopped")
        return self.wire.registry

    def listen(self, make: Callable[[MockRegistry], Part] | None) -> None:
        """Let what ``make`` makes hear each commit from now on, and another one those of each service that is started later; None: nobody.

        Who has heard them before hears no more.
        """
        self.heard, self._ear = make, make(self) if make is not None else None

    def hear(self, view: View, batch: Batch | None) -> None:
        """Tell who listens of a commit: a service keeps for good whom it tells."""
        if self._ear is not None:
            self._ear.hear(view, batch)

    def items(self) -> Iterable[Item]:
        """Give all that is stored, as it is."""
        return self._store.list("").items

    @property
    def stopped(self) -> bool:
        return self.wire.registry is None

    @property
    def now(self) -> float:
        """Seconds since the epoch, by the virtual clock."""
        return self._loop.wall()

    def client(self, role: str = "operator", name: str = "root") -> memory.Client:
        """Make a client of the registry's, which is answered at once."""
        return memory.Client(self.wire, Identity(role, name, ORIGIN), self._loop.wall)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Stop the service; its file stays."""
        registry, self.wire.registry = self.registry, None
        self._loop.close()
        registry.close()

    def halt(self) -> None:
        """Stop the service, where it is not stopped."""
        if not self.stopped:
            self.stop()

    def again(self) -> None:
        """Start the service again, on its file, where it is stopped."""
        if not self.stopped:
            return
        self._loop = self._scheduler.loop()
        self._store = SqliteStore(self._path, self._loop.now)
        self._serve()

    def backup(self, path: str) -> None:
        """Copy the registry, as it is, to a file, in the place of an earlier copy. Raises HostRefused, Unavailable."""
        aside = f"{path}.new"
        Path(aside).unlink(missing_ok=True)
        self._store.backup(aside)
        os.replace(aside, path)

    def restore(self, path: str) -> None:
        """Put a copy in the place of the registry, which begins a new epoch. Raises HostRefused, Damaged."""
        served = self.wire.registry is not None
        if served:
            self.stop()
        try:
            bring_back(path, self._path)
        except NetcommonError:
            if served:
                self.again()
            raise
        with SqliteStore(self._path, self._loop.now) as store:
            before = store.epoch
            while store.epoch == before:  # drawn from the seed, as everything else
                store.note(epoch=f"{self._chance.getrandbits(32):08x}")
        self.again()


def once(client: Asker, place: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Have something made; give it, None where it may be there already."""
    try:
        found: dict[str, Any] = client.change("POST", place, body).body
    except Problem as refused:
        if refused.kind not in ("exists", "taken"):
            raise
        return None
    return found
