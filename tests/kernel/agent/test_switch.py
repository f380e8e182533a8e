"""Open vSwitch under the agent: what is taken from the database, and a switch or a database that is started anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.kernel.test_ovs_features import COOKIE, NIC, flows
from tests.support.agent import Agent, Watched, agent, contention, seconds_until, watched
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

BAR = 0.1


@pytest.fixture
def placed(node: Node, ovs: OpenVswitch) -> Iterator[Watched]:
    ovs.bridge("ovs0")
    node.tap("tap0")
    with watched() as seen:
        assert rundoor("kvm-ifup", NIC).status == 0
        assert seen.drift() == []
        yield seen


def dumped() -> str:
    """All flows of the bridge, or why they cannot be had."""
    return run("ovs-ofctl", "--no-stats", "dump-flows", "ovs0", check=False)


def ours(listing: str) -> list[str]:
    return sorted(line for line in listing.splitlines() if COOKIE in line)


DAMAGE: dict[str, Callable[[OpenVswitch], object]] = {
    "port deleted": lambda ovs: ovs.vsctl("del-port", "ovs0", "tap0"),
    "tag changed": lambda ovs: ovs.vsctl("set", "Port", "tap0", "tag=99"),
    "rate limit removed": lambda ovs: ovs.vsctl("set", "Interface", "tap0", "ingress_policing_rate=0"),
    "shaper removed": lambda ovs: ovs.vsctl("clear", "Port", "tap0", "qos"),
}


def mended(running: Agent, seen: Watched, damage: Callable[[], object]) -> float:
    """The damage is seen; then the agent wakes up and mends it."""
    running.rested().signal(signal.SIGSTOP)
    damage()
    assert seen.drift() != []
    running.signal(signal.SIGCONT)
    return seconds_until(lambda: not seen.drift(), 20, running.output)


def test_what_is_taken_from_the_database_comes_back(placed: Watched, ovs: OpenVswitch) -> None:
    took = {}
    before = flows()
    for what, damage in DAMAGE.items():
        with agent() as running:
            took[what] = mended(running, placed, lambda damage=damage: damage(ovs))  # type: ignore[misc]
            assert len(flows()) == len(before), what
            print(f"{what}: mended after {took[what] * 1e3:.0f} ms")
    assert sorted(took.values())[len(took) // 2] < BAR * slowness() * contention() * 2  # vswitchd has its part of it


def test_a_switch_that_is_started_anew(placed: Watched, ovs: OpenVswitch) -> None:
    """It comes back without its flows: they are put in place as soon as it has its bridges."""
    before = flows()
    with agent() as running:
        running.rested()
        for number in range(2):
            ovs.kill()
            ovs.start_switch()
            wait_until(lambda: "table=" in dumped() or "priority=" in dumped(), 20, "the switch answers")
            took = seconds_until(lambda: ours(dumped()) == before and not placed.drift(), 20, f"{number}: {running.output}")
            print(f"vswitchd started anew: all flows are back {took * 1e3:.0f} ms after it has any")


def test_a_database_that_is_started_anew(placed: Watched, ovs: OpenVswitch) -> None:
    """The agent subscribes again, and what was taken away meanwhile is seen."""
    with agent() as running:
        running.rested()
        ovs.kill("ovsdb-server")
        running.logged("events of ovsdb were lost")
        running.signal(signal.SIGSTOP)
        ovs.start_database()
        run("ovs-vsctl", "--timeout=20", "--no-wait", "del-port", "ovs0", "tap0")
        running.signal(signal.SIGCONT)
        wait_until(lambda: running.status()["agent"]["connected to Open vSwitch"] is True, 20, running.output)
        seconds_until(lambda: not placed.drift(), 20, running.output)


def test_a_tap_that_goes_takes_its_port_along(placed: Watched, node: Node) -> None:
    with agent() as running:
        running.rested()
        tap = Tap("tap1")
        nic = {**NIC, "INTERFACE": "tap1", "INTERFACE_UUID": "00000001-0667-415f-9a43-786dc01cbf24", "MAC": "aa:00:00:00:00:77"}
        assert rundoor("kvm-ifup", nic).status == 0
        tap.close()
        took = seconds_until(lambda: "tap1" not in placed.records, 10, running.output)
        assert "tap1" not in run("ovs-vsctl", "--timeout=20", "list-ports", "ovs0")
        print(f"a tap of Open vSwitch that went: clean after {took * 1e3:.0f} ms")
        assert placed.drift() == []


def test_a_frozen_switch_keeps_nobody_waiting(placed: Watched, ovs: OpenVswitch, node: Node) -> None:
    """The database answers nothing: NICs that need no switch are looked after as ever, the others when it is back."""
    with agent() as running:
        running.rested()
        tap = Tap("tap5")
        assert rundoor("kvm-ifup", environment(5)).status == 0
        ovs.freeze("ovsdb-server")
        run("ip", "link", "set", "dev", "tap0", "alias", "nobody")
        tap.close()
        path = placed.node.store.path(environment(5)["INTERFACE_UUID"])
        seconds_until(lambda: not os.path.exists(path), 5, running.output)
        ovs.thaw("ovsdb-server")
        seconds_until(lambda: not placed.drift(), 30, running.output)
