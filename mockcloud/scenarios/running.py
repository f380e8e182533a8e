"""Run a scenario on a cloud: tasks one after the other, faults whenever they are due, also in the middle of a task; then look at all of it.

Everything by chance comes from the seed.
"""

from __future__ import annotations

import gc
import os
import re
import time
import weakref
from collections import deque
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from random import Random
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from mockcloud import in_underlay, stored, sysinfo
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances.table import TASKS, perform
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import always, settled, told, unquiet
from mockcloud.replaced.process import Lines
from mockcloud.scenarios.faults import FAULTS, Faults
from mockcloud.scenarios.log import Log
from mockcloud.scenarios.mending import mend
from mockcloud.underlay import led, set_up
from netagent.dispatcher import tell
from netregistry.client import Problem
from runtime.errors import NetcommonError
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mockcloud.scenarios.file import Scenario, Step

BEGIN = 30.0  #: seconds until all nodes are in step at the beginning
LOOK = 1.0  #: seconds between two looks at what must always be so
SHARE = 10  #: what a registry in another process lists is asked for in one part in so many of the time
QUIET, CALM = 300.0, 2.0  #: seconds until all is quiet at the end, and between two looks at that
ARRIVED = 5.0  #: seconds until what is on its way to a node is there, where the registry is not slow
UNHEARD = {"events", "disk"}  #: faults after which a node does not know what has happened before it compares all
COUNTED = 3600.0  #: seconds for which a number of actions is waited for
EVERY = 0.05  #: seconds from one look at that number to the next
MOST = 100  #: violations that are kept
#: In a line of a log: an error that nobody foresaw, whether its place is said or not. What was foreseen is no *Error of Python's.
UNFORESEEN = re.compile(r"\b([A-Z]\w*Error|StopIteration|Exception):( |$)|\b[A-Za-z]+: .* \([a-z_]+\.py:[0-9]+\)$", re.ASCII | re.DOTALL)


class Violation(NamedTuple):
    """Something that must not be. ``at``: seconds after the beginning; ``when``: always, commit, error, quiet, settled or end."""

    at: float
    when: str
    text: str


class Outcome(NamedTuple):
    """One task or fault, or what was done about one. ``at``: seconds after the beginning."""

    at: float
    text: str


class Result(NamedTuple):
    """Say what a run came to. ``sha256``, ``lines``: of its log; ``seconds``: of virtual time; ``actions``: of nodes."""

    seed: int
    sha256: str
    lines: int
    seconds: float
    actions: int
    outcomes: tuple[Outcome, ...]
    violations: tuple[Violation, ...]


class Violated(Exception):
    """Tell that what must not be is: the run need not go on."""


def play(scenario: Scenario, root: str, seed: int, file: IO[str] | None = None, hasty: bool = False) -> Result:
    """Make a cloud in the folder ``root``, and run a scenario on it. ``file``: for the log; ``hasty``: end at the first violation.

    Raises HostRefused, and what a task of a cloud that begins raises.
    """
    opened = _descriptors()
    cloud = MockCloud(root, seed, scenario.profile, f"etcd:{scenario.etcd}" if scenario.etcd else "")
    log = Log(file, cloud.root)
    run = Run(cloud, scenario.steps, seed, hasty, log)
    try:
        run.through(partial(run.prepare, scenario), partial(run.all, scenario.settle))
    finally:
        run.through(cloud.close)
    result, left = run.result(), run.left
    del run, cloud
    return result._replace(violations=(*result.violations, *_left(result.seconds, left, opened)))


def strike(cloud: MockCloud, steps: Iterable[Step], seed: int, settle: float) -> Result:
    """Run steps on a cloud that is there, all of whose nodes take part. Raises HostRefused; why a fault cannot be, where none can."""
    run = Run(cloud, tuple(steps), seed, False, Log(root=cloud.root))
    try:
        run.through(run.begin, partial(run.all, settle, True))
        return run.result()
    finally:
        run.end()


def _descriptors() -> list[str]:
    return sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{name}"))


