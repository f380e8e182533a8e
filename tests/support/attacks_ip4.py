"""Attack frames: IPv4, ARP and DHCP (RFC 791, 826, 2131, 5227)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.igmp import IGMP
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from tests.support.attacks_base import ALL4, FOREIGN4, FOREIGN_MAC, IN_PREFIX4, MAC, OWN4, Kind, To, kind

Build = Callable[[To], Any]
MORE = "MF"
WHO_HAS, IS_AT = 1, 2
REQUEST, REPLY = 1, 2  #: of BOOTP


def ip4(source: str, payload: Any, mac: str = MAC, **fields: Any) -> Build:
    """An IPv4 packet from ``source``."""
    return lambda to: Ether(src=mac, dst=to.mac, type=0x0800) / IP(src=source, **{"dst": to.ip4, "id": to.number, **fields}) / payload


def arp(sender: str, mac: str = MAC, operation: int = WHO_HAS, source: str = MAC, target: str = "", **fields: Any) -> Build:
    """An ARP packet that says that ``sender`` is at ``mac``; ``target`` "": whoever it goes to is asked."""
    made = {"op": operation, "hwsrc": mac, "psrc": sender, "hwdst": "00:00:00:00:00:00", **fields}
    return lambda to: Ether(src=source, dst=to.mac) / ARP(pdst=target or to.asked, **made)


def bootp(operation: int, hardware: str = MAC, message: str = "discover") -> Any:
    """A DHCP message."""
    return BOOTP(op=operation, chaddr=bytes.fromhex(hardware.replace(":", "")), xid=7) / DHCP(options=[("message-type", message), "end"])


def piece(source: str, whole: Any, start: int, end: int | None = None, **fields: Any) -> Build:
    """The bytes from ``start`` to ``end`` of what follows the IPv4 header of ``whole``, as a fragment."""

    def build(to: To) -> Any:
        body = bytes(IP(src=source, dst=fields.get("dst", to.ip4)) / whole)[20:]
        assert len(body) > start
        made = IP(src=source, **{"dst": to.ip4, "id": to.number, **fields}, proto=17, frag=start // 8, flags=MORE if end else 0)
        return Ether(src=MAC, dst=to.mac, type=0x0800) / made / Raw(body[start:end])

    return build


def plain() -> Any:
    """What has nothing to do with any rule."""
    return UDP(sport=1000, dport=2000) / Raw(b"netcommon" * 4)


def _ip4() -> Iterator[Kind]:
    yield kind("IPv4, own address", ip4(OWN4, plain()))
    yield kind("IPv4, own address, TCP", ip4(OWN4, TCP(sport=1000, dport=80)))
    yield kind("IPv4, own address, ICMP", ip4(OWN4, ICMP()))
    yield kind("IPv4, own address, options", ip4(OWN4, plain(), options=[IPOption_Router_Alert()]))
    yield kind("IPv4, address of the prefix", ip4(IN_PREFIX4, plain()))
    yield kind("IPv4, no address", ip4("0.0.0.0", plain()))
    yield kind("IPv4, foreign address", ip4(FOREIGN4, plain()), "ip4")
    yield kind("IPv4, foreign address, options", ip4(FOREIGN4, plain(), options=[IPOption_Router_Alert()]), "ip4")
    yield kind("IPv4, beside the prefix", ip4("10.1.0.16", plain()), "ip4")
    yield kind("IPv4, loopback address", ip4("127.0.0.1", plain()), "ip4")
    yield kind("IPv4, broadcast address", ip4(ALL4, plain()), "ip4")
    yield kind("IPv4, group address", ip4("224.0.0.1", plain()), "ip4")
    yield kind("IPv4, foreign MAC", ip4(OWN4, plain(), FOREIGN_MAC), "mac")
    yield kind("IPv4, MAC of zeros", ip4(OWN4, plain(), "00:00:00:00:00:00"), "mac")
    yield kind("IPv4, foreign MAC and address", ip4(FOREIGN4, plain(), FOREIGN_MAC), "mac", "ip4")
    yield kind("IPv4, group MAC as source", ip4(OWN4, plain(), "03:00:00:00:00:01"), "mac")
    yield kind("IPv4, first fragment", piece(OWN4, plain(), 0, 16))
    yield kind("IPv4, later fragment", piece(OWN4, plain(), 16))
    yield kind("IPv4, foreign address, first fragment", piece(FOREIGN4, plain(), 0, 16), "ip4")
    yield kind("IPv4, foreign address, later fragment", piece(FOREIGN4, plain(), 16), "ip4")
    yield kind("IGMP report", ip4(OWN4, Raw(b"\x16\0\x08\xfd\xe0\1\1\1"), proto=2, dst="224.1.1.1", options=[IPOption_Router_Alert()]))
    for name, group in (("IGMP query", "0.0.0.0"), ("IGMP query of a group", "224.1.1.1")):
        query = IGMP(type=0x11, mrcode=100, gaddr=group)
        to_all = "224.0.0.1" if group == "0.0.0.0" else group
        yield kind(name, ip4(OWN4, query, proto=2, dst=to_all, ttl=1, options=[IPOption_Router_Alert()]), "never")
    yield kind("IPv4, cut off", lambda to: Raw(bytes(ip4(OWN4, plain())(to))[:26]), "never")


def _arp() -> Iterator[Kind]:
    yield kind("ARP request, own address", arp(OWN4))
    yield kind("ARP request, address of the prefix", arp(IN_PREFIX4))
    yield kind("ARP probe", arp("0.0.0.0", target=OWN4))
    yield kind("ARP probe for a foreign address", arp("0.0.0.0", target=FOREIGN4), "ip4")
    yield kind("ARP reply, own address", arp(OWN4, operation=IS_AT))
    yield kind("gratuitous ARP, own address", arp(OWN4, target=OWN4))
    yield kind("gratuitous ARP, foreign address", arp(FOREIGN4, target=FOREIGN4), "ip4")
    yield kind("ARP request, foreign address", arp(FOREIGN4), "ip4")
    yield kind("ARP reply, foreign address", arp(FOREIGN4, operation=IS_AT), "ip4")
    yield kind("ARP request, foreign sender MAC", arp(OWN4, FOREIGN_MAC), "mac")
    yield kind("ARP reply, foreign sender MAC and address", arp(FOREIGN4, FOREIGN_MAC, IS_AT), "mac", "ip4")
    yield kind("ARP request, foreign source MAC", arp(OWN4, source=FOREIGN_MAC), "mac")
    yield kind("ARP with addresses of other lengths", arp(FOREIGN4, operation=IS_AT, hwlen=8, plen=4), "mac", "ip4")
    yield kind("ARP of another protocol", arp(FOREIGN4, operation=IS_AT, ptype=0x809B), "mac", "ip4")
    begun = b"\0\1\x08\0\6\4"  # for Ethernet and IPv4
    yield kind("ARP, cut off", lambda to: Ether(src=MAC, dst=to.mac, type=0x0806) / Raw(begun + to.number.to_bytes(2, "big")), "mac", "ip4")


def _dhcp() -> Iterator[Kind]:
    ask, answer = UDP(sport=68, dport=67), UDP(sport=67, dport=68)
    discover, foreign, offer = bootp(REQUEST), bootp(REQUEST, FOREIGN_MAC), bootp(REPLY, FOREIGN_MAC, "offer")
    yield kind("DHCP client", ip4("0.0.0.0", ask / discover))
    yield kind("DHCP client that renews", ip4(OWN4, ask / bootp(REQUEST, message="request")))
    yield kind("DHCP client, foreign chaddr", ip4("0.0.0.0", ask / foreign), "dhcp")
    yield kind("DHCP client, foreign chaddr, IPv4 options", ip4("0.0.0.0", ask / foreign, options=[IPOption_Router_Alert()]), "dhcp")
    yield kind("DHCP client, foreign chaddr, other source port", ip4("0.0.0.0", UDP(sport=1000, dport=67) / foreign), "dhcp")
    yield kind("DHCP client for a relay", ip4(OWN4, UDP(sport=67, dport=67) / foreign), "dhcp")
    yield kind("DHCP client, address of another kind", ip4("0.0.0.0", ask / BOOTP(op=REQUEST, htype=6, chaddr=b"\xaa\0\0\0\0\1")), "dhcp")
    relayed = BOOTP(op=REQUEST, giaddr="10.0.1.1", hops=1, chaddr=bytes.fromhex(MAC.replace(":", "")), xid=7)
    relayed /= DHCP(options=[("message-type", "discover"), "end"])
    yield kind("DHCP client's message through a relay agent", ip4(OWN4, UDP(sport=67, dport=67) / relayed), "dhcp")
    yield kind("DHCP client's message through a relay agent, from a client's port", ip4("0.0.0.0", ask / relayed), "dhcp")
    yield kind("DHCP client, chaddr in a later fragment", piece("0.0.0.0", ask / foreign, 0, 16), "dhcp")
    yield kind("DHCP server", ip4(OWN4, answer / offer), "dhcp")
    yield kind("DHCP server, IPv4 options", ip4(OWN4, answer / offer, options=[IPOption_Router_Alert()]), "dhcp")
    yield kind("DHCP server without an address", ip4("0.0.0.0", answer / offer), "dhcp")
    yield kind("DHCP server, foreign address", ip4(FOREIGN4, answer / offer), "dhcp", "ip4")
    yield kind("DHCP server, other source port", ip4(OWN4, UDP(sport=1000, dport=68) / offer), "dhcp")
    yield kind("DHCP server to a relay", ip4(OWN4, UDP(sport=67, dport=67) / offer), "dhcp")
    yield kind("DHCP server, first fragment", piece(OWN4, answer / offer, 0, 64), "dhcp")
    yield kind("DHCP server, smallest first fragment", piece(OWN4, answer / offer, 0, 8), "dhcp")
    yield kind("DHCP server, whole in a first fragment", piece(OWN4, answer / offer, 0, 1 << 16), "dhcp")
    yield kind("DHCP server, first fragment to all hosts", piece(OWN4, answer / offer, 0, 64, dst="224.0.0.1"), "dhcp")
    other = UDP(sport=1000, dport=68) / offer
    yield kind("DHCP server, other source port, first fragment", piece(OWN4, other, 0, 64), "dhcp")
    yield kind("DHCP server, later fragment", piece(OWN4, answer / offer, 64))


def kinds() -> Iterator[Kind]:
    """All of IPv4's and ARP's."""
    yield from _ip4()
    yield from _arp()
    yield from _dhcp()
