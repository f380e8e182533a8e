"""Open vSwitch under the agent: what is taken from the database, and a switch or a database that is started anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.ovs_by_hand import answers
from tests.kernel.test_doors_parallel import environment
from tests.kernel.test_ovs_features import COOKIE, NIC, alter_a_flow, delete_all_flows, delete_some_flow, flows
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


def mended(running: Agent, seen: Watched, ovs: OpenVswitch, damage: Callable[[OpenVswitch], object]) -> float:
    """The damage is seen; then the agent wakes up and mends it: the seconds of that, as they would be were the processors theirs alone."""
    running.rested().signal(signal.SIGSTOP)
    damage(ovs)
    assert seen.drift() != []
    busy, waited = contention(), running.waited() + ovs.waited()
    running.signal(signal.SIGCONT)
    took = seconds_until(lambda: not seen.drift(), 20, running.output)
    return min(took / max(busy, contention()), took - (running.waited() + ovs.waited() - waited))


def test_what_is_taken_from_the_database_comes_back(placed: Watched, ovs: OpenVswitch) -> None:
    took = {}
    before = flows()
    for what, damage in DAMAGE.items():
        with agent() as running:
            took[what] = mended(running, placed, ovs, damage)
            assert len(flows()) == len(before), what
            print(f"{what}: mended after {took[what] * 1e3:.0f} ms")
    assert sorted(took.values())[len(took) // 2] < BAR * slowness() * 2  # vswitchd has its part of it


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


def test_a_database_that_is_started_anew_again_and_again(placed: Watched, ovs: OpenVswitch) -> None:
    """Its socket is there before it listens: a refusal is no reason to wait for the next resync."""
    took = []
    with agent() as running:
        running.rested()
        for number in range(6):
            ovs.kill("ovsdb-server")
            running.logged("events of ovsdb were lost", number + 1)
            ovs.start_database()
            connected = lambda: running.status()["agent"]["connected to Open vSwitch"] is True  # noqa: E731
            took.append(seconds_until(connected, 5, running.output))
        seconds_until(lambda: not placed.drift(), 20, running.output)
        assert "tap0 down" not in running.output, "the switch went on, and so did the guest"
    print(f"ovsdb-server started anew: the agent is connected after {max(took) * 1e3:.0f} ms at most")
    assert max(took) < 1 * slowness() * contention()


FLOW_DAMAGE = {
    "one deleted": delete_some_flow,
    "one altered": alter_a_flow,
    "one replaced": lambda ovs: run(
        "ovs-ofctl", "add-flow", "ovs0", "cookie=0x7,priority=65000,reg13=0x60000000/0xe0000000,in_port=tap0,actions=normal"
    ),
    "all deleted": delete_all_flows,
}


def test_single_flows_come_back(placed: Watched, ovs: OpenVswitch) -> None:
    """The bridge tells of them."""
    took = {}
    for what, damage in FLOW_DAMAGE.items():
        with agent() as running:
            took[what] = mended(running, placed, ovs, damage)
            print(f"{what}: mended after {took[what] * 1e3:.0f} ms")
    assert sorted(took.values())[1] < BAR * slowness() * 2


def test_who_replaces_all_flows_fights_nobody(placed: Watched, ovs: OpenVswitch) -> None:
    """However often: the NIC's are back each time, for a sweep of the bridge is about no NIC. Who removes one NIC's alone is not fought."""
    took, cookie = [], ours(dumped())[0].split(",")[0].strip()
    with agent() as running:
        running.rested()
        for number in range(8):
            run("ovs-ofctl", "del-flows", "ovs0")
            run("ovs-ofctl", "add-flow", "ovs0", "priority=0,actions=NORMAL")
            took.append(running.took(lambda: not placed.drift(), 5, f"{number}: {placed.drift()}"))
        assert "somebody else's" not in running.output
        for _ in range(4):
            before = running.output.count(": repaired ")  # said once it was seen to hold: what goes before that was no repair
            run("ovs-ofctl", "del-flows", "ovs0", f"{cookie}/-1")
            wait_until(lambda: "somebody else's" in running.output or running.output.count(": repaired ") > before, 5, running.output)  # noqa: B023
        running.logged("somebody else's")
    print(f"8 times all flows: mended after {max(took) * 1e3:.0f} ms at most, median {sorted(took)[4] * 1e3:.0f} ms")
    assert sorted(took)[4] < 2 * BAR * slowness()


def test_flows_that_somebody_restores(placed: Watched, ovs: OpenVswitch, node: Node) -> None:
    """As ``ovs-ctl restart`` does: a NIC that comes up meanwhile has its guard, and of one that went down meanwhile nothing is left."""
    second = {**NIC, "INTERFACE": "tap1", "INTERFACE_UUID": "00000001-0667-415f-9a43-786dc01cbf24", "MAC": "aa:00:00:00:00:77"}
    node.tap("tap1")
    assert rundoor("kvm-ifup", second).status == 0
    kept = run("ovs-ofctl", "-O", "OpenFlow14", "--no-names", "--no-stats", "dump-flows", "ovs0")
    assert rundoor("kvm-ifdown", second, "tap1", "hot-remove").status == 0
    before = flows()
    with agent() as running, ThreadPoolExecutor() as pool:
        running.rested()
        ovs.kill()
        ovs.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
        ovs.start_switch()
        third = {**second, "INTERFACE": "tap2", "INTERFACE_UUID": "00000002-0667-415f-9a43-786dc01cbf24", "MAC": "aa:00:00:00:00:78"}
        node.tap("tap2")
        coming = pool.submit(rundoor, "kvm-ifup", third)
        wait_until(lambda: "tap2" in run("ovs-vsctl", "list-ports", "ovs0"), 10, "it has its port")
        wait_until(answers, 10, "the bridge's own socket")
        Path("/run/kept").write_text(kept)
        run("ovs-ofctl", "-O", "OpenFlow14", "--bundle", "replace-flows", "ovs0", "/run/kept")
        assert not coming.done() and len(flows()) > len(before)
        ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait=true")
        done = coming.result(20)
        assert done.status == 0, done.stderr
        wait_until(lambda: not placed.drift() and not placed.drift("tap2"), 5, running.output)
        took = seconds_until(lambda: len(flows()) == 2 * len(before), 5, f"{len(flows())} flows, {len(before)} each\n{running.output}")
        print(f"flows restored: those of the NIC that had gone were there {took * 1e3:.0f} ms after the others were whole")
        assert "somebody else's" not in running.output


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
