"""Rules that Ganeti's own script has left: told from the administrator's, taken away before the next NIC, and by gc and adopt."""

from __future__ import annotations

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Rule
from netcommon.host.api.requests import SetLink
from netcommon.lifecycle import batch, inventory
from netcommon.settings.model import Settings
from runtime.errors import HostRefused
from tests.support.sim import UUIDS, Sim, nic

FIRST = 700  #: the preference of the administrator's first rule on a simulated node
GANETI = Rule(AF_INET, FIRST - 1, "tap0", 200, 3)  #: what ``ip rule add dev tap0 table 200`` makes there
ROUTED = ["routed", "routed, bridge", "routed, table", "routed, IPv6"]

#: What differs from it in one thing, and may be the administrator's.
NEAR_MISSES = {
    "IPv6": GANETI._replace(family=AF_INET6),
    "by another program": GANETI._replace(protocol=4),
    "with another selector": GANETI._replace(plain=False, narrowed=True, more=True),
    "after the administrator's first": GANETI._replace(preference=FIRST + 1),
    "with a number of its own": GANETI._replace(preference=100),
}


def put(sim: Sim, *rules: Rule) -> None:
    for rule in rules:
        sim.host.kernel.add_rule(rule)


def rules(sim: Sim, device: str = "tap0") -> list[Rule]:
    return [rule for rule in sim.host.kernel.rules if rule.iif == device and rule.protocol != PROTOCOL]


@pytest.mark.parametrize("mask", [0, 0xFF00])
@pytest.mark.parametrize("mode", [*ROUTED, "bridged", "openvswitch"])
def test_it_goes_before_the_next_nic_comes(sim: Sim, mode: str, mask: int) -> None:
    sim.settings = Settings(service_timeout=2, hook_timeout=5, rule_mark=mask)
    again = GANETI._replace(preference=FIRST - 9, table=100, protocol=0)
    put(sim, GANETI, again)
    before = [rule for rule in sim.host.kernel.rules if rule.iif != "tap0"]
    sim.up(nic(mode))
    assert rules(sim) == []
    told = [line for line in sim.lines if "left by Ganeti's own script" in line]
    assert len(told) == 2 and "removed: rule iif tap0 lookup 200 preference 699" in told[1]
    sim.down(nic(mode))
    assert sim.host.kernel.rules == before


def test_of_several_that_come_together(sim: Sim) -> None:
    sim.tap("tap1")
    put(sim, GANETI)
    nics = [nic("routed"), nic("routed", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], IP="10.0.0.6", INSTANCE="web2")]
    assert [getattr(result, "changed", result) for _nic, result in batch.up_all(sim.node, nics, lambda _nic: sim.call())] == [True, True]
    assert rules(sim) == []


def test_counting_down_from_a_rule_of_ours(sim: Sim) -> None:
    """Where Ganeti's script was at work beside us: its rule comes before ours, and the NIC's start was refused."""
    sim.tap("tap1")
    sim.up(nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1]))
    put(sim, GANETI._replace(preference=499))
    sim.up(nic("routed, table", IP="10.0.0.6"))
    assert rules(sim) == []


@pytest.mark.parametrize("near", NEAR_MISSES)
@pytest.mark.parametrize("mode", ["routed", "routed, bridge", "bridged"])
def test_the_administrators_rule_stays(sim: Sim, mode: str, near: str) -> None:
    """And leads the guest nowhere: a NIC that it would lead to another's table does not come up."""
    rule = NEAR_MISSES[near]
    put(sim, rule)
    if mode == "bridged" or not rule.plain or rule.family == AF_INET6:  # nobody looks at it; it is narrower; not of the guest's family
        sim.up(nic(mode))
    else:
        with pytest.raises(HostRefused, match="a rule that is not ours applies to tap0") as refused:
            sim.up(nic(mode))
        assert f"ip -4 rule del iif tap0 lookup 200 preference {rule.preference}" in str(refused.value)
        assert sim.records() == []
    assert rules(sim) == [rule]


@pytest.mark.parametrize("name", ["tap", "tapmgmt0", "tap0x", "vnet0", "vif1", "vif1.0-emu", "eth9", "tap²"])
def test_devices_that_ganeti_does_not_name_so(sim: Sim, name: str) -> None:
    put(sim, GANETI._replace(iif=name))
    assert sim.gc() == []
    assert rules(sim, name) == [GANETI._replace(iif=name)]


@pytest.mark.parametrize("change", ["up", "port"])
def test_a_tap_that_somebody_has_set_up_keeps_its_rules(sim: Sim, change: str) -> None:
    index = sim.index("tap0")
    sim.host.kernel.set_link(SetLink(index, up=True) if change == "up" else SetLink(index, master=sim.index("br0")))
    put(sim, GANETI)
    with pytest.raises(HostRefused, match="a rule that is not ours"):
        sim.up(nic("routed"))
    assert rules(sim) == [GANETI]


def test_a_second_up_takes_no_rule_away_and_is_not_refused(sim: Sim) -> None:
    """The site's own script may have added it since, for the guest that it is."""
    sim.up(nic("routed"))
    put(sim, GANETI)
    sim.up(nic("routed"))
    assert rules(sim) == [GANETI]
    assert any("a rule that is not ours applies to tap0" in line for line in sim.lines)


def test_gc_collects_those_whose_device_is_gone(sim: Sim) -> None:
    gone = [GANETI._replace(iif="tap7"), GANETI._replace(iif="vif3.0", preference=FIRST - 2)]
    near = [rule._replace(iif="tap7", preference=rule.preference + 2) for rule in NEAR_MISSES.values()]
    put(sim, GANETI, *gone, *near)
    before = list(sim.host.kernel.rules)
    found = sim.gc(dry_run=True)
    assert sorted(one.text for one in found) == [
        "rule iif tap7 lookup 200 preference 699 (family 2), left by Ganeti's own script",
        "rule iif vif3.0 lookup 200 preference 698 (family 2), left by Ganeti's own script",
    ]
    assert {one.action for one in found} == {"would be removed"} and sim.host.kernel.rules == before
    assert {one.action for one in sim.gc()} == {"removed"}
    assert sim.host.kernel.rules == [rule for rule in before if rule not in gone]
    assert sim.gc() == []


def test_gc_leaves_it_to_a_device_that_has_come_meanwhile(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    put(sim, GANETI._replace(iif="tap7"))
    read = inventory.records

    def later(node: object) -> inventory.Records:
        if sim.host.kernel.named("tap7") is None:
            sim.tap("tap7")
        return read(node)  # type: ignore[arg-type]

    monkeypatch.setattr(inventory, "records", later)
    assert [one.action for one in sim.gc()] == ["kept"]
    assert rules(sim, "tap7") == [GANETI._replace(iif="tap7")]


def test_a_node_whose_tables_nobody_names_has_no_first_rule(sim: Sim) -> None:
    sim.host.kernel.rules = [GANETI._replace(iif="tap7")]
    assert sim.gc() == []
