"""Keep a zone's servers as the registry wants them, each in its own time: one that is silent holds up neither others nor the registry.

What is wanted is asked for, and what was done is told, in the registry's turn; speaking with a server is done by a thread beside it, which
nobody waits for when the service ends: to be killed at any moment is nothing that a zone would suffer from.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from netcommon.dns.names import NoZone
from netregistry.zone.publisher import Published
from runtime.errors import HostRefused, NetcommonError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from netregistry.service.registry import Log
    from netregistry.zone.plan import Wanted
    from netregistry.zone.publisher import Publisher

    Turn = Callable[..., Awaitable[Any]]

T = TypeVar("T")
TICK = 1.0  #: seconds from one look to the next, if nobody wakes it
RETRY = 1.0  #: seconds after something failed, whoever wakes it: a server that is back is to be found soon
PATIENT = 10.0  #: seconds after a zone of before could not be emptied: its server may refuse it for good
LONGEST = 120.0  #: seconds from one look at a zone that is refused to the next, at most: each look may read all of it
SHOWN = 3  #: names that cannot be published, each in a line of its own


class Publishing:
    """Publish by a publisher what ``wanted`` gives: None for nothing. ``published``: told what was done; both in the registry's turn.

    ``left``: gives what zones that are published no more shall hold at a server, which is nothing in the end; in the registry's turn, too.
    """

    def __init__(
        self,
        publisher: Publisher,
        wanted: Callable[[], Wanted | None],
        published: Callable[[Published], None],
        log: Log,
        left: Callable[[str], tuple[Wanted, ...]] = lambda _server: (),
    ) -> None:
        self._publisher, self._wanted, self._published, self._log, self._left = publisher, wanted, published, log, left
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: list[asyncio.Event] = []

    def begin(self, turn: Turn) -> list[asyncio.Task[None]]:
        """Begin, in the running loop; give the tasks, which are to be cancelled at the end. ``turn``: of the service (Service.turn)."""
        self._loop = asyncio.get_running_loop()
        self._woken = [asyncio.Event() for _ in self._publisher.servers]
        pairs = zip(self._publisher.servers, self._woken, strict=True)
        keeping = [asyncio.create_task(self._keep(server, woken, turn)) for server, woken in pairs]
        return keeping + [asyncio.create_task(self._empty(server, turn)) for server in self._publisher.servers]

    def wake(self) -> None:
        """Let all servers be looked at now; for any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def stop(self) -> None:
        """Begin nothing more."""
        self._publisher.close()

    def _wake(self) -> None:
        for woken in self._woken:
            woken.set()

    async def _keep(self, server: str, woken: asyncio.Event, turn: Turn) -> None:
        owed: list[Published] = []
        failed, refused, pause = "", tuple[str, ...](), RETRY
        while True:
            woken.clear()
            error, stays = "", False
            wanted: Wanted | None = None
            try:
                wanted = await turn(self._wanted, own=True)
                if wanted is not None:
                    await self._note_lost(server, turn)  # where it could not be brought back, too
                if wanted is not None and self._publisher.due(server, wanted):
                    owed = [await aside(partial(self._publisher.bring, server, wanted))]
                    await self._note_lost(server, turn)
                if owed:
                    await turn(self._published, owed[0], own=True)
            except NetcommonError as why:
                error, stays = str(why), isinstance(why, HostRefused)
            except Exception as why:  # whatever it is, the next look may do better
                error = repr(why)
            if error:
                if error != failed:
                    self._log.warning(f"names of the underlay are not published: {error}")
                pause = longer(pause) if stays and failed else RETRY
                failed = error
                if not stays or wanted is None:
                    await asyncio.sleep(RETRY)
                elif await self._other(wanted, pause, turn):
                    failed = ""  # of this one nothing was said yet
                continue
            pause = RETRY
            if owed:
                self._say(owed[0], failed, refused)
                failed, refused, owed = "", owed[0].refused, []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), TICK)

    async def _note_lost(self, server: str, turn: Turn) -> None:
        """Let nothing that is retired go any more because of what a server had, and has lost."""
        for lost in self._publisher.lost(server):
            await turn(self._published, lost, own=True)
            self._publisher.told(lost)

    async def _other(self, refused: Wanted, seconds: float, turn: Turn) -> bool:
        """Wait until something else is wanted than a server has refused, which other names are not, or so many seconds are over.

        Somebody else's zone, or another copy's, is so for long: to read it whole each second takes much of two machines.
        """
        ends = asyncio.get_running_loop().time() + seconds
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, TICK))
            with contextlib.suppress(Exception):  # of the registry: the next look says it
                now: Wanted | None = await turn(self._wanted, own=True)
                if now is None or now.about != refused.about:
                    return True
        return False

    async def _empty(self, server: str, turn: Turn) -> None:
        """Bring a server to have no names in zones of before. It has its own time: what is published now does not wait for it."""
        said: dict[str, str] = {}
        pause = PATIENT
        while True:
            failed: dict[str, str] = {}
            with contextlib.suppress(Exception):  # of the registry: who publishes says it
                for wanted in await turn(partial(self._left, server), own=True):
                    if error := await self._emptied(server, wanted, turn):
                        failed[wanted.zone] = error
                        if said.get(wanted.zone) != error:
                            self._log.warning(f"zone {wanted.zone}, which was the underlay's, is not emptied: {error}")
            pause = longer(pause) if failed and failed == said else PATIENT
            said = failed
            await asyncio.sleep(pause if failed else TICK)

    async def _emptied(self, server: str, wanted: Wanted, turn: Turn) -> str:
        """Bring a zone of before to what it shall hold; say in one line why that cannot be, "" where it is done."""
        try:
            try:
                found = await aside(partial(self._publisher.bring, server, wanted))
            except NoZone:
                found = Published(server, wanted.zone, wanted.generation)
            await turn(self._published, found, own=True)
        except NetcommonError as why:
            return str(why)
        except Exception as why:  # as for what is published now
            return repr(why)
        if not wanted.names and not found.held:
            self._log.info(f"DNS server {server} has no names any more in zone {wanted.zone}, which was the underlay's")
        return ""

    def _say(self, found: Published, failed: str, refused: tuple[str, ...]) -> None:
        if failed or (found.whole and (found.changed or found.held)):
            how = f"{found.changed} names were not as they should be" if found.whole else f"{found.changed} names have changed"
            how += f", and {found.held} stay until nodes have said what they have, a minute at most" if found.held else ""
            self._log.info(f"DNS server {found.server} has the underlay's names of generation {found.generation}: {how}")
        if found.others:
            more = f", and such at {len(found.others) - 1} names more" if len(found.others) > 1 else ""
            self._log.warning(f"others had put {found.others[0]}{more}: they are gone from DNS server {found.server}")
        if found.refused != refused:
            for line in found.refused[:SHOWN]:
                self._log.warning(line)
            if len(found.refused) > SHOWN:
                self._log.warning(f"{len(found.refused) - SHOWN} more names are not published, for such reasons")


def longer(pause: float) -> float:
    """Give the pause behind another one, after which nothing was better."""
    return min(2 * pause, LONGEST)


async def aside(work: Callable[[], T]) -> T:
    """Do something that takes long in a thread of its own, which ends with the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(how: Callable[[Any], None], what: object) -> None:
        if not done.done():
            how(what)

    def run() -> None:
        try:
            told: tuple[Callable[[Any], None], object] = (done.set_result, work())
        except Exception as error:
            told = (done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=run, name="zone", daemon=True).start()
    return await done
