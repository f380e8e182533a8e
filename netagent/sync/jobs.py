"""Keep what is to be done on the node for the registry: of each thing the newest alone, one at a time, networks before the NICs in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.became import Did
from netagent.sync.messages import Apply, Drop, DropNetwork, Keep, Retain, SetNetwork

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from netagent.sync.messages import Doing

Key = tuple[str, str]

NIC, NETWORK, UNDERLAY = "nic", "network", "underlay"
RETAIN, CHECK = ("all", "retain"), ("all", "check")
#: Jobs beside which no other is done.
COMMON = (SetNetwork, DropNetwork, Retain)
#: Jobs that bring to the node what is wanted.
KEEPING = (Apply, Keep, SetNetwork)
AT_ONCE = 4
NEVER = float("inf")


class Jobs:
    """The jobs. ``now``: monotonic seconds."""

    def __init__(self) -> None:
        self._todo: dict[Key, Doing] = {}
        self._doing: dict[Key, Doing] = {}
        self._later: dict[Key, float] = {}
        self._since: set[Key] = set()  # what was told after a Retain that is not over: it knows nothing of that

    def __len__(self) -> int:
        return len(self._todo.keys() | self._doing.keys())

    def __bool__(self) -> bool:
        return bool(self._todo or self._doing)

    def put(self, job: Doing) -> None:
        """Let a job be done, in place of an earlier one about the same thing."""
        if job.key == RETAIN:
            self._since.clear()
        elif isinstance(job, KEEPING) and self.waits(RETAIN):
            self._since.add(job.key)
        self._todo.pop(job.key, None)
        self._todo[job.key] = job
        self._later.pop(job.key, None)

    def retain(self, wanted: Collection[Key]) -> None:
        """Drop what is to bring anything else to the node, and has not begun."""
        for key in [key for key, job in self._todo.items() if key not in wanted and isinstance(job, KEEPING)]:
            del self._todo[key]
            self._later.pop(key, None)

    def waits(self, key: Key) -> bool:
        """Tell whether anything about a thing is still to be done."""
        return key in self._todo or key in self._doing

    def repeat(self, key: Key) -> bool:
        """Let what is being done about a NIC be done once more: it may have stopped behind the look at it. Tell whether any job waits.

        Not a job that changes a NIC that is up: that itself is what has happened to the NIC.
        """
        job = self._doing.get(key)
        if key not in self._todo and isinstance(job, Keep | Drop):
            self._todo[key] = job
        return self.waits(key)

    def start(self, now: float) -> Iterator[Doing]:
        """Give the jobs that are to be begun."""
        if not self._todo or any(isinstance(job, COMMON) for job in self._doing.values()):
            return
        for key, job in list(self._todo.items()):
            if len(self._doing) >= AT_ONCE:
                return
            if key in self._doing or self._later.get(key, 0.0) > now:
                continue
            common = isinstance(job, COMMON)
            if common and self._doing:
                return
            self._later.pop(key, None)
            del self._todo[key]
            self._doing[key] = job
            yield self._grown(job) if isinstance(job, Retain) else job
            if common:
                return

    def _grown(self, job: Retain) -> Retain:
        told = {kind: frozenset(uuid for one, uuid in self._since if one == kind) for kind in (NIC, NETWORK)}
        return job._replace(nics=job.nics | told[NIC], networks=job.networks | told[NETWORK])

    def due(self, now: float) -> float:
        """Give when a job that is to be tried again is due; what else can be begun was begun."""
        return min((when for when in self._later.values() if when > now), default=NEVER) if self._later else NEVER

    def did(self, did: Did, again: float) -> Doing | None:
        """Take what became of a job; ``again``: when it is tried again if need be. Give the job if it is over, and nothing newer waits."""
        job = self._doing.pop(did.key, None)
        if job is None or did.key in self._todo:
            return None
        if did.again:
            self._todo[did.key], self._later[did.key] = job, again
            return None
        return job
