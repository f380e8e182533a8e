"""The guard's flows, said in Python, are what our template makes and Open vSwitch prints."""

from __future__ import annotations

import time
from hashlib import sha256
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netcommon.host.ovs.jsonrpc import Deadline
from netcommon.host.ovs.ofctl import OpenFlow
from netcommon.host.ovs.openflow_codec import StrangeError, encode
from netcommon.modes import openvswitch_flows
from netcommon.operations import from_json
from netcommon.operations.flows import Flows
from netcommon.operations.guard.flows import FOLLOWED, GUARD, guard_flows
from netcommon.operations.guard.table import GuardTable, NicGuard
from netcommon.options.sources import options_of
from netcommon.settings.model import Settings
from netcommon.templates import read, render
from runtime.errors import SettingsInvalid
from tests.support.sim import Sim, nic

NOBODYS = "/nonexistent"
SWITCHES = ("allow_mac_spoofing", "allow_ip_spoofing", "allow_dhcp_spoofing", "allow_restricted_traffic")
PREFIXES = ("10.0.0.6", "10.9.0.0/24", "fd00::5", "fd02::/64", "2001:db8::1")


def by_template(made: Flows, words: dict[str, str]) -> list[tuple[str, str]]:
    """As a site's copy of the template makes them."""
    deadline = cast(Deadline, SimpleNamespace(seconds=20.0))
    switch = OpenFlow(NOBODYS, deadline, time.monotonic, lambda bridge, names: {}, lambda seconds: True)
    text = render(GUARD, {**words, **{name: list(words) for name, words in made.lists}}, lambda name: read(name, NOBODYS))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    named = [(name, flow) if flow else ("", name) for name, _, flow in (line.partition(": ") for line in lines)]
    return list(zip((name for name, _ in named), switch.texts([flow for _, flow in named]), strict=True))


@settings(max_examples=60)
@given(
    st.sets(st.sampled_from(SWITCHES)),
    st.sets(st.sampled_from(PREFIXES)),
    st.sets(st.integers(1, 40), max_size=12),
    st.sampled_from(["", "eui64"]),
    st.sampled_from(["10.0.0.5", ""]),
    st.sampled_from(["yes", ""]),
)
def test_the_same_as_the_template(allowed: set[str], more: set[str], vids: set[int], link_local: str, ip: str, in_front: str) -> None:
    tags = [f"netcommon:0:{name}" for name in allowed]
    tags += [f"netcommon:0:{'prefixes' if '/' in address else 'addresses'}:{address}" for address in more]
    tags += [f"netcommon:0:link_local:{link_local}"] if link_local else []
    one = nic("openvswitch", IP=ip, VLAN="".join(f":{vid}" for vid in sorted(vids)), TAGS=" ".join(sorted(tags)))
    _end, made = openvswitch_flows.flows(one, options_of(one, Settings(nic={"spoof_guard": True})))
    words = {**dict(made.words), "in_front": in_front}
    flows = list(guard_flows(words, dict(made.lists)))
    assert flows == by_template(made, words)
    for _name, flow in flows:
        encode(flow, 1)  # raises StrangeError for what ovs-ofctl would have to be run for


@pytest.mark.parametrize(
    "flow",
    [
        "actions=NORMAL",
        "priority=7 actions=NORMAL",
        "table=1,priority=7 actions=drop",
        "priority=7,tcp,tp_dst=80 actions=drop",
        "priority=7,tp_dst=80 actions=drop",
        "priority=7,ip,nw_frag=later actions=drop",
        "priority=7,ip,nw_src=10.0.0.0/33 actions=drop",
        "priority=7,ip,nw_src=10.0.0 actions=drop",
        "priority=7,dl_src=aa:bb actions=drop",
        "priority=7,reg13=0x1ffffffff actions=drop",
        "priority=7,ct_state=+new actions=drop",
        "priority=7 actions=load:0x1->NXM_NX_REG13[29..31],resubmit(,1)",
        "priority=7 actions=load:0x1->NXM_NX_REG12[29..31],resubmit(,0)",
        "priority=7 actions=",
        "",
    ],
)
def test_what_is_not_the_guards_is_left_to_ovs_ofctl(flow: str) -> None:
    with pytest.raises(StrangeError):
        encode(flow, 1)


