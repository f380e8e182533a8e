"""A day of random operations, compressed, on a simulated host; and thousands of them on the real kernel, under the agent.

Nothing is left behind, and nothing grows: memory, descriptors, files, objects of the kernel.
"""

from __future__ import annotations

import gc as collector
import os
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from netcommon.lifecycle import check
from netcommon.lifecycle.context import HOT_REMOVE, MIGRATE, SHUTDOWN
from runtime.environment import DownHint
from runtime.errors import NetcommonError
from tests.fault.test_interleavings import KINDS, Step, the_nic
from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.agent import MOST_NODES, NODE_DESCRIPTORS, Agent, agent
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS
from tests.support.sample import FULL
from tests.support.sim import UUIDS, Sim
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

HOUR = 3600.0
HOURS = 24
PAUSE = 10.0 if FULL else 600.0  #: of the simulated clock, between two operations on average (seconds)
TAPS = tuple(f"tap{number}" for number in range(6))

#: Operations under the agent, and how many rests there are to measure at.
OPERATIONS, RESTS = (6_000, 12) if FULL else (160, 4)
#: Bytes of memory that the allocator may take for itself. In the first 1,500 operations it takes 10 MB, from then on hardly any: a sample
#: ends amid that, and a full run compares its end with what there was after 2,500.
GROWTH = (4 if FULL else 8) << 20


class Day:
    """A simulated machine whose clock runs as its operations do."""

    def __init__(self, folder: str, seed: int) -> None:
        self.sim = Sim(folder)
        self.random = Random(seed)
        self.started = self.now = self.sim.wall
        self.done: Counter[str] = Counter()
        self.boots = 1
        self.sim.host.remove_link("tap0")
        self.before = self.sim.picture()

    def warm_up(self) -> None:
        """Each kind of NIC once: what is loaded when first needed is there."""
        self.sim.tap("tap0")
        for kind in KINDS:
            for phase in ("pre", "post"):
                self.sim.up(the_nic(Step("up", 0, "tap0", kind)), phase=phase)
        check.repair(self.sim.node, UUIDS[0], self.sim.call())
        self.rest()

    def step(self) -> None:
        """One operation of somebody, some time after the last."""
        sim, random = self.sim, self.random
        self.now += random.expovariate(1 / PAUSE)
        sim.wall = max(sim.wall, self.now)
        number, tap = random.randrange(6), random.choice(TAPS)
        what = random.choice(["up"] * 6 + ["down"] * 3 + ["unplug", "plug", "plug", "gc", "repair"])
        what = "reboot" if random.random() < 0.002 else what
        self.done[what] += 1
        try:
            if what == "up":
                step = Step("up", number, tap, random.choice(KINDS))
                sim.up(the_nic(step), phase=random.choice(["", "", "pre", "post"]))
            elif what == "down":
                sim.down(DownHint(UUIDS[number], tap, "web1", number), random.choice([HOT_REMOVE, MIGRATE, SHUTDOWN]))
            elif what == "plug" and sim.index(tap) < 0:
                sim.tap(tap)
            elif what == "unplug":
                sim.host.remove_link(tap)
            elif what == "gc":
                sim.gc()
            elif what == "repair":
                check.repair(sim.node, UUIDS[number], sim.call())
            elif what == "reboot":
                self.boots += 1
                sim.reboot(f"boot-{self.boots}")
        except NetcommonError as error:
            self.done[type(error).__name__] += 1
        sim.host.requests.clear()
        sim.host.changes.clear()
        sim.lines.clear()
        sim.scheduled.clear()

    def rest(self) -> list[str]:
        """All guests end, and one gc: what is left of anything."""
        for tap in TAPS:
            self.sim.host.remove_link(tap)
        self.sim.gc()
        after = self.sim.picture()
        return [f"{part}: {after[part]}" for part in after if after[part] != self.before[part]] + self.sim.files()


