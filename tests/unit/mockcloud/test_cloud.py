"""Nodes as folders: made, counted, deleted, whatever a call before was cut off at."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from mockcloud import state
from mockcloud.cloud import REGISTRY, MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.networks import ADMINS, OUI
from mockcloud.sysinfo import node_uuid
from runtime import membership
from runtime.errors import HostRefused
from runtime.paths import Paths
from tests.support.killing_steps import Killed, killed, opened
from tests.support.sample import sample


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


def test_a_deletion_that_was_killed_leaves_nothing_to_the_next_node_of_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the deletion of a node off at steps, with an instance on it; one is made under its number then, and has no instance."""
    second = node_uuid(2)
    with opened(tmp_path / "before") as cloud:
        cloud.create(2)
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        Instances(cloud).create("web1", second, [{"network": "blue"}])
    for at in sample(range(1, 9), 4):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "before", folder)
        with opened(folder) as cloud, killed(monkeypatch, at), suppress(Killed):
            cloud.count(1)
        whole = (folder / "servers" / second / "sysinfo.json").exists()
        with opened(folder) as cloud:
            assert cloud.count(2) == (2, 0, 0, 0), at
            has = [each.vm.name for each in Instances(cloud).all()[0]]
            assert has == (["web1"] if whole else []), at
            assert known(cloud)["nics"] == sorted(["mock1", "mock2", *has]), at


def test_a_node_that_is_made_under_the_number_of_one_that_has_crashed_is_on(tmp_path: Path) -> None:
    with opened(tmp_path) as cloud:
        (one,) = cloud.create(1)
        cloud.ready([one.uuid], 20.0)
        cloud.registry.wire.cut[one.uuid] = "both"
        cloud.crash(one.uuid)
        cloud.delete([one.uuid])
        (again,) = cloud.create(1)
        assert again.uuid == one.uuid
        cloud.ready([one.uuid], 60.0)  # the registry notes that the stream of before is dead
        assert cloud.counted() == (1, 1, 1, 0)


def test_a_node_is_made_under_the_number_of_one_that_was_just_deleted(tmp_path: Path) -> None:
    """The registry forgets bit by bit what nodes have reported, and lets nobody join under the UUID before it has."""
    with opened(tmp_path) as cloud:
        nodes = [each.uuid for each in cloud.create(2)]
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        cloud.ready(nodes, 20.0)
        Instances(cloud).create("web1", nodes[1], [{"network": "blue"}])
        Instances(cloud).start("web1")
        cloud.delete([nodes[1]])
        assert cloud.count(2).nodes == 2 and Instances(cloud).all()[0] == []


def test_a_folder_of_a_node_that_leads_elsewhere_is_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "2026").mkdir(parents=True)
    with opened(tmp_path / "cloud") as cloud:
        first, second = cloud.create(2)
        (tmp_path / "cloud/servers" / first.uuid / "proc").symlink_to(outside)
        cloud.start(20.0)
        assert list(cloud.nodes) == [second.uuid]
        assert f"servers/{first.uuid}/proc is a symbolic link" in cloud.failed[first.uuid]
        assert [path.name for path in outside.iterdir()] == ["2026"]
        cloud.delete([first.uuid])
        assert [path.name for path in outside.iterdir()] == ["2026"] and len(cloud.list()) == 1


EDITED = ("", "{", "[]", "{}", '{"UUID": 1}')
#: What is found in it, and what somebody has made of that.
SWAPPED = {
    "system": ('"Virtual"', '"Physical"'),
    "address": ('"ip4addr": "100.64.0.2"', '"ip4addr": "nonsense"'),
    "prefix": ('"Prefix": 14', '"Prefix": "x"'),
    "MAC": ('"MAC Address": "02:', '"MAC Address": "03:'),
    "hostname": ('"Hostname": "mock2"', '"Hostname": "mock1"'),
    "number": ('"Number": 2', '"Number": 1'),
}


@pytest.mark.parametrize("said", [*EDITED, *SWAPPED])
def test_a_node_that_somebody_has_edited_is_refused_and_the_others_go_on(tmp_path: Path, said: str) -> None:
    with opened(tmp_path) as cloud:
        first, edited = cloud.create(2)
        path = tmp_path / "servers" / edited.uuid / "sysinfo.json"
        text = path.read_text().replace(*SWAPPED[said]) if said in SWAPPED else said
        assert text != path.read_text()
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


@pytest.mark.parametrize("hours", [-2, 24 * 365])
def test_a_registry_that_has_something_to_say_when_it_begins_is_heard(tmp_path: Path, hours: int) -> None:
    """Log the registry's warning that its clock may be wrong after a cloud.json of another time was put back; everything goes on."""
    with opened(tmp_path) as cloud:
        cloud.create(1)
        cloud.start(3 * 3600.0)
    kept = state.read(str(tmp_path))
    state.write(str(tmp_path), kept._replace(time=kept.time + hours * 3600.0))
    with opened(tmp_path) as cloud:
        assert "the clock may be wrong" in "\n".join(cloud.log)
        assert cloud.count(2).nodes == 2
        cloud.ready([each["uuid"] for each in cloud.list()], 60.0)


def test_a_cloud_whose_file_is_gone_or_an_older_copy_draws_nothing_that_was_drawn(tmp_path: Path) -> None:
    """Draw no id of a request that was done before: the registry would answer the new request with the result of the old one."""
    path = tmp_path / state.FILE
    for number in range(3):
        with opened(tmp_path) as cloud:
            assert [each.number for each in cloud.create(1)] == [number + 1]
        path.unlink()
    with opened(tmp_path) as cloud:
        macs = [each["mac"] for each in cloud.list()]
        assert len({*macs}) == len(macs) == 3
        cloud.start(20.0)
        assert cloud.counted() == (3, 3, 3, 0)


@pytest.mark.parametrize("gone", [(REGISTRY,), (REGISTRY, "cloud.json")])
def test_nodes_whose_registry_is_not_there_get_no_other_one(tmp_path: Path, gone: tuple[str, ...]) -> None:
    """Refuse to make a registry beside nodes that have joined another one: it would give out their addresses anew."""
    folder, away = tmp_path / "cloud", tmp_path / "away"
    away.mkdir()
    with opened(folder) as cloud:
        cloud.create(2)
    for name in gone:
        (folder / name).rename(away / name)
    with pytest.raises(HostRefused, match=r"the registry of the nodes in .* is not there: .*: put it back"):
        MockCloud(str(folder))
    assert not (folder / REGISTRY).exists()
    for name in gone:
        (away / name).rename(folder / name)
    with opened(folder) as cloud:
        assert len(cloud.create(1)) == 1
