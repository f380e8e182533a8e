"""What the spoof guard's attack frames are made of: who is who, where a frame goes, and what a kind of frame is.

Written from the specification alone, with scapy, which the product does not know: no code here is the guard's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

MAC, FOREIGN_MAC = "aa:00:00:00:00:01", "aa:00:00:00:00:99"
OWN4, FOREIGN4, PREFIX4, IN_PREFIX4 = "10.0.0.1", "10.0.0.9", "10.1.0.0/28", "10.1.0.5"
OWN6, FOREIGN6, PREFIX6, IN_PREFIX6 = "2001:db8::1", "2001:db8::9", "2001:db8:1::/64", "2001:db8:1::5"
EUI64, OTHER_LOCAL = "fe80::a800:ff:fe00:1", "fe80::1234"  #: link-local addresses: that of MAC (RFC 4291), and any other

HOST_MAC, PEER_MAC, OUT_MAC = "fe:00:00:00:00:fe", "aa:00:00:00:00:02", "aa:00:00:00:00:03"
HOST4, PEER4, OUT4 = "192.0.2.2", "10.0.0.2", "198.51.100.1"
HOST6, PEER6, OUT6 = "2001:db8:f::2", "2001:db8::2", "2001:db8:f::1"
SOLICITED = "ff02::1:ff00:2"  #: the solicited-node address of PEER6 (RFC 4291)
ALL4, ALL6 = "255.255.255.255", "ff02::1"
ALL_MAC, ALL6_MAC = "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"

#: Groups that a bridge keeps to itself (IEEE 802.1D, 7.12.6): the nearest bridge's, where LLDP is sent, and spanning tree's.
NEAREST, SPANNING_TREE = "01:80:c2:00:00:0e", "01:80:c2:00:00:00"

#: A tap takes no frame that is shorter than an Ethernet header; QEMU pads to this.
MINIMUM = 60


class To(NamedTuple):
    """Where a frame goes, and its number: in every frame, so that each is known again wherever it arrives."""

    name: str
    mac: str
    ip4: str
    ip6: str
    number: int = 0

    @property
    def mac6(self) -> str:
        """The Ethernet destination of an IPv6 packet."""
        return ALL6_MAC if self.mac == ALL_MAC else self.mac

    @property
    def asked(self) -> str:
        """The address that an ARP request asks for."""
        return HOST4 if self.ip4 == ALL4 else self.ip4


#: What a rule of the specification is about. A frame that breaks several rules passes where all of them are off.
RULES = {
    "mac": "Ethernet source, ARP sender MAC, link-layer options of neighbour discovery",
    "ip4": "IPv4 source, ARP sender address",
    "ip6": "IPv6 source, target of neighbour advertisements",
    "local": "the same for IPv6 link-local addresses, where only that of the MAC is allowed",
    "dhcp": "DHCP and DHCPv6 servers, router advertisements and redirects, chaddr of DHCP clients",
    "type": "frames that are neither IPv4, IPv6 nor ARP",
    "never": "VLAN tags that are not the port's, and frames that hide what they are: no switch frees them",
}


class Kind(NamedTuple):
    """One kind of frame a guest may send: ``build`` makes its packet, without padding; ``broken`` are the RULES it breaks.

    "cut off" in the name: it ends within its header.
    """

    name: str
    build: Callable[[To], Any]
    broken: frozenset[str] = frozenset()


def kind(name: str, build: Callable[[To], Any], *broken: str) -> Kind:
    """A Kind that breaks the rules ``broken``."""
    assert set(broken) <= set(RULES)
    return Kind(name, build, frozenset(broken))


@functools.lru_cache(4096)
def raw(made: Kind, to: To) -> bytes:
    """The frame's bytes, made once for all settings of a guard: scapy takes its time.

    What carries no number of its own (an IPv4 identification, an IPv6 flow label) has it in its padding.
    A frame that is cut off within its header is not padded: that is what it is about.
    """
    frame = bytes(made.build(to))
    if "cut off" in made.name:
        return frame
    if int.from_bytes(frame[12:14], "big") not in (0x0800, 0x86DD):
        frame += b"\xfe" + to.number.to_bytes(2, "big") + b"\xfe"
    return frame.ljust(MINIMUM, b"\0")


TAGS = (0x8100, 0x88A8)


def identity(frame: bytes) -> bytes:
    """What of a frame stays the same on its way: all that is above Ethernet and its tags, but what routers change."""
    start = 12
    while (protocol := int.from_bytes(frame[start : start + 2], "big")) in TAGS:
        start += 4
    packet = bytearray(frame[start + 2 :])
    if protocol == 0x0800 and len(packet) >= 20:
        total = int.from_bytes(packet[2:4], "big")
        packet[8], packet[10:12] = 0, b"\0\0"  # time to live, checksum
        del packet[total:]
    elif protocol == 0x86DD and len(packet) >= 40:
        packet[7] = 0  # hop limit
        del packet[40 + int.from_bytes(packet[4:6], "big") :]
    return protocol.to_bytes(2, "big") + bytes(packet).rstrip(b"\0")
