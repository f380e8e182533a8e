"""The values that the fuzz chooses among: mostly the guest's own, so that a frame has one thing wrong and not all."""

from __future__ import annotations

import ipaddress
from random import Random
from typing import NamedTuple, TypeVar

from tests.support import attacks_base as base
from tests.support.fuzz.facts import hardware, packed

T = TypeVar("T")

MAC, FOREIGN_MAC = hardware(base.MAC), hardware(base.FOREIGN_MAC)
OWN4, FOREIGN4, IN_PREFIX4, PEER4, HOST4, OUT4 = map(packed, (base.OWN4, base.FOREIGN4, base.IN_PREFIX4, base.PEER4, base.HOST4, base.OUT4))
OWN6, FOREIGN6, IN_PREFIX6, PEER6, HOST6, OUT6 = map(packed, (base.OWN6, base.FOREIGN6, base.IN_PREFIX6, base.PEER6, base.HOST6, base.OUT6))
EUI64, OTHER_LOCAL = packed(base.EUI64), packed(base.OTHER_LOCAL)
BESIDE4, BESIDE6 = packed("198.51.100.2"), packed("2001:db8:f::3")  #: routed by the second uplink

FOREIGN_MACS = (FOREIGN_MAC, hardware(base.PEER_MAC), hardware(base.HOST_MAC), bytes(6), b"\xff" * 6, MAC[:5] + b"\2")
FOREIGN4S = (FOREIGN4, HOST4, PEER4, packed("10.1.0.16"), packed("127.0.0.1"), packed("224.0.0.1"), b"\xff" * 4, packed("0.0.0.1"))
FOREIGN6S = (FOREIGN6, HOST6, PEER6, *map(packed, ("2001:db8:1:1::5", "::1", "::ffff:10.0.0.1", "ff02::1", "fec0::1", "fe00::1")))
#: Few: each makes an entry in tables of neighbours.
LOCALS = (EUI64, EUI64, OTHER_LOCAL, *(packed(f"fe80::{number}") for number in range(1, 5)))


def address(packed_address: bytes) -> str:
    """An address in words."""
    return str(ipaddress.ip_address(packed_address))


class World(NamedTuple):
    """Where frames go in a mode."""

    macs: tuple[bytes, ...]
    ip4: tuple[bytes, ...]
    ip6: tuple[bytes, ...]


_GROUPS4 = tuple(map(packed, ("255.255.255.255", "224.0.0.1", "239.1.1.1")))
_GROUPS6 = tuple(map(packed, ("ff02::1", "ff02::2", "ff02::1:2", "ff02::1:ff00:2", "ff02::16", "ff05::1:3", "fe80::2")))
_MACS = tuple(map(hardware, (base.ALL_MAC, base.ALL6_MAC, "01:00:5e:00:00:01", "33:33:ff:00:00:02", "33:33:00:01:00:02")))
WORLDS = {
    "bridged": World(
        (*_MACS[:1] * 4, *_MACS, hardware(base.NEAREST), hardware(base.SPANNING_TREE), hardware(base.PEER_MAC), hardware(base.OUT_MAC)),
        (*_GROUPS4, PEER4, OUT4, packed("10.0.0.68"), packed("10.0.0.67")),
        (*_GROUPS6, PEER6, OUT6),
    ),
    "routed": World(
        (*(hardware(base.HOST_MAC),) * 12, *_MACS),
        (*(OUT4, BESIDE4) * 4, *_GROUPS4, HOST4),
        (*(OUT6, BESIDE6) * 5, *_GROUPS6, HOST6),
    ),
}
WORLDS["openvswitch"] = WORLDS["bridged"]


def mostly(rng: Random, own: T, others: tuple[T, ...], share: float = 0.85) -> T:
    """The first one, or now and then one of the others."""
    return own if rng.random() < share else others[int(rng.random() * len(others))]


def one(rng: Random, values: tuple[T, ...]) -> T:
    """One of the values; faster than Random.choice."""
    return values[int(rng.random() * len(values))]


def below(rng: Random, limit: int) -> int:
    """A number from 0 to ``limit`` - 1; faster than Random.randrange."""
    return int(rng.random() * limit)
