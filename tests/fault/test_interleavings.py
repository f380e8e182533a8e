"""Sixteen calls at once on three NICs and three taps, in thousands of orders: as if one had come after the other, in the order in which
they had their locks; and nobody waits for ever.

Up, down, migration, gc and repair on a simulated host, where a scheduler decides at every question to the host, request, file operation
and wait who goes on (tests/support/interleave.py). After each burst the same calls are made one after the other on a copy of the machine
as it was, and the two must be the same: host, records, links, owners.
"""

from __future__ import annotations

import copy
import multiprocessing
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from random import Random
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from netcommon.lifecycle import change, check, down, gc, up
from netcommon.lifecycle import execute as steps
from netcommon.lifecycle.context import DEVICE_GONE, START, Call, Node
from netcommon.operations.base import ABSENT, OURS
from runtime import wanted
from runtime.environment import DownHint
from runtime.errors import NetcommonError, TryAgain
from runtime.names import file_name
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import CHANGING
from tests.support import figures
from tests.support.interleave import Ended, Scheduler, process
from tests.support.sample import FULL, drawn
from tests.support.sim import MODES, UUIDS, Killed, Sim, nic, plain

WORKERS = 16
BURSTS = 8  #: of one history: one with ten may be more than Hypothesis draws for one (0.8 of its buffer), and end early
HISTORIES = drawn(7, 64, 625)
PARTS = HISTORIES // 25 or 1  #: of the histories, each with a seed of its own
SECONDS = 30.0  #: a call's limit, by the simulated clock
TAPS = ("tap0", "tap1", "tap2")
KINDS = sorted(mode for mode in MODES if mode != "routed, prefix")


class Step(NamedTuple):
    """One call, or something that happens to a tap."""

    what: str  #: "up", "down", "down by device", "gc", "repair", "change", "plug", "unplug"
    number: int = 0  #: of the NIC
    tap: str = "tap0"
    mode: str = "bridged"  #: of a change: OPTION=VALUE, or the name of an option that is unset
    context: str = "hot-remove"
    phase: str = ""


OPTIONS = ("allow_ip_spoofing=yes", "allow_ip_spoofing", "rate_in=8mbit", "isolated=yes", "isolated", "spoof_guard=no", "spoof_guard")
NUMBERS, NAMES = st.integers(0, 2), st.sampled_from(TAPS)
CONTEXTS = st.sampled_from(["shutdown", "hot-remove", "migrate", "migrate-failed"])
NOTHING = st.just("")
PHASES = st.sampled_from(["", "", "pre", "post"])
CALLS = st.one_of(
    st.builds(Step, st.just("up"), NUMBERS, NAMES, st.sampled_from(KINDS), NOTHING, PHASES),
    st.builds(Step, st.just("up"), NUMBERS, NAMES, st.sampled_from(KINDS), NOTHING, PHASES),
    st.builds(Step, st.just("down"), NUMBERS, st.one_of(NOTHING, NAMES), NOTHING, CONTEXTS, NOTHING),
    st.builds(Step, st.just("down by device"), NUMBERS, NAMES, NOTHING, CONTEXTS, NOTHING),
    st.builds(Step, st.sampled_from(["gc", "repair"]), NUMBERS, NOTHING, NOTHING, NOTHING, NOTHING),
    st.builds(Step, st.just("change"), NUMBERS, NOTHING, st.sampled_from(OPTIONS), NOTHING, NOTHING),
)
EVENTS = st.builds(Step, st.sampled_from(["plug", "unplug"]), NUMBERS, NAMES, NOTHING, NOTHING, NOTHING)
SEEDS = st.integers(0, 2**32)
CHANGES = st.sampled_from([0, 1, 3, 10, 40])  #: how the scheduler draws

#: What was seen, for the figures: bursts, switches, errors, witnesses.
SEEN: Counter[str] = Counter()


def the_nic(step: Step) -> Nic:
    """Each NIC has an address of its own, and all routed ones share the table."""
    changes = {
        "INTERFACE_UUID": UUIDS[step.number],
        "INTERFACE": step.tap,
        "INTERFACE_INDEX": str(step.number),
        "MAC": f"aa:00:00:00:00:0{step.number + 1}",
    }
    if MODES[step.mode]["MODE"] == "routed":
        changes["IP"] = f"fd00::{step.number}" if "IPv6" in step.mode else f"10.0.0.{step.number + 1}"
    if tags := MODES[step.mode].get("TAGS"):
        for shared, own in (("10.0.0.6", "10.0.1.{}"), ("fd00::5", "fd00::5{}"), ("10.9.0.0", "10.9.{}.0"), ("fd02::", "fd02:{}::")):
            tags = tags.replace(shared, own.format(step.number))
        changes["TAGS"] = tags.replace("netcommon:0:", f"netcommon:{step.number}:")
    return nic(step.mode, **changes)


