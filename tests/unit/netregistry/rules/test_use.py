"""Hold that what a guest has by report is nobody else's: also what its NIC wants no more, and what its NIC had when it was deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netregistry import state, use
from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.model.nic import Nic
from netregistry.service.index import Index
from netregistry.service.states import States
from tests.support.registry import GANETI, NODES, OPERATOR, Registry

HOUR = 3600.0
OLD, NEW = "192.0.2.1", "192.0.2.2"
SMALL = [f"192.0.2.{number}" for number in range(1, 7)]


@pytest.fixture
def blue(registry: Registry) -> str:
    return registry.network(subnet="192.0.2.0/29")


@pytest.fixture
def who(registry: Registry) -> Identity:
    who = registry.join(0)
    registry.local.sign_on(who, "cccccccc-1111-4111-8111-111111111111", 86400.0)
    return who


@pytest.fixture
def web(registry: Registry, who: Identity, blue: str) -> Nic:
    web = registry.nic(network=blue, ip=OLD, instance="web1", index=0)
    has(registry, who, web, OLD)
    return web


def has(registry: Registry, who: Identity, nic: Nic, ip: str, mac: str = "", how: str = "running", **more: Any) -> None:
    report = {"nic": nic.uuid, "state": how, "tap": "tap0", "mac": mac or nic.mac, "ip": ip, "addresses": [ip], **more}
    assert registry.report(who, report).status == 200


def given_out(registry: Registry, blue: str, number: int = 6) -> set[str]:
    """Addresses that are given out if so many are asked for."""
    asked = [registry.ask("nic.add", "", {"network": blue, "allocate": ["ipv4"]}) for _ in range(number)]
    return {response.body["ip"] for response in asked if response.status == 201}


def standing(registry: Registry, key: str) -> tuple[str, float]:
    claim = registry.claim(key)
    assert claim is not None
    return claim.standing, 0.0 if claim.used else claim.until - registry.time


@pytest.mark.parametrize("how", ["pending", "deleted", "moved", "Ganeti's"])
def test_what_a_guest_has_still_is_given_to_nobody(registry: Registry, who: Identity, blue: str, how: str) -> None:
    master = GANETI if how == "Ganeti's" else OPERATOR
    web = registry.nic(network=blue, ip=OLD, mac="aa:00:00:00:00:01", instance="web1", index=0, who=master)
    has(registry, who, web, OLD)
    if how == "deleted":
        registry.do("nic.delete", web.uuid)
    elif how == "moved":
        registry.do("nic.set", web.uuid, {"network": registry.network("green", "198.51.100.0/24"), "ip": "", "mac": "aa:00:00:00:00:02"})
    else:
        registry.do("nic.set", web.uuid, {"ip": NEW, "mac": "aa:00:00:00:00:02"}, master)
    for _ in range(5):  # as long as it takes
        registry.passes(HOUR + 100)
        for asked in ({"ip": OLD}, {"mac": web.mac}):
            problem = registry.refused("nic.add", "", {"network": blue, **asked})
            assert problem["kind"] == "taken" and problem["holder"] == web.uuid and "node0" in problem["detail"]
    assert OLD not in given_out(registry, blue)
    assert standing(registry, f"addresses/{blue}/{OLD}") == standing(registry, f"macs/{blue}/{web.mac}") == ("quarantined", 0.0)
    # it has stopped, or has another one: the quarantine begins, and takes its usual time
    assert registry.report(who, removed=(web.uuid,)).status == 200
    registry.passes(1)
    assert standing(registry, f"addresses/{blue}/{OLD}") == standing(registry, f"macs/{blue}/{web.mac}") == ("quarantined", HOUR)
    assert OLD not in given_out(registry, blue, 1)
    registry.passes(HOUR)
    assert OLD in given_out(registry, blue, 1)
    assert registry.ask("nic.add", "", {"network": blue, "mac": web.mac}).status == 201


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "found-out-when-it-is-free"])
def test_what_a_guest_has_still_is_not_released(registry: Registry, who: Identity, blue: str, late: bool) -> None:
    """By the claim it is known whose it is: released twice it was forgotten, and given to another NIC."""
    web = registry.nic(network=blue, ip=OLD)
    if not late:
        has(registry, who, web, OLD)
    registry.do("nic.delete", web.uuid)
    for kind, what in (("addresses", OLD), ("macs", web.mac)):
        key = f"{kind}/{blue}/{what}"
        if late:
            registry.do("claim.release", key)
            has(registry, who, web, OLD)
        for _ in range(2):
            problem = registry.refused("claim.release", key)
            assert problem["kind"] == "in-use" and problem["holder"] == web.uuid and "node0" in problem["detail"]
        asked = {"ip" if kind == "addresses" else "mac": what}
        assert registry.refused("nic.add", "", {"network": blue, **asked})["holder"] == web.uuid
        if late:
            assert registry.report(who, removed=(web.uuid,)).status == 200
    registry.report(who, removed=(web.uuid,))
    registry.passes(1)
    registry.do("claim.release", f"addresses/{blue}/{OLD}")
    assert registry.ask("nic.add", "", {"network": blue, "ip": OLD}).status == 201


def test_a_reservation_is_taken_back_of_what_a_guest_has_still(registry: Registry, who: Identity) -> None:
    """Keep what a guest uses though it is free by then, also outside the network's subnets, where it would be forgotten at once."""
    plain = registry.network(subnet="", subnet6="2001:db8::/64")
    outside = f"addresses/{plain}/{OLD}"
    web = registry.nic(who, network=plain, ip=OLD, mac="aa:00:00:00:00:01", found=True)
    registry.do("nic.set", web.uuid, {"reserved": True})
    registry.do("nic.delete", web.uuid)
    registry.passes(2 * HOUR)
    has(registry, who, web, OLD)
    registry.do("claim.release", outside)
    assert standing(registry, outside) == ("quarantined", 0.0)
    registry.report(who, removed=(web.uuid,))
    registry.passes(1)
    registry.passes(HOUR)
    assert registry.claim(outside) is None


