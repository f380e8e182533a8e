"""What the rules of an nftables chain do with a frame, found by carrying them out: the expressions as the kernel told them.

Only what our own rules are made of is understood (netcommon.host.nftables.expressions); whatever else a rule has makes the answer Untold,
never a guess. A rule is not looked at beyond the first expression that does not match, as in the kernel (nft_do_chain()).
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import byteorder
from typing import NamedTuple

from netcommon.host.api.host import View
from netcommon.host.api.nftables import NftChain, NftElement, NftRule
from netcommon.host.nftables.expressions import (
    ACCEPT,
    DIFFERENT,
    DROP,
    EQUAL,
    GOTO,
    GREATER,
    GREATER_EQUAL,
    JUMP,
    LESS,
    LESS_EQUAL,
    LINK_HEADER,
    META_IIF,
    META_L4PROTO,
    META_MARK,
    META_OIF,
    META_PROTOCOL,
    NETWORK_HEADER,
    RETURN,
    TRANSPORT_HEADER,
    VERDICT_REGISTER,
)
from netcommon.host.rtnetlink.attributes import MalformedError, attributes, each, string
from netcommon.views.trace.packet import Packet

#: Registers: NFT_REG_1 to 4 hold 16 bytes each, NFT_REG32_00 (8) and later lie over them, four bytes each.
ROOM, OLD, NEW = 64, 16, 8
DEEPEST = 16  #: jumps within jumps (NFT_JUMP_STACK_SIZE)

#: Expressions that change nothing of this frame: what a set remembers counts for later ones.
SILENT = frozenset({"counter", "dynset"})


class Untold(Exception):
    """A rule has something that is not understood here."""


class Judged(NamedTuple):
    """What became of a frame."""

    verdict: str  #: "accept", "drop", or "" where it cannot be told
    chains: tuple[str, ...]  #: those it went through
    why: str = ""  #: of an untold one


class Devices(NamedTuple):
    """By which device it came in, and by which it goes out; 0: none."""

    into: int = 0
    out: int = 0


class _No(Exception):
    """The rule does not match."""


class Ruleset:
    """The tables of one view; each is read once. ``mark``: what the frame's mark is by now, which rules read and set."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.mark = 0
        self._chains: dict[tuple[int, str], dict[str, list[NftRule]]] = {}
        self._sets: dict[tuple[int, str], dict[str, list[NftElement]]] = {}

    def judge(self, chain: NftChain, packet: Packet, devices: Devices) -> Judged:
        """``chain``: a base chain that accepts what its rules do not decide, as all of ours. Raises what the view raises."""
        rules = self._rules(chain.family, chain.table)
        stack: list[tuple[str, int]] = []
        name, position, met = chain.name, 0, [chain.name]
        while True:
            there = rules.get(name, [])
            if position >= len(there):
                if not stack:
                    return Judged("accept", tuple(met))
                name, position = stack.pop()
                continue
            try:
                code, target = self._rule(there[position], packet, devices)
            except _No:
                position += 1
                continue
            except Untold as problem:
                return Judged("", tuple(met), f"rule {position + 1} of chain {name}: {problem}")
            except (MalformedError, IndexError):
                return Judged("", tuple(met), f"rule {position + 1} of chain {name} is not in a form that is known here")
            position += 1
            if code in (ACCEPT, DROP):
                return Judged("accept" if code == ACCEPT else "drop", tuple(met))
            if code in (JUMP, GOTO):
                if code == JUMP:
                    stack.append((name, position))
                if len(stack) > DEEPEST or len(met) > DEEPEST * len(rules):
                    return Judged("", tuple(met), f"chain {name} jumps too deep")
                name, position = target, 0
                met.append(target)
            elif code == RETURN:
                position = len(there)

    def _rules(self, family: int, table: str) -> dict[str, list[NftRule]]:
        if (family, table) not in self._chains:
            made: dict[str, list[NftRule]] = {}
            for rule in self._view.nft_rules(family, table):
                made.setdefault(rule.chain, []).append(rule)
            self._chains[family, table] = made
        return self._chains[family, table]

    def _elements(self, family: int, table: str, name: str) -> list[NftElement]:
        if (family, table) not in self._sets:
            made: dict[str, list[NftElement]] = {}
            for element in self._view.nft_elements(family, table):
                made.setdefault(element.set, []).append(element)
            self._sets[family, table] = made
        return self._sets[family, table].get(name, [])

    def _rule(self, rule: NftRule, packet: Packet, devices: Devices) -> tuple[int, str]:
        """The rule's verdict, and its target. Raises _No where it does not match or decides nothing, Untold.

        An element with a limit is one that has not reached it.
        """
        registers = bytearray(ROOM)
        for _kind, one in each(rule.expressions):
            parts = attributes(one)
            name, data = string(parts.get(1)), attributes(parts.get(2, b""))
            if name == "payload" and 5 in data:
                _written(registers, data, packet)
            elif name == "payload":
                _store(registers, data, _payload(data, packet))
            elif name == "exthdr":
                _store(registers, data, _extension(data, packet))
            elif name == "meta":
                self._meta(registers, data, packet, devices)
            elif name == "cmp":
                _compare(registers, data)
            elif name == "bitwise":
                _mask(registers, data)
            elif name == "lookup":
                self._lookup(rule, registers, data)
            elif name == "immediate" and _u32(data, 1) == VERDICT_REGISTER:
                told = attributes(attributes(data.get(2, b"")).get(2, b""))
                code = _u32(told, 1)
                return code - (1 << 32 if code >> 31 else 0), string(told.get(2))
            elif name not in SILENT:
                raise Untold(f'it has the expression "{name}"')
        raise _No

    def _meta(self, registers: bytearray, data: Mapping[int, bytes], packet: Packet, devices: Devices) -> None:
        """What is known of the frame beside its bytes: read, or with a source register (3) set, which only the mark is here."""
        key = _u32(data, 2)
        if key == META_MARK and 3 in data:
            start = _place(_u32(data, 3))
            self.mark = int.from_bytes(registers[start : start + 4], byteorder)
        elif key == META_MARK:
            _store(registers, data, self.mark.to_bytes(4, byteorder))
        elif 3 in data:
            raise Untold(f"it sets what is known beside the frame (meta {key})")
        else:
            _store(registers, data, _meta(key, packet, devices))

    def _lookup(self, rule: NftRule, registers: bytearray, data: Mapping[int, bytes]) -> None:
        if 3 in data:
            raise Untold("it looks into a map")
        start = _place(_u32(data, 2))
        elements = self._elements(rule.family, rule.table, string(data.get(1)))
        within = any(_holds(element, bytes(registers[start : start + len(element.key)])) for element in elements)
        if within == bool(_u32(data, 5)):
            raise _No


