"""The generator of fuzz frames: a grammar that makes frames nearly right, and mutations of what it made."""

from __future__ import annotations

import struct
from random import Random

from tests.support.frames import checksum
from tests.support.fuzz import layer4, pools
from tests.support.fuzz.layer4 import FILL, payload
from tests.support.fuzz.offload import offload
from tests.support.fuzz.oracle import Header
from tests.support.fuzz.pools import MAC, World, below, mostly, one

UDP, TCP, ICMP, IGMP, ICMP6, FRAGMENT, NONE = 17, 6, 1, 2, 58, 44, 59
MORE = 0x2000
SEGMENTS = 200  #: of one frame, at most
TYPES = (0x88CC, 0x888E, 0x8809, 0x8863, 0x8847, 0x8035, 0x88B5, 0x0600, 0x9100, 0x86DC, 0x0805, 0x05FF, 0x22F0, 0x894F, 0x6558)
OPTIONS4 = (b"\x94\4\0\0", b"\1\1\1\0", b"\x07\7\4" + bytes(5), b"\x83\7\4\x0a\0\0\x02\0", b"\1" * 40)
EXTENSIONS = (0, 43, 60, 51, 135, 139, 140, 44, 60, 0, 44)
EDGES = (0, 1, 2, 4, 5, 6, 8, 14, 15, 16, 17, 20, 0x40, 0x44, 0x45, 0x46, 0x4F, 0x60, 58, 67, 68, 127, 128, 134, 136, 255)

Made = tuple[bytes, int, int]  #: a frame, where its layer 4 begins, and which one that is


