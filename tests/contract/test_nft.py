"""nftables: transactions that are all or nothing, what stays and what goes, and how it is read."""

from __future__ import annotations

import errno
import os

import pytest

from netcommon.host.api.nftables import (
    ARP,
    BRIDGE,
    EGRESS,
    ETHER_TYPE,
    IFINDEX_TYPE,
    INGRESS,
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
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.expressions import (
    ACCEPT,
    DROP,
    GOTO,
    META_IIF,
    META_PROTOCOL,
    NETWORK_HEADER,
    compare,
    kind_of_destination,
    load,
    meta,
    remember,
    verdict,
)
from tests.contract.worlds import LinuxWorld, SimulatedWorld, World, do, told, view

TABLE = NftTable(NETDEV, "netcommon-x", "netcommon a test")
BASE = NftChain(NETDEV, "netcommon-x", "in-5", INGRESS, -300, "tap0", "5d2c0d6e-0000-4000-8000-000000000001")
OUT = BASE._replace(name="out-5", hook=EGRESS, priority=7)
GUARD = NftChain(NETDEV, "netcommon-x", "guard")
SENT = NftRule(NETDEV, "netcommon-x", "in-5", meta(META_PROTOCOL) + compare(b"\x08\x00") + verdict(GOTO, "guard"))
NOTES = meta(META_IIF) + load(NETWORK_HEADER, 12, 4, 1) + remember("asked")
BODIES = (NOTES, kind_of_destination() + compare(b"\2\0\0\0") + verdict(ACCEPT), meta(META_PROTOCOL) + verdict(ACCEPT), verdict(DROP))
RULES = [NftRule(NETDEV, "netcommon-x", "guard", body) for body in BODIES]
INDEX, IPV4 = (IFINDEX_TYPE, 4), (IPV4_TYPE, 4)
PAIRS = NftSet(NETDEV, "netcommon-x", "macs", (INDEX, (ETHER_TYPE, 6)))
RANGES = NftSet(NETDEV, "netcommon-x", "prefixes4", (INDEX, IPV4), interval=True)
COUNTED = NftSet(NETDEV, "netcommon-x", "dropped-mac", (INDEX,), counter=True)
MAP = NftSet(NETDEV, "netcommon-x", "gateways", (INDEX,), value=IPV4)
ASKED = NftSet(NETDEV, "netcommon-x", "asked", (INDEX, IPV4), timeout=600_000, size=100)
SETS = [PAIRS, RANGES, COUNTED, MAP, ASKED]


def key(number: int, rest: bytes = b"") -> bytes:
    return number.to_bytes(4, "little") + rest + bytes(-len(rest) % 4)


def element(there: NftSet, number: int, rest: bytes = b"", end: bytes = b"", value: bytes = b"") -> NftElement:
    return NftElement(NETDEV, there.table, there.name, key(number, rest), key(number, end) if end else b"", 0, value)


ELEMENTS = [
    element(PAIRS, 5, b"\xaa\0\0\0\0\1"),
    element(PAIRS, 6, b"\xaa\0\0\0\0\1"),
    element(RANGES, 5, b"\x0a\1\0\0", b"\x0a\1\0\x0f"),
    element(COUNTED, 5),
    element(MAP, 5, value=b"\x0a\0\0\1"),
    element(ASKED, 5, b"\x0a\0\0\1"),
]
ALL: list[Step] = [*map(Put, [TABLE, *SETS, GUARD, BASE, OUT, SENT, *RULES, *ELEMENTS])]


def change(*steps: Step) -> NftChange:
    return NftChange("a test", steps, "or do without")


def everything(world: World) -> tuple[object, ...]:
    """What is in our table, in an order of its own."""
    now = view(world)
    assert sorted(now.nft_tables(NETDEV)) == sorted(world.host.snapshot().nft_tables(NETDEV))
    chains = sorted(now.nft_chains_of(NETDEV, TABLE.name))
    assert chains == sorted(world.host.snapshot().nft_chains_of(NETDEV, TABLE.name))
    assert chains == sorted(chain for chain in now.nft_chains(NETDEV) if chain.table == TABLE.name)
    rules = sorted(now.nft_rules(NETDEV, TABLE.name), key=lambda rule: rule.chain)
    for chain in chains:
        leads = chain.name.encode() + b"\0"
        assert chain.empty == (not any(rule.chain == chain.name or leads in rule.expressions for rule in rules)), chain
    chains = [chain._replace(empty=False) for chain in chains]
    assert now.nft_set_statements(NETDEV, TABLE.name) == world.host.snapshot().nft_set_statements(NETDEV, TABLE.name)
    return now.nft_table(NETDEV, TABLE.name), chains, rules, sorted(now.nft_elements(NETDEV, TABLE.name))


WHOLE = (TABLE, sorted([BASE, OUT, GUARD]), [*RULES, SENT], sorted(ELEMENTS))
NOTHING: tuple[object, ...] = (None, [], [], [])


@pytest.fixture(params=["memory", "memory by name", "linux", pytest.param("machine", marks=pytest.mark.vm)])
def world(request: pytest.FixtureRequest) -> World:
    """A node with nothing on it, of either kind of kernel."""
    if request.param in ("linux", "machine"):
        return LinuxWorld(request.getfixturevalue("node"))
    made = SimulatedWorld()
    made.host.nftables.by_name = request.param == "memory by name"
    return made


def by_name(world: World) -> bool:
    """Whether a base chain waits for a device of its name (since Linux 6.16)."""
    if isinstance(world, SimulatedWorld):
        return world.host.nftables.by_name
    return tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 16)


