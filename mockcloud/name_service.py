"""Publish the names of a mock cloud's underlay at simulated name servers, by the virtual clock: the publisher that a service runs, without
its threads.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from mockcloud.name_server import MockNameServer
from netagent.dispatcher import tell
from netregistry.service.naming import Naming
from netregistry.zone.publisher import Publisher
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mockcloud.replaced.scheduler import NodeLoop
    from netcommon.log import Log
    from netregistry.service.registry import Registry
    from netregistry.zone.publisher import Published

TICK, RETRY = 1.0, 1.0  #: seconds, as netregistry.service.publishing
SETTLES = 10.0  #: seconds, as netregistry.service.serve
ANSWER = 0.0005, 0.3  #: seconds until the registry notes what a server has: the least and the most


class NameService:
    """Hold the name servers of a cloud, which are there whoever publishes. ``now``: seconds since the epoch, by the registry's clock."""

    def __init__(self, number: int, chance: Random, now: Callable[[], float]) -> None:
        self.servers = {f"names{place + 1}": MockNameServer(f"names{place + 1}", self._seen) for place in range(number)}
        self._chance, self._now = chance, now
        self._had: dict[str, frozenset[str]] = {}  # the addresses that each server led to when it was changed last
        self._left: dict[str, float] = {}  # addresses to which a server leads no more, since when

    def led(self, address: str) -> float:
        """Give until when a name server has led to an address: infinity as long as one does, 0 where none ever has."""
        return inf if any(address in had for had in self._had.values()) else self._left.get(address, 0.0)

    def _seen(self, server: MockNameServer) -> None:
        before, now = self._had.get(server.name, frozenset[str]()), frozenset(server.names.values())
        self._left |= dict.fromkeys(before - now, self._now())
        self._had[server.name] = now

    def begin(self, registry: Registry, loop: NodeLoop, log: Log) -> None:
        """Publish what a service wants that has started, until its ``loop`` is closed."""
        servers = tuple(self.servers)
        naming, publisher = Naming(registry, servers, virtual=True), Publisher(servers, self.servers.__getitem__, loop.now)
        registry.add(naming)
        keeping = [_Keeping(server, naming, publisher, loop, log, self._chance) for server in servers]

        def wake() -> None:
            for each in keeping:
                loop.after(0.0, each.wake)

        def settle() -> None:
            loop.after(SETTLES, settle)
            naming.settle()

        naming.wake = wake
        loop.after(SETTLES, settle)
        for each in keeping:
            each.look()


class _Keeping:
    """Keep one server as the registry wants it: netregistry.service.publishing.Publishing, by a loop."""

    def __init__(self, server: str, naming: Naming, publisher: Publisher, loop: NodeLoop, log: Log, chance: Random) -> None:
        self._server, self._naming, self._publisher = server, naming, publisher
        self._loop, self._log, self._chance = loop, log, chance
        self._owed: list[Published] = []  # what a server has, of which the registry does not know yet
        self._busy, self._woken, self._failed = False, False, ""

    def wake(self) -> None:
        """Look now, or as soon as what is under way is done."""
        if self._busy:
            self._woken = True
        else:
            self._tried(self._bring)

    def look(self) -> None:
        """Look from time to time."""
        self._loop.after(TICK, self.look)
        self.wake()

    def _bring(self) -> None:
        wanted = self._naming.wanted()
        due = [wanted] if wanted is not None and self._publisher.due(self._server, wanted) else []
        for each in (*due, *self._naming.left(self._server)):  # zones that were the underlay's before are emptied
            found = self._publisher.bring(self._server, each)
            self._owed.append(found)
            if found.whole or found.changed:
                self._log.info(f"{self._server} has generation {found.generation}: {found.changed} names have changed")
        if self._owed:
            self._busy = True
            self._loop.after(self._chance.uniform(*ANSWER), partial(self._tried, self._note))

    def _note(self) -> None:
        while self._owed:
            self._naming.published(self._owed[0])
            del self._owed[0]
        self._busy = False
        self._again()

    def _again(self) -> None:
        if self._woken:
            self._woken = False
            self._loop.after(0.0, self.wake)

    def _tried(self, work: Callable[[], None]) -> None:
        """Do it; whatever it is that fails, the next look may do better."""
        try:
            work()
        except NetcommonError as error:
            if str(error) != self._failed:
                self._log.warning(f"names of the underlay are not published: {error}")
            self._failed = str(error)
        except Exception as error:
            tell(self._log, "names of the underlay are not published", error)
        else:
            self._failed = ""
            return
        self._busy = True
        self._loop.after(RETRY, self._over)

    def _over(self) -> None:
        self._busy = False
        self._again()
