"""The MTU of the tap of an Open vSwitch port: that of the bridge's own device, found before the first change, and taken back at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.facts import BridgeVlan, Link, OvsPort
from netcommon.host.api.requests import AddVlan, DeleteVlan, SetLink
from netcommon.lifecycle.check import check, repair
from tests.support.sim import UUIDS, Sim, nic

LARGE = 9000


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    """With a fake bridge of ovs0."""
    made = Sim(str(tmp_path))
    made.host.add_fake_ovs_bridge("vlan10", "ovs0", 10)
    return made


def mtu_of(sim: Sim, device: str, mtu: int) -> None:
    sim.host.execute([SetLink(sim.index(device), mtu=mtu)], stop=True)


def tap(sim: Sim) -> int:
    link = sim.host.view().link("tap0")
    assert link is not None
    return link.mtu


@pytest.mark.parametrize(
    ("bridge", "real", "own", "expected"),
    [
        ("ovs0", LARGE, 1500, LARGE),
        ("ovs0", 1400, LARGE, 1400),
        ("vlan10", LARGE, 1500, LARGE),
        ("vlan10", 1500, LARGE, LARGE),
        ("vlan10", LARGE, 0, LARGE),
        ("vlan10", 0, 1400, 1400),
        ("vlan10", 0, 0, 1500),
        ("ovs0", 0, LARGE, 1500),
    ],
)
def test_which_mtu(sim: Sim, bridge: str, real: int, own: int, expected: int) -> None:
    """0: there is no such device. Where there is none at all the tap keeps its own."""
    for device, mtu in (("ovs0", real), ("vlan10", own)):
        there = sim.host.view().link(device)
        if mtu and there is None:
            raise AssertionError(f"no device {device}")
        if mtu:
            mtu_of(sim, device, mtu)
        elif there is not None:
            sim.host.remove_link(device)
    sim.before = sim.picture()
    sim.up(nic("openvswitch", LINK=bridge))
    assert tap(sim) == expected
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic("openvswitch", LINK=bridge))
    assert tap(sim) == 1500 and sim.picture() == sim.before


def test_what_somebody_has_set_since_stays(sim: Sim) -> None:
    mtu_of(sim, "ovs0", LARGE)
    sim.up(nic("openvswitch"))
    mtu_of(sim, "tap0", 2000)
    assert [text for _operation, text in check(sim.node, sim.host.view(), sim.record()).drift] == ["it is 2000"]
    sim.down(nic("openvswitch"))
    assert tap(sim) == 2000


@pytest.mark.parametrize(("mode", "bridge"), [("openvswitch", "ovs0"), ("bridged", "br0")])
def test_another_mtu_of_the_bridge_is_no_drift_and_a_repair_follows_a_larger_one(sim: Sim, mode: str, bridge: str) -> None:
    """Bridges' MTUs follow their ports: an agent that took them for drift would chase each port that comes."""
    mtu_of(sim, bridge, 4000)
    sim.up(nic(mode))
    mtu_of(sim, bridge, LARGE)
    assert check(sim.node, sim.host.view(), sim.record()).good
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    assert tap(sim) == LARGE and check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize(("mode", "bridge"), [("openvswitch", "ovs0"), ("bridged", "br0")])
def test_a_smaller_one_of_the_bridge_is_nothing_and_lowers_no_guests(sim: Sim, mode: str, bridge: str) -> None:
    """The ports' own count, for what passes between them."""
    mtu_of(sim, bridge, LARGE)
    sim.up(nic(mode))
    mtu_of(sim, "eth-br0", LARGE)
    mtu_of(sim, bridge, 1300)
    assert not repair(sim.node, UUIDS[0], sim.call()).changed
    assert check(sim.node, sim.host.view(), sim.record()).good and not named(sim)
    sim.up(nic(mode))
    assert tap(sim) == LARGE
    mtu_of(sim, "tap0", 1200)  # somebody else's word
    assert repair(sim.node, UUIDS[0], sim.call()).changed and tap(sim) == 1300


def named(sim: Sim) -> list[str]:
    """By which ports the longest frames of the guest cannot leave."""
    views = (sim.host.view(), sim.host.snapshot())
    live, whole = ([why.partition(",")[0] for _does, why in check(sim.node, view, sim.record()).idle] for view in views)
    assert live == whole
    return live


PORTS = {
    "both in all VLANs": ({}, {}, True),
    "the NIC's VLAN is among its trunks": ({"tag": 10}, {"trunks": (10, 20)}, True),
    "it is not": ({"tag": 10}, {"trunks": (20,)}, False),
    "another VLAN": ({"tag": 10}, {"tag": 20}, False),
    "the same, and a fake bridge": ({"bridge": "vlan10"}, {"tag": 10}, True),
    "a fake bridge, and all": ({"bridge": "vlan10"}, {}, True),
    "a fake bridge, and another VLAN": ({"bridge": "vlan10"}, {"tag": 20}, False),
    "another bridge": ({}, {"bridge": "ovs1"}, False),
}


@pytest.mark.parametrize("how", PORTS)
def test_a_smaller_port_of_the_switch(tmp_path: Path, how: str) -> None:
    """Of the kernel's datapath, whose bridges have one master; the bridges' own devices are for the node alone."""
    mine, other, expected = PORTS[how]
    sim = Sim(str(tmp_path))
    for bridge in ("sys0", "sys1"):
        sim.host.add_ovs_bridge(bridge, system=True)
    sim.host.add_fake_ovs_bridge("vlan10", "sys0", 10)
    names = {"ovs0": "sys0", "ovs1": "sys1", "vlan10": "vlan10"}
    sim.host.add_link(Link(0, "eth1"))
    sim.host.switch.insert(OvsPort("eth1", names[str(other.get("bridge", "ovs0"))], other.get("tag"), other.get("trunks", ())))
    mtu_of(sim, "sys0", LARGE)
    vlan = f"{mine['tag']}" if "tag" in mine else ""
    sim.up(nic("openvswitch", LINK=names[str(mine.get("bridge", "ovs0"))], VLAN=vlan))
    assert tap(sim) == LARGE
    assert named(sim) == (["for what leaves sys0 by eth1"] if expected else [])


@pytest.mark.parametrize(("vid", "expected"), [(10, True), (20, False)])
def test_a_smaller_port_in_another_vlan(sim: Sim, vid: int, expected: bool) -> None:
    """Of somebody else's guest; an uplink has the NIC's VLAN."""
    sim.host.add_bridge("br9", vlan_filtering=True)
    bridge = sim.index("br9")
    sim.host.add_link(Link(0, "eth1", "tun", holders=1, master=bridge))
    sim.host.add_link(Link(0, "eth2", mtu=LARGE, master=bridge))
    answers = sim.host.execute([DeleteVlan(sim.index("eth1"), 1), AddVlan(sim.index("eth1"), BridgeVlan(vid))], stop=True)
    assert all(each.ok for each in answers)
    mtu_of(sim, "br9", LARGE)
    sim.up(nic("bridged", LINK="br9", VLAN="10"))
    assert named(sim) == (["for what leaves br9 by eth1"] if expected else [])


def test_from_one_mode_to_the_other(sim: Sim) -> None:
    """What was there before is what was there before both."""
    mtu_of(sim, "ovs0", LARGE)
    sim.up(nic("bridged"))
    assert tap(sim) == 1400
    sim.up(nic("openvswitch"))
    assert tap(sim) == LARGE
    sim.down(nic("openvswitch"))
    assert tap(sim) == 1500
