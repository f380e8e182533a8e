"""What a view says of a node where a thing is not there at all."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import OVS_MARK, OvsPort
from netcommon.host.api.requests import DeleteOvsPort, PutOvsPort
from tests.contract.worlds import World, do, index, told, view

PORT = OvsPort("tap0", "ovs0", external_ids=((OVS_MARK, "uuid-1"),))


def test_an_empty_node(world: World) -> None:
    seen = view(world)
    assert [link.name for link in seen.links()] == ["lo"]
    assert (seen.neighbours(2), seen.neighbours(10), seen.routes(2, 100), seen.rules(2, "tap0")) == ([], [], [], [])
    assert (seen.vlans(1), list(seen.links_of("vlan"))) == ([], [])
    assert seen.sysctl("net/nothing") is None


def test_no_open_vswitch(world: World) -> None:
    for seen in (view(world), world.host.snapshot()):
        assert (seen.ovs_bridge("ovs0"), seen.ovs_port("tap0"), list(seen.ovs_ports())) == (False, None, [])
    assert told(world, PutOvsPort(PORT)).errno == errno.ENOENT
    assert told(world, DeleteOvsPort("tap0", "uuid-1")).errno in DeleteOvsPort("tap0", "uuid-1").gone


def test_no_vlans_but_on_ports(world: World) -> None:
    """Also on a kernel without VLAN filtering."""
    world.bridge("br0")
    world.tap("tap0")
    assert view(world).vlans(index(world, "tap0")) == []


@pytest.mark.parametrize(
    ("name", "number"),
    [("main", 254), ("local", 255), ("default", 253), ("100", 100), ("4294967295", 4294967295), ("0x64", 100)]
    + [(name, None) for name in ("", "nothing", "0", "-1", "010", "4294967296", "1e3", "0x", "0x0", "१", " 100", "10 0")],
)
def test_tables(world: World, name: str, number: int | None) -> None:
    assert view(world).table(name) == number
    assert world.host.snapshot().table(name) == number


def test_identity(world: World) -> None:
    identity = world.host.identity()
    assert identity == world.host.identity()
    assert identity.boot and identity.netns > 0


def test_a_snapshot_is_of_one_moment(world: World) -> None:
    """And a live view is of now."""
    world.tap("tap0")
    live, snapshot = view(world), world.host.snapshot()
    assert snapshot.link("tap0") == live.link("tap0")
    assert snapshot.sysctl("net/ipv4/conf/tap0/proxy_arp") == "0"
    world.let_go("tap0")
    world.tap("tap1")
    assert (live.link("tap0"), snapshot.link("tap1")) == (None, None)
    assert snapshot.link("tap0") is not None
    assert snapshot.sysctl("net/ipv4/conf/tap0/proxy_arp") == "0"
    assert do(world) == []