def test_it_may_have_it_again(registry: Registry, web: Nic) -> None:
    registry.do("nic.set", web.uuid, {"ip": NEW})
    registry.passes(2 * HOUR)
    assert registry.do("nic.set", web.uuid, {"ip": OLD})["ip"] == OLD
    claim = registry.claim(f"addresses/{web.network}/{OLD}")
    assert claim is not None and (claim.holder, claim.used, claim.last) == (web.uuid, False, "")


def test_a_report_that_comes_late_counts_at_the_end_of_the_quarantine(registry: Registry, who: Identity, blue: str) -> None:
    web = registry.nic(network=blue, ip=OLD)
    registry.do("nic.set", web.uuid, {"ip": NEW})
    registry.passes(10)
    has(registry, who, web, OLD)
    registry.passes(3 * HOUR)
    assert standing(registry, f"addresses/{blue}/{OLD}") == ("quarantined", 0.0)
    has(registry, who, web, NEW)
    registry.passes(1)
    assert standing(registry, f"addresses/{blue}/{OLD}") == ("quarantined", HOUR)


def test_a_node_that_is_away_frees_nothing_and_one_that_is_fenced_does(registry: Registry, blue: str) -> None:
    who = registry.join(0)
    web = registry.nic(network=blue, ip=OLD)
    has(registry, who, web, OLD)
    registry.do("nic.set", web.uuid, {"ip": NEW})
    registry.passes(2 * HOUR)  # it has no lease
    assert registry.refused("nic.add", "", {"network": blue, "ip": OLD})["kind"] == "taken"
    assert state.shown(registry.local.view, registry.wanted(web.uuid)).conflicts == ()
    registry.do("node.fence", NODES[0])
    registry.passes(1)
    registry.passes(HOUR)
    assert registry.ask("nic.add", "", {"network": blue, "ip": OLD}).status == 201


def test_without_a_quarantine_it_is_free_when_no_report_says_it(registry: Registry, who: Identity, web: Nic) -> None:
    registry.do("settings.set", "", {"quarantine": 0.0})
    registry.do("nic.set", web.uuid, {"ip": NEW})
    assert registry.refused("nic.add", "", {"network": web.network, "ip": OLD})["kind"] == "taken"
    has(registry, who, web, NEW)
    registry.passes(1)
    assert registry.ask("nic.add", "", {"network": web.network, "ip": OLD}).status == 201


def test_an_address_that_nobody_has_wanted_yet(registry: Registry, who: Identity, blue: str) -> None:
    web = registry.nic(network=blue, ip=NEW)
    has(registry, who, web, OLD, "aa:00:00:00:77:01")
    assert registry.refused("nic.add", "", {"network": blue, "ip": OLD})["holder"] == web.uuid
    assert registry.refused("nic.add", "", {"network": blue, "mac": "aa:00:00:00:77:01"})["holder"] == web.uuid
    assert given_out(registry, blue) == {*SMALL} - {OLD, NEW}
    elsewhere = registry.network("green", "192.0.2.0/29")
    assert registry.ask("nic.add", "", {"network": elsewhere, "ip": OLD}).status == 201, "another network's is another address"


