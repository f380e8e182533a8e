"""Where a frame arrives that nobody stops: what bridges, switches and routers do by themselves."""

from __future__ import annotations

import ipaddress

from tests.support.attacks_base import TAGS

EVERYWHERE = frozenset({"host", "peer", "out"})
NOWHERE = frozenset[str]()
HOST = frozenset({"host"})
SMALLEST = {0x0800: 20, 0x86DD: 40}  #: headers


def reached(mode: str, frame: bytes, end: str) -> frozenset[str]:
    """The paths on which a guest's ``frame`` to ``end`` (attacks.GROUPS, attacks.ENDS, by name) is seen in ``mode``."""
    if mode == "routed":
        return HOST | ({end} if end in EVERYWHERE and forwarded(frame) else NOWHERE)
    if mode == "openvswitch":
        # Nobody was ever heard in any VLAN: what has a tag is for all.
        return frozenset({end}) if end in EVERYWHERE and not vid(frame) else EVERYWHERE
    source = frame[6:12]
    if end == "nearest bridge":
        return NOWHERE if not_unicast(source) else HOST
    if not_unicast(source):
        return NOWHERE
    return frozenset({end}) if end in EVERYWHERE else EVERYWHERE


def not_unicast(mac: bytes) -> bool:
    """A source that a Linux bridge takes from nobody (br_handle_frame)."""
    return bool(mac[0] & 1) or mac == bytes(6)


def vid(frame: bytes) -> int:
    """The VID of the first tag; 0: it has none, or only a priority."""
    return int.from_bytes(frame[14:16], "big") & 0xFFF if int.from_bytes(frame[12:14], "big") in TAGS else 0


def forwarded(frame: bytes) -> bool:
    """Whether a router sends it on: a packet from one unicast address to another that is not of the link alone (RFC 1812, 4291)."""
    start = 16 if int.from_bytes(frame[12:14], "big") in TAGS and not vid(frame) else 12
    protocol, packet = int.from_bytes(frame[start : start + 2], "big"), frame[start + 2 :]
    if len(packet) < SMALLEST.get(protocol, 1 << 16):
        return False
    ends: list[ipaddress.IPv4Address | ipaddress.IPv6Address]
    if protocol == 0x0800:
        ends = [ipaddress.IPv4Address(packet[12:16]), ipaddress.IPv4Address(packet[16:20])]
    else:
        ends = [ipaddress.IPv6Address(packet[8:24]), ipaddress.IPv6Address(packet[24:40])]
    bounded = any(each.is_multicast or each.is_unspecified or each.is_loopback or each.is_link_local for each in ends)
    return not bounded and ipaddress.ip_address("255.255.255.255") not in ends
