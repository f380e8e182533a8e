"""VLANs of bridge ports: needs a kernel with VLAN filtering."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import BridgeVlan
from netcommon.host.api.requests import AddVlan, DeleteVlan, SetLink
from tests.contract.worlds import World, do, index, told, view

DEFAULT = BridgeVlan(1, pvid=True, untagged=True)


def port(world: World, bridge: str = "br0", tap: str = "tap0") -> int:
    """The index of a tap that is a port of the bridge."""
    world.tap(tap)
    found = index(world, tap)
    assert do(world, SetLink(found, master=index(world, bridge))) == [0]
    return found


def test_a_bridge_says_what_it_does(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True)
    full_world.bridge("br1")
    full_world.bridge("br2", vlan_filtering=True, default_pvid=0)
    full_world.bridge("br3", vlan_filtering=True, default_pvid=4)
    said = [view(full_world).link(f"br{number}") for number in range(4)]
    assert [(link.vlan_filtering, link.default_pvid) for link in said if link] == [(True, 1), (False, 1), (True, 0), (True, 4)]


@pytest.mark.parametrize("pvid", [1, 4, 0])
def test_a_new_port_has_the_default(full_world: World, pvid: int) -> None:
    full_world.bridge("br0", vlan_filtering=True, default_pvid=pvid)
    expected = [BridgeVlan(pvid, pvid=True, untagged=True)] if pvid else []
    assert view(full_world).vlans(port(full_world)) == expected


def test_add_and_delete(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True)
    tap = port(full_world)
    hybrid = [BridgeVlan(10, pvid=True, untagged=True), BridgeVlan(20), BridgeVlan(21), BridgeVlan(4094)]
    requests = [DeleteVlan(tap, 1), *(AddVlan(tap, vlan) for vlan in hybrid)]
    assert do(full_world, *requests, stop=True) == [0] * 5
    assert view(full_world).vlans(tap) == hybrid
    assert full_world.host.snapshot().vlans(tap) == hybrid
    assert do(full_world, *requests) == [0] * 5
    assert view(full_world).vlans(tap) == hybrid
    assert do(full_world, DeleteVlan(tap, 20), DeleteVlan(tap, 20)) == [0, 0]
    assert view(full_world).vlans(tap) == [hybrid[0], *hybrid[2:]]


def test_the_pvid_moves(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True)
    tap = port(full_world)
    assert do(full_world, AddVlan(tap, BridgeVlan(10, pvid=True))) == [0]
    assert view(full_world).vlans(tap) == [BridgeVlan(1, untagged=True), BridgeVlan(10, pvid=True)]
    assert do(full_world, AddVlan(tap, BridgeVlan(10))) == [0]
    assert view(full_world).vlans(tap) == [BridgeVlan(1, untagged=True), BridgeVlan(10)]


@pytest.mark.parametrize("side_by_side", [False, True])
def test_none_is_added_behind_one_that_stays(full_world: World, side_by_side: bool) -> None:
    """The port would be in both. What is about other ports, and what comes behind, is done; one that has gone already hinders nothing."""
    full_world.bridge("br0", vlan_filtering=True)
    tap, other = port(full_world), port(full_world, tap="tap1")
    ten = BridgeVlan(10, pvid=True, untagged=True)
    refused = [
        DeleteVlan(tap, 5000),
        AddVlan(tap, ten, True),
        AddVlan(tap, BridgeVlan(20), True),
        AddVlan(other, ten, True),
        DeleteVlan(tap, 1),
    ]
    had = [DeleteVlan(other, 30), DeleteVlan(other, 1), AddVlan(other, BridgeVlan(20), True)]
    if side_by_side:
        lists = [refused, had]
        answers = [answer.errno for said in full_world.host.execute_each(lists, False) for answer in said]
    else:
        answers = do(full_world, *refused, *had)
    assert answers == [errno.EINVAL, errno.ECANCELED, errno.ECANCELED, 0, 0, 0, 0, 0]
    assert view(full_world).vlans(tap) == [] and view(full_world).vlans(other) == [ten, BridgeVlan(20)]


def test_every_vid(full_world: World) -> None:
    """Ranges are told apart, and of another port nothing is seen."""
    full_world.bridge("br0", vlan_filtering=True)
    tap, other = port(full_world), port(full_world, tap="tap1")
    assert do(full_world, *(AddVlan(tap, BridgeVlan(vid)) for vid in range(2, 600))) == [0] * 598
    assert view(full_world).vlans(tap) == [DEFAULT, *(BridgeVlan(vid) for vid in range(2, 600))]
    assert view(full_world).vlans(other) == [DEFAULT]
    assert full_world.host.snapshot().vlans(other) == [DEFAULT]


def test_they_go_with_the_port(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True)
    tap = port(full_world)
    assert do(full_world, AddVlan(tap, BridgeVlan(10)), SetLink(tap, master=0)) == [0, 0]
    assert view(full_world).vlans(tap) == []
    assert do(full_world, SetLink(tap, master=index(full_world, "br0"))) == [0]
    assert view(full_world).vlans(tap) == [DEFAULT]


@pytest.mark.parametrize("pvid", [1, 4, 0])
def test_a_bridge_is_in_the_default_itself(full_world: World, pvid: int) -> None:
    """Nothing is asked of it as of a port; its VLAN goes with it, as those of its ports do."""
    full_world.bridge("br0", vlan_filtering=True, default_pvid=pvid)
    bridge, tap = index(full_world, "br0"), port(full_world)
    expected = [BridgeVlan(pvid, pvid=True, untagged=True)] if pvid else []
    for seen in (view(full_world), full_world.host.snapshot()):
        assert seen.vlans(bridge) == expected
    assert told(full_world, AddVlan(bridge, BridgeVlan(10))).errno == errno.EOPNOTSUPP
    assert do(full_world, AddVlan(tap, BridgeVlan(10)), AddVlan(tap, BridgeVlan(11)), AddVlan(tap, BridgeVlan(20))) == [0, 0, 0]
    full_world.remove("br0")
    assert view(full_world).vlans(bridge) == view(full_world).vlans(tap) == []


def test_they_go_with_the_device(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True)
    tap = port(full_world)
    assert do(full_world, AddVlan(tap, BridgeVlan(10))) == [0]
    full_world.let_go("tap0")
    assert list(view(full_world).carriers(10)) == []


def test_another_bridge_has_another_default(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True), full_world.bridge("br1", vlan_filtering=True, default_pvid=4)
    tap = port(full_world)
    assert do(full_world, AddVlan(tap, BridgeVlan(4, untagged=True)), SetLink(tap, master=index(full_world, "br1"))) == [0, 0]
    assert view(full_world).vlans(tap) == [BridgeVlan(4, pvid=True, untagged=True)]


def test_what_is_as_it_was(full_world: World) -> None:
    """The kernel tells of what changes alone: each flag is a change."""
    full_world.bridge("br0", vlan_filtering=True)
    tap = port(full_world)
    for vlan in (BridgeVlan(10), BridgeVlan(10), BridgeVlan(10, untagged=True), BridgeVlan(10, pvid=True), BridgeVlan(10, pvid=True)):
        assert do(full_world, AddVlan(tap, vlan)) == [0]
        assert view(full_world).vlans(tap) == [BridgeVlan(1, pvid=not vlan.pvid, untagged=True), vlan]
    assert do(full_world, DeleteVlan(tap, 10), DeleteVlan(tap, 10), DeleteVlan(tap, 1)) == [0, 0, 0]
    assert view(full_world).vlans(tap) == []


def test_without_filtering_they_are_kept(full_world: World) -> None:
    """The kernel takes them, and does nothing with them."""
    full_world.bridge("br0")
    tap = port(full_world)
    assert do(full_world, AddVlan(tap, BridgeVlan(10))) == [0]
    assert view(full_world).vlans(tap) == [DEFAULT, BridgeVlan(10)]


def test_refused(full_world: World) -> None:
    full_world.bridge("br0", vlan_filtering=True)
    tap = port(full_world)
    full_world.tap("tap1")
    free = index(full_world, "tap1")
    assert told(full_world, AddVlan(free, BridgeVlan(10))).errno == errno.EOPNOTSUPP
    assert told(full_world, DeleteVlan(free, 10)).errno == errno.EOPNOTSUPP
    assert told(full_world, AddVlan(9999, BridgeVlan(10))).errno == errno.ENODEV
    assert told(full_world, DeleteVlan(9999, 10)).errno == errno.ENODEV
    for vid in (0, 4095, 5000):
        assert told(full_world, AddVlan(tap, BridgeVlan(vid))).errno == errno.EINVAL
    assert view(full_world).vlans(free) == []
    assert view(full_world).vlans(9999) == []
    assert view(full_world).vlans(0) == []
