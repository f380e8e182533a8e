"""Messages of nftables: what pyroute2 reads in ours; and what the kernel might write, we read.

What the rules of the spoof guard mean, nft(8) tells in tests/kernel/test_nft_listing.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyroute2.netlink.nfnetlink import nftsocket

from netcommon.host.api.nftables import (
    ARP,
    ARP_OUT,
    EGRESS,
    ETHER_TYPE,
    IFINDEX_TYPE,
    INET,
    IPV4_TYPE,
    NETDEV,
    Clear,
    Drop,
    NftChain,
    NftElement,
    NftRule,
    NftSet,
    NftTable,
    Put,
    Step,
)
from netcommon.host.nftables import decode as nfdecode
from netcommon.host.nftables import encode as nfencode
from netcommon.host.nftables import expressions as nfexpr
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attribute, message

CREATE, APPEND, REQUEST = 0x400, 0x800, 1
CHAIN = NftChain(NETDEV, "t", "out-5", EGRESS, -300, "täp0", "a NIC")
RULE = NftRule(ARP, "t", "c", nfexpr.verdict(nfexpr.DROP))
INDEX, IPV4 = (IFINDEX_TYPE, 4), (IPV4_TYPE, 4)
PAIRS = NftSet(NETDEV, "t", "macs", (INDEX, (ETHER_TYPE, 6)))
RANGES = NftSet(NETDEV, "t", "prefixes4", (INDEX, IPV4), interval=True)
ELEMENT = NftElement(NETDEV, "t", "prefixes4", b"abcd", b"efgh")


def plain(read: Any) -> Any:
    """Names and values, without pyroute2's own."""
    if hasattr(read, "keys") and "attrs" in read:
        return [(name, plain(value)) for name, value in read["attrs"]]
    return [plain(value) for value in read] if isinstance(read, (list, tuple)) else read


def theirs(reader: type, made: Encoded) -> Any:
    """What pyroute2 reads: kind, flags and family, and the attributes."""
    read = reader(message(made.type, made.flags, made.body, 77))
    read.decode()
    assert (read["version"], read["res_id"], read["header"]["length"]) == (0, 0, 16 + len(made.body))
    return read["header"]["type"], read["header"]["flags"], read["nfgen_family"], plain(read)


def only(*steps: Step) -> Encoded:
    ((made, _),) = nfencode.steps(steps)
    return made


TABLE_READ = [("NFTA_TABLE_NAME", "t"), ("NFTA_TABLE_FLAGS", 0), ("NFTA_TABLE_USERDATA", "netcommon x")]
HOOK_READ = [("NFTA_HOOK_HOOKNUM", 1), ("NFTA_HOOK_PRIORITY", -300), ("NFTA_HOOK_DEV", "täp0")]
CHAIN_READ = [("NFTA_CHAIN_TABLE", "t"), ("NFTA_CHAIN_NAME", "out-5"), ("NFTA_CHAIN_HOOK", HOOK_READ), ("NFTA_CHAIN_POLICY", 1)]
CHAIN_READ += [("NFTA_CHAIN_TYPE", "filter"), ("NFTA_CHAIN_USERDATA", "a NIC")]
ARP_READ = [("NFTA_CHAIN_TABLE", "t"), ("NFTA_CHAIN_NAME", "c")]
ARP_READ += [("NFTA_CHAIN_HOOK", [("NFTA_HOOK_HOOKNUM", 1), ("NFTA_HOOK_PRIORITY", 5)])]
ARP_READ += [("NFTA_CHAIN_POLICY", 1), ("NFTA_CHAIN_TYPE", "filter")]
DROP_READ = [("NFTA_IMMEDIATE_DREG", "NFT_REG_VERDICT")]
DROP_READ += [("NFTA_IMMEDIATE_DATA", [("NFTA_DATA_VERDICT", [("NFTA_VERDICT_CODE", "NF_DROP")])])]
RULE_READ = [("NFTA_RULE_TABLE", "t"), ("NFTA_RULE_CHAIN", "c")]
RULE_READ += [("NFTA_RULE_EXPRESSIONS", [[("NFTA_EXPR_NAME", "immediate"), ("NFTA_EXPR_DATA", DROP_READ)]])]
PLACE = [("NFTA_SET_ELEM_LIST_TABLE", "t"), ("NFTA_SET_ELEM_LIST_SET", "prefixes4")]
KEY = ("NFTA_SET_ELEM_KEY", [("NFTA_DATA_VALUE", b"abcd")])
RANGE_READ = [KEY, ("NFTA_SET_ELEM_KEY_END", [("NFTA_DATA_VALUE", b"efgh")])]
MAP_READ = [KEY, ("NFTA_SET_ELEM_DATA", [("NFTA_DATA_VALUE", b"ijkl")])]
T, C, R, S, E = (getattr(nftsocket, f"nft_{name}_msg") for name in ("table", "chain", "rule", "set", "set_elem_list"))

