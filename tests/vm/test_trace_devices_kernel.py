"""netcommon trace beside Debian's kernel, which has kinds of devices that the running one may lack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.datapath import places as at
from tests.support.datapath.said import Frames, outcome, said
from tests.support.netns import Namespace, run

pytestmark = [pytest.mark.no_agent("trace asks no agent"), pytest.mark.sampled(2)]

FAR4, NET4 = at.FAR4[0], "198.51.100.0/24"
TAG = b"\x81\x00\x00\x0a"
DROP = 'table netdev theirs {{ chain c {{ type filter hook {} device "{}" priority 0; policy drop; }}\n}}'


@pytest.fixture
def other() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.close()


def one() -> Frames:
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, FAR4)
    return frames


@pytest.mark.slow
def test_a_dummy() -> None:
    lines = ["link add x0 type dummy", "link set x0 up", f"route add {NET4} dev x0"]
    assert outcome(said(one(), lines)) == [("", True)]


def test_a_vrf() -> None:
    lines = [
        "link add x0 type vrf table 90",
        "link set x0 up",
        f"route add {NET4} dev x0",
        f"route add {NET4} via {at.GATEWAY14} dev up1 table 90",
    ]
    assert outcome(said(one(), lines)) == [("up1", False)]


@pytest.mark.parametrize("moved", [True, False])
def test_an_ipvlan_takes_what_is_for_its_addresses(other: Namespace, moved: bool) -> None:
    frames = Frames(at.ROUTED)
    frames.received(FAR4, at.GUEST4)
    frames.received(FAR4, at.PEER4)

    def upon() -> None:
        run("ip", "link", "add", "link", "up0", "name", "x0", "type", "ipvlan", "mode", "l2")
        if moved:
            run("ip", "link", "set", "x0", "netns", other.path)
        change = other.run if moved else run
        change("ip", "link", "set", "x0", "up")
        change("ip", "address", "add", f"{at.PEER4}/32", "dev", "x0")

    found = outcome(said(frames, more=upon))
    assert found == [("tap0", False), ("" if moved else "node", False)]


@pytest.mark.parametrize("bridged", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_vlan_interface_of_another_namespace(other: Namespace, bridged: bool) -> None:
    """It takes the frames of its VLAN before the bridge whose port the device is."""
    frames = Frames(at.BRIDGED if bridged else at.ROUTED)
    frames.raw("to", 0x88B5, frames.token(), "in its VLAN", tag=TAG)
    frames.raw("to", 0x88B5, frames.token(), "in another", tag=b"\x81\x00\x00\x0b")

    def upon() -> None:
        run("ip", "link", "add", "link", "up0", "name", "x0", "type", "vlan", "id", "10")
        run("ip", "link", "set", "x0", "netns", other.path)
        other.run("ip", "link", "set", "x0", "up")

    found = outcome(said(frames, more=upon))
    assert found[0] == ("", False) and found[1][1]


@pytest.mark.parametrize("hook", [pytest.param("", marks=pytest.mark.slow), "ingress", "egress"])
def test_what_stands_at_a_port_of_a_bond(hook: str) -> None:
    """A frame that comes or leaves by the bond does so by a port of it, and meets what stands there."""
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, FAR4)

    def bonded() -> None:
        run("ip", "link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "10")
        run("ip", "link", "set", "up1", "down")
        run("ip", "link", "set", "up1", "master", "bond0")
        run("ip", "link", "set", "bond0", "up")
        run("ip", "address", "add", "203.0.113.2/24", "dev", "bond0")
        run("ip", "neigh", "replace", at.GATEWAY14, "dev", "bond0", "lladdr", at.OUT1_MAC, "nud", "permanent")
        run("ip", "route", "add", NET4, "via", at.GATEWAY14, "dev", "bond0")
        if hook:
            run("nft", "-f", "-", stdin=DROP.format(hook, "up1") + "\n")

    (found,) = said(frames, more=bonded)
    assert ("".join(found.arrived), found.reserved) == ("" if hook == "egress" else "up1", hook == "egress")
    assert found.path.ends == (f"it leaves the node by bond0 to {at.GATEWAY14}",)
