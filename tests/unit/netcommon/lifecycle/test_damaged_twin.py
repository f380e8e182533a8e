"""The record of Xen's emulated twin of a NIC, whose environment is damaged: it hinders no other NIC, and least of all its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from netcommon.lifecycle.change import change, refuse, setting
from netcommon.lifecycle.ends import end_due
from netcommon.lifecycle.gc import FAILED
from runtime.environment import emulated_uuid
from runtime.errors import HostRefused
from runtime.nic import Nic
from tests.support.sim import UUIDS, Sim, nic

XEN = {"XENBUS_PATH": "backend/vif/1/0"}
REAL = nic(**XEN)
OTHER = nic(INTERFACE="tap2", INTERFACE_UUID=UUIDS[2], INSTANCE="web3", MAC="aa:00:00:00:00:03")

#: What is left of the environment.
DAMAGES: Mapping[str, Mapping[str, str]] = {
    "nothing but the bus": XEN,
    "a mode that is none": {**REAL.environment, "MODE": "nonsense"},
    "a UUID that is none": {**REAL.environment, "INTERFACE_UUID": "x"},
}


def twin() -> Nic:
    """As netcommon.doors.xen makes it of the same variables."""
    uuid = emulated_uuid("web1", 0, REAL.uuid)
    return REAL._replace(uuid=uuid, interface="tap1", index=None)


def damaged(tmp_path: Path, environment: Mapping[str, str]) -> Sim:
    sim = Sim(str(tmp_path))
    for number, one in enumerate((REAL, twin(), OTHER)):
        if number:
            sim.tap(f"tap{number}")
        sim.up(one)
    record = sim.record(twin().uuid)
    sim.node.store.write(record._replace(nic=record.nic._replace(environment=environment)))
    return sim


def options(sim: Sim) -> dict[str, list[str]]:
    return {record.device: [each.value for each in record.nic.wanted] for record in sim.records()}


@pytest.mark.parametrize("environment", DAMAGES.values(), ids=DAMAGES)
def test_its_nic_is_known_all_the_same(tmp_path: Path, environment: Mapping[str, str]) -> None:
    """Its own UUID is made of that of its NIC: it has what that has, and both come to their end."""
    sim = damaged(tmp_path, environment)
    edit = setting(sim.node, {"rate_in": "8mbit"}, (), 100.0)
    for one in (REAL, twin()):
        record = sim.record(one.uuid)
        refuse(sim.node, record, sim.call(), edit)
        change(sim.node, record.key, sim.call(), edit)
    assert options(sim) == {"tap0": ["8mbit"], "tap1": ["8mbit"], "tap2": []}
    node = sim.node
    later = node._replace(clock=node.clock._replace(now=lambda: sim.call(seconds=200).deadline, wall=lambda: sim.wall + 200))
    assert not [became for _uuid, became in end_due(later, sim.call(seconds=300)) if isinstance(became, Exception)]
    assert options(sim) == {"tap0": [], "tap1": [], "tap2": []}
    assert not [found for found in sim.gc() if found.action == FAILED]


@pytest.mark.parametrize("environment", DAMAGES.values(), ids=DAMAGES)
def test_without_its_nic(tmp_path: Path, environment: Mapping[str, str]) -> None:
    """Nobody can tell then what is kept of it: that is said, and the other NIC is changed, and what has gone is collected."""
    sim = damaged(tmp_path, environment)
    sim.down(REAL)
    sim.tap("tap3")
    sim.up(nic(INTERFACE="tap3", INTERFACE_UUID=UUIDS[3], INSTANCE="web4", MAC="aa:00:00:00:00:04"))
    sim.host.remove_link("tap3")
    edit = setting(sim.node, {"rate_in": "8mbit"}, ())
    refuse(sim.node, sim.record(twin().uuid), sim.call(), edit)
    change(sim.node, OTHER.uuid, sim.call(), edit)
    with pytest.raises(HostRefused, match="an emulated twin, is damaged"):
        change(sim.node, twin().uuid, sim.call(), edit)
    assert options(sim) == {"tap1": [], "tap2": ["8mbit"], "tap3": []}
    sim.lines.clear()
    found = sim.gc()
    assert any("an emulated twin, is damaged" in line for line in sim.lines)
    assert [each.text for each in found if each.action == FAILED] == [f"changed options of NIC {twin().uuid}"]
    assert set(options(sim)) == {"tap1", "tap2"}
    assert sim.down(twin()).changed