#: The step, and what pyroute2 reads: its class, the number of the message (linux/netfilter/nf_tables.h), flags, family, attributes.
STEPS: list[tuple[Step, type, int, int, int, Any]] = [
    (Put(NftTable(NETDEV, "t", "netcommon x")), T, 0, CREATE, NETDEV, TABLE_READ),
    (Put(NftTable(INET, "t")), T, 0, CREATE, INET, TABLE_READ[:2]),
    (Drop(NftTable(NETDEV, "t")), T, 2, 0, NETDEV, TABLE_READ[:1]),
    (Put(CHAIN), C, 3, CREATE, NETDEV, CHAIN_READ),
    (Put(NftChain(NETDEV, "t", "c")), C, 3, CREATE, NETDEV, [("NFTA_CHAIN_TABLE", "t"), ("NFTA_CHAIN_NAME", "c")]),
    (Put(NftChain(ARP, "t", "c", ARP_OUT, 5)), C, 3, CREATE, ARP, ARP_READ),
    (Put(RULE), R, 6, CREATE | APPEND, ARP, RULE_READ),
    (Clear(CHAIN), R, 8, 0, NETDEV, [("NFTA_RULE_TABLE", "t"), ("NFTA_RULE_CHAIN", "out-5")]),
    (Put(ELEMENT), E, 12, CREATE, NETDEV, [*PLACE, ("NFTA_SET_ELEM_LIST_ELEMENTS", [RANGE_READ])]),
    (Put(ELEMENT._replace(end=b"", value=b"ijkl")), E, 12, CREATE, NETDEV, [*PLACE, ("NFTA_SET_ELEM_LIST_ELEMENTS", [MAP_READ])]),
    (Drop(ELEMENT), E, 14, 0, NETDEV, [*PLACE, ("NFTA_SET_ELEM_LIST_ELEMENTS", [RANGE_READ])]),
]


@pytest.mark.parametrize(("step", "reader", "kind", "flags", "family", "expected"), STEPS)
def test_their_reading_of_a_step(step: Step, reader: type, kind: int, flags: int, family: int, expected: Any) -> None:
    assert theirs(reader, only(step)) == (10 << 8 | kind, flags | REQUEST, family, expected)


def test_a_chain_is_dropped_with_its_rules() -> None:
    cleared, dropped = (made for made, position in nfencode.steps([Drop(CHAIN)]) if position == 0)
    assert cleared == only(Clear(CHAIN))
    assert theirs(C, dropped) == (10 << 8 | 5, REQUEST, NETDEV, CHAIN_READ[:2])


def test_neighbouring_elements_share_a_message() -> None:
    others = [ELEMENT._replace(key=number.to_bytes(4, "big")) for number in range(1200)]
    made = nfencode.steps([*map(Put, others[:700]), Put(ELEMENT._replace(set="other")), *map(Put, others[700:])])
    counts = [len(dict(theirs(E, each)[3])["NFTA_SET_ELEM_LIST_ELEMENTS"]) for each, _ in made]
    assert counts == [500, 200, 1, 500] and [position for _, position in made] == [0, 500, 700, 701]


