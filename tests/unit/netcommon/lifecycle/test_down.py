"""down on a simulated node: which record it means, what it leaves alone, and what it waits for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, BridgeVlan, Link, OvsPort, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddVlan
from netcommon.lifecycle.context import SHUTDOWN
from runtime.environment import DownHint
from runtime.errors import HostRefused, TryAgain
from runtime.record import CLOSING, UP
from tests.support.sim import MODES, UUIDS, Sim, nic

OTHER = {"INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}


def replug(sim: Sim, tap: str = "tap0") -> None:
    """The guest dies, and another one's tap gets the same name."""
    sim.host.remove_link(tap)
    sim.tap(tap)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("other", ["the same", "routed, table", "openvswitch"])
def test_a_late_down_leaves_the_next_guest_of_the_tap_whole(sim: Sim, mode: str, other: str) -> None:
    second = nic(mode if other == "the same" else other, **OTHER)
    sim.up(nic(mode))
    replug(sim)
    sim.up(second)
    whole = sim.picture()
    sim.requests()
    for hint in (nic(mode), DownHint(UUIDS[0]), DownHint(UUIDS[0], "tap0"), DownHint(UUIDS[0], "tap0", "web1", 0)):
        assert not sim.down(hint).changed
    assert sim.requests() == []
    assert sim.picture() == whole
    assert [record.uuid for record in sim.records()] == [UUIDS[1]]


@pytest.mark.parametrize("mode", ["routed, table", "routed, IPv6", "routed, prefix"])
def test_a_late_down_leaves_the_next_guest_of_the_address_whole(sim: Sim, mode: str) -> None:
    """The second guest has another tap and the first one's address; the first tap is still there."""
    sim.tap("tap1")
    sim.up(nic(mode))
    sim.up(nic(mode, INTERFACE="tap1", **OTHER))
    sim.down(nic(mode))
    fresh = Sim(sim.paths.state + "-fresh")
    fresh.tap("tap1")
    fresh.up(nic(mode, INTERFACE="tap1", **OTHER))
    assert sim.picture() == fresh.picture()


def test_without_a_uuid_the_next_guest_of_the_index_is_left_whole(sim: Sim) -> None:
    """The UUID is made of instance, index and MAC: another MAC is another NIC."""
    first = nic("routed, table", INTERFACE_UUID="")
    second = nic("routed, table", INTERFACE_UUID="", MAC="aa:00:00:00:00:09")
    assert first.uuid != second.uuid
    sim.up(first)
    replug(sim)
    sim.up(second)
    whole = sim.picture()
    sim.down(DownHint(device="tap0", instance="web1", index=0, mac=first.mac))
    assert sim.picture() == whole
    sim.down(DownHint(device="tap0", instance="web1", index=0, mac=second.mac))
    assert sim.files() == []


def test_a_shutdown_while_the_guest_runs_waits_for_the_device(sim: Sim) -> None:
    """Ganeti 3.2 calls down right after the powerdown request, again and again."""
    for _ in range(3):
        sim.up(nic("routed, table"))
        whole = sim.picture()
        sim.requests()
        for _ in range(3):
            outcome = sim.shutdown(nic("routed, table"))
            assert not outcome.changed and "still held" in outcome.text
        assert sim.requests() == [] and sim.picture() == whole
        assert sim.record().state == CLOSING
        sim.gc()
        assert sim.picture() == whole
    sim.host.remove_link("tap0")
    assert sim.shutdown(nic("routed, table")).changed
    assert sim.files() == []
    assert not [rule for rule in sim.host.kernel.rules if rule.protocol == 174]


def test_closing_ends_with_gc_when_the_device_is_gone(sim: Sim) -> None:
    sim.up(nic("openvswitch"))
    sim.shutdown(nic("openvswitch"))
    sim.host.remove_link("tap0")
    assert [found.action for found in sim.gc()] == ["removed"]
    assert sim.files() == [] and sim.host.switch.port("tap0") is None


