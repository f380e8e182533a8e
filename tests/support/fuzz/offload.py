"""The virtio-net headers of fuzz frames (virtio 1.2, 5.1.6; include/linux/virtio_net.h for what Linux takes)."""

from __future__ import annotations

import struct
from random import Random

from tests.support.fuzz.oracle import PLAIN, Header
from tests.support.fuzz.pools import below, mostly, one

NEEDS_CSUM = 1
TCP4, UDP_WHOLE, TCP6, UDP_EACH, ECN = 1, 3, 4, 5, 0x80
SIZES = (1, 7, 8, 8, 16, 16, 24, 32, 64, 100, 256, 536, 1200, 1448, 8192, 65535)
OFFSETS = {17: 6, 6: 16, 58: 2, 1: 2}  #: where the checksum lies in a header of layer 4
PAGE = 4000  #: from some such size on the kernel reads no more than hdr_len bytes directly
FORMAT = struct.Struct("=BBHHHH")


def raw(header: Header) -> bytes:
    """The header's 10 bytes, as the guest's memory has them (little-endian on the machines this runs on)."""
    return FORMAT.pack(*header)


def parsed(data: bytes) -> Header:
    """The other way round."""
    return Header._make(FORMAT.unpack(data[: FORMAT.size]))


def offload(rng: Random, size: int, layer: int, protocol: int, six: bool = False) -> Header:
    """A header for a frame whose layer 4 begins at ``layer``; half of them ask for nothing."""
    if rng.random() < 0.45:
        return PLAIN
    flags = one(rng, (0, NEEDS_CSUM, NEEDS_CSUM, 2, 3, 4, 255)) if rng.random() < 0.2 else below(rng, 2)
    start, offset = layer, OFFSETS.get(protocol, 6)
    if rng.random() < 0.12:
        start = below(rng, size + 2) if rng.random() < 0.8 else one(rng, (0, 14, 34, 54, 65535))
    if rng.random() < 0.08:
        offset = below(rng, 64) if rng.random() < 0.8 else one(rng, (65534, 65535))
    whole = TCP6 if six else TCP4
    fitting = {6: (whole,), 17: (UDP_WHOLE, UDP_EACH)}.get(protocol, (UDP_WHOLE, UDP_EACH, whole))
    way = rng.random()
    if way < (0.2 if size < PAGE else 0.8):
        gso = 0
    elif way < 0.93:
        gso = one(rng, fitting)
    else:
        gso = one(rng, (0, TCP4, UDP_WHOLE, TCP6, UDP_EACH, 2, 6, 7, 0x20, 0x40, 127))
    gso |= ECN if rng.random() < 0.08 else 0
    if gso in (TCP4, TCP6, UDP_EACH) and rng.random() < 0.9:
        flags |= NEEDS_CSUM  # the kernel takes no other
    length = mostly(rng, layer + {6: 20, 17: 8}.get(protocol, 0), (0, 14, 20, 34, 54, size, size + 1, 65535), 0.92 if size < PAGE else 0.5)
    return Header(flags, gso, length & 0xFFFF, one(rng, SIZES) if gso else 0, start & 0xFFFF, offset)