def frame(rng: Random, world: World) -> tuple[Header, bytes]:
    """A fuzz frame, and the header to send it with."""
    way = rng.random()
    if way < 0.1:
        made = _arp(rng), 0, 0
    elif way < 0.5:
        made = _ip4(rng, world)
    elif way < 0.95:
        made = _ip6(rng, world)
    else:
        made = _other(rng, world), 0, 0
    whole, layer, protocol = _ethernet(rng, world, *made)
    header = offload(rng, len(whole), layer, protocol, b"\x86\xdd" in whole[12:22])
    if rng.random() < 0.3:
        whole = mutated(rng, whole)
    if header.gso_size and len(whole) // header.gso_size > SEGMENTS:  # a receiver's queue holds so many, and no more
        header = header._replace(gso_size=len(whole) // SEGMENTS)
    return header, whole.ljust(14, b"\0")


def _ethernet(rng: Random, world: World, packet: bytes, layer: int, protocol: int) -> Made:
    """``packet`` begins with its EtherType."""
    tags = b""
    if rng.random() < 0.06:
        for _ in range(1 + below(rng, 2)):
            tags += mostly(rng, b"\x81\0", (b"\x88\xa8", b"\x91\0")) + struct.pack("!H", one(rng, (0, 1, 10, 20, 21, 4095, 0xA000, 0xE014)))
    head = one(rng, world.macs) + mostly(rng, MAC, pools.FOREIGN_MACS, 0.96) + tags
    whole = head + packet
    if rng.random() < 0.5:
        whole = whole.ljust(60, b"\0")
    return whole, layer and len(head) + layer, protocol


def _arp(rng: Random) -> bytes:
    sender = mostly(rng, pools.OWN4, (pools.IN_PREFIX4, bytes(4), *pools.FOREIGN4S), 0.6)
    head = struct.pack("!HHBBH", mostly(rng, 1, (6, 0, 7)), 0x0800, 6, 4, one(rng, (1, 2, 1, 2, 3, 8, 9)))
    whole = head + mostly(rng, MAC, pools.FOREIGN_MACS) + sender + mostly(rng, bytes(6), pools.FOREIGN_MACS)
    whole += mostly(rng, one(rng, pools.FOREIGN4S), (pools.OWN4,), 0.8)
    if rng.random() < 0.05:  # other lengths: the sender lies elsewhere
        whole = head[:4] + bytes((one(rng, (6, 8, 0, 20)), one(rng, (4, 16, 0, 6)))) + whole[6:] + bytes(24)
    return b"\x08\x06" + whole


def _ip4(rng: Random, world: World) -> Made:
    way = rng.random()
    if way < 0.4:
        protocol, body = UDP, layer4.dhcp(rng)
    elif way < 0.7:
        protocol, body = UDP, layer4.any_udp(rng)
    elif way < 0.85:
        protocol, body = TCP, layer4.tcp(rng)
    elif way < 0.95:
        protocol, body = ICMP, layer4.icmp(rng)
    elif way < 0.97:
        protocol, body = IGMP, layer4.igmp(rng)
    else:
        protocol, body = one(rng, (2, 4, 41, 47, 50, 58, 136, 132, 255)), payload(rng)
    options = one(rng, OPTIONS4) if rng.random() < 0.1 else b""
    field = _fragment(rng, len(body))
    if field & MORE and rng.random() < 0.7:
        body = body[: max(8, len(body) & ~7) if rng.random() < 0.6 else 8]
    source = mostly(rng, pools.OWN4, (bytes(4), bytes(4), pools.IN_PREFIX4, *pools.FOREIGN4S), 0.75)
    words = 5 + len(options) // 4
    first = 0x40 | words
    if rng.random() < 0.03:
        first = one(rng, (0x40, 0x41, 0x44, 0x43, 0x4F, 0x55, 0x65, 0x05, 0x46))
    size = 20 + len(options) + len(body)
    total = size if rng.random() < 0.92 else one(rng, (0, 20, 24, 28, size - 1, size + 1, size + 8, 65535))
    hops = mostly(rng, 64, (0, 1, 255))
    head = struct.pack("!BBHHHBBH", first, 0, total & 0xFFFF, below(rng, 65536), field, hops, protocol, 0)
    head += source + one(rng, world.ip4) + options
    if rng.random() < 0.97:
        head = head[:10] + checksum(head) + head[12:]
    return b"\x08\0" + head + body, 2 + len(head), protocol


def _fragment(rng: Random, size: int) -> int:
    """Flags and offset: mostly no fragment."""
    way = rng.random()
    if way < 0.65:
        return one(rng, (0, 0x4000))
    if way < 0.75:
        return MORE
    offset = one(rng, (1, 2, 3, 8, 64, 185, 0x1FFF, max(1, size // 8)))
    return offset | one(rng, (0, MORE, 0x4000, 0x8000))


def _ip6(rng: Random, world: World) -> Made:
    way = rng.random()
    if way < 0.6:
        protocol, body = ICMP6, layer4.discovery(rng)
    elif way < 0.8:
        protocol, body = UDP, layer4.dhcp6(rng)
    elif way < 0.9:
        protocol, body = UDP, layer4.any_udp(rng)
    elif way < 0.96:
        protocol, body = TCP, layer4.tcp(rng)
    else:
        protocol, body = one(rng, (NONE, 4, 41, 47, 50, 136, 255, 1)), payload(rng)
    chain, final, chained = b"", protocol, set[int]()
    for _ in range(one(rng, (0, 0, 0, 1, 1, 2, 3)) if rng.random() < 0.95 else below(rng, 12)):
        kind = one(rng, EXTENSIONS)
        chain, final = _extension(rng, kind, final) + chain, kind
        chained.add(kind)
    source = mostly(rng, one(rng, (pools.OWN6, pools.EUI64)), (bytes(16), pools.IN_PREFIX6, *pools.LOCALS, *pools.FOREIGN6S), 0.8)
    size = len(chain) + len(body)
    if rng.random() < (0.25 if FRAGMENT in chained else 0.08):  # what is beyond the length is padding
        size = len(chain) if rng.random() < 0.4 else one(rng, (0, 0, 8, len(chain), size - 1, size + 1, size + 8, 65535))
    first = 0x6 if rng.random() < 0.98 else one(rng, (0, 4, 5, 15))
    hops = mostly(rng, 255, (0, 1, 64))
    head = struct.pack("!IHBB", first << 28 | below(rng, 1 << 20), max(0, size) & 0xFFFF, final, hops)
    target = one(rng, world.ip6)
    if protocol == ICMP6 and len(body) >= 4 and rng.random() < 0.5:
        sum_ = checksum(source + target + struct.pack("!II", len(body), ICMP6) + body)
        body = body[:2] + sum_ + body[4:]
    whole = b"\x86\xdd" + head + source + target + chain
    return whole + body, len(whole), protocol


def _extension(rng: Random, kind: int, following: int) -> bytes:
    """An extension header before a header of the kind ``following``."""
    if kind == FRAGMENT:
        way = rng.random()
        offset, more = (0, 0) if way < 0.35 else (0, 1) if way < 0.7 else (one(rng, (1, 2, 8, 185, 0x1FFF)), below(rng, 2))
        return struct.pack("!BBHI", following, mostly(rng, 0, (8, 255), 0.95), offset << 3 | more, 7)
    size = one(rng, (0, 0, 0, 1, 2, 31))
    if kind == 51:
        words = 1 + size * 2
        return bytes((following, words)) + bytes((words + 2) * 4 - 2)
    value = bytes((following, size)) + (b"\1" + bytes((size * 8 + 4,)) if kind in (0, 60) else bytes(2)) + bytes(size * 8 + 4)
    if rng.random() < 0.05:
        return value[:1] + bytes((below(rng, 256),)) + value[2:]
    return value


def _other(rng: Random, world: World) -> bytes:
    way = rng.random()
    if way < 0.4:
        return struct.pack("!H", one(rng, TYPES) if rng.random() < 0.8 else below(rng, 65536)) + payload(rng)
    if way < 0.6:
        target, operation = mostly(rng, MAC, pools.FOREIGN_MACS, 0.7), mostly(rng, 3, (4, 1, 2), 0.7)
        return b"\x80\x35\0\1\x08\0\6\4" + struct.pack("!H", operation) + MAC + bytes(4) + target + bytes(4)
    if way < 0.9:
        inner = one(rng, (_arp(rng), _ip4(rng, world)[0], _ip6(rng, world)[0]))
        packet = mostly(rng, b"\xaa\xaa\3\0\0\0", (b"\xaa\xaa\3\0\0\x0c", b"\x42\x42\3", b"\xff\xff\0"), 0.7) + inner
        return struct.pack("!H", mostly(rng, min(len(packet), 1535), (0, 3, 1500))) + packet
    return bytes(below(rng, 256) for _ in range(2 + below(rng, 80)))


def mutated(rng: Random, whole: bytes) -> bytes:
    """Bits turned over, bytes set to edges, cut off, made longer, parts doubled or moved."""
    data = bytearray(whole)
    for _ in range(one(rng, (1, 1, 1, 2, 4))):
        way, near = rng.random(), min(len(data), 14 + below(rng, 80))
        if way < 0.3 and near:
            data[below(rng, near)] ^= 1 << below(rng, 8)
        elif way < 0.65 and near > 12:
            data[12 + below(rng, near - 12)] = one(rng, EDGES)
        elif way < 0.8:
            del data[below(rng, len(data) + 1) :]
        elif way < 0.85:
            data += FILL[: below(rng, 64)]
        elif way < 0.95 and near > 14:  # a header once more, or gone
            start = 14 + below(rng, near - 14)
            part = data[start : start + one(rng, (1, 2, 4, 8, 20, 40))]
            data[start : start + len(part) * below(rng, 2)] = part * below(rng, 3)
        else:
            data += data[14:]
    return bytes(data[:65000])