def test_a_day_on_the_simulated_host() -> None:
    """Each hour all guests end: nothing may be left then, and the process has no more objects and descriptors than an hour before."""
    with tempfile.TemporaryDirectory() as folder:
        day = Day(folder, 24)
        sizes, failures = [], []
        day.warm_up()
        for hour in range(1, HOURS + 1):
            while day.now < day.started + hour * HOUR:
                day.step()
            failures += [f"hour {hour}: {line}" for line in day.rest()]
            collector.collect()
            sizes.append((len(collector.get_objects()), len(os.listdir("/proc/self/fd")), files(folder)))
        assert day.sim._store is not None
        day.sim._store.close()
    # what few operations need is loaded on the way: only a growth that goes on counts
    objects, descriptors, entries = zip(*sizes[HOURS * 2 // 3 :], strict=True)
    if objects[-1] > objects[0] * 1.02 + 500 or descriptors[-1] > descriptors[0] or entries[-1] > entries[0]:
        failures.append(f"growth: objects {objects}, descriptors {descriptors}, files {entries}")
    operations = sum(day.done.values())
    figures.add("endurance", operations, len(failures), len(failures), f"{HOURS} h simulated: {operations:,} operations")
    assert not failures, "\n".join(failures[:20])


def files(folder: str) -> int:
    """Files, links and folders below ``folder`` but lock files, which are a fixed set."""
    return sum(len(names) + len(folders) for where, folders, names in os.walk(folder) if not where.endswith("/locks"))


class Sizes:
    """What must not grow while the agent works, measured at rest."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []

    def measure(self, running: Agent) -> None:
        found = snapshot(())
        self.rows.append(
            {
                "memory": running.memory,
                "descriptors": running.descriptors,
                "nodes": running.nodes,
                "files": files("/run/netcommon"),
                "objects of the kernel": len(str(found)),
                "quarantine": len(list(Path("/run/netcommon/quarantine").glob("*"))),
            }
        )

    def grown(self) -> list[str]:
        """What is more at the end than it was after a third of the time. Threads start as they are needed, up to a fixed number."""
        first, last = self.rows[len(self.rows) // 3], self.rows[-1]
        nodes = MOST_NODES - first["nodes"]
        room = {"memory": GROWTH, "nodes": nodes, "descriptors": 8 + NODE_DESCRIPTORS * (last["nodes"] - first["nodes"])}
        return [f"{name} {[row[name] for row in self.rows]}" for name in first if last[name] > first[name] + room.get(name, 0)]


def operate(random: Random, held: dict[str, Tap], done: Counter[str]) -> None:
    """One operation of a caller, or a guest that comes or is killed."""
    number = random.randrange(len(TAPS))
    tap = TAPS[number]
    what = random.choice(["up", "up", "up", "down", "down", "true", "kill", "damage"])
    done[what] += 1
    if what == "kill":
        if tap in held:
            held.pop(tap).close()
        return
    if what == "damage":
        run("ip", "rule", "del", "iif", tap, check=False)
        return
    if tap not in held:
        held[tap] = Tap(tap)
    mode = random.choice([{}, {}, {"MODE": "bridged", "LINK": "br0", "IP": ""}])
    argv = [str(HOOKS / "kvm-ifup"), tap]
    if what != "up":
        argv = [str(HOOKS / "kvm-ifdown"), tap, "hot-remove" if what == "down" else "true"]
    variables = {**BASE, **environment(number, **mode)}
    ended = subprocess.run(argv, env=variables, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, (argv, ended)


@pytest.mark.no_agent("starts agents of its own")
def test_thousands_on_the_kernel(node: Node) -> None:
    """Guests come, go and are killed, rules are deleted by hand, the agent is killed now and then."""
    node.bridge("br0")
    random, done, sizes = Random(10), Counter[str](), Sizes()
    held: dict[str, Tap] = {}
    failures: list[str] = []
    with agent() as running:
        rest(running, held)
        before = snapshot(())
        for part in range(1, RESTS + 1):
            for _ in range(OPERATIONS // RESTS):
                operate(random, held, done)
            failures += rest(running, held)
            failures += [f"rest {part}: {line}" for line in diff(before, snapshot(()))]
            sizes.measure(running)
        failures += sizes.grown()
        running.restart(signal.SIGKILL)
        failures += rest(running, held)
    operations, last = sum(done.values()), sizes.rows[-1]
    note = f"on the kernel {operations:,} operations: the agent has {last['memory'] >> 20} MB, {last['descriptors']} files"
    figures.add("endurance", operations, len(failures), len(failures), note)
    print(note)
    assert not failures, "\n".join(failures[:20])


def rest(running: Agent, held: dict[str, Tap]) -> list[str]:
    """All guests end; what the agent has left of their NICs after a while."""
    for tap in list(held):
        held.pop(tap).close()
    records = Path("/run/netcommon/nics")
    try:
        wait_until(lambda: not list(records.glob("*")), 10, "the agent")
    except AssertionError:
        return [f"left: {sorted(path.name for path in records.glob('*'))}\n{running.output[-2000:]}"]
    return []
