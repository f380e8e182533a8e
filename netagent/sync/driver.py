"""Drive the machine in the agent's loop: what it asks for is done by workers and by the session, and what comes of it is told to it.

Everything here runs in the main thread, but for the jobs, which run in workers', and what the session's threads hand over.
"""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from netagent.reconcile.keyed_pool import Key
from netagent.sync import hands, local
from netagent.sync.about import about
from netagent.sync.became import Did
from netagent.sync.jobs import NIC, UNDERLAY
from netagent.sync.laid import DropUnderlay, Had, SetUnderlay, Standing, UnderlayMarked
from netagent.sync.machine import Machine
from netagent.sync.messages import (
    AboutMarked,
    Alarm,
    Apply,
    Check,
    Close,
    Drop,
    DropNetwork,
    Ended,
    Failure,
    Keep,
    Line,
    Look,
    Looked,
    Lost,
    Marked,
    Retain,
    Save,
    SetNetwork,
    Survey,
    Surveyed,
    Tell,
    Watch,
)
from netagent.sync.ownership import INCOMING
from netagent.sync.session import Session
from netcommon.lifecycle import execute
from netregistry.request import new_id
from runtime.errors import NetcommonError, RecordUnreadable
from runtime.folder import Folder

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from netagent.loop import Scheduler, Timer
    from netagent.observe.alarms import Alarms
    from netagent.observe.metrics import Metrics
    from netagent.reconcile.workers import Worker
    from netagent.sync.messages import Asking, Doing, Event, Request
    from netagent.sync.rules import Rules
    from netcommon.lifecycle.context import Call, Clock
    from netcommon.log import Log
    from netregistry.reach import Places

    Put = Callable[[Key, Callable[[Worker], None], bool], None]

#: Sorts of the workers' work (netagent.dispatcher.TOLD, ASKED): looks and inventories; what changes the node.
LOOK, DO = "registry-look", "registry-do"
#: The inventory: one after the other with the agent's own (netagent.dispatcher), since each holds a picture of all that the kernel has, and
#: what both take together stays with the process.
INVENTORY = Key("survey", "registry")

FOLDER, KNOWN = "registry", "known.json"  #: below /var/lib/netcommon: what was known last
INCARNATION = "incarnation"  #: in the agent's folder, which goes with the boot: a restarted agent is the same to the registry
LONGEST = 64 << 20  #: bytes of what is known
RETIRED = "retired"  #: the state of an endpoint to which no name leads any more
CROWDED = 2000  #: jobs that wait, beyond which the stream does
ABOUT_OFTEN, ABOUT_SELDOM = 5.0, 300.0  #: seconds between two looks at what there is on the node, at least and at most
ALARMS = ("registry", "registry-lies", "registry-node", "registry-provides", "registry-refused", "registry-reaping", "registry-inventory")
MOST_ARRIVING = 50  #: instances of which a report can say that they are on their way


class Speaks(Protocol):
    """Speaks with a registry: ``Session``, or what asks a registry in the same process."""

    stream: int  #: the number of the stream that counts

    @property
    def moment(self) -> float:
        """The time at which a request of now is made (seconds since the epoch)."""
        ...

    def ask(self, request: Asking) -> None:
        """Ask something; the answer comes as an event, with the stream 0."""
        ...

    def watch(self, start: str, underlay: bool = False) -> None:
        """Begin the stream, another one than before. ``underlay``: it is to tell what the node has of that."""
        ...

    def end(self) -> None:
        """End the stream, if there is one; that is no event."""
        ...

    def close(self, seconds: float) -> None:
        """End all; what hangs is waited for so long."""
        ...


class MakeSession(Protocol):
    """Makes what speaks for a node; see netagent.sync.session.Session."""

    def __call__(
        self, where: str | Places, node: str, incarnation: str, tell: Callable[[Event, int], None], crowded: Callable[[], bool]
    ) -> Speaks: ...


class Around(NamedTuple):
    """Give the driver what it has of the agent. ``put`` gives a job to the workers; True: with the settings as the file is today."""

    loop: Scheduler
    clock: Clock
    log: Log
    alarms: Alarms
    metrics: Metrics
    put: Put
    call: Callable[[Worker], Call]
    session: MakeSession | None = None  #: None: Session
    underlay: Callable[[], None] = lambda: None  #: what is known of the underlay is another