def test_closing_ends_with_gc_when_nobody_holds_a_lasting_tap(sim: Sim) -> None:
    sim.up(nic("bridged"))
    sim.shutdown(nic("bridged"))
    tap = sim.index("tap0")
    sim.host.kernel.links[tap] = sim.host.kernel.links[tap]._replace(holders=0)
    assert [found.why for found in sim.gc()] == ["it is closing, and nobody holds its device any more"]
    assert sim.files() == []


@pytest.mark.parametrize("again", ["the same", "another"])
def test_closing_ends_with_the_next_up(sim: Sim, again: str) -> None:
    """The same NIC on the living device is up again; another NIC on the next device of that name finds nothing left."""
    sim.up(nic("routed, table"))
    whole = sim.picture()
    sim.shutdown(nic("routed, table"))
    if again == "the same":
        sim.requests()
        sim.up(nic("routed, table"))
        assert sim.requests() == [] and sim.picture() == whole and sim.record().state == UP
    else:
        replug(sim)
        sim.up(nic("bridged", **OTHER))
        assert [record.uuid for record in sim.records()] == [UUIDS[1]]
        assert not [rule for rule in sim.host.kernel.rules if rule.protocol == 174]


@pytest.mark.parametrize("context", ["hot-remove", "migrate", "migrate-failed", "purge"])
def test_other_contexts_do_not_wait(sim: Sim, context: str) -> None:
    sim.up(nic("routed, table"))
    assert sim.down(nic("routed, table"), context).changed
    assert sim.picture() == sim.before


def test_qemus_own_downscript_is_final(sim: Sim) -> None:
    """Its parent is the process that holds the tap; a stranger's call is not, nor is one whose parent is 0."""
    sim.up(nic("routed, table"))
    for parent in (0, 1, 4241):
        assert not sim.shutdown(nic("routed, table"), parent=parent).changed
    assert sim.shutdown(nic("routed, table"), parent=4242).changed
    assert sim.picture() == sim.before


def test_the_administrators_word_is_final(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    assert sim.shutdown(nic("routed, table"), final=True).changed
    assert sim.picture() == sim.before


def test_a_uuid_with_anothers_tap(sim: Sim) -> None:
    """Ganeti 3.2 pairs NICs with taps by index, wrongly after any hotplug: the other's tap is not touched, nor the NIC while it is held."""
    sim.tap("tap1")
    other = nic("routed, table", INTERFACE="tap1", IP="10.0.0.6", INTERFACE_INDEX="1", INTERFACE_UUID=UUIDS[1], MAC="aa:00:00:00:00:02")
    sim.up(nic("routed, table"))
    sim.up(other)
    sim.requests()
    assert not sim.down(DownHint(UUIDS[0], "tap1", "web1", 0)).changed and sim.requests() == []
    sim.host.kernel.links[sim.index("tap0")] = sim.host.kernel.links[sim.index("tap0")]._replace(holders=0)
    outcome = sim.down(DownHint(UUIDS[0], "tap1", "web1", 0))
    assert outcome.changed and "tap0" in outcome.text
    assert {sim.target(request) for request in sim.requests()} == {"tap0"}
    assert [record.uuid for record in sim.records()] == [UUIDS[1]]
    assert any("the UUID counts" in line for line in sim.lines)
    sim.down(DownHint(UUIDS[0], "tap1", "web1", 0))
    assert sim.requests() == []


def test_a_shutdown_with_anothers_tap_does_not_close_the_other(sim: Sim) -> None:
    sim.tap("tap1")
    other = nic("bridged", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], MAC="aa:00:00:00:00:02")
    sim.up(nic("bridged"))
    sim.up(other)
    sim.host.remove_link("tap0")
    sim.shutdown(DownHint(UUIDS[0], "tap1", "web1", 0))
    assert [(record.uuid, record.state) for record in sim.records()] == [(UUIDS[1], UP)]


