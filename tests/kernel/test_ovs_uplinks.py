"""tree and trace on bridges of Open vSwitch that lead out of the node otherwise than by a device of their own: a frame decides."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.kernel.test_ovs_cut_off import NIC
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import RUN, OpenVswitch
from tests.support.routed import MAC, reaches
from tests.support.rundoor import rundoor
from tests.support.verdict import PROGRAM

OUTSIDE, GUEST = "10.0.0.1", "10.0.0.5"
BOND = "ovs-vsctl add-bond ovs0 bond0 up0 up1"
TUNNELS = BOND.replace("up0 up1", "v1 v2") + (
    " -- set Interface v1 type=vxlan options:remote_ip=127.0.0.2 -- set Interface v2 type=vxlan options:remote_ip=127.0.0.3"
)
PATCH = (
    "ovs-vsctl add-port ovs0 out -- set Interface out type=patch options:peer=in"
    " -- add-port br-ex in -- set Interface in type=patch options:peer=out"
)

#: What is done, the NIC's bridge, by which devices it leads out, and the bridge whose flows a frame from outside meets.
CASES = {
    "bond": ([BOND], "ovs0", ["up0", "up1"], "ovs0"),
    "patch": ([PATCH, "ovs-vsctl add-port br-ex up0"], "ovs0", ["up0"], "br-ex"),
    "bond beyond a patch": ([PATCH, BOND.replace("ovs0", "br-ex")], "ovs0", ["up0", "up1"], "br-ex"),
    "fake": (["ovs-vsctl add-port ovs0 up0 vlan_mode=native-untagged tag=10", "ovs-vsctl add-br ten ovs0 10"], "ten", ["up0"], "ovs0"),
    "trunk of a fake": (["ovs-vsctl add-port ovs0 up0", "ovs-vsctl add-br ten ovs0 10"], "ten", ["up0"], "ovs0"),
    "tunnel": (["ovs-vsctl add-port ovs0 far -- set Interface far type=vxlan options:remote_ip=127.0.0.2"], "ovs0", ["far"], ""),
    "bond without devices": ([TUNNELS], "ovs0", ["v1", "v2"], ""),
    "bond of which one is not there": (["ovs-vsctl add-bond ovs0 bond0 up0 up9"], "ovs0", ["up0"], "ovs0"),
    "without": ([PATCH], "ovs0", [], ""),
}


@pytest.fixture
def ovs(node: Node) -> Iterator[OpenVswitch]:
    with OpenVswitch.started() as made:
        yield made


def uplink(node: Node, name: str, address: str) -> None:
    """Make a device that is no veth, which may be a container's."""
    node.outside(f"{name}-w", address)
    run("ip", "link", "add", name, "link", f"{name}-w", "type", "macvlan", "mode", "passthru")
    run("ip", "link", "set", name, "up")


def uplinks(bridge: str) -> list[str]:
    tree = subprocess.run([PROGRAM, "tree", "--json"], capture_output=True, text=True, check=True)
    (found,) = [each for each in json.loads(tree.stdout)["segments"] if each["name"] == bridge]
    return [each["name"] for each in found["uplinks"]]


@pytest.mark.parametrize("case", CASES)
def test_uplinks(node: Node, ovs: OpenVswitch, case: str) -> None:
    commands, bridge, names, real = CASES[case]
    ovs.bridge("ovs0")
    ovs.bridge("br-ex")
    uplink(node, "up0", f"{OUTSIDE}/24")
    uplink(node, "up1", "10.0.9.1/24")
    for command in commands:
        run(*command.split())
    guest = node.guest(MAC, f"{GUEST}/24")
    done = rundoor("kvm-ifup", {**NIC, "LINK": bridge, "TAGS": "netcommon:0:spoof_guard:off"})
    assert (done.status, done.stderr) == (0, "")
    assert uplinks(bridge) == names
    traced = subprocess.run([PROGRAM, "trace", "tap0", "--to", "guest"], capture_output=True, text=True, check=False)
    if not real:
        said = f"where a trace begins, but by {' and '.join(names)}: " if names else "nothing that has an uplink"
        assert traced.returncode == 69 and said in traced.stderr, traced
        advised = re.findall(r"ovs-appctl (ofproto/trace .*)", traced.stderr)
        assert len(advised) == bool(names), traced
        assert all("Final flow" in run("ovs-appctl", f"--target={RUN}/vswitchd.ctl", *shlex.split(each)) for each in advised)
        return
    if "bond" not in case and case != "trunk of a fake":  # of a bond's members one is active
        wait_until(lambda: reaches(guest, OUTSIDE) == [OUTSIDE], 10, "echoes")
    assert f"port up0 of OVS bridge {real}" in traced.stdout, traced
    told = re.search(r'ovs-appctl (ofproto/trace \S+ "in_port=\S+" [0-9a-f]+)', traced.stdout)
    assert told is not None, traced
    assert "Final flow" in run("ovs-appctl", f"--target={RUN}/vswitchd.ctl", *shlex.split(told.group(1)))