def _left(at: float, left: Iterable[weakref.ref[Any]], opened: list[str]) -> Iterable[Violation]:
    """Say what is not given back: descriptors, and nodes with all that they have in memory."""
    gc.collect()
    if number := sum(each() is not None for each in left):
        yield Violation(at, "end", f"{number} nodes, agents and hosts are in memory still")
    if more := len(_descriptors()) - len(opened):
        yield Violation(at, "end", f"{more} descriptors are open still")


class Run:
    """One run. ``hasty``: it ends at the first violation; ``log``: takes in all that nodes and registry do."""

    def __init__(self, cloud: MockCloud, steps: tuple[Step, ...], seed: int, hasty: bool, log: Log) -> None:
        self.cloud, self._steps, self._seed, self._hasty = cloud, steps, seed, hasty
        self._log = log
        cloud.hear = self._hear
        self._chance = Random(f"scenario {seed}")  # of a text: no PYTHONHASHSEED has a say in it
        self._scheduler = cloud.scheduler
        self._began, self._first = self._scheduler.now, self._scheduler.steps
        self.outcomes: list[Outcome] = []
        self.violations: dict[tuple[str, str], Violation] = {}
        self._faults = Faults(cloud, self._note)
        self._commits = Commits(lambda: cloud.registry.now, partial(led, cloud))
        self._loop = self._scheduler.loop()
        self._coming: list[Step] = []  # faults that strike when so many actions were run
        self._timed = 0  # faults at a time that have not struck yet
        self._listed = 0.0  # monotonic seconds before which a registry in another process is not listed again
        self._over = 0.0  # when the last fault that has struck is over
        self.left: list[weakref.ref[Any]] = []

    def through(self, *parts: Callable[[], object]) -> None:
        """Do the parts of it, up to where a hasty one ends. An error that nobody foresaw ends it too, and is what must not be.

        Raises NetcommonError.
        """
        try:
            for part in parts:
                part()
        except Violated:
            pass
        except NetcommonError:
            raise
        except Exception as error:
            tell(Lines(self._hear_of).make(), "the run has ended", error)

    # -- the beginning

    def prepare(self, scenario: Scenario) -> None:
        """Make the nodes and networks. Raises HostRefused, Problem."""
        for one in self.cloud.create(scenario.nodes):
            if scenario.settings:
                with Folder.make(f"{self.cloud.root}/{sysinfo.SERVERS}/{one.uuid}/etc/netcommon") as folder:
                    folder.write("config.toml", scenario.settings.encode("utf-8"), 0o644)
        for name, fields in scenario.networks.items():
            self.cloud.network(name, fields)
        if scenario.underlay:
            set_up(self.cloud, scenario.underlay)
        self.begin()

    def begin(self) -> None:
        """Start all agents. Raises HostRefused, TryAgain."""
        self.cloud.ready([each.uuid for each in sysinfo.look(self.cloud.root).nodes], BEGIN)
        if not self.cloud.service:
            self.cloud.own.listen(lambda registry: self._commits.begin(registry.items()))
        self._began, self._first = self._scheduler.now, self._scheduler.steps
        self._look()

    # -- the steps

    def all(self, settle: float, certain: bool = False) -> None:
        """Run all steps; then let faults end and all become quiet, and look at it. Raises Violated.

        ``certain``: raise why faults cannot be, where none of those at a time can: nothing was tried; and at the end, where nothing else
        is wrong, what of them could not be done.
        """
        for each in self._steps:
            if each.is_fault and each.step:
                self._coming.append(each)
                self._scheduler.counted(self._first + each.step, partial(self._strike, each))
            elif each.is_fault:
                self._timed += 1
                self._loop.at(self._began + each.at, partial(self._strike, each))
        tasks = [each for each in self._steps if not each.is_fault]
        timed = deque(sorted((each for each in tasks if not each.step), key=lambda each: each.at))
        counted = deque(sorted((each for each in tasks if each.step), key=lambda each: each.step))
        while step := self._next(timed, counted):
            self._do(step)
            self._check()
        self._at_their_time(max((step.at for step in self._steps if step.is_fault and not step.step), default=0.0))
        if certain and self._faults.impossible and not self._faults.begun:
            raise self._faults.impossible[0]
        self._struck()
        self._quieten(settle)
        if certain and self._faults.half and not self.violations:
            raise self._faults.half[0]

    def _next(self, timed: deque[Step], counted: deque[Step]) -> Step | None:
        """Let time pass until a task is due, and give it: of those at a time and those at a number of actions the one that is due first."""
        end = self._scheduler.now + COUNTED
        while timed or counted:
            if counted and self._scheduler.steps >= self._first + counted[0].step:
                return counted.popleft()
            due = self._began + timed[0].at if timed else end
            if timed and self._scheduler.now >= due:
                return timed.popleft()
            if not timed and self._scheduler.now >= end:
                self._never(counted)
                return None
            self._scheduler.until(min(due, self._scheduler.now + EVERY) if counted else due)
        return None

    def _at_their_time(self, last: float) -> None:
        """Let time pass until all faults at a time have struck. ``last``: when the last of them does, or later by a real clock."""
        self._scheduler.until(max(self._began + last, self._scheduler.now))
        while self._timed:
            self._scheduler.passes(EVERY)

    def _struck(self) -> None:
        """Let time pass until all faults have struck that are going to, and are over."""
        end = self._scheduler.now + COUNTED
        while self._coming and self._scheduler.now < end:
            self._scheduler.passes(LOOK)
        left, self._coming = self._coming, []
        self._never(left)
        self._scheduler.until(max(self._over, self._scheduler.now))

    def _never(self, steps: Iterable[Step]) -> None:
        """Say which steps do not come."""
        for step in steps:
            self._note(f"{step.what} at step {step.step} does not come: there were {self._scheduler.steps - self._first} in {COUNTED:g} s")

    def _strike(self, step: Step) -> None:
        if step.step:
            if step not in self._coming:
                return  # it was waited for long enough
            self._coming.remove(step)
        else:
            self._timed -= 1
        fault = FAULTS[step.what]
        nodes = [each.uuid for each in sysinfo.look(self.cloud.root).nodes if fnmatchcase(each.hostname, step.nodes)]
        if fault.of_node and not nodes:
            self._note(f"{step.what} of {step.nodes}: no node is called so")
        self._over = max(self._over, self._scheduler.now + (step.lasts if fault.ends else 0.0))
        self._faults.strike(step.what, self._drawn(step, nodes), step.given, step.lasts)

    def _drawn(self, step: Step, given: list[str]) -> list[str]:
        """Choose of what matches by chance."""
        found = [each for each in given if step.chance >= 1.0 or self._chance.random() < step.chance]
        return sorted(self._chance.sample(found, step.number), key=found.index) if 0 < step.number < len(found) else found

    def _do(self, step: Step) -> None:
        """Do a task, to each instance that its name stands for."""
        for name in self._names(step):
            given = {**step.given, "name": name}
            try:
                if "node" in TASKS[step.what].takes:
                    given["node"] = self._node(given.get("node", ""), name)
                text = f"{step.what} {name}{' to ' + given['node'] if 'node' in given else ''}"
                perform(self.cloud, step.what, given)
            except (NetcommonError, Problem) as error:
                text = f"{step.what} {name}: {error}"
            except Exception as error:  # of the mock cloud's own, or of a hook's
                text = f"{step.what} {name}: {type(error).__name__}: {error}"
                self._violated("error", text)
            self._note(text)
            self.cloud.log.clear()

    def _names(self, step: Step) -> list[str]:
        name = step.given.get("name", "")
        if not set(name) & set("*?["):
            return [name]
        here = {each.uuid for each in sysinfo.look(self.cloud.root).nodes if fnmatchcase(each.hostname, step.nodes)}
        found = [each.vm.name for each in Instances(self.cloud).all()[0] if fnmatchcase(each.vm.name, name) and each.node in here]
        if not found:
            self._note(f"{step.what} {name}: no instance is called so on {step.nodes}")
        return self._drawn(step, found)

    def _node(self, pattern: str, name: str) -> str:
        """Draw one of the nodes that match; where others do, not the one that the instance is on."""
        known = [each for each in sysinfo.look(self.cloud.root).nodes if fnmatchcase(each.hostname, pattern) or each.uuid == pattern]
        places = stored.everywhere(self.cloud.root).get(stored.vm_uuid(name), [])
        others = [each for each in known if each.uuid not in places] or known
        return self._chance.choice(others).hostname if others else pattern

    # -- the end

    def _quieten(self, settle: float) -> None:
        self._faults.end()
        self._scheduler.passes(ARRIVED + max((step.given.get("seconds", 0.0) for step in self._steps if step.what == "slow"), default=0.0))
        self._calm()
        if not (self.cloud.restored or {step.what for step in self._steps} & UNHEARD):
            for text in told(self.cloud):
                self._violated("quiet", text)
        self._check()
        mend(self.cloud, self._note)
        self._scheduler.passes(settle)
        self._calm()
        self._check()
        if self.cloud.service:
            self._list()
        for text in (*settled(self.cloud, self._commits), *in_underlay.settled(self.cloud, self._commits.underlay)):
            self._violated("settled", text)
        if self._hasty and self.violations:
            raise Violated

    def _calm(self) -> None:
        """Let time pass until all is quiet, or it does not become so."""
        end = self._scheduler.now + QUIET
        while self._unquiet() and self._scheduler.now < end:
            self._scheduler.passes(CALM)
            self._check()

    def _unquiet(self) -> bool:
        try:
            return bool(unquiet(self.cloud))
        except NetcommonError:  # the service of a registry, or its etcd, has not come back yet
            return True

    # -- looking

    def _look(self) -> None:
        self._loop.after(LOOK, self._look)
        for text in (*always(self.cloud), *in_underlay.always(self.cloud, self._commits.underlay)):
            self._violated("always", text)
        if self.cloud.service and time.monotonic() >= self._listed:
            self._list()
        self._log.flush()

    def _list(self) -> None:
        """Look at what a registry in another process lists; the next time so much later that the nodes have most of the time."""
        begun = time.monotonic()
        with suppress(NetcommonError):  # it may be away, or its etcd
            self._commits.look(self.cloud.registry.client())
        self._listed = time.monotonic() + SHARE * (time.monotonic() - begun)

    def _check(self) -> None:
        self._log.flush()
        for text in self._commits.found:
            self._violated("commit", text)
        self._commits.found.clear()
        known = {id(each()) for each in self.left}
        for machine in self.cloud.nodes.values():
            self.left += [weakref.ref(each) for each in (machine, machine.agent, machine.machine) if id(each) not in known]
        if self._hasty and self.violations:
            raise Violated

    def _violated(self, when: str, text: str) -> None:
        if len(self.violations) < MOST and (when, text) not in self.violations:
            self.violations[when, text] = Violation(self._now, when, text)
            self._log.add(f"{self._scheduler.now:.6f} violation {when}: {text}")

    @property
    def _now(self) -> float:
        return round(self._scheduler.now - self._began, 3)

    def _note(self, text: str) -> None:
        self.outcomes.append(Outcome(self._now, text))
        self._log.add(f"{self._scheduler.now:.6f} scenario {text}")

    def _hear_of(self, text: str) -> None:
        self._hear(f"{self._scheduler.now:.6f} scenario {text}")

    def _hear(self, line: str) -> None:
        self._log.add(line)
        if UNFORESEEN.search(line):
            self._violated("error", line.split(" ", 1)[1])

    def end(self) -> None:
        """Look no more: the cloud may go on."""
        self._faults.end()
        self._loop.close()
        self._commits.end()
        self.cloud.hear = lambda _line: None
        if not self.cloud.service:
            self.cloud.own.listen(None)

    def result(self) -> Result:
        """Give what it came to so far. Raises Unwritten."""
        self._log.flush()
        actions = self._scheduler.steps - self._first
        return Result(
            self._seed, self._log.sha256, self._log.lines, self._now, actions, tuple(self.outcomes), tuple(self.violations.values())
        )
