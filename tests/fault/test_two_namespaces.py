"""Two network namespaces that share /run, with the same tap names, NICs and addresses in both: each touches its own only.

Up, down, gc and a killed guest in one leave the other as it is, with an agent in each, and with gc alone.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest

from netcommon.lifecycle.check import check
from tests.kernel.test_doors_parallel import collect, environment
from tests.support import figures
from tests.support.agent import Agent, agent
from tests.support.netns import Namespace, mounted_over, run, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.snapshot import Snapshot, diff, snapshot
from tests.support.tap import Tap

STEPS = 150 if FULL else 12
TAPS = ("tap0", "tap1")
MODES: Mapping[str, Mapping[str, str]] = {"routed": {}, "bridged": {"MODE": "bridged", "LINK": "br0", "IP": ""}}


class Side:
    """One of the namespaces: a node of its own, but for /run."""

    def __init__(self, namespace: Namespace | None) -> None:
        self.namespace = namespace
        self.taps: dict[str, Tap] = {}
        self.up: dict[str, str] = {}  #: which mode each tap's NIC is up in
        with self.inside():
            run("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0")
            run("ip", "link", "set", "br0", "up")

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is in it."""
        with contextlib.ExitStack() as stack:
            if self.namespace is not None:
                stack.enter_context(self.namespace.entered())
                stack.enter_context(mounted_over("/sys", "sysfs"))
            yield

    def plug(self, tap: str) -> None:
        with self.inside():
            if tap not in self.taps:
                self.taps[tap] = Tap(tap)

    def kill(self, tap: str) -> None:
        """The guest is gone, without a down."""
        with self.inside():
            self.taps.pop(tap).close()
        self.up.pop(tap, None)

    def door(self, door: str, tap: str, mode: str, *arguments: str) -> None:
        with self.inside():
            outcome = rundoor(door, environment(TAPS.index(tap), **MODES[mode]), tap, *arguments)
        assert outcome.status == 0, outcome

    def network(self) -> Snapshot:
        """All but files, which both share."""
        with self.inside():
            return snapshot(())

    def wrong(self) -> list[str]:
        """What is not as this side's own calls have left it."""
        with self.inside(), ours() as node:
            records, problems = node.store.all()
            drift = [report for record in records if (report := check(node, node.host.view(), record)).drift or not report.alive]
            found = {record.device: record.nic.mode for record in records}
        return [*problems, *map(str, drift), *([f"{found} instead of {self.up}"] if found != self.up else [])]


def step(random: Random, side: Side) -> str:
    """Something happens on one side."""
    tap = random.choice(TAPS)
    side.plug(tap)
    what = random.choice(["up", "up", "down", "kill", "gc"])
    if what == "up":
        side.up[tap] = random.choice(list(MODES))
        side.door("kvm-ifup", tap, side.up[tap])
    elif what == "down":
        side.door("kvm-ifdown", tap, side.up.pop(tap, "routed"), "hot-remove")
    elif what == "kill":
        side.kill(tap)
    else:
        with side.inside():
            collect()
    return f"{what} {tap}"


@pytest.mark.parametrize(
    "with_agents", [pytest.param(False, id="gc"), pytest.param(True, id="agents", marks=pytest.mark.no_agent("starts agents of its own"))]
)
def test_each_touches_its_own(node: Node, with_agents: bool) -> None:
    """Random steps on either side: the other one's network stays to the byte, and its own is as its own calls left it."""
    sides = (Side(None), Side(node.namespaced()))
    random, failures = Random(4), []
    with contextlib.ExitStack() as stack:
        agents: list[Agent] = []
        if with_agents:
            for side in sides:
                with side.inside():
                    agents.append(stack.enter_context(agent()))
        for number in range(STEPS):
            chosen = number % 2 if number < 4 else random.randrange(2)
            side, other = sides[chosen], sides[1 - chosen]
            before = other.network()
            told = step(random, side)
            if with_agents and number % 10 == 9:  # nothing depends on what an agent has in mind
                with side.inside():
                    agents[chosen].restart(signal.SIGKILL)
            set_right(side, with_agents)
            wrong = [*side.wrong(), *other.wrong(), *diff(before, other.network())]
            failures += [f"step {number}, {told} of side {chosen}: {line}" for line in wrong]
        for side in sides:
            for tap in list(side.taps):
                side.kill(tap)
            set_right(side, with_agents)
            failures += side.wrong()
    figures.add("namespaces", STEPS, len(failures), len(failures), "with agents" if with_agents else "with gc")
    assert not failures, "\n".join(failures[:10])


def set_right(side: Side, with_agents: bool) -> None:
    """What a killed guest left goes: by the agent, or by gc."""
    if with_agents:
        wait_until(still(side), 5, "the agent")
        return
    with side.inside():
        collect()


def still(side: Side) -> Callable[[], bool]:
    """Whether there is nothing left to do."""
    return lambda: not side.wrong()
