"""Rules in the words of nft(8): tables of ours, made and made again in one transaction; what is in their set stays."""

from __future__ import annotations

import pytest

from netcommon.host.api.nftables import BRIDGE, INET, Clear, Drop, NftChain, NftElement, NftTable, Put, Step
from netcommon.host.api.requests import LoadRules, NftChange
from netcommon.host.nftables.profile_table import MADE, OWN, fingerprint
from tests.contract.worlds import World, do, view

RULES = ("meta l4proto icmp accept", "tcp dport { 22, 80 } accept", "counter drop")
NAME = "netcommon-fw-x"
FAMILIES = pytest.mark.parametrize("family", [INET, BRIDGE], ids=["inet", "bridge"])
HOOKED = {INET: ["forward"], BRIDGE: ["forward", "output"]}


def note(world: World, family: int) -> str:
    made = view(world).nft_chain(family, NAME, MADE)
    assert made is not None
    return made.comment


@FAMILIES
def test_loaded_twice(world: World, family: int) -> None:
    member = NftElement(family, NAME, "nics", (4711).to_bytes(4, "little"))
    assert do(world, LoadRules(family, NAME, RULES), NftChange("member", (Put(member),))) == [0, 0]
    table = view(world).nft_table(family, NAME)
    assert table is not None and table.ours
    assert sorted(rule.chain for rule in view(world).nft_rules(family, NAME)) == [*HOOKED[family], *["rules"] * 3]
    assert do(world, LoadRules(family, NAME, RULES[:1])) == [0]
    assert sorted(rule.chain for rule in view(world).nft_rules(family, NAME)) == [*HOOKED[family], "rules"]
    assert [found for found in view(world).nft_elements(family, NAME) if found.set == "nics"] == [member]
    others = [table.name for table in view(world).nft_tables(INET + BRIDGE - family)]
    assert others == ([NAME + OWN] if family == BRIDGE else [])
    assert do(world, NftChange("table", (Drop(NftTable(family, NAME)),))) == [0]
    assert view(world).nft_table(family, NAME) is None
    assert view(world).nft_rules(family, NAME) == [] and list(view(world).nft_elements(family, NAME)) == []


@FAMILIES
def test_the_fingerprint(world: World, family: int) -> None:
    """It is noted, tells the same rules from others, and does not hang on who is a member."""
    assert do(world, LoadRules(family, NAME, RULES)) == [0]
    first = note(world, family)
    assert len(first) == 32 and first == fingerprint(view(world), family, NAME)
    member = NftElement(family, NAME, "nics", (4711).to_bytes(4, "little"))
    assert do(world, NftChange("member", (Put(member),))) == [0]
    assert fingerprint(view(world), family, NAME) == first
    changes: list[tuple[Step, ...]] = [(Clear(NftChain(family, NAME, chain)),) for chain in ("rules", *HOOKED[family])]
    changes.append((Put(NftChain(family, NAME, "late", 2, 5)),))
    if family == BRIDGE:
        changes += [(Clear(NftChain(INET, NAME + OWN, "own")),), (Drop(NftTable(INET, NAME + OWN)),)]
    for steps in changes:
        assert do(world, NftChange("by hand", steps)) == [0]
        assert fingerprint(view(world), family, NAME) != first, steps
        drop = NftChange("put back", (Drop(NftChain(family, NAME, "late")),))
        assert do(world, drop, LoadRules(family, NAME, RULES)) == [0, 0]
        assert note(world, family) == fingerprint(view(world), family, NAME) == first
    assert do(world, LoadRules(family, NAME, RULES[1:])) == [0]
    assert note(world, family) == fingerprint(view(world), family, NAME) != first


@FAMILIES
def test_a_hook_of_another_kind_is_put_back(world: World, family: int) -> None:
    assert do(world, LoadRules(family, NAME, RULES)) == [0]
    first = note(world, family)
    chain = NftChain(family, NAME, "forward")
    assert do(world, NftChange("by hand", (Drop(chain), Put(chain._replace(hook=1, priority=5))))) == [0]
    assert fingerprint(view(world), family, NAME) != first
    assert do(world, LoadRules(family, NAME, RULES)) == [0]
    assert fingerprint(view(world), family, NAME) == first
