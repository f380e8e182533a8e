"""Uplinks that come late, leave and come back, bridges that are made anew, bridges of 802.1ad, and what others do to a VLAN of ours.

In the machine, whose kernel filters VLANs and has bonds, VLAN interfaces and VXLAN.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from netcommon.lifecycle.check import check
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_rate import drift, mend
from tests.support.agent import Agent, agent, seconds_until, watched
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.wire import TEST, Wire, frame

pytestmark = pytest.mark.sampled(2)

ACCESS = environment(MODE="bridged", LINK="brv", IP="", VLAN=".10")
HYBRID = environment(1, MODE="bridged", LINK="brv", IP="", VLAN=".10:20")


def carried(device: str) -> set[int]:
    with ours() as node:
        view = node.host.view()
        link = view.link(device)
        return {vlan.vid for vlan in view.vlans(link.index)} if link else set()


def up(nic: dict[str, str], status: int = 0) -> str:
    outcome = rundoor("kvm-ifup", nic)
    assert outcome.status == status, outcome
    return outcome.stderr


def down(nic: dict[str, str], tap: str = "tap0") -> None:
    assert rundoor("kvm-ifdown", nic, tap, "hot-remove").status == 0


@pytest.mark.slow
def test_uplinks_that_join_and_leave(node: Node) -> None:
    """A NIC that came up before there was one; a bridge's port that leaves and is back, more often than anybody is fought; a bond."""
    node.outside("up0")
    node.bridge("brv", vlan_filtering=True)
    for tap in ("tap0", "tap1"):
        node.tap(tap)
    up(ACCESS)
    up(HYBRID)
    assert good() == ["tap0", "tap1"]
    run("ip", "link", "add", "bond0", "type", "bond")
    with agent() as running, watched() as seen:
        running.rested(60)

        def joins(device: str, times: int) -> list[float]:
            took = []
            for _ in range(times):
                run("ip", "link", "set", device, "master", "brv")
                took.append(seconds_until(lambda: carried(device) >= {10, 20}, 10, running.output))
                run("ip", "link", "set", device, "nomaster")
            return took

        print("an uplink that joins gets its VLANs after", told(joins("up0", 8)))
        print("a bond that joins gets its VLANs after", told(joins("bond0", 2)))
        run("ip", "link", "set", "up0", "master", "brv")
        print("a second uplink gets them after", told(joins("bond0", 2)))
        seconds_until(lambda: not (seen.drift() or seen.drift("tap1")), 20, running.output)
    down(ACCESS)
    down(HYBRID, "tap1")
    assert carried("up0") == {1} and collect() == []


def told(took: list[float]) -> str:
    return ", ".join(f"{seconds * 1e3:.0f}" for seconds in took) + " ms (emulated)"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["the agent", "repair"])
def test_a_bridge_that_is_made_anew(node: Node, by: str) -> None:
    node.outside("up0")
    node.bridge("brv", "up0", vlan_filtering=True)
    node.tap("tap0")
    up(ACCESS)
    for first in ("bridge", "uplink"):
        running: Agent | None = None
        if by == "the agent":
            running = Agent()
            running.start()
            running.rested(60)
        run("ip", "link", "del", "brv")
        node.bridge("brv", vlan_filtering=True)
        if by == "repair" and first == "bridge":
            mend()
            with ours() as ourselves:
                report = check(ourselves, ourselves.host.view(), ourselves.store.all()[0][0])
            assert report.good and [why for _does, why in report.idle if "it waits for an uplink of brv" in why]
        run("ip", "link", "set", "up0", "master", "brv")
        if running is None:
            mend()
        seconds_until(lambda: 10 in carried("up0") and carried("tap0") == {10}, 30, running.output if running else "repair")
        if running is not None:
            running.close()
        assert good() == ["tap0"]


@pytest.mark.slow
def test_a_bridge_of_8021ad(node: Node) -> None:
    """Untagged guests are served, with the provider's tag outside; tagged ones, whose tags it would take for data, are refused."""
    outside = node.outside("up0")
    node.bridge("brv", "up0", vlan_filtering=True)
    run("ip", "link", "set", "brv", "type", "bridge", "vlan_protocol", "802.1ad")
    run("ip", "link", "add", "link", "up0", "name", "customer", "type", "vlan", "id", "10")
    taps = {name: node.tap(name) for name in ("tap0", "tap1")}
    for vlan in (".10:20", ":10:20"):
        said = up(HYBRID | {"VLAN": vlan}, 69)
        assert "802.1ad" in said and "vlan_protocol 802.1Q" in said
    up(ACCESS | {"TAGS": "netcommon:*:spoof_guard:no"})
    assert good() == ["tap0"]
    with Wire(outside) as wire:
        raw = frame(ACCESS["MAC"]).raw()

        def arrives() -> bool:
            taps["tap0"].send(raw)
            return wire.receive(lambda got: got[12:16] == b"\x88\xa8\x00\x0a" and got[16:18] == TEST.to_bytes(2, "big"), 0.2) is not None

        seconds_until(arrives, 10, "no frame in VLAN 10 of 802.1ad came out")
    run("ip", "link", "add", "link", "up0", "name", "provider", "type", "vlan", "protocol", "802.1ad", "id", "10")
    assert [line for line in drift() if "is taken by the VLAN interface provider" in line]


@pytest.mark.slow
def test_a_vlan_interface_that_is_made_after_the_up(node: Node) -> None:
    """check sees it, the agent says it when it happens, and that it is over."""
    node.outside("up0")
    node.bridge("brv", "up0", vlan_filtering=True)
    node.tap("tap0")
    up(ACCESS)
    with agent() as running:
        running.rested(60)
        begun = time.monotonic()
        run("ip", "link", "add", "link", "up0", "name", "storage", "type", "vlan", "id", "10")
        running.logged("VLAN 10 of up0, uplink of brv, is taken by the VLAN interface storage")
        print(f"the agent has said it after {(time.monotonic() - begun) * 1e3:.0f} ms (emulated)")
        assert [line for line in drift() if "is taken by the VLAN interface storage" in line]
        run("ip", "link", "del", "storage")
        seconds_until(lambda: not drift(), 10, running.output)


def test_a_vni_that_the_administrator_maps_to_our_vlan(node: Node) -> None:
    node.bridge("brv", vlan_filtering=True)
    run("ip", "link", "add", "vx0", "type", "vxlan", "external", "dstport", "4789")
    run("ip", "link", "set", "vx0", "master", "brv", "up")
    run("bridge", "link", "set", "dev", "vx0", "vlan_tunnel", "on")
    node.tap("tap0")
    mapped: Callable[[], str] = lambda: run("bridge", "vlan", "tunnelshow", "dev", "vx0")  # noqa: E731
    up(ACCESS | {"VLAN": ".10:11:12"})
    assert carried("vx0") == {1, 10, 11, 12}
    run("bridge", "vlan", "add", "dev", "vx0", "vid", "10-11", "tunnel_info", "id", "1010-1011")
    assert "1010" in mapped() and good() == ["tap0"]
    down(ACCESS)
    assert carried("vx0") == {1, 10, 11} and "1010" in mapped() and collect() == []
