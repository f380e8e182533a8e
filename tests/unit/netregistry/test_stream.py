"""What a node is told: whole values, networks before their NICs, and at any time what a new stream would say."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netregistry.stores.base import Batch
from netregistry.stream import Line, Stream, hearers
from netregistry.view import View, groups
from tests.support.registry import GANETI, NODES, Registry, node

CLUSTER = GANETI.name


class Told:
    """A stream, and what its hearer knows from its lines."""

    def __init__(self, registry: Registry, number: int) -> None:
        self.stream, self.known, self.lines = Stream(NODES[number]), {}, []  # type: ignore[var-annotated]
        self.hear(self.stream.begin(registry.local.view))

    def hear(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.lines.append((line.event, line.what, line.uuid))
            if line.event == "leave":
                del self.known[line.what, line.uuid]
            elif line.event != "ready":
                assert (line.event == "enter") == ((line.what, line.uuid) not in self.known)
                self.known[line.what, line.uuid] = (line.value, line.beside) if line.what == "options" else line.value
                if line.what == "nic" and line.value["network"]:
                    assert ("network", line.value["network"]) in self.known, "a NIC came before its network"


def fresh(view: View, number: int) -> dict[Any, Any]:
    lines = [line for line in Stream(NODES[number]).begin(view) if line.event != "ready"]
    return {(line.what, line.uuid): (line.value, line.beside) if line.what == "options" else line.value for line in lines}


class Heard(Registry):
    def __init__(self, seed: int = 0) -> None:
        self.told: list[Told] = []
        super().__init__(None, self.hear, seed)

    def hear(self, batch: Batch | None) -> None:
        concerned = hearers(self.local.view, batch) if batch is not None else ()
        for told in self.told:
            if told.stream.node in concerned:
                told.hear(told.stream.next(self.local.view, batch))


def test_a_nic_that_moves_leaves_here_and_enters_there_whole() -> None:
    registry = Heard()
    first, second = registry.join(0, CLUSTER), registry.join(1, CLUSTER)
    registry.told = here, there = Told(registry, 0), Told(registry, 1)
    assert here.lines == [("ready", "", "")]
    network = registry.do("network.add", "", {"name": "net1", "subnet": "192.0.2.0/24"}, GANETI)["uuid"]
    nic = registry.nic(GANETI, network=network, instance="web1", ip="192.0.2.5", mac="aa:00:00:00:00:01")
    assert here.lines[1:] == there.lines[1:] == [("enter", "network", network)], "what its guests are told is there before the first"
    registry.do("nic.set", nic.uuid, {"options": [{"name": "isolated", "value": "yes"}]})
    assert here.lines[2:] == there.lines[2:] == [("enter", "options", nic.uuid)], "the operator's values are there before the guest"
    registry.report(first, {"nic": nic.uuid, "state": "running"})
    assert here.lines[3:] == [("leave", "options", nic.uuid), ("enter", "nic", nic.uuid)]
    registry.do("network.set", network, {"mtu": 1400})
    assert here.lines[5:] == there.lines[3:] == [("change", "network", network)]
    registry.report(second, {"nic": nic.uuid, "state": "incoming"})
    registry.report(first, removed=(nic.uuid,))
    assert here.lines[6:] == [("enter", "options", nic.uuid), ("leave", "nic", nic.uuid)], "the guest may come back"
    assert there.known["nic", nic.uuid]["ip"] == "192.0.2.5"
    assert there.known["network", network]["mtu"] == here.known["network", network]["mtu"] == 1400
    registry.do("nic.delete", nic.uuid, None, GANETI)
    assert here.known == there.known == {}


def test_of_a_nic_elsewhere_all_is_told_that_a_node_keeps_of_it() -> None:
    """A part of it under the NIC's revision would be taken for all of it: addresses and network would be lost where the guest comes."""
    registry = Heard()
    registry.join(0, CLUSTER)
    registry.told = (here,) = [Told(registry, 0)]  # type: ignore[assignment]
    network = registry.network("net1", cluster=CLUSTER)
    nic = registry.nic(
        cluster=CLUSTER, network=network, options=[{"name": "isolated", "value": "yes"}], addresses=["192.0.2.77"], tags=["a"]
    )
    options, beside = here.known["options", nic.uuid]
    assert [each["value"] for each in options] == ["yes"]
    said = {"master": "registry", "network": network, "addresses": ["192.0.2.77"], "tags": ["a"]}
    assert beside == {**said, "index": None, "ip": ""}
    registry.do("nic.set", nic.uuid, {"options": []})
    assert here.known["options", nic.uuid] == ([], beside), "addresses are an operator's value too"
    registry.do("nic.set", nic.uuid, {"addresses": []})
    assert list(here.known) == [("network", network)]
    registry.do("nic.set", nic.uuid, {"network": ""})
    assert here.known == {}


