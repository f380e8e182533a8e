"""Rules in the words of nft(8): a table of ours, made and made again in one transaction; what is in its set stays."""

from __future__ import annotations

import pytest

from netcommon.host.nftables import BRIDGE, INET, Drop, NftElement, NftTable, Put
from netcommon.host.requests import NftChange
from netcommon.host.requests_rules import LoadRules
from tests.contract.worlds import World, do, view

RULES = ("meta l4proto icmp accept", "tcp dport { 22, 80 } accept", "counter drop")


@pytest.mark.parametrize("family", [INET, BRIDGE], ids=["inet", "bridge"])
def test_loaded_twice(world: World, family: int) -> None:
    member = NftElement(family, "netcommon-fw-x", "nics", b"tap0" + bytes(12))
    assert do(world, LoadRules(family, "netcommon-fw-x", RULES), NftChange("member", (Put(member),))) == [0, 0]
    table = view(world).nft_table(family, "netcommon-fw-x")
    assert table is not None and table.ours
    assert [rule.chain for rule in view(world).nft_rules(family, "netcommon-fw-x")] == ["rules"] * 3 + ["forward"]
    assert do(world, LoadRules(family, "netcommon-fw-x", RULES[:1])) == [0]
    assert sorted(rule.chain for rule in view(world).nft_rules(family, "netcommon-fw-x")) == ["forward", "rules"]
    assert [found._replace(packets=0) for found in view(world).nft_elements(family, "netcommon-fw-x")] == [member]
    assert view(world).nft_tables(INET + BRIDGE - family) == []
    assert do(world, NftChange("table", (Drop(NftTable(family, "netcommon-fw-x")),))) == [0]
    assert view(world).nft_table(family, "netcommon-fw-x") is None
    assert view(world).nft_rules(family, "netcommon-fw-x") == [] and view(world).nft_elements(family, "netcommon-fw-x") == []