NAMES = {"NFTA_SET_TABLE": "t", "NFTA_SET_ID": 1}
ONE = {"NFTA_SET_KEY_TYPE": 20, "NFTA_SET_KEY_LEN": 4, "NFTA_SET_USERDATA": [["NFTNL_UDATA_SET_KEYBYTEORDER", b"\1\0\0\0"]]}
COUNTER = [("NFTA_EXPR_NAME", "counter"), ("NFTA_EXPR_DATA", [])]
NO_FLAGS = frozenset[str]()
SETS: list[tuple[NftSet, dict[str, Any]]] = [
    (PAIRS, {"NFTA_SET_NAME": "macs", "NFTA_SET_FLAGS": NO_FLAGS, "NFTA_SET_KEY_TYPE": 20 << 6 | 9, "NFTA_SET_KEY_LEN": 12}),
    (NftSet(NETDEV, "t", "n", (IPV4,)), {"NFTA_SET_NAME": "n", "NFTA_SET_FLAGS": NO_FLAGS, "NFTA_SET_KEY_TYPE": 7, "NFTA_SET_KEY_LEN": 4}),
    (
        NftSet(NETDEV, "t", "m", (INDEX,), value=IPV4),
        {"NFTA_SET_NAME": "m", "NFTA_SET_FLAGS": frozenset({"NFT_SET_MAP"}), "NFTA_SET_DATA_TYPE": 7, "NFTA_SET_DATA_LEN": 4, **ONE},
    ),
    (
        NftSet(NETDEV, "t", "a", (IPV4,), timeout=60_000, size=100),
        {
            "NFTA_SET_NAME": "a",
            "NFTA_SET_FLAGS": frozenset({"NFT_SET_TIMEOUT", "NFT_SET_EVAL"}),
            "NFTA_SET_KEY_TYPE": 7,
            "NFTA_SET_KEY_LEN": 4,
            "NFTA_SET_DESC": [("NFTA_SET_DESC_SIZE", 100)],
            "NFTA_SET_TIMEOUT": 60_000,
        },
    ),
    (NftSet(NETDEV, "t", "c", (INDEX,), counter=True), {"NFTA_SET_NAME": "c", "NFTA_SET_EXPR": COUNTER, "NFTA_SET_FLAGS": NO_FLAGS, **ONE}),
]


@pytest.mark.parametrize(("made", "expected"), SETS)
def test_their_reading_of_a_set(made: NftSet, expected: dict[str, Any]) -> None:
    """pyroute2 does not know the flag of a set with expressions (NFT_SET_EXPR, 0x100)."""
    kind, flags, family, found = theirs(S, only(Put(made)))
    assert (kind, flags, family, dict(found)) == (10 << 8 | 9, CREATE | REQUEST, NETDEV, {**NAMES, **expected})
    assert (attribute(3, b"\0\0\1\0") in only(Put(made)).body) == made.counter


def test_a_set_of_ranges() -> None:
    """By hand: pyroute2 does not come to an end with the list of fields (NFTA_SET_DESC_CONCAT)."""
    field = "0c000100 08000100 00000004"
    expected = "05000000 06000100 74000000 0e000200 70726566 69786573 34000000 08000300 00000084 08000400 00000507 08000500 00000008"
    expected += f"20000900 1c000200 {field} {field} 08000a00 00000001"
    assert only(Put(RANGES)) == Encoded(10 << 8 | 9, CREATE, bytes.fromhex(expected))


