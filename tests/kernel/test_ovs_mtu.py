"""The MTU of an Open vSwitch bridge's own device stays what its other ports make it, whatever tap comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import collect, environment, good
from tests.support.bootstrap import VENV
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

LARGE, USUAL = 9000, 1500


def mtu(device: str) -> int:
    return int(Path(f"/sys/class/net/{device}/mtu").read_text())


@pytest.fixture
def large(node: Node, ovs: OpenVswitch) -> OpenVswitch:
    """A bridge whose one port has a large MTU, two fake bridges of it, and a tap with the usual one."""
    ovs.bridge("ovs0")
    for name in ("eth1", "tap0"):
        node.tap(name)
    run("ip", "link", "set", "eth1", "mtu", str(LARGE), "up")
    ovs.vsctl("add-port", "ovs0", "eth1")
    ovs.vsctl("add-br", "vlan10", "ovs0", "10")
    wait_until(lambda: mtu("ovs0") == LARGE, 10, "the bridge's MTU")
    large_too = ("--", "set", "Interface", "vlan20", f"mtu_request={LARGE}")
    ovs.vsctl("add-br", "vlan20", "ovs0", "20", *large_too)
    wait_until(lambda: mtu("vlan20") == LARGE, 10, "the other fake bridge's MTU")
    assert mtu("vlan10") == USUAL  # which is Open vSwitch's way with one that is made later
    return ovs


def up(nic: dict[str, str]) -> None:
    done = rundoor("kvm-ifup", nic)
    assert (done.status, done.stderr) == (0, "")


def down(nic: dict[str, str]) -> None:
    done = rundoor("kvm-ifdown", nic, "tap0", "hot-remove")
    assert (done.status, done.stderr) == (0, "")


@pytest.mark.parametrize("bridge", ["ovs0", "vlan10", "vlan20"])
def test_a_tap_does_not_shrink_the_bridge(large: OpenVswitch, bridge: str) -> None:
    nic = environment(MODE="openvswitch", LINK=bridge, VLAN="")
    up(nic)
    down(nic)  # folders are made once
    before = snapshot()
    up(nic)
    large.vsctl("set", "Port", "tap0", "external_ids:seen=yes")  # which vswitchd has taken when this returns
    assert [mtu(device) for device in ("tap0", "ovs0", "vlan20")] == [LARGE] * 3
    assert good() == ["tap0"]
    down(nic)
    assert [mtu(device) for device in ("tap0", "ovs0", "vlan20")] == [USUAL, LARGE, LARGE]
    assert diff(before, snapshot()) == []


def test_drift_is_mended(large: OpenVswitch) -> None:
    nic = environment(MODE="openvswitch", LINK="ovs0", VLAN="")
    up(nic)
    run("ip", "link", "set", "tap0", "mtu", str(LARGE + 1))
    with pytest.raises(AssertionError, match="it is 9001"):
        good()
    repaired = subprocess.run([str(VENV / "bin/netcommon"), "repair", "tap0"], capture_output=True, text=True, check=False)
    assert repaired.returncode == 0, repaired.stderr
    assert mtu("tap0") == LARGE and good() == ["tap0"]
    down(nic)
    assert mtu("tap0") == USUAL and collect() == []


@pytest.mark.no_agent("about what repair does: an agent repairs at once")
def test_a_bridge_that_is_made_anew_lowers_no_guests_device(large: OpenVswitch) -> None:
    """It has 1500 while it has no ports, and the tap's MTU once that has joined; then its uplink's."""
    nic = environment(MODE="openvswitch", LINK="ovs0", VLAN="")
    up(nic)
    large.vsctl("del-br", "ovs0")
    large.bridge("ovs0")
    assert mtu("ovs0") == USUAL
    repaired = subprocess.run([str(VENV / "bin/netcommon"), "repair", "tap0"], capture_output=True, text=True, check=False)
    assert repaired.returncode == 0, repaired.stderr
    wait_until(lambda: mtu("ovs0") == LARGE, 10, "the bridge's MTU")
    large.vsctl("add-port", "ovs0", "eth1")
    assert [mtu(device) for device in ("tap0", "ovs0")] == [LARGE] * 2 and good() == ["tap0"]
    down(nic)
    assert [mtu(device) for device in ("tap0", "ovs0")] == [USUAL, LARGE]
