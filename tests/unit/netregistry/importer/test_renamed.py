"""A Ganeti cluster that was renamed (gnt-cluster rename keeps its UUID) is not imported under two names: all goes with its name."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model.history import Identity
from tests.support.ganeti_configuration import CLUSTER, CLUSTER_UUID, MASTERS, NETWORKS, NICS, Cluster
from tests.support.importing import Node, checked, differences, stored
from tests.support.registry import NODES, OPERATOR, Registry, node

NEW = "new.example.com"
RENAMED = Identity("importer", NEW, "unix")
FIRST = next(iter(MASTERS))
OPTIONS = [{"name": "isolated", "value": "yes"}]


def reading(cluster: Cluster) -> dict[str, Any]:
    return {"uuid": CLUSTER_UUID, "master": MASTERS[FIRST], "node": FIRST, "serial": cluster.document["serial_no"]}


def rename(registry: Registry, cluster: Cluster, name: str = NEW) -> int:
    """Say it as an operator until nothing is left; give how often."""
    left = float("inf")
    for count in range(1, 100):
        before, left = left, registry.do("importer.hold", name, reading(cluster)).get("left", 0)
        assert left < before
        if not left:
            return count
    raise AssertionError("it does not end")


def large() -> tuple[Registry, Cluster]:
    """Give a registry with a cluster of which one commit renames but a part."""
    registry, cluster = checked(), Cluster()
    cluster.network(NETWORKS[0], "blue", "10.0.0.0/16")
    for number in range(200):
        uuid, mac = f"{number:08x}-4444-4444-8444-444444444444", f"aa:00:00:00:00:{number:02x}"
        more = {"network": NETWORKS[0]} if number % 2 else {}
        cluster.nic(uuid, mac=mac, instance=f"web{number}", ip=f"10.0.0.{number}", **more)
        cluster.instance(f"web{number}")["tags"] = [f"{name:02}{'x' * 100}" for name in range(90)]
    cluster.changed()
    Node(registry).read(cluster)
    return registry, cluster


def test_all_goes_with_the_name() -> None:
    registry = checked()
    registry.join(0, CLUSTER)
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    cluster.nic(NICS[1], ip="10.0.0.9")
    cluster.nic(NICS[2], mac="aa:00:00:00:00:01", ip="10.0.0.9")
    Node(registry).read(cluster)
    registry.do("nic.set", NICS[0], {"options": OPTIONS, "primary": True, "addresses": ["192.0.2.77"]})
    registry.do("nic.set", NICS[1], {"reserved": True, "addresses": ["10.0.0.10"]})
    operators = registry.nic(cluster=CLUSTER, network=NETWORKS[0], ip="192.0.2.30", instance="printer", index=0).uuid
    registry.do("nic.add", "", {"uuid": NICS[7], "mac": "aa:00:00:00:00:77", "found": True}, node(0))
    freed = registry.nic(cluster=CLUSTER, ip="10.0.0.20")
    registry.do("nic.delete", freed.uuid)
    web = {"reason": "kept", "cluster": CLUSTER, "instance": "web1.example.com"}
    for key in (f"addresses/{CLUSTER}/10.0.0.30", f"addresses/{NETWORKS[0]}/192.0.2.31", f"addresses/{CLUSTER}/10.0.0.10"):
        registry.do("claim.reserve", key, web)
    registry.report(node(0), {"nic": NICS[1], "state": "running", "mac": "aa:00:00:00:00:01", "ip": "10.0.0.9"})
    before = {kind: stored(registry, kind) for kind in ("nics", "networks", "nodes", "addresses")}
    cluster.changed()

    said = registry.refused("importer.hold", NEW, reading(cluster), RENAMED)
    assert said["kind"] == "fenced" and CLUSTER in said["detail"] and said["command"].endswith("--take-over")
    rename(registry, cluster)

    assert set(stored(registry, "imports")) == {NEW}
    for kind in ("nics", "networks", "nodes"):
        for uuid, each in stored(registry, kind).items():
            was = before[kind][uuid]
            master = f"ganeti:{NEW}" if was.get("master") == f"ganeti:{CLUSTER}" else was.get("master")
            assert each == {**was, "cluster": NEW, **({"master": master} if master else {})}
    nics = stored(registry, "nics")
    assert {nics[uuid].get("master") for uuid in NICS[:3]} == {f"ganeti:{NEW}"}
    assert nics[NICS[7]]["master"] == f"node:{NODES[0]}" and nics[operators].get("master", "registry") == "registry"
    claims = stored(registry, "addresses")
    assert [key for key in (*claims, *stored(registry, "macs")) if CLUSTER in key] == []
    assert (claims[f"{NEW}/10.0.0.9"]["holder"], claims[f"{NEW}/10.0.0.9"]["contenders"]) == (NICS[1], [NICS[2]])
    assert claims[f"{NEW}/10.0.0.10"] == {**before["addresses"][f"{CLUSTER}/10.0.0.10"], "cluster": NEW}
    assert claims[f"{NEW}/10.0.0.20"] == before["addresses"][f"{CLUSTER}/10.0.0.20"], "its quarantine goes on"
    assert claims[f"{NEW}/10.0.0.30"] == {"reserved": "kept", "cluster": NEW, "instance": "web1.example.com"}
    assert claims[f"{NETWORKS[0]}/192.0.2.31"]["cluster"] == NEW
    # the importer goes on by the new name, and what has the old one is fenced
    registry.do("importer.hold", NEW, reading(cluster), RENAMED)
    registry.do("nic.set", NICS[0], {"tags": ["a"]}, RENAMED)
    assert registry.refused("importer.hold", CLUSTER, reading(cluster), Identity("importer", CLUSTER, "unix"))["kind"] == "fenced"


def test_an_instance_that_is_there_by_both_names_has_one_primary_nic() -> None:
    """Some of its NICs were given the new name already, as a node of the cluster that joins again gives it to those that it defines."""
    registry, cluster = checked(), Cluster()
    cluster.nic(NICS[0], ip="192.0.2.9")
    Node(registry).read(cluster)
    registry.do("nic.set", NICS[0], {"primary": True})
    instance = stored(registry, "nics")[NICS[0]]["instance"]
    other = registry.nic(cluster=NEW, instance=instance, index=5, primary=True).uuid
    rename(registry, cluster)
    primary = {uuid: nic.get("primary", False) for uuid, nic in stored(registry, "nics").items()}
    assert primary == {NICS[0]: True, other: False}


def test_a_large_one_is_renamed_in_parts() -> None:
    """Whatever it was ended by, it goes on where it was; nobody imports meanwhile."""
    registry, cluster = large()
    assert registry.do("importer.hold", NEW, reading(cluster))["left"] > 100
    assert registry.refused("importer.hold", NEW, reading(cluster), RENAMED)["kind"] == "fenced"
    assert rename(registry, cluster) > 2
    assert {each["master"] for each in stored(registry, "nics").values()} == {f"ganeti:{NEW}"}
    assert set(stored(registry, "imports")) == {NEW} and [key for key in registry.everything() if f"/{CLUSTER}/" in key] == []


@pytest.mark.parametrize("names", [(NEW, CLUSTER), (NEW, "third.example.com"), (NEW, "third.example.com", "fourth.example.com")])
def test_one_that_was_ended_in_the_middle_goes_on_under_any_name(names: tuple[str, ...]) -> None:
    """Take along what has a name between, of nobody's configuration, however often the cluster is renamed before it is said again."""
    registry, cluster = large()
    *between, last = names
    for name in between:
        assert registry.do("importer.hold", name, reading(cluster))["left"] > 100
        assert name in stored(registry, "imports"), "from the first part on it is known what is to be renamed"
    for name in (CLUSTER, *names):
        said = registry.refused("importer.hold", name, reading(cluster), Identity("importer", name, "unix"))
        assert said["kind"] == "fenced" and said["command"].endswith("--take-over")
    rename(registry, cluster, last)
    for kind in ("nics", "networks"):
        assert {(each["cluster"], each["master"]) for each in stored(registry, kind).values()} == {(last, f"ganeti:{last}")}
    left = [key for key in registry.everything() if any(f"/{name}/" in key for name in (CLUSTER, *between) if name != last)]
    assert set(stored(registry, "imports")) == {last} and left == []
    assert all(claim.get("cluster", last) == last for kind in ("macs", "addresses") for claim in stored(registry, kind).values())
    assert registry.do("importer.hold", last, reading(cluster), Identity("importer", last, "unix"))["uuid"] == CLUSTER_UUID
    if last == CLUSTER:
        outcome = Node(registry).read(cluster)
        assert (outcome.made, outcome.deleted, dict(outcome.refused)) == (0, 0, {}) and differences(registry, cluster) == []


