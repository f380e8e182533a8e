"""A guest's DHCP clients: DHCPv4 (RFC 2131, 2132) and DHCPv6 (RFC 8415), as far as getting one address takes."""

from __future__ import annotations

import ipaddress
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.frames import BROADCAST, IPV4, IPV6, Frame, checksum, mac_bytes
from tests.support.guest import Guest
from tests.support.netns import slowness

UDP = 17
COOKIE = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5
MASK, ROUTER, DNS, HOST, ASKED, KIND, SERVER, WANTED = 1, 3, 6, 12, 50, 53, 54, 55
SOLICIT, ADVERTISE, REQUEST6, REPLY = 1, 2, 3, 7
INFORMATION, ASKED6, DNS6, SEARCH6, ICMP6 = 11, 6, 23, 24, 58
CLIENT_ID, SERVER_ID, IA_NA, IA_ADDRESS, ELAPSED = 1, 2, 3, 5, 8
ALL_SERVERS, ALL_SERVERS_MAC = "ff02::1:2", "33:33:00:01:00:02"


class Lease(NamedTuple):
    """What the server gave, "" where it gave none."""

    address: str
    server: str
    mask: str = ""
    router: str = ""
    dns: str = ""
    host: str = ""


def lease(guest: Guest, seconds: float = 1.0) -> Lease | None:
    """Discover, offer, request, acknowledgement; None where nobody answers the discovery (tried twice) in ``seconds`` each."""
    for _attempt in range(2):
        offer = _ask(guest, DISCOVER, {}, OFFER, seconds)
        if offer is None:
            continue
        address, options = offer
        answer = _ask(guest, REQUEST, {ASKED: ipaddress.IPv4Address(address).packed, SERVER: options[SERVER]}, ACK, seconds)
        assert answer is not None and answer[0] == address, "an offer that is not kept"
        given = {name: _address(answer[1].get(number, b"")) for name, number in (("mask", MASK), ("router", ROUTER), ("dns", DNS))}
        return Lease(address, _address(answer[1][SERVER]), **given, host=answer[1].get(HOST, b"").decode())
    return None


def _ask(guest: Guest, kind: int, options: dict[int, bytes], wanted: int, seconds: float) -> tuple[str, dict[int, bytes]] | None:
    number = os.urandom(4)
    body = struct.pack("!BBBB4sHH16x", 1, 1, 6, 0, number, 0, 0x8000) + mac_bytes(guest.mac).ljust(16, b"\0") + bytes(192) + COOKIE
    for code, value in {KIND: bytes([kind]), **options, WANTED: bytes([MASK, ROUTER, DNS, HOST])}.items():
        body += bytes([code, len(value)]) + value
    start = len(guest.seen)
    guest.send(BROADCAST, IPV4, _udp4(body + b"\xff"))
    for frame in _frames(guest, start, seconds):
        payload = _udp_payload(frame, IPV4, 68)
        if payload[4:8] == number and payload[236:240] == COOKIE and payload[28:34] == mac_bytes(guest.mac):
            given = dict(_options(payload[240:]))
            if given.get(KIND) == bytes([wanted]):
                return str(ipaddress.IPv4Address(payload[16:20])), given
    return None


def _udp4(body: bytes) -> bytes:
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(body), 1, 0, 64, UDP, 0, bytes(4), b"\xff" * 4)
    return header[:10] + checksum(header) + header[12:] + struct.pack("!HHHH", 68, 67, 8 + len(body), 0) + body


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data and data[0] != 255:
        if data[0] == 0:
            data = data[1:]
            continue
        yield data[0], data[2 : 2 + data[1]]
        data = data[2 + data[1] :]


def _address(packed: bytes) -> str:
    return str(ipaddress.IPv4Address(packed[:4])) if packed else ""


def _frames(guest: Guest, start: int, seconds: float) -> Iterator[Frame]:
    """What the guest has seen since ``start``, and goes on to see."""
    limit = time.monotonic() + seconds * slowness()
    while time.monotonic() < limit:
        while start < len(guest.seen):
            yield guest.seen[start]
            start += 1
        time.sleep(0.005)


def _udp_payload(frame: Frame, kind: int, port: int) -> bytes:
    """The payload of a UDP packet to ``port``; b"" for whatever else it is."""
    header = (frame.payload[0] & 15) * 4 if kind == IPV4 else 40
    protocol = frame.payload[9] if kind == IPV4 else frame.payload[6]
    if frame.type != kind or protocol != UDP or int.from_bytes(frame.payload[header + 2 : header + 4], "big") != port:
        return b""
    return frame.payload[header + 8 :]


