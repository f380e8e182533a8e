"""Open vSwitch with its kernel datapath: the spoof guard's verdicts, and limits that are really kept."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from netcommon.lifecycle.execute import decode
from netcommon.operations.guard.counters import dropped
from netcommon.operations.guard.table import NicGuard
from tests.kernel.test_doors_parallel import good
from tests.kernel.test_ovs_guard import KINDS, NIC, Wire, counters, segments
from tests.kernel.test_ovs_windows import DOWN, FORGED, OFF, Chatter, lose_the_port, move
from tests.support import frames
from tests.support.forged import IP, OTHER, ethernet, heard_by_host, ipv4, udp
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.routed import ours
from tests.support.rundoor import rundoor

pytestmark = pytest.mark.sampled(2)

FRAMES, LENGTH = 400, 1400
ETH_P_IP = 0x0800
#: Bytes of a burst (800 kbit, docs/openvswitch.md), and as many frames of it, with room for what the rate lets pass meanwhile.
BURST = 800_000 // 8


def both() -> dict[str, int]:
    """What the flows have dropped, and the nftables guard before them, by reason."""
    found = counters()
    with ours() as node:
        view = node.host.view()
        guards = [one for one in decode(node.store.all()[0][0])[0] if isinstance(one, NicGuard)]
        assert len(guards) == 1
        for name, count in dropped(guards[0], view).items():
            if name in found:
                found[name] += count
    return found


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with OpenVswitch.started("system") as ovs:
        yield Wire(node, ovs)


def test_the_table_of_verdicts(wire: Wire) -> None:
    """A frame that the kernel has no entry for takes the way through ovs-vswitchd, and arrives after others: all are waited for."""
    wire.up()
    for kind in KINDS:
        wire.guest.send(kind.frame)
    arrived = set()
    while (frame := wire.other.receive(seconds=1)) is not None:
        arrived.add(frame)
    assert [kind.name for kind in KINDS if (kind.frame in arrived) != (not kind.reason)] == []
    wait_until(lambda: all(both().values()), 20, f"each reason is counted: {both()}")
    assert good() == ["tap0"]


@pytest.mark.slow
def test_a_later_fragment_that_the_kernel_segments(wire: Wire) -> None:
    """It would do so behind the flows: what ovs-vswitchd has once let pass as a later fragment, the kernel does not ask about again."""
    wire.up()
    assert segments(wire) == []


def come_and_go(wire: Wire, tags: str) -> None:
    for _ in range(2):
        wire.up(tags)
        done = rundoor(*DOWN)
        assert done.status == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("action", [come_and_go, move, lose_the_port])
def test_no_frame_of_the_guest_passes_unguarded(wire: Wire, node: Node, action: Callable[[Wire, str], None]) -> None:
    """Neither to another guest nor, as the kernel's datapath takes every frame of a port, to the host itself."""
    second = node.tap("tap2")
    run("ip", "link", "set", "tap2", "up")
    wire.ovs.bridge("ovs1", "tap2")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP)) as listener:
        listener.setblocking(False)
        wire.up(OFF)
        for number in range(20):
            wire.guest.send(FORGED if number else ethernet(frames.IPV4, ipv4(IP, udp(1, 9))))
        wait_until(lambda: heard_by_host(listener, FORGED) > 0, 20, "without the guard the host hears it")
        assert rundoor(*DOWN).status == 0
        wait_until(lambda: wire.other.receive(seconds=1) is None, 60, "silence")
        heard_by_host(listener, FORGED)
        with Chatter(wire.guest, wire.other, second) as chatter:
            action(wire, "netcommon:*:spoof_guard")
        heard = heard_by_host(listener, FORGED)
    print(f"FIGURES {action.__name__}: tried {chatter.tried}, sent {chatter.sent}, heard {chatter.heard}, by the host {heard}")
    assert chatter.sent > 0 and chatter.heard == 0
    # between the port's removal by hand and the repair the tap is in no switch: then the host itself hears it, as any device of its own
    assert heard == 0 or action is lose_the_port


def flood(number: int) -> bytes:
    return ethernet(frames.IPV4, ipv4(IP, udp(1, number, bytes(LENGTH))))


@pytest.mark.slow
def test_what_the_guest_sends_is_limited(wire: Wire) -> None:
    """A burst passes, and not much more. Without the option all of it does."""

    def arrived() -> int:
        for number in range(FRAMES):
            wire.guest.send(flood(number))
        count = 0
        while wire.other.receive(lambda frame: len(frame) > LENGTH, seconds=2) is not None:
            count += 1
        return count

    wire.up("netcommon:*:spoof_guard:false")
    assert arrived() > FRAMES * 0.9
    wire.up("netcommon:*:rate_out:64kbit")
    assert "police" in run("tc", "filter", "show", "dev", "tap0", "ingress")
    assert BURST // LENGTH * 0.5 < arrived() < BURST // LENGTH * 2
    assert good() == ["tap0"]
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert "police" not in run("tc", "filter", "show", "dev", "tap0", "ingress")


@pytest.mark.slow
def test_what_the_guest_receives_is_limited(wire: Wire) -> None:
    """The queue holds back what is over the rate: the guest's tap gets it later, or not at all."""
    wire.up("netcommon:*:rate_in:1mbit")
    wait_until(lambda: "ceil 1Mbit" in run("tc", "class", "show", "dev", "tap0"), 10, "the class with the rate")
    for number in range(100):
        wire.other.send(ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1, number, bytes(LENGTH))), OTHER))
    waiting = run("tc", "-s", "class", "show", "dev", "tap0").split("class htb 1:1 ")[1].split("class ")[0]
    assert "backlog 0b" not in waiting
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert "htb" not in run("tc", "qdisc", "show", "dev", "tap0")