def test_a_name_of_which_another_cluster_has_something_is_that_ones() -> None:
    """Both would be one, and the import of the one would delete what the other one has."""
    registry, cluster = checked(), Cluster()
    cluster.network(NETWORKS[0], "blue")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    Node(registry).read(cluster)
    other = {"uuid": NODES[5], "master": NODES[4], "node": "other1.example.com", "serial": 9}
    registry.do("importer.hold", NEW, other, RENAMED)
    live = {"uuid": NICS[5], "instance": "live", "index": 0, "mac": "aa:00:00:00:01:01", "ip": "10.0.0.9", "tags": []}
    registry.do("nic.add", "", live, RENAMED)
    registry.do("nic.set", NICS[5], {"options": OPTIONS, "addresses": ["10.0.0.10"]})
    cluster.changed()
    for who in (RENAMED, OPERATOR):
        said = registry.refused("importer.hold", NEW, reading(cluster), who)
        assert said["kind"] == "fenced" and f"another cluster, {NODES[5]}, is imported as {NEW}, by other1.example.com" in said["detail"]
        assert "command" not in said, "what would take the other one's away is not what helps"
    # it is free when the other one has another name
    third = "third.example.com"
    while registry.do("importer.hold", third, other).get("left"):
        assert registry.local.view.get(f"imports/{third}") is not None
    rename(registry, cluster)
    assert {uuid: each["cluster"] for uuid, each in stored(registry, "nics").items()} == {NICS[0]: NEW, NICS[5]: third}
    assert {name: each["uuid"] for name, each in stored(registry, "imports").items()} == {NEW: CLUSTER_UUID, third: NODES[5]}


