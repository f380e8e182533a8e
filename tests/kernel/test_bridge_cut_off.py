"""check, explain and tree on a bridged NIC whose port is there as it was made, and that has no network: echoes decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import MAC, drift, reaches
from tests.support.rundoor import rundoor
from tests.support.verdict import idle, lost

OUTSIDE, GUEST = "10.0.0.1", "10.0.0.5"
NIC = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "MAC": MAC,
    "VLAN": "",
    "IP": GUEST,
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "00000000-0667-415f-9a43-786dc01cbf24",
    "TAGS": "",
}

#: What is done after the up, what undoes it where the remedy is for people, and what is said; "" where echoes pass.
CASES = {
    "disabled": (["bridge link set dev tap0 state 0"], "", "tap0 is disabled as a port of br0"),
    "listening": (["bridge link set dev tap0 state 1"], "", "tap0 is listening as a port of br0"),
    "learning": (["bridge link set dev tap0 state 2"], "", "tap0 is learning as a port of br0"),
    "blocking": (["bridge link set dev tap0 state 4"], "", ""),  # without STP the kernel makes it forward at once
    "isolated": (
        ["bridge link set dev tap0 isolated on", "bridge link set dev up0 isolated on"],
        "",
        "tap0 is isolated as a port of br0, and so is up0",
    ),
    "one isolated": (["bridge link set dev tap0 isolated on"], "", ""),
    "the other isolated": (["bridge link set dev up0 isolated on"], "", ""),
    "a second way": (
        [
            "bridge link set dev tap0 isolated on",
            "ip link add other type veth peer name far",
            "ip link set other master br0 up",
            "bridge link set dev other isolated on",
        ],
        "",
        "",
    ),
    "its MAC": ([f"ip link set br0 address {MAC}"], "ip link set br0 address aa:bb:00:00:00:01", f"br0 has the guest's MAC {MAC}"),
    "uplink's MAC": ([f"ip link set up0 address {MAC}"], "ip link set up0 address aa:bb:00:00:00:01", f"up0 has the guest's MAC {MAC}"),
    "drawn off": (
        [f"bridge fdb replace {MAC} dev up0 master static sticky"],
        "",
        f"a static entry leads what is for the guest's MAC {MAC} to up0",
    ),
    "moved": ([f"bridge fdb replace {MAC} dev up0 master static"], "", ""),  # the guest's next frame moves it
    "locked": (["bridge link set dev tap0 locked on", "bridge fdb flush dev br0"], "", "tap0 is locked as a port of br0"),
    "uplink down": (["ip link set up0 down"], "", "nothing leads out of br0: up0 is down"),
    "uplink unplugged": (
        ["nsenter --net={outside} ip link set eth0 down"],
        "nsenter --net={outside} ip link set eth0 up",
        "up0 has no carrier",
    ),
    "uplink disabled": (["bridge link set dev up0 state 0"], "", "nothing leads out of br0: up0 is disabled as a port of br0"),
    "uplink without broadcasts": (["bridge link set dev up0 bcast_flood off"], "", "no broadcast is sent by up0, such as ARP"),
    "another uplink down": (["ip link add other type veth peer name far", "ip link set other master br0"], "", ""),
    "both down": (
        ["ip link add other type veth peer name far", "ip link set other master br0", "ip link set up0 down"],
        "ip link set up0 up",
        "is down; ",
    ),
    "never found": (
        ["bridge link set dev tap0 learning off", "bridge link set dev tap0 flood off", "bridge fdb flush dev br0"],
        "",
        "br0 neither learns at tap0 nor floods there",
    ),
    "known for good": (
        [
            "bridge link set dev tap0 learning off",
            "bridge link set dev tap0 flood off",
            "bridge fdb flush dev br0",
            f"bridge fdb replace {MAC} dev tap0 master static",
        ],
        "",
        "",
    ),
}


class World:
    """The guest, and the other end of the uplink."""

    def __init__(self, node: Node, vlan_filtering: bool = False) -> None:
        self.outside = node.outside("up0", f"{OUTSIDE}/24")
        node.bridge("br0", "up0", vlan_filtering=vlan_filtering)
        self.guest = node.namespaced()
        run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", MAC, "netns", self.guest.path)
        self.guest.run("ip", "link", "set", "eth0", "up")
        self.guest.run("ip", "address", "add", f"{GUEST}/24", "dev", "eth0")
        done = rundoor("kvm-ifup", NIC)
        assert (done.status, done.stderr) == (0, "")
        assert self.passes() and lost() == [] and idle() == [] and drift() == []

    def do(self, *commands: str) -> None:
        for command in commands:
            run(*command.format(outside=self.outside.path).split())

    def passes(self) -> bool:
        """Nobody knows a neighbour from before."""
        for each in (self.guest, self.outside):
            each.run("ip", "neighbour", "flush", "all", check=False)
        return reaches(self.guest, OUTSIDE) == [OUTSIDE]

    def decide(self, commands: Sequence[str], back: str, words: str) -> None:
        """Echoes pass after the commands as is said, and after the remedy, or ``back`` where it is for people."""
        self.do(*commands)
        assert self.passes() == (not words)
        found = lost()
        assert [words in why for why, _remedy in found] == ([True] if words else []) and drift() == []
        for _why, remedy in found:
            self.do(back or remedy.partition(",")[0])
        assert self.passes() and lost() == []


@pytest.mark.parametrize("case", CASES)
def test_echoes_decide(node: Node, case: str) -> None:
    World(node).decide(*CASES[case])


#: What takes the uplink out of the bridge.
TAKEN = {
    "nobody's": ["ip link set up0 nomaster"],
    "another's": ["ip link add br1 up type bridge", "ip link set up0 master br1"],
}


@pytest.mark.parametrize("case", TAKEN)
def test_an_uplink_taken_out(node: Node, case: str) -> None:
    """A bridge without an uplink may be meant so: it is a fault where the settings name one."""
    world = World(node)
    world.do(*TAKEN[case])
    assert not world.passes()
    (why,) = idle()
    assert "no port of br0 leads out of it" in why and lost() == [] and drift() == []
    assert [each for each in findings(Paths()) if each.topic == "bridges" and why in each.text]
    run("ip", "address", "add", "10.0.0.9/24", "dev", "br0")  # the node itself may lead on
    assert idle() == [] and lost() == []
    Path("/etc/netcommon/config.toml").write_text('[bridges.br0]\nuplinks = ["up0"]\n')
    ((why, remedy),) = lost()
    assert "up0, by the settings its uplink, is no port of it" in why and idle() == []
    assert [each for each in findings(Paths()) if each.topic == "bridges" and why in each.text]
    world.do(remedy)
    assert world.passes() and lost() == []


#: What is done to the VLANs of a bridge that is VLAN-aware, and what is said.
VLANS = {
    "the uplink's": (["bridge vlan del vid 1 dev up0"], "", "nothing leads out of br0: up0 does not carry VLAN 1"),
    "the port's": (["bridge vlan del vid 1 dev tap0"], "", "tap0 is in no VLAN of br0"),
    "another": (["bridge vlan add vid 7 dev up0"], "", ""),
}


@pytest.mark.vm
@pytest.mark.parametrize("case", VLANS)
def test_vlans_decide(node: Node, case: str) -> None:
    World(node, vlan_filtering=True).decide(*VLANS[case])
