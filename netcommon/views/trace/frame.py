"""One Ethernet frame: made from a few words, taken apart as the kernel does before nftables is asked, and told in words."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from struct import Struct

from netcommon.views.trace.packet import ARP, BROADCAST, IPV4, IPV6, Packet
from runtime.errors import NicInvalid
from runtime.typed import NamedTuple

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
PROTOCOLS = {"tcp": TCP, "udp": UDP, "icmp": ICMP, "icmpv6": ICMPV6}
NAMES = {IPV4: "IPv4", IPV6: "IPv6", ARP: "ARP", 0x8035: "RARP", 0x88CC: "LLDP", 0x888E: "802.1X", 0x8863: "PPPoE"}
PORTS, IP4, IP6, ARP_BODY = Struct("!HH"), Struct("!BBHHHBBH4s4s"), Struct("!IHBB16s16s"), Struct("!HHBBH6s4s6s4s")
SOLICITED = ipaddress.IPv6Address("ff02::1:ff00:0").packed[:13]  #: begins the group of who may have an address (RFC 4291, 2.7.1)
SMALLEST = 60  #: bytes of a frame without its checksum (IEEE 802.3)
ECHO, ECHO6, SOLICITATION = 8, 128, 135
ASK = 1  #: ARP's operation
PLAIN_PORT = 9  #: discard, RFC 863: what has nothing to do with any rule

#: Ways of a frame: the guest sends it, or it is sent to the guest from outside the node.
FROM_GUEST, TO_GUEST = "from", "to"


class Wanted(NamedTuple):
    """What a frame shall be: addresses as text, "" or -1 for what nobody said."""

    source_mac: str = ""
    target_mac: str = ""
    source: str = ""  #: IP address
    target: str = ""
    ethertype: int = -1
    vlan: int = -1
    arp: bool = False
    protocol: str = "udp"  #: one of PROTOCOLS
    source_port: int = PLAIN_PORT
    target_port: int = PLAIN_PORT
    kind: int = -1  #: ICMP's type


def build(wanted: Wanted) -> bytes:
    """The frame. Raises NicInvalid for what fits no frame: addresses of two families or of another than its type, ports beyond 65535."""
    mac = wanted.target_mac or BROADCAST
    if _solicits(wanted) and not wanted.target_mac:
        mac = "33:33:ff:" + _address("--dst", wanted.target).packed[-3:].hex(":")
    head = _mac("--dst-mac", mac) + _mac("--src-mac", wanted.source_mac or BROADCAST)
    if wanted.vlan >= 0:
        head += b"\x81\x00" + wanted.vlan.to_bytes(2, "big")
    families = {name: _address(name, text) for name, text in (("--src", wanted.source), ("--dst", wanted.target)) if text}
    if len({each.version for each in families.values()}) > 1:
        raise NicInvalid("--dst", wanted.target, f"an address of the family of --src, {wanted.source}")
    six = wanted.ethertype == IPV6 or any(each.version == 6 for each in families.values())
    if wanted.arp:
        body, ethertype = _arp(wanted, six), ARP
    elif wanted.ethertype not in (-1, IPV4, IPV6):
        body, ethertype = b"", wanted.ethertype
    else:
        for name, each in families.items():
            if wanted.ethertype >= 0 and (each.version == 6) != (wanted.ethertype == IPV6):
                raise NicInvalid(name, str(each), f"an address of the family of --ethertype {wanted.ethertype:#06x}")
        body, ethertype = (_ip6(wanted), IPV6) if six else (_ip4(wanted), IPV4)
    return (head + ethertype.to_bytes(2, "big") + body).ljust(SMALLEST, b"\0")


def _address(name: str, text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise NicInvalid(name, text, "an IP address") from None


def _mac(name: str, text: str) -> bytes:
    parts = text.split(":")
    if len(parts) != 6 or any(len(part) != 2 or not all(each in "0123456789abcdefABCDEF" for each in part) for part in parts):
        raise NicInvalid(name, text, "a MAC address, as aa:00:00:00:00:01")
    return bytes.fromhex("".join(parts))


def _arp(wanted: Wanted, six: bool) -> bytes:
    if six:
        raise NicInvalid("--arp", wanted.source or wanted.target, "IPv4 addresses")
    sender = ipaddress.IPv4Address(wanted.source or "0.0.0.0").packed  # noqa: S104 - a probe
    asked = ipaddress.IPv4Address(wanted.target or "0.0.0.0").packed  # noqa: S104
    return ARP_BODY.pack(1, IPV4, 6, 4, ASK, _mac("--src-mac", wanted.source_mac or BROADCAST), sender, bytes(6), asked)


def _ip4(wanted: Wanted) -> bytes:
    body, number = _upper(wanted, 4)
    source = ipaddress.IPv4Address(wanted.source or "0.0.0.0").packed  # noqa: S104 - it has none yet
    target = ipaddress.IPv4Address(wanted.target or "255.255.255.255").packed
    head = IP4.pack(0x45, 0, IP4.size + len(body), 1, 0, 64, number, 0, source, target)
    return head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + body


def checksum(data: bytes) -> int:
    """Compute the Internet checksum of an even number of bytes (RFC 1071); of a header with the right one: 0."""
    total = sum(int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _ip6(wanted: Wanted) -> bytes:
    body, number = _upper(wanted, 6)
    source, target = ipaddress.IPv6Address(wanted.source or "::").packed, ipaddress.IPv6Address(wanted.target or "ff02::1").packed
    if _solicits(wanted):
        target = SOLICITED + target[-3:]
    return IP6.pack(6 << 28, len(body), number, 255, source, target) + body


def _solicits(wanted: Wanted) -> bool:
    """It asks who has the address that it goes to: all do not hear it, only those that may have it (RFC 4861, 4.3)."""
    return wanted.kind == SOLICITATION and wanted.protocol in ("icmp", "icmpv6") and ":" in wanted.target


def _upper(wanted: Wanted, version: int) -> tuple[bytes, int]:
    """What is in the packet, and its protocol's number."""
    number = PROTOCOLS[wanted.protocol]
    if number in (ICMP, ICMPV6):
        number = ICMP if version == 4 else ICMPV6
        kind = wanted.kind if wanted.kind >= 0 else ECHO if version == 4 else ECHO6
        body = bytes((kind, 0, 0, 0, 0, 0, 0, 0))
        if version == 6 and kind in (SOLICITATION, SOLICITATION + 1):
            body += ipaddress.IPv6Address(wanted.target or "::").packed
        return body, number
    for name, port in (("--sport", wanted.source_port), ("--dport", wanted.target_port)):
        if not 0 <= port <= 0xFFFF:
            raise NicInvalid(name, str(port), "a port, 0 to 65535")
    ports = PORTS.pack(wanted.source_port, wanted.target_port)
    return (ports + bytes((0, 8, 0, 0)) if number == UDP else ports + bytes(8) + b"\x50\x02" + bytes(6)), number


