"""up on a simulated node: every mode, failures at every request, second ups, and ups with other parameters."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, BridgeVlan, Route, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, SetLink
from netcommon.lifecycle.check import check
from netcommon.lifecycle.context import alive
from netcommon.operations import kind
from netcommon.operations.kinds import KINDS
from netcommon.settings.model import Settings
from runtime.errors import TEMPORARY, UNAVAILABLE, HostRefused, NetcommonError, TryAgain
from tests.support.sample import sample
from tests.support.sim import MODES, TELLING, UUIDS, Sim, nic, plain

pytestmark = pytest.mark.sampled(2)

LASTING = (errno.EINVAL, errno.EPERM, errno.EEXIST, errno.EOPNOTSUPP, errno.ENODEV, errno.EXFULL)
PASSING = (errno.EAGAIN, errno.EBUSY, errno.ENOBUFS, errno.ENOMEM, errno.ETIMEDOUT)


@pytest.mark.parametrize("mode", MODES)
def test_up_and_down(sim: Sim, mode: str) -> None:
    """After up all of it holds and is on record; a second up asks for nothing; after down the host is as before."""
    assert sim.up(nic(mode)).changed
    record = sim.record()
    report = check(sim.node, sim.host.view(), record)
    assert report.good, report
    assert check(sim.node, sim.host.snapshot(), record).good
    assert (sim.picture() != sim.before) == bool(MODES[mode]["MODE"] != "ext")
    sim.requests()
    files = {name: Path(sim.paths.state, name).read_bytes() for name in sim.files()}

    assert not sim.up(nic(mode)).changed
    assert sim.requests() == []
    assert {name: Path(sim.paths.state, name).read_bytes() for name in sim.files()} == files

    assert sim.down(nic(mode)).changed
    assert sim.picture() == sim.before
    assert sim.files() == []
    sim.requests()
    assert not sim.down(nic(mode)).changed
    assert sim.requests() == []


@pytest.mark.parametrize("mode", MODES)
def test_whatever_bears_our_mark_is_on_the_record(sim: Sim, mode: str) -> None:
    """What gc would find by its mark is exactly what the record tells of."""
    sim.up(nic(mode))
    found = {thing.identity for name in KINDS for thing in kind(name).owned(sim.host.view())}
    held = {kind(str(each["kind"])).identity(_read(each)) for each in sim.record().operations}
    assert found <= held


def _read(stored: object) -> object:
    from netcommon.operations import from_json

    return from_json(stored)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "ext"])
@pytest.mark.parametrize("number", sample(LASTING + PASSING, 5), ids=errno.errorcode.get)
def test_a_refusal_at_any_request(tmp_path: Path, mode: str, number: int) -> None:
    """Rolled back to nothing, with the right status, and no record is left."""
    whole = Sim(str(tmp_path / "whole"))
    whole.up(nic(mode))
    count = len(whole.requests())
    assert count
    for place in range(count):
        sim = Sim(str(tmp_path / str(place)))
        with sim.failing(place, Answer(number, os.strerror(number)), times=1) as refused:
            try:
                sim.up(nic(mode))
                achieved = True
            except NetcommonError as error:
                achieved = False
                assert error.status == (TEMPORARY if number in PASSING else UNAVAILABLE)
                assert isinstance(error, TryAgain) == (number in PASSING)
                assert os.strerror(number) in str(error)
        assert len(refused) == 1
        if achieved:  # EEXIST of a rule means that it is there; here it was a lie, so check tells
            assert number == errno.EEXIST and type(refused[0]).__name__ == "AddRule"
            continue
        assert sim.picture() == sim.before, refused
        assert sim.files() == []


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "ext"])
def test_a_rollback_that_cannot_be_completed(tmp_path: Path, mode: str) -> None:
    """The record stays, with exactly what could not be undone; the next gc finishes it."""
    whole = Sim(str(tmp_path / "whole"))
    whole.up(nic(mode))
    last = len(whole.requests()) - 1
    undoing = Sim(str(tmp_path / "undoing"))
    with undoing.failing(last, Answer(errno.EINVAL, "no"), times=1), pytest.raises(HostRefused):
        undoing.up(nic(mode))
    reverts = len(undoing.requests()) - last - 1
    for place in range(reverts):
        sim = Sim(str(tmp_path / str(place)))
        seen: list[Request] = []

        def fail(request: Request, at: int = place, seen: list[Request] = seen) -> Answer | None:
            seen.append(request)
            return Answer(errno.EPERM, "no") if len(seen) in (last + 1, last + 2 + at) else None

        sim.host.fail = fail
        with pytest.raises(HostRefused):
            sim.up(nic(mode))
        sim.host.fail = lambda _request: None
        record = sim.record()
        assert record.state == "reverting"
        assert len(record.operations) == 1, record.operations
        assert any("could not be undone" in line for line in sim.lines)
        sim.gc()
        assert sim.picture() == sim.before
        assert sim.files() == []


CHANGES = {
    "mode": ("bridged", "routed, table", {}),
    "mode back": ("routed, IPv6", "bridged, access", {}),
    "mode to OVS": ("bridged, hybrid", "openvswitch, hybrid", {}),
    "mode from OVS": ("openvswitch, access", "routed", {}),
    "mode to ext": ("routed, table", "ext", {}),
    "IP": ("routed, table", "routed, table", {"IP": "10.0.0.6"}),
    "family": ("routed, table", "routed, IPv6", {}),
    "table": ("routed, table", "routed, table", {"LINK": "other"}),
    "to main": ("routed, table", "routed", {}),
    "VLAN": ("bridged, access", "bridged, access", {"VLAN": ".11"}),
    "VLANs": ("bridged, hybrid", "bridged, trunk", {}),
    "no VLAN": ("bridged, access", "bridged", {"LINK": "brv"}),
    "a VLAN": ("bridged", "bridged, access", {}),
    "bridge": ("bridged", "bridged", {"LINK": "br1"}),
    "bridge of the same MTU": ("bridged, br1", "bridged", {"LINK": "br2"}),
    "OVS VLAN": ("openvswitch", "openvswitch, access", {}),
    "index": ("bridged", "bridged", {"INTERFACE_INDEX": "2"}),
    "index of OVS": ("openvswitch", "openvswitch", {"INTERFACE_INDEX": "2"}),
    "tags alone": ("bridged", "bridged", {"TAGS": "c"}),
}


def pair(change: str) -> tuple[object, object]:
    first, second, changed = CHANGES[change]
    one = nic("bridged", LINK="br1") if first == "bridged, br1" else nic(first)
    return one, nic(second, **changed)


def settled(sim: Sim) -> object:
    """The record without what only tells how it got there: the VIDs that the port had."""
    record = plain(sim.record())
    return {**record, "operations": [{name: value for name, value in each.items() if name != "now"} for each in record["operations"]]}


@pytest.mark.parametrize("change", CHANGES)
def test_other_parameters_converge(tmp_path: Path, change: str) -> None:
    """To what an up of the new NIC alone makes; and down then leads back to before the first."""
    first, second = pair(change)
    sim, fresh = Sim(str(tmp_path / "a")), Sim(str(tmp_path / "b"))
    sim.up(first)  # type: ignore[arg-type]
    assert sim.up(second).changed  # type: ignore[arg-type]
    fresh.up(second)  # type: ignore[arg-type]
    assert sim.picture() == fresh.picture()
    assert settled(sim) == settled(fresh)
    assert sim.files() == fresh.files()
    sim.requests()
    assert not sim.up(second).changed  # type: ignore[arg-type]
    assert sim.requests() == []
    sim.down(second)  # type: ignore[arg-type]
    assert sim.picture() == sim.before
    assert sim.files() == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_fails_leads_back_to_what_it_was(tmp_path: Path, change: str) -> None:
    first, second = pair(change)
    whole = Sim(str(tmp_path / "whole"))
    whole.up(first)  # type: ignore[arg-type]
    whole.requests()
    whole.up(second)  # type: ignore[arg-type]
    count = len(whole.requests())
    for place in range(count):
        sim = Sim(str(tmp_path / str(place)))
        sim.up(first)  # type: ignore[arg-type]
        sim.requests()
        was, record, files = sim.picture(), settled(sim), sim.files()
        with sim.failing(place, Answer(errno.EINVAL, "no"), times=1), pytest.raises(HostRefused):
            sim.up(second)  # type: ignore[arg-type]
        assert (sim.picture(), settled(sim), sim.files()) == (was, record, files), place
        assert sim.record().state == "up"
        assert sim.up(second).changed and not sim.up(second).changed  # type: ignore[arg-type]
        sim.down(second)  # type: ignore[arg-type]
        assert (sim.picture(), sim.files()) == (sim.before, []), place


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "ext"])
@pytest.mark.parametrize("twice", [False, True])
def test_intent_is_on_disk_before_the_first_change(sim: Sim, mode: str, twice: bool) -> None:
    """At every request the record on disk already tells of what is asked for, by its kind and device."""
    if twice:
        sim.up(nic("routed", IP="192.0.2.1") if mode.startswith("bridged") else nic("bridged", LINK="br1"))
        sim.requests()
    told: list[set[str]] = []

    def look(request: Request) -> Answer | None:
        if isinstance(request, TELLING):
            return None
        stored = json.loads(Path(sim.paths.state, "nics", UUIDS[0] + ".json").read_bytes())
        assert stored["state"] == ("changing" if twice else "applying")
        told.append({operation["kind"] for operation in stored["operations"]})
        return None

    sim.host.fail = look
    sim.up(nic(mode))
    assert len(told) == len(sim.requests()) > 0
    made = {operation["kind"] for operation in sim.record().operations}
    assert all(made <= kinds for kinds in told)
    assert sim.record().state == "up"


def test_drift_is_mended_by_the_second_up(sim: Sim) -> None:
    """Only what differs is asked for."""
    sim.up(nic("routed, table"))
    sim.requests()
    sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap0", 100))
    good = sim.picture()
    assert sim.up(nic("routed, table")).changed
    assert [type(request).__name__ for request in sim.requests()] == ["AddRule"]
    assert sim.picture()["rules"] != good["rules"]
    assert any("had drifted" in line for line in sim.lines)


@pytest.mark.parametrize(
    ("mode", "changes", "why"),
    [
        ("bridged", {"LINK": "nosuch"}, "bridge nosuch does not exist"),
        ("bridged", {"LINK": "tap9"}, "tap9 is no Linux bridge"),
        ("bridged", {"VLAN": ".10"}, "not VLAN-aware"),
        ("bridged, access", {"VLAN": ".40"}, "is taken by the VLAN interface eth.40"),
        ("routed, table", {"LINK": "nosuch"}, "routing table nosuch is unknown"),
        ("routed, table", {"IP": "10.0.0.77"}, "already routed to br0"),
        ("openvswitch", {"LINK": "nosuch"}, "bridge nosuch does not exist"),
        ("bridged", {"INTERFACE": "tap7"}, "device tap7 does not exist"),
    ],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_refused_before_anything_is_touched(sim: Sim, mode: str, changes: dict[str, str], why: str, earlier: bool) -> None:
    """Also where the NIC is up with other parameters: then it stays so."""
    sim.tap("tap9")
    sim.host.add_link(
        sim.host.kernel.links[sim.index("eth-brv")]._replace(name="eth.40", kind="vlan", vlan=40, lower=sim.index("eth-brv"), master=0)
    )
    if earlier:
        sim.up(nic("routed", IP="10.0.0.9"))
    before, files = sim.picture(), {name: Path(sim.paths.state, name).read_bytes() for name in sim.files()}
    sim.requests()
    with pytest.raises(HostRefused, match=why):
        sim.up(nic(mode, **changes))
    assert sim.requests() == []
    assert sim.picture() == before
    assert {name: Path(sim.paths.state, name).read_bytes() for name in sim.files()} == files


def test_routed_ipv6_without_forwarding_names_the_remedy(sim: Sim) -> None:
    sim.host.kernel.settings.write("net/ipv6/conf/all/forwarding", "0")
    with pytest.raises(HostRefused, match=r"net\.ipv6\.conf\.all\.forwarding=1"):
        sim.up(nic("routed, IPv6"))
    assert sim.files() == [] and sim.requests() == []


def test_a_rule_and_a_route_that_were_there_are_left_alone(sim: Sim) -> None:
    """Found, not ours: nothing is added, and nothing is removed at the end, after many ups and downs."""
    kernel = sim.host.kernel
    sim.host.persistent.add("tap0")
    sim.host.let_go("tap0")
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), up=True))
    kernel.add_rule(Rule(AF_INET, 500, "tap0", 100, 4))
    kernel.add_route(Route(AF_INET, 100, "10.0.0.5/32", sim.index("tap0"), protocol=4))
    before = sim.picture()
    for _ in range(2):
        sim.up(nic("routed, table"))
        assert kernel.rules.count(Rule(AF_INET, 500, "tap0", 100, 4)) == 1
        assert not any(rule.protocol == 174 for rule in kernel.rules)
        sim.gc()
        sim.down(nic("routed, table"))
        assert sim.picture() == before


def test_the_administrators_vlan_on_the_uplink_stays(sim: Sim) -> None:
    """20 was there, 10 and 30 were not."""
    uplink = sim.index("eth-brv")
    sim.up(nic("bridged, hybrid"))
    assert set(sim.host.kernel.vlans[uplink]) == {1, 10, 20, 30}
    sim.down(nic("bridged, hybrid"))
    assert set(sim.host.kernel.vlans[uplink]) == {1, 20}


def test_two_nics_share_the_uplinks_vlan(sim: Sim) -> None:
    """It stays until the second goes, whoever came first, and gc does not take it away meanwhile."""
    uplink, vlans = sim.index("eth-brv"), sim.host.kernel.vlans
    other = nic("bridged, access", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], MAC="aa:00:00:00:00:02", INSTANCE="web2")
    for first, second in ((nic("bridged, access"), other), (other, nic("bridged, access"))):
        if sim.index("tap1") < 0:
            sim.tap("tap1")
        sim.up(first)
        sim.up(second)
        sim.down(first)
        assert 10 in vlans[uplink]
        sim.gc()
        assert 10 in vlans[uplink]
        sim.up(first)
        sim.down(second)
        assert 10 in vlans[uplink]
        sim.down(first)
        assert set(vlans[uplink]) == {1, 20}
        assert sim.files() == []


def test_the_next_guest_takes_over_the_vlan_of_one_that_died(sim: Sim) -> None:
    """The tap died with its VLAN still on the uplink; the next NIC of that tap name wants the same VLAN, and takes it away at its end."""
    sim.up(nic("bridged, access"))
    sim.host.remove_link("tap0")
    sim.tap("tap0")
    other = nic("bridged, access", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", MAC="aa:00:00:00:00:02")
    sim.up(other)
    assert [record.uuid for record in sim.records()] == [UUIDS[1]]
    assert 10 in sim.host.kernel.vlans[sim.index("eth-brv")]
    sim.down(other)
    assert set(sim.host.kernel.vlans[sim.index("eth-brv")]) == {1, 20}


def test_uplinks_named_later_in_the_settings(sim: Sim) -> None:
    """The same VLAN on the same uplink, found at first and named later, is still there and still ours."""
    sim.up(nic("bridged, access"))
    sim.settings = sim.settings._replace(uplinks={"brv": ("eth-brv",)})
    sim.up(nic("bridged, access"))
    assert 10 in sim.host.kernel.vlans[sim.index("eth-brv")]
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic("bridged, access"))
    assert sim.picture() == sim.before


def test_rule_preference_changed_in_the_settings(sim: Sim) -> None:
    """What is undone is what was recorded."""
    sim.up(nic("routed, table"))
    sim.settings = Settings(rule_preference=600)
    sim.down(nic("routed, table"))
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.startswith("openvswitch")])
def test_a_device_that_was_a_port_already(sim: Sim, mode: str) -> None:
    """A persistent tap with things of the administrator's on it goes back to them, also after changes in between. Nobody holds it."""
    tap = sim.index("tap0")
    sim.host.persistent.add("tap0")
    sim.host.let_go("tap0")
    sim.host.kernel.set_link(SetLink(tap, master=sim.index("brv"), up=True, mtu=1450, alias="mine"))
    if nic(mode).mode != "routed" and (nic(mode).link != "br0" or nic(mode).mode != "bridged"):  # leaving a bridge costs a port its VLANs
        sim.host.kernel.add_vlan(tap, BridgeVlan(77, pvid=True, untagged=True))
    before = sim.picture()
    sim.up(nic("bridged, access", VLAN=".11:12"))
    sim.up(nic(mode))
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic(mode))
    assert sim.picture() == before


