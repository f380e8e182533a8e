"""Somebody has removed the links that tell who shares what: the records tell it still."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from netcommon.lifecycle import execute
from runtime.environment import DownHint
from tests.support.sim import UUIDS, Sim, nic


@pytest.mark.parametrize("mode", ["bridged, access", "bridged", "routed, table"])
def test_a_down_leaves_to_others_what_they_need(tmp_path: Path, mode: str) -> None:
    sim = Sim(str(tmp_path))
    before = sim.picture()
    sim.tap("tap1")
    for number, tap in enumerate(("tap0", "tap1")):
        more = {"IP": f"10.0.0.{number + 5}"} if mode.startswith("routed") else {"TAGS": "netcommon:*:firewall:limited"}
        sim.up(nic(mode, INTERFACE=tap, INTERFACE_UUID=UUIDS[number], INTERFACE_INDEX=str(number), MAC=f"aa:00:00:00:00:0{number}", **more))
    shutil.rmtree(Path(sim.paths.state, "owners"))
    for number, left in ((0, 1), (1, 0)):
        sim.down(DownHint(device=f"tap{number}"))
        records = sim.records()
        assert len(records) == left
        for record in records:
            assert execute.drift(sim.host.view(), execute.decode(record)[0]) == []
    sim.host.remove_link("tap1")
    assert sim.picture() == before
    sim.close()
