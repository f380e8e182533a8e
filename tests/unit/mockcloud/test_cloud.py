"""Nodes as folders: made, counted, deleted, whatever a call before was cut off at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mockcloud.cloud import ADMINS, OUI, MockCloud, node_uuid
from runtime import membership
from runtime.errors import HostRefused
from runtime.paths import Paths
from tests.support.killing_steps import Killed, killed, opened


def known(cloud: MockCloud) -> dict[str, list[str]]:
    """Give what the registry has of nodes: UUIDs of nodes, and names of the instances of their NICs."""
    client = cloud.registry.client()
    nodes = [each["node"]["uuid"] for each in client.all("nodes")]
    return {"nodes": sorted(nodes), "nics": sorted(each["nic"]["instance"] for each in client.all("nics"))}


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "servers").iterdir()) if (root / "servers").exists() else []


def test_nodes_are_made_alive_and_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as cloud:
        made = cloud.create(3)
        assert cloud.counted() == (3, 0, 0, 0)
        said = json.loads((tmp_path / "servers" / made[0].uuid / "sysinfo.json").read_text())
        assert (said["System Type"], said["Hostname"], said["Bridges"], said["Tables"]) == (
            "Virtual",
            "mock1",
            ["br0", "br1"],
            {"guests": 100},
        )
        assert len({each.admin.mac for each in made}) == len({each.admin.address for each in made}) == 3
        assert all(each.admin.mac.startswith(OUI + ":") for each in made)
        cloud.start(20.0)
        assert cloud.counted() == (3, 3, 3, 0)
        assert str(cloud.status(made[1].uuid)["registry"]) == "in step"
        (node,) = [each for each in cloud.registry.client().all("nodes") if each["node"]["uuid"] == made[0].uuid]
        own = node["about"]["interfaces"][0]
        assert (node["node"]["kind"], own["name"], own["mac"], own["addresses"]) == (
            "virtual",
            "eth0",
            made[0].admin.mac,
            [made[0].admin.address],
        )
        assert cloud.count(1) == (1, 1, 1, 0)
        assert [each["hostname"] for each in cloud.list()] == ["mock1"]
        assert known(cloud) == {"nodes": [made[0].uuid], "nics": ["mock1"]} and folders(tmp_path) == [made[0].uuid]
        cloud.delete([made[0].uuid])
        assert known(cloud) == {"nodes": [], "nics": []} and folders(tmp_path) == []


def test_another_start_goes_on_later_with_the_same_nodes(tmp_path: Path) -> None:
    with opened(tmp_path) as cloud:
        cloud.create(2)
        cloud.start(90.0)
        before, was = cloud.list(), cloud.registry.registry.local.core.now()
    with opened(tmp_path) as cloud:
        assert cloud.registry.registry.local.core.now() > was
        cloud.start(60.0)
        assert cloud.list() == before and cloud.counted() == (2, 2, 2, 0)


def everywhere(root: Path, monkeypatch: pytest.MonkeyPatch, first: int, then: int) -> int:
    """Cut the way from ``first`` nodes to ``then`` off at each step, and go it again; give how many steps there are."""
    at = 0
    while True:
        at += 1
        folder = root / str(at)
        with opened(folder) as cloud:
            cloud.count(first)
            with killed(monkeypatch, at) as steps:
                try:
                    cloud.count(then)
                except Killed:
                    pass
                else:
                    return steps[0]
        with opened(folder) as cloud:
            assert cloud.count(then) == (then, 0, 0, 0), at
            uuids = [node_uuid(number) for number in range(1, then + 1)]
            assert folders(folder) == known(cloud)["nodes"] == sorted(uuids), at
            assert known(cloud)["nics"] == [f"mock{number}" for number in range(1, then + 1)], at
            for uuid, each in zip(uuids, cloud.list(), strict=True):
                assert membership.read(Paths.under(str(folder / "servers" / uuid))) == (uuid, each["hostname"]), at
            held = [each["claim"] for each in cloud.registry.client().all("claims", scope=ADMINS["uuid"], standing="held")]
            assert len(held) == 2 * then, at


def test_a_creation_may_be_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert everywhere(tmp_path, monkeypatch, 0, 2) > 8


def test_a_deletion_may_be_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert everywhere(tmp_path, monkeypatch, 2, 1) > 5


@pytest.mark.parametrize("said", ["", "{", "[]", "{}", '{"UUID": 1}'])
def test_a_node_that_somebody_has_edited_is_refused_and_the_others_go_on(tmp_path: Path, said: str) -> None:
    with opened(tmp_path) as cloud:
        first, edited = cloud.create(2)
        path = tmp_path / "servers" / edited.uuid / "sysinfo.json"
        text = said or path.read_text().replace('"Virtual"', '"Physical"')
        path.write_text(text)
        assert cloud.counted() == (1, 0, 0, 1)
        (third,) = cloud.create(1)
        assert (third.number, cloud.sweep()) == (3, [])
        cloud.start(20.0)
        assert cloud.counted() == (2, 2, 2, 1) and list(cloud.nodes) == [first.uuid, third.uuid] and path.read_text() == text


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match="no hardware profile"):
        MockCloud(str(tmp_path), profile="huge")
    with opened(tmp_path) as cloud, pytest.raises(HostRefused, match="no agent"):
        cloud.status(node_uuid(1))
    (tmp_path / "cloud.json").write_text("nothing")
    with pytest.raises(HostRefused, match=r"cloud\.json is not what"):
        MockCloud(str(tmp_path))
