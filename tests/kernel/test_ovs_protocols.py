"""Bridges of Open vSwitch whose `protocols` leave out OpenFlow 1.4: what is there is read and undone all the same; echoes decide."""

from __future__ import annotations

import subprocess

import pytest

from tests.kernel.test_ovs_cut_off import NIC, NO_FLOW, OUTSIDE, UNGUARDED, placed
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.routed import drift, reaches
from tests.support.rundoor import rundoor
from tests.support.verdict import PROGRAM, lost

pytestmark = pytest.mark.sampled(3)

VERSIONS = ("OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow15")
OURS = "cookie=0x6e63740000000000/0xffffff0000000000"
OFTEN = 8  #: by chance ovs-ofctl says one thing or another of the same refusal


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


def flows(version: str, which: str = OURS) -> list[str]:
    """Give what ovs-ofctl itself sees, in the only version that the bridge speaks."""
    return [line for line in run("ovs-ofctl", "-O", version, "dump-flows", "ovs0", which).splitlines() if "cookie=" in line]


@pytest.mark.parametrize("version", VERSIONS)
def test_flows_that_were_there_before(node: Node, ovs: OpenVswitch, version: str) -> None:
    """The switch keeps them, so the guard holds; and they go with the NIC, those of others stay."""
    guest = placed(node, ovs, TAGS="")
    made = flows("OpenFlow14")
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=7,priority=9,udp,actions=drop")
    ovs.vsctl("set", "Bridge", "ovs0", f"protocols={version}")
    assert len(flows(version)) == len(made) > 0 and reaches(guest, OUTSIDE) == [OUTSIDE]
    if version != "OpenFlow15":  # which has another notation of the same actions
        assert drift() == [] and lost() == []
    assert asked("gc").returncode == 0 and len(flows(version)) == len(made)
    done = rundoor("kvm-ifdown", {**NIC, "TAGS": ""}, "tap0", "hot-remove")
    assert (done.status, done.stderr) == (0, "")
    assert flows(version) == [] and len(flows(version, "cookie=7/-1")) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_no_flow_is_left(node: Node, ovs: OpenVswitch, version: str) -> None:
    guest = placed(node, ovs, TAGS=UNGUARDED)
    ovs.vsctl("set", "Bridge", "ovs0", f"protocols={version}")
    assert lost() == []
    run("ovs-ofctl", "-O", version, "del-flows", "ovs0")
    wait_until(lambda: reaches(guest, OUTSIDE) == [], 10, "no flow takes anything on")
    assert [NO_FLOW in why for why, _remedy in lost()] == [True]
    traced = asked("trace", "tap0")
    assert (traced.returncode, "ofproto/trace ovs0" in traced.stdout) == (0, True), traced


def test_a_guard_that_is_refused_leaves_nothing(node: Node, ovs: OpenVswitch) -> None:
    """Whatever words ovs-ofctl finds: it is not tried again, and the undoing is done."""
    ovs.bridge("ovs0")
    ovs.vsctl("set", "Bridge", "ovs0", "protocols=OpenFlow13")
    node.guest(NIC["MAC"], "10.0.0.5/24")
    before = flows("OpenFlow13", "")
    for _ in range(OFTEN):
        done = rundoor("kvm-ifup", {**NIC, "TAGS": ""})
        assert done.status == 69 and "does not speak OpenFlow14" in done.stderr and "undone" not in done.stderr, done
        assert asked("check").stdout == "no NICs are on record\n"
        assert "tap0" not in ovs.vsctl("list-ports", "ovs0") and len(flows("OpenFlow13", "")) == len(before)


def test_a_bridge_of_somebody_else_is_in_nobodys_way(node: Node, ovs: OpenVswitch) -> None:
    placed(node, ovs, TAGS="")
    ovs.bridge("br-sdn")
    ovs.vsctl("set", "Bridge", "br-sdn", "protocols=OpenFlow13")
    assert [asked("gc").returncode for _ in range(OFTEN)] == [0] * OFTEN
    run("ip", "link", "del", "tap0")
    assert [asked("gc").returncode for _ in range(OFTEN)] == [0] * OFTEN
    assert flows("OpenFlow14") == []


def test_a_switch_that_does_not_answer(node: Node, ovs: OpenVswitch) -> None:
    """The database does: the port is as it was made. Whether the bridge takes anything on, nobody tells."""
    placed(node, ovs, TAGS=UNGUARDED)
    ovs.freeze()
    try:
        found = asked("check")
    finally:
        ovs.thaw()
    assert found.returncode == 75 and "whether its traffic passes: cannot be told" in found.stdout, found
    assert lost() == []