@pytest.fixture
def made(tapped: World) -> World:
    """All of it."""
    assert do(tapped, change(*ALL)) == [0]
    return tapped


def test_made_at_once_and_read(made: World) -> None:
    assert everything(made) == WHOLE
    for now in (view(made), made.host.snapshot()):
        assert now.nft_chain(NETDEV, TABLE.name, "in-5") == BASE and now.nft_chain(NETDEV, TABLE.name, "in-6") is None
        assert now.nft_chain(NETDEV, "netcommon-y", "in-5") is None and now.nft_table(NETDEV, "netcommon-y") is None
        assert now.nft_table(ARP, TABLE.name) is None and now.nft_tables(BRIDGE) == [] and now.nft_chains(ARP) == []
        assert now.nft_rules(NETDEV, "netcommon-y") == [] and now.nft_elements(NETDEV, "netcommon-y") == []
        assert now.nft_rules(ARP, TABLE.name) == [] and now.nft_elements(ARP, TABLE.name) == []
        assert sorted(now.nft_elements(NETDEV, TABLE.name)) == sorted(ELEMENTS)
        assert [rule for rule in now.nft_rules(NETDEV, TABLE.name) if rule.chain == "guard"] == RULES


def test_nothing_there(world: World) -> None:
    assert everything(world) == NOTHING
    assert view(world).nft_chain(NETDEV, TABLE.name, "in-5") is None


def test_whose_a_table_is(world: World) -> None:
    others = [NftTable(NETDEV, "a", ""), NftTable(NETDEV, "b", "netcommonly known"), NftTable(ARP, "c", "netcommon"), TABLE]
    assert do(world, change(*map(Put, others))) == [0]
    found = [*view(world).nft_tables(NETDEV), *view(world).nft_tables(ARP)]
    assert sorted(found) == sorted(others) and [table.name for table in sorted(found) if table.ours] == ["c", TABLE.name]


def test_put_twice(made: World) -> None:
    """Everything stays as it is, a comment too; a rule is there twice."""
    again = [each for each in ALL if not isinstance(each, Put) or not isinstance(each.thing, NftRule)]
    assert do(made, change(*again), change(Put(TABLE._replace(comment="theirs")), Put(BASE._replace(comment="theirs")))) == [0, 0]
    assert everything(made) == WHOLE
    assert do(made, change(Put(SENT))) == [0]
    assert [rule for rule in view(made).nft_rules(NETDEV, TABLE.name) if rule.chain == "in-5"] == [SENT, SENT]


