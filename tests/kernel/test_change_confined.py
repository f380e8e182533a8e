"""Swap what keeps a running guest to its own: at no moment does a frame pass that both refuse."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from netcommon.host.api.requests import Request
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.context import Call
from netcommon.log import recording
from tests.kernel.test_doors_parallel import environment
from tests.support import frames
from tests.support.forged import ethernet, heard_by_host, ipv4, udp
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

TEXT = b"netcommon-forged"
ANOTHERS = ethernet(frames.IPV4, ipv4("10.9.9.9", udp(1000, 2000, TEXT)), "aa:00:00:00:99:99")
TO_NODE = ethernet(frames.IPV4, ipv4("10.0.0.77", udp(1000, 2000, TEXT)), "aa:00:00:00:00:00")

#: Of each pair both refuse a forged frame: what it is sent to, and the options of one and of the other.
PAIRS: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, str]]] = {
    "isolated": ("guest", {"isolated": "yes", "spoof_guard": "no"}, {"isolated": "no", "spoof_guard": "yes"}),
    "node_access": ("node", {"node_access": "none", "spoof_guard": "no"}, {"node_access": "all", "spoof_guard": "yes"}),
}


@contextmanager
def heard_by(whom: str, guest: Tap) -> Iterator[Callable[[], int]]:
    """Counts the frames that have come to the other guest, or to a socket of the node, since it was last asked."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("0.0.0.0", 2000))
        listening.setblocking(False)

        yield lambda: heard_by_host(listening, TEXT) if whom == "node" else sum(TEXT in frame for frame in guest.drain())


def to(options: Mapping[str, str], between: Callable[[], None]) -> None:
    """Changes NIC 0, and calls ``between`` whenever the host has done a part of it."""
    with ours() as node:
        execute = node.host.execute

        def watched(requests: list[Request], stop: bool) -> object:
            answers = execute(requests, stop)
            between()
            return answers

        node.host.execute = watched  # type: ignore[method-assign,assignment]
        change(node, environment(0)["INTERFACE_UUID"], Call(recording()[0], node.clock.now() + 20), setting(node, options, ()))


@pytest.mark.parametrize("pair", PAIRS)
def test_no_frame_that_both_refuse(node: Node, pair: str) -> None:
    """After each step of the way there and back; a frame that is allowed is heard, so that the probe is one."""
    whom, one, other = PAIRS[pair]
    run("ip", "link", "set", "lo", "up")
    node.bridge("br0")
    run("ip", "address", "add", "10.0.0.254/24", "dev", "br0")
    taps = [node.tap("tap0"), node.tap("tap1")]
    bridged = {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"}
    assert rundoor("kvm-ifup", environment(0) | bridged | {"IP": "10.0.0.1"}).status == 0
    assert rundoor("kvm-ifup", environment(1) | bridged | {"TAGS": "netcommon:*:isolated netcommon:*:spoof_guard:no"}).status == 0
    frame = TO_NODE if whom == "node" else ANOTHERS
    steps: list[int] = []
    with heard_by(whom, taps[1]) as heard:

        def probe() -> None:
            taps[0].send(frame)
            steps.append(heard())

        def heard_again() -> int:
            taps[0].send(frame)
            return heard()

        allowing = {name: "no" if name in ("isolated", "spoof_guard") else "all" for name in one}
        to(allowing, lambda: None)
        wait_until(heard_again, 5, "a frame that nothing refuses")
        to(one, lambda: None)
        heard()
        for _turn in range(3):
            to(other, probe)
            to(one, probe)
        for _late in range(3):
            probe()
    assert len(steps) > 9 and not any(steps), steps
