"""Ethernet frames as a guest sends and receives them: ARP (RFC 826), ICMP (RFC 792), ICMPv6 and NDP (RFC 4443, 4861), 802.1Q tags."""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

BROADCAST = "ff:ff:ff:ff:ff:ff"
ARP, IPV4, IPV6, VLAN = 0x0806, 0x0800, 0x86DD, 0x8100
ARP_REQUEST, ARP_REPLY = 1, 2
ECHO_REPLY, ECHO_REQUEST = 0, 8
ECHO6_REQUEST, ECHO6_REPLY, SOLICITATION, ADVERTISEMENT = 128, 129, 135, 136
ICMP, ICMP6 = 1, 58
IDENTIFIER = 0x6E63  #: of our echo requests


def mac_bytes(text: str) -> bytes:
    """ "aa:bb:..." as 6 bytes."""
    return bytes.fromhex(text.replace(":", ""))


def mac_text(raw: bytes) -> str:
    """6 bytes as "aa:bb:..."."""
    return raw.hex(":")


class Frame(NamedTuple):
    """An Ethernet frame taken apart as far as the layer that matters; ``vlan`` 0: untagged."""

    destination: str
    source: str
    vlan: int
    type: int
    payload: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Frame:
        """Takes off the Ethernet header and one 802.1Q tag."""
        kind = int.from_bytes(raw[12:14], "big")
        destination, source = mac_text(raw[:6]), mac_text(raw[6:12])
        if kind == VLAN:
            return cls(destination, source, int.from_bytes(raw[14:16], "big") & 0xFFF, int.from_bytes(raw[16:18], "big"), raw[18:])
        return cls(destination, source, 0, kind, raw[14:])

    def raw(self) -> bytes:
        """The bytes for the wire, padded to the minimum of 60."""
        tag = struct.pack("!HH", VLAN, self.vlan) if self.vlan else b""
        return (mac_bytes(self.destination) + mac_bytes(self.source) + tag + struct.pack("!H", self.type) + self.payload).ljust(60, b"\0")


class Arp(NamedTuple):
    """An ARP packet for Ethernet and IPv4."""

    operation: int
    sender_mac: str
    sender: str
    target_mac: str
    target: str

    @classmethod
    def parse(cls, payload: bytes) -> Arp:
        operation, sender_mac, sender, target_mac, target = struct.unpack("!6xH6s4s6s4s", payload[:28])
        sender, target = str(ipaddress.IPv4Address(sender)), str(ipaddress.IPv4Address(target))
        return cls(operation, mac_text(sender_mac), sender, mac_text(target_mac), target)

    def raw(self) -> bytes:
        addresses = [ipaddress.IPv4Address(address).packed for address in (self.sender, self.target)]
        ends = mac_bytes(self.sender_mac), addresses[0], mac_bytes(self.target_mac), addresses[1]
        return struct.pack("!HHBBH6s4s6s4s", 1, IPV4, 6, 4, self.operation, *ends)


class Icmp(NamedTuple):
    """An IPv4 or IPv6 packet that carries ICMP; ``body`` is what follows the ICMP checksum."""

    source: str
    destination: str
    type: int
    body: bytes

    @property
    def version(self) -> int:
        return ipaddress.ip_address(self.source).version

    @classmethod
    def parse(cls, payload: bytes) -> Icmp | None:
        """The packet, or None where it is something else than ICMP."""
        if payload[0] >> 4 == 4:
            header, total = (payload[0] & 15) * 4, int.from_bytes(payload[2:4], "big")
            if payload[9] != ICMP:
                return None
            source, destination = ipaddress.IPv4Address(payload[12:16]), ipaddress.IPv4Address(payload[16:20])
            return cls(str(source), str(destination), payload[header], payload[header + 4 : total])
        if payload[6] != ICMP6:
            return None
        end = 40 + int.from_bytes(payload[4:6], "big")
        source6, destination6 = ipaddress.IPv6Address(payload[8:24]), ipaddress.IPv6Address(payload[24:40])
        return cls(str(source6), str(destination6), payload[40], payload[44:end])

    def raw(self) -> bytes:
        source, destination = ipaddress.ip_address(self.source).packed, ipaddress.ip_address(self.destination).packed
        if self.version == 4:
            message = self._message(b"")
            header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(message), 1, 0, 64, ICMP, 0, source, destination)
            return header[:10] + checksum(header) + header[12:] + message
        message = self._message(source + destination + struct.pack("!II", len(self.body) + 4, ICMP6))
        return struct.pack("!IHBB16s16s", 6 << 28, len(message), ICMP6, 255, source, destination) + message

    def _message(self, pseudo: bytes) -> bytes:
        head = struct.pack("!BB", self.type, 0)
        return head + checksum(pseudo + head + b"\0\0" + self.body) + self.body


def checksum(data: bytes) -> bytes:
    """The Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def solicited_node(address: str) -> tuple[str, str]:
    """The multicast address and MAC that a neighbour solicitation for ``address`` goes to (RFC 4291, 2.7.1)."""
    tail = ipaddress.IPv6Address(address).packed[-3:]
    group = ipaddress.IPv6Address(ipaddress.IPv6Address("ff02::1:ff00:0").packed[:13] + tail)
    return str(group), "33:33:ff:" + tail.hex(":")


def echo(source: str, destination: str, sequence: int, reply: bool = False) -> Icmp:
    """An echo request, or its reply."""
    kinds = (ECHO_REPLY, ECHO_REQUEST) if ":" not in source else (ECHO6_REPLY, ECHO6_REQUEST)
    return Icmp(source, destination, kinds[not reply], struct.pack("!HH", IDENTIFIER, sequence) + b"netcommon")