class Sync:
    """The node's side of a registry while an agent runs. ``state``: the agent's folder; ``lib``: /var/lib/netcommon."""

    def __init__(self, node: str, where: str | Places, rules: Rules, around: Around, state: str, lib: str, chance: random.Random) -> None:
        self.node, self._around, self._lib = node, around, lib
        self._now = around.clock.now
        self._timer: Timer | None = None
        self._chance = chance
        life = _incarnation(state, chance)
        self._session = (around.session or Session)(where, node, life, self._hear, self._crowded)
        self.machine = Machine(node, rules, self._id, chance.random, self._now(), self._known(), life)
        self.arriving: tuple[str, ...] = ()  #: instances that are on their way here by Ganeti's files, as was seen last
        self._closed = False
        self._about_at = 0.0
        self._about_timer: Timer | None = None
        self._again_timer: Timer | None = None
        self._crowd = 0
        self._untold = ""  # why it cannot be told which addresses of the underlay are there
        self._open: dict[Key, Callable[[str], Event]] = {}  # what workers are at -> what is so where they cannot do it

    def start(self) -> None:
        """Begin."""
        self._mark_about()
        self._turn()

    def close(self, seconds: float) -> None:
        """End; what is known is kept for the next start. Alarms of ours are over, and whatever comes later is nothing."""
        self._closed = True
        for timer in (self._timer, self._about_timer, self._again_timer):
            if timer is not None:
                timer.cancel()
        self._session.close(seconds)
        last = self.machine.last()
        if last is not None:
            self._save(last.document)
        for name in ALARMS:
            self._around.alarms.clear(name)
        self._around.metrics.gauge("netcommon_registry_connected", 0.0)

    # -- what happens

    def marked(self, uuid: str) -> None:
        """Note that something of a NIC has changed."""
        self._take(Marked(uuid))

    def coming(self) -> None:
        """Note that guests that are told to be on their way may be here, or be none of Ganeti's: no event need have said so."""
        for nic in [nic for nic, sent in self.machine.outbox.told.items() if sent.state == INCOMING]:
            self.marked(nic)
        self.gone()

    def gone(self) -> None:
        """Note that a device has gone: with it a QEMU that waited for its guest, perhaps."""
        if self.arriving:
            self.underlaid()

    def lost(self) -> None:
        """Note that events were lost."""
        self._take(Lost())

    def changed(self) -> None:
        """Note that something of the node may have changed."""
        if self._about_timer is None and not self._closed:
            wait = max(self._about_at + ABOUT_OFTEN - self._now(), 0.0)
            self._about_timer = self._around.loop.after(wait, self._mark_about)

    def underlaid(self) -> None:
        """Note that other addresses of the underlay are there than before, or those of another generation, or other guests on their way."""
        self._take(UnderlayMarked())

    def _mark_about(self) -> None:
        for timer in (self._about_timer, self._again_timer):
            if timer is not None:
                timer.cancel()
        self._about_at = self._now()
        self._about_timer, self._again_timer = None, self._around.loop.after(ABOUT_SELDOM, self._mark_about)
        self._take(AboutMarked())

    def _hear(self, event: Event, stream: int) -> None:
        """In the session's threads."""
        self._around.loop.tell(partial(self._heard, event, stream))

    def _heard(self, event: Event, stream: int) -> None:
        if isinstance(event, Line | Ended) and stream != self._session.stream:
            return  # it is of a stream that was ended
        self._take(event)

    def _crowded(self) -> bool:
        """In the session's threads."""
        return self._crowd > CROWDED

    def _take(self, event: Event) -> None:
        if self._closed:
            return  # it was on its way here
        self.machine.take(event, self._now())
        self._turn()

    def _turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request in self.machine.turn(self._now()):
            self._do(request)
        self._crowd = len(self.machine.jobs)
        due = self.machine.due(self._now())
        if due < float("inf"):
            self._timer = self._around.loop.at(due, self._turn)
        self._measure()

    # -- what is to be done

    def _do(self, request: Request) -> None:
        if isinstance(request, Look):
            self._work(Key(LOOK, "look"), partial(self._look, request), lambda _why: Looked({}, frozenset(request.uuids)))
        elif isinstance(request, Survey):
            self._work(INVENTORY, self._survey, lambda why: Surveyed({}, why))
        elif isinstance(request, Apply | Keep | Drop | SetNetwork | DropNetwork | SetUnderlay | DropUnderlay | Retain | Check):
            self._work(Key(DO, "/".join(request.key)), partial(self._job, request), lambda why: Did(request.key, "", why, again=True))
        elif isinstance(request, Watch):
            self._session.watch(request.start, request.underlay)
        elif isinstance(request, Close):
            self._session.end()
            self._around.loop.tell(partial(self._take, Ended(Failure("", "it was not to be believed"))))
        elif isinstance(request, Save):
            self._around.put(Key(LOOK, "save"), lambda _worker: None if self._closed else self._save(request.document), False)
        elif isinstance(request, Alarm):
            if request.text:
                self._around.alarms.set(request.name, request.text)
            else:
                self._around.alarms.clear(request.name)
        elif isinstance(request, Tell):
            self._around.log.info(request.text)
        else:
            self._session.ask(request)

    def _work(self, key: Key, job: Callable[[Worker], Event], otherwise: Callable[[str], Event]) -> None:
        """Let a worker do something; ``otherwise``: what the machine is told where it cannot, and why."""

        def run(worker: Worker) -> None:
            if self._closed:
                return  # the node may have left the registry, and another one may be at work for it
            event = job(worker)
            self._around.loop.tell(partial(self._worked, key, event))

        self._open[key] = otherwise
        self._around.put(key, run, key.sort == DO)

    def _worked(self, key: Key, event: Event) -> None:
        self._open.pop(key, None)
        if isinstance(event, Did) and event.key[0] == UNDERLAY and not event.refused and not self._closed:
            self._around.underlay()
        self._take(event)

    def unworked(self, key: Key, why: str) -> None:
        """Note that a worker could not do what it was given."""
        otherwise = self._open.pop(key, None)
        if otherwise is not None:
            self._take(otherwise(why))

    # -- in workers' threads

    def _look(self, request: Look, worker: Worker) -> Event:
        what = about(worker.node.host.view(), self.node) if request.about else None
        found = local.looked(worker.node, request.uuids, what, hands.applied, request.devices)
        return found._replace(underlay=self._standing(worker)) if request.underlay else found

    def _standing(self, worker: Worker) -> Standing | None:
        """Give what of the underlay is there; None where that cannot be told, which keeps nothing else untold. Say why once."""
        try:
            found, why = _standing(worker), ""
            self.arriving = found.arriving
        except NetcommonError as error:
            found, why = None, str(error)
        if why and why != self._untold:
            self._around.log.warning(f"which addresses of the underlay are there cannot be told: {why}")
        self._untold = why
        return found

    def _survey(self, worker: Worker) -> Event:
        return local.surveyed(worker.node, hands.applied)

    def _job(self, job: Doing, worker: Worker) -> Event:
        return hands.done(worker.node, job, self._around.call(worker))

    def _save(self, document: Mapping[str, Any]) -> None:
        try:
            with Folder.make(f"{self._lib}/{FOLDER}") as folder:
                folder.write(KNOWN, json.dumps(document).encode("ascii"))
        except (NetcommonError, ValueError, RecursionError) as error:
            self._around.log.warning(f"what is known of the registry is not kept, and is asked for anew at the next start: {error}")

    # -- at the start

    def _known(self) -> Mapping[str, Any] | None:
        try:
            folder = Folder.find(f"{self._lib}/{FOLDER}")
            if folder is None:
                return None
            with folder:
                data = folder.read(KNOWN, LONGEST)
            found = json.loads(data) if data else None
        except (NetcommonError, ValueError, RecursionError):
            return None  # all is told anew
        return found if isinstance(found, dict) else None

    def _id(self) -> str:
        return new_id(self._session.moment, self._chance.getrandbits(74))

    # -- what people are told

    def status(self) -> dict[str, object]:
        """Say how it stands. For any thread."""
        machine, now = self.machine, self._now()
        line = machine.line
        vain = line.vain
        here = f"in step, but for what it does not do: {vain.why}" if vain is not None else "in step"
        return {
            "registry": here if machine.inbox.complete and line.stream else f"away: {line.reason or 'not connected yet'}",
            "seconds since the registry said anything": round(now - line.since, 1),
            "registry told up to": str(machine.inbox.ready or "nothing"),
            "registry marks": machine.marks,
            "registry jobs": len(machine.jobs),
            "NICs that are not as the registry wants": len(machine.wishes.refused(NIC)),
            "NICs that the registry does not know": len(machine.ownership.foreign),
        }

    def _measure(self) -> None:
        machine, metrics = self.machine, self._around.metrics
        metrics.gauge("netcommon_registry_connected", float(machine.inbox.complete and machine.line.stream))
        heard = self._around.clock.wall() - (self._now() - machine.line.since)
        metrics.gauge("netcommon_registry_heard_seconds", round(heard, 3))
        metrics.gauge("netcommon_registry_revision", float(machine.inbox.ready.number if machine.inbox.ready else 0))
        metrics.gauge("netcommon_registry_marks", float(machine.marks))
        metrics.gauge("netcommon_registry_refused", float(len(machine.wishes.refused(NIC))))
        metrics.gauge("netcommon_registry_unknown", float(len(machine.ownership.foreign)))
        metrics.gauge("netcommon_registry_reaped_total", float(machine.ownership.reaped))


