"""The reaper: what nobody called us for and no event told of is undone from time to time, and nothing that somebody may need.

1. Nothing goes before a complete inventory: one that could not be read whole, or lacks a part that the last one had, deletes nothing
   and raises an alarm.
2. A NIC on record goes when its device is gone, when a hook died on the way, or when it is closing and nobody holds its device. While
   a hook holds its lock it is no candidate, nor while its device is there otherwise: closing, up, or of a guest that migrates in.
3. What bears our mark, and a file in Ganeti's nic/, goes when it had no owner in two inventories, the first of which had ended the
   grace period before the second began; in each the host is read first, the records second.
4. Before each deletion there is a second look under locks, and one run deletes so many things at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.reap.nic_files import NicFile, arriving, lost, nic_files, remove_file
from netagent.reap.rules import Sightings, Sizes, emptied, sizes
from netagent.resync_interval import apart
from netcommon.host.api.host import View
from netcommon.lifecycle import inventory
from netcommon.lifecycle.abandoned import DIED, UNRECORDED, Reason, abandoned, at_work
from netcommon.lifecycle.context import Call, Clock, Node
from netcommon.lifecycle.down import give_back
from netcommon.lifecycle.gc import FAILED, KEPT, REMOVED, Found, collect, named, remove, tidy
from netcommon.lifecycle.inventory import Records, Seen
from netcommon.operations.base import Owned
from netcommon.operations.flows import Flows
from runtime.errors import HostRefused, NetcommonError
from runtime.record import Record

#: The alarms: the inventory could not be read; it lacks a part; a record could not be read; something is not undone yet.
INVENTORY, EMPTY, RECORDS, REAPING = "inventory", "inventory-empty", "records", "reaping"

METRIC = "netcommon_reaped_total"

NIC_FILE = Reason("nic-file", "its tap is gone, and its NIC is on no record")

#: The interval between two runs is off by up to this share of it: not all nodes at once.
JITTER = 0.1


def unfinished(node: Node, call: Call, wanted: Iterable[Record] | None = None) -> list[Found]:
    """Reverts at once every record that is not final though nobody holds its lock: a hook died on the way. Its device does not matter.

    ``wanted``: only these records, as they were last seen; None: all. For the agent's start, and for a lock that was let go.
    """
    records = node.store.all()[0] if wanted is None else wanted
    view = node.host.view()
    found = []
    for record in records:
        why = abandoned(node, view, record) if record.state in DIED and not at_work(node, record.uuid) else None
        if why:
            found.append(Found(named(record), why.text, collect(node, record, call)))
    return found


def restored_flows(node: Node, call: Call) -> list[Found]:
    """Removes flows on no record that came back with those that Open vSwitch's own scripts restore: not after the grace period, but now.

    Their port's number may be another guest's by then, which could so send from the address of the one that has gone. The host is read
    first, the records second, and nothing goes while one of them cannot be read.
    """
    seen = inventory.look(node)
    known = inventory.records(node)
    strays = [thing for thing, needed in inventory.unrecorded(seen, known) if not needed and thing.identity.startswith(f"{Flows.KIND} ")]
    if known.problems or not strays:
        return []
    again = inventory.records(node)
    return [Found(thing.text, UNRECORDED.text, remove(node, thing, again, call)) for thing in strays]


class _Candidate(NamedTuple):
    """One thing that may go, and why."""

    what: Record | Owned | NicFile
    why: Reason

    @property
    def text(self) -> str:
        return named(self.what) if isinstance(self.what, Record) else self.what.text


class Reaper:
    """Runs of one agent. ``delay``: seconds until the first. ``due`` may be asked by another thread than ``run``."""

    def __init__(self, clock: Clock, random: Random, alarms: Alarms, metrics: Metrics, delay: float = 0.0) -> None:
        self._clock, self._random, self._alarms, self._metrics = clock, random, alarms, metrics
        self._next = clock.now() + delay
        self._last: Sizes | None = None
        self._sightings = Sightings()
        self._kept: frozenset[tuple[str, str]] = frozenset()  #: what stays though it is on no record, and why, as it was said last
        self._failed: set[str] = set()  #: what could not be undone the last time: the others come first, or it would use up the cap

    def due(self, now: float) -> float:
        """The seconds from ``now`` (monotonic) until the next run; 0 or less: it is time."""
        return self._next - now

    def run(self, node: Node, call: Call) -> list[Found]:
        """One inventory, and what may go by it. Returns what it found, and what became of it. Raises nothing that a node may do to us."""
        settings = node.settings
        self._next = self._clock.now() + settings.agent_reap_interval  # whatever happens
        used = self._clock.cpu()
        try:
            found, more = self._run(node, call)
        except NetcommonError as error:  # the locks or the records could not be read once more, or our files not be removed
            self._alarms.set(REAPING, str(error))
            found, more = [], True
        spent = 0.0 if found else self._clock.cpu() - used  # where there was nothing to do
        wait = apart(settings.agent_reap_interval, spent) * self._random.uniform(1 - JITTER, 1 + JITTER)
        self._next = self._clock.now() + (min(wait, settings.agent_reap_grace) if more else wait)
        return found

    def _run(self, node: Node, call: Call) -> tuple[list[Found], bool]:
        """What was found; and whether the next run is to come after the grace period."""
        settings, began = node.settings, self._clock.now()
        try:
            seen = inventory.look(node)
            if not seen.view.links():
                raise HostRefused("the kernel lists no network device, not even the loopback")
            files = nic_files(node.paths) if settings.ganeti_nic_files != "off" else []
            guests = arriving(node.paths)
            known = inventory.records(node)
        except Exception as error:  # whatever kept us from reading it whole: nothing may go by a part
            text = str(error) if isinstance(error, NetcommonError) else f"{type(error).__name__}: {error}"
            self._alarms.set(INVENTORY, f"nothing is reaped, the inventory is not complete: {text}")
            return [], True
        self._alarms.clear(INVENTORY)
        ended = self._clock.now()
        last, self._last = self._last, sizes(seen, known)
        missing = emptied(last, self._last)
        if missing:
            self._sightings.forget()
            self._alarms.set(EMPTY, f"nothing is reaped: {missing}")
            return [], True
        self._alarms.clear(EMPTY)
        self._tell(node, known)
        found = [Found(problem, "not readable", KEPT) for problem in known.problems]
        ownerless, kept = _ownerless(node, seen, known, files, guests)
        self._say_kept(kept, call)
        due = self._sightings.update(ownerless, began, ended, settings.agent_reap_grace)
        waiting = [Found(one.text, one.why.text, KEPT) for identity, one in ownerless.items() if identity not in due]
        candidates = [*_records(node, seen.view, known), *(ownerless[identity] for identity in ownerless if identity in due)]
        candidates.sort(key=lambda one: one.text in self._failed)
        done = self._reap(node, candidates, call)
        reaped = sum(isinstance(one.what, Record) and said.action == REMOVED for one, said in zip(candidates, done, strict=False))
        self._last = self._last._replace(records=self._last.records - reaped)  # what we took ourselves is not missing
        give_back(node, call)
        tidy(node)
        return [*found, *kept, *waiting, *done], bool(waiting) or len(done) < len(candidates)

    def _tell(self, node: Node, known: Records) -> None:
        if known.lost:
            files = ", ".join(node.store.quarantined()[:5])
            self._alarms.set(RECORDS, "; ".join(known.problems[:5]) or f"in quarantine: {files}")
        else:
            self._alarms.clear(RECORDS)

    def _say_kept(self, kept: Iterable[Found], call: Call) -> None:
        """Say once of what stays, though it is on no record, why it does."""
        before, self._kept = self._kept, frozenset((found.text, found.why) for found in kept)
        for text, why in sorted(self._kept - before):
            call.log.warning(f"kept: {text}: {why}")

    def _reap(self, node: Node, candidates: Sequence[_Candidate], call: Call) -> list[Found]:
        """Lets the candidates go, as many as the cap and the call's time allow."""
        done: list[Found] = []
        gone = 0
        again: Records | None = None
        for one in candidates:
            if gone >= node.settings.agent_reap_cap or node.clock.now() >= call.deadline:
                break
            if isinstance(one.what, Record):
                action = collect(node, one.what, call)
            elif isinstance(one.what, NicFile):
                action = remove_file(node, one.what, call)
            else:
                again = again or inventory.records(node)
                action = remove(node, one.what, again, call)
            done.append(Found(one.text, one.why.text, action))
            gone += action != KEPT
            if action == REMOVED:
                self._metrics.count(METRIC, reason=one.why.name)
        failed = [one.text for one in done if one.action == FAILED]
        self._failed = set(failed)
        texts = [f"could not be undone: {', '.join(failed[:5])}" + (" and more" if failed[5:] else "")] if failed else []
        if len(done) < len(candidates):
            texts.append(f"{len(candidates) - len(done)} more are left for the next run")
        if texts:
            self._alarms.set(REAPING, "; ".join(texts))
        else:
            self._alarms.clear(REAPING)
        return done


