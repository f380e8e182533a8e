"""OpenFlow flows with our mark: put in one bundle, read back as they were put, deleted by their cookie alone; others' are not touched."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import FLOW_MARK, Flow
from netcommon.host.api.requests import DeleteFlows, PutFlows, PutOvsPort
from netcommon.host.ovs.ofctl import OpenFlow
from netcommon.modes import openvswitch_flows
from netcommon.operations.guard.flows import guard_flows
from netcommon.options.sources import options_of
from netcommon.settings.model import Settings
from runtime.errors import SettingsInvalid, TryAgain
from tests.contract.ovs_by_hand import PLAIN, controlled, every_flow, fake_bridge, foreign_flow, restart_switch
from tests.contract.worlds import World, do, told, view
from tests.support.sim import nic

ONE, TWO = FLOW_MARK | 1, FLOW_MARK | 2
TEXTS = ("actions=NORMAL", "priority=7,arp actions=drop", "table=5,priority=65535,ip,nw_src=10.0.0.0/24 actions=resubmit(,0)")


@pytest.fixture
def ports(ovs_world: World) -> World:
    """tap0 and tap1 on ovs0."""
    for name in ("tap0", "tap1"):
        ovs_world.tap(name)
        assert do(ovs_world, PutOvsPort(PLAIN._replace(name=name))) == [0]
    return ovs_world


def number(world: World, name: str) -> int:
    port = view(world).ovs_port(name)
    assert port is not None and port.ofport > 0
    return port.ofport


def flows(world: World, cookie: int = 0) -> list[tuple[int, int, str]]:
    """Cookie, port and text of each."""
    found = sorted(view(world).flows("ovs0", cookie))
    assert found == sorted(world.host.snapshot().flows("ovs0", cookie)) and all(flow.bridge == "ovs0" for flow in found)
    return sorted((flow.cookie, flow.port, flow.text) for flow in found)


def test_put_and_delete(ports: World) -> None:
    before = every_flow(ports, "ovs0")
    assert flows(ports) == []
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS), PutFlows("ovs0", "tap1", TWO, TEXTS[:1])) == [0, 0]
    own = sorted((ONE, number(ports, "tap0"), text) for text in TEXTS)
    other = [(TWO, number(ports, "tap1"), TEXTS[0])]
    assert flows(ports, ONE) == own and flows(ports, TWO) == other and flows(ports) == [*own, *other]
    assert sorted((each.cookie, each.port, each.text) for each in view(ports).flows_from("ovs0", number(ports, "tap0"))) == own
    assert [each.text for each in ports.host.snapshot().flows_from("ovs0", number(ports, "tap1"))] == [TEXTS[0]]
    assert do(ports, DeleteFlows("ovs0", ONE)) == [0]
    assert flows(ports) == other
    assert do(ports, DeleteFlows("ovs0", ONE), DeleteFlows("ovs0", TWO)) == [0, 0]
    assert every_flow(ports, "ovs0") == before


def test_put_replaces_what_the_cookie_had(ports: World) -> None:
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS), PutFlows("ovs0", "tap1", ONE, ("priority=8 actions=drop",))) == [0, 0]
    assert flows(ports) == [(ONE, number(ports, "tap1"), "priority=8 actions=drop")]
    assert do(ports, PutFlows("ovs0", "tap0", ONE, ())) == [0]
    assert flows(ports) == []


@pytest.mark.parametrize("cookie", [0, 7, FLOW_MARK + (1 << 40), FLOW_MARK - 1])
def test_flows_of_others_stay(ports: World, cookie: int) -> None:
    """A cookie that is nearly ours is another's."""
    foreign_flow(ports, "ovs0", cookie, "priority=9,udp actions=drop")
    before = every_flow(ports, "ovs0")
    assert flows(ports) == []
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS)) == [0]
    assert [flow for flow in every_flow(ports, "ovs0") if f"{ONE:#x}" not in flow] == before
    assert do(ports, DeleteFlows("ovs0", ONE)) == [0]
    assert every_flow(ports, "ovs0") == before


def test_all_or_none(ports: World) -> None:
    """A port that is not on the bridge: the flows that the cookie had are still there."""
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS)) == [0]
    before = flows(ports)
    assert "port" in told(ports, PutFlows("ovs0", "tap9", ONE, TEXTS[:1])).text
    assert flows(ports) == before


def test_no_bridge(ports: World) -> None:
    assert told(ports, PutFlows("ovs9", "tap0", ONE, TEXTS)).errno == errno.ENOENT
    assert told(ports, DeleteFlows("ovs9", ONE)).errno == errno.ENOENT
    assert list(view(ports).flows("ovs9")) == []


def test_a_restart_takes_them_away(ports: World) -> None:
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS)) == [0]
    restart_switch(ports)
    assert flows(ports) == []
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS)) == [0]
    assert [text for _, _, text in flows(ports)] == sorted(TEXTS)


