"""Decode what nf_tables tells into the values of netcommon.host.api.nftables. Each takes a message's body; all raise MalformedError."""

from __future__ import annotations

from netcommon.host.api.nftables import NO_HOOK, NftChain, NftElement, NftRule, NftTable
from netcommon.host.nftables.encode import (
    ACCEPT_POLICY,
    CHAIN_HOOK,
    CHAIN_NAME,
    CHAIN_POLICY,
    CHAIN_TABLE,
    CHAIN_USE,
    CHAIN_USERDATA,
    COMMENT,
    ELEMENT_EXPRESSION,
    ELEMENT_EXPRESSIONS,
    ELEMENT_KEY,
    ELEMENT_KEY_END,
    ELEMENT_VALUE,
    ELEMENTS_LIST,
    ELEMENTS_SET,
    ELEMENTS_TABLE,
    GENERIC,
    HOOK_DEVICE,
    HOOK_NUMBER,
    HOOK_PRIORITY,
    LIMIT_BURST,
    LIMIT_FLAGS,
    LIMIT_KIND,
    LIMIT_RATE,
    LIMIT_UNIT,
    MINUTE,
    RULE_CHAIN,
    RULE_EXPRESSIONS,
    RULE_TABLE,
    SET_EXPRESSION,
    SET_EXPRESSIONS,
    SET_NAME,
    SET_TABLE,
    TABLE_FLAGS,
    TABLE_NAME,
    TABLE_USERDATA,
    be32,
)
from netcommon.host.rtnetlink.attributes import MalformedError, attributes, each, string
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOOK_DEVICES = 4
DEVICE_PREFIX = 2  #: among those of HOOK_DEVICES, where others are names (Linux 6.16)
DORMANT = 1  #: NFT_TABLE_F_DORMANT: its base chains are not hooked
COUNTER_PACKETS = 2


def _comment(data: bytes | None) -> str:
    """The comment among nft's user data: entries of a type, a length and that many bytes."""
    offset, data = 0, data or b""
    while offset + 2 <= len(data):
        kind, length = data[offset], data[offset + 1]
        if kind == COMMENT:
            return string(data[offset + 2 : offset + 2 + length])
        offset += 2 + length
    return ""


def _parts(body: bytes) -> tuple[int, dict[int, bytes]]:
    """The family that a message is about, and its attributes."""
    if len(body) < GENERIC.size:
        raise MalformedError("a message shorter than its header")
    return body[0], attributes(body, GENERIC.size)


def table(body: bytes) -> NftTable:
    """NFT_MSG_NEWTABLE."""
    family, found = _parts(body)
    dormant = bool(be32(found.get(TABLE_FLAGS)) & DORMANT)
    return NftTable(family, string(found.get(TABLE_NAME)), _comment(found.get(TABLE_USERDATA)), dormant)


def chain(body: bytes) -> NftChain:
    """NFT_MSG_NEWCHAIN."""
    family, found = _parts(body)
    place, empty = (string(found.get(CHAIN_TABLE)), string(found.get(CHAIN_NAME))), be32(found.get(CHAIN_USE), 1) == 0
    made = NftChain(family, *place, comment=_comment(found.get(CHAIN_USERDATA)), empty=empty)
    if CHAIN_HOOK not in found:
        return made
    hook = attributes(found[CHAIN_HOOK])
    listed = [string(name) + "*" * (kind == DEVICE_PREFIX) for kind, name in each(hook.get(HOOK_DEVICES, b""))]
    device = string(hook.get(HOOK_DEVICE)) or (listed[0] if listed else "")
    priority = be32(hook.get(HOOK_PRIORITY))
    made = made._replace(hook=be32(hook.get(HOOK_NUMBER), NO_HOOK), priority=priority - (1 << 32 if priority >> 31 else 0), device=device)
    if len(listed) > 1:
        made = made._replace(others=tuple(listed[1:]))
    return made._replace(drops=be32(found.get(CHAIN_POLICY), ACCEPT_POLICY) != ACCEPT_POLICY)


def rule(body: bytes) -> NftRule:
    """NFT_MSG_NEWRULE."""
    family, found = _parts(body)
    return NftRule(family, string(found.get(RULE_TABLE)), string(found.get(RULE_CHAIN)), found.get(RULE_EXPRESSIONS, b""))


def set_name(body: bytes) -> tuple[str, str]:
    """NFT_MSG_NEWSET: its table and its name."""
    _, found = _parts(body)
    return string(found.get(SET_TABLE)), string(found.get(SET_NAME))


def set_statements(body: bytes) -> tuple[str, list[str]]:
    """NFT_MSG_NEWSET: its table, and the names of the statements that it gives its elements (nft(8), SETS): one, or a list of them."""
    _, found = _parts(body)
    told = [found[SET_EXPRESSION]] if SET_EXPRESSION in found else []
    told += [one for _, one in each(found.get(SET_EXPRESSIONS, b""))]
    return string(found.get(SET_TABLE)), [string(attributes(one).get(1)) for one in told]


def elements(body: bytes) -> Iterator[NftElement]:
    """NFT_MSG_NEWSETELEM, without an element for all that is in no other (nft(8), "*"): it has no key, and is never ours."""
    family, found = _parts(body)
    place = family, string(found.get(ELEMENTS_TABLE)), string(found.get(ELEMENTS_SET))
    for _, listed in each(found.get(ELEMENTS_LIST, b"")):
        element = attributes(listed)
        if ELEMENT_KEY not in element:
            continue
        key = attributes(element[ELEMENT_KEY]).get(1, b"")
        end = attributes(element.get(ELEMENT_KEY_END, b"")).get(1, b"")
        value = attributes(element.get(ELEMENT_VALUE, b"")).get(1, b"")
        name, state = _state(element)
        packets = int.from_bytes(state.get(COUNTER_PACKETS, b""), "big") if name == "counter" else 0
        limit = _limit(state) if name == "limit" else 0
        yield NftElement(*place, key, end, packets, value, limit)


def _limit(state: dict[int, bytes]) -> int:
    """So many packets in a minute and at once; -1 for any other limit."""
    rate, unit = (int.from_bytes(state.get(kind, b""), "big") for kind in (LIMIT_RATE, LIMIT_UNIT))
    usual = unit == MINUTE and be32(state.get(LIMIT_BURST)) == rate and not (be32(state.get(LIMIT_KIND)) or be32(state.get(LIMIT_FLAGS)))
    return rate if usual else -1


def _state(element: dict[int, bytes]) -> tuple[str, dict[int, bytes]]:
    """The name and the attributes of the expression that an element carries, of several the first; "" where it carries none."""
    stored = element.get(ELEMENT_EXPRESSION)
    if stored is None:
        stored = attributes(element.get(ELEMENT_EXPRESSIONS, b"")).get(1)
    if stored is None:
        return "", {}
    expression = attributes(stored)
    return string(expression.get(1)), attributes(expression.get(2, b""))