def carry_out(sim: Sim, node: Node, step: Step) -> Any:
    """The call as a door would make it."""
    call = Call(sim.log, node.clock.now() + SECONDS, "test", step.context or START, step.phase)
    if step.what == "up":
        return up.up(node, the_nic(step), call._replace(context=START))
    if step.what == "down":
        return down.down(node, DownHint(UUIDS[step.number], step.tap, "web1", step.number), call)
    if step.what == "down by device":
        return down.down(node, DownHint(device=step.tap), call)
    if step.what == "change":
        option, equals, value = step.mode.partition("=")
        edit = change.setting(node, {option: value} if equals else {}, () if equals else (option,))
        return change.change(node, UUIDS[step.number], call, edit)
    if step.what == "repair":
        return check.repair(node, UUIDS[step.number], call)
    if step.what == "gc":
        return gc.gc(node, call._replace(context=DEVICE_GONE))
    if step.what == "plug" and sim.index(step.tap) < 0:
        sim.tap(step.tap)
    if step.what == "unplug":
        sim.host.remove_link(step.tap)
    return None


class Machine:
    """A simulated machine and its folder."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.sim = Sim(self.folder.name)

    def copy(self) -> Machine:
        """Another one in the same state, which has forgotten how it came there."""
        self.sim.host.requests.clear()
        self.sim.host.changes.clear()
        self.sim.lines.clear()
        made = copy.copy(self)
        made.folder = tempfile.TemporaryDirectory()
        shutil.copytree(self.folder.name, made.folder.name, symlinks=True, dirs_exist_ok=True)
        made.sim = copy.copy(self.sim)
        made.sim.host = copy.deepcopy(self.sim.host)
        made.sim.paths = Paths.under(made.folder.name)
        made.sim._store = None
        return made

    def close(self) -> None:
        if self.sim._store is not None:
            self.sim._store.close()
        self.folder.cleanup()

    def state(self) -> dict[str, Any]:
        """All that the calls have left, on the host and in files."""
        sim = self.sim
        picture = sim.picture()
        picture["rules"] = sorted(picture["rules"])
        node = sim.node
        links = {tap: record.key for tap in TAPS if (record := node.store.by_device(tap)) is not None}
        found = sim.records()
        records = {record.key: {**plain(record), "operations": list(map(known, record.operations))} for record in found}
        # a killed hook may have left links of owners that own nothing, and who goes by such a key removes them: they say nothing
        owned = {f"owners/{file_name(key)}/{one.key}" for one in found for key in steps.keys_of(steps.decode(one)[0])}
        files = [name for name in sim.files() if not name.startswith("owners/") or name in owned]
        kept = wanted.all_of(sim.paths, [])
        return {**picture, "state directory": files, "by device": links, "records": records, "options": kept}


def known(operation: Mapping[str, object]) -> dict[str, object]:
    """An operation as recorded; whether its NIC was the first or a later one of ours to need the thing is for nobody to know.

    ``now`` says it of a table of nftables, which a gc that was at work meanwhile may have left for the next one.
    """
    there = {"now": True} if type(operation.get("now")) is bool else {}
    return {**operation, **there, "found": ABSENT if operation.get("found") == OURS else operation.get("found")}


class Bursts(RuleBasedStateMachine):
    """A machine that goes from burst to burst."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[tuple[Ended, Step]] = []
        self.machine = Machine()
        self.sim = self.machine.sim
        self.sim.host.remove_link("tap0")
        self.before = self.sim.picture()
        for tap in TAPS:
            self.sim.tap(tap)

    def teardown(self) -> None:
        for tap in TAPS:
            self.sim.host.remove_link(tap)
        self.sim.gc()
        after, files = self.sim.picture(), self.sim.files()
        self.machine.close()
        assert after == self.before
        assert files == []

    @rule(steps=st.lists(CALLS, min_size=WORKERS, max_size=WORKERS), seed=SEEDS, changes=CHANGES)
    def calls_alone(self, steps: list[Step], seed: int, changes: int) -> None:
        """The taps stay as they are."""
        self.burst(steps, seed, changes)

    @rule(steps=st.lists(CALLS, min_size=WORKERS, max_size=WORKERS), seed=SEEDS, changes=CHANGES)
    def calls_again(self, steps: list[Step], seed: int, changes: int) -> None:
        """So that most bursts are of this kind."""
        self.burst(steps, seed, changes)

    @rule(steps=st.lists(st.one_of(CALLS, CALLS, CALLS, EVENTS), min_size=WORKERS, max_size=WORKERS), seed=SEEDS, changes=CHANGES)
    def calls_and_taps_that_come_and_go(self, steps: list[Step], seed: int, changes: int) -> None:
        self.burst(steps, seed, changes)

    @rule(
        steps=st.lists(st.one_of(CALLS, CALLS, CALLS, EVENTS), min_size=WORKERS, max_size=WORKERS),
        lives=st.lists(st.one_of(st.none(), st.integers(0, 150)), min_size=WORKERS, max_size=WORKERS),
        seed=SEEDS,
        changes=CHANGES,
    )
    def calls_some_of_which_are_killed(self, steps: list[Step], lives: list[int | None], seed: int, changes: int) -> None:
        """One gc, and every NIC is whole or gone."""
        lives = [None if step.what in ("plug", "unplug") else life for step, life in zip(steps, lives, strict=True)]
        self.run(steps, seed, changes, lives)
        self.sim.gc()
        self.whole()
        self.plugged()

    def burst(self, steps: list[Step], seed: int, changes: int) -> None:
        """All at once; then each NIC is whole or gone, and where the taps stayed it is what the same calls in a row would have left."""
        before = self.machine.copy()
        try:
            ended = self.run(steps, seed, changes)
            self.sim.gc()
            self.whole()
            if all(step.what not in ("plug", "unplug") for step in steps):  # locks keep no tap from going: there is no one order then
                self.compare(before, steps, ended)
        finally:
            before.close()
        self.plugged()

    def run(self, steps: list[Step], seed: int, changes: int, lives: list[int | None] | None = None) -> list[Ended]:
        scheduler = Scheduler(Random(seed), changes)

        def called(step: Step) -> Callable[[], Any]:
            def call() -> Any:
                scheduler.step("start")
                with process(self.sim, scheduler) as node:
                    return carry_out(self.sim, node, step)

            return call

        with scheduler.files():
            ended = scheduler.run([called(step) for step in steps], lives or ())
        SEEN["interleavings"] += 1
        SEEN["calls"] += len(steps)
        SEEN["switches"] += scheduler.switches
        self.last = sorted(zip(ended, steps, strict=True), key=lambda pair: pair[0].point)
        for step, one in zip(steps, ended, strict=True):
            if one.error is None:
                continue
            SEEN[type(one.error).__name__] += 1
            assert isinstance(one.error, NetcommonError | Killed), (step, one.error)
            assert not (isinstance(one.error, TryAgain) and "lock" in str(one.error)), f"a deadlock, or starved: {step}: {one.error}"
            assert one.ended - one.began < SECONDS, f"{step} took {one.ended - one.began:g} s"
        return ended

    def whole(self) -> None:
        """Nothing of any NIC is half there, and what is not ours is as it was."""
        node = self.sim.node
        for record in self.sim.records():
            if record.state == CHANGING:  # its hook was killed: the next repair brings it back
                check.repair(node, record.key, self.sim.call())
        view = self.sim.host.view()
        for record in self.sim.records():
            report = check.check(node, view, record)
            # one that is closing waits for its device; the NIC itself may have come up on another, with its routes, since
            good = report.alive and (record.state == "closing" or (record.state == "up" and not report.drift))
            assert good, f"{record.key} {record.state} {record.nic.mode} {report.drift}\n{self.told()}"
        assert [name for name in self.sim.files() if ".netcommon-tmp-" in name or name.startswith("quarantine/")] == []
        kernel = self.sim.host.kernel
        for kind in ("rules", "routes", "neighbours"):
            ours = [thing for thing in getattr(kernel, kind) if thing.protocol != 174]
            assert sorted(ours) == sorted(self.before[kind])

    def told(self) -> str:
        """The last burst, in the order of the locks."""
        return "\n".join(f"{one.began:.4f} {one.point:.4f} {one.ended:.4f} {step} -> {one.result or one.error}" for one, step in self.last)

    def plugged(self) -> None:
        """The next burst has all taps."""
        for tap in TAPS:
            if self.sim.index(tap) < 0:
                self.sim.tap(tap)

    def compare(self, before: Machine, made: list[Step], ended: list[Ended]) -> None:
        here = self.machine.state()
        best: list[str] = []
        candidates = list(orders(made, ended))
        for count, order in enumerate(candidates):
            there = serial(before if len(candidates) == 1 else before.copy(), order, ended)
            if there == here:
                SEEN[f"witness {min(count, 1)}"] += 1
                return
            text = differences(there, here)
            if not best or len(text) < len(best):
                best = [*(f"{way}: {step} -> {ended[place][:2]}" for place, step, way in order), *text]
        raise AssertionError("no order of the calls leaves this:\n" + "\n".join(best))


