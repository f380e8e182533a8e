"""A routing daemon's whole table in main: to hooks, the command line and the agent it must cost next to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.requests import AddRoute, DeleteRoute, SetLink
from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.context import Call, Clock
from netcommon.lifecycle.up import up
from netcommon.log import recording
from netcommon.operations.route import GuestRoute
from runtime.environment import nic_from_environment
from tests.kernel.agent.test_hooks import mac
from tests.kernel.test_doors_parallel import environment
from tests.support import full_table
from tests.support.agent import Agent, agent, watched
from tests.support.bootstrap import VENV
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL

ROUTES = 1_000_000 if FULL else 100_000  #: of each family
FLAPPING = 20_000  #: of each family
NICS, FRESH = 50, 10
JITTER = 3.0  #: milliseconds of the questions, and of caches that the kernel's walks have emptied
TURNS = 4  #: of both, at most: a table that costs something does so in each
TICK = 20  #: milliseconds, two of the kernel's account of processor time
VIA = {AF_INET: "198.18.0.2", AF_INET6: "2001:db8:ff::2"}


class Pace:
    """Tells times of processor from the processor's own pace: where it is a share of a machine's, the same work takes a half more or less
    from second to second. A fixed piece of work is timed before and after each sample, and the sample stated as if it had its least time.
    """

    def __init__(self) -> None:
        self._affinity = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(self._affinity)})  # what is started from now on is measured where the piece of work is
        self._least = min(self._piece() for _time in range(50))

    def close(self) -> None:
        os.sched_setaffinity(0, self._affinity)

    @staticmethod
    def _piece() -> float:
        used = time.thread_time()
        for number in range(100):
            json.loads(json.dumps({f"key{each}": [each, str(number)] for each in range(50)}))
        return time.thread_time() - used

    def sample(self, measure: Callable[[], float]) -> float:
        """Measure once, in the unit of ``measure``."""
        before = self._piece()
        found = measure()
        return found * 2 * self._least / (before + self._piece())


class Costs(NamedTuple):
    """Milliseconds of processor time: for a check of all NICs, for the agent's look at everything, for its warm up of a NIC with IPv4 and
    of one with both families, less what the kernel alone takes for the same changes, which is next, and for a second up. Bytes it has.
    """

    check: float
    resync: float
    up: float
    up_both: float
    kernel: float
    second: float
    memory: int


@pytest.fixture
def placed(node: Node) -> Node:
    """A node with two uplinks, default routes of both families by each, and forwarding."""
    for number, name in enumerate(("up0", "up1")):
        node.outside(name, f"198.18.{number}.2/24")
        node.address(name, f"198.18.{number}.1/24", f"2001:db8:ff{number or ''}::1/64")
        run("ip", "route", "add", "default", "via", f"198.18.{number}.2", "metric", str(100 * number))
        run("ip", "-6", "route", "add", "default", "via", f"2001:db8:ff{number or ''}::2", "dev", name, "metric", str(100 + number))
    node.forwarding(ipv6=True)
    return node


def variables(number: int) -> dict[str, str]:
    """Describe a NIC in table main, every other one with IPv6 too."""
    ipv6 = {"TAGS": f"netcommon:{number % 2}:addresses:2001:db8:9::{number + 1:x}"} if number % 2 else {}
    return environment(number, **{"LINK": "", "IP": f"10.9.0.{number + 1}", "MAC": mac(number), **ipv6})


def check_costs() -> float:
    before = os.times()
    subprocess.run([VENV / "bin/netcommon", "check"], check=True, stdout=subprocess.DEVNULL, timeout=120)
    after = os.times()
    return 1e3 * (after.children_user + after.children_system - before.children_user - before.children_system)


def spent(running: Agent) -> float:
    """Milliseconds of the processor that the agent's threads have had, not in ticks (/proc/PID/task/TID/schedstat)."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{running.pid}/task").glob("*/schedstat")) / 1e6


def up_costs(running: Agent) -> list[list[float]]:
    """The agent's milliseconds for warm ups, by family or both, and for second ones, which change nothing; then the NICs go."""
    found: list[list[float]] = [[], [], []]
    for number in range(NICS, NICS + FRESH):
        for place in (number % 2, 2):
            used = spent(running)
            assert rundoor("kvm-ifup", variables(number)).status == 0
            found[place].append(spent(running) - used)
        assert rundoor("kvm-ifdown", variables(number), f"tap{number}", "hot-remove").status == 0
    return found


def kernel_costs() -> list[list[float]]:
    """Milliseconds that the kernel itself takes for what such an up changes: with each device it walks its whole table of IPv6."""
    found: list[list[float]] = [[], []]
    host = LinuxHost()
    for number in range(NICS, NICS + FRESH):
        link = host.view().link(f"tap{number}")
        assert link is not None
        routes = [GuestRoute(AF_INET, f"10.9.0.{number + 1}/32", "", link.name, full_table.MAIN, link.index).route()]
        if number % 2:
            routes.append(GuestRoute(AF_INET6, f"2001:db8:9::{number + 1:x}/128", "", link.name, full_table.MAIN, link.index).route())
        changes = [SetLink(link.index, up=True), *(AddRoute(route) for route in routes)]
        used = time.thread_time()
        assert all(answer.ok for answer in host.execute(changes, stop=True))
        found[number % 2].append(1e3 * (time.thread_time() - used))
        assert all(answer.ok for answer in host.execute([*map(DeleteRoute, routes), SetLink(link.index, up=False)], stop=True))
    host.close()
    return found