REFUSED: dict[str, tuple[Step, int]] = {
    "a hook for a chain without": (Put(GUARD._replace(hook=INGRESS, device="tap0")), errno.EINVAL),
    "a key of another length": (Put(element(PAIRS, 9)), errno.EINVAL),
    "a key of another length to drop": (Drop(element(PAIRS, 9)), errno.EINVAL),
    "another key": (Put(PAIRS._replace(key=(INDEX, IPV4))), errno.EEXIST),
    "another counter": (Put(COUNTED._replace(counter=False)), errno.EEXIST),
    "another value": (Put(element(MAP, 5, value=b"\x0a\0\0\2")), errno.EEXIST),
    "a range that ends in another": (Put(element(RANGES, 5, b"\x0a\0\0\x08", b"\x0a\1\0\x08")), errno.EEXIST),
    "a chain of no table": (Put(GUARD._replace(table="netcommon-y")), errno.ENOENT),
    "a rule of no chain": (Put(RULES[0]._replace(chain="none")), errno.ENOENT),
    "a set of no table": (Put(PAIRS._replace(table="netcommon-y")), errno.ENOENT),
    "an element of no set": (Put(ELEMENTS[0]._replace(set="none")), errno.ENOENT),
    "the rules of no chain": (Clear(GUARD._replace(name="none")), errno.ENOENT),
    "the rules of no table": (Clear(GUARD._replace(table="netcommon-y")), errno.ENOENT),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_and_nothing_changed(made: World, what: str) -> None:
    """Neither what comes before the step that fails nor what comes after it."""
    step, number = REFUSED[what]
    before, after = Put(NftTable(NETDEV, "first")), Put(NftTable(NETDEV, "last"))
    drops = Drop(BASE._replace(name="none")), Drop(OUT), Drop(ELEMENTS[0]), Clear(GUARD)
    said = told(made, change(before, *drops, step, after))
    assert said.errno == number and said.text.startswith("a test: ")
    assert everything(made) == WHOLE and view(made).nft_tables(NETDEV) == [TABLE]


@pytest.mark.parametrize("other", [BASE._replace(hook=EGRESS), BASE._replace(priority=0)], ids=["hook", "priority"])
def test_a_chain_keeps_its_hook(made: World, other: NftChain) -> None:
    """Linux 6.1 takes another one without a word, later ones refuse it, each in its own way: the chain is what it was."""
    assert do(made, change(Put(other)))[0] in (0, errno.EEXIST, errno.EINVAL)
    assert everything(made) == WHOLE
    assert do(made, change(Drop(BASE), Put(other), Put(SENT))) == [0]
    assert everything(made) == (TABLE, sorted([other, OUT, GUARD]), *WHOLE[2:])


def test_ranges(made: World) -> None:
    """Of another device, or beside the one that is there."""
    more = [element(RANGES, 6, b"\x0a\1\0\x08", b"\x0a\1\0\x7f"), element(RANGES, 5, b"\x0a\1\0\x10", b"\x0a\1\0\x1f")]
    assert do(made, change(*map(Put, more))) == [0]
    assert everything(made) == (*WHOLE[:3], sorted([*ELEMENTS, *more]))


def test_a_range_is_dropped_by_its_first_key(made: World) -> None:
    """Or by any that is in it."""
    other = element(RANGES, 5, b"\x0a\1\0\x10", b"\x0a\1\0\x1f")
    assert do(made, change(Put(other), Drop(other._replace(end=b"")), Drop(element(RANGES, 5, b"\x0a\1\0\x07")))) == [0]
    assert everything(made) == (*WHOLE[:3], [each for each in sorted(ELEMENTS) if each.set != RANGES.name])


def test_what_is_gone_is_no_error(made: World) -> None:
    """The rest is done."""
    gone: list[Step] = [Drop(NftTable(NETDEV, "netcommon-y")), Drop(NftTable(BRIDGE, TABLE.name)), Drop(GUARD._replace(name="none"))]
    gone += [Drop(GUARD._replace(table="netcommon-y")), Drop(element(PAIRS, 9, bytes(6))), Drop(ELEMENTS[0]._replace(set="none"))]
    gone += [Drop(ELEMENTS[0]._replace(table="netcommon-y"))]
    assert do(made, change(*gone)) == [0]
    assert everything(made) == WHOLE
    assert do(made, change(gone[0], Drop(ELEMENTS[0]), gone[2], Drop(OUT), gone[4])) == [0]
    assert everything(made) == (TABLE, sorted([BASE, GUARD]), [*RULES, SENT], sorted(ELEMENTS[1:]))
    assert do(made, change(Drop(ELEMENTS[0]), Drop(OUT))) == [0]


def test_a_chain_goes_with_its_rules(made: World) -> None:
    assert do(made, change(Clear(GUARD), Drop(BASE))) == [0]
    assert everything(made) == (TABLE, sorted([OUT, GUARD]), [], sorted(ELEMENTS))


def test_replaced_at_once(made: World) -> None:
    """Gone and there again in one transaction: as new."""
    other = BASE._replace(comment="another", priority=3)
    assert do(made, change(Drop(BASE), Put(other), Put(SENT), Drop(ELEMENTS[2]), Put(ELEMENTS[2]))) == [0]
    assert everything(made) == (TABLE, sorted([other, OUT, GUARD]), [*RULES, SENT], sorted(ELEMENTS))
    assert do(made, change(Drop(TABLE), Put(TABLE), Put(GUARD))) == [0]
    assert everything(made) == (TABLE, [GUARD], [], [])


def test_what_is_in_a_table_goes_with_it(made: World) -> None:
    assert do(made, change(Drop(TABLE)), change(Drop(TABLE))) == [0, 0]
    assert everything(made) == NOTHING
    assert do(made, change(Put(TABLE))) == [0]
    assert everything(made) == (TABLE, [], [], [])


def test_flushed_by_hand(made: World) -> None:
    made.flush_nftables()
    assert everything(made) == NOTHING
    assert do(made, change(*ALL)) == [0]
    assert everything(made) == WHOLE


def test_thousands_of_elements(made: World) -> None:
    """More than one attribute of netlink holds, added and removed: each trunk of all VLANs is as much."""
    many = [element(PAIRS, 7, number.to_bytes(6, "big")) for number in range(4094)]
    assert do(made, change(*map(Put, many))) == [0]
    assert sorted(view(made).nft_elements(NETDEV, TABLE.name)) == sorted([*ELEMENTS, *many])
    assert do(made, change(*map(Drop, many))) == [0]
    assert everything(made) == WHOLE


def test_a_device_that_goes(made: World) -> None:
    """Its base chains go with it, and do not come again with another of its name; or they stay. All else stays."""
    made.remove("tap0")
    left = WHOLE if by_name(made) else (TABLE, [GUARD], RULES, sorted(ELEMENTS))
    assert everything(made) == left
    made.tap("tap0")
    assert everything(made) == left
    assert do(made, change(Drop(BASE), Drop(OUT), Put(BASE), Put(SENT))) == [0]
    assert everything(made) == (TABLE, sorted([BASE, GUARD]), [*RULES, SENT], sorted(ELEMENTS))


def test_a_device_that_is_not_there(made: World) -> None:
    absent = BASE._replace(name="in-9", device="tap9")
    if by_name(made):
        assert do(made, change(Put(absent))) == [0]
        assert everything(made) == (TABLE, sorted([BASE, OUT, GUARD, absent]), *WHOLE[2:])
    else:
        assert told(made, change(Drop(OUT), Put(absent))).errno == errno.ENOENT
        assert everything(made) == WHOLE