def told(packet: Packet) -> str:
    """The frame in words: "ARP from aa:00:00:00:00:01 to ff:ff:ff:ff:ff:ff, 10.0.0.1 asks for 10.0.0.9"."""
    return ", ".join(_told(packet))


def _told(packet: Packet) -> Iterator[str]:
    kind = NAMES.get(packet.protocol, f"EtherType {packet.protocol:#06x}" if packet.protocol >= 0x600 else "802.3 with a length")
    vlan = f", tagged VLAN {packet.vid}" if packet.tag else ""
    yield f"{kind} from {packet.source_mac} to {packet.target_mac}{vlan}"
    if packet.protocol == ARP and packet.source and packet.target:
        words = "asks for" if packet.network[6:8] == b"\0\1" else "tells"
        yield f"{packet.source} {words} {packet.target}"
    elif packet.source and packet.target:
        names = {number: name for name, number in PROTOCOLS.items()}
        upper = packet.upper
        inside = "" if upper is None else names.get(upper, f"protocol {upper}")
        if upper in (TCP, UDP) and packet.transport is not None and len(packet.transport) >= PORTS.size:
            source, target = PORTS.unpack_from(packet.transport)
            inside += f" port {source} to {target}"
        elif upper in (ICMP, ICMPV6) and packet.transport:
            inside += f" type {packet.transport[0]}"
        yield f"{packet.source} to {packet.target}" + (f", {inside}" if inside else "")
