"""The agent of one node: subscriptions, the first picture, what each event means, and the end.

The main thread only listens, marks and hands out; everything that may wait is done by workers. All that counts is on disk or in the
kernel, so it may be killed at any moment: the next one reads the whole picture before it does anything.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from netagent import allocator
from netagent.dispatcher import Dispatcher, tell
from netagent.events import INDEX, INSTANCE, SWITCH, TABLE, Came, Changed, Event, Gone, LinkGone, LockClosed, Overrun, RecordChanged
from netagent.ganeti_doors import Doors
from netagent.index import Nics, entry_of
from netagent.joined import Joined
from netagent.reap.reaper import RECORDS
from netagent.reconcile.dirty_set import DirtySet
from netagent.reconcile.repair_policy import Repairs
from netagent.resync_interval import apart
from netagent.service import Service
from netagent.sources.inotify import SOURCE, FileEvents
from netagent.sources.switches import Switches
from netagent.state import State
from netagent.surroundings import REAL, Surroundings
from netagent.underlay.keeper import UNDERLAY, Keeper
from netagent.underlay.scripts import ENDPOINTS
from netcommon.lifecycle.context import Clock
from netcommon.settings.model import Settings
from runtime import inotify
from runtime.errors import NetcommonError
from runtime.locks import UUID
from runtime.paths import Paths
from runtime.record import from_json
from runtime.store import Store, is_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from netagent.loop import Scheduler
    from netagent.reconcile.keyed_pool import Key
    from netcommon.lifecycle.context import Node
    from runtime.store import Parse

#: The time between two resyncs is off by up to this share of it: not all nodes at once.
JITTER = 0.1

#: Between two attempts to watch a folder that has gone (seconds).
REWATCH = 1.0

#: After a change of Ganeti's links, or of our own folder: `ln -f` may take two steps for one, and `rm -r` more (seconds).
SETTLED = 0.1

#: Watched folders that others make, by the names of their watches: what is in them a registry is told.
FOREIGN = frozenset({"ganeti", "processes", "definitions"})

#: How long the end waits for what is being done (seconds).
GRACE = 5.0


class Hooks(Protocol):
    """Serves hooks (netagent.hooks.server)."""

    def configure(self, settings: Settings) -> None: ...
    def again(self, settings: Settings) -> None: ...
    def close(self, seconds: float) -> None: ...
    def status(self) -> Mapping[str, object]: ...
    def hanging(self) -> str: ...


class Process(Protocol):
    """The process that the agent runs in (netagent.service)."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of lock and sockets, in which nothing may be removed."""
        ...

    def hooks(self, open_node: Callable[[Settings], Node]) -> Hooks: ...
    def begin(self, loop: Scheduler) -> None:
        """The agent begins to listen: signals may end it from here on."""
        ...

    def ready(self, text: str) -> None:
        """The agent is at work."""
        ...

    def again(self) -> None:
        """Make anew what was removed of lock and sockets."""
        ...

    def tick(self) -> float:
        """The loop turns. Returns when it is to be called again (monotonic seconds; infinity: never)."""
        ...


