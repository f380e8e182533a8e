"""Flags of bridge ports, entries of forwarding databases, and who carries a VLAN."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import LEARNED, LOCAL, STATIC, BridgeVlan, FdbEntry, Port
from netcommon.host.api.requests import AddFdb, AddVlan, DeleteFdb, DeleteVlan, FlushPort, SetLink, SetPort
from netcommon.host.simulated.host import MemoryHost
from tests.contract.worlds import World, do, index, told, view
from tests.support.netns import run

MAC = "aa:00:00:00:00:01"


def port(world: World, tap: str = "tap0", bridge: str = "br0") -> int:
    """The index of a tap that is a port of the bridge."""
    world.tap(tap)
    found = index(world, tap)
    assert do(world, SetLink(found, master=index(world, bridge))) == [0]
    return found


@pytest.fixture
def bridged(world: World) -> World:
    world.bridge("br0")
    return world


@pytest.fixture
def aware(full_world: World) -> World:
    full_world.bridge("br0", vlan_filtering=True)
    return full_world


def test_a_new_port(bridged: World) -> None:
    tap = port(bridged)
    assert view(bridged).port(tap) == bridged.host.snapshot().port(tap) == Port()
    for other in (index(bridged, "br0"), 99, 0, -1):
        assert view(bridged).port(other) is None


@pytest.mark.parametrize("flag", Port._fields)
def test_each_flag(bridged: World, flag: str) -> None:
    """It alone changes, and is as in a new port again when the tap comes back to the bridge."""
    tap, bridge = port(bridged), index(bridged, "br0")
    usual = getattr(Port(), flag)
    assert do(bridged, SetPort(tap, flag, not usual), SetPort(tap, flag, not usual)) == [0, 0]
    assert view(bridged).port(tap) == Port()._replace(**{flag: not usual})
    assert do(bridged, SetLink(tap, master=0)) == [0]
    assert view(bridged).port(tap) is None
    assert do(bridged, SetLink(tap, master=bridge)) == [0]
    assert view(bridged).port(tap) == Port()
    assert do(bridged, SetPort(tap, flag, not usual), SetPort(tap, flag, usual)) == [0, 0]
    assert view(bridged).port(tap) == Port()


def test_flags_of_what_is_no_port(bridged: World) -> None:
    bridged.tap("tap0")
    for other, expected in ((index(bridged, "tap0"), errno.EOPNOTSUPP), (99, errno.ENODEV)):
        said = told(bridged, SetPort(other, "isolated", True))
        assert said.errno == expected and said.errno in SetPort(other, "isolated", True).gone
        assert "isolated on" in said.text
    assert told(bridged, SetPort(port(bridged, "tap1"), "hairpin", True)).errno == errno.EINVAL


def test_an_entry(bridged: World) -> None:
    tap, bridge = port(bridged), index(bridged, "br0")
    assert view(bridged).fdb_entry(bridge, MAC, 0) is None
    assert do(bridged, AddFdb(tap, MAC), AddFdb(tap, MAC)) == [0, 0]
    expected = FdbEntry(MAC, tap, 0, STATIC, sticky=True)
    assert view(bridged).fdb_entry(bridge, MAC, 0) == bridged.host.snapshot().fdb_entry(bridge, MAC, 0) == expected
    assert view(bridged).fdb_entry(bridge, "aa:00:00:00:00:02", 0) is None
    assert do(bridged, DeleteFdb(tap, MAC)) == [0]
    assert view(bridged).fdb_entry(bridge, MAC, 0) is None
    assert told(bridged, DeleteFdb(tap, MAC)).errno == errno.ENOENT


def test_an_entry_moves_to_another_port(bridged: World) -> None:
    """Only from its own port it can be deleted."""
    first, second, bridge = port(bridged), port(bridged, "tap1"), index(bridged, "br0")
    assert do(bridged, AddFdb(first, MAC), AddFdb(second, MAC)) == [0, 0]
    assert view(bridged).fdb_entry(bridge, MAC, 0) == FdbEntry(MAC, second, 0, STATIC, sticky=True)
    said = told(bridged, DeleteFdb(first, MAC))
    assert said.errno == errno.ENOENT and said.errno in DeleteFdb(first, MAC).gone and MAC in said.text
    assert view(bridged).fdb_entry(bridge, MAC, 0) is not None


@pytest.mark.parametrize("how", ["leaves", "goes"])
def test_an_entry_goes_with_its_port(bridged: World, how: str) -> None:
    tap, bridge = port(bridged), index(bridged, "br0")
    assert do(bridged, AddFdb(tap, MAC)) == [0]
    if how == "leaves":
        assert do(bridged, SetLink(tap, master=0)) == [0]
    else:
        bridged.remove("tap0")
    assert view(bridged).fdb_entry(bridge, MAC, 0) is None


def test_the_address_of_a_port(bridged: World) -> None:
    tap, bridge = port(bridged), index(bridged, "br0")
    link = view(bridged).link("tap0")
    assert link is not None
    assert view(bridged).fdb_entry(bridge, link.address, 0) == FdbEntry(link.address, tap, 0, LOCAL)


def test_entries_where_there_can_be_none(bridged: World) -> None:
    bridged.tap("tap0")
    tap = index(bridged, "tap0")
    for request in (AddFdb(tap, MAC), DeleteFdb(tap, MAC)):
        assert told(bridged, request).errno == errno.EOPNOTSUPP
    for request in (AddFdb(99, MAC), DeleteFdb(99, MAC)):
        assert told(bridged, request).errno == errno.ENODEV
    assert {errno.EOPNOTSUPP, errno.ENODEV} <= DeleteFdb(tap, MAC).gone
    assert told(bridged, AddFdb(port(bridged, "tap1"), "aa:00:00:00:00")).errno == errno.EINVAL
    for other in (tap, 99, 0, -1):
        assert view(bridged).fdb_entry(other, MAC, 0) is None


def test_an_entry_in_a_vlan(aware: World) -> None:
    tap, bridge = port(aware), index(aware, "br0")
    assert do(aware, AddVlan(tap, BridgeVlan(10)), AddFdb(tap, MAC, 10)) == [0, 0]
    assert view(aware).fdb_entry(bridge, MAC, 10) == FdbEntry(MAC, tap, 10, STATIC, sticky=True)
    assert [view(aware).fdb_entry(bridge, MAC, vid) for vid in (0, 1, 20)] == [None] * 3
    for request in (AddFdb(tap, MAC, 20), DeleteFdb(tap, MAC, 20)):
        assert told(aware, request).errno == errno.EINVAL
    assert do(aware, DeleteVlan(tap, 10)) == [0]
    assert view(aware).fdb_entry(bridge, MAC, 10) is not None  # it lasts, and cannot be deleted now
    assert told(aware, DeleteFdb(tap, MAC, 10)).errno == errno.EINVAL
    assert do(aware, AddVlan(tap, BridgeVlan(10)), DeleteFdb(tap, MAC, 10)) == [0, 0]
    assert view(aware).fdb_entry(bridge, MAC, 10) is None


@pytest.mark.parametrize("filtering", [False, True])
def test_an_entry_in_all_vlans(full_world: World, filtering: bool) -> None:
    full_world.bridge("br0", vlan_filtering=filtering)
    tap, bridge = port(full_world), index(full_world, "br0")
    assert do(full_world, AddVlan(tap, BridgeVlan(10)), AddFdb(tap, MAC)) == [0, 0]
    assert [view(full_world).fdb_entry(bridge, MAC, vid) for vid in (0, 1, 10)] == [
        FdbEntry(MAC, tap, vid, STATIC, sticky=True) for vid in (0, 1, 10)
    ]
    assert do(full_world, DeleteFdb(tap, MAC)) == [0]
    assert [view(full_world).fdb_entry(bridge, MAC, vid) for vid in (0, 1, 10)] == [None] * 3


def learnt(world: World, tap: int, name: str, mac: str) -> None:
    """The bridge has learnt the address behind the port, as from a frame."""
    if isinstance(world.host, MemoryHost):
        bridge = index(world, "br0")
        world.host.kernel.bridge_ports.entries |= {(bridge, vid, mac): FdbEntry(mac, tap, vid, LEARNED) for vid in (0,)}
    else:
        run("bridge", "fdb", "add", mac, "dev", name, "master", "dynamic")


@pytest.mark.parametrize("by", ["learning off", "a flush"])
def test_what_was_learnt_goes(bridged: World, by: str) -> None:
    """Behind this port alone; what somebody has made stays."""
    first, second, bridge = port(bridged), port(bridged, "tap1"), index(bridged, "br0")
    assert do(bridged, *(SetLink(one, up=True) for one in (bridge, first, second))) == [0] * 3  # no other port learns
    others = [f"aa:00:00:00:00:1{number}" for number in range(3)]
    learnt(bridged, first, "tap0", others[0])
    learnt(bridged, first, "tap0", others[1])
    learnt(bridged, second, "tap1", others[2])
    assert do(bridged, AddFdb(first, MAC)) == [0]
    found = [view(bridged).fdb_entry(bridge, mac, 0) for mac in others]
    assert [(each.kind, each.index) for each in found if each] == [(LEARNED, first), (LEARNED, first), (LEARNED, second)]
    for request in (SetPort(first, "learning", True), SetPort(first, "isolated", True)):
        assert do(bridged, request) == [0] and view(bridged).fdb_entry(bridge, others[0], 0) is not None
    request = FlushPort(first) if by == "a flush" else SetPort(first, "learning", False)
    assert do(bridged, request, request) == [0, 0]
    assert [mac for mac in (*others, MAC) if view(bridged).fdb_entry(bridge, mac, 0) is not None] == [others[2], MAC]
    assert view(bridged).port(first) == Port(isolated=True, learning=by == "a flush")


def test_a_flush_of_what_is_no_port(bridged: World) -> None:
    bridged.tap("tap0")
    for other, expected in ((index(bridged, "tap0"), errno.EOPNOTSUPP), (99, errno.ENODEV)):
        said = told(bridged, FlushPort(other))
        assert said.errno == expected and said.errno in FlushPort(other).gone and "learnt" in said.text


def test_who_carries_a_vlan(aware: World) -> None:
    first, second, bridge = port(aware), port(aware, "tap1"), index(aware, "br0")
    assert do(aware, *(AddVlan(first, BridgeVlan(vid)) for vid in range(10, 30)), AddVlan(second, BridgeVlan(29))) == [0] * 21
    for seen in (view(aware), aware.host.snapshot()):
        assert [list(seen.carriers(vid)) for vid in (9, 10, 20, 30)] == [[], [first], [first], []]
        assert sorted(seen.carriers(29)) == [first, second]
        assert sorted(seen.carriers(1)) == [bridge, first, second]


def test_nobody_carries_what_nobody_has(world: World) -> None:
    """Also where the kernel knows no VLANs."""
    assert list(view(world).carriers(10)) == []
