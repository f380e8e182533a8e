"""Configurations are imported into the real core: what is wanted is what Ganeti says, whatever has happened before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netregistry.client import Problem
from netregistry.importer.importer import ABSENT, COMPARED, Outcome
from netregistry.model.importing import Seen
from netregistry.stores.base import Batch
from netregistry.stores.sqlite import SqliteStore
from netregistry.stream import Line, Stream
from runtime.errors import NetcommonError, TryAgain
from tests.support.ganeti_configuration import CLUSTER, CLUSTER_UUID, MASTERS, NETWORKS, NICS, Cluster
from tests.support.importing import IMPORTER, Node, checked, differences, of_others, stored
from tests.support.registry import NODES, OPERATOR, Registry, node
from tests.support.registry_checker import Checker

FIRST, SECOND = MASTERS


@pytest.fixture
def importing(registry: Registry) -> Node:
    return Node(registry)


def small() -> Cluster:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", gateway="192.0.2.1")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    cluster.nic(NICS[1])
    return cluster


@pytest.mark.parametrize(("name", "value"), [("mode", "openvswitch"), ("link", "br7"), ("vlan", ".10")])
def test_what_neither_nic_nor_cluster_says_any_more_is_gone(registry: Registry, importing: Node, name: str, value: str) -> None:
    """A cluster's default need not have each: one that was made before there were VLANs has none."""
    cluster = small()
    del cluster.document["cluster"]["nicparams"]["default"][name]
    nic = cluster.instance("web1.example.com")["nics"][0]
    nic["nicparams"] = {name: value}
    cluster.changed()
    importing.read(cluster)
    assert stored(registry, "nics")[NICS[0]][name] == value
    nic["nicparams"] = {}
    cluster.changed()
    importing.read(cluster)
    assert name not in stored(registry, "nics")[NICS[0]]
    assert importing.read(cluster).changed == 0


def test_first_import(registry: Registry, importing: Node) -> None:
    cluster = small()
    outcome = importing.read(cluster)
    assert (outcome.made, outcome.changed, outcome.deleted, dict(outcome.refused)) == (3, 0, 0, {})
    assert differences(registry, cluster) == []
    found = stored(registry, "imports")[CLUSTER]
    assert (found["uuid"], found["node"], found["serial"]) == (CLUSTER_UUID, FIRST, cluster.document["serial_no"])
    assert stored(registry, "addresses")[f"{NETWORKS[0]}/192.0.2.9"]["holder"] == NICS[0]


