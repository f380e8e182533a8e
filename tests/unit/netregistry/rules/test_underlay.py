"""Prefixes of nodes: one for each, given once, kept, and given to another one only after its quarantine."""

from __future__ import annotations

from ipaddress import IPv6Network

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.node import Node
from netregistry.model.underlay import FIRST, NodePrefix
from netregistry.stores.base import Delete, Put
from netregistry.underlay import healing
from tests.support.registry import NODES, Registry, node

SITE = "fd12:3456:789a::/48"


def prefix(registry: Registry, number: int) -> NodePrefix | None:
    found: NodePrefix | None = registry.local.view.get(keys.prefix(NODES[number]))
    return found


def prefixes(registry: Registry) -> dict[str, str]:
    return {key.partition("/")[2]: each.prefix for key, each in registry.local.view.all("prefixes").items()}


@pytest.mark.parametrize(
    "bad",
    [
        "fd12::/47",
        "fd12::/61",
        "fd12::/64",
        "fd12::1/48",
        "fe80::/48",
        "ff05::/48",
        "::/48",
        "64:ff9b::/48",
        "10.0.0.0/8",
        "fd12::",
        "",
        "x",
    ],
)
def test_a_prefix_that_cannot_be_one_is_refused(registry: Registry, bad: str) -> None:
    refused = registry.refused("underlay.init", "", {"prefix": bad})
    assert (refused["kind"], refused["field"]) == ("invalid", "prefix") and "\n" not in refused["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prefix"),
        ({"prefix": SITE, "zone": "a b"}, "zone"),
        ({"prefix": SITE, "ttl": -1}, "ttl"),
        ({"prefix": SITE, "ttl": 1.5}, "ttl"),
        ({"prefix": SITE, "minimum_age": -1}, "minimum_age"),
        ({"prefix": SITE, "next": 1}, "next"),
    ],
)
def test_what_else_is_refused(registry: Registry, body: dict[str, object], field: str) -> None:
    assert registry.refused("underlay.init", "", body)["field"] == field


def test_each_node_has_a_part_of_its_own(registry: Registry) -> None:
    """Those that are there get it at the beginning, others when they join."""
    registry.join(0)
    registry.join(1)
    assert (
        registry.do("underlay.init", "", {"prefix": "FD12:3456:789A:0::/48", "zone": "Hosts.example.com."})["zone"] == "hosts.example.com"
    )
    registry.join(2)
    assert prefixes(registry) == {NODES[0]: "fd12:3456:789a::/64", NODES[1]: "fd12:3456:789a:1::/64", NODES[2]: "fd12:3456:789a:2::/64"}
    found = prefix(registry, 2)
    assert found is not None and (found.number, found.next, found.itself) == (2, FIRST, "fd12:3456:789a:2::1")
    assert found.at(found.next) == "fd12:3456:789a:2::1:0"


def test_without_an_underlay_a_join_writes_what_it_did(registry: Registry) -> None:
    registry.join(0)
    registry.passes(1)
    assert {key.partition("/")[0] for key in registry.everything()} == {"nodes", "history", "ledger", "gone"}


def test_the_same_once_more_changes_nothing(registry: Registry) -> None:
    registry.join(0)
    registry.do("underlay.init", "", {"prefix": SITE, "zone": "hosts.example.com", "ttl": 5})
    before = {key: value for key, value in registry.everything().items() if not key.startswith(("history/", "ledger"))}
    registry.do("underlay.init", "", {"prefix": SITE})
    assert {key: value for key, value in registry.everything().items() if not key.startswith(("history/", "ledger"))} == before
    assert registry.do("underlay.init", "", {"prefix": SITE, "ttl": 9})["zone"] == "hosts.example.com"
    refused = registry.refused("underlay.init", "", {"prefix": "fd13::/48"})
    assert refused["kind"] == "exists" and SITE in refused["detail"] and "node forget" in refused["detail"]


def test_a_prefix_of_which_no_node_has_any_is_replaced(registry: Registry) -> None:
    """It was mistyped, or all its nodes are gone; what else was said stays."""
    registry.network(subnet6="fd14:0:0:7::/64")
    registry.do("underlay.init", "", {"prefix": SITE, "zone": "hosts.example.com", "minimum_age": 100})
    assert registry.refused("underlay.init", "", {"prefix": "fd14::/48"})["kind"] == "invalid"
    assert registry.do("underlay.init", "", {"prefix": "fd12::/52"})["zone"] == "hosts.example.com"
    registry.join(0)
    assert prefixes(registry) == {NODES[0]: "fd12::/64"}
    for _ in range(2):
        assert registry.refused("underlay.init", "", {"prefix": SITE})["kind"] == "exists", "it is a node's, or rests"
        registry.ask("node.forget", NODES[0])
    registry.passes(101)
    registry.do("underlay.init", "", {"prefix": SITE})
    registry.join(1)
    assert prefixes(registry) == {NODES[1]: "fd12:3456:789a::/64"}