def test_a_frozen_switch(ports: World) -> None:
    """Nothing is known then: neither that there are none, nor that they are gone."""
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS)) == [0]
    ports.freeze_switch()
    with pytest.raises(TryAgain):
        view(ports).flows("ovs0")
    for request in (PutFlows("ovs0", "tap0", ONE, TEXTS), DeleteFlows("ovs0", ONE)):
        assert told(ports, request).errno == errno.ETIMEDOUT


def test_texts(ovs_world: World) -> None:
    """As the switch prints them, in the order in which they were given."""
    given = ["priority=7,arp,actions=drop", "table=5,priority=65535,ip,nw_src=10.0.0.0/24,actions=resubmit(,0)", "table=0,udp,actions=drop"]
    assert list(view(ovs_world).flow_texts(given)) == [TEXTS[1], TEXTS[2], "udp actions=drop"]
    assert list(view(ovs_world).flow_texts([])) == []


@pytest.mark.parametrize("flow", ["priority=7,arp", "in_port=3,actions=drop", "cookie=7,actions=drop"])
def test_what_is_no_flow(ovs_world: World, flow: str) -> None:
    with pytest.raises(SettingsInvalid):
        view(ovs_world).flow_texts([flow])


def test_bridges(ovs_world: World) -> None:
    fake_bridge(ovs_world, "fake0", "ovs0", 5)
    ovs_world.ovs_bridge("ovs1")
    controlled(ovs_world, "ovs1")
    for name, real in (("ovs0", "ovs0"), ("fake0", "ovs0"), ("ovs1", "ovs1")):
        found = view(ovs_world).ovs_switch(name)
        assert found is not None and found == (real, real == "ovs1", True)
        assert ovs_world.host.snapshot().ovs_switch(name) == found
    assert view(ovs_world).ovs_switch("ovs2") is None
    assert sorted(view(ovs_world).ovs_switches()) == [("ovs0", False, True), ("ovs1", True, True)]


def test_a_flow_counts_nothing_at_first(ports: World) -> None:
    assert do(ports, PutFlows("ovs0", "tap0", ONE, TEXTS[:1])) == [0]
    assert list(view(ports).flows("ovs0")) == [Flow("ovs0", ONE, number(ports, "tap0"), TEXTS[0])]


#: What makes the guard's flows: tags, VLANs, IP.
GUARDED = {
    "plain": ("", "", "10.0.0.5"),
    "trunks": ("", ":3:4:5:6:7:40", "10.0.0.5"),
    "more addresses": (
        "netcommon:0:addresses:fd00::5 netcommon:0:prefixes:10.9.0.0/24 netcommon:0:prefixes:fd02::/64 netcommon:0:link_local:eui64",
        "",
        "10.0.0.5",
    ),
    "no address": ("", "", ""),
    "free": ("netcommon:0:allow_mac_spoofing netcommon:0:allow_ip_spoofing netcommon:0:allow_dhcp_spoofing", "", "10.0.0.5"),
    "nothing restricted": ("netcommon:0:allow_restricted_traffic", "", "10.0.0.5"),
}


@pytest.mark.parametrize("in_front", ["yes", ""])
@pytest.mark.parametrize("kind", GUARDED)
def test_the_guards_flows_need_no_program(ports: World, kind: str, in_front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent as we write them, and printed by Open vSwitch as the texts they were made from."""
    tags, vlans, ip = GUARDED[kind]
    one = nic("openvswitch", IP=ip, VLAN=vlans, TAGS=tags)
    _end, made = openvswitch_flows.flows(one, options_of(one, Settings(nic={"spoof_guard": True})))
    texts = tuple(flow for _name, flow in guard_flows({**dict(made.words), "in_front": in_front}, dict(made.lists)))

    def none(*arguments: object, **more: object) -> None:
        raise AssertionError("ovs-ofctl is run")

    with monkeypatch.context() as without:
        without.setattr(OpenFlow, "_run", none)
        assert do(ports, PutFlows("ovs0", "tap0", ONE, texts)) == [0]
        assert do(ports, PutFlows("ovs0", "tap0", ONE, texts), PutFlows("ovs0", "tap1", TWO, texts[:3])) == [0, 0]
    assert sorted(flows(ports, ONE)) == sorted((ONE, number(ports, "tap0"), text) for text in texts)
    with monkeypatch.context() as without:
        without.setattr(OpenFlow, "_run", none)
        assert do(ports, DeleteFlows("ovs0", ONE)) == [0]
    assert flows(ports) == sorted((TWO, number(ports, "tap1"), text) for text in texts[:3])


def test_a_port_of_another_bridge(ports: World) -> None:
    """Its number there is not its number here, which is another port's."""
    ports.ovs_bridge("ovs1")
    ports.tap("tap2")
    assert do(ports, PutOvsPort(PLAIN._replace(name="tap2", bridge="ovs1"))) == [0]
    assert "port" in told(ports, PutFlows("ovs0", "tap2", ONE, ("priority=65001 actions=drop",))).text
    assert flows(ports) == []
