"""The oracle: whether a frame that has arrived could deceive whoever receives it, or should not have arrived by what the pages promise.

Receivers that are thought of: Linux's stack (net/ipv4, net/ipv6); DHCP clients that read packet sockets and so see what no stack has
checked (udhcpc, dhclient, systemd-networkd: dhclient looks at neither the version nor the IP length before it reads the ports); dnsmasq
and relays; and others that follow RFC 826, 2131, 4861, 8200 and 8415 to the letter, so every extension header is walked.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.fuzz import oracle6
from tests.support.fuzz.facts import NO4, Facts
from tests.support.fuzz.reason import DECEIVES, PROMISE, Reason

IPV4, IPV6, ARP, RARP, QTAG, STAG = b"\x08\0", b"\x86\xdd", b"\x08\x06", b"\x80\x35", b"\x81\0", b"\x88\xa8"
SNAP = b"\xaa\xaa\x03\0\0\0"
UDP, IGMP = 17, 2
QUERY, ALL_HOSTS = b"\x11", b"\xe0\0\0\1"
SERVER, CLIENT = 67, 68
REQUEST, REPLY = 1, 2
CHADDR = 34  #: bytes of a BOOTP message up to the end of an Ethernet chaddr
GSO_UDP = 3


class Header(NamedTuple):
    """struct virtio_net_hdr (virtio 1.2, 5.1.6)."""

    flags: int = 0
    gso_type: int = 0
    hdr_len: int = 0
    gso_size: int = 0
    csum_start: int = 0
    csum_offset: int = 0

    @property
    def kind(self) -> int:
        """gso_type without the ECN bit."""
        return self.gso_type & 0x7F


PLAIN = Header()


def judge(frame: bytes, facts: Facts, header: Header = PLAIN) -> list[Reason]:
    """Why this frame should not have arrived; [] where nothing is wrong with it. ``header`` is the one that it arrived with."""
    found: list[Reason] = []
    rules = facts.rules
    if facts.wire and "mac" in rules and frame[6:12] != facts.mac:
        found.append(Reason("mac", "foreign Ethernet source"))
    kind, start = frame[12:14], 14
    tags: list[tuple[bytes, int]] = []
    while kind in (QTAG, STAG):
        tags.append((kind, int.from_bytes(frame[start : start + 2], "big") & 0xFFF))
        kind, start = frame[start + 2 : start + 4], start + 4
    if tags and facts.wire:
        _tags(tags, facts, found)
    if facts.mode == "openvswitch" and kind < b"\6\0" and frame[start : start + 6] == SNAP:
        kind, start = frame[start + 6 : start + 8], start + 8  # a documented limit: the type in a SNAP header is the frame's
    packet = frame[start:]
    if kind == IPV4:
        _ip4(packet, facts, header, found)
    elif kind == IPV6:
        oracle6.judge(packet, facts, found)
    elif kind == ARP:
        _arp(packet, facts, found)
    elif "type" in rules and not (kind == RARP and _announces(packet, facts)):
        found.append(Reason("type", f"EtherType {kind.hex()}"))
    return found


def _tags(tags: list[tuple[bytes, int]], facts: Facts, found: list[Reason]) -> None:
    """One 802.1Q tag of a trunk's VLAN is allowed. Without a VID it chooses no network."""
    kind, vid = tags[0]
    if len(tags) == 1 and vid in facts.vlans and (kind == QTAG or facts.mode == "openvswitch"):
        return
    level = PROMISE if all(number == 0 for _, number in tags) else DECEIVES
    found.append(Reason("vlan", "tags " + " ".join(f"{kind.hex()}:{vid}" for kind, vid in tags), level))


def _announces(packet: bytes, facts: Facts) -> bool:
    """What QEMU sends in the guest's name when it has migrated (RFC 903): forges nothing."""
    head, sender, target = packet[:8], packet[8:18], packet[18:28]
    return head == b"\0\1\x08\0\6\4\0\3" and sender == target == facts.mac + NO4


