"""Bring each server of a zone to what the registry wants; remember what each has, so that a change is one message.

What a server has is read whole when it is met for the first time, after anything went wrong (it was away, somebody else has changed the
zone, this process was killed), and once in a while. In between it is asked for the zone's mark every few seconds: one that has lost its
disk, or has come back from a snapshot, answers as if nothing were, and none would notice until a name moves. There is no thread here: who
calls has them. Several servers may be brought at once, each by one thread.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from netregistry.zone.plan import Entry, There, done, planned
from runtime.errors import TryAgain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netregistry.zone.mark import Mark
    from netregistry.zone.plan import Message, Wanted

ATTEMPTS = 4  #: times at which a zone that others are changing is read anew
READ = 3600.0  #: seconds from one reading of a whole zone to the next: somebody may have changed it by hand
LOOK = 10.0  #: seconds from one look at a zone's mark to the next


class Speaker(Protocol):
    """Speak with one server."""

    def read(self, zone: str) -> There:
        """Read a zone whole. Raises NetcommonError, in one line with the remedy."""

    def marked(self, zone: str) -> Mark | None:
        """Ask for a zone's mark alone; None for none, or none that is alone. Raises NetcommonError, as ``read``."""

    def send(self, zone: str, message: Message) -> bool:
        """Send an update; False: the zone's mark was another one, and nothing was done. Raises NetcommonError, as ``read``."""

    def close(self) -> None: ...


class Published(NamedTuple):
    """Say that a server has a zone at a generation: whether it was read whole, how many names changed, which cannot be published.

    ``others``: which records of others have gone; ``held``: how many names stay as they are for now, though they are wanted otherwise.
    """

    server: str
    zone: str
    generation: int
    changed: int = 0
    whole: bool = False
    refused: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    held: int = 0


class Known(NamedTuple):
    """Remember what a server has, and until when that is believed; by which ``wanted`` it came; when to look at its mark again.

    ``said``: what was said of it.
    """

    wanted: Wanted
    mark: Mark | None
    entries: dict[str, Entry]
    until: float
    look: float
    said: Published


class Publisher:
    """Keep a zone at ``servers``. ``speak``: opens a conversation with one; ``now``: seconds by a clock that nobody sets."""

    def __init__(self, servers: Sequence[str], speak: Callable[[str], Speaker], now: Callable[[], float]) -> None:
        self.servers = tuple(servers)
        self._speak, self._now = speak, now
        self._known: dict[tuple[str, str], Known] = {}  # by server and zone
        self._met: set[tuple[str, str, str]] = set()  # server, zone, epoch: it was at that epoch
        self._had: dict[tuple[str, str], Mark] = {}  # by server and zone: what was reached last
        self._lost: dict[tuple[str, str], Published] = {}
        self._closed = False

    def due(self, server: str, wanted: Wanted) -> bool:
        """Tell whether a server is to be brought to what is wanted; it takes no time."""
        known = self._known.get((server, wanted.zone))
        return known is None or min(known.until, known.look) <= self._now() or known.wanted != wanted

    def bring(self, server: str, wanted: Wanted) -> Published:
        """Bring a server to what is wanted. It takes the time of its answers.

        Raises NetcommonError in one line with the remedy; the server is read whole then before anything else is sent to it, or asked once
        more for its mark where it has not answered that.
        """
        known = self._known.get((server, wanted.zone))
        if known is not None and known.until <= self._now():
            known = None
        speaker = self._speak(server)
        try:
            if known is not None and known.wanted == wanted:
                if speaker.marked(wanted.zone) == known.mark:  # where that fails it is asked again
                    self._known[server, wanted.zone] = known._replace(look=self._now() + LOOK)
                    return known.said._replace(changed=0, others=())
                known = None
            self._known.pop((server, wanted.zone), None)
            whole = known is None
            for _ in range(ATTEMPTS):
                if known is None:
                    there, until = speaker.read(wanted.zone), self._now() + READ
                    self._compare(server, wanted, there.mark)
                else:
                    there, until = There(known.mark, known.entries), known.until
                found = self._brought(speaker, server, there, wanted, until)
                if found is not None:
                    return found._replace(whole=whole)
                known, whole = None, True
        finally:
            speaker.close()
        raise TryAgain(f"zone {wanted.zone} of DNS server {server} is changed by others all the time: only one service may publish it")

    def lost(self, server: str) -> tuple[Published, ...]:
        """Give which zones a server was found to have no more as far as it had them: with generation -1, until ``told`` of each."""
        return tuple(each for (whose, _zone), each in tuple(self._lost.items()) if whose == server)

    def told(self, lost: Published) -> None:
        """Forget what was lost: the registry has noted it."""
        self._lost.pop((lost.server, lost.zone), None)

    def close(self) -> None:
        """Let what is under way end before its next message; the next reading brings that server whole."""
        self._closed = True

    def _compare(self, server: str, wanted: Wanted, mark: Mark | None) -> None:
        """Note where a server has less than it had, or what another one has put there: nobody is to count on it until it is ours again."""
        had = self._had.get((server, wanted.zone))
        if had is None or had.epoch != wanted.epoch or wanted.former:  # in a zone of before there need be no mark
            return
        if mark is None or mark[:2] != had[:2] or mark.generation < had.generation:
            del self._had[server, wanted.zone]
            self._lost[server, wanted.zone] = Published(server, wanted.zone, -1)

    def _brought(self, speaker: Speaker, server: str, there: There, wanted: Wanted, until: float) -> Published | None:
        """Send what differs; None where the zone was not as it was believed to be."""
        met = server, wanted.zone, wanted.epoch
        plan = planned(server, there, wanted, met in self._met)
        entries, changed = dict(there.entries), 0
        for message in plan.messages:
            if self._closed:
                raise TryAgain(
                    f"zone {wanted.zone} of DNS server {server} is not brought to generation {wanted.generation}: this service ends"
                )
            if not speaker.send(wanted.zone, message):
                return None
            self._met.add(met)
            done(entries, message)
            changed += len(message.changes)
        self._met.add(met)
        mark = plan.messages[-1].after if plan.messages else there.mark
        if mark is not None:
            self._had[server, wanted.zone] = mark
        found = Published(server, wanted.zone, wanted.generation, changed, False, plan.refused, plan.others, plan.held)
        self._known[server, wanted.zone] = Known(wanted, mark, entries, until, self._now() + LOOK, found)
        return found
