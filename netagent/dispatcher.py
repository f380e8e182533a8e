"""What the workers are given to do, and what is done with what comes of it; the methods run in the main thread, the jobs in workers'."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from netagent.delayed_effects import DelayedEffects
from netagent.ganeti_doors import Doors
from netagent.index import Entry, Nics, entry_of
from netagent.loop import Scheduler, Timer
from netagent.option_ends import OptionEnds
from netagent.reap.adoption import Adopter, fill
from netagent.reap.reaper import Reaper, restored_flows
from netagent.reconcile.dirty_set import FEW, NEVER, DirtySet
from netagent.reconcile.keyed_pool import Key, Works
from netagent.reconcile.reconciler import BRIEFLY, BUSY, DOOR, FAILURE, OWING, Dropped, Result
from netagent.reconcile.repair_policy import LAST, Repairs
from netagent.reconcile.workers import Worker
from netagent.start_delay import start_delay
from netagent.state import State
from netagent.surroundings import REAL, Surroundings
from netagent.todays_settings import Todays
from netcommon.lifecycle import execute, run_effects
from netcommon.lifecycle.change import differ
from netcommon.lifecycle.changed_options import moment
from netcommon.lifecycle.context import Call, Node, alive, any_changed, open_node
from netcommon.lifecycle.ends import end_due
from netcommon.log import Log
from netcommon.settings.model import Settings
from runtime.errors import NetcommonError, TryAgain
from runtime.record import UP, from_json

#: Sorts of work: one record; one of Open vSwitch, which may keep us waiting; one whose scripts may take long; many records; reaping;
#: adopting; what an effect does again; the doors that Ganeti calls.
LOOK, SWITCHED, SCRIPTS, SURVEY, REAP, ADOPT, LATER, DOORS = "look", "switched", "scripts", "survey", "reap", "adopt", "later", "doors"

#: Ending options that were changed for a while; counting the NICs that today's settings would make others.
ENDS, DIFFERING = "ends", "differing"
OF_RECORDS = (LOOK, SWITCHED, SCRIPTS)

#: Threads at most, and how many may do the same sort of work: scripts that hang, and a switch that is frozen, leave threads for the others.
THREADS = 6
#: The node's own addresses of an underlay (netagent.underlay.keeper).
UNDERLAY = "underlay"
#: The site's scripts of endpoints, which may take long (netagent.underlay.scripts).
ENDPOINTS = "endpoint-scripts"
#: What is read, and done, for a registry: neither keeps the other waiting, nor the node's own work.
TOLD, ASKED = "registry-look", "registry-do"
#: An inventory for a registry is of the same sort as our own surveys: of pictures of all that the kernel has one is held at a time.
REGISTRYS = Key(SURVEY, "registry")
LIMITS = {LOOK: 4, SWITCHED: 3, SCRIPTS: 2, SURVEY: 1, REAP: 1, ADOPT: 1, LATER: 1, TOLD: 1, ASKED: 2, UNDERLAY: 1, ENDPOINTS: 1}

#: After Ganeti has written an instance's file: until then its hooks have ended, so a NIC without a record is none of theirs (seconds).
ADOPT_AFTER = 15.0

#: Until the next snapshot after one that could not be read whole: at first, and after doubling (seconds).
AGAIN, LATEST = 5.0, 60.0

#: An agent that was killed may not have told of the NICs that came up in the last seconds: the one after it does.
UNTOLD = 5.0

#: Once a comparison has waited so long for what does not answer of NICs of one mode, it leaves the others of that mode out (seconds).
IN_VAIN = 0.5

#: The longest that one reaping, or adopting, goes on (seconds).
LONGEST = 300.0

#: A worker that has been at one thing for so long beyond a hook's time limit will not end any more (seconds).
HANGS = 60.0


class Spent(NamedTuple):
    """How long something took, and how much of a CPU (seconds)."""

    clock: float
    cpu: float


class Differing(NamedTuple):
    """How many NICs the settings would have made others, and when that was (monotonic seconds)."""

    number: int
    counted: float


DROPPED = "netcommon_guard_dropped_total"


class Dispatcher:
    """``reread``: the record of this key may have changed on disk. ``seen``: a record was looked at, and may have been repaired.

    ``doubted``: Open vSwitch has not done what it was to do. ``unworked``: what others let a worker do (``work``) could not be done.
    """

    def __init__(
        self,
        state: State,
        loop: Scheduler,
        nics: Nics,
        dirty: DirtySet,
        repairs: Repairs,
        chance: random.Random,
        around: Surroundings = REAL,
    ) -> None:
        self._state, self._loop, self._nics, self._dirty, self._repairs = state, loop, nics, dirty, repairs
        self._now, self._cpu = state.clock.now, state.clock.cpu
        self._trim, self._frugal = around.trim, around.frugal
        self._todays = Todays(state.paths)
        self.reread: Callable[[str], None] = lambda key: None
        self.doubted: Callable[[], None] = lambda: None
        self.seen: Callable[[str], None] = lambda key: None
        self.unworked: Callable[[Key, Exception], None] = lambda key, error: None
        self.launcher = around.make_launcher(state.environ)
        self._log = state.make_log()
        self._pool: Works = around.make_pool(THREADS, self._worker, Worker.close, self._failed, LIMITS, self._now)
        self._timer: Timer | None = None
        self._end: Timer | None = None
        self._ends = OptionEnds(state.paths, state.identity.boot)
        self.differing: Differing | None = None  #: as counted when the settings were read last
        failed = partial(self._failed, Key(LATER))
        self._repeats = DelayedEffects(loop, self._now, partial(self._put, Key(LATER)), failed)
        self.later = self._repeats.later
        self.parse = around.make_parse()
        #: opens a node for one worker or one hook's call, by these settings
        self.open_node: Callable[[Settings], Node] = partial(
            _opened,
            state,
            make_host=around.make_host,
            later=self.later,
            execute=self.launcher,
            gates=around.make_gates(),
            parse=self.parse,
            locking=around.locking,
        )
        self.ports: set[int] = set()  #: of the workers' sockets to nftables
        self.looks = 0  #: how many single records were looked at
        self.surveys = 0  #: how many snapshots were looked at
        self.burden = 0.0  #: CPU seconds of the last comparison of all records; 0: not known yet
        self.synced = 0.0  #: when all records were last compared with the host; 0: not yet
        delay = start_delay(state.settings, state.environ, state.paths, chance.random)
        self.reaper = Reaper(state.clock, chance, state.alarms, state.metrics, delay)
        self._adopter = Adopter()
        self._filled = False
        self._again = AGAIN
        self._told = self._now() - UNTOLD  #: what came up since is told of when all records are compared first

    def close(self, seconds: float) -> None:
        """Ends, after what is being done."""
        self._pool.close(seconds)

    @property
    def waiting(self) -> int:
        """How much waits for a thread."""
        return self._pool.waiting

    def running(self) -> list[str]:
        """What is being done, in words."""
        return [" ".join(filter(None, key)) for key in self._pool.running()]

    def hanging(self) -> str:
        """What will not end any more, "" if nothing."""
        limit = self._now() - self._state.settings.hook_timeout - HANGS
        running = self._pool.running().items()
        late = [" ".join(key) for key, since in running if since < limit and key.sort in (*OF_RECORDS, LATER)]
        return f"at work without end: {', '.join(late)}" if late else ""

    def schedule(self) -> None:
        """Hands out what is due, and sets the timer for the rest."""
        if self._dirty.due() <= self._now():
            batch = self._dirty.batch(self._now())
            for key, since in batch.single:
                self._look(key, since)
            if batch.everything:
                self._survey(None, batch.everything)
            elif batch.many:
                self._survey(dict(batch.many), min(since for _key, since in batch.many))
        due = self._dirty.due()
        if due < NEVER and (self._timer is None or due < self._timer.when):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.at(due, self._due)

    def _due(self) -> None:
        self._timer = None
        self.schedule()

    def _put(self, key: Key, job: Callable[[Worker], None]) -> None:
        """``job`` runs with the settings of the last reload; one that makes NICs anew, or may, takes today's itself."""

        def run(worker: Worker) -> None:
            try:
                worker.use(self._state.settings)
                job(worker)
                worker.report()
            finally:
                worker.rest()

        self._pool.put(key, run)

    def work(self, key: Key, job: Callable[[Worker], None], today: bool) -> None:
        """Let a worker do something for others than this; ``today``: with the settings as the file is now, for it may make NICs anew."""

        def run(worker: Worker) -> None:
            if today:
                worker.use(self._todays.usable(self._state.settings))
            job(worker)

        self._put(key, run)

    # -- records

    def _look(self, key: str, since: float, scripts: bool = False) -> None:
        self.looks += 1

        entry = self._nics.get(key)

        def job(worker: Worker) -> None:
            if entry and entry.incoming:  # what was owed to its guest is planned when that has arrived
                worker.use(self._todays.usable(self._state.settings))
            result = worker.reconciler.look(key, scripts)
            self._state.metrics.observe("netcommon_event_lag_seconds", self._now() - since)
            self._loop.tell(partial(self._looked, key, since, result))

        sort = SWITCHED if entry and entry.switched else LOOK
        self._put(Key(SCRIPTS if scripts else sort, key), job)

    def _looked(self, key: str, since: float, result: Result) -> None:
        if result.did == OWING:
            self._look(key, since, scripts=True)
        elif result.again:
            self._dirty.again(key, result.again)
        elif result.did == BUSY:
            self._dirty.at_work(key, self._now())
        self.seen(key)
        entry = self._nics.get(key)
        if result.did in (BUSY, FAILURE) and entry and entry.switched:
            self.doubted()
        self.schedule()

    def _survey(self, keys: Mapping[str, float] | None, since: float) -> None:
        """Compares many records, or all, with one snapshot; what does not hold is looked at by itself."""
        self.surveys += 1

        def job(worker: Worker) -> None:
            began, used = self._now(), self._cpu()
            wanting, entries, complete = self._compare(worker, keys)
            spent = Spent(self._now() - began, self._cpu() - used)
            results = self._look_together(worker, wanting)
            left = [key for key in wanting if key not in results]
            self._loop.tell(partial(self._surveyed, keys is None, left, entries, since, spent))
            for key, result in results.items():
                self._state.metrics.observe("netcommon_event_lag_seconds", self._now() - since)
                self._loop.tell(partial(self._looked, key, since, result))
            if not complete:
                self._loop.tell(self._not_surveyed)
            else:
                self._again = AGAIN
            self._trim()

        self._put(Key(SURVEY), job)

    def _compare(self, worker: Worker, keys: Mapping[str, float] | None) -> tuple[list[str], list[Entry], bool]:
        """In a worker's thread: which records want a look of their own, what all are like, and whether all could be looked at.

        Where a service does not answer (a frozen switch), the other NICs of that mode do not wait for it too. What keeps one NIC alone
        from being looked at, and takes no time, keeps no other one. Raises NetcommonError.
        """
        view = worker.node.host.snapshot()
        view.links()
        wanting: list[str] = []
        entries: list[Entry] = []
        dropped: list[Dropped] = []
        known: execute.Known = {}
        waited = defaultdict[str, float](float)  # seconds in vain, by mode
        untold = set[str]()
        since = self._told if keys is None else NEVER
        parse = from_json if keys is None else None  # of all of a large node there is nothing to remember
        for key in worker.reconciler.keys() if keys is None else keys:
            record = worker.reconciler.read(key, parse)
            if record is None or not worker.reconciler.ours(record):
                continue
            entries.append(entry_of(record))
            if record.monotonic > since and record.state == UP and alive(worker.node, view, record):
                run_effects.arrived(worker.node, record, worker.log, view)
            mode, begun = record.nic.mode, self._now()
            if waited[mode] >= IN_VAIN:
                continue
            try:
                wants, counted = worker.reconciler.examine(record, view, known)
            except TryAgain as error:
                waited[mode] += self._now() - begun
                mute = waited[mode] >= IN_VAIN
                if mute or str(error) not in untold:
                    worker.log.warning(f"{f'NICs of mode {mode} are' if mute else f'{record.nic.label} is'} looked at later: {error}")
                untold.add(str(error))
                continue
            except Exception as error:  # an extension of the site's: its NIC alone is looked at by itself, where that is told of it
                tell(worker.log, record.nic.label, error)
                wants, counted = True, []
            wanting += [key] if wants else []
            dropped += counted
        if keys is None:
            self._told = NEVER
            self._count_dropped(dropped)
        return wanting, entries, not untold

    def _look_together(self, worker: Worker, wanting: Sequence[str]) -> dict[str, Result]:
        """In a worker's thread: what became of those that could be mended together; few are sooner done one by one."""
        due = [key for key in wanting if self._repairs.not_before(key) <= self._now()]
        if len(due) <= FEW:
            return {}
        try:
            return worker.reconciler.look_together(due)
        except NetcommonError as error:
            worker.log.warning(f"{len(due)} NICs are looked at one by one: {error}")
        except Exception as error:  # an extension of the site's
            tell(worker.log, f"{len(due)} NICs are looked at one by one", error)
        return {}

    def _not_surveyed(self) -> None:
        """The host could not be read whole: nothing is known, so it is tried again."""
        self._dirty.rested(self._now(), self._again)
        self._dirty.everything(self._now())
        self._again = min(self._again * 2, LATEST)
        self.schedule()

    def _surveyed(self, everything: bool, wanting: Sequence[str], entries: Sequence[Entry], since: float, spent: Spent) -> None:
        now = self._now()
        self._dirty.rested(now, spent.clock)
        if everything:
            self._state.metrics.observe("netcommon_resync_seconds", spent.clock)
            self.burden = spent.cpu if self.synced else 0.0  # the first one reads each record for the first time: that says nothing
            self.synced = now
            known = {entry.key: entry for entry in entries}
            for key in {**known, **dict.fromkeys(self._nics.keys())}:
                if self._nics.get(key) != known.get(key):
                    self.reread(key)  # an event was lost; or it has changed since
            self._repairs.forget(self._nics.__contains__)
        for key in wanting:
            if self._repairs.not_before(key) <= now:
                self._look(key, since)
        self.schedule()

    def _count_dropped(self, dropped: Sequence[Dropped]) -> None:
        metrics = self._state.metrics
        metrics.forget(DROPPED)
        for labels, number in dropped:
            metrics.gauge(DROPPED, number, **labels)

    # -- the node as a whole

    def reap(self) -> None:
        """Runs the reaper when it is due, adopts before that, and asks it again when it has run."""

        def job(worker: Worker) -> None:
            self._state.journal.reaped(self.reaper.run(worker.node, self._call(worker)))
            self._loop.tell(self.reap)
            self._trim()

        def due() -> None:
            self.adopt(None)
            self._put(Key(REAP), job)

        self._loop.after(max(self.reaper.due(self._now()), 0.0), due)

    def _reap_again(self) -> None:
        """Ask the reaper again, of which a run could not begin or failed."""
        self._loop.after(AGAIN, self.reap)

    def sweep_flows(self) -> None:
        """Removes flows of ours that are on no record: those that somebody has restored after their NIC went."""

        def job(worker: Worker) -> None:
            self._state.journal.reaped(restored_flows(worker.node, self._call(worker)))

        self._put(Key(REAP, "flows"), job)

    def adopt(self, instance: str | None) -> None:
        """Adopts NICs without a record of ``instance``, or of all instances."""

        def job(worker: Worker) -> None:
            worker.use(self._todays.usable(self._state.settings))
            call = self._call(worker)
            if not self._filled:
                self._filled = True
                fill(worker.node, call)
            self._adopter.run(worker.node, call, None if instance is None else [instance])

        self._put(Key(ADOPT, instance or ""), job)

    def runtime_written(self, instance: str) -> None:
        """Ganeti has written the runtime file of ``instance``: a NIC that has no record some time after that is adopted."""
        self._loop.after(ADOPT_AFTER, partial(self.adopt, instance))

    # -- options that were changed while a NIC ran

    def options_altered(self, uuid: str) -> None:
        """Sets the timer for the first option that ends by itself: those of this NIC may have changed."""
        self._set_end(partial(self._ends.altered, uuid))

    def _set_end(self, noted: Callable[[], None]) -> None:
        try:
            noted()
            first = self._ends.first()
        except NetcommonError as error:
            tell(self._log, "options that were changed for a while", error)
            return
        if self._end is not None:
            if self._end.when == first:
                return
            self._end.cancel()
        self._end = self._loop.at(first, self.end_due) if first < NEVER else None

    def end_due(self) -> None:
        """Ends what has ended, but of NICs whose end has just failed; then sets the timer for the next."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._ends.begin()

        def job(worker: Worker) -> None:
            if any_changed(worker.node):
                worker.use(self._todays.get(self._state.settings))
            now = moment(worker.node)
            ended = end_due(worker.node, self._call(worker), self._ends.passes(now))
            first = self._ends.attempted(now, {uuid: became for uuid, became in ended if isinstance(became, NetcommonError)})
            if self._ends.problems:
                self._state.alarms.set("ends", f"changed for a while, has ended, and holds still: {'; '.join(self._ends.problems)}")
            else:
                self._state.alarms.clear("ends")
            self._loop.tell(partial(self._set_end, partial(self._ends.ended, first)))

        self._put(Key(ENDS), job)

    def count_differing(self) -> None:
        """Counts the NICs that today's settings would make others; nothing is done about them.

        Each is planned and resolved anew, which takes about a second of CPU for 1,000: too much for whenever somebody asks.
        """

        def job(worker: Worker) -> None:
            worker.use(self._todays.usable(self._state.settings))
            begun = self._now()
            self.differing = Differing(differ(worker.node, worker.node.store.each([])), begun)

        self._put(Key(DIFFERING), job)

    def doors(self, doors: Doors) -> None:
        """Looks if Ganeti calls our doors."""
        self._put(Key(DOORS), lambda worker: doors.look(worker.log))

    def _call(self, worker: Worker) -> Call:
        return Call(worker.log, self._now() + LONGEST, DOOR)

    # -- workers

    def _worker(self) -> Worker:
        state = self._state
        told = state.metrics, state.journal, self.ports, self._frugal
        return Worker(self.open_node, state.settings, state.make_log(), self._repairs, *told)

    def _failed(self, key: Key, error: Exception) -> None:
        """In a worker's thread."""
        tell(self._log, " ".join(key), error)
        if key.sort in OF_RECORDS:
            when = self._repairs.failed(key.name, longest=BRIEFLY if isinstance(error, TryAgain) else LAST)
            self._loop.tell(partial(self._dirty.again, key.name, when))
            if key.sort == SWITCHED:
                self._loop.tell(self.doubted)
            self._loop.tell(self.schedule)
        elif key.sort in (TOLD, ASKED, UNDERLAY, ENDPOINTS) or key == REGISTRYS:
            self._loop.tell(partial(self.unworked, key, error))
        elif key == Key(SURVEY):
            self._loop.tell(self._not_surveyed)
        elif key == Key(REAP):
            self._loop.tell(self._reap_again)


def _opened(state: State, settings: Settings, **given: Any) -> Node:
    return open_node(state.paths, settings, state.clock, **given)


def tell(log: Log, what: str, error: Exception) -> None:
    """Logs an error; of one that we did not foresee the place too."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""
    log.error(f"{what}: {error}" if isinstance(error, NetcommonError) else f"{what}: {type(error).__name__}: {error} ({place})")
