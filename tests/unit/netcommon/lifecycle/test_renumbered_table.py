"""A routing table that gets another number while NICs are up (rt_tables): check names it, repair makes the new and retires the old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netcommon.host.api.facts import AF_INET6, PROTOCOL, Route
from netcommon.lifecycle.check import check, repair
from netcommon.operations.table import MAIN
from netcommon.settings.model import Settings
from runtime.errors import HostRefused
from tests.support.sim import MODES, UUIDS, Sim, nic

NEW = 300
TABLED = [mode for mode, words in MODES.items() if words.get("LINK") == "guests"]
BLACKHOLE = "routed, blackhole"
MARK = {"rule_mark": 0xFFF0000}


def node(folder: Path, **settings: Any) -> Sim:
    made = Sim(str(folder), Settings(service_timeout=2, hook_timeout=5, **settings))
    made.tap("tap1")
    made.before = made.picture()
    return made


def ours(sim: Sim) -> set[int]:
    """The tables that rules and routes of ours name."""
    kernel = sim.host.kernel
    return {each.table for each in [*kernel.rules, *kernel.routes] if each.protocol == PROTOCOL}


def drift(sim: Sim, key: str = UUIDS[0]) -> list[tuple[str, str]]:
    return list(check(sim.node, sim.host.view(), sim.record(key)).drift)


@pytest.mark.parametrize("settings", [{}, MARK], ids=["rules", "mark"])
@pytest.mark.parametrize("mode", TABLED)
def test_repair_leaves_nothing_of_the_number_before(tmp_path: Path, mode: str, settings: dict[str, Any]) -> None:
    sim = node(tmp_path, **settings)
    guest = nic(mode)
    sim.up(guest)
    assert drift(sim) == [] and ours(sim) == {100}
    sim.host.tables["guests"] = NEW
    found = drift(sim)
    assert found and {text for _operation, text in found} == {"table guests is number 300 now, not 100"}
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    assert ours(sim) == {NEW} and drift(sim) == []
    assert not repair(sim.node, UUIDS[0], sim.call()).changed
    assert sim.gc() == []
    sim.down(guest)
    assert sim.picture() == sim.before and sim.files() == []


@pytest.mark.parametrize("settings", [{}, MARK], ids=["rules", "mark"])
def test_another_nic_of_the_table_keeps_what_it_shares(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Until it is repaired too."""
    sim = node(tmp_path, **settings)
    guests = [nic("routed, table"), nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", IP="10.0.0.6")]
    for guest in guests:
        sim.up(guest)
    sim.host.tables["guests"] = NEW
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    assert ours(sim) == {100, NEW} and drift(sim) == [] and len(drift(sim, UUIDS[1])) > 1
    sim.host.tables["guests"] = 100
    assert drift(sim, UUIDS[1]) == []
    sim.host.tables["guests"] = NEW
    assert repair(sim.node, UUIDS[1], sim.call()).changed
    assert ours(sim) == {NEW} and drift(sim, UUIDS[1]) == [] and sim.gc() == []
    for guest in guests:
        sim.down(guest)
    assert sim.picture() == sim.before and sim.files() == []


@pytest.mark.parametrize("settings", [{}, MARK], ids=["rules", "mark"])
def test_another_up_moves_it_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    sim = node(tmp_path, **settings)
    guest = nic("routed, all options")
    sim.up(guest)
    sim.host.tables["guests"] = NEW
    assert sim.up(guest).changed
    assert ours(sim) == {NEW} and drift(sim) == [] and sim.gc() == []


def test_a_name_that_names_nothing_any_more_changes_nothing(tmp_path: Path) -> None:
    """Leave what was made for it as it was."""
    sim = node(tmp_path)
    sim.up(nic("routed, all options"))
    picture = sim.picture()
    del sim.host.tables["guests"]
    assert drift(sim) == [] and not repair(sim.node, UUIDS[0], sim.call()).changed
    assert sim.picture() == picture


def test_an_uplink_of_the_table_is_looked_for_under_its_new_number(tmp_path: Path) -> None:
    """Though the table of the former number has lost its default route: of that the uplinks on record would be only gone for now."""
    sim = node(tmp_path)
    old = Route(AF_INET6, 100, "::/0", sim.index("eth-br1"), 3, 0, "fe80::fe", 1024)
    sim.host.kernel.add_route(old)
    sim.up(nic("routed, IPv6"))
    proxied = [entry.index for entry in sim.host.kernel.neighbours if entry.protocol == PROTOCOL]
    assert proxied == [sim.index("eth-br1")]
    sim.host.tables["guests"] = NEW
    sim.host.kernel.routes.remove(old)
    sim.host.kernel.add_route(old._replace(table=NEW, index=sim.index("eth-br2")))
    assert repair(sim.node, UUIDS[0], sim.call()).changed and drift(sim) == []
    assert [entry.index for entry in sim.host.kernel.neighbours if entry.protocol == PROTOCOL] == [sim.index("eth-br2")]


@pytest.mark.parametrize("settings", [{}, MARK], ids=["rules", "mark"])
@pytest.mark.parametrize("name", ["br0", "guests"])
def test_what_was_in_main_waits_for_an_up(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    """The rule that leads to a table was none of its own before: a repair changes nothing, and says so."""
    sim = node(tmp_path, **settings)
    guest = nic("routed, all options", LINK=name)
    if name == "guests":
        sim.host.tables[name] = MAIN
    sim.up(guest)
    sim.host.tables[name] = NEW
    assert {text for _operation, text in drift(sim)} == {f"table {name} is number 300 now, not 254"}
    picture = sim.picture()
    with pytest.raises(HostRefused, match="the NIC uses table main until its next up"):
        repair(sim.node, UUIDS[0], sim.call())
    assert sim.picture() == picture and ours(sim) == {MAIN}
    assert sim.up(guest).changed and ours(sim) == {NEW} and drift(sim) == [] and sim.gc() == []
    sim.down(guest)
    assert sim.picture() == sim.before and sim.files() == []