FIRST, SECOND, THIRD = "NFT_REG_1", "NFT_REG32_01", "NFT_REG32_02"
NO_XOR = [("NFTA_DATA_VALUE", b"\0\0")]
EXPRESSIONS: list[tuple[bytes, str, dict[str, Any]]] = [
    (nfexpr.load(0, 12, 2), "payload", {"DREG": FIRST, "BASE": "NFT_PAYLOAD_LL_HEADER", "OFFSET": 12, "LEN": 2}),
    (nfexpr.load(1, 8, 16, 1), "payload", {"DREG": SECOND, "BASE": "NFT_PAYLOAD_NETWORK_HEADER", "OFFSET": 8, "LEN": 16}),
    (nfexpr.load(2, 0, 1, 2), "payload", {"DREG": THIRD, "BASE": "NFT_PAYLOAD_TRANSPORT_HEADER", "OFFSET": 0, "LEN": 1}),
    (
        nfexpr.store(1, 14, 4, 1),
        "payload",
        {
            "SREG": SECOND,
            "BASE": "NFT_PAYLOAD_NETWORK_HEADER",
            "OFFSET": 14,
            "LEN": 4,
            "CSUM_TYPE": "NFT_PAYLOAD_CSUM_NONE",
            "CSUM_OFFSET": 0,
            "CSUM_FLAGS": NO_FLAGS,
        },
    ),
    (
        nfexpr.extension(44, 2, 2),
        "exthdr",
        {"DREG": FIRST, "TYPE": 44, "OFFSET": 2, "LEN": 2, "FLAGS": NO_FLAGS, "OP": "NFT_EXTHDR_OP_IPV6"},
    ),
    (nfexpr.meta(nfexpr.META_PROTOCOL), "meta", {"DREG": FIRST, "KEY": "NFT_META_PROTOCOL"}),
    (nfexpr.meta(nfexpr.META_IIF), "meta", {"DREG": FIRST, "KEY": "NFT_META_IIF"}),
    (nfexpr.meta(nfexpr.META_OIF, 1), "meta", {"DREG": SECOND, "KEY": "NFT_META_OIF"}),
    (nfexpr.meta(nfexpr.META_L4PROTO), "meta", {"DREG": FIRST, "KEY": "NFT_META_L4PROTO"}),
    *(
        (nfexpr.compare(b"ab", number, 1), "cmp", {"SREG": SECOND, "OP": f"NFT_CMP_{name}", "DATA": [("NFTA_DATA_VALUE", b"ab")]})
        for number, name in (
            (nfexpr.EQUAL, "EQ"),
            (nfexpr.DIFFERENT, "NEQ"),
            (nfexpr.LESS, "LT"),
            (nfexpr.LESS_EQUAL, "LTE"),
            (nfexpr.GREATER, "GT"),
            (nfexpr.GREATER_EQUAL, "GTE"),
        )
    ),
    (
        nfexpr.mask(b"\x0f\xff", 1),
        "bitwise",
        {"SREG": SECOND, "DREG": SECOND, "LEN": 2, "OP": "NFT_BITWISE_BOOL", "MASK": [("NFTA_DATA_VALUE", b"\x0f\xff")], "XOR": NO_XOR},
    ),
    (nfexpr.within("macs"), "lookup", {"SET": "macs", "SREG": FIRST, "FLAGS": NO_FLAGS}),
    (nfexpr.within("macs", True, 1), "lookup", {"SET": "macs", "SREG": SECOND, "FLAGS": frozenset({"NFT_LOOKUP_F_INV"})}),
    (nfexpr.found("m", 1), "lookup", {"SET": "m", "SREG": FIRST, "DREG": SECOND, "FLAGS": NO_FLAGS}),
    (nfexpr.immediate(b"abcd", 1), "immediate", {"DREG": SECOND, "DATA": [("NFTA_DATA_VALUE", b"abcd")]}),
    *(
        (
            nfexpr.verdict(number, chain),
            "immediate",
            {
                "DREG": "NFT_REG_VERDICT",
                "DATA": [
                    (
                        "NFTA_DATA_VERDICT",
                        [("NFTA_VERDICT_CODE", name), *([("NFTA_VERDICT_CHAIN", chain)] if chain else [])],
                    )
                ],
            },
        )
        for number, name, chain in (
            (nfexpr.ACCEPT, "NF_ACCEPT", ""),
            (nfexpr.RETURN, "NFT_RETURN", ""),
            (nfexpr.JUMP, "NFT_JUMP", "guard"),
            (nfexpr.GOTO, "NFT_GOTO", "guard"),
        )
    ),
]


@pytest.mark.parametrize(("made", "name", "expected"), EXPRESSIONS)
def test_their_reading_of_an_expression(made: bytes, name: str, expected: dict[str, Any]) -> None:
    read = theirs(R, only(Put(RULE._replace(expressions=made))))[3]
    ((named, (_, data)),) = dict(read)["NFTA_RULE_EXPRESSIONS"]
    assert named == ("NFTA_EXPR_NAME", name)
    assert {attr.split("_", 2)[2]: value for attr, value in data} == expected


