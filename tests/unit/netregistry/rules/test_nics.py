"""NICs: what claims what, who contends, one primary, and whose field is whose."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model.history import Identity
from netregistry.request import Response
from netregistry.state import all_conflicts
from netregistry.view import LIGHT
from tests.support.registry import GANETI, NODES, OPERATOR, Registry, node

MAC, OTHER = "aa:00:00:00:00:01", "aa:00:00:00:00:02"


@pytest.fixture
def ganeti(registry: Registry) -> str:
    """A NIC of a Ganeti cluster, in a network of its."""
    network = registry.do("network.add", "", {"name": "net1", "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}, GANETI)["uuid"]
    return registry.nic(GANETI, instance="web1", index=0, mac=MAC, ip="192.0.2.10", network=network, tags=["a"]).uuid


def test_what_one_node_says_has_an_end(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a node's certificate would fill the registry of all."""
    for module in ("nics", "reports"):
        monkeypatch.setattr(f"netregistry.rules.{module}.MOST_NICS", 3)
    registry.join(0)
    registry.join(1)
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(1, 6)]
    for number in range(3):
        assert registry.report(node(0), {"nic": uuids[number], "state": "stopped"}).status == 200
        registry.do("nic.add", "", {"uuid": uuids[number], "instance": "a", "index": number, "found": True}, node(0))
    said = registry.report(node(0), {"nic": uuids[3], "state": "stopped"})
    assert said.status == 413 and said.body["count"] == 4
    assert registry.refused("nic.add", "", {"instance": "a", "index": 3, "found": True}, node(0))["status"] == 413
    assert registry.report(node(0), {"nic": uuids[0], "state": "running", "tap": "tap0"}).status == 200, "what is there goes on"
    assert registry.report(node(0), removed=(uuids[1],)).status == 200
    assert registry.report(node(0), {"nic": uuids[3], "state": "stopped"}).status == 200, "there is room again"
    assert registry.report(node(1), {"nic": uuids[3], "state": "stopped"}).status == 200, "others are not concerned"
    registry.do("nic.delete", uuids[1], None, node(0))
    registry.do("nic.add", "", {"instance": "a", "index": 3, "found": True}, node(0))


