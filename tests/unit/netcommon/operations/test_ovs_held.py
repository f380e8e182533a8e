"""A port that Open vSwitch has under the name of a bridged or routed NIC's tap: its guest would be in another network, past the guard."""

from __future__ import annotations

import pytest

from netcommon.host.api.requests import DeleteOvsPort, SetLink
from netcommon.lifecycle.batch import up_all
from netcommon.lifecycle.check import check
from runtime.errors import HostRefused
from runtime.record import Record
from tests.support.sim import UUIDS, Sim, nic

MODES = ["bridged", "bridged, access", "routed", "routed, table"]


def bring_up(sim: Sim, mode: str, together: bool) -> None:
    if not together:
        sim.up(nic(mode))
        return
    ((_nic, result),) = up_all(sim.node, [nic(mode)], lambda _nic: sim.call())
    if isinstance(result, Exception):
        raise result


def power_failure(sim: Sim) -> None:
    """An Open vSwitch NIC was up on this name: its record and its tap are gone, the switch's database is not."""
    sim.up(nic("openvswitch", INTERFACE_UUID=UUIDS[1]))
    record: Record = sim.record(UUIDS[1])
    sim.node.store.remove(record)
    sim.host.execute([SetLink(sim.index("tap0"), up=False, alias="")], stop=True)
    assert sim.host.switch.port("tap0") is not None and sim.records() == []
    sim.requests()


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_ours_is_taken_away(sim: Sim, mode: str, together: bool) -> None:
    power_failure(sim)
    bring_up(sim, mode, together)
    requests = sim.requests()
    opened = next(number for number, each in enumerate(requests) if isinstance(each, SetLink) and each.up)
    assert [number for number, each in enumerate(requests) if isinstance(each, DeleteOvsPort)] < [opened]
    assert sim.host.switch.port("tap0") is None and check(sim.node, sim.host.view(), sim.record()).good
    assert [line for line in sim.lines if "left behind with no record, removed: Open vSwitch port tap0 of ovs0" in line]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_somebodys_is_refused(sim: Sim, mode: str, together: bool) -> None:
    sim.host.add_ovs_port("ovs0", "tap0")
    before = sim.picture()
    with pytest.raises(HostRefused, match="Open vSwitch has a port tap0 on its bridge ovs0") as refused:
        bring_up(sim, mode, together)
    assert "ovs-vsctl del-port tap0" in str(refused.value) and sim.picture() == before and sim.files() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("condition", [{"there": False}, {"database": False}])
def test_a_switch_that_does_not_answer_keeps_nobody_waiting(sim: Sim, mode: str, condition: dict[str, bool]) -> None:
    sim.host.add_ovs_port("ovs0", "tap0")
    sim.host.switch.condition = sim.host.switch.condition._replace(**condition)
    sim.up(nic(mode))
    assert check(sim.node, sim.host.view(), sim.record()).good


def test_the_sites_own_mode_may_have_one(sim: Sim) -> None:
    sim.host.add_ovs_port("ovs0", "tap0")
    sim.up(nic("ext"))
    assert sim.host.switch.port("tap0") is not None