def test_an_address_by_an_option_is_shared(registry: Registry, who: Identity, web: Nic) -> None:
    """It is not given out; who asks for it knows it."""
    has(registry, who, web, OLD, addresses=[OLD, "192.0.2.5"])
    assert "192.0.2.5" not in given_out(registry, web.network)
    second = registry.nic(network=web.network, ip="192.0.2.5")
    assert state.shown(registry.local.view, second).conflicts == ()


def test_what_is_planned_without_the_report_is_not_done(registry: Registry, who: Identity, blue: str) -> None:
    """A report that names what its NIC does not want comes between the plan of an allocation and its commit."""
    web = registry.nic(network=blue, ip=NEW)
    steps = registry.local.core.answer(registry.call("nic.add", "", {"network": blue, "allocate": ["ipv4"]}), Identity("operator", "root"))
    commit = next(steps)
    has(registry, who, web, OLD)
    result = registry.local.do(commit)
    with pytest.raises(StopIteration) as end:
        while True:
            result = registry.local.do(steps.send(result))
    assert end.value.value.body["ip"] == "192.0.2.3"


def test_what_somebody_else_wants_and_a_guest_has_is_shown(registry: Registry, who: Identity, web: Nic) -> None:
    registry.do("nic.set", web.uuid, {"ip": NEW})
    view = registry.local.view
    assert state.shown(view, registry.wanted(web.uuid)).state == "pending restart"
    assert [key for _kind, key, _word in Index(view).find(OLD)] == [f"nics/{web.uuid}", f"addresses/{web.network}/{OLD}"]
    other = registry.nic(GANETI, cluster=GANETI.name, network=web.network, ip=OLD)  # it is there: it has it all the same
    conflict = state.Conflict(f"addresses/{web.network}/{OLD}", other.uuid, (), (web.uuid,))
    for nic in (other, web):
        shown = state.shown(view, registry.wanted(nic.uuid))
        assert (shown.state, shown.conflicts) == ("conflict", (conflict,))
    assert state.all_conflicts(view, States(view).members("conflict")) == [conflict]
    assert {key for _kind, key, _word in Index(view).find(OLD)} == {f"nics/{web.uuid}", f"nics/{other.uuid}"}
    has(registry, who, web, NEW)
    assert [state.shown(view, registry.wanted(nic.uuid)).conflicts for nic in (other, web)] == [(), ()]


def test_a_guest_that_was_deleted_and_has_it_is_shown_with_whoever_has_it_now(registry: Registry, who: Identity, web: Nic) -> None:
    registry.do("nic.delete", web.uuid)
    other = registry.nic(GANETI, cluster=GANETI.name, network=web.network, ip=OLD)
    shown = state.shown(registry.local.view, other)
    assert [conflict.reported for conflict in shown.conflicts] == [(web.uuid,)] and shown.state == "conflict"
    registry.do("nic.delete", other.uuid, {}, GANETI)
    registry.passes(2 * HOUR)
    assert registry.refused("nic.add", "", {"network": web.network, "ip": OLD})["holder"] == web.uuid


def test_the_version_before_reads_it(registry: Registry, web: Nic) -> None:
    """No field is new, and what it does not know it takes for a quarantine that began while the clock was fast."""
    registry.do("nic.set", web.uuid, {"ip": NEW})
    stored = json.loads(registry.everything()[f"addresses/{web.network}/{OLD}"])
    assert stored == {"freed": registry.time, "until": 1e11, "last": web.uuid}


STRANGER = "99999999-1111-4111-8111-111111111111"


def test_what_a_nic_that_nobody_wants_has_is_counted_and_its_node_named(registry: Registry, who: Identity, blue: str) -> None:
    """After a restore of an older copy nothing was free, with all counts 0 and no node."""
    registry.nic(network=blue, ip=SMALL[0])
    gone = registry.nic(network=blue, ip=SMALL[5])
    registry.do("nic.delete", gone.uuid)
    registry.passes(HOUR)
    report = {"nic": STRANGER, "state": "running", "mac": "aa:00:00:00:77:01", "addresses": ["192.0.2.0", *SMALL, "203.0.113.1"]}
    assert registry.report(who, report).status == 200
    problem = registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    assert [problem[each] for each in ("kind", "size", "held", "quarantined", "reported")] == ["full", 6, 1, 0, 5]
    assert problem["nodes"] == [NODES[0]] and "node0 (5)" in problem["detail"]
    assert f"by NIC {STRANGER}, which is not wanted" in problem["detail"]
    # it is wanted, in another scope; and not any more
    green = registry.network("green", "192.0.2.0/29")
    registry.nic(uuid=STRANGER, network=green, mac="aa:00:00:00:77:01")
    assert given_out(registry, blue) == {*SMALL[1:]}
    registry.do("nic.delete", STRANGER)
    registry.report(who, removed=(STRANGER,))
    registry.passes(1)
    assert given_out(registry, green) == {*SMALL}


