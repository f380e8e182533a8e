"""Flows of a NIC: what is planned, what templates may make, what is recorded, and what is found to differ."""

from __future__ import annotations

import errno
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK, Flow
from netcommon.host.ovs.ofctl import added, normal, read_flow
from netcommon.modes import openvswitch_flows
from netcommon.modes.openvswitch_flows import masks
from netcommon.operations import from_json
from netcommon.operations.base import to_json
from netcommon.operations.flows import Flows, cookie_of
from netcommon.operations.guard.flows import GUARD
from netcommon.options.sources import options_of
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid
from tests.support.sim import UUIDS, Sim, nic

SITE = "ovs/site.j2"
COUNTED = " cookie=0x7, duration=1.5s, table=0, n_packets=3, n_bytes=180"


@pytest.fixture
def sim(tmp_path: object) -> Sim:
    return Sim(str(tmp_path), Settings(service_timeout=2, nic={"flows": ("site",), "spoof_guard": False}))


def flows(sim: Sim, template: str, **changes: str) -> Flows:
    """What is resolved of one template of the site's."""
    sim.host.templates[SITE] = template
    found = nic("openvswitch", **changes)
    _end, planned = openvswitch_flows.flows(found, options_of(found, sim.settings))
    (made,) = planned.resolve(sim.host.view(), [])
    assert isinstance(made, Flows) and from_json(to_json(made)) == made
    return made


@given(st.sets(st.integers(1, 4094)))
def test_masks_cover_the_vids_and_no_other(vids: set[int]) -> None:
    found = [tuple(int(part, 16) for part in text.split("/")) for text in masks(vids)]
    assert {vid for vid in range(4096) for value, mask in found if (vid | 0x1000) & mask == value} == vids
    assert len(found) <= len(vids) and not any(not value & 0x1000 or not mask & 0x1000 for value, mask in found)


def test_a_whole_trunk_is_few_flows() -> None:
    assert len(list(masks(range(1, 4095)))) == 22
    assert list(masks((24, 25, 26, 27, 20))) == ["0x1014/0x1fff", "0x1018/0x1ffc"]


def test_cookies() -> None:
    """Ours by their first 24 bits; others for other NICs, and for another device of the same NIC."""
    found = [cookie_of(uuid, device) for uuid in UUIDS for device in ("tap0", "tap1", "gnt.com.0", "vif1.0-emu")]
    assert len(set(found)) == len(found)
    assert {cookie & FLOW_MARK_MASK for cookie in found} == {FLOW_MARK} and max(found) < 1 << 64


def test_what_a_template_is_given(sim: Sim) -> None:
    words = "{{ uuid }} {{ device }} {{ bridge }} {{ mac }} {{ instance }} {{ index }} {{ name }} {{ network }}"
    lists = "{{ ipv4 }} {{ ipv6 }} {{ link_local }} {{ vlans }} {{ tags }}"
    truths = "{{ check_mac }} {{ check_ipv4 }} {{ check_ipv6 }} {{ allow_dhcp_spoofing }} {{ allow_restricted_traffic }}"
    text = f"a={words},actions=drop\nb={lists},actions=drop\nc={truths},actions=drop"
    made = flows(sim, text, IP="10.0.0.5", VLAN=":7")
    assert made.flows == (
        f"a={UUIDS[0]} tap0 ovs0 aa:00:00:00:00:01 web1 0   actions=drop",
        "b=['10.0.0.5'] [] ['fe80::/10'] ['0x1007/0x1fff'] ['a:b'] actions=drop",
        "c=yes yes    actions=drop",
    )


