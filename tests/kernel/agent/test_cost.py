"""What the agent costs on a node with many NICs: memory, a resync, an idle minute, and what must not grow."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from netagent.observe.control import ask
from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.context import Call, Clock
from netcommon.lifecycle.up import up
from netcommon.log import recording
from runtime.environment import nic_from_environment
from tests.kernel.agent.test_hooks import mac
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import MOST_NODES, NODE_DESCRIPTORS, Agent, agent, contention, seconds_until, watched
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.sample import FULL
from tests.support.tap import Tap

#: NICs; the bars of the agent's documentation are for 5000.
COUNT = 1000 if FULL else 150

#: Bytes of resident memory: those of an agent without NICs, and for each NIC.
EMPTY, EACH = 60 << 20, 12 << 10

#: Descriptors of a worker: sockets, and the folders of the records; the main thread and the service have no more than two workers.
EACH_THREAD, THREADS = 10, 6 + 2


def nic(number: int) -> dict[str, str]:
    address = f"10.{number >> 14}.{number >> 7 & 127}.{number & 127 | 128}"
    return environment(number, IP=address, MAC=mac(number), INTERFACE=f"tap{number}", TAGS="netcommon:*:spoof_guard")


@pytest.fixture
def many(node: Node) -> list[Tap]:
    """So many guarded NICs are up; brought up in this process, since the hooks' start is not what is measured."""
    taps = [node.tap(f"tap{number}") for number in range(COUNT)]
    with watched() as seen:
        for number in range(COUNT):
            call = Call(recording()[0], Clock().now() + 30, "test")
            up(seen.node, nic_from_environment(nic(number)), call)
    return taps


def resynced(running: Agent, times: int) -> None:
    """Everything is looked at so many times, one after the other."""
    for _time in range(times):
        surveys = running.surveys()
        running.signal(signal.SIGHUP)  # the settings may be others
        wait_until(lambda: running.surveys() > surveys, 120, running.output)  # noqa: B023 # it is called at once
        running.rested(60)


def test_memory_resync_and_idle(many: list[Tap]) -> None:
    with agent(settings="[agent]\nresync = 3600\n") as running:
        running.rested(120)
        assert running.status()["agent"]["nics"] == {"up": COUNT}
        memory = running.memory
        resynced(running, 2)  # a node opens what it needs when it needs it: a first resync after the start opens more
        descriptors, nodes = running.descriptors, running.nodes
        surveys, used, begun = running.surveys(), running.cpu, time.monotonic()
        resynced(running, 16)
        made = running.surveys() - surveys
        each = (running.cpu - used) / made
        print(
            f"{COUNT} NICs: {memory / (1 << 20):.1f} MB at first, {running.memory / (1 << 20):.1f} MB after {made} resyncs;"
            f" {each * 1e3:.0f} ms of CPU for each, {(time.monotonic() - begun) / made:.2f} s apart; {running.descriptors} descriptors"
        )
        assert memory < EMPTY + COUNT * EACH
        assert running.memory < memory + (4 << 20) and running.nodes <= MOST_NODES
        assert running.descriptors <= descriptors + 1 + NODE_DESCRIPTORS * (running.nodes - nodes)
        assert "repaired" not in running.output


def test_nothing_grows(node: Node) -> None:
    """NICs come, drift and go: memory and descriptors are as they were."""
    with agent() as running, watched() as seen:
        running.rested()
        figures = []
        for turn in range(30):
            tap = Tap("tap0")
            call = Call(recording()[0], Clock().now() + 30, "test")
            up(seen.node, nic_from_environment(nic(0)), call)
            run("ip", "rule", "del", "iif", "tap0")
            seconds_until(lambda: not seen.drift(), 10, running.output)
            tap.close()
            seconds_until(lambda: not seen.records, 10, running.output)
            if turn in (9, 29):
                running.rested()
                figures.append((running.memory, running.descriptors))
        print(f"after 10 and after 30 lives: {figures}")
        assert figures[1][0] < figures[0][0] + (2 << 20) and figures[1][1] <= THREADS * EACH_THREAD


def test_an_idle_agent_sleeps(many: list[Tap]) -> None:
    """Between resyncs it does nothing at all but show a sign of life."""
    with agent(settings="[agent]\nresync = 3600\nreap_interval = 3600\n") as running:
        running.rested(120)
        used, begun = running.cpu, time.monotonic()
        wait_until(lambda: time.monotonic() > begun + 5, 10)
        share = (running.cpu - used) / (time.monotonic() - begun)
        print(f"{COUNT} NICs, idle: {share * 100:.2f} % of a CPU")
        assert share < 0.01
        assert Path(f"/proc/{running.pid}").exists() and isinstance(running, Agent)


def test_an_agent_of_this_namespace_answers(node: Node) -> None:
    """The helper asks the agent of the namespace it is in."""
    with agent() as running:
        assert ask("/run/netcommon", LinuxHost().identity().netns)["pid"] == running.pid
        assert contention() >= 1
