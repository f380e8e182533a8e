"""The spoof guard's rules by themselves: frames of a guest, and the reason for which each is dropped, counted by the guard itself."""

from __future__ import annotations

import ipaddress
import struct

import pytest

from netcommon.features.guard import plan
from netcommon.host.api.nftables import NETDEV
from netcommon.host.linux.host import LinuxHost
from netcommon.operations.guard.table import table_of
from netcommon.options.model import Options
from netcommon.settings.model import Settings
from runtime.nic import Nic
from runtime.vlan import Vlan
from tests.support.frames import ARP, BROADCAST, IPV4, IPV6, Arp, checksum, mac_bytes
from tests.support.netns import run
from tests.support.node import Node

MAC, OTHER = "aa:00:00:00:00:01", "aa:00:00:00:00:02"
OWN4, OWN6, FOREIGN4, FOREIGN6 = "10.0.0.5", "2001:db8::5", "10.0.0.6", "2001:db8::6"
IN_PREFIX4, IN_PREFIX6 = "10.1.0.9", "2001:db8:1::9"
LINK_LOCAL, ANY_LOCAL = "fe80::a800:ff:fe00:1", "fe80::1234"
UDP, ICMP, ICMPV6, FRAGMENT = 17, 1, 58, 44
TARGET, SOURCE, NONCE = b"\x02\x01", b"\x01\x01", b"\x0e\x01"


def frame(payload: bytes, kind: int, source: str = MAC, destination: str = BROADCAST, tags: bytes = b"") -> bytes:
    return mac_bytes(destination) + mac_bytes(source) + tags + struct.pack("!H", kind) + payload


def ip4(source: str, body: bytes, protocol: int = UDP, fragment: int = 0, options: bytes = b"") -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(body), 1, fragment, 64, protocol, 0)
    head += ipaddress.IPv4Address(source).packed + b"\xff" * 4 + options
    return frame(head[:10] + checksum(head) + head[12:] + body, IPV4)


def ip6(source: str, body: bytes, following: int = ICMPV6) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(body), following, 255)
    return frame(head + ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address("ff02::1").packed + body, IPV6)


def udp(sport: int, dport: int, body: bytes = b"") -> bytes:
    return struct.pack("!HHHH", sport, dport, 8 + len(body), 0) + body


def bootp(op: int, mac: str = MAC, relay: str = "0.0.0.0") -> bytes:
    return struct.pack("!BBBB20x", op, 1, 6, 0) + ipaddress.IPv4Address(relay).packed + mac_bytes(mac) + bytes(202)


def arp(sender_mac: str, sender: str) -> bytes:
    target = OWN4 if sender == "0.0.0.0" else "10.0.0.1"
    return frame(Arp(1, sender_mac, sender, "00:00:00:00:00:00", target).raw(), ARP)


def nd(kind: int, target: str = "", option: bytes = b"", mac: str = MAC) -> bytes:
    body = struct.pack("!BBHI", kind, 0, 0, 0) + (ipaddress.IPv6Address(target).packed if target else b"")
    return body + (option + mac_bytes(mac) if option else b"")


def fragment6(body: bytes, offset: int = 0, more: int = 1, following: int = ICMPV6) -> bytes:
    return struct.pack("!BBHI", following, 0, offset << 3 | more, 7) + body


def authenticated(following: int, body: bytes) -> bytes:
    """``body`` behind an authentication header of 24 bytes (RFC 4302)."""
    return struct.pack("!BBHII12x", following, 4, 0, 1, 1) + body


def length0(made: bytes) -> bytes:
    """``made`` with an IPv4 length of 0, which the kernel mends when it cuts a frame up."""
    return made[:16] + bytes(2) + made[18:]


#: A first fragment of destination options alone: what follows is in the next one.
FIRST = fragment6(bytes((ICMPV6, 0, 1, 4, 0, 0, 0, 0)), following=60)
HOP_BY_HOP = bytes((ICMPV6, 0, 1, 4, 0, 0, 0, 0))
LONG_ARP = struct.pack("!HHBBH", 1, IPV4, 8, 4, 1) + bytes(24)
C = {"mac": "allow_mac_spoofing", "ip": "allow_ip_spoofing", "dhcp": "allow_dhcp_spoofing", "type": "allow_restricted_traffic"}
C["query"] = "allow_mcast_router"


