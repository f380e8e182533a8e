"""The device of an Open vSwitch port: up after its port and its flows, down before them, and as it was when all is undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from netcommon.host.api.facts import OVS_MARK
from netcommon.host.api.host import View
from netcommon.host.api.requests import DeleteFlows, DeleteOvsPort, PutFlows, PutOvsPort, Request, SetLink
from netcommon.host.linux.memo_view import MemoView
from netcommon.lifecycle.check import check, repair
from netcommon.operations.ovs import Port
from runtime.errors import HostRefused
from tests.support.sim import UUIDS, Sim, nic

DOWN, UP = SetLink(0, up=False), SetLink(0, up=True)
MARK, MTU = "alias", "mtu"


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    made = Sim(str(tmp_path))
    made.host.add_ovs_bridge("ovs1")
    made.before = made.picture()
    return made


class Asked:
    """A view, and what of Open vSwitch it was asked: each question is a round trip to the database."""

    def __init__(self, sim: Sim) -> None:
        self._view, self.asked = sim.host.view(), list[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked += [name] if name.startswith("ovs_") else []
        return getattr(self._view, name)


@pytest.mark.parametrize(("limits", "asked"), [({"shaping": 8000}, "ovs_bridge"), ({"policing": 8000, "burst": 800}, "ovs_switch")])
def test_only_a_policed_nic_asks_for_its_bridges_datapath(sim: Sim, limits: dict[str, int], asked: str) -> None:
    """And that is instead of the other question, once in a decision."""
    view, warnings = Asked(sim), list[str]()
    Port("tap0", "ovs0", UUIDS[0], **limits).resolve(cast("View", MemoView(cast("View", view))), warnings)
    assert view.asked == [asked, "ovs_port"]
    assert len(warnings) == ("policing" in limits)


def order(requests: list[Request]) -> list[object]:
    """Link changes as they are but for the index, other requests by their type."""
    kept: list[object] = []
    for request in requests:
        if isinstance(request, SetLink):
            kept += [request._replace(index=0)] if request.up is not None else [MARK if request.mtu is None else MTU]
        else:
            kept.append(type(request))
    return kept


def bring_up(sim: Sim) -> None:
    sim.host.execute([SetLink(sim.index("tap0"), up=True)], stop=True)
    sim.requests()


def test_a_device_that_is_down(sim: Sim) -> None:
    sim.up(nic("openvswitch, guarded"))
    assert order(sim.requests()) == [MARK, MTU, PutOvsPort, PutFlows, UP]
    sim.down(nic("openvswitch, guarded"))
    assert order(sim.requests()) == [DOWN, DeleteOvsPort, DeleteFlows, DOWN, MARK]
    assert sim.picture() == sim.before


def test_a_device_that_is_up(sim: Sim) -> None:
    """As a persistent tap may be: it is down until it is a port, and up again after the down, as it was, if nobody holds it by then."""
    sim.host.persistent.add("tap0")
    bring_up(sim)
    before = sim.picture()
    sim.up(nic("openvswitch, guarded"))
    assert order(sim.requests()) == [MARK, DOWN, MTU, PutOvsPort, PutFlows, UP]
    sim.down(nic("openvswitch, guarded"))
    assert order(sim.requests()) == [DOWN, DeleteOvsPort, DeleteFlows, DOWN, MARK]
    bring_up(sim)
    sim.up(nic("openvswitch, guarded"))
    sim.host.let_go("tap0")
    sim.requests()
    sim.down(nic("openvswitch, guarded"))
    assert order(sim.requests()) == [DOWN, DeleteOvsPort, DeleteFlows, UP, MARK]
    tap = sim.index("tap0")
    assert {**sim.picture()["links"], tap: before["links"][tap]} == before["links"]


def test_another_bridge(sim: Sim) -> None:
    sim.up(nic("openvswitch, guarded"))
    sim.requests()
    sim.up(nic("openvswitch, guarded", LINK="ovs1"))
    made = order(sim.requests())
    assert made[:2] == [DOWN, DeleteFlows] and made[-3:] == [PutOvsPort, PutFlows, UP] and UP not in made[:-1]
    sim.down(nic("openvswitch, guarded", LINK="ovs1"))
    assert sim.picture() == sim.before


@pytest.mark.parametrize("changes", [{"IP": "10.0.0.6"}, {"VLAN": ":20:31"}, {"TAGS": "netcommon:*:spoof_guard:no"}])
def test_a_port_that_stays_is_not_interrupted(sim: Sim, changes: dict[str, str]) -> None:
    sim.up(nic("openvswitch, guarded"))
    sim.requests()
    assert sim.up(nic("openvswitch, guarded", **changes)).changed
    assert not {DOWN, UP} & set(order(sim.requests()))


def test_another_vlan_and_other_rules(sim: Sim) -> None:
    """The device is down meanwhile, and the rules come before the port's VLAN: what the switch remembers goes by those of before."""
    sim.up(nic("openvswitch, guarded", VLAN=".20", TAGS="netcommon:*:allow_mac_spoofing"))
    sim.requests()
    sim.up(nic("openvswitch, guarded", VLAN=".10", TAGS=""))
    assert order(sim.requests()) == [DOWN, PutFlows, PutOvsPort, UP]
    assert check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize("lost", ["port", "mark"])
def test_repair_of_a_port_that_is_to_be_made_anew(sim: Sim, lost: str) -> None:
    """Its number will be another, so its flows are to be put again, though the old ones are there."""
    sim.up(nic("openvswitch, guarded"))
    port = sim.host.view().ovs_port("tap0")
    assert port is not None
    sim.host.switch.remove("tap0")
    if lost == "mark":
        sim.host.switch.put(port._replace(external_ids=tuple(pair for pair in port.external_ids if pair[0] != OVS_MARK)))
    sim.requests()
    assert not check(sim.node, sim.host.view(), sim.record()).good
    repair(sim.node, UUIDS[0], sim.call())
    assert order(sim.requests()) == [DOWN, PutOvsPort, PutFlows, UP]
    assert check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize("others", ["bridged, access", "routed"])
def test_a_change_of_mode(sim: Sim, others: str) -> None:
    """Either way the device is down meanwhile, and down at the end, as it was at the beginning."""
    sim.up(nic(others))
    sim.requests()
    sim.up(nic("openvswitch, guarded"))
    made = order(sim.requests())
    assert made[0] == DOWN and made.index(UP) > made.index(PutFlows)
    sim.up(nic(others))
    made = order(sim.requests())
    assert made[0] == DOWN and made.index(UP) > made.index(DeleteOvsPort)
    sim.down(nic(others))
    assert sim.picture() == sim.before


def test_a_port_of_a_linux_bridge(sim: Sim) -> None:
    """A datapath in user space would take it: the guest was in both, and guarded in one."""
    bridge = sim.index("br0")
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), master=bridge))
    before = sim.picture()
    with pytest.raises(HostRefused, match=r"a port of the Linux bridge br0, .*: ip link set dev tap0 nomaster"):
        sim.up(nic("openvswitch"))
    assert sim.picture() == before and sim.records() == []
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), master=0))
    sim.up(nic("openvswitch"))
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), master=bridge))
    (drift,) = check(sim.node, sim.host.view(), sim.record()).drift
    assert "ovs-vsctl" in drift[0] and "a port of the Linux bridge br0 too" in drift[1]