def lease6(guest: Guest, link_local: str, seconds: float = 1.0) -> str:
    """Solicit, advertise, request, reply: the address that a DHCPv6 server gives, "" where none does.

    The guest answers for ``link_local``: the server asks for its MAC.
    """
    for _attempt in range(3):
        identity = struct.pack("!HH", 3, 1) + mac_bytes(guest.mac)  # DUID-LL
        advertised = _ask6(guest, link_local, SOLICIT, {CLIENT_ID: identity, IA_NA: struct.pack("!III", 1, 0, 0)}, ADVERTISE, seconds)
        if advertised is None or not _given6(advertised):
            continue
        asked = {CLIENT_ID: identity, SERVER_ID: advertised[SERVER_ID], IA_NA: advertised[IA_NA]}
        answer = _ask6(guest, link_local, REQUEST6, asked, REPLY, seconds)
        return _given6(answer) if answer is not None else ""
    return ""


class Told6(NamedTuple):
    """Name servers and domains to search, by DHCPv6 (RFC 3646) and by a router advertisement (RFC 8106)."""

    resolvers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    advertised_resolvers: tuple[str, ...] = ()
    advertised_search: tuple[str, ...] = ()


def told6(guest: Guest, link_local: str, seconds: float = 2.0) -> Told6:
    """Ask for information alone (RFC 8415, 18.2.6), and solicit routers (RFC 4861, 4.1)."""
    identity = struct.pack("!HH", 3, 1) + mac_bytes(guest.mac)
    wanted = {CLIENT_ID: identity, ASKED6: struct.pack("!HH", DNS6, SEARCH6)}
    answer = _ask6(guest, link_local, INFORMATION, wanted, REPLY, seconds) or {}
    advertised = dict(_advertised(guest, link_local, seconds))
    rdnss, dnssl = (advertised.get(kind, b"")[6:] for kind in (25, 31))  # behind two reserved bytes and a lifetime
    found = (_addresses6(answer.get(DNS6, b"")), _domains(answer.get(SEARCH6, b"")), _addresses6(rdnss), _domains(dnssl))
    return Told6(*found)


def _addresses6(data: bytes) -> tuple[str, ...]:
    return tuple(str(ipaddress.IPv6Address(data[at : at + 16])) for at in range(0, len(data) - 15, 16))


def _domains(data: bytes) -> tuple[str, ...]:
    """Names of the DNS one after the other (RFC 1035, 3.1), with zeros behind."""
    found: list[str] = []
    labels: list[str] = []
    while data:
        length, data = data[0], data[1:]
        if length:
            labels.append(data[:length].decode())
        elif labels:
            found.append(".".join(labels))
            labels = []
        data = data[length:]
    return tuple(found)


def _advertised(guest: Guest, source: str, seconds: float) -> Iterator[tuple[int, bytes]]:
    """The options of the router advertisement that a solicitation brings."""
    body = bytes([133, 0, 0, 0]) + bytes(4)
    ends = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address("ff02::2").packed
    sum_ = checksum(ends + struct.pack("!II", len(body), ICMP6) + body)
    packet = struct.pack("!IHBB", 6 << 28, len(body), ICMP6, 255) + ends + body[:2] + sum_ + body[4:]
    start = len(guest.seen)
    guest.send("33:33:00:00:00:02", IPV6, packet)
    for frame in _frames(guest, start, seconds):
        if frame.type == IPV6 and frame.payload[6] == ICMP6 and frame.payload[40] == 134:
            data = frame.payload[56:]
            while len(data) >= 8 and data[1]:
                yield data[0], data[2 : 8 * data[1]]
                data = data[8 * data[1] :]
            return


def _ask6(guest: Guest, source: str, kind: int, options: dict[int, bytes], wanted: int, seconds: float) -> dict[int, bytes] | None:
    number = os.urandom(3)
    body = bytes([kind]) + number
    for code, value in {**options, ELAPSED: bytes(2)}.items():
        body += struct.pack("!HH", code, len(value)) + value
    ends = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(ALL_SERVERS).packed
    head = struct.pack("!HHH", 546, 547, 8 + len(body))
    sum_ = checksum(ends + struct.pack("!II", 8 + len(body), UDP) + head + b"\0\0" + body)
    packet = struct.pack("!IHBB", 6 << 28, 8 + len(body), UDP, 64) + ends + head + sum_ + body
    start = len(guest.seen)
    guest.send(ALL_SERVERS_MAC, IPV6, packet)
    for frame in _frames(guest, start, seconds):
        payload = _udp_payload(frame, IPV6, 546)
        if payload[:4] == bytes([wanted]) + number:
            return dict(_options6(payload[4:]))
    return None


def _options6(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        code, length = struct.unpack("!HH", data[:4])
        yield code, data[4 : 4 + length]
        data = data[4 + length :]


def _given6(options: dict[int, bytes]) -> str:
    """The address in the identity association."""
    inner = dict(_options6(options.get(IA_NA, b"")[12:]))
    return str(ipaddress.IPv6Address(inner[IA_ADDRESS][:16])) if IA_ADDRESS in inner else ""