def test_the_uplinks_vlan_of_a_nic_on_two_taps(sim: Sim) -> None:
    """It is ours from the first on, and goes with the last, whichever that is."""
    vlans = sim.host.kernel.vlans[sim.index("eth-brv")]
    first, second = nic("bridged, access"), nic("bridged, access", INTERFACE="tap1")
    for order in ((first, second), (second, first)):
        sim.tap("tap1")
        sim.up(first)
        sim.up(second)
        for one in order:
            assert 10 in vlans
            sim.down(one)
        assert set(vlans) == {1, 20}
        assert sim.files() == []
        sim.host.remove_link("tap1")


def test_up_on_another_tap_while_the_first_is_alive(sim: Sim) -> None:
    """The first record is moved aside, closing; its late down ends it alone, and so does the end of its tap."""
    sim.tap("tap1")
    first, second = nic("routed, table"), nic("routed, table", INTERFACE="tap1")
    for end in ("its late down", "its device", "its shutdown, held"):
        if sim.index("tap0") < 0:
            sim.tap("tap0")
        sim.up(first)
        sim.up(second)
        aside = f"{UUIDS[0]}.{sim.index('tap0')}"
        assert sorted((record.key, record.device, record.state) for record in sim.records()) == sorted(
            [(UUIDS[0], "tap1", UP), (aside, "tap0", CLOSING)]
        )
        assert {rule.iif for rule in sim.host.kernel.rules if rule.protocol == 174} == {"tap0", "tap1"}
        if end == "its late down":
            assert sim.down(first).changed
        else:
            if end == "its shutdown, held":
                assert not sim.shutdown(first).changed
                assert sim.record(aside).state == CLOSING
            sim.host.remove_link("tap0")
            sim.gc()
        assert [(record.key, record.state) for record in sim.records()] == [(UUIDS[0], UP)]
        assert {rule.iif for rule in sim.host.kernel.rules if rule.protocol == 174} == {"tap1"}
        assert [route.index for route in sim.host.kernel.routes if route.protocol == 174] == [sim.index("tap1")]
        sim.down(second)
        assert sim.files() == []


def test_back_on_the_first_tap(sim: Sim) -> None:
    """tap0, tap1, tap0 again, all alive: each record is undone or aside, and at the end nothing is left."""
    sim.tap("tap1")
    first, second = nic("bridged, access"), nic("bridged, access", INTERFACE="tap1")
    sim.up(first)
    sim.up(second)
    sim.up(first)
    assert {record.device for record in sim.records() if not record.moved} == {"tap0"}
    assert {record.device for record in sim.records() if record.moved} == {"tap1"}
    sim.down(second)
    assert 10 in sim.host.kernel.vlans[sim.index("eth-brv")]
    sim.down(first)
    assert sim.files() == []
    assert set(sim.host.kernel.vlans[sim.index("eth-brv")]) == {1, 20}


def test_a_kind_that_this_version_does_not_know_is_kept(sim: Sim) -> None:
    """Reported at each down, never dropped, and everything known is undone."""
    sim.up(nic("routed, table"))
    record = sim.record()
    future = {"kind": "quantum-leap", "device": "tap0", "depth": [1, {"a": None}]}
    strange = {"kind": "rule", "other": "fields"}
    sim.node.store.write(record._replace(operations=(future, *record.operations, strange)))
    for _ in range(2):
        with pytest.raises(HostRefused, match="quantum-leap"):
            sim.down(nic("routed, table"))
        assert sim.picture() == sim.before
        assert list(sim.record().operations) == [future, strange]
    assert any("kinds that this version does not know" in line for line in sim.lines)
    sim.host.remove_link("tap0")
    assert [found.action for found in sim.gc()] == ["failed"]
    assert list(sim.record().operations) == [future, strange]
    sim.tap("tap0")


def test_a_kind_that_this_version_does_not_know_survives_a_second_up(sim: Sim) -> None:
    sim.up(nic("bridged"))
    record = sim.record()
    future = {"kind": "quantum-leap", "device": "tap0"}
    sim.node.store.write(record._replace(operations=(*record.operations, future)))
    sim.up(nic("bridged"))
    sim.up(nic("bridged", LINK="br1"))
    assert future in sim.record().operations