def test_ipv6_rule_is_in_its_own_family(sim: Sim) -> None:
    sim.up(nic("routed, IPv6"))
    assert [rule.family for rule in sim.host.kernel.rules if rule.iif == "tap0"] == [AF_INET6]


def calls_of_a_second_up(folder: Path, vlans: int) -> int:
    """Count the functions that are called for it."""
    one = nic("bridged, trunk", VLAN="".join(f":{vid}" for vid in range(2, vlans + 2)))
    sim, count = Sim(str(folder)), 0
    sim.up(one)

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        assert not sim.up(one).changed
    finally:
        sys.setprofile(None)
    return count


def test_a_second_up_of_a_trunk_grows_with_its_vlans(tmp_path: Path) -> None:
    """Not with their square: 4,094 VLANs took 77 seconds."""
    few, many = calls_of_a_second_up(tmp_path / "few", 400), calls_of_a_second_up(tmp_path / "many", 1600)
    assert many < 4.5 * few


@pytest.mark.parametrize("mode", ["bridged", "routed", "ext"])
@pytest.mark.parametrize("alias", [True, False])
def test_an_index_that_has_changed_has_ganetis_link_alone(tmp_path: Path, mode: str, alias: bool) -> None:
    """That of the index before would name this NIC's tap for whichever NIC has that index by now."""
    sim = Sim(str(tmp_path), Settings(service_timeout=2, hook_timeout=5, tap_alias=alias))
    folder = Path(sim.paths.kvm_run, "nic", "web1")
    folder.mkdir(parents=True)
    for index in ("0", "2", "1"):
        sim.up(nic(mode, INTERFACE_INDEX=index))
        assert sorted(os.listdir(folder)) == sorted([UUIDS[0], index]) and os.readlink(folder / index) == UUIDS[0]
        assert sim.record().nic.index == int(index)
    sim.down(nic(mode, INTERFACE_INDEX="1"))
    assert not folder.exists()


def test_a_guest_called_down_is_alive(sim: Sim) -> None:
    """What a device tells whose NIC was taken down is told by no name of an instance."""
    sim.up(nic("bridged")._replace(instance="down", index=None))
    assert alive(sim.node, sim.host.view(), sim.record())
    assert sim.gc() == [] and check(sim.node, sim.host.view(), sim.record()).good