def _arp(packet: bytes, facts: Facts, found: list[Reason]) -> None:
    """Receivers learn the sender's pair. Those of Ethernet and IPv4 read it at fixed places, whatever the hardware type says."""
    rules = facts.rules
    if "mac" not in rules and "ip4" not in rules:
        return
    if len(packet) < 28 or packet[4:6] != b"\6\4" or packet[2:4] != IPV4 or packet[:2] != b"\0\1":
        found.append(Reason("malformed", "ARP that is not of Ethernet and IPv4, or cut off", PROMISE))
        if len(packet) < 28 or packet[4:6] != b"\6\4":
            return
    if "mac" in rules and packet[8:14] != facts.mac:
        found.append(Reason("arp-mac", "ARP, foreign sender MAC"))
    if "ip4" in rules and not facts.knows4(packet[14:18]) and packet[14:18] != NO4:
        found.append(Reason("arp-ip", "ARP, foreign sender IP"))
    elif "ip4" in rules and packet[14:18] == NO4 and not facts.knows4(packet[24:28]) and facts.mode != "openvswitch":
        # its owner would not take it (RFC 5227, 2.1.1); 0.0.0.0 nobody takes
        found.append(Reason("probe", "ARP probe for a foreign address", DECEIVES if any(packet[24:28]) else PROMISE))


def _ip4(packet: bytes, facts: Facts, header: Header, found: list[Reason]) -> None:
    rules = facts.rules
    if len(packet) < 20:
        found.append(Reason("malformed", "IPv4, cut off", PROMISE))
        return
    if "ip4" in rules and not facts.knows4(packet[12:16]) and packet[12:16] != NO4:
        found.append(Reason("ip4", "foreign IPv4 source", DECEIVES if packet[0] >> 4 == 4 else PROMISE))
    if packet[9] == IGMP:
        _igmp(packet, facts, found)
    if packet[9] != UDP:
        return
    fragment = int.from_bytes(packet[6:8], "big")
    if fragment & 0x1FFF:
        if header.kind == GSO_UDP and "dhcp" in rules:
            found.append(Reason("ufo", "a later fragment that its receiver may cut anew, from offset 0"))
        return
    at, total = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
    if len(packet) < at + 8 or (total > len(packet) and not header.kind):
        # whoever follows the IP length discards it
        found.append(Reason("malformed", "UDP, cut off", PROMISE))
    if "dhcp" in rules and len(packet) >= at + 4:
        where = "" if total >= at + 4 else ", beyond the IP length"
        where += "" if at >= 20 else f", header length {at}"
        _dhcp(packet[at:], bool(fragment & 0x2000), where, facts, found)


def _igmp(packet: bytes, facts: Facts, found: list[Reason]) -> None:
    """Queries make the one who sends them the link's querier (RFC 3376, 6.6.2). A flow knows those to all hosts alone."""
    at, later = (packet[0] & 15) * 4, int.from_bytes(packet[6:8], "big") & 0x1FFF
    if later and facts.mode != "openvswitch":  # a bridge that snoops does not look at the offset
        deceives = facts.mode == "bridged" and packet[at : at + 1] == QUERY and at >= 20
        found.append(Reason("query", "later fragment of IGMP", DECEIVES if deceives else PROMISE))
        return
    if later or packet[at : at + 1] != QUERY or (facts.mode == "openvswitch" and packet[16:20] != ALL_HOSTS):
        return
    read = at >= 20 and int.from_bytes(packet[2:4], "big") >= at + 8 <= len(packet)
    found.append(Reason("query", "IGMP query", DECEIVES if read else PROMISE))


def _dhcp(datagram: bytes, more: bool, where: str, facts: Facts, found: list[Reason]) -> None:
    """UDP from its header on, which ``more`` fragments follow."""
    source, target = int.from_bytes(datagram[:2], "big"), int.from_bytes(datagram[2:4], "big")
    body = datagram[8:]
    if source == SERVER or target == CLIENT:
        level = DECEIVES if len(datagram) >= 8 else PROMISE  # shorter ones are discarded, as fragments too
        found.append(Reason("dhcp-server", f"UDP from {source} to {target}{where}", level))
    elif target == SERVER and facts.mode != "openvswitch":  # no flow tells what a message says: a documented limit
        if more:
            found.append(Reason("dhcp-fragment", "first fragment to a DHCP server: its chaddr may follow"))
        elif body[:1] == b"\2":
            found.append(Reason("dhcp-server", f"BOOTREPLY to a relay{where}"))
        elif len(body) < CHADDR:
            found.append(Reason("dhcp-short", "DHCP client's message, cut off", PROMISE))
        elif body[0] != REQUEST:
            found.append(Reason("dhcp-operation", "neither BOOTREQUEST nor BOOTREPLY", PROMISE))
        elif any(body[24:28]):
            found.append(Reason("relayed", f"DHCP client's message that a relay agent at {body[24:28].hex()} has sent on{where}"))
        elif any(body[24:28]):
            found.append(Reason("relayed", f"DHCP client's message as a relay agent sends it on{where}"))
        elif body[1:3] != b"\1\6" or body[28:34] != facts.mac:
            found.append(Reason("chaddr", f"DHCP client's message, foreign chaddr{where}"))