def test_names_comments_and_empty_lines(sim: Sim) -> None:
    made = flows(sim, "\n  # a comment\nlan: priority=7,actions=drop\n\n   priority=8,ipv6,ipv6_src=::,actions=drop\n{# none #}\n")
    assert made.flows == ("priority=7 actions=drop", "priority=8,ipv6,ipv6_src=:: actions=drop")
    assert made.names == ("site.lan", "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("priority=65000,actions=drop", "priorities of table 0 from 65000 on are the spoof guard's"),
        ("table=0,priority=65535,arp,actions=drop", "priorities of table 0"),
        ("in_port=7,actions=drop", "template ovs/site.j2"),
        ("cookie=7,actions=drop", "template ovs/site.j2"),
        ("{{ unknown }}", "'unknown' is undefined"),
        ("priority=7", "template ovs/site.j2"),
    ],
)
def test_what_a_template_may_not_make(sim: Sim, line: str, said: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        flows(sim, line)
    assert said in str(caught.value)
    assert sim.picture() == sim.before


def test_other_tables_have_all_priorities(sim: Sim) -> None:
    assert flows(sim, "table=7,priority=65535,actions=drop").flows == ("table=7,priority=65535 actions=drop",)


def test_a_template_that_is_not_there(sim: Sim) -> None:
    with pytest.raises(NetcommonError, match=r"there is no template ovs/site\.j2"):
        sim.up(nic("openvswitch"))
    assert sim.picture() == sim.before and sim.records() == []


def test_no_bridge(sim: Sim) -> None:
    with pytest.raises(HostRefused, match="Open vSwitch bridge ovs9 does not exist"):
        flows(sim, "actions=drop", LINK="ovs9")


def test_a_controller_is_told_of(sim: Sim) -> None:
    sim.host.switch.controlled.add("ovs0")
    sim.host.templates[SITE] = "actions=drop"
    assert sim.up(nic("openvswitch")).changed
    assert [line for line in sim.lines if "ovs0 has a controller" in str(line)]


def test_repair_puts_nothing_over_a_flow_of_somebody_elses(sim: Sim) -> None:
    """One with the match and priority of one of ours, as `ovs-ofctl add-flow` replaces it; check names it."""
    from netcommon.lifecycle.check import check, repair

    sim.host.templates[SITE] = "priority=7,actions=drop\npriority=8,actions=drop"
    sim.up(nic("openvswitch"))
    (ours, other) = sim.host.openflow.all
    theirs = ours._replace(cookie=7, text="priority=7 actions=NORMAL")
    sim.host.openflow.all = [theirs, other]
    ((_does, differs),) = check(sim.node, sim.host.view(), sim.record()).drift
    assert "a flow of somebody else's stands in the place of one: cookie=0x7,in_port=tap0,priority=7" in differs
    with pytest.raises(HostRefused, match='ovs-ofctl --strict del-flows ovs0 "in_port=tap0,priority=7"'):
        repair(sim.node, UUIDS[0], sim.call())
    assert sim.host.openflow.all == [theirs, other]
    sim.host.openflow.all = [other]
    repair(sim.node, UUIDS[0], sim.call())
    assert sorted(sim.host.openflow.all) == sorted([ours, other])


@pytest.mark.parametrize("site", ["there", "gone"])
def test_repair_puts_the_guard_back_and_leaves_a_flow_of_somebody_elses(sim: Sim, site: str) -> None:
    """The guest is guarded again, what of the template can be there is, and repair names what stands in the way."""
    from netcommon.lifecycle.check import check, repair

    sim.host.templates[SITE] = "priority=7,actions=drop\npriority=8,actions=drop"
    sim.up(nic("openvswitch", TAGS="netcommon:0:spoof_guard:true"))
    whole = list(sim.host.openflow.all)
    guard = [flow for flow in whole if "reg13" in flow.text]
    (ours, other) = [flow for flow in whole if flow not in guard]
    theirs = ours._replace(cookie=7, text="priority=7 actions=NORMAL")
    sim.host.openflow.all = [theirs, *guard[1:], *([other] if site == "there" else [])]
    for _ in range(2):  # the guard is put back, and then nothing more is done
        with pytest.raises(HostRefused, match='ovs-ofctl --strict del-flows ovs0 "in_port=tap0,priority=7"'):
            repair(sim.node, UUIDS[0], sim.call())
        assert sorted(sim.host.openflow.all) == sorted([theirs, *guard, other])
    sim.requests()
    with pytest.raises(HostRefused):
        repair(sim.node, UUIDS[0], sim.call())
    assert sim.requests() == []
    ((_does, differs),) = check(sim.node, sim.host.view(), sim.record()).drift
    assert "cookie=0x7,in_port=tap0,priority=7" in differs
    sim.host.openflow.all.remove(theirs)
    repair(sim.node, UUIDS[0], sim.call())
    assert sorted(sim.host.openflow.all) == sorted(whole) and check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize("call", ["second up", "repair", "another option"])
def test_the_switch_is_asked_for_others_flows_only_where_one_of_ours_is_missing(
    sim: Sim, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Each question is a process."""
    from netcommon.host.simulated.view import MemoryView
    from netcommon.lifecycle.check import repair

    sim.host.templates[SITE] = "priority=7,actions=drop"
    sim.up(nic("openvswitch"))
    asked: list[str] = []
    for name in ("flows", "flows_from"):
        found = getattr(MemoryView, name)
        monkeypatch.setattr(MemoryView, name, lambda view, *words, name=name, found=found: (asked.append(name), found(view, *words))[1])
    if call == "repair":
        sim.host.openflow.all = []
        repair(sim.node, UUIDS[0], sim.call())
        assert "flows_from" in asked
    else:
        sim.up(nic("openvswitch", TAGS="netcommon:0:rate_in:10mbit" if call == "another option" else "a:b"))
        assert asked and set(asked) == {"flows"}


def test_a_way_back_in_spite_of_a_flow_of_somebody_elses(sim: Sim) -> None:
    """The change did not hold: the NIC is as it was, but for the flow in the place of which another stands."""
    from netcommon.host.api.host import Answer
    from netcommon.lifecycle.check import check
    from runtime.record import UP

    sim.host.templates[SITE] = "priority=7,actions=drop\npriority=8,actions=drop"
    sim.host.templates["ovs/other.j2"] = "priority=9,actions=drop"
    sim.up(nic("openvswitch"))
    (ours, other) = sim.host.openflow.all
    theirs = ours._replace(cookie=7, text="priority=7 actions=NORMAL")
    for place in range(100):
        sim.host.openflow.all = [theirs, other]
        with sim.failing(place, Answer(errno.EINVAL, "no"), times=1) as refused:
            try:
                sim.up(nic("openvswitch", VLAN="9", TAGS="netcommon:0:flows:other"))
                assert refused == []
                break
            except HostRefused:
                pass
        assert sim.record().state == UP and sim.record().before is None, place
        assert sorted(sim.host.openflow.all) == sorted([theirs, other])
        ((_does, differs),) = check(sim.node, sim.host.view(), sim.record()).drift
        assert "cookie=0x7" in differs
    assert place > 1


def test_repair_takes_what_was_recorded(sim: Sim) -> None:
    """Whatever the template says by then; a new up takes the new one."""
    from netcommon.lifecycle.check import check, repair

    sim.host.templates[SITE] = "priority=7,actions=drop"
    sim.up(nic("openvswitch"))
    sim.host.templates[SITE] = "priority=8,actions=drop"
    sim.host.openflow.restart()
    repair(sim.node, UUIDS[0], sim.call())
    assert [flow.text for flow in sim.host.openflow.all] == ["priority=7 actions=drop"]
    assert check(sim.node, sim.host.view(), sim.record()).good
    assert sim.up(nic("openvswitch")).changed
    assert [flow.text for flow in sim.host.openflow.all] == ["priority=8 actions=drop"]
    assert check(sim.node, sim.host.snapshot(), sim.record()).good


@pytest.mark.parametrize("bridge", ["ovs0", "fake0"])
def test_gc_leaves_the_flows_of_a_living_guest(sim: Sim, bridge: str) -> None:
    """Though its record is lost; when the device is gone too, they go, and nobody else's do."""
    sim.host.add_fake_ovs_bridge("fake0", "ovs0", 5)
    before = sim.picture()
    sim.host.templates[SITE] = "priority=7,actions=drop"
    sim.up(nic("openvswitch", LINK=bridge))
    shutil.rmtree(sim.paths.state)
    foreign = Flow("ovs0", 7, 1, "priority=7 actions=drop")
    sim.host.openflow.all.append(foreign)
    assert {(found.action, "OpenFlow" in found.text) for found in sim.gc()} == {("kept", True), ("kept", False)}
    assert [flow.bridge for flow in sim.host.openflow.all] == ["ovs0", "ovs0"]
    sim.host.remove_link("tap0")
    assert {found.action for found in sim.gc()} == {"removed"}
    assert sim.host.openflow.all == [foreign] and sim.picture()["ovs"] == before["ovs"]


def test_counters(sim: Sim) -> None:
    sim.host.templates[SITE] = "lan: priority=7,actions=drop\nlan: priority=8,actions=drop\nactions=normal\nmail: priority=9,actions=drop"
    sim.up(nic("openvswitch"))
    tables = sim.host.openflow
    tables.all = [flow._replace(packets=number) for number, flow in enumerate(tables.all, 5)]
    (made,) = [one for one in map(from_json, sim.record().operations) if isinstance(one, Flows)]
    assert list(made.counters(sim.host.view())) == [("site.lan", 11), ("site.mail", 8)]


@pytest.mark.parametrize(
    ("options", "present", "absent"),
    [
        ("", ("dl_src=", "arp_spa=10.0.0.5", "tp_src=67", "icmp_type=134"), ()),
        ("allow_mac_spoofing", ("arp_spa=10.0.0.5",), ("dl_src=", "arp_sha=", "nd_tll=", "nd_sll=")),
        ("allow_ip_spoofing", ("dl_src=", "tp_src=67"), ("arp_spa=", "nw_src=", "ipv6_src=", "nd_target=fe80")),
        ("allow_dhcp_spoofing", ("dl_src=", "arp_sha="), ("tp_src=67", "nw_src=", "icmp_type=134")),
    ],
)
def test_the_guard(tmp_path: object, options: str, present: tuple[str, ...], absent: tuple[str, ...]) -> None:
    """All of it is above the site's priorities, in table 0, and bears the state it is for."""
    sim = Sim(str(tmp_path), Settings(service_timeout=2, nic={"spoof_guard": True, **({options: True} if options else {})}))
    found = nic("openvswitch", IP="10.0.0.5")
    _end, planned = openvswitch_flows.flows(found, options_of(found, sim.settings))
    assert planned.templates == (GUARD,)
    (made,) = planned.resolve(sim.host.view(), [])
    assert isinstance(made, Flows)
    text = "\n".join(flow for flow in made.flows if ",rarp," not in flow)  # QEMU's own announcement, whose only form is fixed
    assert len(text.splitlines()) == len(made.flows) - 1
    assert [word for word in present if word not in text] == [] == [word for word in absent if word in text]
    for flow in made.flows:
        fields = dict(field.partition("=")[::2] for field in flow.split(" ")[0].split(","))
        assert 65000 <= int(fields["priority"]) < 65100 and fields["reg13"].endswith("/0xe0000000") and "table" not in fields
        assert flow.endswith(("actions=drop", "resubmit(,0)"))


@pytest.mark.parametrize(
    ("line", "text", "port", "packets"),
    [
        (f"{COUNTED}, priority=7,arp,in_port=2 actions=drop", "priority=7,arp actions=drop", 2, 3),
        (" cookie=0x7, table=5, actions=NORMAL", "table=5 actions=NORMAL", 0, 0),
        (" cookie=0x7, in_port=LOCAL actions=drop", "actions=drop", 65534, 0),
        (" cookie=0x7, idle_timeout=5, priority=7 actions=drop", "idle_timeout=5,priority=7 actions=drop", 0, 0),
        (" cookie=0x7, n_packets=n/a, priority=7,in_port=1,udp actions=load:0x1->NXM_NX_REG1[],drop", None, 1, 0),
    ],
)
def test_what_the_switch_prints(line: str, text: str | None, port: int, packets: int) -> None:
    flow = read_flow("ovs0", line)
    assert flow is not None and (flow.bridge, flow.cookie, flow.port, flow.packets) == ("ovs0", 7, port, packets)
    assert flow.text == (text or "priority=7,udp actions=load:0x1->NXM_NX_REG1[],drop")


def test_what_is_no_flow_of_it() -> None:
    assert read_flow("ovs0", "OFPST_FLOW reply (OF1.4) (xid=0x4):") is None and read_flow("ovs0", "") is None


@pytest.mark.parametrize("parsed", ["cookie:0x4", "idle:5", "send_flow_rem", "in_port=3", "table:5 priority=7 idle:5"])
def test_what_is_more_than_a_match(parsed: str) -> None:
    with pytest.raises(SettingsInvalid, match="only a table, a priority, a match"):
        normal(f" {parsed} actions=drop", "x")


def test_to_the_switch_and_back() -> None:
    for flow in ("actions=NORMAL", "priority=7,arp actions=drop", "table=5,ip actions=output:1"):
        line = added(flow, 0x7, '"tap0"')
        assert line.startswith("add cookie=0x7,") and 'in_port="tap0",actions=' in line
        words = line.removeprefix("add ").replace(',in_port="tap0",actions=', " actions=").removeprefix("cookie=0x7")
        assert words.lstrip(", ") == flow