def test_the_template_is_the_one_that_is_followed() -> None:
    assert sha256(read(GUARD, NOBODYS).encode()).hexdigest() == FOLLOWED


def test_a_sites_own_template_takes_its_place(tmp_path: object) -> None:
    sim = Sim(str(tmp_path), Settings(service_timeout=2, nic={"spoof_guard": True}))
    sim.host.templates[GUARD] = "priority=65001,actions=drop"
    sim.up(nic("openvswitch"))
    assert [flow.text for flow in sim.host.openflow.all] == ["priority=65001 actions=drop"]


def forwarding(sim: Sim, monkeypatch: pytest.MonkeyPatch, userspace: bool) -> None:
    """Have the datapath of ovs0 be in user space, or the kernel's."""
    switch = sim.host.view().ovs_switch("ovs0")
    assert switch is not None
    monkeypatch.setattr(type(sim.host.view()), "ovs_switch", lambda self, name: switch._replace(userspace=userspace))


@pytest.mark.parametrize(("userspace", "template"), [(False, ""), (True, ""), (False, "priority=65001,actions=drop")])
def test_the_guard_before_the_flows(tmp_path: object, monkeypatch: pytest.MonkeyPatch, userspace: bool, template: str) -> None:
    """It is there where the kernel forwards, and no template of the site's says what passes; and it goes with the NIC."""
    sim = Sim(str(tmp_path), Settings(service_timeout=2, nic={"spoof_guard": True}))
    if template:
        sim.host.templates[GUARD] = template
    forwarding(sim, monkeypatch, userspace)
    sim.up(nic("openvswitch", VLAN=":3:4"))
    guards = [each for each in map(from_json, sim.record().operations) if isinstance(each, GuardTable | NicGuard)]
    assert len(guards) == (0 if userspace or template else 2)
    assert [each.vlans for each in guards if isinstance(each, NicGuard)] == ([] if userspace or template else [(3, 4)])
    view = sim.host.view()
    assert [each.differs(view) for each in guards] == [""] * len(guards)
    if not template:  # what is cut off is dropped once: by the flows only where nobody else does
        hidden = [flow for flow in sim.host.openflow.all if "nw_proto=0 " in flow.text or "reg14=0 " in flow.text]
        assert bool(hidden) == userspace


def test_the_counts_of_both_are_summed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from netcommon.cli.commands import show

    sim = Sim(str(tmp_path), Settings(service_timeout=2, nic={"spoof_guard": True}))
    forwarding(sim, monkeypatch, userspace=False)
    sim.up(nic("openvswitch"))
    tables = sim.host.openflow
    tables.all = [flow._replace(packets=1) for flow in tables.all]
    monkeypatch.setattr(show, "dropped", lambda guard, view: {"mac": 100, "sources": 7})
    operations = [from_json(each) for each in sim.record().operations]
    (flows,) = [each for each in operations if isinstance(each, Flows)]
    alone = dict(flows.counters(sim.host.view()))
    assert show._dropped(sim.host.view(), operations) == {**alone, "mac": alone["mac"] + 100, "sources": 7}


@pytest.mark.parametrize("known", [True, False])
def test_a_switch_that_prints_otherwise(tmp_path: object, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """After an upgrade of Open vSwitch: the flows are its own as long as it takes ours for the same; else they are made anew."""
    from netcommon.host.simulated.openflow import Tables

    sim = Sim(str(tmp_path), Settings(service_timeout=2, nic={"spoof_guard": True}))
    sim.up(nic("openvswitch"))
    tables = sim.host.openflow
    tables.all = [flow._replace(text=flow.text.upper(), packets=1) for flow in tables.all]

    def texts(self: Tables, flows: list[str]) -> list[str]:
        if not known:
            raise SettingsInvalid("no flows")
        return [flow.replace(",actions=", " actions=").upper() for flow in flows]

    monkeypatch.setattr(Tables, "texts", texts)
    (made,) = [each for each in map(from_json, sim.record().operations) if isinstance(each, Flows)]
    assert (made.differs(sim.host.view()) == "") == known
    assert (sum(dict(made.counters(sim.host.view())).values()) > 0) == known
