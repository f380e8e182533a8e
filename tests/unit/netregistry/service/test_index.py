"""Find what an administrator asks for, however it is written, and also where it is what a network gives to nobody."""

from __future__ import annotations

import pytest

from netregistry.service.index import Index
from netregistry.stores.base import Batch
from tests.support.registry import Registry


def found(registry: Registry, part: str) -> set[tuple[str, str]]:
    """Names and words of the NICs and networks that have the part."""
    index = Index(registry.local.view)
    return {(registry.local.view.get(key).name, word) for kind, key, word in index.find(part) if kind in ("nics", "networks")}


@pytest.mark.parametrize("part", ["2001:0db8:0000::1", "2001:DB8::1", "2001:db8:0:0:0:0:0:1", "2001:db8::1"])
def test_an_address_that_is_written_otherwise(registry: Registry, part: str) -> None:
    blue = registry.network("blue", "192.0.2.0/24", subnet6="2001:db8::/64")
    registry.nic(network=blue, name="one", ip="2001:db8::1")
    assert ("one", "2001:db8::1") in found(registry, part)


@pytest.mark.parametrize(
    "part", ["aa-00-5e-01-02-03", "AA:00:5E:01:02:03", "aa00.5e01.0203", "AA005E010203", "aa-00-5e", "aa00.5e01", "5e-01"]
)
def test_a_mac_that_is_written_otherwise(registry: Registry, part: str) -> None:
    registry.nic(name="one", mac="aa:00:5e:01:02:03")
    registry.nic(name="other", mac="aa:00:5f:01:02:03")
    assert found(registry, part) == {("one", "aa:00:5e:01:02:03")}


@pytest.mark.parametrize("part", ["aa-00-5e-0", "aa.00.5e", "00:5e-01", "a1b2c3d4e5", "0x5e", "::1::", "2001:db8::1/200", "", "1.2.3.4.5"])
def test_what_is_no_address_is_a_part_of_a_name(registry: Registry, part: str) -> None:
    registry.nic(name=f"host {part} here", mac="aa:00:5e:01:02:03")
    assert {name for name, _word in found(registry, part)} == {f"host {part} here"}


def test_what_a_network_gives_to_nobody(registry: Registry) -> None:
    reserved = [{"first": "192.0.2.200", "last": "192.0.2.219"}, {"first": "192.0.2.222", "last": "192.0.2.222"}]
    registry.network("blue", "192.0.2.0/24", subnet6="2001:db8::/64", gateway="192.0.2.254", reserved=reserved)
    registry.network("other", "198.51.100.0/24")
    index = Index(registry.local.view)
    assert found(registry, "192.0.2.205") == {("blue", "192.0.2.200-192.0.2.219, reserved")}
    assert found(registry, "192.0.2.222") == {("blue", "192.0.2.222, reserved")}
    assert found(registry, "192.0.2.255") == {("blue", "192.0.2.255, the network's own")}
    assert found(registry, "192.0.2.254") == {("blue", "192.0.2.254")}
    assert found(registry, "192.0.2.0") == {("blue", "192.0.2.0/24")}
    assert found(registry, "2001:db8:0::") == {("blue", "2001:db8::/64")}
    assert found(registry, "192.0.2.220") == found(registry, "192.0.2.221") == {("blue", "192.0.2.0/24")}, "what is free"
    assert list(index.find("192.0.2.205")) == list(Index(registry.local.view).find("192.0.2.205"))


def test_what_is_free_is_in_a_subnet(registry: Registry) -> None:
    blue = registry.network("blue", "192.0.2.0/24", subnet6="2001:db8::/64")
    registry.network("wide", "192.0.0.0/16")
    registry.network("other", "198.51.100.0/24", subnet6="2001:db8:1::/64")
    both = {("blue", "192.0.2.0/24"), ("wide", "192.0.0.0/16")}
    assert found(registry, "192.0.2.77") == found(registry, "192.0.2.64/27") == found(registry, "192.0.2.65/27") == both
    assert found(registry, "192.0.3.77") == {("wide", "192.0.0.0/16")}
    assert found(registry, "2001:DB8:0::77") == {("blue", "2001:db8::/64")} and found(registry, "2001:db8:1:0::/80") == {
        ("other", "2001:db8:1::/64")
    }
    for part in ("203.0.113.1", "2001:db8:2::1", "192.0.0.0/8", "0.0.0.0/0", "nowhere", "192.0.2.300"):
        assert found(registry, part) == set(), part
    registry.nic(network=blue, name="one", ip="192.0.2.77")
    assert found(registry, "192.0.2.77") == {("one", "192.0.2.77")}, "what has it, and nothing else"


def test_a_cluster_is_that_of_its_networks_and_nodes(registry: Registry) -> None:
    registry.do("network.add", "", {"name": "blue", "cluster": "prod-east", "subnet": "192.0.2.0/24"})
    registry.join(0, "prod-west")
    registry.nic(name="one", cluster="prod-east")
    index = Index(registry.local.view)
    assert [(kind, word) for kind, _key, word in index.find("prod")] == [("networks", "prod-east"), ("nodes", "prod-west")]
    assert [kind for kind, _key, _word in index.find("PROD-EAST")] == ["networks"]


def test_an_index_hears_of_what_is_reserved() -> None:
    heard: list[Index] = []

    def hear(batch: Batch | None) -> None:
        for index in heard:
            index.hear(registry.local.view, batch)

    registry = Registry(heard=hear)
    blue = registry.network("blue", "192.0.2.0/24")
    heard.append(Index(registry.local.view))
    registry.do("network.set", blue, {"reserved": [{"first": "192.0.2.200", "last": "192.0.2.219"}]})
    assert [word for _kind, _key, word in heard[0].find("192.0.2.205")] == ["192.0.2.200-192.0.2.219, reserved"]
    registry.do("network.set", blue, {"subnet": "198.51.100.0/24", "reserved": []})
    assert list(heard[0].find("192.0.2.205")) == [] and [word for _kind, _key, word in heard[0].find("198.51.100.7")] == ["198.51.100.0/24"]
    registry.do("network.delete", blue)
    assert list(heard[0].find("198.51.100.7")) == []
