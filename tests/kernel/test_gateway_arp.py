"""The option gateway_arp on the running kernel: a life with drift, and whom the guest is asked by."""

from __future__ import annotations

import subprocess

from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_rate import drift, mend
from tests.support.frames import ARP, Arp, Frame
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

NIC = {"TAGS": "netcommon:*:gateway_arp", "NETWORK_GATEWAY": "10.0.0.254", "NETWORK_SUBNET": "10.0.0.0/24", "NETWORK_NAME": "blue"}
DRIFTS = ("delete element arp netcommon-arp gateways { tap0 }", "flush chain arp netcommon-arp output", "flush ruleset")


def asked_by(tap: Tap) -> str:
    """Whose address the node gives when it asks for the guest's."""
    run("ip", "neighbour", "flush", "dev", "tap0")
    tap.drain()
    with subprocess.Popen(["ping", "-c1", "-W1", "10.0.0.1"], stdout=subprocess.DEVNULL) as ping:
        raw = tap.receive(lambda frame: Frame.parse(frame).type == ARP)
        ping.kill()
    assert raw is not None
    return Arp.parse(Frame.parse(raw).payload).sender


def test_a_life(node: Node) -> None:
    tap = node.tap("tap0")
    node.outside("up0", "192.0.2.1/24")
    node.address("up0", "192.0.2.2/24")
    assert rundoor("kvm-ifup", environment(**NIC, LINK="main")).status == 0  # the folders are there from now on
    assert rundoor("kvm-ifup", environment(TAGS="", LINK="main")).status == 0
    assert asked_by(tap) == "192.0.2.2"
    assert rundoor("kvm-ifdown", environment(TAGS="", LINK="main"), "tap0", "hot-remove").status == 0
    before = snapshot()
    assert rundoor("kvm-ifup", environment(**NIC, LINK="main")).status == 0
    assert asked_by(tap) == "10.0.0.254" and good() == ["tap0"]
    for change in DRIFTS:
        run("nft", change)
        assert drift(), change
        mend()
        assert good() == ["tap0"] and asked_by(tap) == "10.0.0.254", change
    assert rundoor("kvm-ifup", environment(**{**NIC, "NETWORK_GATEWAY": "10.0.0.253"}, LINK="main")).status == 0
    assert asked_by(tap) == "10.0.0.253" and good() == ["tap0"] and collect() == []
    assert rundoor("kvm-ifdown", environment(**NIC, LINK="main"), "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []
