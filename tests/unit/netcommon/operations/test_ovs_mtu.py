"""The MTU of the tap of an Open vSwitch port: that of the bridge's own device, found before the first change, and taken back at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.requests import SetLink
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


@pytest.mark.parametrize(
    ("mode", "bridge", "remedy"),
    [
        ("openvswitch", "ovs0", "ovs0 has 1300: ovs-vsctl set Interface ovs0 mtu_request=9000"),
        ("bridged", "br0", "br0 has 1300: ip link set dev br0 mtu 9000"),
    ],
)
def test_a_smaller_one_of_the_bridge_is_named_and_lowers_no_guests(sim: Sim, mode: str, bridge: str, remedy: str) -> None:
    mtu_of(sim, bridge, LARGE)
    sim.up(nic(mode))
    mtu_of(sim, bridge, 1300)
    assert not repair(sim.node, UUIDS[0], sim.call()).changed
    report = check(sim.node, sim.host.view(), sim.record())
    assert report.good and [why for _does, why in report.idle] == [remedy]
    sim.up(nic(mode))
    assert tap(sim) == LARGE
    mtu_of(sim, "tap0", 1200)  # somebody else's word
    assert repair(sim.node, UUIDS[0], sim.call()).changed and tap(sim) == 1300


def test_from_one_mode_to_the_other(sim: Sim) -> None:
    """What was there before is what was there before both."""
    mtu_of(sim, "ovs0", LARGE)
    sim.up(nic("bridged"))
    assert tap(sim) == 1400
    sim.up(nic("openvswitch"))
    assert tap(sim) == LARGE
    sim.down(nic("openvswitch"))
    assert tap(sim) == 1500
