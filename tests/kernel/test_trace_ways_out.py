"""netcommon trace of packets whose route leads by a device that sends nothing out of the node itself, or into another packet."""

from __future__ import annotations

import pytest

from tests.support.datapath import places as at
from tests.support.datapath.said import Frames, said

pytestmark = pytest.mark.no_agent("trace asks no agent")

FAR4, FAR6, NET4, NET6 = at.FAR4[0], at.FAR6[0], "198.51.100.0/24", "2001:db8:aaaa::/64"
SEGMENT = "2001:db8:5::1"
ENCAP = f"encap seg6 mode encap segs {SEGMENT} dev up0"
TO_SEGMENT = f"-6 route add {SEGMENT} via {at.GATEWAY16} dev up1"


def both() -> Frames:
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, FAR4)
    frames.sent(at.GUEST6, FAR6)
    return frames


@pytest.mark.parametrize("device", ["lo", "ifb9"])
def test_a_device_that_sends_nothing(device: str) -> None:
    made = [f"link add {device} type ifb", f"link set {device} up"] if device != "lo" else []
    for each in said(both(), [*made, f"route add {NET4} dev {device}", f"-6 route add {NET6} dev {device}"]):
        assert each.right and not each.reserved and each.arrived == frozenset()
        assert [end.startswith(f"dropped at {device}: ") for end in each.path.ends] == [True]


@pytest.mark.parametrize("kind", ["vxlan id 7 dstport 4789 remote 203.0.113.1", "macvlan"])
def test_a_device_that_sends_by_another(kind: str) -> None:
    """It goes on inside another packet, or by the device below: not by this device, of which nobody is told that it leaves the node."""
    below = "link up1" if kind == "macvlan" else ""
    made = [f"link add {below} name x0 type {kind}", "link set x0 up"]
    routes = [f"route add {NET4} via 10.99.0.1 dev x0 onlink", f"-6 route add {NET6} via fd99::1 dev x0"]
    known = [f"neigh add {each} dev x0 lladdr {at.OUT1_MAC} nud permanent" for each in ("10.99.0.1", "fd99::1")]
    for each in said(both(), [*made, "-6 address add fd99::2/64 dev x0 nodad", *routes, *known]):
        assert each.reserved and each.path.ends == ("not known beyond x0",)
        assert each.arrived == {"up1"}


@pytest.mark.parametrize("shared", [False, True])
def test_a_route_that_puts_packets_into_others(shared: bool) -> None:
    """seg6 takes them by its own route, whatever device this one names."""
    made = [f"nexthop add id 4 {ENCAP}", f"-6 nexthop add id 6 {ENCAP}"] if shared else []
    ways = ("nhid 4", "nhid 6") if shared else (ENCAP, ENCAP)
    routes = [f"route add {NET4} {ways[0]}", f"-6 route add {NET6} {ways[1]}"]
    for each in said(both(), [*made, *routes, TO_SEGMENT]):
        assert each.reserved and each.path.ends == ("not known beyond node",)
        assert each.arrived == {"up1"}


def test_one_of_several_ways_that_does() -> None:
    """The kernel is asked which way a packet takes: of those that go by the other nothing is in doubt."""
    frames = Frames(at.ROUTED)
    for number in range(1, 9):
        frames.sent(at.GUEST4, f"198.51.100.{number}")
    ways = f"nexthop {ENCAP} nexthop via {at.GATEWAY4} dev up0"
    found = said(frames, [f"route add {NET4} {ways}", TO_SEGMENT])
    assert {each.reserved for each in found} == {True, False}
    assert all(each.arrived == ({"up1"} if each.reserved else {"up0"}) and (each.reserved or each.right) for each in found)
