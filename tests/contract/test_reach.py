"""How the outside reaches a node, and frames sent as they are."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Rule
from netcommon.host.api.requests import AddRule, SendFrame, SetLink
from tests.contract.worlds import World, do, index, told, view
from tests.support.netns import wait_until

ETHERNET = 14
FRAME = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + b"anything"  #: of a type for local experiments (IEEE 802)
BOTH = pytest.mark.parametrize("family", [2, 10])


@pytest.fixture
def uplink(world: World) -> World:
    """Two devices, up."""
    world.veth("up0", "peer")
    address = SetLink(index(world, "up0"), address="02:00:00:00:00:01")
    assert do(world, address, SetLink(index(world, "up0"), up=True), SetLink(index(world, "peer"), up=True)) == [0, 0, 0]
    return world


@BOTH
def test_ways_in(uplink: World, family: int) -> None:
    """The rules of others, by their table: those of ours, of other tables and for every interface do not count."""
    found = view(uplink).ways_in(family, 100)
    assert found == []
    rules = [
        Rule(family, 400, "up0", 100, 4),
        Rule(family, 401, "up0", 100, 3),
        Rule(family, 402, "gone0", 100, 0),
        Rule(family, 403, "peer", 200, 4),
        Rule(family, 500, "tap0", 100),
    ]
    assert do(uplink, *map(AddRule, rules)) == [0] * len(rules)
    for each in (view(uplink), uplink.host.snapshot()):
        assert each.ways_in(family, 100) == ["up0", "gone0"]
        assert each.ways_in(family, 200) == ["peer"]
        assert each.ways_in(family, 300) == [] and each.ways_in(12 - family, 100) == []


def test_link_local(uplink: World) -> None:
    """That of its MAC; none while it is down, or where there is no device."""
    up0 = index(uplink, "up0")
    wait_until(lambda: view(uplink).link_local(up0) == "fe80::ff:fe00:1")
    assert uplink.host.snapshot().link_local(up0) == "fe80::ff:fe00:1"
    assert view(uplink).link_local(9999) == view(uplink).link_local(0) == view(uplink).link_local(-1) == ""
    assert do(uplink, SetLink(up0, up=False)) == [0]
    assert view(uplink).link_local(up0) == ""


def test_a_frame_is_sent(uplink: World) -> None:
    up0 = index(uplink, "up0")
    longest = FRAME.ljust(ETHERNET + 1500, b"\0")
    assert do(uplink, SendFrame(up0, FRAME), SendFrame(up0, longest), SendFrame(index(uplink, "peer"), FRAME)) == [0, 0, 0]


def test_a_frame_that_cannot_be_sent(uplink: World) -> None:
    up0 = index(uplink, "up0")
    assert told(uplink, SendFrame(up0, FRAME.ljust(ETHERNET + 1501, b"\0"))).errno == errno.EMSGSIZE
    assert told(uplink, SendFrame(up0, FRAME[: ETHERNET - 1])).errno == errno.EINVAL
    assert do(uplink, SetLink(up0, up=False)) == [0]
    down = told(uplink, SendFrame(up0, FRAME))
    assert (down.errno, down.text) == (errno.ENETDOWN, "up0: Network is down")
    uplink.remove("up0")
    gone = told(uplink, SendFrame(up0, FRAME))
    assert (gone.errno, gone.text) == (errno.ENODEV, f"device {up0}: No such device")
    assert told(uplink, SendFrame(0, FRAME)).errno == told(uplink, SendFrame(-1, FRAME)).errno == errno.ENODEV
