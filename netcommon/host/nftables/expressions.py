"""Expressions of nftables rules (linux/netfilter/nf_tables.h), byte for byte as the kernel writes them when it is asked.

A rule is the expressions one after the other; the first that does not match ends it. A load beyond the end of the packet does not match.
Registers are of 32 bits; a key of several fields lies in neighbouring ones.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.rtnetlink.attributes import ATTRIBUTE, as_bytes, attribute
from runtime.typed import lru_cache

BE32, BE64 = Struct(">I"), Struct(">Q")

LINK_HEADER, NETWORK_HEADER, TRANSPORT_HEADER = 0, 1, 2  #: NFT_PAYLOAD_*
META_PROTOCOL, META_MARK, META_IIF, META_OIF, META_SKUID, META_L4PROTO, META_PKTTYPE = 1, 3, 4, 5, 10, 16, 19  #: NFT_META_*
EQUAL, DIFFERENT, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(6)  #: NFT_CMP_*
SECOND_REGISTER = 9  #: NFT_REG32_01; the kernel writes the first one as NFT_REG_1
VERDICT_REGISTER = 0
DYNSET_UPDATE, FIB_TYPE, FIB_DESTINATION = 1, 3, 2  #: NFT_DYNSET_OP_UPDATE, NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_DADDR
EXTHDR_PRESENT = 1  #: NFT_EXTHDR_F_PRESENT
DROP, ACCEPT, JUMP, GOTO, RETURN = 0, 1, -3, -4, -5

#: So many names, and expressions of a kind, are kept as bytes: rules are made of the same few again and again.
KEPT = 512


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits in network order, as nfnetlink has them."""
    return ATTRIBUTE.pack(8, kind) + BE32.pack(value)


@lru_cache(KEPT)
def word(kind: int, value: str) -> bytes:
    """A NUL-terminated name."""
    return attribute(kind, as_bytes(value) + b"\0")


def nest(kind: int, value: bytes) -> bytes:
    """Attributes in one; nf_tables writes them without NLA_F_NESTED, and asks for none."""
    return attribute(kind, value)


def _register(place: int) -> int:
    return SECOND_REGISTER + place - 1 if place else 1


def expression(name: str, data: bytes) -> bytes:
    """One element of NFTA_RULE_EXPRESSIONS."""
    return attribute(1, word(1, name) + attribute(2, data))


@lru_cache(KEPT)
def load(base: int, offset: int, length: int, register: int = 0) -> bytes:
    """Bytes of the packet's header ``base`` into ``register``, counted from the first."""
    return expression("payload", number(1, _register(register)) + number(2, base) + number(3, offset) + number(4, length))


def extension(header: int, offset: int, length: int) -> bytes:
    """Bytes of the IPv6 extension header of this number into the first register; does not match where there is none."""
    place = number(3, offset) + number(4, length) + number(5, 0) + number(6, 0)
    return expression("exthdr", number(1, _register(0)) + attribute(2, bytes((header,))) + place)


def present(header: int) -> bytes:
    """Goes on where the kernel finds an IPv6 extension header of this number."""
    place = number(3, 0) + number(4, 1) + number(5, EXTHDR_PRESENT) + number(6, 0)
    return expression("exthdr", number(1, _register(0)) + attribute(2, bytes((header,))) + place) + compare(b"\1")


@lru_cache(KEPT)
def meta(key: int, register: int = 0) -> bytes:
    """What the kernel knows of the packet beside its bytes."""
    return expression("meta", number(2, key) + number(1, _register(register)))


def assign(key: int, register: int = 0) -> bytes:
    """The register into what the kernel knows of the packet, such as its mark."""
    return expression("meta", number(2, key) + number(3, _register(register)))


@lru_cache(KEPT)
def compare(value: bytes, operator: int = EQUAL, register: int = 0) -> bytes:
    """Goes on where the register stands so to ``value``; of numbers in network order the greater is the greater."""
    return expression("cmp", number(1, _register(register)) + number(2, operator) + nest(3, attribute(1, value)))


def mask(value: bytes, register: int = 0) -> bytes:
    """Only these bits of the register stay."""
    return altered(value, bytes(len(value)), register)


def altered(kept: bytes, changed: bytes, register: int = 0) -> bytes:
    """Only the bits ``kept`` of the register stay, and then the bits ``changed`` are turned over."""
    at = number(1, _register(register)) + number(2, _register(register)) + number(3, len(kept))
    return expression("bitwise", at + number(6, 0) + nest(4, attribute(1, kept)) + nest(5, attribute(1, changed)))


@lru_cache(KEPT)
def within(name: str, absent: bool = False, register: int = 0) -> bytes:
    """Goes on where the key that begins in ``register`` is in the set ``name``, or ``absent``."""
    return expression("lookup", word(1, name) + number(2, _register(register)) + number(5, int(absent)))


def found(name: str, register: int) -> bytes:
    """What the key in the first register leads to in the map ``name``, into another; goes on where there is one."""
    return expression("lookup", word(1, name) + number(2, _register(0)) + number(3, _register(register)) + number(5, 0))


def remember(name: str, again: bool = False) -> bytes:
    """Adds the key that begins in the first register to the set ``name``; ``again``: one that is there lasts anew.

    Goes on only where the key is in the set then.
    """
    place = number(4, _register(0)) + number(3, DYNSET_UPDATE * again) + word(1, name)
    return expression("dynset", place + attribute(6, BE64.pack(0)) + number(9, 0))


def kind_of_destination(register: int = 0) -> bytes:
    """Which kind of address the packet is for (RTN_*, rtnetlink(7)), by the node's own tables of addresses; in the host's order."""
    return expression("fib", number(1, _register(register)) + number(2, FIB_TYPE) + number(3, FIB_DESTINATION))


def store(base: int, offset: int, length: int, register: int) -> bytes:
    """The register into the packet's header. No checksum is mended."""
    place = number(2, base) + number(3, offset) + number(4, length)
    return expression("payload", number(5, _register(register)) + place + number(6, 0) + number(7, 0) + number(8, 0))


def immediate(value: bytes, register: int) -> bytes:
    """A constant into the register."""
    return expression("immediate", number(1, _register(register)) + nest(2, attribute(1, value)))


@lru_cache(KEPT)
def verdict(code: int, chain: str = "") -> bytes:
    """DROP, ACCEPT, RETURN, or JUMP or GOTO ``chain``."""
    target = word(2, chain) if chain else b""
    return expression("immediate", number(1, VERDICT_REGISTER) + nest(2, nest(2, number(1, code & 0xFFFFFFFF) + target)))
