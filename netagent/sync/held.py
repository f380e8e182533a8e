"""Say which of what the registry has told is held, and which is not: it does not lie on the node's disk, or a NIC is not set to it.

One entry for each thing that is not: the job that is left, why, and when it is tried again. Of what is not held of this node's own NICs the
registry is told, and people are by an alarm. What is not held of other NICs the stream would not tell again: as long as there is any of it,
what the stream has told does not count as known for the next start (``telling``), so that is told it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netagent.sync.jobs import KEEPING, NETWORK, NEVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from netagent.sync.jobs import Key
    from netagent.sync.messages import Doing

MOST = 1000  #: things that are kept to be tried again; of more than that all is told anew


class Owed(NamedTuple):
    """One thing that is not held. ``why``: "" where it but waits until a NIC stops.

    ``when``: the job is tried again by itself; never where what was asked is wrong.
    """

    job: Doing
    why: str
    when: float = NEVER


class Held:
    """Keep what is not held. ``now``, everywhere: monotonic seconds."""

    def __init__(self) -> None:
        self._owed: dict[Key, Owed] = {}
        self.lost = False  #: there was too much of it: when the disk takes anything again, all is to be told anew

    def owe(self, job: Doing, why: str, when: float = NEVER) -> None:
        """Note that something is not held."""
        if job.key not in self._owed and len(self._owed) >= MOST:
            self.lost = self.lost or when < NEVER
        else:
            self._owed[job.key] = Owed(job, why, when)

    def settled(self, key: Key) -> None:
        """Note that something is held, or that nothing of it is wanted any more."""
        self._owed.pop(key, None)

    def retain(self, wanted: Collection[Key]) -> None:
        """Forget what is not held of all other things: nothing of them is wanted any more."""
        self._owed = {key: owed for key, owed in self._owed.items() if key in wanted or not isinstance(owed.job, KEEPING)}

    def why(self, key: Key) -> str:
        """Say why something is not held; "" where it is, or waits until a NIC stops."""
        owed = self._owed.get(key)
        return "" if owed is None else owed.why

    def job(self, key: Key) -> Doing | None:
        """Give what is left to be done about something; None: nothing."""
        owed = self._owed.get(key)
        return None if owed is None else owed.job

    def due(self) -> float:
        """Give when anything is to be tried again."""
        return min((owed.when for owed in self._owed.values()), default=NEVER)

    def again(self, now: float) -> Iterator[Doing]:
        """Take the jobs that are to be tried again."""
        for key, owed in list(self._owed.items()):
            if owed.when <= now:
                self._owed[key] = owed._replace(when=NEVER)
                yield owed.job

    def all(self, waiting: bool = False) -> list[Doing]:
        """Give the jobs of all that is not held; ``waiting``: of what but waits until a NIC stops."""
        return [owed.job for owed in self._owed.values() if not (waiting and owed.why)]

    def refused(self, kind: str = "") -> dict[str, str]:
        """Say what is not held, and why: of NICs, of networks, or of all of it."""
        word = {NETWORK: "network: "}
        found = {key: owed.why for key, owed in self._owed.items() if owed.why and kind in ("", key[0])}
        return {uuid: word.get(each, "") + why for (each, uuid), why in found.items()}

    def telling(self, known: Collection[str]) -> bool:
        """Tell whether anything is not held that the stream alone can tell again. ``known``: NICs and networks that are known here.

        What is none, whoever is told it, need not be told again.
        """
        return self.lost or any(uuid not in known and (owed.when < NEVER or not owed.why) for (_kind, uuid), owed in self._owed.items())
