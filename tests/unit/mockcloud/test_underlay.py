"""An underlay on simulated nodes: the real agents and registry give each node its prefix, and a guest's endpoint comes to its node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mockcloud.node import MockNode
from netcommon.host.api.facts import AF_INET6, Address
from netcommon.host.api.requests import DeleteAddress
from tests.support import mock_nodes
from tests.support.mock_nodes import Cluster
from tests.support.node_underlay import marked
from tests.support.registry import NODES
from tests.support.storm import nics
from tests.unit.mockcloud.test_registry import joined

SITE = "fd12:3456:789a::/48"
COUNT = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = joined(tmp_path, count=COUNT)
    assert made.registry is not None
    made.scheduler.passes(20.0)
    made.registry.client().change("PUT", "underlay", {"prefix": SITE, "zone": "hosts.example.com", "ttl": 1, "minimum_age": 1})
    made.scheduler.passes(20.0)
    yield made
    made.close()


def there(node: MockNode) -> list[str]:
    """Give the addresses of the underlay that a node's kernel has."""
    return marked(node.host.view())


def own(number: int) -> str:
    return "fd12:3456:789a::1" if number == 0 else f"fd12:3456:789a:{number:x}::1"


def test_each_node_has_its_own_address(cluster: Cluster) -> None:
    assert [there(node) for node in cluster.nodes] == [[own(number)] for number in range(COUNT)]
    assert cluster.nodes[0].agent.status()["underlay"] == "fd12:3456:789a::/64, 1 of 1 addresses"


def test_what_was_deleted_by_hand_is_put_back(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    node.host.execute([DeleteAddress(Address(AF_INET6, own(1), 128, 1))], stop=True)
    assert there(node) == []
    cluster.scheduler.passes(2.0)
    assert there(node) == [own(1)]


def test_a_guests_endpoint_comes_to_its_node(cluster: Cluster) -> None:
    """By a tag of its NIC; and the registry has it confirmed."""
    assert cluster.registry is not None
    node, one = cluster.nodes[0], nics(7)[0]
    one = one._replace(tags=("netcommon:*:endpoints:console",), environment={**one.environment, "TAGS": "netcommon:*:endpoints:console"})
    mock_nodes.tap(node, one.interface)
    mock_nodes.up(node, one)
    cluster.scheduler.passes(700.0)
    (item,) = cluster.registry.client().get("endpoints").body["items"]
    assert [(each["node"], each["state"]) for each in item["placement"]["endpoints"]] == [(NODES[0], "there")]
    assert there(node) == [own(0), "fd12:3456:789a::1:0"]
