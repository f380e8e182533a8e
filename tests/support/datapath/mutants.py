"""Make frames that are wrong in any way out of good ones: cut, longer, with other bytes, or of nothing but chance."""

from __future__ import annotations

import random

from netcommon.views.trace.frame import Wanted, build
from netcommon.views.trace.packet import ARP, IPV4, IPV6

SHORTEST, LONGEST = 14, 1600  #: bytes
GUEST, NODE = "aa:00:00:00:00:01", "02:00:00:00:0b:00"
TARGETS = ("", NODE, "33:33:00:00:00:01", "01:00:5e:00:00:01", "01:80:c2:00:00:0e", "ff:ff:ff:ff:ff:ff")
PAIRS = (
    *(("10.0.0.5", "10.0.0.1"), ("10.0.0.5", "198.51.100.1"), ("10.0.0.5", "224.0.0.1"), ("0.0.0.0", "255.255.255.255")),
    *(("fd00::5", "fd00::1"), ("fd00::5", "2001:db8::1"), ("fe80::5", "ff02::1"), ("::", "fd00::7")),
)


def mutant(dice: random.Random) -> bytes:
    """Return one of at least 14 bytes."""
    if dice.random() < 0.1:
        return dice.randbytes(dice.randint(SHORTEST, 120))
    data = bytearray(_good(dice))
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        place = dice.randrange(12, min(len(data), 80)) if len(data) > 12 else 0
        data[place] = dice.choice((0, 1, 0x45, 0x60, 0x7F, 0xFF, dice.randrange(256)))
    if dice.random() < 0.6:
        del data[dice.randint(SHORTEST, len(data)) :]
    if dice.random() < 0.1:
        data += dice.randbytes(dice.randint(1, LONGEST))
    return bytes(data)


def _good(dice: random.Random) -> bytes:
    source, target = dice.choice(PAIRS)
    kinds = (-1, 128, 133, 134, 135, 136, 137)
    arp = ":" not in source and dice.random() < 0.3
    wanted = Wanted(GUEST, dice.choice(TARGETS), source, target, -1, dice.choice((-1, -1, -1, 0, 10, 77)), arp)
    data = build(wanted._replace(protocol=dice.choice(("udp", "tcp", "icmp", "icmpv6")), kind=dice.choice(kinds)))
    if dice.random() < 0.1:  # another type than what is in it
        place = 16 if data[12:14] == b"\x81\0" else 12
        data = data[:place] + dice.choice((ARP, IPV4, IPV6, 0x8100, 0x88A8, 0x8864)).to_bytes(2, "big") + data[place + 2 :]
    return data