#: A call in a serial order: its place among the steps, the step, and the way it went.
Placed = tuple[int, Step, str]


def orders(steps: list[Step], ended: list[Ended]) -> Iterator[list[Placed]]:
    """Serial orders that may explain what was left, the likeliest first: by when each call had the last of its locks.

    A call that failed is "undone" (what it did was reverted) or "refused" (it did nothing); a change that failed has done nothing. One may
    have seen its device as that was before it had all of its locks, which keep no tap from coming and going.
    """
    unchanged = [place for place, one in enumerate(ended) if one.error is not None and steps[place].what == "change"]
    failed = [place for place, one in enumerate(ended) if one.error is not None and place not in unchanged][:6]
    events = [one.point for step, one in zip(steps, ended, strict=True) if step.what in ("plug", "unplug")]
    early = [place for place, one in enumerate(ended) if any(one.early <= event < one.point for event in events)][:4]
    for ways, looks in product(product(("undone", "refused"), repeat=len(failed)), product((False, True), repeat=len(early))):
        chosen = {**dict.fromkeys(unchanged, "refused"), **dict(zip(failed, ways, strict=True))}
        points = [one.point for one in ended]
        for place, look in zip(early, looks, strict=True):
            points[place] = ended[place].early if look else points[place]
        places = [place for _point, place in sorted((point, place) for place, point in enumerate(points))]
        yield [(place, steps[place], chosen.get(place, "done")) for place in places if steps[place].what != "gc"]


