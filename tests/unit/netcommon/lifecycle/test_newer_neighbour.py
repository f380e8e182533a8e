"""A record of a newer version: its NIC is left alone, and keeps no other NIC that has something in common with it from anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netcommon.lifecycle.check import repair
from netcommon.operations.routed_uplink import UNICAST
from runtime.nic import Nic
from runtime.record import SCHEMA
from tests.support.sim import Sim, nic

U1, U2 = ("00000001-0000-4000-8000-000000000000", "00000002-0000-4000-8000-000000000000")
MODES = ["bridged, access", "bridged, trunk", "bridged, hybrid", "bridged, static", "routed, IPv6", "routed, all options", "routed"]


def guest(mode: str, number: int, **more: str) -> Nic:
    uuid = (U1, U2)[number - 1]
    address = {"IP": f"10.0.0.{number}"} if mode.startswith("routed") and "IPv6" not in mode else {}
    address = {"IP": f"fd00::{number}"} if "IPv6" in mode else address
    return nic(mode, **{**address, "INTERFACE": f"tap{number}", "INTERFACE_UUID": uuid, "INSTANCE": f"web{number}", **more})


def newer(sim: Sim, uuid: str) -> None:
    path = Path(sim.paths.state, "nics", f"{uuid}.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": SCHEMA + 91}))


@pytest.mark.parametrize("mode", MODES)
def test_it_keeps_no_other_from_its_network(tmp_path: Path, mode: str) -> None:
    sim = Sim(str(tmp_path))
    for tap in ("tap1", "tap2"):
        sim.tap(tap)
    sim.up(guest(mode, 1, MAC="aa:00:00:00:00:01"))
    newer(sim, U1)
    before = Path(sim.paths.state, "nics", f"{U1}.json").read_text()
    assert sim.up(guest(mode, 2, MAC="aa:00:00:00:00:02")).changed
    assert not repair(sim.node, U2, sim.call()).changed
    with_one = sim.picture()
    assert sim.down(guest(mode, 2, MAC="aa:00:00:00:00:02")).changed
    assert sim.up(guest(mode, 2, MAC="aa:00:00:00:00:02")).changed and sim.picture() == with_one
    assert Path(sim.paths.state, "nics", f"{U1}.json").read_text() == before


def test_its_address_is_warned_of(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    for tap in ("tap1", "tap2"):
        sim.tap(tap, 0)
    sim.up(guest("routed", 1))
    newer(sim, U1)
    assert sim.up(guest("routed", 2, IP="10.0.0.1")).changed
    assert any("10.0.0.1/32 leads to tap1" in line and "newer" in line for line in sim.lines), sim.lines


@pytest.mark.parametrize("mode", ["routed", "routed, all options"])
def test_nor_where_devices_bear_no_mark(tmp_path: Path, mode: str) -> None:
    """The records stand in for the marks; this one's address leads to the new NIC, as on a node with marks."""
    sim = Sim(str(tmp_path))
    sim.settings = sim.settings._replace(tap_alias=False)
    for tap in ("tap1", "tap2"):
        sim.tap(tap)
    sim.up(guest(mode, 1, IP="10.0.0.1"))
    newer(sim, U1)
    assert sim.up(guest(mode, 2, IP="10.0.0.1", MAC="aa:00:00:00:00:02")).changed
    leading = [route for route in sim.host.kernel.routes if route.destination == "10.0.0.1/32" and route.type == UNICAST]
    assert [route.index for route in leading] == [sim.index("tap2")]
