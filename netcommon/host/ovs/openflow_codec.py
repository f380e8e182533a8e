"""Flows as OpenFlow 1.4 has them on the wire, from their texts: those that the shipped spoof guard is made of, and no others.

A run of ovs-ofctl takes as long as a whole hook without it, nearly all of it to start. What a site's own templates say beyond this
is not read here: ovs-ofctl's language is nobody else's to parse, and it does those. A test holds that a flow sent from here is printed
by Open vSwitch as the text that it was made from (OpenFlow Switch Specification 1.4.0; ovs-fields(7)).
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_pton
from struct import Struct

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

OXM, NXM0, NXM1 = 0x8000, 0x0000, 0x0001  #: classes of fields: OpenFlow's own, and Nicira's two
REG13, REG14 = 13, 14
UDP_SRC, UDP_DST, ICMPV6_TYPE = NXM0 << 16 | 11 << 9 | 2, NXM0 << 16 | 12 << 9 | 2, NXM1 << 16 | 21 << 9 | 1

#: What a word without "=" asks for: the Ethernet type, and the protocol of IP.
PROTOCOLS = {
    "arp": (0x0806, None),
    "rarp": (0x8035, None),
    "ip": (0x0800, None),
    "ipv6": (0x86DD, None),
    "udp": (0x0800, 17),
    "udp6": (0x86DD, 17),
    "icmp6": (0x86DD, 58),
}
FRAGMENTS = {"first": b"\x01\x03", "no": b"\x00\x03"}  #: value and mask: a fragment, and not a later one; no fragment

HEADER = Struct("!HBB")  #: class, field and whether there is a mask, length
LOAD = Struct("!HHIHHIQ")  #: type, length, vendor, subtype, first bit and their number, field, value (NXAST_REG_LOAD)
MOVE = Struct("!HHIHHHHII")  #: type, length, vendor, subtype, bits, first bit there and here, field there and here (NXAST_REG_MOVE)
RESUBMIT = Struct("!HHIHHB3x")  #: type, length, vendor, subtype, port, table (NXAST_RESUBMIT_TABLE)
INSTRUCTION = Struct("!HH4x")  #: type, length
MATCH = Struct("!HH")  #: type, length without padding
EXPERIMENTER, NICIRA = 0xFFFF, 0x2320
REG_MOVE, REG_LOAD, RESUBMIT_TABLE = 6, 7, 14
SAME_PORT = 0xFFF8
APPLY_ACTIONS, OXM_MATCH = 4, 1
STATE = (29 << 6) | 2  #: the bits 29 to 31, as LOAD has them: the first, and the number less one
LOADED, AGAIN = "load:", "->NXM_NX_REG13[29..31],resubmit(,0)"
#: Moves to reg14, and of each the field, its bits, and the first bit that they come to.
MOVES = {
    "move:NXM_OF_UDP_SRC[]->NXM_NX_REG14[0..15],move:NXM_OF_UDP_DST[]->NXM_NX_REG14[16..31],": ((UDP_SRC, 16, 0), (UDP_DST, 16, 16)),
    "move:NXM_NX_ICMPV6_TYPE[]->NXM_NX_REG14[0..7],": ((ICMPV6_TYPE, 8, 0),),
}
CLEARED, WHOLE = "load:0->NXM_NX_REG14[],", 31  #: WHOLE: all bits, as LOAD has them


class StrangeError(Exception):
    """The text says something that is not read here."""


def number(size: int) -> Callable[[str], bytes]:
    """Reads a number, decimal or hexadecimal, of so many bytes; perhaps with a mask."""

    def read(text: str) -> bytes:
        return b"".join(int(part, 0).to_bytes(size, "big") for part in text.split("/"))

    return read


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def address(family: int) -> Callable[[str], bytes]:
    """Reads an address, perhaps with a prefix length."""

    def read(text: str) -> bytes:
        host, slash, prefix = text.partition("/")
        packed = inet_pton(family, host)
        if not slash:
            return packed
        bits = len(packed) * 8
        ones = (1 << bits) - 1 ^ (1 << bits - int(prefix)) - 1
        return packed + ones.to_bytes(len(packed), "big")

    return read


def vid(text: str) -> bytes:
    return (0x1000 | int(text)).to_bytes(2, "big")  # OFPVID_PRESENT


#: By name: class, number, bytes without a mask, and what reads its value. In the order in which the switch takes them: what a field
#: needs (a protocol, a message's type) stands before it.
FIELDS: dict[str, tuple[int, int, int, Callable[[str], bytes]]] = {
    "in_port": (OXM, 0, 4, number(4)),
    "reg13": (NXM1, REG13, 4, number(4)),
    "reg14": (NXM1, REG14, 4, number(4)),
    "dl_src": (OXM, 4, 6, mac),
    "dl_type": (OXM, 5, 2, number(2)),
    "vlan_tci": (NXM0, 4, 2, number(2)),
    "dl_vlan": (OXM, 6, 2, vid),
    "nw_proto": (OXM, 10, 1, number(1)),
    "nw_ttl": (NXM1, 29, 1, number(1)),
    "nw_frag": (NXM1, 26, 1, lambda text: FRAGMENTS[text]),
    "nw_src": (OXM, 11, 4, address(AF_INET)),
    "nw_dst": (OXM, 12, 4, address(AF_INET)),
    "ipv6_src": (OXM, 26, 16, address(AF_INET6)),
    "ipv6_dst": (OXM, 27, 16, address(AF_INET6)),
    "tp_src": (OXM, 15, 2, number(2)),
    "tp_dst": (OXM, 16, 2, number(2)),
    "icmp_type": (OXM, 29, 1, number(1)),
    "icmp_code": (OXM, 30, 1, number(1)),
    "nd_target": (OXM, 31, 16, address(AF_INET6)),
    "nd_sll": (OXM, 32, 6, mac),
    "nd_tll": (OXM, 33, 6, mac),
    "arp_op": (OXM, 21, 2, number(2)),
    "arp_spa": (OXM, 22, 4, address(AF_INET)),
    "arp_tpa": (OXM, 23, 4, address(AF_INET)),
    "arp_sha": (OXM, 24, 6, mac),
    "arp_tha": (OXM, 25, 6, mac),
}
ORDER = {name: place for place, name in enumerate(FIELDS)}


def encode(flow: str, port: int) -> tuple[int, bytes]:
    """A flow of table 0 for frames from ``port``: its priority, and its match with its instructions. Raises StrangeError.

    ``flow`` is a text as of netcommon.host.api.facts.Flow.
    """
    words_of, _, actions = flow.rpartition(" actions=")
    try:
        priority, words = _words(words_of)
        words["in_port"] = str(port)
        fields = b"".join(_field(name, words[name]) for name in sorted(words, key=ORDER.__getitem__))
        return priority, match(fields) + _instructions(actions)
    except (ValueError, KeyError, OSError, OverflowError) as problem:
        raise StrangeError(flow) from problem


def _words(match: str) -> tuple[int, dict[str, str]]:
    """The priority, and values by field."""
    words: dict[str, str] = {}
    for part in match.split(","):
        name, equals, value = part.partition("=")
        if equals:
            words[name] = value
            continue
        kind, protocol = PROTOCOLS[name]
        words["dl_type"] = str(kind)
        if protocol is not None:
            words["nw_proto"] = str(protocol)
    ports = {"tp_src", "tp_dst"} & words.keys()
    if ports and words.get("nw_proto") != "17":
        raise ValueError("ports of what is not UDP")
    return int(words.pop("priority")), words


def _field(name: str, text: str) -> bytes:
    kind, field, size, read = FIELDS[name]
    value = read(text)
    if len(value) not in (size, 2 * size):
        raise ValueError(f"{name} of {len(value)} bytes")
    return HEADER.pack(kind, field << 1 | (len(value) != size), len(value)) + value


def match(fields: bytes) -> bytes:
    length = MATCH.size + len(fields)
    return MATCH.pack(OXM_MATCH, length) + fields + bytes(-length % 8)


def _instructions(actions: str) -> bytes:
    """To drop is to have none."""
    if actions == "drop":
        return b""
    before, register = b"", NXM1 << 16 | REG14 << 9 | 4
    for moved, fields in MOVES.items():
        if actions.startswith(moved):
            actions = actions[len(moved) :]
            for field, bits, first in fields:
                before += MOVE.pack(EXPERIMENTER, MOVE.size, NICIRA, REG_MOVE, bits, 0, first, field, register)
    if actions.startswith(CLEARED):
        actions = actions[len(CLEARED) :]
        before += LOAD.pack(EXPERIMENTER, LOAD.size, NICIRA, REG_LOAD, WHOLE, register, 0)
    if not actions.startswith(LOADED) or not actions.endswith(AGAIN):
        raise ValueError("other actions")
    state = int(actions[len(LOADED) : -len(AGAIN)], 0)
    done = before + LOAD.pack(EXPERIMENTER, LOAD.size, NICIRA, REG_LOAD, STATE, NXM1 << 16 | REG13 << 9 | 4, state)
    done += RESUBMIT.pack(EXPERIMENTER, RESUBMIT.size, NICIRA, RESUBMIT_TABLE, SAME_PORT, 0)
    return INSTRUCTION.pack(APPLY_ACTIONS, INSTRUCTION.size + len(done)) + done
