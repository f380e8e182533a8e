"""Taps without our alias (tap_alias = false): what is ours is told by the records, wherever resolve would look for the mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.nftables import NETDEV, Clear, NftChain
from netcommon.host.api.requests import NftChange
from netcommon.lifecycle.check import check, repair
from netcommon.operations.guard.table import table_of
from netcommon.settings.model import Settings
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


def test_gc_keeps_what_guards_a_live_guest_whose_record_is_lost(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    sim.node.store.remove(sim.record())
    before = sim.picture()
    found = sim.gc()
    assert found and {one.action for one in found} == {"kept"} and sim.picture() == before
