"""The agent on Debian's kernel: VLANs of bridge ports and of uplinks, and policers, which the running kernel may lack."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent, seconds_until, watched
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor

NIC = environment(MODE="bridged", LINK="br0", IP="10.0.0.1", VLAN=".10:20", TAGS="netcommon:*:rate_out:8mbit")

DAMAGE: dict[str, Callable[[], object]] = {
    "the tap's VLAN": lambda: run("bridge", "vlan", "del", "dev", "tap0", "vid", "20"),
    "the uplink's VLAN": lambda: run("bridge", "vlan", "del", "dev", "up0", "vid", "10"),
    "a VLAN too many": lambda: run("bridge", "vlan", "add", "dev", "tap0", "vid", "99"),
    "policer": lambda: run("tc", "filter", "del", "dev", "tap0", "ingress"),
    "clsact": lambda: run("tc", "qdisc", "del", "dev", "tap0", "clsact"),
}


@pytest.mark.slow
def test_vlans_and_policers_come_back(node: Node) -> None:
    node.outside("up0")
    node.bridge("br0", "up0", vlan_filtering=True)
    node.tap("tap0")
    assert rundoor("kvm-ifup", NIC).status == 0
    with watched() as seen:
        assert seen.drift() == []
        for what, damage in DAMAGE.items():
            with agent() as running:
                running.rested(60).signal(signal.SIGSTOP)
                damage()
                assert seen.drift() != [], what
                running.signal(signal.SIGCONT)
                took = seconds_until(lambda: not seen.drift(), 10, f"{what}: {running.output}")
                print(f"{what}: mended after {took * 1e3:.0f} ms (emulated)")


@pytest.mark.slow
def test_a_tap_that_goes_takes_the_uplinks_vlan_along(node: Node) -> None:
    node.outside("up0")
    node.bridge("br0", "up0", vlan_filtering=True)
    tap = node.tap("tap0")
    with agent() as running, watched() as seen:
        assert rundoor("kvm-ifup", NIC).status == 0
        assert "20" in run("bridge", "vlan", "show", "dev", "up0")
        tap.close()
        seconds_until(lambda: not seen.records, 10, running.output)
        assert "20" not in run("bridge", "vlan", "show", "dev", "up0")