def test_a_record_of_an_earlier_boot(sim: Sim) -> None:
    """Of its devices nothing can be left, whatever bears their index and name now; its OVS port is, and goes."""
    sim.up(nic("openvswitch, hybrid"))
    sim.tap("tap1")
    sim.up(nic("bridged, access", INTERFACE="tap1", **OTHER))
    sim.reboot()
    indices = {record.device: record.ifindex for record in sim.records()}
    sim.host.kernel._next = min(indices.values())
    for name in sorted(indices, key=lambda name: indices[name]):
        sim.tap(name)  # the same names and indices, another guest's
    before = sim.picture()
    assert {found.why for found in sim.gc()} == {"made before this boot"}
    assert sim.files() == []
    after = sim.picture()
    assert after.pop("ovs") == [port for port in before.pop("ovs") if port.name != "tap0"]
    assert after == before


def test_what_is_shared_with_a_nic_of_an_earlier_boot(sim: Sim) -> None:
    """That one needs nothing any more, and what it once made is gone: what is there now is this boot's, or the administrator's."""
    sim.tap("tap1")
    sim.up(nic("bridged, access", INTERFACE="tap1"))
    sim.reboot()
    uplink = sim.index("eth-brv")
    sim.tap("tap0")
    other = nic("bridged, access", **OTHER)
    sim.up(other)
    assert 10 in sim.host.kernel.vlans[uplink]
    sim.down(other)
    assert set(sim.host.kernel.vlans[uplink]) == {1, 20} and sim.record().boot == "boot-1"
    assert sim.host.execute([AddVlan(uplink, BridgeVlan(10))], stop=True)[0].ok
    sim.up(other)
    sim.down(other)
    assert set(sim.host.kernel.vlans[uplink]) == {1, 10, 20}
    sim.gc()
    assert set(sim.host.kernel.vlans[uplink]) == {1, 10, 20} and sim.records() == []


def test_up_after_a_reboot_starts_anew(sim: Sim) -> None:
    sim.up(nic("openvswitch"))
    sim.reboot()
    sim.tap("tap0")
    sim.up(nic("routed, table"))
    assert sim.host.switch.port("tap0") is None
    assert sim.record().boot == "boot-2"
    sim.down(nic("routed, table"))
    assert sim.files() == []


def test_the_ovs_port_of_another_owner_stays(sim: Sim) -> None:
    """A guest that took the name in OVS, without us or with another UUID, keeps its port."""
    sim.up(nic("openvswitch"))
    for ids in ((), (("netcommon-uuid", UUIDS[1]),)):
        sim.host.switch.put(OvsPort("tap0", "ovs0", tag=99, external_ids=ids))
        before = sim.host.switch.ports()
        sim.down(nic("openvswitch"))
        assert sim.host.switch.ports() == before
        assert sim.files() == []
        if not ids:
            sim.up(nic("openvswitch"))


def test_a_value_that_somebody_has_changed_since_is_left_alone(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    sim.host.kernel.settings.write("net/ipv4/conf/tap0/proxy_arp", "0")
    tap = sim.index("tap0")
    sim.host.kernel.links[tap] = sim.host.kernel.links[tap]._replace(alias="somebody's")
    sim.down(nic("routed, table"))
    assert sim.host.kernel.links[tap].alias == "somebody's"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EBUSY])
def test_each_step_is_undone_on_its_own(tmp_path: Path, number: int) -> None:
    """Whatever request fails: all others are tried, what is left stays on record, and the next down ends it."""
    whole = Sim(str(tmp_path / "whole"))
    whole.up(nic("routed, table"))
    whole.requests()
    whole.down(nic("routed, table"))
    count = len(whole.requests())
    for place in range(count):
        sim = Sim(str(tmp_path / str(place)))
        sim.up(nic("routed, table"))
        sim.requests()
        with sim.failing(place, Answer(number, "no"), times=1), pytest.raises(TryAgain if number == errno.EBUSY else HostRefused):
            sim.down(nic("routed, table"))
        assert len(sim.requests()) == count
        assert len(sim.record().operations) == 1
        assert sim.down(nic("routed, table")).changed
        assert sim.picture() == sim.before and sim.files() == []