def _records(node: Node, view: View, known: Records) -> list[_Candidate]:
    """The records that nobody needs and nobody is at work on; first those that a hook left half done."""
    pairs = [(record, abandoned(node, view, record)) for record in known.all]
    found = [_Candidate(record, why) for record, why in pairs if why and not at_work(node, record.uuid)]
    return sorted(found, key=lambda one: one.why not in DIED.values())


def _ownerless(
    node: Node, seen: Seen, known: Records, files: Iterable[NicFile], guests: Mapping[int, str]
) -> tuple[dict[str, _Candidate], list[Found]]:
    """What has no owner, by identity; and what looks so but stays. Nothing of the first while a record could not be read."""
    found: dict[str, _Candidate] = {}
    kept = []
    for thing, needed in inventory.unrecorded(seen, known):
        stays = needed or _doubt(node, seen, known, thing, guests)
        if stays:
            kept.append(Found(thing.text, stays, KEPT))
        else:
            found[thing.identity] = _Candidate(thing, UNRECORDED)
    for file in files if not known.problems else ():
        if lost(file, seen.view, known.told, known.uuids, guests.values()):
            found[file.identity] = _Candidate(file, NIC_FILE)
    return found, kept


def _doubt(node: Node, seen: Seen, known: Records, thing: Owned, guests: Mapping[int, str]) -> str:
    """Why a thing on no record may still have an owner, "" if it cannot."""
    if known.problems:
        return "on no record, but not every record can be read"
    link = seen.view.link(thing.device) if thing.device and guests else None
    if link is not None and link.holders != 0 and node.host.holder(link.name, guests):
        return f"on no record, but the guest of {link.name} is on its way here"
    return ""