#: kind -> frame, reason ("": passes), and the switches that free it.
def reverse(operation: int, target: str) -> bytes:
    """A reverse ARP message of the NIC's own MAC (RFC 903), as QEMU sends it where a guest has arrived."""
    addresses = mac_bytes(MAC) + bytes(4) + mac_bytes(target) + bytes(4)
    return bytes.fromhex("000108000604") + operation.to_bytes(2, "big") + addresses


FRAMES: dict[str, tuple[bytes, str, tuple[str, ...]]] = {
    "own IPv4": (ip4(OWN4, udp(1, 2)), "", ()),
    "IPv4 of the prefix": (ip4(IN_PREFIX4, udp(1, 2)), "", ()),
    "IPv4 without a source": (ip4("0.0.0.0", udp(1, 2)), "", ()),
    "own IPv4 with options": (ip4(OWN4, udp(1, 2), options=b"\1\1\1\0"), "", ()),
    "own IPv4, later fragment": (ip4(OWN4, b"x" * 16, fragment=9), "", ()),
    "own IPv4, later fragment of ICMP": (ip4(OWN4, udp(67, 68), ICMP, fragment=9), "", ()),
    "own IPv4, later fragment of two bytes": (ip4(OWN4, b"\0D", fragment=9), "", ()),
    "DHCP server, later fragment": (ip4(OWN4, udp(67, 1), fragment=1), "dhcp", ("dhcp",)),
    "DHCP server, later fragment from another port": (ip4(OWN4, udp(1, 68), fragment=1), "dhcp", ("dhcp",)),
    "DHCP client, later fragment": (ip4(OWN4, udp(1, 67), fragment=1), "dhcp", ("dhcp",)),
    "DHCP server, later fragment without a length": (length0(ip4(OWN4, udp(67, 68), fragment=1)), "dhcp", ("dhcp",)),
    "later fragment of UDP with options": (ip4(OWN4, udp(1, 2), fragment=1, options=b"\1\1\1\0"), "dhcp", ("dhcp",)),
    "foreign IPv4": (ip4(FOREIGN4, udp(1, 2)), "ip", ("ip", "dhcp")),
    "foreign IPv4, later fragment": (ip4(FOREIGN4, b"x" * 16, fragment=9), "ip", ("ip", "dhcp")),
    "foreign source MAC": (frame(ip4(OWN4, udp(1, 2))[14:], IPV4, OTHER), "mac", ("mac",)),
    "IPv4 to a link-local group, foreign": (
        frame(ip4(FOREIGN4, udp(1, 2))[14:], IPV4, destination="01:80:c2:00:00:0e"),
        "ip",
        ("ip", "dhcp"),
    ),
    "DHCP client": (ip4("0.0.0.0", udp(68, 67, bootp(1))), "", ()),
    "DHCP client, foreign chaddr": (ip4("0.0.0.0", udp(68, 67, bootp(1, OTHER))), "dhcp", ("dhcp",)),
    "DHCP client through a relay agent": (ip4("0.0.0.0", udp(68, 67, bootp(1, relay="10.0.1.1"))), "dhcp", ("dhcp",)),
    "DHCP client, first fragment": (ip4("0.0.0.0", udp(68, 67, bootp(1)), fragment=0x2000), "dhcp", ("dhcp",)),
    "DHCP client, cut off": (ip4("0.0.0.0", udp(68, 67, b"\1\1\6")), "dhcp", ("dhcp",)),
    "DHCP server": (ip4(OWN4, udp(67, 68, bootp(2))), "dhcp", ("dhcp",)),
    "DHCP server, other source port": (ip4(OWN4, udp(5000, 68, bootp(2))), "dhcp", ("dhcp",)),
    "DHCP server to a relay": (ip4(OWN4, udp(5000, 67, bootp(2))), "dhcp", ("dhcp",)),
    "DHCP server, first fragment": (ip4(OWN4, udp(67, 68), fragment=0x2000), "dhcp", ("dhcp",)),
    "IPv4 longer than the frame": (frame(ip4(OWN4, udp(67, 68, bytes(99)))[14:-9], IPV4), "malformed", ()),
    "IGMP query": (ip4(OWN4, b"\x11" + bytes(11), 2), "query", ("query",)),
    "IGMP query, later fragment": (ip4(OWN4, b"\x11" + bytes(11), 2, fragment=1), "query", ("query",)),
    "IGMP report, later fragment": (ip4(OWN4, b"\x22" + bytes(15), 2, fragment=9), "query", ("query",)),
    "IGMP report": (ip4(OWN4, b"\x22" + bytes(15), 2), "", ()),
    "MLD query": (ip6(LINK_LOCAL, HOP_BY_HOP + b"\x82" + bytes(27), 0), "query", ("query",)),
    "own ARP": (arp(MAC, OWN4), "", ()),
    "ARP probe": (arp(MAC, "0.0.0.0"), "", ()),
    "ARP probe for another's address": (
        frame(Arp(1, MAC, "0.0.0.0", "00:00:00:00:00:00", FOREIGN4).raw(), ARP),
        "ip",
        ("ip", "dhcp"),
    ),
    "ARP of the prefix": (arp(MAC, IN_PREFIX4), "", ()),
    "ARP, foreign IP": (arp(MAC, FOREIGN4), "ip", ("ip", "dhcp")),
    "ARP, foreign MAC": (arp(OTHER, OWN4), "mac", ("mac",)),
    "ARP of other lengths": (frame(LONG_ARP, ARP), "malformed", ()),
    "own IPv6": (ip6(OWN6, udp(1, 2), UDP), "", ()),
    "IPv6 of the prefix": (ip6(IN_PREFIX6, udp(1, 2), UDP), "", ()),
    "IPv6 without a source": (ip6("::", udp(1, 2), UDP), "", ()),
    "IPv6 of the MAC's link-local": (ip6(LINK_LOCAL, udp(1, 2), UDP), "", ()),
    "IPv6 of any link-local": (ip6(ANY_LOCAL, udp(1, 2), UDP), "", ()),
    "foreign IPv6": (ip6(FOREIGN6, udp(1, 2), UDP), "ip", ("ip", "dhcp")),
    "foreign IPv6, later fragment": (ip6(FOREIGN6, fragment6(b"x" * 16, 9, 0), FRAGMENT), "ip", ("ip", "dhcp")),
    "TCP, authenticated": (ip6(OWN6, authenticated(6, bytes(20)), 51), "", ()),
    "router advertisement, authenticated": (ip6(LINK_LOCAL, authenticated(ICMPV6, nd(134) + bytes(8)), 51), "malformed", ()),
    "advertisement, authenticated": (ip6(OWN6, authenticated(ICMPV6, nd(136, FOREIGN6, TARGET)), 51), "malformed", ()),
    "DHCPv6 server, authenticated": (ip6(LINK_LOCAL, authenticated(UDP, udp(547, 546, b"\2abc")), 51), "malformed", ()),
    "options, authenticated": (ip6(LINK_LOCAL, authenticated(60, bytes((ICMPV6, 0, 1, 4, 0, 0, 0, 0)) + nd(134)), 51), "malformed", ()),
    "mobility": (ip6(OWN6, bytes((59, 0, 1, 0, 0, 0, 0, 0)), 135), "", ()),
    "HIP": (ip6(OWN6, bytes((59, 4, 1, 0x11)) + bytes(36), 139), "", ()),
    "IPsec": (ip6(OWN6, bytes(32), 50), "", ()),
    "echo, fragmented": (ip6(OWN6, fragment6(b"\x80" + bytes(15)), FRAGMENT), "", ()),
    "MLD": (ip6(LINK_LOCAL, HOP_BY_HOP + b"\x8f" + bytes(27), 0), "", ()),
    "DHCPv6 client": (ip6(LINK_LOCAL, udp(546, 547, b"\1abc"), UDP), "", ()),
    "DHCPv6 server": (ip6(LINK_LOCAL, udp(547, 546, b"\2abc"), UDP), "dhcp", ("dhcp",)),
    "DHCPv6 server, other source port": (ip6(LINK_LOCAL, udp(5000, 546, b"\2abc"), UDP), "dhcp", ("dhcp",)),
    "DHCPv6 server to a relay": (ip6(LINK_LOCAL, udp(5000, 547, b"\x0dabc"), UDP), "dhcp", ("dhcp",)),
    "DHCPv6 to a server, the type in padding": (
        ip6(LINK_LOCAL, fragment6(udp(546, 547), following=UDP), FRAGMENT) + b"\1",
        "dhcp",
        ("dhcp",),
    ),
    "DHCPv6 client, first fragment": (ip6(LINK_LOCAL, fragment6(udp(546, 547, b"\1abcdefg"), following=UDP), FRAGMENT), "", ()),
    "DHCPv6 server, first fragment": (ip6(LINK_LOCAL, fragment6(udp(547, 546), following=UDP), FRAGMENT), "dhcp", ("dhcp",)),
    "router solicitation": (ip6(LINK_LOCAL, nd(133)), "", ()),
    "router solicitation, own MAC": (ip6(LINK_LOCAL, nd(133, "", SOURCE)), "", ()),
    "router solicitation, foreign MAC": (ip6(LINK_LOCAL, nd(133, "", SOURCE, OTHER)), "mac", ("mac",)),
    "router advertisement": (ip6(LINK_LOCAL, nd(134) + bytes(8)), "ra", ("dhcp",)),
    "router advertisement, hop by hop": (ip6(LINK_LOCAL, HOP_BY_HOP + nd(134) + bytes(8), 0), "malformed", ()),
    "router advertisement, fragmented": (ip6(LINK_LOCAL, fragment6(nd(134) + bytes(8)), FRAGMENT), "malformed", ()),
    "router advertisement, not fragmented really": (ip6(LINK_LOCAL, fragment6(nd(134) + bytes(8), more=0), FRAGMENT), "malformed", ()),
    "headers that end with the packet, ICMPv6 in the padding": (ip6(LINK_LOCAL, FIRST, FRAGMENT) + bytes(8), "malformed", ()),
    "headers that end with the packet, UDP in the padding": (
        ip6(LINK_LOCAL, FIRST[:8] + bytes((UDP,)) + FIRST[9:], FRAGMENT) + udp(1, 2),
        "malformed",
        (),
    ),
    "a fragment without content, UDP in the padding": (ip6(OWN6, fragment6(b"", following=UDP), FRAGMENT) + udp(1, 2), "malformed", ()),
    "hop by hop, then a first fragment": (
        ip6(OWN6, bytes((FRAGMENT, 0, 1, 4, 0, 0, 0, 0)) + fragment6(udp(1, 2), following=UDP), 0),
        "malformed",
        (),
    ),
    "options in one fragment": (ip6(OWN6, fragment6(bytes((UDP, 0, 1, 4, 0, 0, 0, 0)) + udp(1, 2), 0, 0, 60), FRAGMENT), "malformed", ()),
    "one fragment": (ip6(OWN6, fragment6(udp(1, 2), 0, 0, UDP), FRAGMENT), "", ()),
    "one fragment, then a first one, UDP in the padding": (
        ip6(OWN6, fragment6(fragment6(b"", following=UDP), 0, 0, FRAGMENT), FRAGMENT) + udp(1, 2),
        "malformed",
        (),
    ),
    "UDP, first fragment": (ip6(OWN6, fragment6(udp(1, 2, bytes(8)), following=UDP), FRAGMENT), "", ()),
    "headers cut by a fragment": (ip6(LINK_LOCAL, fragment6(bytes((ICMPV6, 9)) + bytes(6), following=60), FRAGMENT), "malformed", ()),
    "redirect": (ip6(LINK_LOCAL, nd(137, OWN6) + bytes(16)), "ra", ("dhcp",)),
    "solicitation, own MAC": (ip6(OWN6, nd(135, "2001:db8::1", SOURCE)), "", ()),
    "solicitation, DAD": (ip6("::", nd(135, OWN6)), "", ()),
    "solicitation, DAD with nonce": (ip6("::", nd(135, OWN6, NONCE)), "", ()),
    "solicitation, DAD of another's address": (ip6("::", nd(135, FOREIGN6)), "ip", ("ip", "dhcp")),
    "solicitation, foreign MAC": (ip6(OWN6, nd(135, "2001:db8::1", SOURCE, OTHER)), "mac", ("mac",)),
    "solicitation, hidden MAC": (ip6(OWN6, nd(135, "2001:db8::1", NONCE) + SOURCE + mac_bytes(OTHER)), "mac", ("mac",)),
    "advertisement": (ip6(OWN6, nd(136, OWN6, TARGET)), "", ()),
    "advertisement, bare": (ip6(OWN6, nd(136, OWN6)), "", ()),
    "advertisement of any link-local": (ip6(ANY_LOCAL, nd(136, ANY_LOCAL, TARGET)), "", ()),
    "advertisement, foreign target": (ip6(OWN6, nd(136, FOREIGN6, TARGET)), "ip", ("ip", "dhcp")),
    "advertisement, foreign MAC": (ip6(OWN6, nd(136, OWN6, TARGET, OTHER)), "mac", ("mac",)),
    "LLDP": (frame(bytes(46), 0x88CC, destination="01:80:c2:00:00:0e"), "type", ("type",)),
    "802.1X": (frame(bytes(46), 0x888E, destination="01:80:c2:00:00:03"), "type", ("type",)),
    "STP": (frame(b"\x42\x42\x03" + bytes(35), 38, destination="01:80:c2:00:00:00"), "type", ("type",)),
    "PPPoE": (frame(bytes(46), 0x8863), "type", ("type",)),
    "RARP of nothing": (frame(bytes(46), 0x8035), "type", ("type",)),
    "RARP, QEMU's own": (frame(reverse(3, MAC), 0x8035), "", ()),
    "RARP reply": (frame(reverse(4, MAC), 0x8035), "type", ("type",)),
    "RARP, foreign MAC": (frame(reverse(3, OTHER), 0x8035), "type", ("type",)),
    "LLDP, foreign MAC": (frame(bytes(46), 0x88CC, OTHER, "01:80:c2:00:00:0e"), "mac", ()),
    "priority tag": (frame(ip4(OWN4, udp(1, 2))[14:], IPV4, tags=b"\x81\x00\xa0\x00"), "vlan", ()),
    "VLAN tag": (frame(ip4(OWN4, udp(1, 2))[14:], IPV4, tags=b"\x81\x00\x00\x08"), "vlan", ()),
    "allowed VLAN tag": (frame(ip4(OWN4, udp(1, 2))[14:], IPV4, tags=b"\x81\x00\xe0\x07"), "", ()),
    "allowed VLAN tag, foreign IPv4": (frame(ip4(FOREIGN4, udp(1, 2))[14:], IPV4, tags=b"\x81\x00\x00\x07"), "ip", ("ip", "dhcp")),
    "two tags": (frame(ip4(OWN4, udp(1, 2))[14:], IPV4, tags=b"\x81\x00\x00\x07\x81\x00\x00\x07"), "vlan", ()),
    "service tag": (frame(ip4(OWN4, udp(1, 2))[14:], IPV4, tags=b"\x88\xa8\x00\x07"), "vlan", ()),
}
OPTIONS = Options(addresses=(OWN6,), prefixes=("10.1.0.0/28", "10.1.0.8/29", "2001:db8:1::/64"))
NIC = Nic("5d2c0d6e-0000-4000-8000-000000000001", "tap0", "bridged", "br0", MAC, OWN4, Vlan(None, (7,)), "web1", 0)


