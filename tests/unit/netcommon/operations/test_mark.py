"""One policy rule for all NICs of a routing table: what is planned, shared, found to differ, and undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Rule
from netcommon.host.api.nftables import ARP, INET
from netcommon.lifecycle.check import check, repair
from netcommon.operations.mark import value_of
from netcommon.plan.planner import plan
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, SettingsInvalid
from tests.support.settings import paths_with
from tests.support.sim import UUIDS, Sim, nic

MASK = 0xFFF0000
SETTINGS = Settings(service_timeout=2, hook_timeout=5, rule_mark=MASK, nic={"spoof_guard": False})
NAME = "netcommon-mark-100-fff0000"
FIRST = nic("routed, table")
SECOND = nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", IP="10.0.0.6")
BOTH = nic("routed, table", TAGS="netcommon:0:addresses:fd00::5")


@pytest.fixture
def sim(tmp_path: object) -> Sim:
    made = Sim(str(tmp_path), SETTINGS)
    made.tap("tap1")
    made.before = made.picture()
    return made


def rules(sim: Sim, family: int = AF_INET) -> list[Rule]:
    return [rule for rule in sim.host.kernel.rules if rule.family == family and rule.protocol == PROTOCOL]


def taps(sim: Sim, family: int) -> list[int]:
    return sorted(int.from_bytes(each.key, "little") for each in sim.host.view().nft_elements(family, NAME))


def test_one_rule_for_all(sim: Sim) -> None:
    sim.up(FIRST)
    sim.up(SECOND)
    assert rules(sim) == [Rule(AF_INET, 500, "", 100, mark=100 << 16, mask=MASK)]
    assert taps(sim, INET) == taps(sim, ARP) == sorted([sim.index("tap0"), sim.index("tap1")])
    sim.down(FIRST)
    assert rules(sim) and taps(sim, INET) == taps(sim, ARP) == [sim.index("tap1")]
    sim.down(SECOND)
    assert sim.picture() == sim.before


def test_both_families_share_the_devices_mark(sim: Sim) -> None:
    sim.up(BOTH)
    assert rules(sim, AF_INET6) == [rules(sim)[0]._replace(family=AF_INET6)]
    assert taps(sim, INET) == taps(sim, ARP) == [sim.index("tap0")]
    sim.down(BOTH)
    assert sim.picture() == sim.before


def test_no_arp_without_ipv4(sim: Sim) -> None:
    sim.up(nic("routed, IPv6"))
    assert taps(sim, INET) == [sim.index("tap0")] and sim.host.view().nft_table(ARP, NAME) is None
    sim.down(nic("routed, IPv6"))
    assert sim.picture() == sim.before


def test_a_name_and_a_number_of_one_table_share(sim: Sim) -> None:
    sim.up(FIRST)
    sim.up(SECOND._replace(link="100"))
    assert len(rules(sim)) == 1
    sim.down(FIRST)
    assert len(rules(sim)) == 1 and taps(sim, INET) == [sim.index("tap1")]
    sim.down(SECOND)
    assert sim.picture() == sim.before


def test_main_needs_no_mark(sim: Sim) -> None:
    """It is where every lookup ends; and a bridge's name as LINK means main."""
    for one in (nic("routed"), nic("routed, bridge")):
        sim.up(one)
        assert rules(sim) == [] and not [table for table in sim.host.view().nft_tables(INET) if table.name.startswith("netcommon-mark")]
        sim.down(one)


def test_drift_is_found_and_mended(sim: Sim) -> None:
    sim.up(FIRST)
    sim.host.kernel.delete_rule(rules(sim)[0])
    assert [text for _does, text in check(sim.node, sim.host.view(), sim.record()).drift] == ["the rule is gone"]
    assert repair(sim.node, UUIDS[0], sim.call()).changed and len(rules(sim)) == 1
    sim.host.nftables.flush()
    assert len(check(sim.node, sim.host.snapshot(), sim.record()).drift) == 3
    repair(sim.node, UUIDS[0], sim.call())
    assert check(sim.node, sim.host.snapshot(), sim.record()).good and taps(sim, ARP) == [sim.index("tap0")]


