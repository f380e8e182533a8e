"""Attack frames: neither IPv4, IPv6 nor ARP, and VLAN tags (IEEE 802, 802.1Q; net/announce.c of QEMU for RARP)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scapy.layers.inet import IP
from scapy.layers.inet6 import ICMPv6ND_RA
from scapy.layers.l2 import ARP, LLC, SNAP, STP, Dot1AD, Dot1Q, Dot3, Ether
from scapy.packet import Raw

from tests.support import attacks_ip4, attacks_ip6
from tests.support.attacks_base import EUI64, FOREIGN4, FOREIGN_MAC, MAC, OWN4, Kind, To, kind

Build = Callable[[To], Any]
RARP, REVERSE_REQUEST, REVERSE_REPLY = 0x8035, 3, 4
TYPES = {
    "LLDP": (0x88CC, b"\x02\x07\x04\xaa\0\0\0\0\1\4\2\5\x30\6\2\0\x78\0\0"),
    "802.1X": (0x888E, b"\1\1\0\0"),
    "LACP": (0x8809, b"\1\1\1\x14" + bytes(46)),
    "pause": (0x8808, b"\0\1\xff\xff"),
    "PPPoE discovery": (0x8863, b"\x11\x09\0\0\0\0"),
    "PPPoE session": (0x8864, b"\x11\0\0\1\0\2\0\x21"),
    "MPLS": (0x8847, b"\0\1\1\x40"),
    "MACsec": (0x88E5, b"\x20\0\0\0\0\1"),
    "IPX": (0x8137, b"\xff\xff\0\x1e"),
    "wake on LAN": (0x0842, b"\xff" * 6),
    "loopback test": (0x9000, b"\0\0\1\0"),
    "an experiment": (0x88B5, b"netcommon"),
    "an experiment from no protocol": (0x0600, b"netcommon"),
}


def ethernet(protocol: int, payload: bytes, mac: str = MAC) -> Build:
    """A frame of any EtherType."""
    return lambda to: Ether(src=mac, dst=to.mac, type=protocol) / Raw(payload)


def rarp(sender: str = MAC, target: str = MAC, address: str = "0.0.0.0", operation: int = REVERSE_REQUEST) -> Build:
    """By default what QEMU sends in the guest's name at the end of a migration."""
    packet = ARP(op=operation, hwsrc=sender, psrc=address, hwdst=target, pdst=address)
    return lambda to: Ether(src=MAC, dst=to.mac, type=RARP) / packet


def llc(payload: Any) -> Build:
    """A frame with a length instead of an EtherType (IEEE 802.3)."""
    return lambda to: Dot3(src=MAC, dst=to.mac, len=len(payload)) / payload


def tagged(build: Build, *tags: Any) -> Build:
    """Puts tags between the Ethernet header and what follows it; each tag's type is that of what follows."""

    def tag(to: To) -> Any:
        frame = bytes(build(to))
        inner = int.from_bytes(frame[12:14], "big")
        head = Ether(src=MAC, dst=frame[:6].hex(":"), type=0x88A8 if isinstance(tags[0], Dot1AD) else 0x8100)
        for number, each in enumerate(tags):
            following = tags[number + 1] if number + 1 < len(tags) else None
            head /= each.__class__(vlan=each.vlan, prio=each.prio, type=inner if following is None else 0x8100)
        return head / Raw(frame[14:])

    return tag


def _others() -> Iterator[Kind]:
    for name, (protocol, payload) in TYPES.items():
        yield kind(name, ethernet(protocol, payload), "type")
    yield kind("LLDP, foreign MAC", ethernet(*TYPES["LLDP"], mac=FOREIGN_MAC), "type", "mac")
    yield kind("STP", llc(LLC(dsap=0x42, ssap=0x42, ctrl=3) / STP()), "type")
    yield kind("IPX in 802.3", llc(Raw(b"\xff\xff\0\x1e")), "type")
    packet = IP(src=OWN4, dst="10.0.0.2") / attacks_ip4.plain()
    yield kind("CDP in SNAP", llc(LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0x00000C, code=0x2000) / Raw(b"\2\xb4")), "type")
    yield kind("IPv4 in SNAP", llc(LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=0x0800) / packet), "type")
    forged = IP(src=FOREIGN4, dst="10.0.0.2") / attacks_ip4.plain()
    yield kind("IPv4 in SNAP, foreign address", llc(LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=0x0800) / forged), "type")
    answer = ARP(op=2, hwsrc=MAC, psrc=FOREIGN4, hwdst=MAC, pdst=FOREIGN4)
    yield kind("ARP in SNAP, foreign address", llc(LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=0x0806) / answer), "type")
    yield kind("RARP, QEMU's after a migration", rarp())
    yield kind("RARP, foreign sender", rarp(sender=FOREIGN_MAC), "type")
    yield kind("RARP, foreign target", rarp(target=FOREIGN_MAC), "type")
    yield kind("RARP with addresses", rarp(address=OWN4), "type")
    yield kind("RARP reply", rarp(operation=REVERSE_REPLY), "type")


def vlans(allowed: int = 0, access: int = 1) -> Iterator[Kind]:
    """Frames with tags, for a port that may send the VID ``allowed`` (0: none); ``access`` is that of what it sends untagged."""
    own, other = attacks_ip4.ip4(OWN4, attacks_ip4.plain()), attacks_ip4.ip4(FOREIGN4, attacks_ip4.plain())
    router = attacks_ip6.ip6(EUI64, ICMPv6ND_RA())
    for vid in (access, 21, 4095):
        yield kind(f"VLAN tag {vid}", tagged(own, Dot1Q(vlan=vid)), "never")
    yield kind("priority tag", tagged(own, Dot1Q(vlan=0, prio=5)), "never")
    yield kind("VLAN tag 21, foreign address", tagged(other, Dot1Q(vlan=21)), "never")
    yield kind("VLAN tag 21, RA", tagged(router, Dot1Q(vlan=21)), "never")
    yield kind("service tag of the allowed VLAN" if allowed else "service tag", tagged(own, Dot1AD(vlan=allowed or 21)), "never")
    yield kind("two tags", tagged(own, Dot1AD(vlan=21), Dot1Q(vlan=22)), "never")
    yield kind("two tags, the first allowed", tagged(own, Dot1Q(vlan=allowed or 21), Dot1Q(vlan=21)), "never")
    if allowed:
        yield kind("allowed tag", tagged(own, Dot1Q(vlan=allowed)))
        yield kind("allowed tag with priority", tagged(own, Dot1Q(vlan=allowed, prio=5)))
        yield kind("allowed tag, foreign address", tagged(other, Dot1Q(vlan=allowed)), "ip4")
        yield kind("allowed tag, foreign ARP", tagged(attacks_ip4.arp(FOREIGN4), Dot1Q(vlan=allowed)), "ip4")
        yield kind("allowed tag, RA", tagged(router, Dot1Q(vlan=allowed)), "dhcp")
        yield kind("allowed tag, LLDP", tagged(ethernet(*TYPES["LLDP"]), Dot1Q(vlan=allowed)), "type")


def kinds() -> Iterator[Kind]:
    """All others, for a port without VLANs."""
    yield from _others()
    yield from vlans()
