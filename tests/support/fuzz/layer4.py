"""What fuzz frames carry: UDP, DHCP, DHCPv6, TCP, ICMP, neighbour discovery (RFC 768, 2131, 8415, 9293, 4861, 3810)."""

from __future__ import annotations

import struct
from random import Random

from tests.support.fuzz import pools
from tests.support.fuzz.pools import MAC, below, mostly, one

PORTS = (67, 68, 546, 547, 1000, 53, 4789, 0, 0x4343, 0x6700)
LENGTHS = (0, 0, 4, 8, 16, 17, 24, 40, 64, 100, 200, 300, 600, 1400)
FILL = bytes(range(256)) * 260
COOKIE = bytes.fromhex("63825363350101ff")


def payload(rng: Random) -> bytes:
    """Bytes that mean nothing, rarely many."""
    size = one(rng, LENGTHS) if rng.random() < 0.98 else below(rng, 60000)
    return FILL[:size]


def udp(source: int, target: int, body: bytes) -> bytes:
    """A datagram without a checksum."""
    return struct.pack("!HHHH", source, target, (8 + len(body)) & 0xFFFF, 0) + body


def bootp(rng: Random, operation: int) -> bytes:
    """A DHCP message, mostly of the guest's own MAC."""
    chaddr = mostly(rng, MAC, pools.FOREIGN_MACS)
    kinds = b"\1\6" if rng.random() < 0.95 else bytes((below(rng, 8), below(rng, 17)))
    giaddr = mostly(rng, bytes(4), (b"\x0a\0\1\1",), 0.9)
    whole = bytes((operation,)) + kinds + bytes(21) + giaddr + chaddr + bytes(202) + COOKIE
    return whole.ljust(one(rng, (244, 300, 548, 576)), b"\0")


def dhcp(rng: Random) -> bytes:
    """DHCP over UDP: from clients, servers, relays, and by odd ports."""
    way = rng.random()
    if way < 0.45:
        return udp(mostly(rng, 68, PORTS), 67, bootp(rng, mostly(rng, 1, (2, 0, 3, 255))))
    if way < 0.8:
        return udp(mostly(rng, 67, PORTS, 0.7), mostly(rng, 68, PORTS, 0.7), bootp(rng, mostly(rng, 2, (1, 0))))
    return udp(one(rng, PORTS), one(rng, PORTS), bootp(rng, 1 + below(rng, 2)))


def dhcp6(rng: Random) -> bytes:
    """DHCPv6 over UDP."""
    body = bytes((below(rng, 22),)) + b"\1\2\3\0\1\0\x0a\0\3\0\1" + MAC
    way = rng.random()
    if way < 0.4:
        return udp(mostly(rng, 546, PORTS), 547, body)
    if way < 0.8:
        return udp(mostly(rng, 547, PORTS, 0.7), mostly(rng, 546, PORTS, 0.7), body)
    return udp(one(rng, PORTS), one(rng, PORTS), body)


def any_udp(rng: Random) -> bytes:
    """UDP that has nothing to do with either, mostly; several datagrams one behind the other, now and then."""
    if rng.random() < 0.15:  # a segment may begin anywhere in it
        unit = udp(67, 68, bytes(one(rng, (0, 8, 16))))
        return udp(1000, 2000, unit * (1 + below(rng, 12)))
    return udp(mostly(rng, 1000, PORTS), mostly(rng, 2000, PORTS), payload(rng))


def tcp(rng: Random) -> bytes:
    """A segment; rarely with options."""
    words = 5 if rng.random() < 0.8 else below(rng, 16)
    head = struct.pack("!HHIIBBHHH", one(rng, PORTS), one(rng, PORTS), 1, 1, words << 4, below(rng, 256), 1000, 0, 0)
    return head + bytes(max(0, words * 4 - 20)) + payload(rng)


def icmp(rng: Random) -> bytes:
    """An ICMPv4 message."""
    return bytes((one(rng, (0, 3, 5, 8, 9, 11)), 0, 0, 0)) + bytes(4) + payload(rng)


def igmp(rng: Random) -> bytes:
    """IGMP of all versions: queries, reports, a leave (RFC 3376, 4)."""
    return (
        bytes((one(rng, (0x11, 0x11, 0x12, 0x16, 0x17, 0x22)), below(rng, 100), 0, 0)) + one(rng, (bytes(4), b"\xe0\1\1\1")) + payload(rng)
    )


def option(rng: Random) -> bytes:
    """A neighbour discovery option: link-layer address, nonce, prefix, MTU, or one that is none."""
    kind = one(rng, (1, 1, 2, 2, 14, 3, 5, 25, 0, 200))
    size = mostly(rng, 4 if kind == 3 else 1, (0, 1, 2, 3, 31, 255), 0.9)
    value = mostly(rng, MAC, pools.FOREIGN_MACS, 0.7)
    return bytes((kind, size)) + (value + bytes(max(0, size * 8 - 8)) if size < 32 else value)


def discovery(rng: Random) -> bytes:
    """A message of neighbour discovery, or another one of ICMPv6."""
    kind = one(rng, (133, 134, 135, 136, 136, 137, 135, 136, 128, 143, 131, 130, 151, 138))
    body = bytes((kind, mostly(rng, 0, (1, 255), 0.95), 0, 0))
    if kind == 133:
        body += bytes(4)
    elif kind == 134:
        body += b"\x40\x80\x07\x08" + bytes(8)
    elif kind in (135, 136, 137):
        known = one(rng, (pools.OWN6, pools.IN_PREFIX6, *pools.LOCALS))
        body += b"\xe0\0\0\0" + mostly(rng, known, pools.FOREIGN6S, 0.7)
        body += pools.PEER6 if kind == 137 else b""
    else:
        return body + payload(rng)
    for _ in range(one(rng, (0, 1, 1, 1, 2, 3))):
        body += option(rng)
    if rng.random() < 0.06:  # more than a page: the kernel may leave headers outside the part that it reads directly
        body += (b"\xfd\xff" + bytes(2038)) * 2
    return body