def test_what_one_node_says_has_an_end_in_bytes(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few thousand reports, each of half a million bytes, would be more than an etcd holds."""
    monkeypatch.setattr("netregistry.rules.reports.HEAVIEST", 30_000)
    registry.join(0)
    registry.join(1)
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(1, 6)]

    def said(number: int, nic: int, options: int) -> Response:
        large = [{"name": f"o{each}", "value": "x" * 1000} for each in range(options)]
        found = registry.report(node(number), {"nic": uuids[nic], "state": "running", "options": large})
        weighs = [len(item.value) for item in registry.store.list(f"seen/{NODES[number]}/").items]
        assert registry.local.view.weight(NODES[number]) == sum(each for each in weighs if each > LIGHT)
        return found

    assert [said(0, 0, 10).status, said(0, 1, 15).status] == [200, 200]
    refused = said(0, 2, 5)
    assert refused.status == 413 and refused.body["count"] > 30_000
    assert said(0, 2, 1).status == 200, "one as most are"
    assert said(1, 2, 10).status == 200, "others are not concerned"
    assert said(0, 1, 16).status == 200 and said(0, 1, 25).status == 413 and said(0, 1, 10).status == 200
    assert said(0, 2, 5).status == 200, "there is room again"
    monkeypatch.setattr("netregistry.rules.reports.HEAVIEST", 10_000)  # one that says more from before
    assert said(0, 0, 11).status == 413 and said(0, 0, 9).status == 200, "less is taken"
    assert registry.report(node(0), removed=tuple(uuids[:3])).status == 200
    assert registry.local.view.weight(NODES[0]) == 0 and said(0, 0, 9).status == 200


@pytest.mark.parametrize(
    ("field", "value", "command"),
    [
        ("ip", "192.0.2.11", "gnt-instance modify --net 0:modify,ip=ADDRESS web1"),
        ("mac", OTHER, "gnt-instance modify --net 0:modify,mac=MAC web1"),
        ("vlan", ".10", "gnt-instance modify --net 0:modify,vlan=VLAN web1"),
        ("tags", ["b"], "gnt-instance add-tags web1 TAG, or remove-tags"),
        ("owner", "bob", "gnt-instance add-tags web1 owner:NAME, or remove-tags"),
        ("model", "e1000", "gnt-instance modify -H nic_type=MODEL web1"),
        ("instance", "web2", "gnt-instance rename web1 NAME"),
    ],
)
def test_a_field_of_ganetis_is_ganetis(registry: Registry, ganeti: str, field: str, value: Any, command: str) -> None:
    problem = registry.refused("nic.set", ganeti, {field: value})
    assert (problem["status"], problem["master"], problem["field"], problem["command"]) == (403, "ganeti:gnt.example.com", field, command)
    assert command in problem["detail"]
    registry.do("nic.set", ganeti, {field: value}, GANETI)


def test_the_operators_fields_are_the_operators(registry: Registry, ganeti: str) -> None:
    options = [{"name": "isolated", "value": "yes"}]
    registry.do("nic.set", ganeti, {"options": options, "primary": True, "addresses": ["192.0.2.20"], "reserved": True})
    registry.do("nic.set", ganeti, {"ip": "192.0.2.10"})  # what it is already is no change
    for field, value in (("options", []), ("primary", False), ("addresses", [])):
        problem = registry.refused("nic.set", ganeti, {field: value}, GANETI)
        assert problem["status"] == 403 and problem["field"] == field and "netcommon registry nic set" in problem["command"]
    assert registry.refused("nic.set", ganeti, {"tags": []}, GANETI._replace(name="other.example.com"))["status"] == 403
    assert registry.refused("nic.add", "", {"instance": "x", "primary": True}, GANETI)["field"] == "primary"


def test_who_may_delete(registry: Registry, ganeti: str) -> None:
    problem = registry.refused("nic.delete", ganeti)
    assert problem["command"] == "gnt-instance modify --net 0:remove web1" and problem["master"] == "ganeti:gnt.example.com"
    own = registry.nic()
    assert registry.refused("nic.delete", own.uuid, None, GANETI)["command"] == f"netcommon registry nic delete {own.uuid}"
    registry.do("nic.delete", ganeti, {"force": True})
    registry.do("nic.delete", own.uuid)


def test_a_nodes_own(registry: Registry) -> None:
    first, second = registry.join(0, "c.example.com"), registry.join(1)
    nic = registry.nic(first, mac=MAC, instance="a", link="br0")
    assert (nic.master, nic.cluster) == (f"node:{NODES[0]}", "c.example.com")
    problem = registry.refused("nic.set", nic.uuid, {"link": "br1"})
    assert (problem["master"], problem["command"]) == (f"node:{NODES[0]}", "netcommon define, on node0")
    assert registry.refused("nic.set", nic.uuid, {"link": "br1"}, second)["status"] == 403
    assert registry.refused("nic.delete", nic.uuid, None, second)["status"] == 403
    assert registry.refused("nic.set", nic.uuid, {"options": [{"name": "isolated", "value": "yes"}]}, first)["status"] == 403
    registry.do("nic.set", nic.uuid, {"link": "br1", "ip": "192.0.2.1"}, first)
    registry.do("nic.set", nic.uuid, {"ip": "192.0.2.2"})
    registry.do("nic.delete", nic.uuid, None, first)
    assert registry.refused("nic.add", "", {"mac": MAC}, node(2))["kind"] == "missing"


@pytest.mark.parametrize("field", ["routes", "resolvers", "search", "mtu", "gateway", "gateway6"])
def test_what_is_of_a_network_is_never_of_a_nic(registry: Registry, field: str) -> None:
    nic = registry.nic(network=registry.network())
    for problem in (
        registry.refused("nic.set", nic.uuid, {field: 1500}),
        registry.refused("nic.set", nic.uuid, {"options": [{"name": field, "value": "1500"}]}),
    ):
        assert problem["status"] == 403 and problem["command"] == f"netcommon registry network set blue {field}=..."


def test_one_primary(registry: Registry) -> None:
    first, second = registry.nic(instance="web1", primary=True), registry.nic(instance="web1")
    others = [registry.nic(instance="web2", primary=True), registry.nic(instance="web1", primary=True, cluster="c.example.com")]
    before = registry.local.view.revision
    registry.do("nic.set", second.uuid, {"primary": True})
    assert registry.local.view.revision == before + 1, "in the same commit"
    assert [registry.wanted(each.uuid).primary for each in (first, second, *others)] == [False, True, True, True]
    registry.do("nic.set", others[0].uuid, {"instance": "web1"})
    assert [registry.wanted(each.uuid).primary for each in (first, second, others[0])] == [False, False, True]
    assert registry.refused("nic.add", "", {"primary": True})["field"] == "primary"


def test_what_is_taken_is_refused_by_its_holders_name(registry: Registry) -> None:
    blue, green = registry.network(), registry.network("green")
    nic = registry.nic(network=blue, ip="192.0.2.5", mac=MAC, instance="web1", index=1)
    for body in ({"ip": "192.0.2.5"}, {"mac": MAC}, {"addresses": ["192.0.2.5"]}):
        problem = registry.refused("nic.add", "", {"network": blue, **body})
        assert (problem["kind"], problem["holder"]) == ("taken", nic.uuid) and "web1/1" in problem["detail"]
    registry.nic(network=green, ip="192.0.2.5", mac=MAC)  # another network is another scope
    assert registry.refused("nic.add", "", {"network": blue, "ip": "192.0.2.0"})["holder"] == blue
    assert registry.refused("nic.add", "", {"network": blue, "ip": "198.51.100.1"})["field"] == "ip"


def test_who_finds_contends_and_follows(registry: Registry) -> None:
    """What an importer or a node has found is a conflict; it falls to the next when its holder goes, and is never free meanwhile."""
    first = registry.join(0)
    blue = registry.network()
    key = f"addresses/{blue}/192.0.2.5"
    holder = registry.nic(network=blue, ip="192.0.2.5")
    assert registry.refused("nic.add", "", {"network": blue, "ip": "192.0.2.5"}, first)["kind"] == "taken", "a definition asks"
    second = registry.nic(first, network=blue, ip="192.0.2.5", found=True)
    third = registry.nic(GANETI, network=blue, ip="192.0.2.5")
    (conflict,) = all_conflicts(registry.local.view, ())
    assert (conflict.claim, conflict.holder, conflict.contenders) == (key, holder.uuid, (second.uuid, third.uuid))
    registry.do("nic.delete", second.uuid, None, first)
    claim = registry.claim(key)
    assert claim and (claim.holder, claim.contenders) == (holder.uuid, (third.uuid,)), "it frees only what it owns"
    registry.do("nic.delete", holder.uuid)
    claim = registry.claim(key)
    assert claim and (claim.holder, claim.contenders, claim.standing) == (third.uuid, (), "held")
    assert list(all_conflicts(registry.local.view, ())) == []
    assert registry.refused("nic.add", "", {"found": True})["field"] == "found"


def test_a_nic_that_moves_to_another_network_takes_all_with_it(registry: Registry) -> None:
    blue, green = registry.network(), registry.network("green")
    nic = registry.nic(network=blue, ip="192.0.2.5", mac=MAC)
    registry.do("nic.set", nic.uuid, {"network": green})
    standing = {key: claim.standing for kind in ("macs", "addresses") for key, claim in registry.local.view.all(kind).items()}
    assert standing == {
        f"macs/{blue}/{MAC}": "quarantined",
        f"macs/{green}/{MAC}": "held",
        f"addresses/{blue}/192.0.2.5": "quarantined",
        f"addresses/{green}/192.0.2.5": "held",
    }


def test_owners_and_clusters_of_a_network(registry: Registry) -> None:
    blue = registry.network(owners=["ann", "bob"], cluster="c.example.com")
    assert registry.refused("nic.add", "", {"network": blue, "owner": "eve"})["owners"] == ["ann", "bob"]
    assert registry.refused("nic.add", "", {"network": blue, "owner": "ann", "cluster": "d.example.com"})["field"] == "network"
    nic = registry.nic(network=blue, owner="ann")
    assert nic.cluster == "c.example.com"
    registry.do("network.set", blue, {"owners": ["bob"]})
    registry.do("nic.set", nic.uuid, {"name": "eth0"})  # what has changed since is not held against another field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ([{"name": "fly", "value": "yes"}], "options[0].name"),
        ([{"name": "isolated", "value": "yes"}, {"name": "rate_in", "value": "fast"}], "options[1].value"),
        ([{"name": "isolated", "value": "yes"}, {"name": "isolated", "value": "no"}], "options"),
        ([{"name": "isolated"}], "options[0].value"),
    ],
)
def test_options_are_those_of_nics(registry: Registry, options: object, field: str) -> None:
    assert registry.refused("nic.add", "", {"options": options})["field"] == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"mac": "01:00:00:00:00:01"}, "mac"),
        ({"ip": "192.0.2.0.1"}, "ip"),
        ({"master": "registry"}, "master"),
        ({"colour": "red"}, "colour"),
        ({"uuid": "x"}, "uuid"),
        ({"index": -1}, "index"),
        ({"index": True}, "index"),
        ({"addresses": ["192.0.2.1", "192.0.2.1"]}, "addresses"),
        ({"cluster": NODES[0]}, "cluster"),
        ({"network": NODES[0]}, "network"),
        ({"network": []}, "network"),
        ([], "body"),
        (None, "body"),
    ],
)
def test_what_is_wrong_is_named(registry: Registry, body: object, field: str) -> None:
    problem = registry.refused("nic.add", "", body)
    assert (problem["status"], problem["field"]) == (400, field) and problem["expected"]


def test_who_may_what(registry: Registry) -> None:
    reader = OPERATOR._replace(role="reader")
    for action in ("nic.add", "network.add", "node.join", "settings.set", "claim.reserve", "quarantine.end"):
        assert registry.refused(action, "", {}, reader)["status"] == 403
    assert registry.refused("network.add", "", {"name": "x"}, node(0))["status"] == 403
    assert registry.refused("quarantine.end")["status"] == 403
    assert registry.refused("fly")["field"] == "action"


@pytest.mark.parametrize("name", ["", "a b", NODES[0], "none"])
def test_an_importer_is_of_a_cluster(registry: Registry, name: str) -> None:
    assert registry.refused("nic.add", "", {}, GANETI._replace(name=name))["status"] == 403
    assert registry.refused("nic.add", "", {}, node(0)._replace(name="x"))["status"] == 403


def test_a_nodes_nic_moves_with_its_guest(registry: Registry) -> None:
    """The node that the guest has left may not delete it while it is elsewhere; the one where it is takes it over."""
    first, second = registry.join(0), registry.join(1)
    nic = registry.nic(first, mac="aa:00:00:00:00:01", mode="bridged", found=True)
    registry.do("nic.set", nic.uuid, {"options": [{"name": "isolated", "value": "yes"}]})
    taking = {"uuid": nic.uuid, "mac": nic.mac, "mode": "bridged", "found": True}
    registry.report(first, {"nic": nic.uuid, "state": "running"})
    registry.report(second, {"nic": nic.uuid, "state": "incoming"})
    assert registry.refused("nic.add", "", taking, second)["kind"] == "exists", "it is there yet"
    registry.report(first, {"nic": nic.uuid, "state": "stopped"})
    assert registry.refused("nic.delete", nic.uuid, None, first)["kind"] == "in-use"
    assert registry.refused("nic.add", "", {**taking, "found": False}, second)["kind"] == "exists"
    assert registry.refused("nic.add", "", taking)["kind"] == "invalid", "an operator finds nothing"
    registry.do("nic.add", "", taking, second)
    now = registry.wanted(nic.uuid)
    assert (now.master, now.options, now.made) == (f"node:{second.name}", registry.wanted(nic.uuid).options, nic.made) and now.options
    assert registry.refused("nic.delete", nic.uuid, None, first)["kind"] == "forbidden"
    assert registry.refused("nic.delete", nic.uuid, None, second)["kind"] == "in-use", "it is back since"
    registry.report(second, {"nic": nic.uuid, "state": "stopped"})
    assert registry.refused("nic.delete", nic.uuid, None, second)["node"] == first.name, "it is defined there"
    registry.report(first, removed=(nic.uuid,))
    registry.do("nic.delete", nic.uuid, None, second)


@pytest.fixture
def honest_and_liar(registry: Registry) -> tuple[Identity, Identity]:
    return registry.join(0), registry.join(1)


@pytest.mark.parametrize("said", ["running", "incoming"])
@pytest.mark.parametrize("own", ["", "stopped", "stopped since"])
def test_a_node_that_lies_takes_no_nic_whose_guest_is_off(
    registry: Registry, honest_and_liar: tuple[Identity, Identity], own: str, said: str
) -> None:
    """Take what it reports of the NIC for its own word; the node that has it says nothing of a guest that has gone."""
    first, liar = honest_and_liar
    nic = registry.nic(first, mac="aa:00:00:00:00:01", found=True)
    for state in {"": (), "stopped": ("stopped",), "stopped since": ("running", "stopped")}[own]:
        assert registry.report(first, {"nic": nic.uuid, "state": state}).status == 200
    assert registry.report(liar, {"nic": nic.uuid, "state": said}).status == 200
    for body in ({"mac": "aa:00:00:00:00:02"}, {}):
        assert registry.refused("nic.add", "", {"uuid": nic.uuid, **body, "found": True}, liar)["kind"] == "exists"
    assert registry.refused("nic.delete", nic.uuid, None, liar)["kind"] == "forbidden"
    assert registry.wanted(nic.uuid) == nic


def test_a_node_that_has_said_that_it_had_the_nic_as_well_takes_it_no_more_for_that(
    registry: Registry, honest_and_liar: tuple[Identity, Identity]
) -> None:
    first, liar = honest_and_liar
    nic = registry.nic(first, mac="aa:00:00:00:00:01", found=True)
    registry.report(first, {"nic": nic.uuid, "state": "running"})
    for state in ("running", "stopped", "running"):
        registry.report(liar, {"nic": nic.uuid, "state": state})
        assert registry.refused("nic.add", "", {"uuid": nic.uuid, "found": True}, liar)["kind"] == "exists"


def test_where_a_guest_has_gone_no_node_says(registry: Registry, honest_and_liar: tuple[Identity, Identity]) -> None:
    first, liar = honest_and_liar
    nic = registry.nic(first, mac="aa:00:00:00:00:01", found=True)
    assert registry.report(liar, {"nic": nic.uuid, "state": "running", "moved_to": first.name}).status == 200
    assert registry.refused("nic.add", "", {"uuid": nic.uuid, "found": True}, liar)["kind"] == "exists"


def test_what_a_node_takes_over_it_neither_changes_nor_deletes_and_who_had_it_takes_it_back(
    registry: Registry, honest_and_liar: tuple[Identity, Identity]
) -> None:
    """A liar says that the guest comes to it all the while that it runs elsewhere, which people see; then it is off."""
    first, liar = honest_and_liar
    nic = registry.nic(first, mac="aa:00:00:00:00:01", instance="web1", found=True)
    registry.report(first, {"nic": nic.uuid, "state": "running"})
    registry.report(liar, {"nic": nic.uuid, "state": "incoming"})
    registry.report(first, {"nic": nic.uuid, "state": "stopped"})
    registry.do("nic.add", "", {"uuid": nic.uuid, "mac": "aa:00:00:00:00:02", "instance": "db1", "found": True}, liar)
    assert registry.wanted(nic.uuid) == nic._replace(master=f"node:{liar.name}"), "nothing else changes"
    for changed in ({"mac": "aa:00:00:00:00:02"}, {"instance": "db1"}, {"ip": "192.0.2.9"}, {"allocate": ["mac"]}):
        assert registry.refused("nic.set", nic.uuid, changed, liar)["node"] == first.name
    registry.do("nic.set", nic.uuid, {"link": "br1"}, liar)  # a bridge has another name there
    registry.report(liar, {"nic": nic.uuid, "state": "stopped"})
    assert registry.refused("nic.delete", nic.uuid, None, liar)["node"] == first.name
    registry.report(liar, {"nic": nic.uuid, "state": "running"})
    assert registry.refused("nic.add", "", {"uuid": nic.uuid, "found": True}, first)["kind"] == "exists", "its guest is off"
    registry.report(first, {"nic": nic.uuid, "state": "running"})
    registry.do("nic.add", "", {"uuid": nic.uuid, "found": True}, first)
    assert registry.wanted(nic.uuid).master == f"node:{first.name}"


def test_a_nic_of_another_cluster_is_not_taken_over(registry: Registry) -> None:
    first, second = registry.join(0), registry.join(1)
    registry.do("node.set", second.name, {"cluster": "other.example.com"})
    nic = registry.nic(first, mac="aa:00:00:00:00:01", found=True)
    for who, state in ((first, "running"), (second, "incoming"), (first, "stopped"), (second, "running")):
        registry.report(who, {"nic": nic.uuid, "state": state})
    assert registry.refused("nic.add", "", {"uuid": nic.uuid, "found": True}, second)["kind"] == "exists"


def test_a_nic_that_its_node_has_let_go_or_that_was_fenced_is_taken_over(registry: Registry) -> None:
    """Nobody saw it on both: the agent of one was away."""
    first, second = registry.join(0), registry.join(1)
    nics = [registry.nic(first, mac=f"aa:00:00:00:00:0{number}", found=True) for number in range(2)]
    registry.report(first, *({"nic": nic.uuid, "state": "stopped"} for nic in nics))
    registry.report(second, *({"nic": nic.uuid, "state": "running"} for nic in nics))
    registry.time += 60
    registry.report(first, removed=(nics[0].uuid,))
    registry.do("nic.add", "", {"uuid": nics[0].uuid, "found": True}, second)
    assert registry.refused("nic.add", "", {"uuid": nics[1].uuid, "found": True}, second)["kind"] == "exists"
    registry.do("node.fence", first.name)
    registry.do("nic.add", "", {"uuid": nics[1].uuid, "found": True}, second)


@pytest.mark.parametrize("state", ["", "stopped"])
@pytest.mark.parametrize("own", ["", "stopped"])
def test_a_nic_whose_guest_is_off_stays_its_nodes(registry: Registry, state: str, own: str) -> None:
    """Also where it was never reported: another node would have its address, and could delete it."""
    first, second = registry.join(0), registry.join(1)
    nic = registry.nic(first, mac="aa:00:00:00:00:01", found=True)
    for who, said in ((first, own), (second, state)):
        if said:
            registry.report(who, {"nic": nic.uuid, "state": said})
    taking = {"uuid": nic.uuid, "mac": "aa:00:00:00:00:02", "found": True}
    assert registry.refused("nic.add", "", taking, second)["kind"] == "exists"
    assert registry.wanted(nic.uuid) == nic


def test_a_copy_of_a_nodes_request_is_of_its_reports(registry: Registry) -> None:
    """One that was never done, and that nobody remembers, is not done after later reports: its id alone would not tell."""
    who = registry.join(0)
    body = {"uuid": "00000001-1111-4111-8111-111111111111", "mac": "aa:00:00:00:00:01", "found": True}
    registry.report(who, {"nic": body["uuid"], "state": "stopped"})
    at = registry.local.view.shown_revision(f"reports/{who.name}")
    late = registry.call("nic.add", "", body, at)
    assert registry.ask("nic.add", "", body, who, at).status == 201
    registry.do("nic.delete", body["uuid"], None, who)
    registry.report(who)
    assert registry.local.answer(late, who).status == 412 and registry.local.view.nic(str(body["uuid"])) is None


@pytest.mark.parametrize("reported", [True, False])
def test_a_nodes_request_from_before_a_deletion_is_not_done_after_it(registry: Registry, reported: bool) -> None:
    """Where the node has reported the NIC the deletion ends what it has asked by that; and of one that it has not it asks nothing."""
    first, second = registry.join(0), registry.join(1)
    nic = registry.nic(first, mac="aa:00:00:00:00:01", found=True)
    registry.report(second, *([{"nic": nic.uuid, "state": "running"}] if reported else []))
    at = registry.local.view.shown_revision(f"reports/{second.name}")
    late = registry.call("nic.add", "", {"uuid": nic.uuid, "mac": nic.mac, "found": True}, at)
    registry.do("nic.delete", nic.uuid)
    response = registry.local.answer(late, second)
    assert (response.status, response.body["type"].rpartition("/")[2]) == (412, "stale")
    assert registry.local.view.nic(nic.uuid) is None
    registry.report(second, {"nic": nic.uuid, "state": "running"})
    at = registry.local.view.shown_revision(f"reports/{second.name}")
    assert registry.ask("nic.add", "", {"uuid": nic.uuid, "mac": nic.mac, "found": True}, second, at).status == 201, "it is there"
