"""Rate limits on the running kernel: up, check, drift by hand, repair, down; what the guest receives really is limited."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

import pytest

from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import Call
from netcommon.log import recording
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

BRIDGED = {"MODE": "bridged", "LINK": "br0", "IP": ""}
MODES = {"bridged": BRIDGED, "routed": {}}


def drift() -> list[str]:
    with ours() as node:
        (record,) = node.store.all()[0]
        return [f"{step}: {text}" for step, text in check(node, node.host.view(), record).drift]


def mend() -> None:
    with ours() as node:
        (record,) = node.store.all()[0]
        repair(node, record.key, Call(recording()[0], node.clock.now() + 20))


@pytest.fixture
def placed(node: Node) -> Node:
    """A bridge and a tap; each mode has been up and down once: the folders are there."""
    node.bridge("br0")
    node.tap("tap0")
    for changes in MODES.values():
        assert rundoor("kvm-ifup", environment(**changes)).status == 0
        assert rundoor("kvm-ifdown", environment(**changes), "tap0", "hot-remove").status == 0
    return node


@pytest.mark.parametrize("mode", MODES)
def test_what_the_guest_receives(placed: Node, mode: str) -> None:
    before = snapshot()
    nic = environment(**MODES[mode], TAGS="netcommon:*:rate_in:8mbit")
    assert rundoor("kvm-ifup", nic).status == 0
    assert "tbf ae00: root" in run("tc", "qdisc", "show", "dev", "tap0") and "rate 8Mbit" in run("tc", "qdisc", "show", "dev", "tap0")
    assert good() == ["tap0"]
    run("tc", "qdisc", "del", "dev", "tap0", "root")
    assert [line for line in drift() if "there is no limit" in line]
    mend()
    assert good() == ["tap0"]
    run("tc", "qdisc", "change", "dev", "tap0", "root", "handle", "ae00:", "tbf", "rate", "1mbit", "burst", "16k", "limit", "20k")
    assert [line for line in drift() if "the limit is 1000000 bit/s" in line]
    mend()
    assert good() == ["tap0"] and collect() == []
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


def test_without_the_tag_the_limit_goes(placed: Node) -> None:
    """A second up by which the option is gone, as after gnt-instance remove-tags and a migration to and fro."""
    before = snapshot()
    assert rundoor("kvm-ifup", environment(**BRIDGED, TAGS="netcommon:0:rate_in:8mbit")).status == 0
    assert rundoor("kvm-ifup", environment(**BRIDGED, TAGS="netcommon:0:rate_in:16mbit")).status == 0
    assert "rate 16Mbit" in run("tc", "qdisc", "show", "dev", "tap0")
    assert rundoor("kvm-ifup", environment(**BRIDGED)).status == 0
    assert "tbf" not in run("tc", "qdisc", "show", "dev", "tap0")
    assert rundoor("kvm-ifdown", environment(**BRIDGED), "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


def test_a_qdisc_of_the_administrators_is_left_alone(placed: Node) -> None:
    run("tc", "qdisc", "add", "dev", "tap0", "root", "handle", "1:", "htb")
    before = snapshot()
    outcome = rundoor("kvm-ifup", environment(**BRIDGED, TAGS="netcommon:0:rate_in:8mbit"))
    assert outcome.status == 69 and "htb 1:" in outcome.stderr and "tc qdisc del dev tap0 root" in outcome.stderr
    assert diff(before, snapshot()) == []


def received(tap: Tap, outside: Namespace, seconds: float) -> int:
    """Bytes of broadcast frames that reach the guest while the outside sends without pause."""
    with outside.entered():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender.bind(("eth0", 0))
    frame = bytes.fromhex("ffffffffffff02000000000188b5") + bytes(1000)
    tap.drain()
    total, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError, OSError):
            sender.send(frame)
        while select.select([tap.descriptor], [], [], 0)[0]:
            total += len(os.read(tap.descriptor, 65600))
    sender.close()
    return total


def test_frames_are_held_back(node: Node) -> None:
    """8 Mbit/s are half a megabyte in half a second, besides what the bucket holds at first (16 KiB)."""
    node.bridge("br0")
    tap, outside = node.tap("tap0"), node.outside("up0")
    run("ip", "link", "set", "up0", "master", "br0")
    assert rundoor("kvm-ifup", environment(**BRIDGED)).status == 0
    wait_until(lambda: received(tap, outside, 0.05) > 0, 5, "frames through the bridge")
    free = received(tap, outside, 0.5)
    assert rundoor("kvm-ifup", environment(**BRIDGED, TAGS="netcommon:0:rate_in:8mbit")).status == 0
    limited = received(tap, outside, 0.5)
    assert free > 2 * limited and 100_000 < limited < 500_000 + 16384 + 50_000


@pytest.mark.vm
@pytest.mark.parametrize("mode", ["bridged", pytest.param("routed", marks=pytest.mark.slow)])
def test_what_the_guest_sends(node: Node, mode: str) -> None:
    """In the machine: this needs classifiers. A flood of the guest's is cut to its bucket; one frame now and then passes."""
    node.bridge("br0")
    tap, nic = node.tap("tap0"), environment(**MODES[mode], TAGS="netcommon:*:rate_out:80kbit")
    assert rundoor("kvm-ifup", nic).status == rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    before = snapshot()
    assert rundoor("kvm-ifup", nic).status == 0
    assert good() == ["tap0"]
    shown = run("tc", "filter", "show", "dev", "tap0", "ingress")
    assert "matchall" in shown and "rate 80Kbit" in shown
    run("tc", "filter", "del", "dev", "tap0", "ingress")
    assert [line for line in drift() if "there is no limit" in line]
    mend()
    assert good() == ["tap0"]
    run("tc", "qdisc", "del", "dev", "tap0", "clsact")
    mend()
    assert good() == ["tap0"]
    counted = int(run("cat", "/sys/class/net/tap0/statistics/rx_packets"))
    for _ in range(400):
        tap.send(bytes.fromhex("ffffffffffffaa000000000088b5") + bytes(1400))
    sent = int(run("cat", "/sys/class/net/tap0/statistics/rx_packets")) - counted
    assert sent == 400
    dropped = int(run("tc", "-s", "filter", "show", "dev", "tap0", "ingress").partition("dropped ")[2].partition(",")[0])
    assert 250 < dropped < 350  # 128 KiB are some 93 frames
    assert rundoor("kvm-ifup", {**nic, "TAGS": "netcommon:*:rate_out:160kbit"}).status == 0
    assert good() == ["tap0"] and "rate 160Kbit" in run("tc", "filter", "show", "dev", "tap0", "ingress")
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.vm
def test_filters_of_the_sites_stay(placed: Node) -> None:
    """They hang in the clsact that we made: it is left to them."""
    nic = environment(**BRIDGED, TAGS="netcommon:*:rate_out:80kbit")
    assert rundoor("kvm-ifup", nic).status == 0
    run("tc", "filter", "add", "dev", "tap0", "egress", "pref", "7", "matchall", "action", "pass")
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert "matchall" in run("tc", "filter", "show", "dev", "tap0", "egress")
    assert run("tc", "filter", "show", "dev", "tap0", "ingress") == ""