@pytest.mark.parametrize("known", [True, False])
def test_however_much_is_reported_an_allocation_looks_at_one(
    registry: Registry, who: Identity, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    big, looked = registry.network(subnet="10.0.0.0/8"), []
    for number in range(10):
        uuid = registry.nic(network=big).uuid if known else f"{number:08x}-2222-4222-8222-222222222222"
        having = [f"10.0.{2 * number}.{each}" for each in range(100)]
        assert (
            registry.report(who, {"nic": uuid, "state": "running", "mac": f"aa:00:00:00:77:{number:02x}", "addresses": having}).status
            == 200
        )
    users = use.users

    def counted(*given: Any, **more: Any) -> Any:
        looked.append(given[1])
        return users(*given, **more)

    monkeypatch.setattr(use, "users", counted)
    assert registry.nic(network=big, allocate=["ipv4"]).ip == "10.0.0.100"
    assert {key.rpartition("/")[2] for key in looked if keys.kind(key) == "addresses"} == {"10.0.0.100"}


@pytest.mark.parametrize("known", [True, False], ids=["wanted", "wanted by nobody"])
def test_nothing_is_given_out_of_a_prefix_that_is_a_guests(registry: Registry, who: Identity, known: bool) -> None:
    """It is routed to the guest, and its guard lets it send from all of it; who asks for an address of it by name is given it."""
    blue = registry.network(subnet="192.0.2.0/27", gateway="192.0.2.1")
    web = registry.nic(network=blue, ip="192.0.2.4", instance="web1", index=0)
    prefixes = ["192.0.2.4/30", "192.0.2.16/28", "192.0.2.20/32", "198.51.100.0/24", "2001:db8::/64"]
    has(registry, who, web, "192.0.2.4", prefixes=prefixes)
    if not known:
        registry.do("nic.delete", web.uuid)
    assert given_out(registry, blue, 20) == {f"192.0.2.{number}" for number in (2, 3, *range(8, 16))}
    said = registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    assert said["kind"] == "full" and f"192.0.2.16/28 by NIC {web.uuid} on node0" in said["detail"] and "198" not in said["detail"]
    assert registry.nic(network=blue, ip="192.0.2.17").ip == "192.0.2.17"
    has(registry, who, web, "192.0.2.4", how="stopped", prefixes=prefixes)
    assert given_out(registry, blue, 1) <= {f"192.0.2.{number}" for number in (5, 6, 7)}
    has(registry, who, web, "192.0.2.4", prefixes=prefixes)
    assert given_out(registry, blue, 1) == set()
    assert registry.report(who, removed=(web.uuid,)).status == 200
    assert len(given_out(registry, blue, 20)) == 16
    assert not registry.local.view.whole(blue, 4)


def test_a_prefix_is_in_the_way_where_its_nic_is(registry: Registry, who: Identity) -> None:
    """In another network the same addresses are others; a NIC that goes there brings its prefixes along."""
    blue, green = registry.network(subnet="192.0.2.0/29"), registry.network("green", "192.0.2.0/29")
    web = registry.nic(network=blue, instance="web1", index=0)
    has(registry, who, web, "", addresses=[], prefixes=["192.0.2.0/30"])
    assert given_out(registry, blue) == {f"192.0.2.{number}" for number in (4, 5, 6)}
    assert "192.0.2.1" in given_out(registry, green, 1)
    registry.do("nic.set", web.uuid, {"network": green})
    assert given_out(registry, green) == {f"192.0.2.{number}" for number in (4, 5, 6)}


def test_one_prefix_of_two_guests(registry: Registry, who: Identity) -> None:
    """An anycast prefix: it is free when neither has it."""
    blue = registry.network(subnet="192.0.2.0/29")
    nics = [registry.nic(network=blue, instance="web1", index=number) for number in range(2)]
    for nic in nics:
        has(registry, who, nic, "", addresses=[], prefixes=["192.0.2.0/30"])
    registry.report(who, removed=(nics[0].uuid,))
    assert given_out(registry, blue) == {f"192.0.2.{number}" for number in (4, 5, 6)}
    registry.report(who, removed=(nics[1].uuid,))
    assert given_out(registry, blue) == {f"192.0.2.{number}" for number in (1, 2, 3)}
