"""Tell a running routed guest of the host's side: never at a first up, and nothing of its own addresses."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.check import repair
from tests.support.frames import ARP, IPV6, Arp, Frame
from tests.support.sim import UUIDS, Sim, nic

GUEST = nic(
    "routed, table", NETWORK_SUBNET="10.0.0.0/24", NETWORK_GATEWAY="10.0.0.1", NETWORK_SUBNET6="fd01::/64", NETWORK_GATEWAY6="fd01::1"
)


def told(sim: Sim) -> list[Frame]:
    """Take what was sent on the tap since the last call."""
    tap = next(link.index for link in sim.host.kernel.links.values() if link.name == "tap0")
    found = [Frame.parse(frame) for index, frame in sim.host.wire.frames if index == tap]
    sim.host.wire.frames.clear()
    return found


def targets(frames: list[Frame]) -> list[tuple[str, str]]:
    """Each address that the frames tell of, and its MAC."""
    found = []
    for frame in frames:
        if frame.type == ARP:
            arp = Arp.parse(frame.payload)
            found.append((arp.sender, arp.sender_mac))
        elif frame.type == IPV6:
            mac = ":".join(f"{octet:02x}" for octet in frame.payload[-6:])
            assert frame.payload[44] >> 4 == 0b1010, "router and override: without the first the guest drops its default router"
            found.append((str(ipaddress.IPv6Address(frame.payload[48:64])), mac))
    return found


def test_a_first_up_tells_nothing(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(GUEST)
    assert told(sim) == []


def test_a_change_a_repair_and_a_second_up(tmp_path: Path) -> None:
    sim, mac = Sim(str(tmp_path)), "fe:00:00:00:00:01"
    sim.up(GUEST)
    change(sim.node, UUIDS[0], sim.call(), setting(sim.node, {"tap_mac": mac, "gateway_link_local": "yes"}, ()))
    expected = [("10.0.0.1", mac), ("10.0.0.1", mac), ("fd01::1", mac), ("fe80::1", mac), ("fe80::fc00:ff:fe00:1", mac)]
    assert targets(told(sim)) == expected
    change(sim.node, UUIDS[0], sim.call(), setting(sim.node, {}, ()))
    assert told(sim) == []  # nothing was to be done
    link = sim.host.view().link("tap0")
    assert link is not None
    for mend in (lambda: repair(sim.node, UUIDS[0], sim.call()), lambda: sim.up(GUEST)):
        sim.host.kernel.links[link.index] = link._replace(address="02:00:00:00:00:09")
        mend()  # type: ignore[no-untyped-call]
        assert targets(told(sim)) == expected


def test_other_modes(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged, access"))
    change(sim.node, UUIDS[0], sim.call(), setting(sim.node, {"isolated": "yes"}, ()))
    assert told(sim) == []
