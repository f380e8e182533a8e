"""Draw the frames of a node: kinds, addresses, and what is odd about one. Each carries a token, by which it is known where it arrives."""

from __future__ import annotations

import ipaddress
import random
import struct
from typing import NamedTuple

from tests.support.datapath import places as at
from tests.support.datapath.places import Place
from tests.support.frames import ARP, IPV4, IPV6, checksum, mac_bytes, solicited_node

FROM_GUEST, TO_GUEST = "from", "to"
TOKEN = b"nC"  #: begins every token; a number of six bytes follows
UDP, ICMP, ICMP6 = 17, 1, 58
EXPERIMENT = 0x88B5
GROUP = "01:80:c2:00:00:{:02x}"
ERRORS4, ERRORS6 = frozenset({0, 3, 5, 11, 12}), frozenset({*range(128), 129, 137})  #: what quotes or returns a frame is not the frame


class Shot(NamedTuple):
    """One frame, and by which way it goes."""

    way: str
    words: str
    data: bytes
    token: bytes
    asks: str = ""  #: the address for which an answer is asked (ARP, neighbour solicitation)
    inner: bool = True  #: it has an IP packet, of which sockets on the node tell whether they got it


def draw(dice: random.Random, place: Place, number: int) -> Shot:
    """One of any kind."""
    token = TOKEN + number.to_bytes(6, "big")
    way = TO_GUEST if dice.random() < 0.35 else FROM_GUEST
    kinds = (_packet4, _packet4, _packet4, _packet6, _packet6, _arp, _solicitation, _other, _many4, _many6)
    return dice.choice(kinds)(dice, place, way, token)


def _ends(dice: random.Random, place: Place, way: str, far: bool = False) -> tuple[str, str]:
    """MACs of source and target: mostly as an honest host sends it; to what is ``far`` by the node."""
    if way == TO_GUEST:
        source = dice.choices((at.OUT_MAC, at.BRIDGE_MAC, at.GUEST_MAC), (18, 1, 1))[0]
        honest = "guest" if place.mode == at.BRIDGED else "node"
    else:
        source = dice.choices((at.GUEST_MAC, at.BRIDGE_MAC, at.PEER_MAC), (18, 1, 1))[0]
        honest = "node" if far or place.mode == at.ROUTED or dice.random() < 0.6 else "peer"
    target = honest if dice.random() < 0.85 else dice.choice(sorted(place.macs))
    return source, place.macs[target]


def _addresses4(dice: random.Random, place: Place, way: str) -> tuple[str, str]:
    own, others = (at.GUEST4, place.near4) if way == FROM_GUEST else (dice.choice((place.near4, at.FAR4[0], *at.FAR4)), at.GUEST4)
    odd = (place.node4, "0.0.0.0", "127.0.0.1", at.PEER4, at.FAR4[1], at.UP14, "10.0.0.255")
    source = own if dice.random() < 0.85 else dice.choice(odd)
    if way == FROM_GUEST and dice.random() < 0.35:
        return source, dice.choice(at.FAR4)
    targets = (place.node4, at.PEER4, others, *at.FAR4, at.UP14, at.LOOP4, "127.0.0.1", "10.0.0.255", "203.0.113.255", at.GUEST4)
    target = dice.choice(targets) if way == FROM_GUEST or dice.random() < 0.3 else others
    return source, target


def _addresses6(dice: random.Random, place: Place, way: str) -> tuple[str, str]:
    own, others = (at.GUEST6, place.near6) if way == FROM_GUEST else (dice.choice((place.near6, *at.FAR6)), at.GUEST6)
    odd = (place.node6, "::", "::1", at.PEER6, "fe80::77", at.FAR6[1])
    source = own if dice.random() < 0.88 else dice.choice(odd)
    if way == FROM_GUEST and dice.random() < 0.35:
        return source, dice.choice(at.FAR6)
    subnets = ("fd00::", "2001:db8:f::", "2001:db8:e::")  # a router's anycast address
    targets = (place.node6, at.PEER6, others, *at.FAR6, at.UP16, at.LOOP6, "::1", at.LINK6, *subnets)
    target = dice.choice(targets) if way == FROM_GUEST or dice.random() < 0.4 else others
    return source, target


