"""Stand for a node's sources of events: what a simulated host tells is read in the loop of its node."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from netagent.events import LockClosed
from netagent.sources.simulated import SimulatedFlows, SimulatedKernel, SimulatedNft, SimulatedOvs
from netagent.sources.switches import Connection, Database, Dial
from netcommon.host.simulated.events import Telling

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from random import Random

    from mockcloud.replaced.scheduler import NodeLoop
    from netagent.events import Event
    from netagent.sources.base import Source, Warn
    from netcommon.host.simulated import events as simulated
    from netcommon.host.simulated.host import MemoryHost

Simulated = TypeVar("Simulated", SimulatedKernel, SimulatedNft, SimulatedOvs, SimulatedFlows)


class Told:
    """A source of events that somebody in this process tells."""

    def __init__(self, loop: NodeLoop) -> None:
        self._loop, self.descriptor = loop, loop.scheduler.descriptor()
        self._waiting: list[Event] = []

    def tell(self, event: Event) -> None:
        self._waiting.append(event)
        self._loop.readable(self.descriptor)

    def read(self) -> list[Event]:
        found, self._waiting = self._waiting, []
        return found

    def close(self) -> None:
        self._waiting = []


class Harm(NamedTuple):
    """Say what becomes of events on their way to the agent: shares of those that are lost, told twice, or told ``late`` seconds later."""

    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    seconds: float = 2.0


class Sources:
    """All that one node's agent hears. ``harm``: what becomes of it on the way; None: nothing."""

    def __init__(self, host: MemoryHost, loop: NodeLoop, chance: Random) -> None:
        self._host, self._loop, self._chance = host, loop, chance
        self.harm: Harm | None = None
        self._tell = Telling()  #: what the agent hears: all that the host tells, but for the harm
        host.tell.hearers.append(self._hear)
        self._closed = Told(loop)
        self.dial = Dial(self._database, self._bridge)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Hear nothing of what is done meanwhile: it is done before anybody listens."""
        self._host.tell.hearers.remove(self._hear)
        try:
            yield
        finally:
            self._host.tell.hearers.append(self._hear)

    def lock_closed(self, number: int) -> None:
        """Tell that the lock of a NIC was let go."""
        self._closed.tell(LockClosed(number))

    def _hear(self, event: simulated.Event) -> None:
        harm, chance = self.harm, self._chance.random
        if harm is None:
            self._pass(event)
        elif chance() >= harm.lost:
            for _ in range(1 + (chance() < harm.repeated)):
                if chance() < harm.late:
                    self._loop.after(self._chance.uniform(0.0, harm.seconds), partial(self._pass, event))
                else:
                    self._pass(event)

    def _pass(self, event: simulated.Event) -> None:
        for hear in self._tell.hearers:
            hear(event)

    def __call__(self, own: Container[int], warn: Warn) -> list[Source]:
        """Subscribe; see netagent.sources.base.Sources."""
        tell = self._tell
        return [self._heard(partial(SimulatedKernel, tell)), self._heard(partial(SimulatedNft, tell, own=own)), self._closed]

    def _database(self, _path: str, _clock: Callable[[], float]) -> Database:
        return self._heard(lambda heard: SimulatedOvs(self._tell, self._host.switch, heard))

    def _bridge(self, _path: str, name: str, names: Callable[[int], Iterable[str]], _clock: Callable[[], float]) -> Connection:
        return self._heard(lambda heard: SimulatedFlows(self._tell, self._host.switch, name, names, heard))

    def _heard(self, make: Callable[[Callable[[], None]], Simulated]) -> Simulated:
        """Make a source that is read in this node's loop."""
        descriptor = self._loop.scheduler.descriptor()
        made = make(lambda: self._loop.readable(descriptor))
        made.descriptor = descriptor
        return made