def test_a_down_for_nobody_is_no_failure(sim: Sim) -> None:
    for hint in (DownHint(UUIDS[3]), DownHint(device="tap7"), DownHint(instance="web9", index=3), nic("bridged")):
        outcome = sim.down(hint)
        assert not outcome.changed and "nothing to undo" in outcome.text
    assert sim.requests() == [] and sim.files() == []


def test_a_foreign_rule_of_the_taps_name_stays(sim: Sim) -> None:
    """And is told of, since it applies to the guest."""
    rule = Rule(AF_INET, 700, "tap0", 200, 3)
    sim.host.kernel.add_rule(rule)
    sim.up(nic("routed, table"))
    assert any("a rule that is not ours applies to tap0" in line for line in sim.lines)
    sim.down(nic("routed, table"))
    assert rule in sim.host.kernel.rules


def test_a_foreign_rule_that_comes_first_is_refused(sim: Sim) -> None:
    """It would send the guest's packets to another table than its own."""
    rule = Rule(AF_INET, 300, "tap0", 200, 3)
    sim.host.kernel.add_rule(rule)
    before = sim.picture()
    with pytest.raises(HostRefused, match="ip -4 rule del iif tap0 lookup 200 preference 300"):
        sim.up(nic("routed, table"))
    assert sim.picture() == before and not sim.records()
    sim.up(nic("routed, IPv6"))
    sim.host.kernel.delete_rule(rule)
    sim.up(nic("routed, table"))


def test_a_foreign_rule_that_went_is_replaced_by_ours(sim: Sim) -> None:
    """What was there before us is left alone while it is there; when it has gone, the guest gets its own."""
    rule = Rule(AF_INET, 500, "tap0", 100, 4)
    sim.host.kernel.add_rule(rule)
    sim.up(nic("routed, table"))
    assert sim.host.kernel.rules.count(rule) == 1 and not [one for one in sim.host.kernel.rules if one.protocol == 174]
    sim.host.kernel.delete_rule(rule)
    assert sim.up(nic("routed, table")).changed
    assert [one.table for one in sim.host.kernel.rules if one.protocol == 174] == [100]
    sim.down(nic("routed, table"))
    assert not [one for one in sim.host.kernel.rules if one.protocol == 174]


def test_a_device_of_another_name_with_our_index_is_not_touched(sim: Sim) -> None:
    """An interface's number can be given again, ip link add index N, though never to a tap."""
    sim.up(nic("bridged"))
    index = sim.index("tap0")
    sim.host.remove_link("tap0")
    sim.host.add_link(Link(0, "foreign0", "dummy", alias="somebody else's"), index)
    before = sim.picture()
    sim.gc()
    assert sim.picture() == {**before, "nftables": []} and not sim.records()


def test_a_renamed_device_stays_the_guests(sim: Sim) -> None:
    """Its alias tells: the guest is alive behind it."""
    sim.up(nic("bridged"))
    sim.host.rename_link("tap0", "tapx")
    before = sim.picture()
    assert not sim.gc()
    assert sim.picture() == before and sim.records()


def test_a_record_of_another_namespace_is_not_seen(tmp_path: Path) -> None:
    """Two nodes on one machine share /run: each has its own records, of the same names even."""
    one, two = Sim(str(tmp_path), netns=1), Sim(str(tmp_path), netns=2)
    one.up(nic("routed, table"))
    assert not two.down(nic("routed, table")).changed
    two.up(nic("bridged"))
    whole = one.picture()
    two.host.remove_link("tap0")
    assert len(two.gc()) == 1
    assert one.picture() == whole and len(one.records()) == 1
    assert one.shutdown(nic("routed, table"), parent=4242).changed


def test_down_is_bound_by_its_context_only_where_a_tap_is_held(sim: Sim) -> None:
    """A device that is no tap, and one that nobody holds, is taken down at once."""
    sim.host.remove_link("tap0")
    sim.tap("tap0", holder=0)
    sim.up(nic("bridged"))
    assert sim.down(nic("bridged"), SHUTDOWN).changed
    assert sim.files() == []