class Guarded:
    """A tap that is up and guarded."""

    def __init__(self, node: Node, nic: Nic, options: Options) -> None:
        self.host, self.tap = LinuxHost(), node.tap(nic.interface)
        run("ip", "link", "set", nic.interface, "up")
        for operation in plan(nic, Settings(), options).before:
            (resolved,) = operation.resolve(self.host.view(), [])
            (said,) = self.host.execute(resolved.apply(), stop=True)
            assert said.ok and resolved.differs(self.host.view()) == "", (said, resolved)

    def counters(self) -> dict[str, int]:
        elements = self.host.view().nft_elements(NETDEV, table_of(self.tap.name))
        return {each.set.partition("-")[2]: each.packets for each in elements if each.set.startswith("dropped-")}

    def reason(self, sent: bytes) -> str:
        """Why the frame was dropped, "" if it was not."""
        before = self.counters()
        self.tap.send(sent.ljust(60, b"\0"))
        after = self.counters()
        (*found,) = (reason for reason in after if after[reason] != before[reason])
        assert len(found) < 2, found
        return found[0] if found else ""


@pytest.mark.parametrize("switch", ["", *C])
def test_every_kind(node: Node, switch: str) -> None:
    """Each switch frees its own kinds and no others; allow_dhcp_spoofing those of addresses too."""
    options = OPTIONS._replace(**{C[switch]: True}) if switch else OPTIONS
    guarded = Guarded(node, NIC, options)
    wanted = {kind: "" if switch in free else reason for kind, (_, reason, free) in FRAMES.items()}
    if switch == "type":
        wanted["LLDP, foreign MAC"] = "mac"
    if switch == "mac":
        wanted["LLDP, foreign MAC"] = "type"  # it has two faults
    found = {kind: guarded.reason(sent) for kind, (sent, _, _) in FRAMES.items()}
    assert {kind: (found[kind], wanted[kind]) for kind in found if found[kind] != wanted[kind]} == {}
