"""Frames that a well-behaved guest sends: each must arrive, whole or in the segments that it has asked for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.support.frames import checksum
from tests.support.fuzz import pools
from tests.support.fuzz.facts import Facts, hardware
from tests.support.fuzz.offload import NEEDS_CSUM, TCP4, TCP6, UDP_EACH, UDP_WHOLE
from tests.support.fuzz.oracle import PLAIN, Header
from tests.support.fuzz.pools import EUI64, MAC, OWN4, OWN6, below, one

MARK = 16  #: bytes of a mark
UDP, TCP, ICMP, ICMP6 = 17, 6, 1, 58
ELSEWHERE = hardware("aa:00:00:00:00:42")  #: nobody's, so everybody gets it
ALL, ALL6 = b"\xff" * 6, hardware("33:33:00:00:00:01")
NODES6, ROUTERS6, RELAYS6, REPORTS6 = (bytes.fromhex("ff02" + "0" * (28 - len(end)) + end) for end in ("1", "2", "10002", "16"))


class Honest(NamedTuple):
    """A frame, and the marks that are to arrive. ``uplink``: "" everywhere, else the one that it is routed to."""

    name: str
    sent: tuple[Header, bytes]
    marks: tuple[bytes, ...]
    uplink: str = ""

    def reaches(self, receiver: str) -> bool:
        """Tell whether it should arrive there."""
        return not self.uplink or receiver.startswith(self.uplink)


class Grammar:
    """Makes honest frames of a guest that keeps to its facts."""

    def __init__(self, mode: str, facts: Facts, uso: bool = True, fragments: bool = True) -> None:
        """``uso``: the kernel has it (Linux 6.2). ``fragments``: one arrives without the others."""
        self.mode, self.facts, self.count, self.uso = mode, facts, 0, uso
        self.makers: list[Callable[[Random], Honest]] = [self.datagram, self.segment, self.large, *([self.fragments] if fragments else [])]
        if facts.knows6(OWN6):
            self.makers += [self.datagram6, self.large6, *([self.fragment6] if fragments else [])]
        if mode != "routed":
            self.makers += [self.dhcp, self.dhcp6, self.arp, self.solicitation, self.advertisement, self.report, self.report6]
            self.makers += [self.renewal, self.router_solicitation, self.detection]

    def frame(self, rng: Random) -> Honest:
        """One of them."""
        return one(rng, tuple(self.makers))(rng)

    def mark(self) -> bytes:
        """Bytes that are in no other frame."""
        self.count += 1
        return b"honest %08d," % self.count

    def ip4(
        self, rng: Random, body: bytes, protocol: int, field: int = 0, options: bytes = b"", source: bytes = b"", one_peer: bool = False
    ) -> tuple[bytes, str]:
        """A packet from the guest's address to somebody, in its frame. Flows stop fragments to groups, as documented."""
        address, name, mac = b"\xff" * 4, "", ALL
        if self.mode == "routed":
            (address, name), mac = one(rng, ((pools.OUT4, "up0"), (pools.BESIDE4, "up1"))), self.peer()
        elif field & 0x3FFF or one_peer:
            address, mac = pools.PEER4, ELSEWHERE
        size = 20 + len(options) + len(body)
        head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, size, below(rng, 65536), field, 64, protocol, 0)
        head += (source or self.source4()) + address + options
        return mac + MAC + b"\x08\0" + head[:10] + checksum(head) + head[12:] + body, name

    def source4(self) -> bytes:
        """An address of the guest."""
        return OWN4

    def peer(self) -> bytes:
        """The node, which routes."""
        return pools.WORLDS["routed"].macs[0]

    def ip6(
        self, rng: Random, body: bytes, protocol: int, source: bytes = OWN6, hops: int = 64, target: bytes = NODES6
    ) -> tuple[bytes, str]:
        """The same of IPv6."""
        name, mac = "", ALL6
        if protocol == 44:
            target, mac = pools.PEER6, ELSEWHERE
        if self.mode == "routed":
            (target, name), mac = one(rng, ((pools.OUT6, "up0"), (pools.BESIDE6, "up1"))), self.peer()
        head = struct.pack("!IHBB", 6 << 28 | below(rng, 1 << 20), len(body), protocol, hops)
        return mac + MAC + b"\x86\xdd" + head + source + target + body, name

    def icmp6(self, kind: int, body: bytes, source: bytes, target: bytes) -> bytes:
        """A message with its checksum."""
        head = bytes((kind, 0))
        return head + checksum(source + target + struct.pack("!II", len(body) + 4, ICMP6) + head + b"\0\0" + body) + body

    def udp(self, source: int, target: int, body: bytes) -> bytes:
        """A datagram."""
        return struct.pack("!HHHH", source, target, 8 + len(body), 0) + body

    def datagram(self, rng: Random) -> Honest:
        """UDP, small or jumbo, with IP options now and then."""
        mark = self.mark()
        body = mark + bytes(one(rng, (0, 1, 100, 1400, 8900)))
        options = b"\x94\4\0\0" if rng.random() < 0.1 else b""
        frame, name = self.ip4(rng, self.udp(one(rng, (1000, 53, 69, 546, 547)), 2000, body), UDP, 0x4000, options)
        if rng.random() < 0.5:
            header = Header(NEEDS_CSUM, 0, 42 + len(options), 0, 34 + len(options), 6)
            return Honest("UDP with checksum offload", (header, frame), (mark,), name)
        return Honest("UDP", (PLAIN, frame), (mark,), name)

    def segment(self, rng: Random) -> Honest:
        """TCP without offloads, or ICMP."""
        mark = self.mark()
        if rng.random() < 0.3:
            body = bytes((8, 0)) + checksum(b"\x08\0\0\0\0\1\0\1" + mark) + b"\0\1\0\1" + mark
            frame, name = self.ip4(rng, body, ICMP)
            return Honest("ping", (PLAIN, frame), (mark,), name)
        frame, name = self.ip4(rng, struct.pack("!HHIIBBHHH", 4000, 80, 1, 1, 0x50, 0x18, 1000, 0, 0) + mark, TCP, 0x4000)
        return Honest("TCP", (Header(NEEDS_CSUM, 0, 54, 0, 34, 16), frame), (mark,), name)

    def fragments(self, rng: Random) -> Honest:
        """One fragment of an IPv4 datagram: the first, one in the middle, the last."""
        mark = self.mark()
        way = below(rng, 3)
        body = self.udp(1000, 2000, mark + bytes(64)) if way == 0 else mark + bytes(72)
        frame, name = self.ip4(rng, body[: len(body) // 8 * 8], UDP, (0x2000, 0x2000 | 185, 370)[way])
        return Honest(f"IPv4 fragment {way}", (PLAIN, frame), (mark,), name)

    def datagram6(self, rng: Random) -> Honest:
        """UDP or a ping over IPv6, from either address."""
        mark = self.mark()
        source = OWN6 if self.mode == "routed" or rng.random() < 0.6 else EUI64
        if rng.random() < 0.3:
            frame, name = self.ip6(rng, self.icmp6(128, b"\0\1\0\1" + mark, source, NODES6), ICMP6, source)
            return Honest("ping6", (PLAIN, frame), (mark,), name)
        frame, name = self.ip6(rng, self.udp(1000, 2000, mark + bytes(one(rng, (0, 1, 1400, 8900)))), UDP, source)
        header = Header(NEEDS_CSUM, 0, 62, 0, 54, 6) if rng.random() < 0.5 else PLAIN
        return Honest("UDP over IPv6", (header, frame), (mark,), name)

    def fragment6(self, rng: Random) -> Honest:
        """One fragment of an IPv6 datagram, or of a large ping."""
        mark = self.mark()
        way = below(rng, 4)
        protocol = ICMP6 if way == 3 else UDP
        ping = b"\x80\0\0\0\0\1\0\1" + mark + bytes(64)
        body = ping if way == 3 else self.udp(1000, 2000, mark + bytes(64)) if way == 0 else mark + bytes(72)
        field = (1, 185 << 3 | 1, 370 << 3, 1)[way]
        frame, name = self.ip6(rng, struct.pack("!BBHI", protocol, 0, field, below(rng, 1 << 32)) + body[: len(body) // 8 * 8], 44)
        return Honest(f"IPv6 fragment {way}", (PLAIN, frame), (mark,), name)

    def large(self, rng: Random) -> Honest:
        """Segmentation of TCP and UDP over IPv4, of whole packets."""
        size, count = one(rng, (16, 32, 536, 1448)), 2 + below(rng, 20)
        marks = tuple(self.mark() for _ in range(count))
        body = b"".join(mark.ljust(size, b".") for mark in marks)
        ecn = 0x80 if rng.random() < 0.2 else 0
        way = below(rng, 3)
        if way == 0 or (way == 1 and not self.uso):
            frame, name = self.ip4(rng, struct.pack("!HHIIBBHHH", 4000, 80, 1, 1, 0x50, 0x10 | ecn, 1000, 0, 0) + body, TCP, 0x4000)
            return Honest("TSO", (Header(NEEDS_CSUM, TCP4 | ecn, 54, size, 34, 16), frame), marks, name)
        if way == 1:
            frame, name = self.ip4(rng, self.udp(1000, 2000, body), UDP, 0x4000)
            return Honest("USO", (Header(NEEDS_CSUM, UDP_EACH, 42, size, 34, 6), frame), marks, name)
        frame, name = self.ip4(rng, self.udp(1000, 2000, body[8:]), UDP, one_peer=True)  # fragments: their bounds lie between marks
        return Honest("UFO", (Header(NEEDS_CSUM, UDP_WHOLE, 42, size, 34, 6), frame), marks[1:], name)

    def large6(self, rng: Random) -> Honest:
        """The same over IPv6."""
        size, count = one(rng, (16, 536, 1424)), 2 + below(rng, 20)
        marks = tuple(self.mark() for _ in range(count))
        body = b"".join(mark.ljust(size, b".") for mark in marks)
        if rng.random() < 0.5 or not self.uso:
            frame, name = self.ip6(rng, struct.pack("!HHIIBBHHH", 4000, 80, 1, 1, 0x50, 0x10, 1000, 0, 0) + body, TCP)
            return Honest("TSO over IPv6", (Header(NEEDS_CSUM, TCP6, 74, size, 54, 16), frame), marks, name)
        frame, name = self.ip6(rng, self.udp(1000, 2000, body), UDP)
        return Honest("USO over IPv6", (Header(NEEDS_CSUM, UDP_EACH, 62, size, 54, 6), frame), marks, name)

    def message(self, rng: Random) -> bytes:
        """A DHCP client's message, 300 to 590 bytes."""
        size = one(rng, (300, 308, 342, 400, 548, 576, 590))
        return bytes((1, 1, 6, 0)) + rng.randbytes(4) + bytes(20) + MAC + bytes(202) + bytes.fromhex("63825363350101") + bytes(size - 247)

    def dhcp(self, rng: Random) -> Honest:
        """A client that has no address."""
        mark = self.mark()
        body = self.message(rng)
        body = body[: -len(mark) - 1] + mark + b"\xff"
        frame, _ = self.ip4(rng, self.udp(68, 67, body), UDP, source=bytes(4))
        header = Header(NEEDS_CSUM, 0, 42, 0, 34, 6) if rng.random() < 0.3 else PLAIN
        return Honest("DHCP client", (header, frame), (mark,))

    def renewal(self, rng: Random) -> Honest:
        """A client that has one."""
        mark = self.mark()
        frame, _ = self.ip4(rng, self.udp(68, 67, self.message(rng)[: -len(mark)] + mark), UDP)
        return Honest("DHCP renewal", (PLAIN, frame), (mark,))

    def dhcp6(self, rng: Random) -> Honest:
        """Solicit, request and the others."""
        mark = self.mark()
        body = bytes((one(rng, (1, 3, 4, 5, 6, 8, 9, 11)), 1, 2, 3)) + mark
        frame, _ = self.ip6(rng, self.udp(546, 547, body), UDP, EUI64, 1, RELAYS6)
        return Honest("DHCPv6 client", (PLAIN, frame), (mark,))

    def arp(self, rng: Random) -> Honest:
        """Request, reply, probe and announcement."""
        mark = self.mark()
        sender = one(rng, (OWN4, OWN4, bytes(4), pools.IN_PREFIX4))
        target = pools.PEER4 if any(sender) else OWN4
        head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1 if sender == bytes(4) else 1 + below(rng, 2))
        return Honest("ARP", (PLAIN, ALL + MAC + b"\x08\x06" + head + MAC + sender + bytes(6) + target + mark), (mark,))

    def solicitation(self, rng: Random) -> Honest:
        """For another's address, of one's own MAC."""
        body = bytes(4) + pools.PEER6 + b"\1\1" + MAC
        return self.neighbour(rng, "NS", 135, body, one(rng, (OWN6, EUI64)))

    def detection(self, rng: Random) -> Honest:
        """Duplicate address detection, with a nonce or without."""
        body = bytes(4) + one(rng, (OWN6, EUI64)) + (b"\x0e\1" + rng.randbytes(6) if rng.random() < 0.5 else b"")
        return self.neighbour(rng, "NS of duplicate address detection", 135, body, bytes(16))

    def advertisement(self, rng: Random) -> Honest:
        """Of an address of one's own."""
        target = one(rng, (OWN6, EUI64))
        body = b"\x60\0\0\0" + target + (b"\2\1" + MAC if rng.random() < 0.8 else b"")
        return self.neighbour(rng, "NA", 136, body, target)

    def router_solicitation(self, rng: Random) -> Honest:
        """With one's MAC, or without an address."""
        source = one(rng, (EUI64, bytes(16)))
        return self.neighbour(rng, "RS", 133, bytes(4) + (b"\1\1" + MAC if source == EUI64 else b""), source, ROUTERS6)

    def neighbour(self, rng: Random, name: str, kind: int, body: bytes, source: bytes, target: bytes = NODES6) -> Honest:
        """A message of neighbour discovery: its mark is the packet, whose flow label is its own."""
        frame, _ = self.ip6(rng, self.icmp6(kind, body, source, target), ICMP6, source, 255, target)
        return Honest(name, (PLAIN, frame), (frame[12:],))

    def report(self, rng: Random) -> Honest:
        """IGMPv2 and v3, with a router alert."""
        mark = self.mark()
        kind = one(rng, (b"\x16\0\x09\xfc\xe0\1\1\1", b"\x22\0\xf9\xfb\0\0\0\1\4\0\0\0\xe0\1\1\1"))
        frame, _ = self.ip4(rng, kind, 2, 0, b"\x94\4\0\0")
        return Honest("IGMP report", (PLAIN, frame + mark), (mark,))

    def report6(self, rng: Random) -> Honest:
        """MLDv2 behind a hop-by-hop header, also from no address (RFC 3590)."""
        source = one(rng, (EUI64, bytes(16)))
        message = self.icmp6(143, bytes.fromhex("0000000104000000") + NODES6[:15] + b"\x99", source, REPORTS6)
        frame, _ = self.ip6(rng, b"\x3a\0\5\2\0\0\1\0" + message, 0, source, 1, REPORTS6)
        return Honest("MLD report", (PLAIN, frame), (frame[12:],))
