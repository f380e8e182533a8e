"""check, repair and gc on a simulated node."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, BridgeVlan, OvsPort, Route, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import SetLink
from netcommon.lifecycle import check, gc, inventory
from runtime.errors import HostRefused, TryAgain
from runtime.locks import number
from runtime.record import APPLYING, REVERTING, SCHEMA
from tests.support.sim import MODES, UUIDS, Sim, nic

OTHER = {"INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02", "INTERFACE": "tap1"}
LOST = Rule(AF_INET6, 500, "tap9", 100)


def break_rule(sim: Sim) -> None:
    sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap0", 100))


def break_link(sim: Sim) -> None:
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), up=False))


def break_sysctl(sim: Sim) -> None:
    sim.host.kernel.settings.write("net/ipv4/conf/tap0/proxy_arp", "0")


def break_master(sim: Sim) -> None:
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), master=0))


def break_vlans(sim: Sim) -> None:
    sim.host.kernel.add_vlan(sim.index("tap0"), BridgeVlan(99))


def break_pvid(sim: Sim) -> None:
    sim.host.kernel.delete_vlan(sim.index("tap0"), 10)


def break_uplink(sim: Sim) -> None:
    sim.host.kernel.delete_vlan(sim.index("eth-brv"), 10)


def break_port(sim: Sim) -> None:
    sim.host.switch.put(OvsPort("tap0", "ovs0", tag=66))


def break_alias(sim: Sim) -> None:
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), alias="else"))


def break_mtu(sim: Sim) -> None:
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), mtu=1000))


DRIFTS = [
    ("routed, table", break_rule),
    ("routed, table", break_link),
    ("routed, table", break_sysctl),
    ("routed, IPv6", break_link),
    ("bridged", break_master),
    ("bridged", break_mtu),
    ("bridged", break_alias),
    ("bridged, hybrid", break_vlans),
    ("bridged, hybrid", break_pvid),
    ("bridged, access", break_uplink),
    ("bridged, access", break_master),
    ("openvswitch, access", break_port),
]


@pytest.mark.parametrize(("mode", "break_it"), DRIFTS, ids=[f"{mode}-{found.__name__}" for mode, found in DRIFTS])
def test_check_sees_it_and_repair_mends_it(sim: Sim, mode: str, break_it: object) -> None:
    """repair brings back the state after up, by as few requests as that takes, and then has nothing to do."""
    sim.up(nic(mode))
    whole = sim.picture()
    break_it(sim)  # type: ignore[operator]
    sim.requests()
    for view in (sim.host.view(), sim.host.snapshot()):
        report = check.check(sim.node, view, sim.record())
        assert report.drift and not report.good
    assert sim.requests() == []
    outcome = check.repair(sim.node, UUIDS[0], sim.call())
    assert outcome.changed and "repaired" in outcome.text
    assert sim.picture() == whole
    assert check.check(sim.node, sim.host.view(), sim.record()).good
    sim.requests()
    assert not check.repair(sim.node, UUIDS[0], sim.call()).changed
    assert sim.requests() == []
    sim.down(nic(mode))
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", MODES)
def test_a_good_nic_has_no_drift(sim: Sim, mode: str) -> None:
    sim.up(nic(mode))
    stored = Path(sim.paths.state, "nics", UUIDS[0] + ".json").read_bytes()
    sim.requests()
    assert check.check(sim.node, sim.host.snapshot(), sim.record()).good
    assert not check.repair(sim.node, UUIDS[0], sim.call()).changed
    assert sim.requests() == []
    assert Path(sim.paths.state, "nics", UUIDS[0] + ".json").read_bytes() == stored


def test_repair_uses_the_record_not_the_settings(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    break_rule(sim)
    sim.settings = sim.settings._replace(rule_preference=999)
    check.repair(sim.node, UUIDS[0], sim.call())
    assert Rule(AF_INET, 500, "tap0", 100) in sim.host.kernel.rules


def test_repair_leaves_the_others_alone(sim: Sim) -> None:
    sim.tap("tap1")
    sim.up(nic("routed, table"))
    sim.up(nic("bridged", **OTHER))
    break_rule(sim)
    sim.host.kernel.set_link(SetLink(sim.index("tap1"), master=0))
    sim.requests()
    check.repair(sim.node, UUIDS[0], sim.call())
    assert {sim.target(request) for request in sim.requests()} == {"tap0"}


def test_repair_of_what_cannot_be(sim: Sim) -> None:
    """A refusal is told; a NIC that is not up, or not there, is not repaired."""
    assert not check.repair(sim.node, UUIDS[0], sim.call()).changed
    sim.up(nic("routed, table"))
    break_rule(sim)
    with sim.failing(0, Answer(errno.EPERM, "no")), pytest.raises(HostRefused, match="rule add"):
        check.repair(sim.node, UUIDS[0], sim.call())
    assert sim.record().state == "up"
    sim.node.store.write(sim.record()._replace(state=REVERTING))
    with pytest.raises(HostRefused, match="reverting"):
        check.repair(sim.node, UUIDS[0], sim.call())
    sim.host.remove_link("tap0")
    assert "gone" in check.repair(sim.node, UUIDS[0], sim.call()).text


def test_repair_that_does_not_hold_says_so(sim: Sim) -> None:
    """The host says yes and does nothing."""
    sim.up(nic("routed, table"))
    break_rule(sim)
    sim.host.fail = lambda _request: Answer()
    with pytest.raises(HostRefused, match="does not hold"):
        check.repair(sim.node, UUIDS[0], sim.call())


@pytest.mark.parametrize("mode", MODES)
def test_gc_after_the_device_has_gone(sim: Sim, mode: str) -> None:
    """A dry run says it and changes nothing; then it goes; then there is nothing to say."""
    sim.up(nic(mode))
    sim.host.remove_link("tap0")
    left, files = sim.picture(), sim.files()
    sim.requests()
    said = sim.gc(dry_run=True)
    assert [found.action for found in said] == ["would be removed"]
    assert sim.requests() == [] and sim.picture() == left and sim.files() == files
    done = sim.gc()
    assert [(found.text, found.why) for found in done] == [(found.text, found.why) for found in said]
    assert {found.action for found in done} == {"removed"}
    empty = Sim(sim.paths.state + "-empty")
    empty.host.remove_link("tap0")
    assert sim.picture() == empty.picture() and sim.files() == []
    assert sim.gc() == []


def test_gc_leaves_living_nics_alone(sim: Sim) -> None:
    for position, mode in enumerate(("bridged, hybrid", "routed, table", "openvswitch, hybrid", "routed, IPv6", "ext")):
        if position:
            sim.tap(f"tap{position}")
        sim.up(nic(mode, INTERFACE=f"tap{position}", INTERFACE_UUID=UUIDS[position], INTERFACE_INDEX=str(position)))
    whole, files = sim.picture(), sim.files()
    sim.requests()
    assert sim.gc(dry_run=True) == sim.gc() == []
    assert sim.requests() == [] and sim.picture() == whole and sim.files() == files


def lose(sim: Sim) -> None:
    """Things of ours without a record, beside like ones that are not ours."""
    kernel = sim.host.kernel
    left = sim.host.add_tap("tap6", persistent=True)
    kernel.set_link(SetLink(left.index, up=True))
    for protocol in (174, 4):
        kernel.add_rule(LOST._replace(protocol=protocol))
        kernel.add_route(Route(AF_INET, 100, f"10.1.0.{protocol}/32", left.index, protocol=protocol))
    kernel.add_rule(LOST._replace(plain=False, preference=501))
    sim.host.switch.put(OvsPort("tap8", "ovs0", external_ids=(("netcommon-uuid", UUIDS[4]),)))
    sim.host.switch.put(OvsPort("tap7", "ovs0"))


def test_gc_removes_what_bears_our_mark_and_is_on_no_record(sim: Sim) -> None:
    """And nothing that is like it but for the mark."""
    lose(sim)
    before = sim.picture()
    assert len(sim.gc(dry_run=True)) == 3
    assert sim.picture() == before
    assert {found.action for found in sim.gc()} == {"removed"}
    after = sim.picture()
    assert [rule for rule in before["rules"] if rule not in after["rules"]] == [LOST]
    assert [route.destination for route in before["routes"] if route not in after["routes"]] == ["10.1.0.174/32"]
    assert [port.name for port in before["ovs"] if port not in after["ovs"]] == ["tap8"]
    assert after["links"] == before["links"] and after["vlans"] == before["vlans"]


def test_gc_keeps_what_a_lost_record_may_have_told_of(sim: Sim) -> None:
    """A record in quarantine, or of a newer version: a living device's things stay, for adopt or down."""
    sim.up(nic("routed, table"))
    whole = sim.picture()
    path = Path(sim.paths.state, "nics", UUIDS[0] + ".json")
    good = path.read_bytes()
    path.write_bytes(b"{" + good)
    found = sim.gc()
    assert {each.action for each in found} == {"kept"}
    assert any("does not parse" in each.text for each in found)
    assert any("adopt" in each.why for each in found)
    assert sim.picture() == whole
    assert [Path(sim.paths.state, name).read_bytes() for name in sim.files() if name.startswith("quarantine")] == [b"{" + good]
    said = sim.gc()
    assert sim.picture() == whole
    assert any(each.text.startswith(f"quarantine/{UUIDS[0]}") and "delete the file" in each.why for each in said)
    sim.host.remove_link("tap0")
    sim.gc()
    assert not [rule for rule in sim.host.kernel.rules if rule.protocol == 174]