def test_the_same_again_changes_nothing(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    before = registry.everything()
    cluster.changed()
    importing.read(cluster)
    assert Node(registry).read(cluster) == Outcome()
    assert registry.everything() == before


def test_it_asks_only_for_what_is_another(registry: Registry, importing: Node) -> None:
    """And does not list the registry for it."""
    cluster = small()
    importing.read(cluster)
    listed = importing.asked.listed
    cluster.instance("web1.example.com")["tags"] = ["netcommon:*:isolated"]
    cluster.changed()
    assert importing.read(cluster).changed == 2 and importing.asked.listed == listed
    assert differences(registry, cluster) == []


def test_what_is_missing_goes_by_a_second_reading(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    cluster.remove(NICS[0])
    cluster.remove(NETWORKS[0])
    assert importing.read(cluster, 1.0).absent == 2 and importing.importer.due == importing.time + ABSENT
    assert importing.read(cluster, ABSENT - 0.001).deleted == 0
    assert importing.read(cluster, 0.001).deleted == 2 and importing.importer.due == float("inf")
    assert differences(registry, cluster) == []
    assert stored(registry, "addresses")[f"{NETWORKS[0]}/192.0.2.9"].get("holder", "") == ""


def test_what_the_registry_does_not_delete_is_nothing_to_wait_for(registry: Registry, importing: Node) -> None:
    """A network in which an operator has a NIC: it is asked for with each reading, and no reason for one."""
    cluster = small()
    importing.read(cluster)
    registry.do("nic.add", "", {"uuid": NICS[8], "network": NETWORKS[0], "cluster": CLUSTER})
    cluster.remove(NICS[0])
    cluster.remove(NETWORKS[0])
    assert importing.read(cluster).absent == 2
    outcome = importing.read(cluster, ABSENT)
    assert (outcome.deleted, set(outcome.refused), outcome.absent) == (1, {NETWORKS[0]}, 0) and importing.importer.due == float("inf")
    cluster.remove(NICS[1])
    outcome = importing.read(cluster, 60.0)
    assert (set(outcome.refused), outcome.absent) == ({NETWORKS[0]}, 1) and importing.importer.due == importing.time + ABSENT
    registry.do("nic.delete", NICS[8], None)
    outcome = importing.read(cluster, ABSENT)
    assert (outcome.deleted, dict(outcome.refused), importing.importer.due) == (2, {}, float("inf"))


def test_what_was_missing_for_a_moment_stays(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    cluster.remove(NICS[1])
    importing.read(cluster)
    cluster.nic(NICS[1])
    importing.read(cluster, ABSENT - 1)
    cluster.remove(NICS[1])
    assert importing.read(cluster, 2.0).deleted == 0
    assert importing.read(cluster, ABSENT).deleted == 1


def test_a_restarted_importer_counts_anew(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    cluster.remove(NICS[1])
    importing.read(cluster)
    other = Node(registry)
    assert other.read(cluster, 100.0).deleted == 0 and other.read(cluster, ABSENT).deleted == 1


def test_what_cannot_be_read_is_not_missing(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    cluster.instance("web1.example.com")["nics"][1]["mac"] = "01:00:00:00:00:01"
    cluster.changed()
    importing.read(cluster)
    assert importing.read(cluster, 100.0).deleted == 0
    assert stored(registry, "nics")[NICS[1]]["mac"] == "aa:00:00:00:00:01"


def test_what_somebody_else_holds_is_a_conflict(registry: Registry, importing: Node) -> None:
    """It is imported: it is there whether it may be or not."""
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue")
    importing.read(cluster)
    registry.do("nic.add", "", {"uuid": NICS[7], "network": NETWORKS[0], "ip": "192.0.2.9", "mac": "aa:00:00:00:00:01"})
    cluster.nic(NICS[1], network=NETWORKS[0], ip="192.0.2.9")
    outcome = importing.read(cluster)
    assert outcome.made == 1 and not outcome.refused and differences(registry, cluster) == []
    for key in (f"addresses/{NETWORKS[0]}/192.0.2.9", f"macs/{NETWORKS[0]}/aa:00:00:00:00:01"):
        claim = registry.claim(key)
        assert claim is not None and (claim.holder, claim.contenders) == (NICS[7], (NICS[1],))


def test_a_uuid_that_is_somebody_elses_is_refused_and_nothing_else_is(registry: Registry, importing: Node) -> None:
    registry.do("nic.add", "", {"uuid": NICS[1], "cluster": "other.example.com"})
    outcome = importing.read(small())
    assert (outcome.made, set(outcome.refused)) == (2, {NICS[1]}) and "there is a NIC" in outcome.refused[NICS[1]]
    assert stored(registry, "nics")[NICS[1]]["cluster"] == "other.example.com"


def test_what_an_operator_says_of_it_stays(registry: Registry, importing: Node) -> None:
    cluster = small()
    del cluster.document["networks"][NETWORKS[0]]["gateway"]
    importing.read(cluster)
    registry.do("network.set", NETWORKS[0], {"gateway": "192.0.2.3", "mtu": 1400, "subnet6": "2001:db8::/64"})
    registry.do("nic.set", NICS[0], {"options": [{"name": "isolated", "value": "yes"}], "allocate": ["ipv6"]})
    cluster.instance("web1.example.com")["tags"] = ["a"]
    cluster.document["networks"][NETWORKS[0]]["tags"] = ["b"]
    cluster.changed()
    importing.read(cluster, COMPARED)
    network, nic = stored(registry, "networks")[NETWORKS[0]], stored(registry, "nics")[NICS[0]]
    assert (network["gateway"], network["mtu"], network["subnet6"]) == ("192.0.2.3", 1400, "2001:db8::/64")
    assert nic["options"] == [{"name": "isolated", "value": "yes"}] and len(nic["addresses"]) == 1
    # as soon as Ganeti says it, it is Ganeti's; and what Ganeti says no more is nobody's
    cluster.document["networks"][NETWORKS[0]]["gateway"] = "192.0.2.1"
    cluster.changed()
    importing.read(cluster)
    assert stored(registry, "networks")[NETWORKS[0]]["gateway"] == "192.0.2.1"
    assert registry.refused("network.set", NETWORKS[0], {"gateway": "192.0.2.3"})["kind"] == "forbidden"
    del cluster.document["networks"][NETWORKS[0]]["gateway"]
    cluster.changed()
    importing.read(cluster)
    assert "gateway" not in stored(registry, "networks")[NETWORKS[0]]
    registry.do("network.set", NETWORKS[0], {"gateway": "192.0.2.3"})


def test_what_the_pool_reserves_is_not_given_out(registry: Registry, importing: Node) -> None:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", "192.0.2.0/29", ext_reservations="11110001")
    cluster.nic(NICS[0], network=NETWORKS[0])
    importing.read(cluster)
    for address in ("192.0.2.4", "192.0.2.5", "192.0.2.6"):
        assert registry.do("nic.set", NICS[0], {"allocate": ["ipv4"]})["addresses"][-1] == address
    said = registry.refused("nic.set", NICS[0], {"allocate": ["ipv4"]})
    assert (said["kind"], said["size"], said["held"]) == ("full", 3, 3)
    assert registry.refused("nic.add", "", {"network": NETWORKS[0], "cluster": CLUSTER, "ip": "192.0.2.2"})["kind"] == "taken"
    assert registry.refused("network.set", NETWORKS[0], {"reserved": []})["kind"] == "forbidden"


def test_a_nic_in_another_network_leaves_its_further_addresses_behind(registry: Registry, importing: Node) -> None:
    """Else the network where it was gives them to somebody else, and two have them, each in a scope of its own."""
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", network6="2001:db8::/64")
    cluster.network(NETWORKS[1], "red", "198.51.100.0/24")
    cluster.network(NETWORKS[2], "wide", "192.0.0.0/16")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    importing.read(cluster)
    registry.do("nic.set", NICS[0], {"allocate": ["ipv4", "ipv6"], "options": [{"name": "isolated", "value": "yes"}]})
    given = registry.wanted(NICS[0]).addresses
    assert len(given) == 2
    nic = cluster.instance("web1.example.com")["nics"][0]

    def goes(network: str, ip: str) -> tuple[str, ...]:
        nic.update(network=network, ip=ip)
        cluster.changed()
        assert not importing.read(cluster).refused and differences(registry, cluster) == []
        return registry.wanted(NICS[0]).addresses

    assert goes(NETWORKS[2], "192.0.2.9") == given[:1], "what the other network holds it keeps"
    assert goes(NETWORKS[0], "192.0.2.9") == given[:1]
    assert goes(NETWORKS[1], "198.51.100.9") == () and registry.wanted(NICS[0]).options != ()
    claim = registry.claim(f"addresses/{NETWORKS[0]}/{given[0]}")
    assert claim is not None and claim.standing == "quarantined" and claim.last == NICS[0]
    assert goes(NETWORKS[0], "192.0.2.9") == ()
    registry.do("nic.set", NICS[0], {"allocate": ["ipv4"]})
    assert goes("", "") == (), "one without a network has none of a network"
    registry.do("nic.set", NICS[0], {"addresses": ["10.0.0.7"]})
    assert goes("", "10.0.0.9") == ("10.0.0.7",) and goes(NETWORKS[0], "192.0.2.9") == ()


@pytest.mark.parametrize("there", ["gateway", "a device's", "another's", "the broadcast address", "in quarantine", "reported"])
def test_a_further_address_goes_along_only_where_it_would_be_given(there: str) -> None:
    """Networks of one subnet are two: what is free in the one is somebody's in the other."""
    registry = checked()
    importing = Node(registry)
    address = "192.0.2.127" if there == "the broadcast address" else "192.0.2.20"
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", gateway="192.0.2.1")
    red: dict[str, str] = {"gateway": address} if there == "gateway" else {}
    if there == "a device's":
        red["ext_reservations"] = f"1{'0' * 19}1{'0' * 106}1"
    cluster.network(NETWORKS[1], "red", "192.0.2.0/25", **red)
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    cluster.nic(NICS[1], network=NETWORKS[1], ip=address if there == "another's" else "192.0.2.30", instance="other.example.com")
    importing.read(cluster)
    registry.do("nic.set", NICS[0], {"addresses": [address, "192.0.2.21"]})
    if there == "in quarantine":
        registry.do("nic.delete", registry.nic(network=NETWORKS[1], ip=address).uuid)
    if there == "reported":
        registry.join(0, CLUSTER)
        registry.report(node(0), {"nic": NICS[1], "state": "running", "ip": address})
    before = registry.claim(f"addresses/{NETWORKS[1]}/{address}")
    cluster.instance("web1.example.com")["nics"][0].update(network=NETWORKS[1], ip="192.0.2.10")
    cluster.changed()
    assert not importing.read(cluster).refused and differences(registry, cluster) == []
    assert registry.wanted(NICS[0]).addresses == ("192.0.2.21",), "what nobody has there it keeps"
    assert registry.claim(f"addresses/{NETWORKS[1]}/{address}") == before
    left = registry.claim(f"addresses/{NETWORKS[0]}/{address}")
    assert left is not None and left.standing == "quarantined"


def test_ranges_of_a_ganeti_network_are_what_its_pool_reserves_for_the_registry(registry: Registry, importing: Node) -> None:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", "192.0.2.0/29", ext_reservations="10011101")
    cluster.nic(NICS[0], network=NETWORKS[0])
    importing.read(cluster)
    registry.do("network.set", NETWORKS[0], {"ranges": [{"first": "192.0.2.4", "last": "192.0.2.5"}]})
    assert registry.do("nic.set", NICS[0], {"allocate": ["ipv4"]})["addresses"] == ["192.0.2.4"]
    assert registry.nic(network=NETWORKS[0], ip="192.0.2.5").ip == "192.0.2.5"
    said = registry.refused("nic.set", NICS[0], {"allocate": ["ipv4"]})
    assert (said["kind"], said["size"], said["held"]) == ("full", 2, 2), "what Ganeti's pool gives out is not given out here"
    assert registry.refused("nic.add", "", {"network": NETWORKS[0], "ip": "192.0.2.3"})["kind"] == "taken"
    assert registry.local.view.network(NETWORKS[0]).reserved[0].last == "192.0.2.5"  # type: ignore[union-attr]
    # a network of the registry's own has but one who reserves: its operator
    green = registry.network(
        "green", ranges=[{"first": "192.0.2.4", "last": "192.0.2.5"}], reserved=[{"first": "192.0.2.4", "last": "192.0.2.4"}]
    )
    assert registry.nic(network=green, allocate=["ipv4"]).ip == "192.0.2.5"


def reserves(*numbers: int) -> str:
    """Give what Ganeti keeps of a network of 256 addresses in which these are reserved (gnt-network modify --add-reserved-ips)."""
    return "".join("1" if number in (0, 255, *numbers) else "0" for number in range(256))


@pytest.mark.parametrize(
    "ranges", [[(2, 254)], [(2, 9)], [(2, 5), (10, 20)], [(5, 6)]], ids=["but for an end", "a part", "one whole, one not", "its end"]
)
def test_ranges_that_are_reserved_in_part_give_out_no_devices_address(
    registry: Registry, importing: Node, ranges: list[tuple[int, int]]
) -> None:
    """Such ranges may have been set before any could be shared with Ganeti: what is reserved of them is a router's, a printer's."""
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", gateway="192.0.2.1", ext_reservations=reserves(2, 3, 4, 5))
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.100")
    importing.read(cluster)
    said = [{"first": f"192.0.2.{first}", "last": f"192.0.2.{last}"} for first, last in ranges]
    registry.do("network.set", NETWORKS[0], {"ranges": said})
    free = [number for first, last in ranges for number in range(first, last + 1) if number > 5]
    assert registry.nic(network=NETWORKS[0], allocate=["ipv4"]).ip == f"192.0.2.{free[0]}"
    network = registry.local.view.network(NETWORKS[0])
    assert network is not None and sum(last - first + 1 for first, last in network.bounds(4)) == len(free)
    for number in range(2, 6):
        device = {"network": NETWORKS[0], "cluster": CLUSTER, "ip": f"192.0.2.{number}"}
        assert registry.refused("nic.add", "", device)["kind"] == "taken"
    # as soon as all of it is reserved it is for the registry
    cluster.document["networks"][NETWORKS[0]]["ext_reservations"] = reserves(2, 3, 4, 5, *free)
    cluster.changed()
    importing.read(cluster)
    assert registry.nic(network=NETWORKS[0], ip=f"192.0.2.{ranges[0][0]}").ip == f"192.0.2.{ranges[0][0]}"


@pytest.mark.parametrize("guests", [(), (203,), (200, 209)])
def test_a_block_that_is_reserved_for_the_registry_may_have_guests_and_a_gateway(
    registry: Registry, importing: Node, guests: tuple[int, ...]
) -> None:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", gateway="192.0.2.207", ext_reservations=reserves(2, *range(200, 210)))
    for place, number in enumerate(guests):
        cluster.nic(NICS[place], mac=f"aa:00:00:00:01:{number:02x}", network=NETWORKS[0], ip=f"192.0.2.{number}")
    importing.read(cluster)
    registry.do("network.set", NETWORKS[0], {"ranges": [{"first": "192.0.2.200", "last": "192.0.2.209"}]})
    given = [registry.nic(network=NETWORKS[0], allocate=["ipv4"]).ip for _ in range(9 - len(guests))]
    assert given == [f"192.0.2.{number}" for number in range(200, 210) if number not in (207, *guests)]
    assert registry.refused("nic.add", "", {"network": NETWORKS[0], "allocate": ["ipv4"]})["kind"] == "full"
    assert registry.refused("nic.add", "", {"network": NETWORKS[0], "ip": "192.0.2.2"})["kind"] == "taken"


def test_what_an_operator_says_of_a_network_stops_nothing_else_of_it(registry: Registry, importing: Node) -> None:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", network6="2001:db8:1::/64", gateway6="2001:db8:1::1")
    importing.read(cluster)
    registry.do("network.set", NETWORKS[0], {"ranges": [{"first": "2001:db8:1::100", "last": "2001:db8:1::1ff"}]})
    said = cluster.document["networks"][NETWORKS[0]]
    reserved = said["ext_reservations"]
    said.update(network6="2001:db8:2::/64", gateway6="2001:db8:2::1", tags=["a"], ext_reservations=f"{reserved[:10]}1{reserved[11:]}")
    cluster.changed()
    outcome = importing.read(cluster)
    assert set(outcome.refused) == {NETWORKS[0]} and outcome.refused[NETWORKS[0]].startswith("network blue: ranges[0]")
    there = stored(registry, "networks")[NETWORKS[0]]
    assert there["tags"] == ["a"] and there["reserved"] == [{"first": "192.0.2.10", "last": "192.0.2.10"}]
    assert (there["subnet6"], there["gateway6"]) == ("2001:db8:1::/64", "2001:db8:1::1"), "these go together, or not at all"
    registry.do("network.set", NETWORKS[0], {"ranges": []})
    assert not importing.read(cluster).refused
    there = stored(registry, "networks")[NETWORKS[0]]
    assert (there["subnet6"], there["gateway6"]) == ("2001:db8:2::/64", "2001:db8:2::1")


def test_a_gateway_that_is_in_no_subnet_stops_nothing_else(registry: Registry, importing: Node) -> None:
    """Ganeti 3.0.2 takes a gateway6 without a network6, and keeps it when that is taken away."""
    cluster = small()
    cluster.network(NETWORKS[1], "red", "198.51.100.0/24", network6="2001:db8:1::/64", gateway6="2001:db8:1::1")
    cluster.document["networks"][NETWORKS[0]]["gateway6"] = "fe80::1"
    outcome = importing.read(cluster)
    assert outcome.refused == {NETWORKS[0]: "network blue: gateway6 fe80::1 is in no subnet6 of it, and left out"}
    assert set(stored(registry, "nics")) == {NICS[0], NICS[1]} and "gateway6" not in stored(registry, "networks")[NETWORKS[0]]
    cluster.document["networks"][NETWORKS[1]].update(network6=None, tags=["a"])
    cluster.changed()
    listed = importing.asked.listed
    assert set(importing.read(cluster).refused) == {NETWORKS[0], NETWORKS[1]} and importing.asked.listed == listed
    red = stored(registry, "networks")[NETWORKS[1]]
    assert red["tags"] == ["a"] and "subnet6" not in red and "gateway6" not in red
    # an IPv6 subnet of the operator's is one
    registry.do("network.set", NETWORKS[0], {"subnet6": "2001:db8::/64"})
    assert set(importing.read(cluster, COMPARED).refused) == {NETWORKS[1]}
    assert stored(registry, "networks")[NETWORKS[0]]["gateway6"] == "fe80::1"


def test_a_network_that_is_refused_has_its_nics(registry: Registry, importing: Node) -> None:
    """Whatever of it the registry does not take: it is there by its name, and what is refused is said."""
    cluster = small()
    cluster.document["networks"][NETWORKS[0]]["ext_reservations"] = "10" * 128
    registry_add = importing.asked.batch

    def batch(parts: list[dict[str, Any]]) -> tuple[list[Any], str]:
        if any((part["body"] or {}).get("reserved") for part in parts):
            raise Problem({"type": "urn:netcommon:problem/invalid", "status": 400, "detail": "reserved is not taken"})
        return registry_add(parts)

    importing.asked.batch = batch  # type: ignore[method-assign]
    outcome = importing.read(cluster)
    assert outcome.refused == {NETWORKS[0]: "network blue: reserved is not taken"}
    there = stored(registry, "networks")[NETWORKS[0]]
    assert (there["name"], there["subnet"], there["gateway"]) == ("blue", "192.0.2.0/24", "192.0.2.1")
    assert {each.get("network") for each in stored(registry, "nics").values()} == {NETWORKS[0], None}


def test_networks_that_swap_their_names(registry: Registry, importing: Node) -> None:
    cluster = small()
    cluster.network(NETWORKS[1], "red")
    importing.read(cluster)
    for uuid, name in ((NETWORKS[0], "red"), (NETWORKS[1], "blue")):
        cluster.document["networks"][uuid]["name"] = name
    cluster.changed()
    assert not importing.read(cluster).refused and differences(registry, cluster) == []


def test_a_network_that_was_made_anew_under_its_name(registry: Registry, importing: Node) -> None:
    """Its NICs are in the new one at once, and the old one goes when its time is over."""
    cluster = small()
    importing.read(cluster)
    cluster.remove(NETWORKS[0])
    cluster.network(NETWORKS[1], "blue")
    cluster.instance("web1.example.com")["nics"][0]["network"] = NETWORKS[1]
    cluster.changed()
    assert not importing.read(cluster).refused
    assert differences(registry, cluster) == [f"network {NETWORKS[0]} is left"]
    importing.read(cluster, ABSENT)
    assert differences(registry, cluster) == []


def test_a_large_cluster_is_imported_in_batches(registry: Registry, importing: Node) -> None:
    cluster = Cluster()
    for number in range(300):
        uuid = f"{number:08x}-4444-4444-8444-444444444444"
        cluster.nic(
            uuid,
            mac=f"aa:00:00:00:{number >> 8:02x}:{number & 255:02x}",
            instance=f"web{number}",
            ip=f"10.0.{number // 200}.{number % 200 + 1}",
        )
        cluster.instance(f"web{number}")["tags"] = [f"{name}{'x' * 100}" for name in range(60)]
    cluster.changed()
    assert importing.read(cluster).made == 300 and differences(registry, cluster) == []
    assert importing.asked.asked < 40


def test_what_was_forced_away_comes_back(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    registry.do("nic.delete", NICS[1], {"force": True})
    cluster.instance("web1.example.com")["tags"] = ["a"]
    cluster.changed()
    outcome = importing.read(cluster)
    assert not outcome.refused and differences(registry, cluster) == []
    registry.do("nic.delete", NICS[1], {"force": True})
    importing.read(cluster, COMPARED)
    assert differences(registry, cluster) == []


def test_a_tag_reaches_the_node_that_has_the_nic() -> None:
    """The instance's with the NIC, the network's with the network; both stand beside the operator's options, which are stronger."""
    batches: list[Batch | None] = []
    registry = Registry(heard=batches.append)
    importing, cluster = Node(registry), small()
    importing.read(cluster)
    registry.report(registry.join(0, CLUSTER), {"nic": NICS[0], "state": "running"})
    registry.do("nic.set", NICS[0], {"options": [{"name": "isolated", "value": "no"}]})
    stream, told = Stream(NODES[0]), list[Line]()
    list(stream.begin(registry.local.view))
    batches.clear()
    cluster.instance("web1.example.com")["tags"] = ["netcommon:*:isolated"]
    cluster.document["networks"][NETWORKS[0]]["tags"] = ["netcommon:rate_in:1mbit"]
    cluster.changed()
    importing.read(cluster)
    told += [line for batch in batches if batch is not None for line in stream.next(registry.local.view, batch)]
    assert [(line.event, line.what, line.uuid, line.value["tags"]) for line in told] == [
        ("change", "network", NETWORKS[0], ["netcommon:rate_in:1mbit"]),
        ("change", "nic", NICS[0], ["netcommon:*:isolated"]),
    ]
    assert told[1].value["options"] == [{"name": "isolated", "value": "no", "until": 0.0}]


# -- the fence


def test_an_older_configuration_changes_nothing(registry: Registry, importing: Node) -> None:
    old, cluster = small(), small()
    cluster.nic(NICS[2])
    importing.read(cluster)
    before = registry.everything()
    for other in (importing, Node(registry)):
        with pytest.raises(Problem, match="is older") as raised:
            other.read(old, 100.0)
        assert raised.value.kind == "fenced" and raised.value.status == 69
    assert registry.everything() == before


def test_another_cluster_of_the_name_changes_nothing(registry: Registry, importing: Node) -> None:
    cluster = small()
    importing.read(cluster)
    before = registry.everything()
    cluster.document["cluster"]["uuid"] = NICS[0]
    cluster.nic(NICS[2])
    with pytest.raises(Problem, match="another cluster of this name") as raised:
        Node(registry).read(cluster)
    assert raised.value.kind == "fenced" and registry.everything() == before


def test_a_master_that_was_cut_off_changes_nothing(registry: Registry) -> None:
    """However far it goes on counting; and its successor imports at once, though it has counted less."""
    one, two = Node(registry), Node(registry)
    cluster = small()
    one.read(cluster)
    two.sees(cluster)
    isolated = Cluster()
    isolated.document = json.loads(cluster.data)
    for _ in range(50):
        isolated.nic(NICS[3])
        one.read(isolated)
        isolated.remove(NICS[3])
    one.read(isolated)
    cluster.master(SECOND)
    two.read(cluster)
    two.read(cluster, ABSENT)
    assert differences(registry, cluster) == []
    before = registry.everything()
    isolated.nic(NICS[4])
    for other in (one, Node(registry)):
        with pytest.raises(Problem, match=f"{SECOND} imports it") as raised:
            other.read(isolated, 100.0)
        assert raised.value.kind == "fenced"
    assert registry.everything() == before


def test_masters_that_take_turns(registry: Registry) -> None:
    one, two = Node(registry), Node(registry)
    cluster = small()
    one.read(cluster)
    for _ in range(3):
        two.sees(cluster)
        cluster.master(SECOND)
        two.read(cluster)
        one.sees(cluster)
        cluster.master(FIRST)
        one.read(cluster)
    # one that has seen the other as the master only in an earlier turn has not become the master after it
    two.sees(cluster)
    cluster.master(SECOND)
    two.read(cluster)
    before = registry.everything()
    cluster.master(FIRST)
    cluster.nic(NICS[5])
    with pytest.raises(Problem):
        one.read(cluster)
    assert registry.everything() == before


def test_a_master_between_that_could_not_import(registry: Registry) -> None:
    """Its importer was stopped, or the registry away: the third one has seen the first too, and says so."""
    one, three, cluster = Node(registry), Node(registry), small()
    one.read(cluster)
    three.sees(cluster)
    cluster.master(SECOND)
    three.sees(cluster)
    cluster.document["nodes"][NICS[11]] = {"name": "node3.example.com", "uuid": NICS[11]}
    cluster.document["cluster"]["master_node"] = NICS[11]
    cluster.changed()
    three.read(cluster)
    assert stored(registry, "imports")[CLUSTER]["node"] == "node3.example.com"
    cluster.nic(NICS[4])
    three.read(cluster)
    assert differences(registry, cluster) == []


def test_a_master_again_begins_anew(registry: Registry) -> None:
    """Count who saw the first master only before one that could not import as none that has become the master after it."""
    one, two, cluster = Node(registry), Node(registry), small()
    one.read(cluster)
    two.sees(cluster)
    cluster.master(SECOND)
    one.sees(cluster)
    isolated = Cluster()
    isolated.document = json.loads(cluster.data)
    cluster.master(FIRST)
    one.read(cluster)
    before = registry.everything()
    one.read(cluster, 60.0)
    assert registry.everything() == before, "it is said once"
    isolated.nic(NICS[5])
    with pytest.raises(Problem, match=f"{FIRST} imports it"):
        two.read(isolated)
    assert registry.everything() == before


def test_an_operator_says_who_it_is(registry: Registry) -> None:
    cluster = small()
    Node(registry).read(cluster)
    cluster.master(SECOND)
    two = Node(registry)
    with pytest.raises(Problem):
        two.read(cluster)
    reading = {"uuid": CLUSTER_UUID, "master": MASTERS[SECOND], "node": SECOND, "serial": 1}
    registry.do("importer.hold", CLUSTER, reading)
    two.read(cluster)
    assert stored(registry, "imports")[CLUSTER]["node"] == SECOND


def test_who_may_hold(registry: Registry) -> None:
    reading = {"uuid": CLUSTER_UUID, "master": MASTERS[FIRST], "node": FIRST, "serial": 1}
    assert registry.refused("importer.hold", "other.example.com", reading, IMPORTER)["kind"] == "forbidden"
    assert registry.refused("importer.hold", CLUSTER, reading, node(0))["kind"] == "forbidden"
    assert registry.refused("importer.hold", "", reading)["kind"] == "invalid"
    assert registry.refused("importer.hold", CLUSTER, {**reading, "serial": -1})["kind"] == "invalid"
    assert registry.refused("importer.hold", CLUSTER, {**reading, "seen": {"master": "x", "serial": 1}})["kind"] == "invalid"


@pytest.mark.parametrize("changed", [True, False])
def test_a_registry_that_was_restored_gets_all_again(registry: Registry, changed: bool) -> None:
    """Another epoch is seen before anything is asked, also where the configuration is as it was, and then all is compared."""
    importing = Node(registry)
    cluster = small()
    importing.read(cluster)
    assert not importing.importer.outdated()
    other = Registry(SqliteStore.create(":memory:", "second", lambda: registry.time))
    other.do("importer.hold", CLUSTER, {"uuid": CLUSTER_UUID, "master": MASTERS[FIRST], "node": FIRST, "serial": 1})
    importing.asked.registry = other
    if changed:
        cluster.nic(NICS[6])
    importing.read(cluster)
    assert differences(other, cluster) == [] and not importing.importer.outdated()


# -- histories

names = st.sampled_from(["blue", "red", "green"])
changes = st.one_of(
    st.tuples(st.just("network"), st.sampled_from(NETWORKS), names, st.booleans()),
    st.tuples(st.just("nic"), st.sampled_from(NICS[:6]), st.sampled_from(["", *NETWORKS]), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("remove"), st.sampled_from([*NETWORKS, *NICS[:6]])),
    st.tuples(st.just("tags"), st.sampled_from(["web1.example.com", "web2.example.com"]), st.sets(st.sampled_from("abc"))),
    st.tuples(st.just("rename"), st.sampled_from(["web1.example.com", "web2.example.com"])),
    st.tuples(st.just("master")),
    st.tuples(st.just("options"), st.sampled_from(NICS[:6])),
    st.tuples(st.just("mtu"), st.sampled_from(NETWORKS)),
    st.tuples(st.just("foreign"), st.integers(0, 3), st.sampled_from(["", *NETWORKS]), st.integers(1, 4)),
    st.tuples(st.just("reserve"), st.sampled_from(NETWORKS), st.integers(1, 4)),
    st.tuples(st.just("force"), st.sampled_from(NICS[:6])),
    st.tuples(st.just("restart")),
)
steps = st.lists(st.tuples(st.lists(changes, max_size=4), st.sampled_from(["", "", "", "before", "after"])), min_size=1, max_size=8)


class World:
    """A cluster, its two nodes and a registry in which others have things too."""

    def __init__(self) -> None:
        self.checker = Checker(3600.0)
        self.registry = Registry(heard=self._heard)
        self.registry.join(0, CLUSTER)
        self.failing = ""
        self.nodes = {name: Node(self.registry, self._fails) for name in MASTERS}
        self.cluster, self.master = Cluster(), FIRST

    def _heard(self, batch: Any) -> None:
        if batch is not None:
            self.checker.commit(batch.revision, [(change.key, change.value) for change in batch.changes])

    def _fails(self) -> str:
        failing, self.failing = self.failing, ""
        return failing

    def change(self, what: str, *of: Any) -> None:
        document = self.cluster.document
        if what == "network":
            uuid, name, gateway = of
            if all(each["name"] != name for other, each in document["networks"].items() if other != uuid):
                self.cluster.network(uuid, name, **({"gateway": "192.0.2.1"} if gateway else {}))
        elif what == "nic":
            uuid, network, mac, ip = of
            if not network or network in document["networks"]:
                self.cluster.remove(uuid)
                more = {"network": network, "ip": f"192.0.2.{ip}" if ip else ""}
                self.cluster.nic(uuid, f"aa:00:00:00:00:0{mac}", f"web{mac % 2 + 1}.example.com", **more)
        elif what == "remove":
            used = [nic.get("network") for each in document["instances"].values() for nic in each["nics"]]
            if of[0] not in used:
                self.cluster.remove(of[0])
        elif what in ("tags", "rename"):
            for each in document["instances"].values():
                if each["name"] == of[0] and what == "tags":
                    each["tags"] = sorted(of[1], reverse=True)
                elif each["name"] == of[0] and all(other["name"] != f"x{of[0]}" for other in document["instances"].values()):
                    each["name"] = f"x{of[0]}"
            self.cluster.changed()
        elif what == "master":
            other = SECOND if self.master == FIRST else FIRST
            self.nodes[other].sees(self.cluster)
            self.cluster.master(other)
            self.master = other
        elif what == "restart":
            seen = self.nodes[self.master].seen
            self.nodes[self.master] = Node(self.registry, self._fails)
            self.nodes[self.master].seen = seen
        else:
            self.others(what, *of)

    def others(self, what: str, *of: Any) -> None:
        """What operators and nodes do; it may be refused."""
        if what == "options":
            self.registry.ask("nic.set", of[0], {"options": [{"name": "isolated", "value": "yes"}]})
        elif what == "mtu":
            self.registry.ask("network.set", of[0], {"mtu": 1400, "routes": [{"prefix": "10.0.0.0/8", "via": "192.0.2.3"}]})
        elif what == "foreign":
            number, network, last = of
            uuid = f"{number:08x}-9999-4999-8999-999999999999"
            body = {"uuid": uuid, "mac": f"aa:00:00:00:00:0{last}", "network": network, "ip": f"192.0.2.{last}"}
            body |= {"cluster": CLUSTER} if number % 2 else {"found": True}
            self.registry.ask("nic.add", "", body, OPERATOR if number % 2 else node(0))
        elif what == "reserve":
            self.registry.ask("claim.reserve", f"addresses/{of[0]}/192.0.2.{of[1]}", {"reason": "kept"})
        elif what == "force":
            self.registry.ask("nic.delete", of[0], {"force": True})


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_histories(history: list[tuple[list[tuple[Any, ...]], str]]) -> None:
    """After each import that was complete what is wanted is the configuration, and nothing of somebody else's is another than before.

    Each commit is judged by a checker that shares no code with the registry.
    """
    world = World()
    for todo, failing in history:
        for each in todo:
            world.change(*each)
        world.failing = failing
        importing = world.nodes[world.master]
        others = of_others(world.registry)
        try:
            importing.read(world.cluster)
        except TryAgain:
            importing.read(world.cluster)
        world.failing = ""
        importing.read(world.cluster, ABSENT)
        importing.read(world.cluster, COMPARED)
        outcome = importing.read(world.cluster, ABSENT)
        mine = {each for each in others if world.registry.local.view.get(each) is not None}
        left = {uuid for uuid, why in outcome.refused.items() if "NICs are in" in why}  # somebody else's are in a network that is gone
        assert set(outcome.refused) <= left, outcome
        assert [each for each in differences(world.registry, world.cluster) if not any(uuid in each for uuid in left)] == []
        after = of_others(world.registry)
        assert {key: after[key] for key in mine} == {key: others[key] for key in mine}
        ours = {key for key in others if key not in after}
        gone = {*(f"nics/{uuid}" for uuid in NICS), *(f"networks/{uuid}" for uuid in NETWORKS)}
        assert ours <= gone, "something of somebody else's is gone"
        fenced_off(world)


def fenced_off(world: World) -> None:
    """Let the node that is not the master try it, with a configuration that it has made up: nothing changes."""
    other = SECOND if world.master == FIRST else FIRST
    made = Cluster(world.cluster.document["serial_no"] + 1000)
    made.document["cluster"]["master_node"] = MASTERS[other]
    made.nic(NICS[9])
    before = world.registry.everything()
    alone = Node(world.registry)
    alone.seen = (Seen(MASTERS[world.master], 0),)
    for importing in (alone, Node(world.registry)):
        with pytest.raises(NetcommonError):
            importing.read(made)
    assert world.registry.everything() == before