def test_nothing_of_another_cluster() -> None:
    registry = Heard()
    registry.join(0, "other.example.com")
    registry.told = (here,) = [Told(registry, 0)]  # type: ignore[assignment]
    network, unused = registry.network("net1"), registry.network("net2", "198.51.100.0/24")
    nic = registry.nic(cluster=CLUSTER, network=network, options=[{"name": "isolated", "value": "yes"}])
    registry.do("network.set", network, {"mtu": 1400})
    registry.do("network.set", unused, {"mtu": 1400})
    assert here.known == {}
    registry.do("node.set", NODES[0], {"cluster": CLUSTER})
    assert list(here.known) == [("network", network), ("options", nic.uuid)]
    registry.do("node.set", NODES[0], {"cluster": "other.example.com"})
    assert here.known == {}


@pytest.mark.parametrize("joined", [CLUSTER, "new.example.com"])
def test_nothing_leaves_while_a_cluster_is_renamed(joined: str) -> None:
    """It is one cluster under two names, for as long as that takes: what lies on a node for guests that come is not dropped between."""
    registry, first = Heard(), {"uuid": NODES[4], "master": NODES[5], "node": "node1", "serial": 1}
    registry.do("importer.hold", CLUSTER, first, GANETI)
    network = registry.network("net1", "10.0.0.0/16")
    for number in range(2):
        registry.join(number, CLUSTER)
    for number in range(60):
        tags = [f"{each:02}{'x' * 100}" for each in range(90)]
        registry.nic(cluster=CLUSTER, network=network, options=[{"name": "isolated", "value": "yes"}], tags=tags, instance=f"web{number}")
    registry.do("node.set", NODES[1], {"cluster": joined})
    mine = registry.nic(cluster="new.example.com", options=[{"name": "isolated", "value": "no"}])
    registry.told = [Told(registry, number) for number in range(2)]
    for told in registry.told:
        told.lines.clear()
    parts, left = 0, 1
    while left:
        left, parts = registry.do("importer.hold", "new.example.com", {**first, "serial": 2}).get("left", 0), parts + 1
        for number, told in enumerate(registry.told):
            assert told.known == fresh(registry.local.view, number)
            assert len(told.known) == 62 and "leave" not in {event for event, _what, _uuid in told.lines}
            assert told.known["options", mine.uuid][0][0]["value"] == "no"
    assert parts > 1 and {nic.cluster for nic in registry.local.view.all("nics").values()} == {"new.example.com"}


def test_of_a_network_is_not_told_what_it_does_not_give_out() -> None:
    """A Ganeti cluster's pool may reserve a thousand ranges, of which no guest is told."""
    registry = Heard()
    registry.join(0, CLUSTER)
    registry.told = (here,) = [Told(registry, 0)]  # type: ignore[assignment]
    network = registry.network("net1", cluster=CLUSTER)
    registry.do("network.set", network, {"reserved": [{"first": "192.0.2.9", "last": "192.0.2.12"}]})
    registry.nic(cluster=CLUSTER, network=network)
    assert here.known["network", network]["reserved"] == [] and registry.local.view.network(network).reserved  # type: ignore[union-attr]