def test_brackets_of_a_transaction() -> None:
    """Their resource is the subsystem, in network order (linux/netfilter/nfnetlink.h)."""
    assert [nfencode.bracket(kind) for kind in (16, 17)] == [Encoded(16, 0, b"\0\0\0\x0a"), Encoded(17, 0, b"\0\0\0\x0a")]


QUESTIONS = [
    (nfencode.get_table(NETDEV, "t"), T, 1, TABLE_READ[:1]),
    (nfencode.dump_tables(NETDEV), T, 1, []),
    (nfencode.get_chain(NETDEV, "t", "out-5"), C, 4, CHAIN_READ[:2]),
    (nfencode.dump_chains(NETDEV), C, 4, []),
    (nfencode.dump_rules(NETDEV, "t"), R, 7, RULE_READ[:1]),
    (nfencode.dump_sets(NETDEV, "t"), S, 10, [("NFTA_SET_TABLE", "t")]),
    (nfencode.dump_elements(NETDEV, "t", "prefixes4"), E, 13, PLACE),
]


@pytest.mark.parametrize(("made", "reader", "kind", "expected"), QUESTIONS)
def test_their_reading_of_a_question(made: Encoded, reader: type, kind: int, expected: Any) -> None:
    assert theirs(reader, made) == (10 << 8 | kind, REQUEST, NETDEV, expected)


def test_what_we_send_we_read() -> None:
    for table in (NftTable(NETDEV, "t", "netcommon ä"), NftTable(NETDEV, "t")):
        assert nfdecode.table(only(Put(table)).body) == table
    for chain in (CHAIN, CHAIN._replace(hook=-1, priority=0, device=""), NftChain(ARP, "t", "c", ARP_OUT, 5)):
        assert nfdecode.chain(only(Put(chain)).body) == chain
    assert nfdecode.rule(only(Put(RULE)).body) == RULE and nfdecode.set_name(only(Put(RANGES)).body) == ("t", "prefixes4")
    several = [ELEMENT, ELEMENT._replace(end=b"", value=b"ijkl")]
    assert list(nfdecode.elements(only(*map(Put, several)).body)) == several


def counted(kind: int, packets: int, name: str = "counter") -> bytes:
    """An element as the kernel tells it, its counter in the attribute ``kind``."""
    values = nfexpr.nest(2, attribute(1, bytes(8)) + attribute(2, packets.to_bytes(8, "big")))
    expression = nfexpr.word(1, name) + values
    stored = attribute(7, expression) if kind == 7 else attribute(11, attribute(1, expression))
    body = attribute(1, attribute(1, attribute(1, b"abcd")) + stored)
    return bytes((NETDEV, 0, 0, 0)) + nfexpr.word(1, "t") + nfexpr.word(2, "c") + attribute(3, body)


@pytest.mark.parametrize("kind", [7, 11])
def test_counters(kind: int) -> None:
    """One expression, or a list of them, of which the counter is the first."""
    ((element),) = nfdecode.elements(counted(kind, 1 << 40))
    assert element == NftElement(NETDEV, "t", "c", b"abcd", packets=1 << 40)
    ((element),) = nfdecode.elements(counted(kind, 7, "quota"))
    assert element.packets == 0


def test_several_devices() -> None:
    """A chain of somebody else's may have a list of them (NFTA_HOOK_DEVS)."""
    devices = attribute(4, nfexpr.word(1, "tap0"))
    hook = attribute(4, nfexpr.number(1, 0) + nfexpr.number(2, 0xFFFFFFFF) + devices)
    body = bytes((NETDEV, 0, 0, 0)) + nfexpr.word(1, "t") + nfexpr.word(3, "c") + hook
    assert nfdecode.chain(body) == NftChain(NETDEV, "t", "c", 0, -1, "tap0")


def test_nonsense() -> None:
    body = only(Put(CHAIN)).body
    for cut in (body[:5] + b"\xff" + body[6:], body[:-3]):
        with pytest.raises(MalformedError):
            nfdecode.chain(cut)
    assert nfdecode.table(bytes((NETDEV, 0, 0, 0)) + nfexpr.word(1, "t") + attribute(6, b"\1\2ab\0\x09z")).comment == "z"
    assert nfdecode.table(bytes((NETDEV, 0, 0, 0)) + attribute(6, b"\1")) == NftTable(NETDEV, "", "")
