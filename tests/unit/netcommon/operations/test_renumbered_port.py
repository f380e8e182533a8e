"""A port of Open vSwitch that gets another number while its NIC is up (ofport_request): its flows are for the new one after a repair."""

from __future__ import annotations

from netcommon.lifecycle.check import check, repair
from netcommon.operations.flows import cookie_of
from tests.support.sim import UUIDS, Sim, nic


def ports(sim: Sim) -> set[int]:
    return {flow.port for flow in sim.host.openflow.flows("ovs0", cookie_of(UUIDS[0], "tap0"))}


def test_the_flows_follow_the_number(sim: Sim) -> None:
    guest = nic("openvswitch, guarded")
    sim.up(guest)
    before = sim.host.view().ovs_port("tap0")
    assert before is not None and ports(sim) == {before.ofport}
    sim.host.switch.restart()
    now = sim.host.view().ovs_port("tap0")
    assert now is not None and now.ofport != before.ofport
    drift = check(sim.node, sim.host.view(), sim.record()).drift
    assert len(drift) == 1 and "flows are missing" in drift[0][1] and "flows are there that are not its own" in drift[0][1]
    assert repair(sim.node, UUIDS[0], sim.call()).changed and ports(sim) == {now.ofport}
    assert not check(sim.node, sim.host.view(), sim.record()).drift
    sim.down(guest)
    assert ports(sim) == set()
