"""Let what the stream has told be done on the node, and hold what is there against it. A NIC that is wanted no more stays as it is.

What is known here (of this node's own NICs, and of their networks) is looked for on disk again and again, and mended where it is not
there; what is not held is tried again (netagent.sync.held). Of other NICs nothing is known here: where two looks find only a part of what
is wanted of one on disk (a clock that was wrong at a boot has ended the rest), all is to be told anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netagent.sync.held import Held
from netagent.sync.jobs import CHECK, NETWORK, NEVER, NIC, RETAIN, UNDERLAY
from netagent.sync.laid import DropUnderlay, SetUnderlay
from netagent.sync.messages import Apply, Check, Drop, DropNetwork, Keep, Retain, SetNetwork
from netagent.sync.outbox import STOPPED
from netagent.sync.reading import unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from netagent.sync.became import Did
    from netagent.sync.inbox import Beside, Changes, Inbox
    from netagent.sync.jobs import Jobs, Key
    from netagent.sync.messages import Doing, Local, Wanted
    from netagent.sync.outbox import Outbox

AGAIN = 60.0  #: seconds until what the disk has not taken is tried again


class Tried(NamedTuple):
    """With what a NIC was pushed that was found otherwise: since when it is up (a later up is another matter), and what is wanted of it."""

    since: float
    revision: str
    network: str  #: the revision of its network


class Wishes:
    """Bring what is wanted to the node. What is to be told the registry of it is given back, and marked by the caller."""

    def __init__(self, node: str, inbox: Inbox, outbox: Outbox, jobs: Jobs, every: float) -> None:
        self._underlay = UNDERLAY, node
        self._inbox, self._outbox, self._jobs = inbox, outbox, jobs
        self._again = min(AGAIN, every)
        self._held = Held()
        self._tried: dict[str, Tried] = {}  # NICs that were found otherwise than they are wanted, and with what that was tried
        self._early: dict[str, None] = {}  # NICs that were looked at before the stream had told what came since an earlier run
        self._waiting: dict[str, Beside] = {}  # NICs that may be ours no more, or are, when all of a commit is told
        self._unsure: dict[Key, None] = {}  # what is to be looked for on disk
        self._parts = False  # what lies on disk in part is to be looked for
        self._parts_at = NEVER  # when, where a look has found some
        self._in_part: set[str] = set()  # other NICs than ours that the latest look has found so
        self._asked: set[str] = set()  # those of them for which all was to be told anew: an older service tells no more than a part
        self._mended: set[Key] = set()  # what was not there, and was done again since all of it was looked for
        self.anew = False  #: all is to be told anew

    # -- what was told

    def begin(self) -> None:
        """Prepare for a stream."""
        self._waiting, self.anew = {}, False
        if self._inbox.ready is None:
            self._held.lost = False

    def beside(self, found: Beside) -> None:
        """Keep what the operator wants of a NIC that is elsewhere. Of one that is ours, or ceases to be, the end of the commit decides."""
        if found.uuid in self._inbox.nics or found.wanted is None:
            self._waiting[found.uuid] = found
        else:
            self._keep(found)

    def _keep(self, found: Beside) -> None:
        key = NIC, found.uuid
        if found.wanted is None:
            self._jobs.put(Drop(key, found.revision))
        else:
            self._jobs.put(Keep(key, found.wanted, found.whole))

    def take(self, found: Changes) -> Iterator[str]:
        """Let what was told be done; give the NICs of which something is to be told now."""
        ours = {own.wanted.network for own in found.nics.values()}
        self._set_networks(uuid for uuid in found.networks if uuid in ours)
        for uuid, own in found.nics.items():
            self.want(uuid, own.wanted)
            yield uuid
        self._set_networks(uuid for uuid in found.networks if uuid not in ours)  # there may be many, and no NIC waits for them
        for uuid in found.left:
            self._held.settled((NIC, uuid))
            self._jobs.put(Drop((NIC, uuid), str(found.revision)))
            yield uuid
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if each.uuid not in self._inbox.nics:
                self._keep(each)
        for uuid in found.networks_left:
            self._held.settled((NETWORK, uuid))
            self._jobs.put(DropNetwork((NETWORK, uuid), str(found.revision)))
        if found.underlay is not None:
            self._jobs.put(SetUnderlay(self._underlay, found.underlay.value, found.underlay.revision))
        elif found.underlay_left:
            self._jobs.put(DropUnderlay(self._underlay, str(found.revision)))
        if found.whole:
            there = {*((NIC, uuid) for uuid in found.kept), *((NETWORK, uuid) for uuid in self._inbox.networks)}
            self._held.retain(there)  # what an earlier epoch has said is not to be done after this
            self._jobs.retain(there)
            self._jobs.put(Retain(RETAIN, found.kept, frozenset(self._inbox.networks), str(found.revision)))
            yield from (uuid for uuid in self._outbox.told if uuid not in self._inbox.nics)
        if found.first:
            self._check_all()
            self._parts = True
            early, self._early = self._early, {}
            yield from (uuid for uuid in early if uuid in self._inbox.nics)

    def _set_networks(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            network = self._inbox.networks[uuid]
            self._jobs.put(SetNetwork((NETWORK, uuid), network.value, network.revision))

    def _keep_underlay(self) -> None:
        """Let what is known of the underlay be kept once more, in case that has got lost on disk."""
        known, key = self._inbox.underlay, self._underlay
        if known is not None and self._inbox.complete and not (self._jobs.waits(key) or self._held.why(key)):
            self._jobs.put(SetUnderlay(self._underlay, known.value, known.revision))

    def want(self, uuid: str, wanted: Wanted) -> None:
        """Let one of our NICs be set to what this version knows of it; what it does not know is kept, and is none of the NIC's."""
        self._jobs.put(Apply((NIC, uuid), wanted))

    # -- what is there

    def marked(self, uuid: str) -> None:
        """Try again what waits until a NIC stops: something of it has changed."""
        if not self._jobs.repeat((NIC, uuid)) and (job := self._held.job((NIC, uuid))) is not None:
            self._jobs.put(job)

    def settle(self, nics: Mapping[str, Local]) -> None:
        """Let NICs that are not what is wanted of them be set so, but not those with which that was just tried.

        What is known from an earlier run of the agent counts as soon as the stream has told what came since: what is in force may be newer.
        """
        if not self._inbox.current:
            self._early |= dict.fromkeys(nics)  # they are looked at again then
            return
        for uuid, local in nics.items():
            own = self._inbox.nics.get(uuid)
            if own is None:
                continue
            self._unsure[NIC, uuid] = None
            self._unsure[NETWORK, own.wanted.network] = None
            tried = Tried(local.report.since, own.wanted.revision, self._told(local, own.wanted.network))
            settled = local.report.state == STOPPED or (local.report.applied, local.told) == tried[1:] or self._tried.get(uuid) == tried
            refused = self.why(uuid) and not unusable(own.wanted)
            if not (settled or refused or self._jobs.waits((NIC, uuid))):
                self._tried[uuid] = tried
                self.want(uuid, own.wanted)
            if not self._jobs.waits((NIC, uuid)):
                self._outbox.noted.pop(uuid, None)  # nothing is to be tried

    def _told(self, local: Local, wanted: str) -> str:
        """Give the revision of its network that a NIC should have been told; what it was told where that cannot be mended by a push."""
        uuid = local.network or wanted
        network = self._inbox.networks.get(uuid)
        key = NETWORK, uuid
        return local.told if network is None or self._jobs.waits(key) or self._held.why(key) else network.revision

    def _check_all(self) -> None:
        """Let all that is known here be looked for on disk."""
        self._mended.clear()
        self._keep_underlay()
        self._unsure |= {(NIC, uuid): None for uuid in self._inbox.nics}
        self._unsure |= {(NETWORK, uuid): None for uuid in self._inbox.networks}

    def retry(self, refused: bool) -> None:
        """Let what was tried be tried again if it is not so; ``refused``: what was refused too."""
        self._tried.clear()
        for job in self._held.all(not refused):
            own = self._inbox.nics.get(job.key[1])
            if self._jobs.waits(job.key):
                continue
            if own is not None and refused:
                self.want(job.key[1], own.wanted)
            else:
                self._jobs.put(job)
        self._check_all()
        self._parts = self._parts or refused
        self.anew = self.anew or (refused and self._held.lost)

    def turn(self, now: float) -> None:
        """Let be done what is due."""
        for job in self._held.again(now):
            if not self._jobs.waits(job.key):
                self._jobs.put(job)
        if now >= self._parts_at:
            self._parts, self._parts_at = True, NEVER
        if not (self._unsure or self._parts) or not self._inbox.current or self._jobs.waits(CHECK):
            return
        looked = [key for key in self._unsure if key not in self._mended and not self._held.why(key) and not self._jobs.waits(key)]
        self._unsure = {}
        nics = {uuid: self._inbox.nics[uuid].wanted for kind, uuid in looked if kind == NIC and uuid in self._inbox.nics}
        networks = {uuid: self._inbox.networks[uuid].revision for kind, uuid in looked if kind == NETWORK and uuid in self._inbox.networks}
        if nics or networks or self._parts:
            self._jobs.put(Check(CHECK, nics, networks, self._parts))
            self._parts = False

    def _mend(self, key: Key) -> None:
        """Do again what has got lost on disk."""
        kind, uuid = key
        if self._jobs.waits(key) or self._held.why(key) or (kind == NIC and uuid not in self._inbox.nics):
            return
        self._mended.add(key)
        if kind == NIC and uuid in self._inbox.nics:
            self.want(uuid, self._inbox.nics[uuid].wanted)
        elif kind == NETWORK and uuid in self._inbox.networks:
            self._set_networks([uuid])

    def _found_in_part(self, uuids: set[str], now: float) -> None:
        """Take of which NICs the disk has a part. One that ends in time is a part until the stream has told that: two looks decide."""
        others = uuids - self._inbox.nics.keys() - self._asked
        others = {uuid for uuid in others if not self._jobs.waits((NIC, uuid)) and self._held.job((NIC, uuid)) is None}
        again, self._in_part = others & self._in_part, others
        if again:
            self._asked |= others
            self.anew = True
        elif others:
            self._parts_at = now + self._again

    # -- what became of it

    def did(self, did: Did, now: float, again: float) -> str | None:
        """Take what became of a job; ``again``: when it is tried again if need be. Give the NIC of which something is to be told now."""
        job = self._jobs.did(did, again)
        for uuid in did.touched:
            if uuid in self._inbox.nics:
                self.want(uuid, self._inbox.nics[uuid].wanted)
        if isinstance(job, Check):
            for left in did.left:
                self._mend(left.key)
            if job.parts:
                self._found_in_part({uuid for (kind, uuid), _why in did.left if kind == NIC}, now)
        elif isinstance(job, Retain):
            for left in did.left:
                if not self._jobs.waits(left.key):
                    forget = Drop if left.key[0] == NIC else DropNetwork
                    self._held.owe(forget(left.key, did.revision), left.why, now + self._again if left.why else NEVER)
        elif job is not None and did.up:
            own = job.key[1] in self._inbox.nics
            self._held.owe(job, self._held.why(job.key) if own else "")
        elif job is not None:
            return self._over(job, did, now)
        return None

    def _over(self, job: Doing, did: Did, now: float) -> str | None:
        kind, uuid = job.key
        self._outbox.noted.pop(uuid, None)
        if not did.refused:
            self._asked -= {uuid} if isinstance(job, Keep) and job.whole else set()
            own = self._inbox.nics.get(uuid) if kind == NIC else None
            if isinstance(job, Apply | Keep) and own is not None and (why := unusable(job.wanted)):
                self._held.owe(Keep(job.key, job.wanted), why)
            else:
                self._held.settled(job.key)
            self.anew = self.anew or (self._held.lost and isinstance(job, Keep))
        elif isinstance(job, Apply) and not did.passing:  # for its next up it is on disk as soon as the NIC is not up
            left = Keep(job.key, job.wanted)
            self._held.owe(left, did.refused)
            self._jobs.put(left)
        else:
            self._held.owe(job, did.refused, now + self._again if did.host else NEVER)
        return uuid if kind == NIC and (uuid in self._inbox.nics or uuid in self._outbox.told) else None

    # -- how it stands

    def due(self) -> float:
        """Give when there is something to do if nothing happens before."""
        return min(self._held.due(), self._parts_at)

    def why(self, uuid: str) -> str:
        """Say why a NIC is not as it is wanted; "" where it is, or nothing is known of that."""
        return self._held.why((NIC, uuid))

    def refused(self, kind: str = "") -> dict[str, str]:
        """Say what is not held, and why (netagent.sync.held)."""
        return self._held.refused(kind)

    @property
    def telling(self) -> bool:
        """Tell whether the stream has told what is not held, and is not known here: it has to tell it again."""
        return self._held.telling({**self._inbox.nics, **self._inbox.networks})