def test_gc_keeps_the_nic_of_a_newer_version(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    whole = sim.picture()
    path = Path(sim.paths.state, "nics", UUIDS[0] + ".json")
    newer = path.read_bytes().replace(b'"schema":%d' % SCHEMA, b'"schema":99')
    path.write_bytes(newer)
    found = sim.gc()
    assert {each.action for each in found} == {"kept"}
    assert sim.picture() == whole and path.read_bytes() == newer


@pytest.mark.parametrize("table", ["links", "rules", "routes_of", "every_ovs_port"])
def test_an_inventory_that_failed_deletes_nothing(sim: Sim, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever part of it."""
    sim.up(nic("routed, table"))
    lose(sim)
    sim.host.remove_link("tap0")
    before, files = sim.picture(), sim.files()
    sim.requests()

    def broken(*_arguments: object) -> object:
        raise TryAgain("the dump was interrupted")

    monkeypatch.setattr(type(sim.host.view()), table, broken)
    with pytest.raises(TryAgain):
        sim.gc()
    assert sim.requests() == [] and sim.picture() == before and sim.files() == files
    monkeypatch.undo()
    sim.gc()
    assert sim.files() == []


def test_a_frozen_ovsdb_deletes_nothing(sim: Sim) -> None:
    sim.up(nic("openvswitch"))
    sim.host.remove_link("tap0")
    sim.host.switch.condition = sim.host.switch.condition._replace(database=False)
    with pytest.raises(TryAgain):
        sim.gc()
    assert len(sim.records()) == 1
    sim.host.switch.condition = sim.host.switch.condition._replace(database=True)
    sim.gc()
    assert sim.files() == [] and sim.host.switch.port("tap0") is None


@pytest.mark.parametrize("state", [APPLYING, REVERTING])
@pytest.mark.parametrize("held", [False, True])
def test_a_hook_that_died_and_one_that_works(sim: Sim, state: str, held: bool) -> None:
    """The device lives and the record is not done: whether somebody holds the NIC's lock tells the two apart."""
    sim.up(nic("routed, table"))
    sim.node.store.write(sim.record()._replace(state=state))
    whole = sim.picture()
    descriptor = os.open(f"{sim.paths.state}/locks/uuid-{number(UUIDS[0]):02d}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if held:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        said = sim.gc(dry_run=True)
        found = sim.gc()
    finally:
        os.close(descriptor)
    if held:
        assert said == found == [] and sim.picture() == whole and len(sim.records()) == 1
    else:
        assert [each.why for each in found] == [f"a hook died while {state} it"]
        assert sim.picture() == sim.before and sim.files() == []


def test_gc_waits_for_nobody(sim: Sim) -> None:
    """The device of a gone NIC is locked by a hook: it is left for the next time, at once, and the others are collected."""
    sim.tap("tap1")
    sim.up(nic("routed, table"))
    sim.up(nic("routed, table", IP="10.0.0.6", **OTHER))
    sim.host.remove_link("tap0")
    sim.host.remove_link("tap1")
    assert number("tap0") != number("tap1") and number(UUIDS[0]) != number(UUIDS[1])
    descriptor = os.open(f"{sim.paths.state}/locks/device-{number('tap0'):02d}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert sorted(each.action for each in sim.gc()) == ["kept", "removed"]
    finally:
        os.close(descriptor)
    assert [record.uuid for record in sim.records()] == [UUIDS[0]]
    sim.gc()
    assert sim.files() == []


def test_a_second_look_before_anything_is_undone(sim: Sim) -> None:
    """The NIC came up again between gc's first look and its lock: it stays."""
    sim.up(nic("routed, table"))
    sim.host.remove_link("tap0")
    record = sim.record()
    sim.tap("tap0")
    sim.up(nic("routed, table"))
    whole = sim.picture()
    assert gc.collect(sim.node, record, sim.call()) == "kept"
    assert sim.picture() == whole


def test_what_comes_between_the_look_and_the_removal_stays(sim: Sim) -> None:
    """A lost rule was seen; by the time it would go, a hook has made the same one on purpose."""
    sim.host.kernel.add_rule(Rule(AF_INET, 500, "tap0", 100))
    (owned,) = (thing for thing in inventory.look(sim.node).owned if thing.device == "tap0")
    before = inventory.records(sim.node)
    sim.up(nic("routed, table"))
    for known in (before, inventory.records(sim.node)):
        assert gc.remove(sim.node, owned, known, sim.call()) == "kept"
    assert Rule(AF_INET, 500, "tap0", 100) in sim.host.kernel.rules


def test_a_lost_rule_of_the_devices_name_goes_before_the_next_up(sim: Sim) -> None:
    """It would send the guest's packets to another table."""
    sim.host.kernel.add_rule(Rule(AF_INET, 400, "tap0", 200))
    sim.up(nic("bridged"))
    assert not [rule for rule in sim.host.kernel.rules if rule.protocol == 174]
    assert any("left behind with no record, removed" in line for line in sim.lines)


def test_one_instance_alone(sim: Sim) -> None:
    """Ganeti's hook: the NICs of that instance whose devices are gone."""
    sim.tap("tap1")
    sim.tap("tap2")
    sim.up(nic("routed, table"))
    sim.up(nic("routed, table", IP="10.0.0.6", **OTHER))
    sim.up(nic("bridged", INTERFACE="tap2", INTERFACE_UUID=UUIDS[2], INTERFACE_INDEX="1"))
    sim.host.remove_link("tap0")
    sim.host.remove_link("tap1")
    assert [found.action for found in gc.collect_instance(sim.node, "web1", sim.call())] == ["removed"]
    assert sorted(record.uuid for record in sim.records()) == [UUIDS[1], UUIDS[2]]
    assert gc.collect_instance(sim.node, "nobody", sim.call()) == []