def _packet4(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    source, target = _addresses4(dice, place, way)
    return _sent4(dice, place, way, token, source, target, _ends(dice, place, way, target in at.FAR4))


def _sent4(
    dice: random.Random, place: Place, way: str, token: bytes, source: str, target: str, macs: tuple[str, str], ttl: int = 64
) -> Shot:
    size = dice.choices((0, 1200, 1380, 1470), (8, 1, 1, 1))[0]
    tos, df = dice.choices((0, 0x10, 0x2E << 2), (7, 3, 1))[0], dice.random() < 0.4
    ttl = 1 if dice.random() < 0.06 else ttl
    protocol = dice.choice((UDP, UDP, ICMP))
    body = upper(protocol, source, target, token + bytes(size), dice.choice((9, 53)))
    packet = ip4(source, target, protocol, body, tos, df, ttl)
    tag = dice.choices((b"", b"\x81\x00\x00\x0a", b"\x81\x00\x60\x00"), (12, 1, 1))[0]
    words = f"{source} > {target} protocol {protocol} {len(packet)} bytes{' DF' if df else ''} tos {tos:#x} ttl {ttl} tag {tag.hex()}"
    return _shot(way, macs, IPV4, packet, token, words, tag)


def _packet6(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    source, target = _addresses6(dice, place, way)
    return _sent6(dice, way, token, source, target, _ends(dice, place, way, target in at.FAR6))


def _sent6(dice: random.Random, way: str, token: bytes, source: str, target: str, macs: tuple[str, str]) -> Shot:
    size, hops = dice.choices((0, 1250, 1440), (8, 1, 1))[0], 1 if dice.random() < 0.06 else 64
    protocol = dice.choice((UDP, UDP, ICMP6))
    packet = ip6(source, target, protocol, upper(protocol, source, target, token + bytes(size), dice.choice((9, 53))), hops)
    return _shot(way, macs, IPV6, packet, token, f"{source} > {target} protocol {protocol} {len(packet)} bytes hops {hops}")


def _arp(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    senders = (at.GUEST4,) * 5 if way == FROM_GUEST else (place.near4,) * 5
    sender = dice.choice((*senders, "0.0.0.0", place.node4, at.FAR4[2]))
    own, far = (place.node4, place.node4, at.UP14, at.LOOP4), at.FAR4[:2]
    asked = dice.choice((*own, *far, at.PEER4, at.OUT4, at.GUEST4, sender, "127.0.0.1"))
    mac, target = _ends(dice, place, way)
    target = target if dice.random() < 0.2 else at.BROADCAST
    body = struct.pack("!HHBBH6s4s6s4s", 1, IPV4, 6, 4, 1, mac_bytes(mac), packed(sender), bytes(6), packed(asked))
    return _shot(way, (mac, target), ARP, body + bytes(4) + token, token, f"ARP {sender} asks for {asked}", asks=asked)


def _solicitation(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    own = at.GUEST6 if way == FROM_GUEST else place.near6
    source = dice.choice((own,) * 6 + ("::", "fe80::77"))
    asked = dice.choice((place.node6, place.node6, at.PEER6, at.UP16, at.LOOP6, at.FAR6[0], at.GUEST6, "fd00::"))
    mac, _target = _ends(dice, place, way)
    group, target = solicited_node(asked)
    if dice.random() < 0.25 and source != "::":
        group, target = asked, place.macs["node"]
    options = (b"\x01\x01" + mac_bytes(mac) if source != "::" else b"") + b"\xfd\x02" + token + bytes(6)
    body = b"\x87\0\0\0" + bytes(4) + packed(asked) + options
    packet = ip6(source, group, ICMP6, summed(body, source, group, ICMP6, 2), 255)
    return _shot(way, (mac, target), IPV6, packet, token, f"{source} > {group} solicits {asked}", asks=asked)


def _other(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    source, target = _ends(dice, place, way)
    if dice.random() < 0.4:
        target = dice.choice((GROUP.format(dice.choice((0, 1, 2, 3, 14, 15))), at.BROADCAST, "33:33:00:00:00:05", "01:00:5e:01:01:01"))
    return _shot(way, (source, target), EXPERIMENT, token, token, "no IP", inner=False)


def _many4(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    source = dice.choice((at.GUEST4 if way == FROM_GUEST else place.near4, "0.0.0.0", place.node4))
    target = dice.choice(("255.255.255.255", "224.0.0.1", "239.1.1.1", "10.0.0.255", "192.0.2.255"))
    mac, _target = _ends(dice, place, way)
    group = "01:00:5e:" + packed(target)[1:].hex(":") if target[:3] in ("224", "239") else at.BROADCAST
    return _sent4(dice, place, way, token, source, target, (mac, group), 64)


def _many6(dice: random.Random, place: Place, way: str, token: bytes) -> Shot:
    source = dice.choice((at.GUEST6 if way == FROM_GUEST else place.near6, "fe80::77", "::"))
    target = dice.choice(("ff02::1", "ff02::2", "ff05::5", "ff01::1", "ff02::1:ff00:1", "ff02::1:ff00:5"))
    mac, _target = _ends(dice, place, way)
    return _sent6(dice, way, token, source, target, (mac, "33:33:" + packed(target)[-4:].hex(":")))


# -- bytes


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def ip4(source: str, target: str, protocol: int, body: bytes, tos: int = 0, df: bool = False, ttl: int = 64) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20 + len(body), 7, 0x4000 * df, ttl, protocol, 0, packed(source), packed(target))
    return head[:10] + checksum(head) + head[12:] + body


def ip6(source: str, target: str, protocol: int, body: bytes, hops: int = 64) -> bytes:
    return struct.pack("!IHBB16s16s", 6 << 28, len(body), protocol, hops, packed(source), packed(target)) + body


def upper(protocol: int, source: str, target: str, payload: bytes, port: int) -> bytes:
    """UDP to ``port``, or an echo request, with the right checksum."""
    if protocol == UDP:
        return summed(struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload, source, target, protocol, 6)
    if protocol == ICMP6:
        return summed(struct.pack("!BBHHH", 128, 0, 0, 1, 1) + payload, source, target, protocol, 2)
    body = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + payload
    return body[:2] + checksum(body) + body[4:]


def summed(body: bytes, source: str, target: str, protocol: int, place: int) -> bytes:
    """``body`` with the checksum of a protocol that counts the addresses too."""
    pseudo = packed(source) + packed(target) + struct.pack("!II", len(body), protocol)
    return body[:place] + checksum(pseudo + body) + body[place + 2 :]


def _shot(
    way: str,
    macs: tuple[str, str],
    kind: int,
    packet: bytes,
    token: bytes,
    words: str,
    tag: bytes = b"",
    asks: str = "",
    inner: bool = True,
) -> Shot:
    data = (mac_bytes(macs[1]) + mac_bytes(macs[0]) + tag + kind.to_bytes(2, "big") + packet).ljust(60, b"\0")
    return Shot(way, f"{way} guest, {macs[0]} > {macs[1]}, {words}", data, token, asks, inner)


def malformed(dice: random.Random, shot: Shot) -> Shot:
    """Return the frame with other bytes in its type, its tag or its header of IP, but for where that goes: who is there is known.

    Most headers of IPv4 get the right checksum again. What the node's own sockets get of it is not told.
    """
    data = bytearray(shot.data)
    start = 18 if data[12:14] == b"\x81\0" else 14
    four = data[start - 2 : start] == b"\x08\0"
    end = min(start + (16 if four else 24), bytes(data).find(shot.token))
    for _ in range(dice.choice((1, 1, 2))):
        place = dice.randrange(12, end)
        numbers = (0, 1, 2, 6, 17, 41, 43, 44, 58, 59, 60, 0x45, 0x46, 0x60, 0xFF)
        data[place] = dice.choice((*numbers, data[place] ^ 1, data[place] ^ 16, dice.randrange(256)))
    told = slice(start + 2, start + 4) if four else slice(start + 4, start + 6)
    if data[told] < shot.data[told]:  # what is behind the end is cut off, and the token is there
        data[told] = shot.data[told]
    length = (data[start] & 15) * 4
    if four and data[start] >> 4 == 4 and length >= 20 and dice.random() < 0.85:
        data[start + 10 : start + 12] = bytes(2)
        data[start + 10 : start + 12] = checksum(bytes(data[start : start + length]))
    return shot._replace(data=bytes(data), words=f"{shot.words}, made {bytes(data[:60]).hex()}", asks="", inner=False)


def returned(frame: bytes) -> bool:
    """Tell whether a frame that arrived only quotes another one, or answers an echo request."""
    start = 16 if frame[12:14] == b"\x81\x00" else 12
    kind, packet = frame[start : start + 2], frame[start + 2 :]
    if kind == b"\x08\x00" and packet[9] == ICMP:
        return packet[(packet[0] & 15) * 4] in ERRORS4
    return kind == b"\x86\xdd" and packet[6] == ICMP6 and packet[40] in ERRORS6
