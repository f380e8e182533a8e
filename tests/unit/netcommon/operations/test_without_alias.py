"""Taps without our alias (tap_alias = false): what is ours is told by the records, wherever resolve would look for the mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.nftables import NETDEV, Clear, NftChain
from netcommon.host.api.requests import NftChange, SetLink
from netcommon.lifecycle.check import check, repair
from netcommon.operations.guard.table import table_of
from netcommon.settings.model import Settings
from runtime.record import CHANGING
from tests.support.sim import MODES, Sim, nic

SETTINGS = Settings(service_timeout=2, hook_timeout=5, tap_alias=False)


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    return Sim(str(tmp_path), SETTINGS)


def test_the_rules_of_the_guard_are_mended(sim: Sim) -> None:
    wanted = nic("bridged")
    sim.up(wanted)
    chain = NftChain(NETDEV, table_of("tap0"), "guard")
    assert all(answer.ok for answer in sim.host.execute([NftChange("by hand", (Clear(chain),), "")], stop=True))
    assert check(sim.node, sim.host.view(), sim.record()).drift
    assert repair(sim.node, sim.record().key, sim.call()).changed
    assert check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize("mode", ["routed", "routed, table", "bridged, access"])
def test_another_mode_on_the_same_tap(sim: Sim, mode: str) -> None:
    """The earlier NIC's things are ours to end."""
    sim.up(nic("bridged"))
    assert sim.up(nic(mode)).changed and check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic(mode))
    assert sim.picture() == sim.before


def test_a_static_entry_is_taken_over_from_the_same_nics_other_tap(sim: Sim) -> None:
    tags = {"TAGS": "netcommon:*:static_fdb"}
    sim.up(nic("bridged", **tags))
    sim.tap("tap1")
    assert sim.up(nic("bridged", INTERFACE="tap1", **tags)).changed
    assert MODES["bridged"]["LINK"] == "br0" and sim.host.view().fdb_entry(sim.index("br0"), nic("bridged").mac, 0)


@pytest.fixture
def marked(tmp_path: Path) -> Sim:
    """A node whose NIC came up while taps bore our alias, and lost it when they were to bear none any more."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged"))
    sim.settings = SETTINGS
    assert sim.host.execute([SetLink(sim.index("tap0"), alias="")], stop=True)[0].ok
    return sim


def test_an_alias_that_is_not_wanted_any_more_is_missed_by_nobody(marked: Sim) -> None:
    """Ganeti could start no guest with instance communication while one has it: what was recorded counts for less than the setting."""
    sim = marked
    assert check(sim.node, sim.host.view(), sim.record()).good
    assert not repair(sim.node, sim.record().key, sim.call()).changed
    assert sim.host.execute([SetLink(sim.index("tap0"), up=False)], stop=True)[0].ok
    assert len(check(sim.node, sim.host.view(), sim.record()).drift) == 1
    assert repair(sim.node, sim.record().key, sim.call()).changed
    link = sim.host.view().link("tap0")
    assert link is not None and (link.alias, link.up) == ("", True)
    sim.down(nic("bridged"))
    assert sim.picture() == sim.before


def test_an_alias_comes_back_where_devices_bear_one(marked: Sim) -> None:
    sim = marked
    sim.settings = Settings()
    assert len(check(sim.node, sim.host.view(), sim.record()).drift) == 1
    assert repair(sim.node, sim.record().key, sim.call()).changed
    link = sim.host.view().link("tap0")
    assert link is not None and link.alias.startswith(sim.record().uuid)


def test_a_change_that_is_taken_back_leaves_it_out(marked: Sim) -> None:
    """The way back makes all of the record hold but this."""
    sim = marked
    record = sim.record()
    sim.node.store.write(record._replace(state=CHANGING, before=record))
    assert repair(sim.node, record.key, sim.call()).changed
    link = sim.host.view().link("tap0")
    assert link is not None and link.alias == "" and check(sim.node, sim.host.view(), sim.record()).good


def test_gc_keeps_what_guards_a_live_guest_whose_record_is_lost(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    sim.node.store.remove(sim.record())
    before = sim.picture()
    found = sim.gc()
    assert found and {one.action for one in found} == {"kept"} and sim.picture() == before