class Agent:
    """See the module. ``state`` holds the settings. Raises HostRefused where the kernel cannot be listened to."""

    def __init__(self, state: State, process: Process, chance: random.Random, around: Surroundings = REAL) -> None:
        self._state, self._process, self._chance, self._around = state, process, chance, around
        self._paths, self._now = state.paths, state.clock.now
        self._log = state.make_log()
        self._loop = around.make_loop(self._now, self._failed)
        self._nics = Nics()
        self._repairs = Repairs(self._now, state.settings)
        self._dirty = DirtySet(self._nics, self._repairs.not_before)
        self._journal = state.journal
        self._jobs = Dispatcher(state, self._loop, self._nics, self._dirty, self._repairs, chance, around)
        self._store = Store(self._paths, state.identity.netns, state.identity.boot, parse=self._jobs.parse)
        self._jobs.reread = self._reread
        self._serving = process.hooks(self._jobs.open_node)
        self._files = FileEvents(around.watcher)
        self._doors = Doors(self._paths, self._jobs.launcher, state.alarms, self._now)
        told = self._loop, self._nics, self._ready, self._jobs.sweep_flows
        self._switches = Switches(self._paths.ovsdb, self._now, *told, around.dial)
        self._jobs.doubted = self._switches.ask
        self._joined = Joined(state, self._loop, self._jobs, self._log, chance, session=around.make_session, aside=around.aside)
        self._jobs.seen, self._jobs.unworked = self._joined.marked, self._unworked
        self._underlay = Keeper(state, self._loop, self._jobs.work, self._log)
        self._underlay.told, self._joined.underlay = self._joined.underlaid, self._underlay.look
        self._sources = around.sources(self._jobs.ports, self._log.warning)

    # -- begin and end

    def start(self) -> None:
        """Subscribes, then reads the records. Raises HostRefused."""
        self._watch_folders()
        for source in (*self._sources, self._files):
            self._loop.watch(source.descriptor, self._ready)
        for name in self._store.folder("nics").names():
            if name.endswith(".json") and is_key(name[:-5]):
                self._reread(name[:-5], from_json)  # nothing to remember: of a large node that would be the last few hundred
        self._journal.begin()
        self._process.begin(self._loop)
        self._tick()
        self._resync()
        self._jobs.reap()
        self._jobs.end_due()
        self._serve(self._state.settings)
        self._watch_place()
        self._underlay.look()
        self._joined.look()
        self._process.ready(f"{len(self._nics)} NICs on record")

    def run(self) -> None:
        """Until ``stop``."""
        self._loop.run()

    def stop(self) -> None:
        """Ends ``run``."""
        self._loop.stop()

    def close(self) -> None:
        """Ends the workers, and closes what is open."""
        self._serving.close(GRACE)
        self._joined.close(GRACE)
        self._underlay.close()
        self._jobs.close(GRACE)
        self._switches.close()
        for source in (*self._sources, self._files):
            source.close()
        self._loop.close()
        self._store.close()

    # -- what the process asks

    def reloaded(self, settings: Settings) -> None:
        self._repairs.settings = settings
        self._jobs.count_differing()
        self._dirty.everything(self._now())
        self._jobs.schedule()
        self._serve(settings)
        self._underlay.look()
        self._joined.look()

    def status(self) -> Mapping[str, object]:
        now, jobs = self._now(), self._jobs
        differing = jobs.differing
        return {
            "nics": dict(self._nics.states()),
            "work waiting": jobs.waiting,
            "work running": jobs.running(),
            "looks": jobs.looks,
            "surveys": jobs.surveys,
            "seconds since all was compared": round(now - jobs.synced, 1) if jobs.synced else "never",
            "seconds to the next reaping": round(jobs.reaper.due(now), 1),
            "NICs that the settings would change": "not counted yet" if differing is None else differing.number,
            "seconds since those were counted": "never" if differing is None else round(now - differing.counted, 1),
            "connected to Open vSwitch": self._switches.connected or ("not needed" if not self._nics.switched() else False),
            **self._serving.status(),
            **self._joined.status(),
            **self._underlay.status(),
        }

    def hanging(self) -> str:
        return self._jobs.hanging() or self._serving.hanging()

    def _serve(self, settings: Settings) -> None:
        """Hooks do without us if need be."""
        try:
            self._serving.configure(settings)
        except (NetcommonError, OSError) as error:
            self._log.error(f"hooks are not served: {error}")

    # -- events

    def _ready(self) -> None:
        """What was changed is held against the records as they were before, what was removed against those after it: an up writes that
        it is done when all is made, a down that it begins before anything goes.
        """
        now = self._now()
        events = [event for source in self._sources for event in source.read()] + self._switches.read()
        for event in events:
            if isinstance(event, Changed):
                self._take(event, now)
        self._read_files()
        for event in events:
            if not isinstance(event, Changed):
                self._take(event, now)
        if events:
            self._joined.changed()
            self._underlay.changed()
        self._jobs.schedule()

    def _read_files(self) -> None:
        for event in self._files.read():
            if isinstance(event, RecordChanged):
                self._reread(event.key)
            else:
                self._take(event, self._now())

    def _take(self, event: Event, now: float) -> None:
        if isinstance(event, LinkGone):
            self._joined.gone()
            self._journal.gone(self._nics.about(((INDEX, event.ifindex),)))
        if isinstance(event, Overrun):
            self._journal.lost(event.source)
            self._state.metrics.count("netcommon_overruns_total", source=event.source)
            self._log.warning(f"events of {event.source} were lost: everything is looked at")
            self._joined.lost()
            if event.source == SOURCE:
                self._loop.after(REWATCH, self._watch_again)
        if isinstance(event, Came):
            for entry in self._nics.about(event.marks):
                self._repairs.came(entry.key)
        elif isinstance(event, Gone) and any(sort in (TABLE, SWITCH) for sort, _which in event.marks):
            for entry in self._nics.about(event.marks):
                self._repairs.flushed(entry.key)
        self._dirty.take(event, now)

    def _reread(self, key: str, parse: Parse | None = None) -> None:
        """The record may have changed on disk. ``parse``: see Store.read."""
        self._joined.marked(key)
        try:
            record = self._store.read(key, parse)
        except NetcommonError as error:
            self._store.problems.append(str(error))
            record = None
        finally:
            self._rest()
        for problem in self._store.problems:
            self._log.warning(problem)
            self._state.alarms.set(RECORDS, problem)  # until a reaping finds all of them readable
        self._store.problems.clear()
        here = self._state.identity
        if record is None or (record.boot == here.boot and record.netns != here.netns):
            self._journal.became(self._nics.drop(key), None)
            self._dirty.removed(key)
            self._repairs.worked(key)
            return
        entry, before = entry_of(record), self._nics.get(key)
        if before is None or before.ifindex != entry.ifindex:
            self._repairs.worked(key)  # what failed was for another device
        self._nics.put(entry)
        self._journal.became(before, entry)
        self._dirty.changed(entry, self._now())
        self._switches.need(entry)
        if record.nic.wanted or record.before is not None:
            self._jobs.options_altered(record.uuid)

    # -- folders

    def _watch_folders(self) -> None:
        """Those of ours, which are made if need be, and those of others where they are there."""
        files, names, came = self._files, inotify.NAMES, inotify.IN_CREATE | inotify.IN_MOVED_TO
        files.watch("nics", self._store.folder("nics").descriptor, names, _record_changed)
        files.watch("locks", self._store.folder("locks").descriptor, inotify.IN_CLOSE, _lock_closed)
        files.watch("openvswitch", os.path.dirname(self._paths.ovsdb), came, self._socket_came)
        files.watch("ganeti", f"{self._paths.kvm_run}/conf", came, self._runtime_written)
        files.watch("processes", f"{self._paths.kvm_run}/pid", names | came | inotify.IN_MODIFY, self._process_began)
        files.watch("definitions", self._paths.definitions, names, self._defined)
        self._rest()

    def _rest(self) -> None:
        """The records are of no interest for a while."""
        if self._around.frugal:
            self._store.close()

    def _look_at_doors(self) -> None:
        """Ganeti's links may lead elsewhere than before, into a folder that is not watched yet."""
        self._doors.watch(self._files, lambda: self._loop.after(SETTLED, self._look_at_doors))
        self._jobs.doors(self._doors)

    def _watch_again(self) -> None:
        """A folder was removed or replaced, or came only now. One that cannot be used is looked at again with the next resync."""
        if self._around.frugal or not self._store.stands():  # of what was closed nobody can tell
            self._store.close()
            self._files.lost |= {"nics", "locks"}
        if self._files.lost:
            lost = self._files.lost & FOREIGN
            self._again()
            try:
                self._watch_folders()
            except (NetcommonError, OSError) as error:
                self._log.error(f"records are not watched: {error}")
            if lost - self._files.lost:
                self._joined.lost()  # what has happened in it before this is on no event
                self._joined.underlaid()

    def _socket_came(self, name: str) -> None:
        """A daemon of Open vSwitch makes one; not in the midst of reading events."""
        self._loop.after(0.0, lambda: self._switches.appeared(name))

    def _defined(self, name: str) -> None:
        """A definition came, changed or went: no event, for that is nothing to a NIC that is up."""
        uuid, dot, suffix = name.rpartition(".")
        if dot and suffix == "toml" and is_key(uuid):
            self._joined.marked(uuid)

    def _runtime_written(self, name: str) -> Event | None:
        instance, dot, suffix = name.rpartition(".")
        if not dot or suffix != "runtime":
            return None
        self._jobs.runtime_written(instance)
        self._joined.underlaid()
        for entry in self._nics.of_instance(instance):  # its guest has arrived, perhaps, and that is to be told of each
            self._joined.marked(entry.uuid)
        return Changed(((INSTANCE, instance),))

    def _process_began(self, _name: str) -> None:
        """Hear that a QEMU of Ganeti's has written its process id, or that was removed: a guest comes here, or does not any more."""
        self._joined.underlaid()

    # -- from time to time

    def _resync(self) -> None:
        """Everything is looked at, whatever events have said or not."""
        interval = apart(self._state.settings.agent_resync, self._jobs.burden)
        self._loop.after(interval * self._chance.uniform(1 - JITTER, 1 + JITTER), self._resync)  # first: what follows may fail
        self._dirty.everything(self._now())
        try:
            self._watch_again()
            self._look_at_doors()
            self._switches.again()
            self._jobs.end_due()
            self._underlay.look()
            self._joined.look()
            self._joined.coming()
        finally:
            self._jobs.schedule()
        for state, number in self._nics.states().items():
            self._state.metrics.gauge("netcommon_nics", number, state=state)

    def _again(self) -> None:
        """Make anew what was removed of our lock and sockets: until then no hook finds us, nor a second agent."""
        self._process.again()
        try:
            self._serving.again(self._state.settings)
        except (NetcommonError, OSError) as error:
            self._log.error(f"hooks are not served: {error}")
        self._watch_place()

    def _watch_place(self) -> None:
        for number, path in enumerate(self._process.folders):
            self._files.watch(f"agent {number}", path, inotify.IN_DELETE | inotify.IN_MOVED_FROM, self._went)

    def _went(self, name: str) -> None:
        """Look when whoever removes them has removed them all."""
        self._loop.after(SETTLED, self._again)

    def _unworked(self, key: Key, error: Exception) -> None:
        """Tell whoever has asked for it that a worker could not do it."""
        if key.sort == UNDERLAY:
            self._underlay.unworked(str(error))
        elif key.sort == ENDPOINTS:
            self._underlay.scripts.unworked(str(error))
        else:
            self._joined.unworked(key, error)

    def _tick(self) -> None:
        if self._state.standing.state == "running":
            self._again()
        self._loop.at(self._process.tick(), self._tick)

    def _failed(self, error: Exception) -> None:
        """An action of the loop: what it left undone, the next resync finds."""
        tell(self._log, "the loop", error)


def _record_changed(name: str) -> Event | None:
    key, dot, suffix = name.rpartition(".")
    return RecordChanged(key) if dot and suffix == "json" and is_key(key) else None


def _lock_closed(name: str) -> Event | None:
    which, _, number = name.partition("-")
    return LockClosed(int(number)) if which == UUID and number.isascii() and number.isdigit() else None


def run(paths: Paths | None = None, clock: Clock | None = None, environ: Mapping[str, str] | None = None, verbose: bool = False) -> int:
    """Runs the agent of this network namespace until it is told to stop; the exit status. Raises NetcommonError where it cannot begin."""
    allocator.share()
    paths, clock = paths or Paths(), clock or Clock()
    host = REAL.make_host(paths, Settings(), clock)
    identity = host.identity()
    host.close()
    service = Service(paths, identity, clock, environ, verbose)
    try:
        service.open()
        agent = Agent(service.state, service, random.SystemRandom())
        try:
            service.serve(agent)
            agent.start()
            agent.run()
        finally:
            agent.close()
        if service.displaced is not None:
            raise service.displaced
    finally:
        service.close()
    return 0