def test_twice_at_once(registry: Registry) -> None:
    """Another service gives prefixes between the plan and the commit: each node has one, and no two have the same."""
    other = Registry(registry.store, seed=1)
    registry.join(0)
    registry.join(1)
    other.local.catch_up()
    registry.do("underlay.init", "", {"prefix": SITE})
    assert other.local.view.underlay is None, "it has heard nothing of it yet"
    other.do("underlay.init", "", {"prefix": SITE})
    other.join(2)
    registry.join(3)
    assert other.ask("underlay.init", "", {"prefix": "fd13::/48"}).status == 409
    registry.local.catch_up()
    assert len(set(prefixes(registry).values())) == len(prefixes(registry)) == 4


def test_a_prefix_that_guests_have(registry: Registry) -> None:
    registry.network(subnet6="fd12:3456:789a:7::/64")
    refused = registry.refused("underlay.init", "", {"prefix": SITE})
    assert refused["field"] == "prefix" and "blue" in refused["detail"]
    registry.do("underlay.init", "", {"prefix": "fd13::/48"})
    assert registry.refused("network.add", "", {"name": "red", "subnet6": "fd13:0:0:1::/64"})["field"] == "subnet6"
    blue = registry.local.view.members("named", "", "blue")[0].partition("/")[2]
    assert registry.refused("network.set", blue, {"subnet6": "fd13::/40"})["field"] == "subnet6"
    registry.do("network.set", blue, {"mtu": 1400})


def test_more_nodes_than_prefixes(registry: Registry) -> None:
    for number in range(17):
        registry.do("node.join", "", {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "name": f"n{number}"})
    refused = registry.refused("underlay.init", "", {"prefix": "fd12::/60"})
    assert refused["field"] == "prefix" and "17 nodes" in refused["detail"]
    registry.do("node.forget", f"{0:08x}-0000-4000-8000-000000000000")
    registry.do("underlay.init", "", {"prefix": "fd12::/60"})
    assert len(prefixes(registry)) == 16
    registry.join(0)
    registry.passes(1)
    assert prefix(registry, 0) is None, "a node that joins late has none, and is a node all the same"
    registry.do("node.forget", f"{7:08x}-0000-4000-8000-000000000000")
    registry.passes(3500)
    assert prefix(registry, 0) is None
    registry.passes(101)
    found = prefix(registry, 0)
    assert found is not None and found.prefix == "fd12:0:0:6::/64", "the one whose quarantine is over"


def test_many_nodes_are_given_theirs_by_the_leader(registry: Registry) -> None:
    for number in range(230):
        registry.do("node.join", "", {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "name": f"n{number}"})
    registry.do("underlay.init", "", {"prefix": SITE})
    registry.passes(1)
    assert len(set(prefixes(registry).values())) == 230
    assert all(IPv6Network(each).subnet_of(IPv6Network(SITE)) for each in prefixes(registry).values())


def test_a_prefix_rests_before_another_node_has_it(registry: Registry) -> None:
    registry.do("underlay.init", "", {"prefix": "fd12::/60", "minimum_age": 100, "ttl": 200})
    for number in range(3):
        registry.join(number)
    registry.do("node.forget", NODES[0])
    registry.passes(199)
    found = prefix(registry, 0)
    assert found is not None and found.freed == registry.time - 199 and found.until == registry.time + 1
    registry.join(3)
    assert prefixes(registry)[NODES[3]] == "fd12:0:0:3::/64"
    registry.passes(2)
    assert prefix(registry, 0) is None
    registry.join(4)
    assert prefixes(registry)[NODES[4]] == "fd12:0:0:4::/64", "those that were never used come first"


def test_the_highest_prefix_is_not_given_once_more_before_the_others(registry: Registry) -> None:
    registry.do("underlay.init", "", {"prefix": "fd12::/60", "minimum_age": 100})
    for number in range(3):
        registry.join(number)
    for number in (2, 1):
        registry.do("node.forget", NODES[number])
        registry.passes(101)
    registry.join(3)
    assert prefixes(registry) == {NODES[0]: "fd12::/64", NODES[3]: "fd12:0:0:3::/64"}
    for number in range(12):
        registry.do("node.join", "", {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "name": f"n{number}"})
    registry.do("node.forget", NODES[3])
    registry.passes(101)
    given = []
    for number in range(12, 15):
        registry.do("node.join", "", {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "name": f"n{number}"})
        given.append(prefixes(registry)[f"{number:08x}-0000-4000-8000-000000000000"])
    assert given == ["fd12:0:0:1::/64", "fd12:0:0:2::/64", "fd12:0:0:3::/64"], "what was somebody's comes when there is nothing else"


def test_a_node_that_comes_back_in_time_has_the_same(registry: Registry) -> None:
    registry.do("underlay.init", "", {"prefix": SITE})
    registry.join(0)
    registry.join(1)
    registry.do("node.forget", NODES[0])
    registry.passes(10)
    registry.join(0)
    found = prefix(registry, 0)
    assert found is not None and (found.number, found.freed, found.until) == (0, 0.0, 0.0)
    registry.passes(10_000)
    assert prefix(registry, 0) == found


