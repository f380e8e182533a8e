"""A real registry among the simulated nodes, without a socket: leases, signs of life and epochs by the virtual clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mockcloud.node import MockNode
from netregistry.client import Problem
from netregistry.service.registry import ALIVE
from tests.support import mock_nodes, storm
from tests.support.mock_nodes import Cluster
from tests.support.registry import NODES
from tests.support.storm import nics

COUNT = 3


def joined(root: Path, seed: int = 1, count: int = COUNT) -> Cluster:
    """Make a cluster of nodes that have joined its registry, and start it."""
    cluster = Cluster(str(root), count, seed, registry=True)
    assert cluster.registry is not None
    for uuid, node in zip(NODES, cluster.nodes, strict=False):
        cluster.registry.join(uuid, node.name, node.paths)
    cluster.start()
    return cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = joined(tmp_path)
    made.scheduler.passes(20.0)
    yield made
    made.close()


def standing(cluster: Cluster) -> list[str]:
    return [str(node.agent.status()["registry"]).partition(":")[0] for node in cluster.nodes]


def alive(cluster: Cluster) -> list[bool]:
    assert cluster.registry is not None
    items = cluster.registry.client().get("nodes").body["items"]
    return [each["alive"] for each in sorted(items, key=lambda item: str(item["node"]["name"]))]


def up(node: MockNode, which: int = 0) -> str:
    """Bring one NIC up, which the registry does not know; give its UUID."""
    one = nics(7)[which]
    mock_nodes.tap(node, one.interface)
    mock_nodes.up(node, one)
    return one.uuid


def test_nodes_that_join_are_alive_and_in_step(cluster: Cluster) -> None:
    assert standing(cluster) == ["in step"] * COUNT and alive(cluster) == [True] * COUNT
    assert cluster.registry is not None
    (first,) = [each for each in cluster.registry.client().get("nodes").body["items"] if each["node"]["uuid"] == NODES[0]]
    assert first["node"]["kind"] == "virtual" and first["about"]["bridges"] == ["br0", "br1"]


def test_what_comes_up_is_reported(cluster: Cluster) -> None:
    uuid = up(cluster.nodes[0])
    cluster.scheduler.passes(5.0)
    assert cluster.registry is not None
    (report,) = cluster.registry.client().get("reports", nic=uuid).body["items"]
    assert (report["node"], report["report"]["state"], report["report"]["tap"]) == (NODES[0], "running", "tap0")


def test_what_an_operator_wants_is_done(cluster: Cluster) -> None:
    """The whole way: the node has made the NIC known, an operator changes it, the stream tells, the lifecycle does it, the node reports."""
    registry = cluster.registry
    assert registry is not None
    uuid = up(cluster.nodes[0])
    cluster.scheduler.passes(700.0)  # the first comparison
    found = registry.client().get(f"nics/{uuid}")
    assert found.body["nic"]["master"] == f"node:{NODES[0]}"
    wanted = {"options": [{"name": "rate_out", "value": "8mbit", "until": 0.0}]}
    registry.client().change("PATCH", f"nics/{uuid}", wanted, found.revision)
    cluster.scheduler.passes(5.0)
    (report,) = registry.client().get("reports", nic=uuid).body["items"]
    assert [each["name"] for each in report["report"]["options"] if each["value"].startswith("8")] == ["rate_out"], report
    assert report["report"]["refused"] == ""


def test_who_is_cut_off_is_not_alive_and_comes_back(cluster: Cluster) -> None:
    assert cluster.registry is not None
    wire = cluster.registry.wire
    wire.cut[NODES[1]] = "both"
    uuid = up(cluster.nodes[1])
    cluster.scheduler.passes(ALIVE + 15.0)
    assert alive(cluster) == [True, False, True] and standing(cluster) == ["in step", "away", "in step"]
    assert cluster.registry.client().get("reports", nic=uuid).body["items"] == []
    del wire.cut[NODES[1]]
    cluster.scheduler.passes(60.0)
    assert alive(cluster) == [True] * COUNT and standing(cluster) == ["in step"] * COUNT
    assert len(cluster.registry.client().get("reports", nic=uuid).body["items"]) == 1


def test_what_was_done_without_an_answer_is_done_once(cluster: Cluster) -> None:
    """Requests come to the registry, and no answer comes back: they are sent again with their id."""
    assert cluster.registry is not None
    cluster.registry.wire.cut[NODES[0]] = "answers"
    uuid = up(cluster.nodes[0])
    cluster.scheduler.passes(5.0)
    seen, asked = cluster.registry.client().get("reports", nic=uuid).body["items"], cluster.registry.wire.asked
    assert len(seen) == 1
    cluster.scheduler.passes(60.0)
    assert cluster.registry.wire.asked > asked + 1
    assert cluster.registry.client().get("reports", nic=uuid).body["items"] == seen, "at the same revision"
    cluster.registry.wire.cut.clear()
    cluster.scheduler.passes(60.0)
    assert [each["entry"]["action"] for each in cluster.registry.client().get("history", target=uuid).body["items"]] == ["nic.add"]
    assert standing(cluster) == ["in step"] * COUNT


def test_a_registry_that_is_started_again_goes_on(cluster: Cluster) -> None:
    assert cluster.registry is not None
    uuid = up(cluster.nodes[0])
    cluster.scheduler.passes(5.0)
    cluster.registry.stop()
    with pytest.raises(Exception, match="no registry answers"):
        cluster.registry.client().get("nodes")
    cluster.scheduler.passes(30.0)
    assert standing(cluster) == ["away"] * COUNT
    cluster.registry.again()
    cluster.scheduler.passes(60.0)
    assert standing(cluster) == ["in step"] * COUNT and alive(cluster) == [True] * COUNT
    assert len(cluster.registry.client().get("reports", nic=uuid).body["items"]) == 1


def test_who_asks_is_judged_as_by_the_service(cluster: Cluster) -> None:
    assert cluster.registry is not None
    client = cluster.registry.client("node", NODES[0])
    for kind, ask in (
        ("forbidden", lambda: client.change("POST", f"nodes/{NODES[1]}/heartbeat", {"incarnation": NODES[2]})),
        ("forbidden", lambda: client.change("POST", f"nodes/{NODES[1]}/reports", {})),
        ("forbidden", lambda: client.get("settings")),
        ("invalid", lambda: client.get("nics", colour="blue")),
        ("missing", lambda: client.get("nothing")),
        ("match", lambda: cluster.registry.client().change("POST", f"nodes/{NODES[1]}/fence", force=True)),
    ):
        with pytest.raises(Problem) as refused:
            ask()
        assert refused.value.kind == kind, ask


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    assert cluster.registry is not None
    client = cluster.registry.client()
    made = {"uuid": NODES[0], "name": "blue", "subnet": "192.0.2.0/24"}
    client.change("POST", "networks", made, dry_run=True)
    assert list(client.all("networks")) == []
    client.change("POST", "networks", made)
    client.change("DELETE", f"networks/{NODES[0]}", dry_run=True)
    assert [each["network"]["name"] for each in client.all("networks")] == ["blue"]


@pytest.mark.parametrize(("method", "path"), [("GET", "export"), ("POST", "compact"), ("POST", "certificates")])
def test_what_a_registry_in_this_process_has_not_is_refused(cluster: Cluster, method: str, path: str) -> None:
    assert cluster.registry is not None
    client = cluster.registry.client()
    with pytest.raises(Problem) as refused:
        client.change(method, path) if method == "POST" else client.get(path)
    assert refused.value.kind == "missing" and "without a process of its own" in str(refused.value)


def told(root: Path, seed: int) -> str:
    cluster = joined(root, seed)
    storm.come_up(cluster)
    assert cluster.registry is not None
    cluster.registry.wire.cut[NODES[0]] = "both"
    cluster.scheduler.passes(20.0)
    cluster.registry.wire.cut.clear()
    cluster.scheduler.passes(20.0)
    cluster.close()
    return hashlib.sha256("\n".join(cluster.log).encode()).hexdigest()


def test_the_same_seed_the_same_log(tmp_path: Path) -> None:
    assert told(tmp_path / "a", 1) == told(tmp_path / "b", 1) != told(tmp_path / "c", 2)
