"""Let what the stream has told be done on the node, and hold what is there against it. A NIC that is wanted no more stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.jobs import ALL, NETWORK, NIC
from netagent.sync.messages import Apply, Drop, DropNetwork, Retain, SetNetwork
from netagent.sync.outbox import STOPPED
from netagent.sync.reading import unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from netagent.sync.inbox import Beside, Changes, Inbox
    from netagent.sync.jobs import Jobs
    from netagent.sync.messages import Did, Local, Wanted
    from netagent.sync.outbox import Outbox


class Wishes:
    """Bring what is wanted to the node. What is to be told the registry of it is given back, and marked by the caller."""

    def __init__(self, inbox: Inbox, outbox: Outbox, jobs: Jobs) -> None:
        self._inbox, self._outbox, self._jobs = inbox, outbox, jobs
        self.refused: dict[str, str] = {}  #: networks, and why what is said of them is not kept
        self._done: dict[str, str] = {}  # NIC -> revision to which it was set last
        self._waiting: dict[str, Beside] = {}  # NICs that may be ours no more, or are, when all of a commit is told

    def begin(self) -> None:
        """Prepare for a stream."""
        self._waiting = {}

    def beside(self, found: Beside) -> None:
        """Keep what the operator wants of a NIC that is elsewhere. Of one that is ours, or ceases to be, the end of the commit decides."""
        if found.uuid in self._inbox.nics or found.wanted is None:
            self._waiting[found.uuid] = found
        else:
            self._keep(found)

    def _keep(self, found: Beside) -> None:
        if found.wanted is None:
            self._jobs.put(Drop((NIC, found.uuid), found.revision))
        elif not unusable(found.wanted):
            self._jobs.put(Apply((NIC, found.uuid), found.wanted))

    def take(self, found: Changes) -> Iterator[str]:
        """Let what was told be done; give the NICs of which something is to be told now."""
        for uuid, (value, revision) in found.networks.items():
            self._jobs.put(SetNetwork((NETWORK, uuid), value, revision))
        for uuid, own in found.nics.items():
            self.want(uuid, own.wanted)
            yield uuid
        for uuid in found.left:
            self._jobs.put(Drop((NIC, uuid), str(found.revision)))
            self._outbox.refused.pop(uuid, None)
            yield uuid
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if each.uuid not in self._inbox.nics:
                self._keep(each)
        for uuid in found.networks_left:
            self._jobs.put(DropNetwork((NETWORK, uuid), str(found.revision)))
        if found.whole:
            self._jobs.put(Retain((ALL, ""), found.kept, frozenset(self._inbox.networks), str(found.revision)))
            yield from (uuid for uuid in self._outbox.told if uuid not in self._inbox.nics)

    def want(self, uuid: str, wanted: Wanted) -> None:
        """Let one of our NICs be set, if it can be."""
        why = unusable(wanted)
        if why:
            self._outbox.refused[uuid] = why
        else:
            self._jobs.put(Apply((NIC, uuid), wanted))

    def settle(self, nics: Mapping[str, Local]) -> None:
        """Let NICs that are not what is wanted of them be set so, but not those with which that was just tried."""
        for uuid, local in nics.items():
            own = self._inbox.nics.get(uuid)
            if own is None:
                continue
            at = own.wanted.revision
            settled = local.report.state == STOPPED or at in (local.report.applied, self._done.get(uuid)) or uuid in self._outbox.refused
            if not settled and not self._jobs.waits((NIC, uuid)):
                self.want(uuid, own.wanted)

    def retry(self, refused: bool) -> None:
        """Let what was tried be tried again if it is not so; ``refused``: what was refused too."""
        self._done.clear()
        for uuid in list(self._outbox.refused) if refused else ():
            if uuid in self._inbox.nics:
                self.want(uuid, self._inbox.nics[uuid].wanted)

    def did(self, did: Did, again: float) -> str | None:
        """Take what became of a job; ``again``: when it is tried again if need be. Give the NIC of which something is to be told now."""
        over = self._jobs.did(did, again)
        for uuid in did.touched:
            if uuid in self._inbox.nics:
                self.want(uuid, self._inbox.nics[uuid].wanted)
        kind, uuid = did.key
        if did.again or not over:
            return None
        if kind == NETWORK:
            self.refused.pop(uuid, None)
            if did.refused and uuid in self._inbox.networks:
                self.refused[uuid] = f"network: {did.refused}"
            return None
        if kind != NIC:
            return None
        self._done[uuid] = did.revision
        self._outbox.refused.pop(uuid, None)
        if did.refused and uuid in self._inbox.nics:
            self._outbox.refused[uuid] = did.refused
        return uuid if uuid in self._inbox.nics or uuid in self._outbox.told else None