def reports(registry: Registry, number: int, *addresses: str) -> None:
    """Let a node say which addresses it has."""
    registry.local.sign_on(node(number), f"eeeeeeee-0000-4000-8000-00000000000{number}", 8e4)
    assert registry.report(node(number), about={"addresses": list(addresses)}).status == 200


def test_a_prefix_that_nodes_have_addresses_of_is_refused(registry: Registry) -> None:
    """Refuse a prefix of the site that nodes have addresses of in their own network, and take one beside it."""
    registry.join(0)
    reports(registry, 0, "192.0.2.1", "fd12:3456:789a::10", "fd12:3456:789b::1")
    refused = registry.refused("underlay.init", "", {"prefix": SITE})
    assert (refused["kind"], refused["field"]) == ("invalid", "prefix") and "node0 has fd12:3456:789a::10" in refused["detail"]
    registry.do("underlay.init", "", {"prefix": "fd12:3456:789c::/48"})
    registry.do("underlay.init", "", {"prefix": "fd12:3456:789c::/48"})


def test_a_prefix_of_a_nodes_own_network_is_given_to_none(registry: Registry) -> None:
    """Give no node a /64 of another node's own network. What one node reports keeps only a few from others, and its own /64 never."""
    registry.do("underlay.init", "", {"prefix": "fd12::/60"})
    registry.join(0)
    reports(registry, 0, "fd12::1", "fd12::5", "fd12:0:0:1::10", *(f"fd12:0:0:{number:x}::10" for number in range(3, 16)))
    for number in (1, 2, 3):
        registry.join(number)
    assert list(prefixes(registry).values()) == ["fd12::/64", "fd12:0:0:2::/64", "fd12:0:0:a::/64", "fd12:0:0:b::/64"]


def test_where_all_that_is_left_is_a_network_nodes_wait(registry: Registry) -> None:
    """Let a node wait without a commit while only networks of nodes are left, and give it a /64 when such a network is no more."""
    registry.do("underlay.init", "", {"prefix": "fd12::/60"})
    registry.join(0)
    reports(registry, 0, *(f"fd12:0:0:{number:x}::10" for number in range(1, 9)))
    for number in range(8):
        registry.do("node.join", "", {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "name": f"n{number}"})
    before = registry.local.view.ledger.number
    for _ in range(2):
        registry.passes(1)
    assert len(prefixes(registry)) == 8 and registry.local.view.ledger.number == before
    reports(registry, 0)
    registry.passes(1)
    assert len(prefixes(registry)) == 9


def test_what_a_service_that_knows_no_underlay_leaves(registry: Registry) -> None:
    registry.do("underlay.init", "", {"prefix": SITE})
    registry.join(0)
    registry.store.commit((), (Delete(keys.node(NODES[0])), Put(keys.node(NODES[1]), dump(Node(NODES[1], "node1")))))
    registry.passes(1)
    gone, come = prefix(registry, 0), prefix(registry, 1)
    assert gone is not None and gone.freed and come is not None and come.number == 1
    registry.passes(4000)
    assert prefix(registry, 0) is None


def test_a_prefix_that_nobody_can_read_gives_no_other(registry: Registry) -> None:
    """It may be of any number: nodes join without one, and the leader does not ask for it again and again."""
    registry.do("underlay.init", "", {"prefix": SITE})
    registry.join(0)
    registry.store.commit((), (Put(keys.prefix(NODES[0]), b"{"),))
    registry.local.catch_up()
    registry.join(1)
    before = registry.local.view.ledger.number
    for _ in range(2):
        registry.passes(1)
    assert prefix(registry, 1) is None and registry.local.view.ledger.number == before
    why = healing.withheld(registry.local.view)
    assert f"at {keys.prefix(NODES[0])} cannot be read" in why


def test_a_prefix_that_nobody_can_read_keeps_no_other_one_from_its_quarantine_or_its_node(registry: Registry) -> None:
    """Settle what can be read: a forgotten node's /64 is freed, and who has joined again has his own, whoever else can be given none."""
    registry.do("underlay.init", "", {"prefix": SITE})
    for number in (0, 1, 2):
        registry.join(number)
    second = prefix(registry, 2)
    assert second is not None
    away = Put(keys.prefix(NODES[2]), dump(second._replace(freed=registry.time, until=registry.time + 3600)))
    first = Put(keys.node("00000000-0000-4000-8000-000000000000"), dump(Node("00000000-0000-4000-8000-000000000000", "first")))
    registry.store.commit((), (Put(keys.prefix(NODES[0]), b"{"), Delete(keys.node(NODES[1])), away, first))
    registry.passes(1)
    gone, back = prefix(registry, 1), prefix(registry, 2)
    assert gone is not None and gone.freed and back is not None and not back.freed


def test_who_may(registry: Registry) -> None:
    registry.join(0)
    assert registry.refused("underlay.init", "", {"prefix": SITE}, node(0))["kind"] == "forbidden"
    assert registry.refused("underlay.settle")["kind"] == "forbidden"
