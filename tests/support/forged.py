"""Frames that a guest may send, and frames that it must not: the kinds of the spoof guard's table of verdicts."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests.support import frames
from tests.support.frames import BROADCAST, Arp, checksum, mac_bytes

OWN, OTHER = "aa:00:00:00:00:00", "aa:00:00:00:00:99"
IP, OTHER_IP = "10.0.0.1", "10.0.0.9"
IP6, OTHER_IP6 = "2001:db8::5", "2001:db8::9"
LOCAL, OTHER_LOCAL = "fe80::a800:ff:fe00:0", "fe80::1234"  #: the first is OWN's by EUI-64
ALL_NODES, ALL_NODES_MAC = "ff02::1", "33:33:00:00:00:01"

#: The switches of RFD 28 by their short names, as options of ours.
MAC, ADDRESS, DHCP, KIND = "allow_mac_spoofing", "allow_ip_spoofing", "allow_dhcp_spoofing", "allow_restricted_traffic"
SWITCHES = (MAC, ADDRESS, DHCP, KIND)

UDP, FRAGMENT, DESTINATION_OPTIONS = 17, 44, 60
IGMP, AUTHENTICATION, MOBILITY = 2, 51, 135
ALL_HOSTS, SOLICITED = "224.0.0.1", "ff02::1:ff00:9"
LLC = 0  #: instead of an EtherType: the frame's length (802.3)


class Kind(NamedTuple):
    """One kind of frame."""

    name: str
    frame: bytes
    reason: str = ""  #: under which name the guard counts it; "": it may pass
    freed: frozenset[str] = frozenset()  #: the switches of which each lets it pass


def ethernet(kind: int, payload: bytes, source: str = OWN, destination: str = BROADCAST, tags: tuple[tuple[int, int], ...] = ()) -> bytes:
    """A frame of at least 60 bytes; ``tags`` are pairs of EtherType and VID, the outer one first."""
    head = mac_bytes(destination) + mac_bytes(source) + b"".join(struct.pack("!HH", *tag) for tag in tags)
    return (head + struct.pack("!H", kind or len(payload)) + payload).ljust(60, b"\0")


def ipv4(source: str, payload: bytes, protocol: int = UDP, fragment: int = 0, destination: str = "255.255.255.255") -> bytes:
    """An IPv4 packet; ``fragment``: flags and offset as in its header (RFC 791)."""
    ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 7, fragment, 64, protocol, 0) + ends
    return header[:10] + checksum(header) + header[12:] + payload


def ipv6(source: str, payload: bytes, protocol: int, destination: str = ALL_NODES, hops: int = 255) -> bytes:
    """An IPv6 packet (RFC 8200)."""
    ends = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(destination).packed
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, hops) + ends + payload


def udp(source: int, destination: int, payload: bytes = b"netcommon") -> bytes:
    """Without a checksum."""
    return struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload


def icmp6(source: str, kind: int, body: bytes, destination: str = ALL_NODES) -> bytes:
    """The ICMPv6 message alone, its checksum right for this source and destination (RFC 4443)."""
    ends = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(destination).packed
    head = struct.pack("!BB", kind, 0)
    pseudo = ends + struct.pack("!II", len(body) + 4, frames.ICMP6)
    return head + checksum(pseudo + head + b"\0\0" + body) + body


def neighbour(kind: int, source: str, target: str, *options: tuple[int, str]) -> bytes:
    """A neighbour solicitation or advertisement with link-layer address options (RFC 4861)."""
    body = b"\0\0\0\0" + ipaddress.IPv6Address(target).packed
    body += b"".join(struct.pack("!BB", option, 1) + mac_bytes(mac) for option, mac in options)
    return icmp6(source, kind, body)


def bootp(operation: int, hardware: str) -> bytes:
    """A DHCP message as far as chaddr (RFC 2131)."""
    return struct.pack("!BBBBIHH16x", operation, 1, 6, 0, 7, 0, 0) + mac_bytes(hardware).ljust(16, b"\0") + bytes(192)


def fragmented(protocol: int, payload: bytes, offset: int = 0, more: bool = True) -> bytes:
    """An IPv6 fragment header and what follows it."""
    return struct.pack("!BBHI", protocol, 0, offset << 3 | more, 7) + payload


def _v4(name: str, packet: bytes, reason: str = "", *freed: str, source: str = OWN) -> Kind:
    return Kind(name, ethernet(frames.IPV4, packet, source), reason, frozenset(freed))


def _v6(name: str, packet: bytes, reason: str = "", *freed: str) -> Kind:
    return Kind(name, ethernet(frames.IPV6, packet, destination=ALL_NODES_MAC), reason, frozenset(freed))


def _arp(name: str, mac: str, address: str, reason: str = "", *freed: str) -> Kind:
    packet = Arp(frames.ARP_REQUEST, mac, address, "00:00:00:00:00:00", IP).raw()
    return Kind(name, ethernet(frames.ARP, packet), reason, frozenset(freed))


def _icmp6(name: str, source: str, message: bytes, reason: str = "", *freed: str) -> Kind:
    return _v6(name, ipv6(source, message, frames.ICMP6), reason, *freed)


def kinds() -> Iterator[Kind]:
    """Every kind, with the verdict for a guest that has OWN, IP and IP6, and no VLAN."""
    ns, na = frames.SOLICITATION, frames.ADVERTISEMENT
    plain = udp(1000, 2000)
    yield _v4("IPv4", ipv4(IP, plain))
    yield _v4("IPv4 from a foreign MAC", ipv4(IP, plain), "mac", MAC, source=OTHER)
    yield _v4("IPv4 from a foreign address", ipv4(OTHER_IP, plain), "ip", ADDRESS, DHCP)
    yield _v4("IPv4, last fragment", ipv4(IP, b"netcommon", fragment=100))
    yield _v4("IPv4, last fragment, foreign", ipv4(OTHER_IP, b"netcommon", fragment=100), "ip", ADDRESS, DHCP)
    yield _v4("DHCP client", ipv4("0.0.0.0", udp(68, 67, bootp(1, OWN))))
    yield _v4("DHCP server", ipv4(IP, udp(67, 68, bootp(2, OTHER))), "dhcp", DHCP)
    yield _v4("DHCP server, first fragment", ipv4(IP, udp(67, 68, bootp(2, OTHER)), fragment=0x2000), "dhcp", DHCP)
    first = ipv4(IP, udp(67, 68, bootp(2, OTHER)), fragment=0x2000, destination=ALL_HOSTS)
    yield _v4("DHCP server, first fragment to all hosts", first, "dhcp", DHCP)
    yield _v4("IPv4, first fragment", ipv4(IP, udp(1000, 2000, bytes(56)), fragment=0x2000))
    yield _v4("IGMP query", ipv4(IP, b"\x11\x64\xee\x9b\0\0\0\0", IGMP, destination=ALL_HOSTS), "query")
    yield _v4("DHCP server by another port", ipv4(IP, udp(5000, 68, bootp(2, OTHER))), "dhcp", DHCP)
    yield _arp("ARP", OWN, IP)
    yield _arp("ARP probe", OWN, "0.0.0.0")
    yield _arp("ARP of a foreign address", OWN, OTHER_IP, "ip", ADDRESS, DHCP)
    yield _arp("ARP of a foreign MAC", OTHER, IP, "mac", MAC)
    yield _v6("IPv6", ipv6(IP6, plain, UDP))
    yield _v6("IPv6 from a foreign address", ipv6(OTHER_IP6, plain, UDP), "ip", ADDRESS, DHCP)
    yield _v6("IPv6 from the MAC's link-local address", ipv6(LOCAL, plain, UDP))
    yield _v6("IPv6 from another link-local address", ipv6(OTHER_LOCAL, plain, UDP))
    fragment = fragmented(UDP, udp(1000, 2000, b"1234567890123456"))
    yield _v6("IPv6, first fragment", ipv6(IP6, fragment, FRAGMENT, OTHER_IP6))
    yield _v6("IPv6, last fragment", ipv6(IP6, fragmented(UDP, b"netcommon", 3, False), FRAGMENT))
    yield _v6("IPv6 with its headers cut off", ipv6(IP6, fragmented(DESTINATION_OPTIONS, b"\x11\x04" + bytes(6)), FRAGMENT), "malformed")
    yield _icmp6("duplicate address detection", "::", neighbour(ns, "::", LOCAL))
    yield _icmp6("solicitation", IP6, neighbour(ns, IP6, OTHER_IP6, (1, OWN)))
    yield _icmp6("solicitation with a foreign MAC", IP6, neighbour(ns, IP6, OTHER_IP6, (1, OTHER)), "mac", MAC)
    yield _icmp6("solicitation with two MACs", IP6, neighbour(ns, IP6, OTHER_IP6, (1, OWN), (1, OTHER)), "mac", MAC)
    yield _icmp6("advertisement", IP6, neighbour(na, IP6, IP6, (2, OWN)))
    yield _icmp6("advertisement without a MAC", IP6, neighbour(na, IP6, IP6))
    yield _icmp6("advertisement of a link-local address", LOCAL, neighbour(na, LOCAL, LOCAL, (2, OWN)))
    yield _icmp6("advertisement of a foreign address", IP6, neighbour(na, IP6, OTHER_IP6, (2, OWN)), "ip", ADDRESS, DHCP)
    yield _icmp6("advertisement with a foreign MAC", IP6, neighbour(na, IP6, IP6, (2, OTHER)), "mac", MAC)
    yield _v6("advertisement in fragments", ipv6(IP6, fragmented(frames.ICMP6, neighbour(na, IP6, IP6)), FRAGMENT), "malformed")
    yield _icmp6("router solicitation", LOCAL, icmp6(LOCAL, 133, bytes(4)))
    yield _icmp6("router advertisement", LOCAL, icmp6(LOCAL, 134, bytes(12)), "ra", DHCP)
    yield _icmp6("redirect", LOCAL, icmp6(LOCAL, 137, bytes(36)), "ra", DHCP)
    fragment = fragmented(frames.ICMP6, icmp6(LOCAL, 134, bytes(12)))
    yield _v6("router advertisement in fragments", ipv6(LOCAL, fragment, FRAGMENT), "malformed")
    fragment = fragmented(UDP, udp(5000, 546))
    yield _v6("DHCPv6 server in fragments", ipv6(LOCAL, fragment, FRAGMENT, OTHER_LOCAL), "dhcp", DHCP)
    fragment = fragmented(UDP, udp(547, 5000, bytes(40)))
    yield _v6("DHCPv6 server in fragments to a solicited-node address", ipv6(LOCAL, fragment, FRAGMENT, SOLICITED), "dhcp", DHCP)
    fragment = fragmented(DESTINATION_OPTIONS, b"\x11\0" + bytes(6))
    yield _v6("UDP whose header is in the second fragment", ipv6(IP6, fragment, FRAGMENT), "malformed")
    router, authentic = icmp6(LOCAL, 134, bytes(12)), b"\4" + bytes(22)
    yield _v6("router advertisement, mobility", ipv6(LOCAL, b"\x3a\0" + bytes(6) + router, MOBILITY), "malformed")
    yield _v6("router advertisement, authentication", ipv6(LOCAL, b"\x3a" + authentic + router, AUTHENTICATION), "ra", DHCP)
    yield _v6("DHCPv6 server, authentication", ipv6(LOCAL, b"\x11" + authentic + udp(547, 546), AUTHENTICATION), "dhcp", DHCP)
    yield _v6("TCP, authentication", ipv6(IP6, b"\x06" + authentic + bytes(20), AUTHENTICATION))
    yield _icmp6("MLD query", LOCAL, icmp6(LOCAL, 130, bytes(20)), "query")
    fragment = fragmented(frames.ICMP6, icmp6(IP6, 128, bytes(12)))
    yield _v6("echo request in fragments", ipv6(IP6, fragment, FRAGMENT, hops=64))
    yield _v6("DHCPv6 client", ipv6(LOCAL, udp(546, 547, b"\1abc"), UDP))
    yield _v6("DHCPv6 server", ipv6(LOCAL, udp(547, 546), UDP), "dhcp", DHCP)
    yield _v6("DHCPv6 server by another port", ipv6(LOCAL, udp(5000, 546), UDP), "dhcp", DHCP)
    only = frozenset({KIND})
    yield Kind("LLDP", ethernet(0x88CC, b"\x02\x07\x04" + mac_bytes(OWN), destination="01:80:c2:00:00:0e"), "type", only)
    yield Kind("STP", ethernet(LLC, b"\x42\x42\x03" + bytes(35), destination="01:80:c2:00:00:00"), "type", only)
    yield Kind("802.1X", ethernet(0x888E, b"\x01\x01\x00\x00", destination="01:80:c2:00:00:03"), "type", only)
    yield Kind("RARP, QEMU's own", ethernet(0x8035, Arp(3, OWN, "0.0.0.0", OWN, "0.0.0.0").raw()))
    yield Kind("RARP reply", ethernet(0x8035, Arp(4, OWN, "0.0.0.0", OWN, "0.0.0.0").raw()), "type", only)
    yield Kind("RARP, foreign MAC", ethernet(0x8035, Arp(3, OWN, "0.0.0.0", OTHER, "0.0.0.0").raw()), "type", only)
    yield Kind("an experiment", ethernet(0x88B5, b"netcommon"), "type", only)
    yield Kind("VLAN tag", ethernet(frames.IPV4, ipv4(IP, plain), tags=((frames.VLAN, 20),)), "vlan")
    yield Kind("priority tag", ethernet(frames.IPV4, ipv4(IP, plain), tags=((frames.VLAN, 0),)), "vlan")
    yield Kind("two VLAN tags", ethernet(frames.IPV4, ipv4(IP, plain), tags=((0x88A8, 20), (frames.VLAN, 30))), "vlan")


def heard_by_host(listener: socket.socket, text: bytes) -> int:
    """Count the packets with ``text`` that the host's own IPv4 gave the socket, which does not block, since it was last asked."""
    count = 0
    while True:
        try:
            count += text in listener.recv(2048)
        except BlockingIOError:
            return count