def _u32(data: Mapping[int, bytes], kind: int) -> int:
    return int.from_bytes(data.get(kind, b""), "big")


def _place(register: int) -> int:
    """Where a register lies among the bytes of all."""
    return (register - NEW) * 4 if register >= NEW else (register - 1) * OLD


def _store(registers: bytearray, data: Mapping[int, bytes], value: bytes) -> None:
    """The register of a load; the last four bytes are filled up with zeros."""
    start = _place(_u32(data, 1))
    padded = value + bytes(-len(value) % 4)
    registers[start : start + len(padded)] = padded


def _payload(data: Mapping[int, bytes], packet: Packet) -> bytes:
    base, offset, length = (_u32(data, kind) for kind in (2, 3, 4))
    whole = {LINK_HEADER: packet.link, NETWORK_HEADER: packet.network, TRANSPORT_HEADER: packet.transport}.get(base)
    if base not in (LINK_HEADER, NETWORK_HEADER, TRANSPORT_HEADER):
        raise Untold("it looks beyond the headers")
    found = b"" if whole is None else whole[offset : offset + length]
    if len(found) < length:
        raise _No
    return found


def _written(registers: bytearray, data: Mapping[int, bytes], packet: Packet) -> None:
    """Pass over a register that is written over the same bytes (the delivery rule does it). Raises Untold where the frame changes."""
    start = _place(_u32(data, 5))
    there = _payload(data, packet)
    if bytes(registers[start : start + len(there)]) != there:
        raise Untold("it changes the frame")


def _extension(data: Mapping[int, bytes], packet: Packet) -> bytes:
    if _u32(data, 6) or 7 in data:
        raise Untold("it looks for an option of TCP, IP or SCTP")
    start = packet.extension(data.get(2, b"\0")[0])
    if _u32(data, 5):
        return bytes((start is not None,))
    offset, length = _u32(data, 3), _u32(data, 4)
    found = b"" if start is None else packet.network[start + offset : start + offset + length]
    if len(found) < length:
        raise _No
    return found


def _meta(key: int, packet: Packet, devices: Devices) -> bytes:
    if key == META_PROTOCOL:
        return packet.protocol.to_bytes(2, "big")
    if key in (META_IIF, META_OIF):
        return (devices.into if key == META_IIF else devices.out).to_bytes(4, byteorder)
    if key == META_L4PROTO:
        if packet.upper is None:
            raise _No
        return bytes((packet.upper,))
    raise Untold(f"it asks for what is known beside the frame (meta {key})")


def _compare(registers: bytearray, data: Mapping[int, bytes]) -> None:
    value, start = attributes(data.get(3, b"")).get(1, b""), _place(_u32(data, 1))
    there = bytes(registers[start : start + len(value)])
    holds = {
        EQUAL: there == value,
        DIFFERENT: there != value,
        LESS: there < value,
        LESS_EQUAL: there <= value,
        GREATER: there > value,
        GREATER_EQUAL: there >= value,
    }.get(_u32(data, 2))
    if holds is None:
        raise Untold("it compares in a way that is not known here")
    if not holds:
        raise _No


def _mask(registers: bytearray, data: Mapping[int, bytes]) -> None:
    if _u32(data, 6):
        raise Untold("it shifts bits")
    source, length = _place(_u32(data, 1)), _u32(data, 3)
    mask, flip = (attributes(data.get(kind, b"")).get(1, b"") for kind in (4, 5))
    if not len(mask) == len(flip) == length:
        raise MalformedError("a mask of another length")
    made = bytes(value & kept ^ turned for value, kept, turned in zip(registers[source : source + length], mask, flip, strict=True))
    _store(registers, {1: data[2]}, made)


def _holds(element: NftElement, key: bytes) -> bool:
    """Whether the key is the element's, or within its range: field by field, each of four bytes or the one behind the device's index."""
    if not element.end:
        return element.key == key
    return element.key[:4] <= key[:4] <= element.end[:4] and element.key[4:] <= key[4:] <= element.end[4:]