@given(st.integers(0, 1 << 32))
def test_at_any_time_it_has_told_what_a_new_one_would(seed: int) -> None:
    registry, chance = Heard(seed), random.Random(seed)
    nics = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(4)]
    networks = [registry.network("a"), registry.network("b", "198.51.100.0/24")]
    held: dict[str, Any] = {"uuid": NODES[4], "master": NODES[5], "node": "node1", "serial": 1}
    for number in range(2):
        registry.join(number, CLUSTER)
    registry.told = [Told(registry, number) for number in range(2)]
    for _ in range(40):
        uuid, number = chance.choice(nics), chance.randrange(2)
        network = chance.choice([*networks, ""])
        options = chance.choice([[], [{"name": "isolated", "value": chance.choice(["yes", "no"])}]])
        registry.ask(
            *chance.choice(
                [
                    ("nic.add", "", {"uuid": uuid, "network": network, "options": options, "cluster": CLUSTER}),
                    ("nic.set", uuid, {"network": network}),
                    ("nic.set", uuid, {"options": options}),
                    ("nic.set", uuid, {"addresses": chance.choice([[], ["192.0.2.77"]])}),
                    ("nic.delete", uuid),
                    ("network.set", networks[0], {"mtu": chance.choice([1400, 1500])}),
                    ("network.delete", networks[1]),
                    ("network.add", "", {"uuid": networks[1], "name": "b"}),
                    ("node.set", NODES[number], {"cluster": chance.choice([CLUSTER, "other.example.com"])}),
                    ("importer.hold", chance.choice([CLUSTER, "other.example.com"]), held),
                ]
            )
        )
        if chance.random() < 0.5:
            reports = [{"nic": uuid, "state": "running"}] if chance.random() < 0.6 else []
            registry.report(node(number), *reports, removed=() if reports else (uuid,))
        for each, told in enumerate(registry.told):
            assert told.known == fresh(registry.local.view, each)


def test_a_stream_begins_without_a_look_at_each_nic_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of nodes begin one at once when a service comes back."""
    registry = Registry()
    registry.join(0, CLUSTER)
    for number in range(100):
        registry.nic(cluster=CLUSTER, options=[{"name": "isolated", "value": "yes"}] if number == 50 else [])
    looked: list[str] = []
    get = View.get
    monkeypatch.setattr(View, "get", lambda view, key: looked.append(key) or get(view, key))
    stream = Stream(NODES[0])
    lines = list(stream.begin(registry.local.view))
    assert [(line.event, line.what) for line in lines] == [("enter", "options"), ("ready", "")] and len(looked) < 10
    assert vars(stream) == vars(Stream(NODES[0])), (
        "of the operator's values nothing is kept: there may be thousands, for thousands of nodes"
    )
    del looked[:]
    stream.assume(registry.local.view)
    assert looked == [], "one that goes on where it was begins with the node's own alone"


def test_of_a_commit_over_many_nics_each_stream_looks_at_each_change_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names a cluster had before is no matter of each NIC: for thousands of streams a batch held a service up for seconds."""
    registry = Heard()
    registry.do("importer.hold", CLUSTER, {"uuid": NODES[4], "master": NODES[5], "node": "node1", "serial": 1}, GANETI)
    registry.join(0, CLUSTER)
    options = [{"name": "isolated", "value": "yes"}]
    nics = [registry.nic(cluster=CLUSTER, options=options).uuid for _ in range(40)]
    registry.told = [told] = [Told(registry, 0)]
    looked: list[str] = []
    monkeypatch.setattr("netregistry.stream.groups", lambda key, value: looked.append(key) or groups(key, value))
    options = [{"name": "isolated", "value": "no"}]
    parts = [{"action": "nic.set", "target": uuid, "body": {"options": options}, "match": "*"} for uuid in nics]
    registry.do("batch", "", {"parts": parts})
    assert len(told.lines) == 81 and len(looked) <= 40
