"""netcommon trace and top on Debian's kernel: VLANs of a bridge, an interface's policer, and the counters of all devices."""

from __future__ import annotations

import struct

import pytest

from netcommon.views.trace.frame import FROM_GUEST, TO_GUEST, Wanted
from netcommon.views.trace.request import frame, subject, trace
from netcommon.views.trace.trail import Path as Way
from tests.kernel.guard import paths
from tests.kernel.test_doors_parallel import environment
from tests.kernel.test_guard_verdicts import FRAMES, NIC, OPTIONS, Guarded
from tests.kernel.test_seeing_trace import told
from tests.support.attacks_base import identity
from tests.support.frames import BROADCAST, mac_bytes
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor

MAC = "aa:00:00:00:00:01"
VLANS = environment(MODE="bridged", LINK="br0", IP="10.0.0.5", MAC=MAC, VLAN=".10:20", TAGS="netcommon:*:rate_out:8mbit")


def tagged(vid: int, number: int) -> bytes:
    """An IPv4 packet of the guest's, with a VLAN tag where ``vid`` is not 0; ``number`` tells it from others."""
    head = mac_bytes(BROADCAST) + mac_bytes(MAC) + (struct.pack("!HH", 0x8100, vid) if vid else b"") + b"\x08\x00"
    packet = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, number, 0, 64, 17, 0, bytes((10, 0, 0, 5)), b"\xff" * 4)
    return (head + packet + struct.pack("!HHHH", 9, 9, 8, 0)).ljust(64, b"\0")


def traced(way: str, data: bytes | None = None) -> Way:
    with ours() as mine:
        (record,) = mine.store.all()[0]
        view, of = mine.host.snapshot(), subject(record, [record])
        return trace(view, of, way, frame(view, of, way, Wanted(), {}) if data is None else data, {})


@pytest.mark.parametrize("vid", [*(pytest.param(vid, marks=pytest.mark.slow) for vid in (0, 20)), 30])
def test_frames_leave_in_the_vlan_that_trace_says(node: Node, vid: int) -> None:
    """Untagged in the access VLAN, tagged in a trunk's, and not at all in another's."""
    outside = node.outside("up0")
    node.bridge("br0", "up0", vlan_filtering=True)
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", VLANS).status == 0
    way = traced(FROM_GUEST, tagged(vid, 7))
    wire = paths.SocketPath([paths.ETH_P_ALL], "eth0", outside)
    try:
        tap.send(tagged(vid, 7))
        last = tagged(0, 8)
        tap.send(last)
        seen = [sent for sent in wire.drain(identity(last)) if identity(sent) == identity(tagged(0, 7))]
    finally:
        wire.close()
    assert len(seen) == (0 if vid == 30 else 1)
    wanted = {0: "it leaves the node by up0, tagged VLAN 10", 20: "it leaves the node by up0, tagged VLAN 20"}
    assert way.ends == ((wanted[vid],) if vid in wanted else way.ends) and (vid != 30 or way.ends[0].startswith("dropped at tap0"))
    assert any("passes up to 8mbit" in step.does and step.whose == "ours" for step in way.steps)


def test_a_frame_for_the_guest_comes_in_its_vlan(node: Node) -> None:
    node.outside("up0")
    node.bridge("br0", "up0", vlan_filtering=True)
    node.tap("tap0")
    assert rundoor("kvm-ifup", VLANS).status == 0
    way = traced(TO_GUEST)
    assert "tagged VLAN 10" in way.frame and len(way.ends) == 1 and way.ends[0].endswith("receives it, by tap0, untagged")
    run("bridge", "vlan", "del", "dev", "up0", "vid", "10")
    assert traced(TO_GUEST, bytes.fromhex(way.bytes)).ends[0].startswith("dropped at up0: the port is not in VLAN 10")


@pytest.mark.slow
def test_the_guards_reasons_are_the_kernels(node: Node) -> None:
    """This kernel's parsing of headers, too, is what trace does."""
    guarded = Guarded(node, NIC, OPTIONS)
    frames = {kind: sent.ljust(60, b"\0") for kind, (sent, _reason, _free) in FRAMES.items()}
    found = {kind: (guarded.reason(sent), told(guarded, sent)) for kind, sent in frames.items()}
    assert {kind: pair for kind, pair in found.items() if pair[0] != pair[1]} == {}


def test_counters_of_all_devices(node: Node) -> None:
    from netcommon.host.linux.host import LinuxHost

    tap = node.tap("tap0")
    run("ip", "link", "set", "tap0", "up")
    host = LinuxHost()
    index = next(link.index for link in host.view().links() if link.name == "tap0")
    before = host.view().counters()[index]
    tap.send(tagged(0, 1))
    after = host.view().counters()[index]
    assert (after.received_packets - before.received_packets, after.received_bytes - before.received_bytes) == (1, 64)
    host.close()
