"""netcommon trace where devices of this or of another network namespace lie upon that by which a frame comes: they take it first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.datapath import places as at
from tests.support.datapath.frames import ip4
from tests.support.datapath.said import Frames, outcome, said
from tests.support.frames import IPV4
from tests.support.netns import Namespace, run

pytestmark = pytest.mark.no_agent("trace asks no agent")

MAC = "02:00:00:00:77:77"
FAR4 = at.FAR4[0]


@pytest.fixture
def other() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.close()


def upon(device: str, other: Namespace | None, moved: bool, *words: str, address: str = MAC, up: bool = True) -> None:
    """Make m0 upon a device, here, or in ``other``: made there, or moved there."""
    there = ["netns", other.path] if other and not moved else []
    run("ip", "link", "add", "link", device, "name", "m0", *(("address", address) if address else ()), *there, "type", *words)
    if other and moved:
        run("ip", "link", "set", "m0", "netns", other.path)
    if up:
        (other.run if other else run)("ip", "link", "set", "m0", "up")


def frames() -> Frames:
    """For the guest: by the node's MAC, by the other device's, by that of nobody, and to all."""
    made = Frames(at.ROUTED)
    for mac in (at.UP_MAC, MAC, at.NOBODY_MAC, at.BROADCAST):
        made.received(FAR4, at.GUEST4, mac)
    return made


SURE = [("tap0", True), ("", True), ("", True), ("", True)]
TAKEN = [("tap0", True), ("", False), ("", True), ("", False)]
ROUTED = [("tap0", True), ("tap0", False), ("", True), ("", False)]  #: the node routes what its own macvlan has taken
HERE, MADE, MOVED = "here", "made there", "moved there"


@pytest.mark.parametrize("where", [HERE, MADE, MOVED])
def test_macvlan(other: Namespace, where: str) -> None:
    """It takes its own address, and copies of what is for all."""
    there = None if where == HERE else other
    assert outcome(said(frames(), more=lambda: upon("up0", there, where == MOVED, "macvlan", "mode", "bridge"))) == (
        TAKEN if there else ROUTED
    )


def test_what_is_down_takes_nothing(other: Namespace) -> None:
    assert outcome(said(frames(), more=lambda: upon("up0", other, True, "macvlan", up=False))) == SURE


def test_passthru(other: Namespace) -> None:
    """It takes all, and its lower device's address."""
    found = outcome(said(frames(), more=lambda: upon("up0", other, True, "macvlan", "mode", "passthru", address="")))
    assert found == [("", False)] * 4


def test_by_source(other: Namespace) -> None:
    """It gets copies of what comes from addresses that it is told, and takes nothing."""
    found = outcome(said(frames(), more=lambda: upon("up0", other, True, "macvlan", "mode", "source")))
    assert found == [("tap0", False), ("", False), ("", False), ("", False)]


@pytest.mark.parametrize("where", [MADE, MOVED])
def test_upon_the_bridge(other: Namespace, where: str) -> None:
    """Doubt what the bridge's device gets: it may be another namespace's."""
    made = Frames(at.BRIDGED)
    for mac in (at.BRIDGE_MAC, MAC, at.OUT_MAC):
        made.sent(at.GUEST4, at.BRIDGE4, mac=mac)
    found = said(made, more=lambda: upon("br0", other, where == MOVED, "macvlan"))
    assert outcome(found)[0] == ("node", True) and outcome(found)[2] == ("up0", True)
    assert found[1].reserved or found[1].right


def test_what_takes_frames_by_an_address_that_nobody_owns() -> None:
    """An address that somebody has the device take from the wire is no reason to doubt others."""

    def taken() -> None:
        run("bridge", "fdb", "add", MAC, "dev", "up0", "self", "local")

    assert outcome(said(frames(), more=taken)) == TAKEN


def test_no_port_has_a_macvlan() -> None:
    """Addresses of other ports that a bridge has a port take are nobody's upon it."""
    made = Frames(at.BRIDGED)
    made.received(FAR4, at.GUEST4)
    made.raw("to", IPV4, ip4(FAR4, at.GUEST4, 253, made.token()), "to all", at.BROADCAST)

    def closed() -> None:
        for line in ("learning off", "flood off"):
            for port in ("tap0", "tap1"):
                run("bridge", "link", "set", "dev", port, *line.split())
        run("bridge", "fdb", "replace", at.GUEST_MAC, "dev", "tap0", "master", "static")

    assert [sure for _place, sure in outcome(said(made, more=closed))] == [True, True]