def resync_costs(running: Agent) -> float:
    used, seen = spent(running), running.surveys()
    running.signal(signal.SIGHUP)
    wait_until(lambda: running.surveys() > seen, 60, running.output)
    running.rested(60)
    return (spent(running) - used) / (running.surveys() - seen)


def costs(running: Agent, pace: Pace) -> Costs:
    """The medians; of ups the least of three."""
    resync_costs(running), up_costs(running)  # what is opened or remembered the first time
    ups, own = [[*map(median, up_costs(running))] for _time in range(3)], [[*map(median, kernel_costs())] for _time in range(3)]
    one, both, second = (min(times) for times in zip(*ups, strict=True))
    kernel, kernel_both = (min(times) for times in zip(*own, strict=True))
    print(f"\nof an up {one:.1f} ms, or {both:.1f} ms in both families, the kernel takes {kernel:.1f} and {kernel_both:.1f} ms")
    check = median(pace.sample(check_costs) for _time in range(15))
    resync = median(pace.sample(lambda: resync_costs(running)) for _time in range(15))
    print(f"check {check:.1f} ms, the agent's look {resync:.1f} ms")
    return Costs(check, resync, one - kernel, both - kernel_both, max(kernel, kernel_both), second, running.memory)


def dearer_each_time(turns: Sequence[tuple[Costs, Costs]]) -> list[str]:
    """Name what costs more with a full table in each turn: more in one of them is the machine, slower meanwhile."""
    first, *others = (dearer(*turn) for turn in turns)
    return [name for name in first if all(name in other for other in others)]


def dearer(quiet: Costs, full: Costs) -> list[str]:
    """Name what costs more with a full table in one turn, by more than a tenth and what cannot be told apart."""
    # The kernel walks through its table of IPv6 again when it hears of the carrier, and who writes a setting meanwhile spins.
    walk = full.kernel / 2
    more = {"check": TICK, "resync": TICK, "up": JITTER + walk, "up_both": JITTER + walk, "second": JITTER}
    found = [name for name, allowed in more.items() if getattr(full, name) > getattr(quiet, name) * 1.1 + allowed]
    return found + (["memory"] if full.memory > quiet.memory + (5 << 20) else [])


def change_all(add: bool) -> None:
    """Make all routes, or remove them."""
    began = time.monotonic()
    for family, via in VIA.items():
        full_table.change(family, ROUTES, via, add)
    print(f"\n{ROUTES} routes of each family were {'made' if add else 'removed'} in {time.monotonic() - began:.0f} s")


def flapping(running: Agent) -> float:
    """Seconds of the agent's processor while routes of each family go and come."""
    used, looks = running.cpu, running.looks()
    for add in (False, True):
        for family, via in VIA.items():
            full_table.change(family, FLAPPING, via, add)
    assert running.looks() == looks and "were lost" not in running.output
    return running.cpu - used


@pytest.mark.no_agent("it starts its own")
def test_what_it_costs(placed: Node) -> None:
    taps = [placed.tap(f"tap{number}") for number in range(NICS + FRESH)]
    with watched() as seen:
        for number in range(NICS):
            up(seen.node, nic_from_environment(variables(number)), Call(recording()[0], Clock().now() + 60, "test"))
    with contextlib.closing(Pace()) as pace, agent(settings="[agent]\nresync = 3600\n") as running:
        running.rested(60)
        turns: list[tuple[Costs, Costs]] = []
        while True:
            quiet = costs(running, pace)
            change_all(True)
            turns.append((quiet, costs(running, pace)))
            if not dearer_each_time(turns) or len(turns) == TURNS:
                break
            change_all(False)
            running.rested(60)
        flaps = flapping(running)
        for turn in turns:
            for name, each in zip(("quiet", "full"), turn, strict=True):
                texts = (f"{field} {value:.1f} ms" for field, value in each._asdict().items() if field != "memory")
                print(f"{name}: {', '.join(texts)}, memory {each.memory >> 10} KiB")
        print(f"{4 * FLAPPING} routes that flap: {flaps * 1e3:.0f} ms of the agent's")
        assert dearer_each_time(turns) == []
        assert flaps <= 0.1
        assert "repaired" not in running.output
    assert len(taps) == NICS + FRESH


def test_what_is_dearer_is_told() -> None:
    """A table that costs a comparison half as much again is told, and so are six megabytes."""
    quiet = Costs(200.0, 250.0, 8.0, 11.0, 0.1, 9.0, 36 << 20)
    assert dearer(quiet, quiet._replace(check=239.0, resync=294.0, up_both=12.0)) == []
    assert dearer(quiet, quiet._replace(resync=375.0, memory=42 << 20)) == ["resync", "memory"]
    slow, dear = quiet._replace(check=260.0), quiet._replace(check=260.0, resync=375.0)
    assert dearer_each_time([(quiet, dear), (slow, dear)]) == ["resync"]