def test_a_name_is_free_when_the_cluster_that_had_it_is_gone_for_good() -> None:
    registry, cluster = checked(), Cluster()
    cluster.nic(NICS[0], ip="192.0.2.9")
    Node(registry).read(cluster)
    registry.do("importer.hold", NEW, {"uuid": NODES[5], "master": NODES[4], "node": "other1.example.com", "serial": 9}, RENAMED)
    registry.do("nic.add", "", {"uuid": NICS[5], "instance": "gone", "index": 0, "mac": "aa:00:00:00:01:01"}, RENAMED)
    registry.do("network.add", "", {"uuid": NETWORKS[1], "name": "red"}, RENAMED)
    for action, uuid in (("nic.delete", NICS[5]), ("network.delete", NETWORKS[1])):
        assert registry.refused("importer.hold", NEW, reading(cluster))["kind"] == "fenced"
        registry.do(action, uuid, {"force": True})
    rename(registry, cluster)
    assert stored(registry, "imports")[NEW]["uuid"] == CLUSTER_UUID and stored(registry, "nics")[NICS[0]]["cluster"] == NEW


def test_another_cluster_does_not_get_what_is_half_renamed() -> None:
    """An operator of it says that its configuration is the one, of a cluster that was made anew: half of another one's would be deleted."""
    registry, cluster = large()
    assert registry.do("importer.hold", NEW, reading(cluster))["left"] > 100
    other = {**reading(cluster), "uuid": NODES[5]}
    for name in (CLUSTER, NEW):
        for who in (OPERATOR, Identity("importer", name, "unix")):
            assert f"another cluster, {CLUSTER_UUID}," in registry.refused("importer.hold", name, other, who)["detail"]
    rename(registry, cluster)
    registry.do("importer.hold", NEW, other)  # as ever: it says that the cluster was made anew


def test_a_network_of_its_name_is_in_the_way() -> None:
    registry, cluster = checked(), Cluster()
    cluster.network(NETWORKS[0], "blue")
    Node(registry).read(cluster)
    registry.network("blue", cluster=NEW)
    said = registry.refused("importer.hold", NEW, reading(cluster))
    assert said["kind"] == "exists" and "a network blue already" in said["detail"]


def test_what_another_cluster_of_that_name_has_is_not_merged_into_it() -> None:
    """Clusters that change places: its NICs would be the other's, and the next import would delete them, with what operators have set."""
    registry, cluster = large()
    other = {"uuid": NICS[6], "master": MASTERS[FIRST], "node": FIRST, "serial": 5}
    registry.do("importer.hold", NEW, other, RENAMED)
    theirs = registry.do("nic.add", "", {"instance": "web", "index": 0, "mac": "aa:00:00:00:01:01", "ip": "10.0.0.9"}, RENAMED)["uuid"]
    before = registry.everything()
    said = registry.refused("importer.hold", NEW, reading(cluster))
    assert said["kind"] == "fenced" and NICS[6] in said["detail"] and FIRST in said["detail"] and registry.everything() == before

    while registry.do("importer.hold", "third.example.com", other).get("left"):  # it was renamed too
        assert registry.refused("importer.hold", "third.example.com", other, RENAMED)
    assert stored(registry, "nics")[theirs]["master"] == "ganeti:third.example.com"
    assert rename(registry, cluster) > 1 and set(stored(registry, "imports")) == {NEW, "third.example.com"}


def test_a_name_that_a_cluster_had_which_is_gone_for_good_may_be_another_ones() -> None:
    registry, cluster = large()
    registry.do("importer.hold", NEW, {"uuid": NICS[6], "master": MASTERS[FIRST], "node": FIRST, "serial": 5}, RENAMED)
    theirs = registry.do("nic.add", "", {"instance": "web", "index": 0, "mac": "aa:00:00:00:01:01"}, RENAMED)["uuid"]
    assert registry.refused("importer.hold", NEW, reading(cluster))["kind"] == "fenced"
    registry.do("nic.delete", theirs, {"force": True})
    assert rename(registry, cluster) > 1, "in parts: what has the new name already is in nobody's way"
    assert stored(registry, "imports")[NEW]["uuid"] == CLUSTER_UUID and len(stored(registry, "imports")) == 1
