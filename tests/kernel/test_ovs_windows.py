"""A guest on Open vSwitch that never stops sending forged frames: while its NIC comes and goes, moves, and is repaired, none passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.kernel.test_doors_parallel import good
from tests.kernel.test_ovs_guard import NIC, Wire
from tests.kernel.test_rate import mend
from tests.support import frames
from tests.support.forged import IP, OTHER, ethernet, ipv4, udp
from tests.support.netns import run, slowness
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

ROUNDS = 25
FORGED = ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1, 2, b"forged")), OTHER)
INSTANT = 0.0003  #: seconds between two frames
OFF = "netcommon:*:spoof_guard:false"
DOWN = ("kvm-ifdown", NIC, "tap0", "hot-remove")


@pytest.fixture
def wire(node: Node, ovs: OpenVswitch) -> Wire:
    return Wire(node, ovs)


class Chatter:
    """The guest, and everybody who could hear it."""

    def __init__(self, guest: Tap, *others: Tap) -> None:
        self.guest, self.others = guest, others
        self.tried = self.sent = self.heard = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send), *(threading.Thread(target=self._hear, args=(each,)) for each in others)]

    def __enter__(self) -> Chatter:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._over.wait(INSTANT):
            self.tried += 1
            try:
                self.guest.send(FORGED)
                self.sent += 1
            except OSError:  # EIO: the tap is down
                pass

    def _hear(self, other: Tap) -> None:
        while (frame := other.receive(seconds=0.2)) is not None or not self._over.is_set():
            self.heard += frame == FORGED


def come_and_go(wire: Wire, tags: str) -> None:
    wire.up(tags)
    done = rundoor(*DOWN)
    assert done.status == 0, done.stderr


def move(wire: Wire, tags: str) -> None:
    """To another bridge and back, with a limit on one of them."""
    wire.up(tags)
    wire.up(f"{tags} netcommon:*:rate_in:8mbit", LINK="ovs1")
    wire.up(tags)


def lose_the_port(wire: Wire, tags: str) -> None:
    wire.up(tags)
    wire.ovs.vsctl("del-port", "tap0")
    mend()
    wire.ovs.vsctl("remove", "Port", "tap0", "external_ids", "netcommon-uuid")
    mend()
    assert good() == ["tap0"]


@pytest.mark.slow
@pytest.mark.parametrize("action", [come_and_go, move, lose_the_port])
def test_no_frame_of_the_guest_passes_unguarded(wire: Wire, node: Node, action: Callable[[Wire, str], None]) -> None:
    second = node.tap("tap2")
    run("ip", "link", "set", "tap2", "up")
    wire.ovs.bridge("ovs1", "tap2")
    started = time.monotonic()
    with Chatter(wire.guest, wire.other, second) as chatter:
        for _ in range(ROUNDS):
            action(wire, "netcommon:*:spoof_guard")
        rate = chatter.tried / (time.monotonic() - started)
    assert rate * slowness() > 1000 and chatter.sent > ROUNDS, (rate, chatter.sent)
    print(f"FIGURES {action.__name__}: {rate:.0f} a second, tried {chatter.tried}, sent {chatter.sent}, heard {chatter.heard}")
    assert chatter.heard == 0
    wire.up()
    good_one = ethernet(frames.IPV4, ipv4(IP, udp(1, 3)))
    assert wire.passes(good_one) and not wire.passes(FORGED)


@pytest.mark.parametrize("action", [come_and_go, move, lose_the_port])
def test_without_the_guard_it_is_heard(wire: Wire, node: Node, action: Callable[[Wire, str], None]) -> None:
    second = node.tap("tap2")
    run("ip", "link", "set", "tap2", "up")
    wire.ovs.bridge("ovs1", "tap2")
    with Chatter(wire.guest, wire.other, second) as chatter:
        action(wire, OFF)
    assert chatter.heard > 0