def test_the_setting_changes_while_a_guest_runs(sim: Sim) -> None:
    """The next up of the NIC takes the one for the other, without a moment without."""
    sim.up(FIRST)
    sim.settings = sim.settings._replace(rule_mark=0)
    assert sim.up(FIRST).changed
    assert rules(sim) == [Rule(AF_INET, 500, "tap0", 100)] and sim.host.view().nft_table(INET, NAME) is None
    sim.settings = sim.settings._replace(rule_mark=0xFF)
    assert sim.up(FIRST).changed
    assert rules(sim) == [Rule(AF_INET, 500, "", 100, mark=100, mask=0xFF)]
    sim.down(FIRST)
    assert sim.picture() == sim.before


def test_gc_takes_what_nobody_needs(sim: Sim) -> None:
    sim.up(FIRST)
    sim.up(SECOND)
    for name in ("tap0", "tap1"):
        sim.host.remove_link(name)
    for record in sim.records():
        sim.node.store.remove(record)
    assert {found.action for found in sim.gc()} == {"removed"}
    assert rules(sim) == [] and sim.host.view().nft_table(INET, NAME) is None


def test_gc_leaves_what_a_living_guest_needs(sim: Sim) -> None:
    """The rule of a device is not on record when the table is marked, nor the other way round."""
    sim.up(FIRST)
    assert [found for found in sim.gc() if found.action == "removed"] == []
    assert check(sim.node, sim.host.snapshot(), sim.record()).good


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        (Rule(AF_INET, 400, "", 7, 4, True, 100 << 16, MASK), True),
        (Rule(AF_INET, 400, "", 7, 4, True, 0x40000, 0x40000), True),
        (Rule(AF_INET, 600, "", 7, 4, True, 100 << 16, MASK), False),
        (Rule(AF_INET, 400, "", 100, 4, True, 100 << 16, MASK), False),
        (Rule(AF_INET, 400, "", 7, 4, True, 99 << 16, MASK), False),
        (Rule(AF_INET, 400, "", 7, 4, True, 1, 0xF), False),
    ],
)
def test_somebody_elses_rule_for_the_mark(sim: Sim, rule: Rule, refused: bool) -> None:
    sim.host.kernel.add_rule(rule)
    before = sim.picture()
    if refused:
        with pytest.raises(HostRefused, match=f"ip rule del fwmark {rule.mark:#x}/{rule.mask:#x} lookup 7 preference 400"):
            sim.up(FIRST)
    else:
        sim.up(FIRST)
        sim.down(FIRST)
    assert sim.picture() == before


@pytest.mark.parametrize("table", [7, 100])
def test_a_stale_rule_for_the_device(sim: Sim, table: int) -> None:
    """Left by Ganeti's script for an earlier guest: it comes before ours, and would lead the guest into another's network."""
    sim.host.kernel.add_rule(Rule(AF_INET, 400, "tap0", table, 4))
    if table == 7:
        with pytest.raises(HostRefused, match="a rule that is not ours applies to tap0"):
            sim.up(FIRST)
    else:
        assert sim.up(FIRST).changed


def test_an_administrators_own_rule_stays(sim: Sim) -> None:
    sim.host.kernel.add_rule(Rule(AF_INET, 500, "", 100, 4, True, 100 << 16, MASK))
    before = sim.picture()
    sim.up(FIRST)
    assert rules(sim) == []
    sim.down(FIRST)
    assert sim.picture() == before


def test_a_table_without_room_in_the_mark(sim: Sim) -> None:
    assert value_of(4095, MASK) == MASK
    with pytest.raises(HostRefused, match="routing table 4096 has no room in the mark's bits 0xfff0000"):
        sim.up(FIRST._replace(link="4096"))
    assert sim.picture() == sim.before


@pytest.mark.parametrize(("text", "good"), [("0x80000000", True), ("0x5", False), ("-1", False), ("true", False), ("0x100000000", False)])
def test_the_setting(tmp_path: Path, text: str, good: bool) -> None:
    paths = paths_with(tmp_path, f"[rules]\nmark = {text}\n")
    if good:
        assert load(paths).rule_mark == int(text, 16)
    else:
        with pytest.raises(SettingsInvalid, match="neighbouring bits"):
            load(paths)


def test_what_a_plan_says() -> None:
    said = [operation.describe() for operation in plan(FIRST, SETTINGS)]
    assert "ip -4 rule add fwmark <of table guests>/0xfff0000 lookup guests preference 500 protocol 174" in said
    name = "netcommon-mark-guests-fff0000"
    assert f'nft add element inet {name} taps {{ "tap0" }}; nft add element arp {name} taps {{ "tap0" }}' in said
