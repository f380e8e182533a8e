"""Take away what an instance has left whose file somebody has removed, as the refusal of a damaged one advises."""

from __future__ import annotations

from pathlib import Path

import pytest

from mockcloud import stored
from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import settled
from mockcloud.sysinfo import node_uuid
from tests.support.killing_steps import everywhere, opened
from tests.support.mockcloud import Mockcloud

FIRST, SECOND = node_uuid(1), node_uuid(2)
ONE = ("--nic", "network=blue")
PAIR = (*ONE, "--nic", "network=blue,mode=routed,link=guests")


@pytest.fixture
def run(tmp_path: Path) -> Mockcloud:
    """Make a cloud of two nodes in which the file of an instance with two NICs is removed while it runs."""
    made = Mockcloud(tmp_path / "cloud")
    made("create", "2")
    made("network", "blue", "--subnet", "192.0.2.0/24")
    made("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    made("instance", "create", "web2", "--node", "mock1", *PAIR, "--start")
    path = made.folder / "servers" / FIRST / "vms" / f"{stored.vm_uuid('web1')}.json"
    path.write_text("{")
    (said,) = made.json("instance", "list")["refused"]
    assert said.endswith("put it back; or remove it, and delete the instance")
    path.unlink()
    return made


def wanted(cloud: MockCloud) -> list[str]:
    """Give the instances of which the registry wants NICs, one name for each NIC."""
    return sorted(each["nic"]["instance"] for each in cloud.registry.client().all("nics", belongs="instance"))


def checked(run: Mockcloud) -> list[str]:
    """Hold all against each other, and give the instances."""
    with opened(run.folder) as cloud:
        cloud.ready([FIRST, SECOND], 5.0)
        cloud.scheduler.passes(60.0)
        assert settled(cloud) == []
        return wanted(cloud)


def test_a_deletion_takes_its_nics_away(run: Mockcloud) -> None:
    run("instance", "delete", "web1")
    assert checked(run) == ["web2"] * 2
    assert "INSTANCE='web1': expected the name of an instance" in run("instance", "delete", "web1", status=64)


def test_another_of_the_name_has_none_of_its_nics_and_is_in_no_conflict_with_it(run: Mockcloud) -> None:
    (made,) = run.json("instance", "create", "web1", "--node", "mock2", *ONE, "--start")["instances"]
    assert [nic["shown"] for nic in made["nics"]] == ["running"]
    assert checked(run) == ["web1", "web2", "web2"]


@pytest.mark.parametrize("words", [("delete", "mock1"), ("delete", "mock2"), ("count", "0")])
def test_nodes_that_are_deleted_take_its_nics_away(run: Mockcloud, words: tuple[str, ...]) -> None:
    run(*words)
    with opened(run.folder) as cloud:
        assert wanted(cloud) == (["web2"] * 2 if words[1] == "mock2" else [])


def test_a_guest_that_runs_in_this_process_ends_with_them(run: Mockcloud) -> None:
    with opened(run.folder) as cloud:
        instances = Instances(cloud)
        instances.create("web3", FIRST, [{"network": "blue"}, {"network": "blue"}])
        instances.start("web3")
        (Path(cloud.root, "servers", FIRST, "vms") / f"{stored.vm_uuid('web3')}.json").unlink()
        instances.delete("web3")
        instances.delete("web1")
        cloud.ready([SECOND], 5.0)
        cloud.scheduler.passes(60.0)
        assert settled(cloud) == [] and wanted(cloud) == ["web2"] * 2
        instances.create("web4", FIRST, [{"network": "blue"}])
        (Path(cloud.root, "servers", FIRST, "vms") / f"{stored.vm_uuid('web4')}.json").unlink()
        assert instances.create("web4", SECOND, [{"network": "blue"}]).node == SECOND


def test_of_another_cluster_nothing_goes(run: Mockcloud) -> None:
    with opened(run.folder) as cloud:
        client = cloud.registry.client()
        client.change("POST", "nics", {"cluster": "c.example.com", "instance": "web1", "mac": "aa:00:00:00:00:01"})
        Instances(cloud).delete("web1")
        cloud.delete([SECOND])
        assert [each["nic"]["cluster"] for each in client.all("nics", instance="web1")] == ["c.example.com"]


@pytest.mark.parametrize("task", ["create", "count"])
def test_it_may_be_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    def prepare(cloud: MockCloud) -> None:
        cloud.create(2)
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        instances = Instances(cloud)
        instances.create("web1", FIRST, [{"network": "blue"}, {"network": "blue"}])
        instances.start("web1")
        cloud.vms.forget(FIRST, stored.vm_uuid("web1"))

    def work(cloud: MockCloud) -> None:
        if task == "count":
            cloud.count(0)
        elif all(each.vm.state != "stopped" for each in Instances(cloud).all()[0]):
            Instances(cloud).create("web1", SECOND, [{"network": "blue"}])

    assert everywhere(tmp_path, monkeypatch, prepare, work, wanted) >= 5


def test_an_instance_of_a_node_that_was_not_deleted_to_the_end_is_refused_with_what_helps(run: Mockcloud) -> None:
    (run.folder / "servers" / FIRST / "sysinfo.json").unlink()
    said = run("instance", "delete", "web2", status=69)
    assert "was not made or not deleted to the end: mockcloud create or mockcloud count sweeps it" in said
    run("count", "0")
    with opened(run.folder) as cloud:
        assert wanted(cloud) == []
