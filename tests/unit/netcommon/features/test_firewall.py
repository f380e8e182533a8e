"""Firewall profiles on a simulated node: never open while they change, whose is what, and what makes a fingerprint."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.nftables import BRIDGE, INET, Drop, NftChain, NftElement, NftRule, NftTable, Put
from netcommon.host.api.requests import NftChange, Request
from netcommon.host.nftables.expressions import expression, number
from netcommon.host.nftables.profile_table import LEARNED, MEMBERS, RULES, UNTRACKED, fingerprint_of, layouts
from netcommon.lifecycle.check import check, repair
from netcommon.operations import kind as kind_of
from netcommon.operations.base import Operation
from netcommon.operations.firewall import trackers
from netcommon.operations.kinds import KINDS
from tests.support.sim import UUIDS, Sim, nic

MODES = {"bridged": BRIDGE, "routed": INET}
EVERY = pytest.mark.parametrize("mode", MODES)


def tags(profile: str) -> dict[str, str]:
    return {"TAGS": f"netcommon:0:{profile}"}


def filtering(sim: Sim, family: int) -> list[str]:
    """The tables whose rules are in front of tap0."""
    link = sim.host.view().link("tap0")
    assert link is not None
    found = []
    for (kind, name), table in sim.host.nftables.tables.items():
        inside = (MEMBERS, link.index.to_bytes(4, "little")) in table.elements
        if kind == family and name.startswith("netcommon-fw-") and inside and table.rules.get(RULES) and table.rules.get("forward"):
            found.append(name)
    return found


@EVERY
def test_some_rules_stand_at_any_moment(sim: Sim, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one profile to the other, request by request."""
    sim.up(nic(mode, **tags("limited")))
    execute, seen = sim.host.execute, []

    def one_by_one(requests: Sequence[Request], stop: bool) -> list[Answer]:
        answers = []
        for request in requests:
            answers += execute([request], stop=stop)
            seen.append(filtering(sim, MODES[mode]))
        return answers

    monkeypatch.setattr(sim.host, "execute", one_by_one)
    sim.up(nic(mode, **tags("protected")))
    assert all(seen) and max(map(len, seen)) == 2
    (last,) = seen[-1]
    assert "-protected-" in last and len({len(tables) for tables in seen}) == 2
    monkeypatch.undo()
    (record,) = sim.records()
    kept = [operation["table"] for operation in record.operations if operation["kind"].startswith("firewall")]
    assert kept == [last, last] and [each for each in sim.files() if "limited" in each] == []
    sim.down(nic(mode, **tags("protected")))
    assert sim.picture() == sim.before and sim.files() == []


def test_the_kinds_that_stand_until_others_do() -> None:
    broken = [name for name, (module, _) in KINDS.items() if module == "firewall" and kind_of(name).unbroken is Operation.unbroken]
    assert broken == []


@EVERY
def test_on_no_record(sim: Sim, mode: str) -> None:
    """gc knows tables, elements, and the table that goes with a bridge's, by their marks; each by itself."""
    sim.up(nic(mode, **tags("limited")))
    family = MODES[mode]
    (table,) = filtering(sim, family)
    element = NftElement(family, table, MEMBERS, (4711).to_bytes(4, "little"))
    assert sim.gc() == []
    assert sim.host.execute([NftChange("left", (Put(element),))], stop=True)[0].ok
    (found,) = sim.gc()
    assert found.action == "removed" and found.text == f"device 4711 in nft table {NAMES[family]} {table}"
    assert sim.gc() == [] and filtering(sim, family) == [table]


NAMES = {BRIDGE: "bridge", INET: "inet"}


def test_others_tables_stay(sim: Sim) -> None:
    """One of the name that is not ours refuses the NIC."""
    sim.up(nic("bridged", **tags("limited")))
    (table,) = filtering(sim, BRIDGE)
    sim.down(nic("bridged", **tags("limited")))
    for family, name in ((BRIDGE, table), (INET, table + "-own")):
        theirs = NftTable(family, name)
        assert sim.host.execute([NftChange("theirs", (Put(theirs),))], stop=True)[0].ok
        with pytest.raises(Exception, match=f"table {NAMES[family]} {name} that is not ours"):
            sim.up(nic("bridged", **tags("limited")))
        assert sim.records() == [] and sim.gc() == []
        assert sim.host.execute([NftChange("theirs", (Drop(theirs),))], stop=True)[0].ok


