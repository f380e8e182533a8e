"""Stand for a node's sources of events: what a simulated host tells is read in the loop of its node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from netagent.events import LockClosed
from netagent.sources.simulated import SimulatedFlows, SimulatedKernel, SimulatedNft, SimulatedOvs
from netagent.sources.switches import Connection, Database, Dial

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from mockcloud.replaced.scheduler import NodeLoop
    from netagent.events import Event
    from netagent.sources.base import Source, Warn
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


class Sources:
    """All that one node's agent hears."""

    def __init__(self, host: MemoryHost, loop: NodeLoop) -> None:
        self._host, self._loop = host, loop
        self._closed = Told(loop)
        self.dial = Dial(self._database, self._bridge)

    def lock_closed(self, number: int) -> None:
        """Tell that the lock of a NIC was let go."""
        self._closed.tell(LockClosed(number))

    def __call__(self, own: Container[int], warn: Warn) -> list[Source]:
        """Subscribe; see netagent.sources.base.Sources."""
        tell = self._host.tell
        return [self._heard(partial(SimulatedKernel, tell)), self._heard(partial(SimulatedNft, tell, own=own)), self._closed]

    def _database(self, _path: str, _clock: Callable[[], float]) -> Database:
        return self._heard(lambda heard: SimulatedOvs(self._host.tell, self._host.switch, heard))

    def _bridge(self, _path: str, name: str, names: Callable[[int], Iterable[str]], _clock: Callable[[], float]) -> Connection:
        return self._heard(lambda heard: SimulatedFlows(self._host.tell, self._host.switch, name, names, heard))

    def _heard(self, make: Callable[[Callable[[], None]], Simulated]) -> Simulated:
        """Make a source that is read in this node's loop."""
        descriptor = self._loop.scheduler.descriptor()
        made = make(lambda: self._loop.readable(descriptor))
        made.descriptor = descriptor
        return made
