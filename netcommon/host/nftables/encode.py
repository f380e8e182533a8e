"""Steps on nftables as nfnetlink messages, and questions to it.

Held against pyroute2 in tests/unit/netcommon/host/nftables/test_encode.py.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.nftables import IFINDEX_TYPE, Clear, NftChain, NftElement, NftRule, NftSet, NftTable, Put
from netcommon.host.nftables.expressions import BE32, BE64, nest, number, word
from netcommon.host.rtnetlink.attributes import NLM_F_CREATE, Encoded, as_bytes, attribute
from runtime.typed import TYPE_CHECKING, lru_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.nftables import Step

GENERIC = Struct(">BBH")  #: struct nfgenmsg: family, version, resource
SUBSYSTEM = 10  #: NFNL_SUBSYS_NFTABLES
BATCH_BEGIN, BATCH_END = 16, 17
(NEWTABLE, GETTABLE, DELTABLE, NEWCHAIN, GETCHAIN, DELCHAIN, NEWRULE, GETRULE, DELRULE, NEWSET, GETSET, DELSET) = range(12)
NEWSETELEM, GETSETELEM, DELSETELEM = 12, 13, 14
NLM_F_APPEND = 0x800

TABLE_NAME, TABLE_FLAGS, TABLE_USERDATA = 1, 2, 6
CHAIN_TABLE, CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_USE, CHAIN_TYPE, CHAIN_USERDATA = 1, 3, 4, 5, 6, 7, 12
HOOK_NUMBER, HOOK_PRIORITY, HOOK_DEVICE = 1, 2, 3
RULE_TABLE, RULE_CHAIN, RULE_EXPRESSIONS = 1, 2, 4
SET_TABLE, SET_NAME, SET_FLAGS, SET_KEY_TYPE, SET_KEY_LENGTH, SET_DESCRIPTION, SET_ID = 1, 2, 3, 4, 5, 9, 10
SET_VALUE_TYPE, SET_VALUE_LENGTH, SET_TIMEOUT, SET_USERDATA, SET_EXPRESSION, SET_EXPRESSIONS = 6, 7, 11, 13, 17, 18
ELEMENTS_TABLE, ELEMENTS_SET, ELEMENTS_LIST = 1, 2, 3
ELEMENT_KEY, ELEMENT_VALUE, ELEMENT_KEY_END, ELEMENT_EXPRESSION, ELEMENT_EXPRESSIONS = 1, 2, 10, 7, 11
DESCRIPTION_SIZE, DESCRIPTION_FIELDS, FIELD_LENGTH = 1, 2, 1
LIST_ELEMENT = 1
INTERVAL, MAP, TIMEOUT, BY_RULES, CONCATENATED, WITH_EXPRESSION = 0x4, 0x8, 0x10, 0x20, 0x80, 0x100
ACCEPT_POLICY = 1
COMMENT = 0  #: NFTNL_UDATA_TABLE_COMMENT, NFTNL_UDATA_CHAIN_COMMENT
TYPE_BITS = 6  #: nft(8) packs the types of a key's fields into one number
COUNTER = word(1, "counter") + nest(2, b"")
LIMIT_RATE, LIMIT_UNIT, LIMIT_BURST, LIMIT_KIND, LIMIT_FLAGS = 1, 2, 3, 4, 5
MINUTE = 60  #: seconds
AT_ONCE = 500  #: elements in one message: the attribute around them holds 65 KB
HOST_ORDER = bytes((0, 4, 1, 0, 0, 0))  #: NFTNL_UDATA_SET_KEYBYTEORDER, of four bytes: the host's, as devices' indices have it


def message(kind: int, family: int, body: bytes, flags: int = 0) -> Encoded:
    """A message to nf_tables."""
    return Encoded(SUBSYSTEM << 8 | kind, flags, GENERIC.pack(family, 0, 0) + body)


def bracket(kind: int) -> Encoded:
    """The beginning or the end of a transaction."""
    return Encoded(kind, 0, GENERIC.pack(0, 0, SUBSYSTEM))


def steps(wanted: Sequence[Step]) -> list[tuple[Encoded, int]]:
    """The messages of some steps, each with the position of its step. Neighbouring elements of one set share a message."""
    made: list[tuple[Encoded, int]] = []
    position = 0
    while position < len(wanted):
        each = wanted[position]
        last = position + 1
        if isinstance(each, Put) and isinstance(each.thing, NftElement):
            elements = [each.thing]
            while last < len(wanted) and len(elements) < AT_ONCE and _same_set(each.thing, wanted[last]):
                elements.append(wanted[last].thing)  # type: ignore[union-attr, arg-type]
                last += 1
            made.append((message(NEWSETELEM, each.thing.family, _elements(elements), NLM_F_CREATE), position))
        else:
            made += [(one, position) for one in _messages(each)]
        position = last
    return made


def woken(table: NftTable) -> Encoded:
    """The message that takes the flag "dormant" from a table that is there."""
    return message(NEWTABLE, table.family, word(TABLE_NAME, table.name) + number(TABLE_FLAGS, 0))


def _same_set(first: NftElement, other: Step) -> bool:
    return isinstance(other, Put) and isinstance(other.thing, NftElement) and other.thing[:3] == first[:3]


def _messages(each: Step) -> list[Encoded]:
    if isinstance(each, Clear):
        return [_clear(each.chain)]
    thing = each.thing
    if isinstance(each, Put):
        if isinstance(thing, NftRule):  # as most are
            body = _place(thing.table, thing.chain) + nest(RULE_EXPRESSIONS, thing.expressions)
            return [message(NEWRULE, thing.family, body, NLM_F_CREATE | NLM_F_APPEND)]
        if isinstance(thing, NftTable):
            body = word(TABLE_NAME, thing.name) + number(TABLE_FLAGS, 0) + _comment(TABLE_USERDATA, thing.comment)
            return [message(NEWTABLE, thing.family, body, NLM_F_CREATE)]
        if isinstance(thing, NftChain):
            return [message(NEWCHAIN, thing.family, _chain(thing), NLM_F_CREATE)]
        if isinstance(thing, NftSet):
            return [message(NEWSET, thing.family, _set(thing), NLM_F_CREATE)]
    elif isinstance(thing, NftTable):
        return [message(DELTABLE, thing.family, word(TABLE_NAME, thing.name))]
    elif isinstance(thing, NftChain):
        return [_clear(thing), message(DELCHAIN, thing.family, word(CHAIN_TABLE, thing.table) + word(CHAIN_NAME, thing.name))]
    elif isinstance(thing, NftElement):
        return [message(DELSETELEM, thing.family, _elements([thing]))]
    raise ValueError("not a step on nftables")


def _clear(chain: NftChain) -> Encoded:
    return message(DELRULE, chain.family, _place(chain.table, chain.name))


def _comment(kind: int, text: str) -> bytes:
    if not text:
        return b""
    value = as_bytes(text) + b"\0"
    return attribute(kind, bytes((COMMENT, len(value))) + value)


def _chain(chain: NftChain) -> bytes:
    body = word(CHAIN_TABLE, chain.table) + word(CHAIN_NAME, chain.name)
    if chain.hook >= 0:
        hook = number(HOOK_NUMBER, chain.hook) + number(HOOK_PRIORITY, chain.priority & 0xFFFFFFFF)
        hook += word(HOOK_DEVICE, chain.device) if chain.device else b""
        body += nest(CHAIN_HOOK, hook) + number(CHAIN_POLICY, ACCEPT_POLICY) + word(CHAIN_TYPE, "filter")
    return body + _comment(CHAIN_USERDATA, chain.comment)


def _set(made: NftSet) -> bytes:
    flags = INTERVAL * made.interval | WITH_EXPRESSION * (made.counter or made.limit) | MAP * any(made.value)
    kind = length = 0
    for field, size in made.key:
        kind = kind << TYPE_BITS | field
        length += (size + 3) & ~3
    described = b""
    if len(made.key) > 1 and made.interval:
        flags |= CONCATENATED
        fields = b"".join(nest(LIST_ELEMENT, number(FIELD_LENGTH, (size + 3) & ~3)) for _, size in made.key)
        described = nest(SET_DESCRIPTION, nest(DESCRIPTION_FIELDS, fields))
    if made.timeout:
        flags |= TIMEOUT | BY_RULES
        described = nest(SET_DESCRIPTION, number(DESCRIPTION_SIZE, made.size))
    body = _place(made.table, made.name) + number(SET_FLAGS, flags)
    body += number(SET_KEY_TYPE, kind) + number(SET_KEY_LENGTH, length)
    if any(made.value):
        body += number(SET_VALUE_TYPE, made.value[0]) + number(SET_VALUE_LENGTH, made.value[1])
    body += described + number(SET_ID, 1) + (attribute(SET_TIMEOUT, BE64.pack(made.timeout)) if made.timeout else b"")
    if len(made.key) == 1 and made.key[0][0] == IFINDEX_TYPE:
        body += attribute(SET_USERDATA, HOST_ORDER)
    if made.limit:
        body += nest(SET_EXPRESSION, _limit(1))
    return body + (nest(SET_EXPRESSION, COUNTER) if made.counter else b"")


def _limit(packets: int) -> bytes:
    """The expression that matches so many packets at once, and as many in each minute."""
    rate = attribute(LIMIT_RATE, BE64.pack(packets)) + attribute(LIMIT_UNIT, BE64.pack(MINUTE))
    return word(1, "limit") + nest(2, rate + number(LIMIT_BURST, packets) + number(LIMIT_KIND, 0) + number(LIMIT_FLAGS, 0))


def _elements(elements: Sequence[NftElement]) -> bytes:
    _family, table, name = elements[0][:3]
    listed = b"".join([_element(each) for each in elements])
    return _place(table, name) + nest(ELEMENTS_LIST, listed)


#: So many are kept: the same few for each NIC.
PLACES = 1024


@lru_cache(PLACES)
def _place(table: str, name: str) -> bytes:
    """Encode where a rule, a set or elements belong: RULE_TABLE and RULE_CHAIN, SET_TABLE and SET_NAME, ELEMENTS_TABLE and ELEMENTS_SET."""
    return word(1, table) + word(2, name)


def _element(element: NftElement) -> bytes:
    _family, _table, _set, key, end, _packets, value, limit = element
    if not (end or value or limit or len(key) & 3):  # as most are: what is around the key depends on its length alone
        head = _heads.get(len(key))
        if head is None:
            head = _heads[len(key)] = nest(LIST_ELEMENT, nest(ELEMENT_KEY, attribute(1, key)))[: -len(key) or None]
        return head + key
    body = nest(ELEMENT_KEY, attribute(1, key))
    body += nest(ELEMENT_VALUE, attribute(1, value)) if value else b""
    body += nest(ELEMENT_EXPRESSION, _limit(limit)) if limit else b""
    return nest(LIST_ELEMENT, body + (nest(ELEMENT_KEY_END, attribute(1, end)) if end else b""))


#: By the length of a key: the attributes around it, where an element is a key and nothing else.
_heads: dict[int, bytes] = {}


def get_table(family: int, name: str) -> Encoded:
    return message(GETTABLE, family, word(TABLE_NAME, name))


def get_chain(family: int, table: str, name: str) -> Encoded:
    return message(GETCHAIN, family, word(CHAIN_TABLE, table) + word(CHAIN_NAME, name))


def dump_tables(family: int) -> Encoded:
    return message(GETTABLE, family, b"")


def dump_chains(family: int) -> Encoded:
    """The chains of all of the family's tables: the kernel picks none out."""
    return message(GETCHAIN, family, b"")


def dump_rules(family: int, table: str) -> Encoded:
    return message(GETRULE, family, word(RULE_TABLE, table))


def dump_sets(family: int, table: str) -> Encoded:
    return message(GETSET, family, word(SET_TABLE, table))


def dump_elements(family: int, table: str, name: str) -> Encoded:
    return message(GETSETELEM, family, word(ELEMENTS_TABLE, table) + word(ELEMENTS_SET, name))


def be32(value: bytes | None, default: int = 0) -> int:
    """A number as nfnetlink writes it, ``default`` where it is missing."""
    return default if value is None or len(value) != BE32.size else int(BE32.unpack(value)[0])