def test_a_new_device_of_that_name(sim: Sim) -> None:
    """Another guest on a new device of that name is not in the earlier one's set, whether its down came or not."""
    sim.up(nic("bridged", **tags("limited")))
    sim.host.remove_link("tap0")
    sim.tap("tap0")
    sim.up(nic("bridged", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", TAGS=""))
    assert filtering(sim, BRIDGE) == []


def counter(packets: int) -> bytes:
    return expression("counter", number(1, 0) + number(2, packets))


def quota(limit: int, consumed: int, flags: int) -> bytes:
    return expression("quota", number(1, limit) + number(2, flags) + number(4, consumed))


RULE = NftRule(INET, "t", RULES, counter(0))
CHAIN = NftChain(INET, "t", "forward", 2, -10)
ELEMENT = NftElement(INET, "t", "__set0", b"\0\x16")


def test_what_makes_a_fingerprint() -> None:
    first = fingerprint_of([CHAIN], [RULE], [ELEMENT])
    member = ELEMENT._replace(set=MEMBERS)
    assert fingerprint_of([CHAIN], [RULE._replace(expressions=counter(9))], [member, ELEMENT]) == first
    assert fingerprint_of([CHAIN], [RULE], [ELEMENT, *(ELEMENT._replace(set=name) for name in LEARNED)]) == first
    others = {
        fingerprint_of([], [RULE], [ELEMENT]),
        fingerprint_of([CHAIN._replace(priority=0)], [RULE], [ELEMENT]),
        fingerprint_of([CHAIN], [], [ELEMENT]),
        fingerprint_of([CHAIN], [RULE, RULE], [ELEMENT]),
        fingerprint_of([CHAIN], [RULE._replace(expressions=counter(0) + expression("last", b""))], [ELEMENT]),
        fingerprint_of([CHAIN], [RULE], []),
        fingerprint_of([CHAIN], [RULE], [ELEMENT._replace(key=b"\x01\xbb")]),
        fingerprint_of([CHAIN], [RULE._replace(expressions=b"not what a kernel writes")], [ELEMENT]),
    }
    assert len(others) == 8 and first not in others


def test_the_order_of_rules_counts_in_a_chain_alone() -> None:
    accept, drop = (RULE._replace(expressions=expression("immediate", number(1, each))) for each in (1, 0))
    elsewhere = RULE._replace(chain="forward")
    there = fingerprint_of([CHAIN], [accept, drop, elsewhere], [])
    assert fingerprint_of([CHAIN], [elsewhere, accept, drop], []) == there != fingerprint_of([CHAIN], [drop, accept, elsewhere], [])


def test_tables_of_earlier_versions_are_as_they_were_loaded() -> None:
    """Their fingerprint, which version 0.1.0 wrote into them, is what is compared after an upgrade."""
    assert fingerprint_of([NftChain(BRIDGE, "t", "c")], [], []) == "edabed5b929995ce0f8f5742679c02e5"


def test_what_is_left_of_a_quota_does_not_count() -> None:
    def mark(rule: bytes) -> str:
        return fingerprint_of([], [RULE._replace(expressions=rule)], [])

    assert mark(quota(100, 0, 0)) == mark(quota(100, 100, 2)) != mark(quota(100, 0, 1))
    assert mark(quota(100, 0, 0)) != mark(quota(200, 0, 0))


LOOKS = {"ct": True, "nat": True, "masq": True, "match": True, "cmp": False, "counter": False}


@pytest.mark.parametrize("name", LOOKS)
def test_whose_rules_look_at_connections(sim: Sim, name: str) -> None:
    """By the names of their expressions; our own tables do not count."""
    table = NftTable(INET, "site")
    steps = Put(table), Put(NftChain(INET, "site", "c")), Put(NftRule(INET, "site", "c", expression(name, b"")))
    assert trackers(sim.host.view()) == ""
    assert sim.host.execute([NftChange("theirs", steps)], stop=True)[0].ok
    assert trackers(sim.host.view()) == ("table inet site" if LOOKS[name] else "")


@EVERY
@pytest.mark.parametrize("others", [False, True])
def test_what_no_profile_needs_is_not_tracked(sim: Sim, mode: str, others: bool) -> None:
    """Unless others' rules are there; those that come later are drift, and repair gives them the tracking back."""
    theirs = Put(NftTable(10, "site")), Put(NftChain(10, "site", "c")), Put(NftRule(10, "site", "c", expression("ct", b"")))
    if others:
        assert sim.host.execute([NftChange("theirs", theirs)], stop=True)[0].ok
    sim.up(nic(mode, **tags("limited")))
    assert leaving(sim) == (set() if others else {BRIDGE, INET} if mode == "bridged" else {INET})
    if not others:
        assert drift(sim) == []
        assert sim.host.execute([NftChange("theirs", theirs)], stop=True)[0].ok
        assert [text for text in drift(sim) if "table ip6 site may look at" in text]
        assert repair(sim.node, sim.record().key, sim.call()).changed
    assert drift(sim) == [] and leaving(sim) == set()
    sim.down(nic(mode, **tags("limited")))


def drift(sim: Sim) -> list[str]:
    return [text for _step, text in check(sim.node, sim.host.view(), sim.record()).drift]


def leaving(sim: Sim) -> set[int]:
    """The families of which a profile leaves something untracked."""
    ours = {where: table for where, table in sim.host.nftables.tables.items() if where[1].startswith("netcommon-fw-")}
    return {kind for (kind, _name), table in ours.items() if table.rules.get(UNTRACKED)}


def test_rules_without_ct_leave_all_as_it_is() -> None:
    for family in (BRIDGE, INET):
        names = {chain.name for layout in layouts(family, "t", ("tcp dport 22 accept", "drop"), True) for chain in layout.chains}
        assert names <= {RULES, "forward", "output", "own"}