def _standing(worker: Worker) -> Standing:
    """Give what of the underlay is there, and what the node was told of it. Raises NetcommonError where that cannot be told."""
    from netcommon.lifecycle.migration import arriving  # where the registry has an underlay
    from netcommon.lifecycle.underlay import known_of, seen

    generation, addresses = seen(worker.node, execute.once(worker.node))
    found = Standing(generation, addresses, arriving=arriving(worker.node)[:MOST_ARRIVING])
    try:
        known = known_of(worker.node)
    except RecordUnreadable:
        known = None  # it is written anew by what the registry says
    if known is None:
        return found
    had = tuple(Had(each.cluster, each.instance, each.kind, each.address, each.state == RETIRED) for each in known.endpoints)
    return found._replace(prefix=known.prefix, had=had, epoch=known.revision.rpartition(":")[0])


def _incarnation(state: str, chance: random.Random) -> str:
    """Give the agent's incarnation: one for each boot, so a restarted agent is not taken for another one. It is made anew if need be."""
    made = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    try:
        with Folder.make(state) as folder:
            data = folder.read(INCARNATION, 64)
            found = data.decode("ascii").strip() if data else ""
            if len(found) == 36 and str(uuid.UUID(found)) == found:
                return found
            folder.write(INCARNATION, made.encode("ascii") + b"\n")
    except (NetcommonError, ValueError):
        pass
    return made
