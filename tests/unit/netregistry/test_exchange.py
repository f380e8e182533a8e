"""What is exported is made again of its lines, and nothing gets round the rules."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netregistry import exchange
from netregistry.exchange import Line
from netregistry.model.codec import Invalid
from netregistry.model.history import Identity
from netregistry.request import Response
from tests.support.registry import GANETI, NODES, OPERATOR, Registry, node

CLUSTER = GANETI.name
FIRST = b'{"kind":"registry","value":{"version":1,"revision":"x:1"}}'


def exported(registry: Registry) -> list[bytes]:
    return [exchange.encoded(line) for line in exchange.lines(registry.local.view)]


def plain(data: Iterable[bytes]) -> list[dict[str, Any]]:
    """Give the lines without what the registry says by itself, in one order."""
    found = [json.loads(text) for text in data][1:]
    for line in found:
        for name in ("made", "joined", "epoch"):
            line["value"].pop(name, None)
    return sorted(found, key=json.dumps)


def identity(role: str) -> Identity:
    kind, _, name = role.partition(":")
    return Identity(kind, name) if role else OPERATOR  # type: ignore[arg-type]


def brought_in(registry: Registry, data: Iterable[bytes]) -> list[tuple[int, Response]]:
    """Ask for all that the lines want; give what was refused, with the number of a line of each batch."""
    there = {line.name: line for _number, line in exchange.decoded(exported(registry))}
    todo = exchange.asked(list(exchange.decoded(data)), there)
    refused = []
    for batch in exchange.batches(todo):
        response = registry.ask("batch", "", {"parts": [step.part for step in batch]}, identity(batch[0].role))
        if response.status >= 400:
            refused.append((batch[0].line, response))
    return refused


def full(chance: random.Random) -> Registry:
    """Make a registry with everything in it: masters of each kind, conflicts, reservations, options, a primary NIC."""
    registry = Registry(seed=chance.randrange(1 << 30))
    for number in range(2):
        registry.join(number, CLUSTER if number else "")
    registry.do("node.set", NODES[0], {"provides": ["blue"]})
    registry.do("settings.set", "", {"quarantine": 60.0})
    networks = [
        registry.network(
            "blue",
            "192.0.2.0/24",
            mtu=1400,
            reserved=[{"first": "192.0.2.200", "last": "192.0.2.250"}],
            resolvers=["192.0.2.53"],
            routes=[{"prefix": "10.0.0.0/8", "via": "192.0.2.9"}],
        )
    ]
    networks += [registry.do("network.add", "", {"name": "g", "subnet": "198.51.100.0/24", "gateway": "198.51.100.1"}, GANETI)["uuid"]]
    registry.do("network.set", networks[1], {"mtu": 1400, "subnet6": "2001:db8::/64"})
    for number in range(25):
        who = chance.choice([OPERATOR, GANETI, node(0), node(1)])
        fields: dict[str, Any] = {"network": networks[0], "instance": f"vm{number % 9}", "index": number}
        if who is OPERATOR:
            fields |= {"allocate": ["ipv4"], "primary": chance.random() < 0.3, "reserved": chance.random() < 0.3}
        else:
            fields |= {"found": True, "mac": f"aa:00:00:00:00:{chance.randrange(1, 20):02x}", "ip": f"192.0.2.{chance.randrange(2, 50)}"}
        if who is GANETI:
            fields |= {"network": chance.choice(networks), "tags": ["a"], "ip": ""}
        uuid = registry.do("nic.add", "", fields, who)["uuid"]
        if chance.random() < 0.3:
            changed: dict[str, Any] = {"options": [{"name": "isolated", "value": "yes", "until": registry.time + 500}]}
            if fields["network"] == networks[1]:
                changed["addresses"] = [f"2001:db8::{number + 1}"]
            registry.do("nic.set", uuid, changed)
        if chance.random() < 0.1:
            registry.do("nic.delete", uuid, {"force": True})
    registry.do("claim.reserve", f"addresses/{networks[0]}/192.0.2.200", {"reason": "printer"})
    if chance.random() < 0.5:
        changed_later(registry, *networks)
    return registry


def changed_later(registry: Registry, plain: str, ganetis: str) -> None:
    """Change what is not held against NICs that are there: what is reserved, whose NICs are in a network, which nodes there are."""
    reserved = [{"first": "192.0.2.1", "last": "192.0.2.60"}, {"first": "192.0.2.200", "last": "192.0.2.250"}]
    registry.do("network.set", plain, {"reserved": reserved, "owners": ["alice"]})
    registry.do("network.set", ganetis, {"reserved": [{"first": "2001:db8::1", "last": "2001:db8::ff"}]}, GANETI)
    registry.do("network.set", ganetis, {"owners": ["bob"]})
    registry.do("node.set", NODES[0], {"cluster": "b.example.com"})
    registry.do("node.forget", NODES[1], {})


@given(st.integers(0, 1 << 32))
def test_what_was_exported_is_made_again(seed: int) -> None:
    registry = full(random.Random(seed))
    data = exported(registry)
    again = Registry()
    assert brought_in(again, data) == []
    assert plain(exported(again)) == plain(data)
    assert set(again.local.view.members("contended")) == set(registry.local.view.members("contended"))
    before = again.everything()
    assert brought_in(again, data) == [] and again.everything() == before, "what is so already is not asked for"


@given(st.integers(0, 1 << 32), st.integers(0, 40))
def test_an_import_that_was_cut_off_goes_on(seed: int, cut: int) -> None:
    data = exported(full(random.Random(seed)))
    again = Registry()
    todo = exchange.asked(list(exchange.decoded(data)), {})
    for batch in list(exchange.batches(todo))[:cut]:
        assert again.ask("batch", "", {"parts": [step.part for step in batch]}, identity(batch[0].role)).status == 200
    assert brought_in(again, data) == [] and plain(exported(again)) == plain(data)


def test_what_was_changed_later_is_not_held_against_the_nics(registry: Registry) -> None:
    blue, green = registry.network("blue", "192.0.2.0/24"), registry.network("green", "198.51.100.0/24")
    kept = registry.nic(network=blue, instance="web1", index=0, allocate=["ipv4"])
    registry.nic(network=green, instance="web2", index=0, allocate=["ipv4"], owner="alice")
    gone = registry.nic(registry.join(0), mac="02:00:00:00:00:09", instance="old", index=0)
    registry.do("network.set", blue, {"reserved": [{"first": kept.ip, "last": kept.ip}]})
    registry.do("network.set", green, {"owners": ["bob"]})
    registry.do("node.forget", NODES[0], {})
    again = Registry(seed=9)
    assert brought_in(again, exported(registry)) == [] and plain(exported(again)) == plain(exported(registry))
    made = again.local.view.nic(gone.uuid)
    assert made is not None and made.master == f"node:{NODES[0]}" and not again.local.view.all("nodes")
    refused = again.ask("nic.add", "", {"network": green, "instance": "web3", "index": 0, "owner": "alice"})
    assert refused.status == 403, "the network is for others' NICs from now on"


def test_no_node_is_left_of_an_import_that_was_cut_off(registry: Registry) -> None:
    who = registry.join(0)
    registry.nic(who, mac="02:00:00:00:00:09", instance="old", index=0)
    registry.do("node.forget", NODES[0], {})
    data = exported(registry)
    batches = list(exchange.batches(exchange.asked(list(exchange.decoded(data)), {})))
    assert len(batches) == 3
    for cut in range(4):
        again = Registry()
        for batch in batches[:cut]:
            again.do("batch", "", {"parts": [step.part for step in batch]}, identity(batch[0].role))
        assert brought_in(again, data) == [] and plain(exported(again)) == plain(data), cut


def test_who_had_an_address_before_others_contended_for_it_has_it_again(registry: Registry) -> None:
    network = registry.do("network.add", "", {"name": "g", "subnet": "198.51.100.0/24", "subnet6": "2001:db8::/64"}, GANETI)["uuid"]
    first = registry.do("nic.add", "", {"network": network, "instance": "web1", "index": 0, "mac": "aa:00:00:00:00:01"}, GANETI)["uuid"]
    registry.do("nic.set", first, {"addresses": ["2001:db8::5"]})
    other = {"network": network, "instance": "web2", "index": 0, "mac": "aa:00:00:00:00:02", "ip": "198.51.100.5"}
    registry.do("nic.add", "", other | {"uuid": "00000000-0000-4000-8000-000000000001", "ip": "2001:db8::5"}, GANETI)
    again = Registry()
    assert brought_in(again, exported(registry)) == [] and plain(exported(again)) == plain(exported(registry))
    claims = [view.get(f"addresses/{network}/2001:db8::5") for view in (registry.local.view, again.local.view)]
    assert claims[0] == claims[1]._replace(**{name: getattr(claims[0], name) for name in ("freed", "until", "last")})
    assert claims[0].holder == first and claims[0].contenders


def test_what_is_there_otherwise_is_refused(registry: Registry) -> None:
    nic = registry.nic(mac="aa:00:00:00:00:01")
    data = exported(registry)
    for changed in ({"mac": "aa:00:00:00:00:02"}, {"mac": "aa:00:00:00:00:01", "owner": "alice"}):
        registry.do("nic.set", nic.uuid, changed)
        ((_line, response),) = brought_in(registry, data)
        assert response.status == 409 and "there is a NIC" in response.body["detail"]


def test_what_a_network_reserves_there_otherwise_is_refused(registry: Registry) -> None:
    network = registry.network("blue", "192.0.2.0/24", reserved=[{"first": "192.0.2.7", "last": "192.0.2.7"}], owners=["alice"])
    data = exported(registry)
    eight = [{"first": "192.0.2.8", "last": "192.0.2.8"}]
    for changed in ({"owners": ["bob"]}, {"owners": ["alice"], "reserved": eight}, {"owners": [], "reserved": [], "mtu": 1400}):
        registry.do("network.set", network, changed)
        before = registry.everything()
        ((_line, response),) = brought_in(registry, data)
        assert response.status == 409 and "there is a network" in response.body["detail"] and registry.everything() == before


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "line 1"),
        ([b"x"], "line 1"),
        ([b'{"kind":"nic","value":{}}'], "line 1"),
        ([b'{"kind":"registry","value":{"version":2}}'], "line 1"),
        ([FIRST, b"[]"], "line 2"),
        ([FIRST, b'{"kind":"nic","value":{"uuid":"x"}}'], "line 2.uuid"),
        ([FIRST, b'{"kind":"nic","value":{"uuid":"13264fb6-0667-415f-9a43-786dc01cbf24","colour":"red"}}'], "line 2.colour"),
        ([FIRST, b'{"kind":"history","value":{}}'], "line 2"),
        ([FIRST, b'{"kind":"reservation","value":{"reason":"x"}}'], "line 2"),
        ([FIRST, b'{"kind":"settings","value":{},"key":"x"}'], "line 2"),
        ([FIRST, b'{"kind":"settings","value":{},"more":"x"}'], "line 2"),
    ],
)
def test_a_line_that_is_none_is_named(data: list[bytes], where: str) -> None:
    with pytest.raises(Invalid) as invalid:
        list(exchange.decoded(data))
    assert invalid.value.field == where


def test_batches_have_one_role_and_fit_into_one_request() -> None:
    steps = [
        exchange.Step(turn, role, "nic.add", "", {}, size, line)
        for line, (turn, role, size) in enumerate(
            [(4, "", 40), (4, "", 40), (4, "", 40), (1, "", 1), (5, "importer:c", 1), (5, "node:n", 1)]
        )
    ]
    assert [[step.line for step in batch] for batch in exchange.batches(steps)] == [[3, 0, 1], [2], [4], [5]]
    many = [exchange.Step(4, "", "nic.add", "", {}, 1, line) for line in range(120)]
    assert [len(batch) for batch in exchange.batches(many)] == [50, 50, 20]
    assert exchange.steps(2, Line("settings", exchange.Settings()), Line("settings", exchange.Settings())) == []


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("stays", [False, True])
def test_a_nic_is_of_the_cluster_that_its_node_was_in_then(registry: Registry, stays: bool, forgotten: bool) -> None:
    """Its claims have that scope, and that cluster's nodes are told of it. It was made in the cluster that the node is in now."""
    registry.join(0, "a.example.com")
    blue = registry.network("blue", "192.0.2.0/24", cluster="a.example.com")
    registry.nic(node(0), mac="02:00:00:00:00:09", instance="old", index=0, ip="10.0.0.9", found=True)
    kept = registry.nic(node(0), mac="02:00:00:00:00:0b", instance="blue", index=0, ip="192.0.2.9", network=blue, found=True).uuid
    registry.do("nic.set", kept, {"addresses": ["192.0.2.10"]})
    registry.do("node.set", NODES[0], {"cluster": "b.example.com", "provides": ["blue"]})
    if stays:
        registry.nic(node(0), mac="02:00:00:00:00:0a", instance="new", index=0, ip="10.0.0.9", found=True)
        registry.do("node.set", NODES[0], {"cluster": ""})
        registry.nic(node(0), mac="02:00:00:00:00:0c", instance="free", index=0, ip="10.0.0.9", found=True)
    if forgotten:
        registry.do("node.forget", NODES[0], {})
    data = exported(registry)
    batches = list(exchange.batches(exchange.asked(list(exchange.decoded(data)), {})))
    for cut in range(len(batches) + 1):
        again = Registry(seed=9)
        for batch in batches[:cut]:
            again.do("batch", "", {"parts": [step.part for step in batch]}, identity(batch[0].role))
        assert brought_in(again, data) == [] and plain(exported(again)) == plain(data), cut
        assert set(again.local.view.members("contended")) == set(registry.local.view.members("contended")) == set()
        before = again.everything()
        assert brought_in(again, data) == [] and again.everything() == before


def test_a_node_that_is_there_already_makes_no_nic_of_another_cluster(registry: Registry) -> None:
    registry.join(0, "a.example.com")
    old = registry.nic(node(0), mac="02:00:00:00:00:09", instance="old", index=0, ip="10.0.0.9", found=True)
    registry.do("node.set", NODES[0], {"cluster": "b.example.com"})
    again = Registry(seed=9)
    again.join(0, "b.example.com")
    ((_line, response),) = brought_in(again, exported(registry))
    assert response.status == 403 and "cluster=a.example.com" in response.body["detail"] and again.local.view.nic(old.uuid) is None
