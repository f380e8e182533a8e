"""Proxy neighbours: the kernel compares no protocol and restamps what is there."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Neighbour
from netcommon.host.api.requests import AddNeighbour, DeleteNeighbour, SetLink
from tests.contract.worlds import World, do, index, told, view

ADDRESSES = {2: "10.0.0.5", 10: "2001:db8::5"}
BOTH = pytest.mark.parametrize("family", ADDRESSES)


@pytest.fixture
def uplink(world: World) -> World:
    """Two devices, up."""
    world.veth("up0", "peer")
    assert do(world, SetLink(index(world, "up0"), up=True), SetLink(index(world, "peer"), up=True)) == [0, 0]
    return world


@BOTH
def test_add_and_delete(uplink: World, family: int) -> None:
    made = Neighbour(family, ADDRESSES[family], index(uplink, "up0"))
    assert do(uplink, AddNeighbour(made), AddNeighbour(made)) == [0, 0]
    assert view(uplink).neighbours(family) == [made]
    assert view(uplink).neighbours(family, made.index) == [made]
    assert view(uplink).neighbours(family, index(uplink, "peer")) == []
    assert view(uplink).neighbours(12 - family) == []
    assert uplink.host.snapshot().neighbours(family, made.index) == [made]
    assert do(uplink, DeleteNeighbour(made)) == [0]
    assert view(uplink).neighbours(family) == []
    assert told(uplink, DeleteNeighbour(made)).errno == errno.ENOENT


@BOTH
def test_the_mark_is_overwritten_and_not_compared(uplink: World, family: int) -> None:
    made = Neighbour(family, ADDRESSES[family], index(uplink, "up0"))
    assert do(uplink, AddNeighbour(made._replace(protocol=4)), AddNeighbour(made)) == [0, 0]
    assert view(uplink).neighbours(family) == [made]
    assert do(uplink, DeleteNeighbour(made._replace(protocol=4))) == [0]
    assert view(uplink).neighbours(family) == []


@BOTH
def test_each_device_has_its_own(uplink: World, family: int) -> None:
    first = Neighbour(family, ADDRESSES[family], index(uplink, "up0"))
    second = first._replace(index=index(uplink, "peer"))
    assert do(uplink, AddNeighbour(first), AddNeighbour(second), DeleteNeighbour(first)) == [0, 0, 0]
    assert view(uplink).neighbours(family) == [second]


@BOTH
def test_they_go_when_their_device_does(uplink: World, family: int) -> None:
    """Or goes down."""
    made = Neighbour(family, ADDRESSES[family], index(uplink, "up0"))
    assert do(uplink, AddNeighbour(made), SetLink(made.index, up=False)) == [0, 0]
    assert view(uplink).neighbours(family) == []
    assert do(uplink, SetLink(made.index, up=True), AddNeighbour(made)) == [0, 0]
    uplink.remove("up0")
    assert view(uplink).neighbours(family) == []
    assert view(uplink).neighbours(family, made.index) == []


@BOTH
def test_a_device_that_is_down_takes_them(world: World, family: int) -> None:
    world.tap("tap0")
    made = Neighbour(family, ADDRESSES[family], index(world, "tap0"))
    assert do(world, AddNeighbour(made)) == [0]
    assert view(world).neighbours(family, made.index) == [made]


@BOTH
def test_refused(uplink: World, family: int) -> None:
    made = Neighbour(family, ADDRESSES[family], 9999)
    assert told(uplink, AddNeighbour(made)).errno == errno.ENODEV
    assert told(uplink, DeleteNeighbour(made)).errno == errno.ENODEV
    assert told(uplink, AddNeighbour(made._replace(address="nonsense"))).errno == errno.EINVAL
