"""Check what a node may have by saying that it has found it: its own guests, where these may be, and no place of others."""

from __future__ import annotations

import pytest

from netregistry.model.history import Identity
from netregistry.rules import claims
from tests.support.registry import GANETI, NODES, OPERATOR, Registry

UUID = "77777777-1111-4111-8111-777777777777"
CLUSTER = GANETI.name


@pytest.fixture
def other(registry: Registry) -> Identity:
    """Another node, which has the guest."""
    return registry.join(1)


@pytest.fixture
def me(registry: Registry) -> Identity:
    return registry.join(0)


@pytest.mark.parametrize("state", ["running", "incoming"])
def test_a_guest_that_another_node_has_is_not_made_ones_own(registry: Registry, me: Identity, other: Identity, state: str) -> None:
    """Nobody wants it: an operator has deleted it, or its Ganeti cluster is not imported yet. Its node would be told what I want."""
    registry.report(other, {"nic": UUID, "state": state, "mac": "aa:00:00:00:00:01", "ip": "192.0.2.1"})
    registry.time += 5
    registry.report(other, {"nic": UUID, "state": "running", "mac": "aa:00:00:00:00:01", "ip": "192.0.2.1", "came": registry.time})
    registry.report(me, {"nic": UUID, "state": "running"})
    problem = registry.refused("nic.add", "", {"uuid": UUID, "addresses": ["192.0.2.66"], "found": True}, me)
    assert problem["kind"] == "exists" and problem["node"] == NODES[1] and "node1" in problem["detail"]
    part = {"action": "nic.add", "body": {"uuid": UUID}}
    assert registry.refused("batch", "", {"parts": [part]}, me)["kind"] == "exists"
    registry.time += 5
    registry.report(me, {"nic": UUID, "state": "running", "came": 1.0})
    assert registry.refused("nic.add", "", {"uuid": UUID, "found": True}, me)["kind"] == "exists"
    assert registry.nic(other, uuid=UUID, found=True).master == f"node:{NODES[1]}", "nor is its node kept from it"


def test_a_guest_that_another_node_had_is_whose_it_came_to(registry: Registry, me: Identity, other: Identity) -> None:
    """A migration of one that is not known: it is added when the node that it left has said so."""
    registry.report(other, {"nic": UUID, "state": "running"})
    registry.time += 1
    registry.report(me, {"nic": UUID, "state": "running"})
    assert registry.refused("nic.add", "", {"uuid": UUID, "found": True}, me)["kind"] == "exists"
    registry.report(other, {"nic": UUID, "state": "stopped"})
    assert registry.nic(me, uuid=UUID, found=True).master == f"node:{NODES[0]}"


def test_a_network_is_for_whom_it_is_for_also_of_what_was_found(registry: Registry, me: Identity) -> None:
    blue = registry.network(owners=["alice"], gateway="192.0.2.254")
    theirs = registry.do("network.add", "", {"name": "net1", "subnet": "198.51.100.0/24"}, GANETI)["uuid"]
    for network, more, kind in (
        (blue, {"owner": "mallory", "ip": "192.0.2.1"}, "forbidden"),
        (theirs, {"ip": "198.51.100.1"}, "forbidden"),
        (blue, {"owner": "alice", "ip": "198.51.100.9"}, "invalid"),
        (blue, {"owner": "alice", "addresses": ["192.0.2.254"]}, "invalid"),
    ):
        assert registry.refused("nic.add", "", {"network": network, "found": True, **more}, me)["kind"] == kind, more
    mine = registry.nic(me, network=blue, owner="alice", ip="192.0.2.1", found=True)
    for more in ({"owner": "mallory"}, {"ip": "192.0.2.254"}, {"network": theirs}):
        assert registry.refused("nic.set", mine.uuid, {**more, "found": True}, me)["status"] in (400, 403)
    registry.do("network.set", blue, {"subnet": "192.0.2.0/25", "gateway": ""})
    registry.do("nic.set", mine.uuid, {"tags": ["a"], "found": True}, me)


def test_what_a_guest_has_contends_where_it_may_be(registry: Registry, me: Identity) -> None:
    """A network that has no subnet holds nothing against an address; and an importer has found what its cluster says."""
    plain = registry.network("plain", "")
    assert registry.nic(me, network=plain, ip="203.0.113.1", found=True).network == plain
    blue = registry.network()
    first = registry.nic(network=blue, ip="192.0.2.1")
    second = registry.nic(me, network=blue, ip="192.0.2.1", found=True)
    claim = registry.claim(f"addresses/{blue}/192.0.2.1")
    assert claim is not None and (claim.holder, claim.contenders) == (first.uuid, (second.uuid,))
    theirs = registry.do("network.add", "", {"name": "net1", "subnet": "198.51.100.0/24", "gateway": "198.51.100.1"}, GANETI)["uuid"]
    assert registry.nic(GANETI, network=theirs, ip="198.51.100.1", instance="router").ip == "198.51.100.1"


def test_no_node_shuts_others_out_of_an_address(registry: Registry, me: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "OF_NODES", 10)
    monkeypatch.setattr(claims, "MOST_CONTENDERS", 12)
    ip = "192.0.2.10"
    registry.nic(OPERATOR, ip=ip)
    for _ in range(8):
        registry.nic(me, ip=ip, found=True)
    assert "8 contenders of this node" in registry.refused("nic.add", "", {"ip": ip, "found": True}, me)["detail"]
    other = registry.join(1)
    for _ in range(2):
        registry.nic(other, ip=ip, found=True)
    assert "10 contenders of nodes" in registry.refused("nic.add", "", {"ip": ip, "found": True}, other)["detail"]


def test_an_importer_has_a_place_behind_those_of_nodes(registry: Registry) -> None:
    theirs = registry.do("network.add", "", {"name": "net1", "subnet": "198.51.100.0/24"}, GANETI)["uuid"]
    ip = "198.51.100.10"
    for number in range(6):
        who = Identity("node", f"{number:08x}-0000-4000-8000-000000000000", "unix")
        registry.do("node.join", "", {"uuid": who.name, "name": f"node{number}", "cluster": CLUSTER}, who)
        for _ in range(9 if not number else 8):
            registry.nic(who, network=theirs, ip=ip, found=True)
    for number in range(48, 52):
        who = Identity("node", f"{number:08x}-0000-4000-8000-000000000000", "unix")
        registry.do("node.join", "", {"uuid": who.name, "name": f"node{number}", "cluster": CLUSTER}, who)
        answer = registry.ask("nic.add", "", {"network": theirs, "ip": ip, "found": True}, who)
        assert answer.status == (201 if number < 50 else 409)
    web = registry.nic(GANETI, network=theirs, ip=ip, instance="web7", index=0)
    claim = registry.claim(f"addresses/{theirs}/{ip}")
    assert claim is not None and claim.contenders[-1] == web.uuid and len(claim.contenders) == 51