def serial(machine: Machine, order: list[Placed], ended: list[Ended]) -> dict[str, Any]:
    """What is left when the calls are made on ``machine`` one after the other."""
    sim = machine.sim
    try:
        for place, step, way in order:
            if way == "refused":
                continue
            if step.what.startswith("down") and idle(ended[place]):
                down.left(sim.node, whose(step, ended[place]), Call(sim.log, sim.node.clock.now() + SECONDS, "test", step.context))
                continue
            try:
                carry_out(sim, sim.node, step)
            except NetcommonError:
                continue
            if way == "undone":
                carry_out(sim, sim.node, step._replace(what="down", tap="", context="hot-remove"))
        sim.gc()
        return machine.state()
    finally:
        machine.close()


def idle(one: Ended) -> bool:
    """Whether the call found nothing to undo: the NIC that it meant when it began was not there then, or not any more."""
    return one.error is None and not one.result.changed and ("nothing to undo" in one.result.text or "down already" in one.result.text)


def whose(step: Step, one: Ended) -> str:
    """The UUID of the NIC that was not there, "" where the call did not tell: what was changed of one that leaves is forgotten then too."""
    label, slash, rest = one.result.text.partition("/")
    if slash and label == "web1":
        return UUIDS[int(rest.split()[0])]
    return UUIDS[step.number] if step.what == "down" else ""


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """What differs, one line each."""
    if one == other:
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        return [line for key in {**one, **other} for line in differences(one.get(key), other.get(key), f"{where}/{key}")]
    return [f"{where}: {other} instead of {one}"]


def explore(part: int) -> tuple[Counter[str], str]:
    """Goes through one part of the histories, always the same ones: what was seen, and the failure, if there is one."""
    from netcommon import templates

    SEEN.clear()

    # one hook reads a template once; thousands of them need not compile it each time
    environment = templates._environment(lambda name: templates.read(name, "/nowhere"))
    before = templates._environment
    vars(templates)["_environment"] = lambda _source: environment
    try:
        run_state_machine_as_test(
            seed(part)(Bursts),
            settings=settings(
                max_examples=HISTORIES // PARTS,
                stateful_step_count=BURSTS,
                deadline=None,
                phases=[Phase.generate],  # what is found is told by its seed: making it smaller takes minutes
                report_multiple_bugs=False,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:
        return SEEN, f"part {part}: {type(error).__name__}: {error}\n" + "\n".join(getattr(error, "__notes__", ()))
    finally:
        vars(templates)["_environment"] = before
    return SEEN, ""


def test_bursts() -> None:
    """Eight bursts of sixteen calls a history; in a full run by two processes."""
    if FULL:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            parts = list(pool.map(explore, range(PARTS)))
    else:
        parts = list(map(explore, range(PARTS)))
    seen = sum((part for part, _failure in parts), Counter[str]())
    failures = [failure for _part, failure in parts if failure]
    print(dict(seen))
    note = f"{seen['calls']:,} calls on the simulated host, {seen['switches']:,} switches between them"
    figures.add("interleavings", seen["interleavings"], len(failures), len(failures), note)
    assert not failures, "\n".join(failures)
    assert seen["interleavings"] >= HISTORIES * BURSTS and seen["switches"] > seen["calls"]
