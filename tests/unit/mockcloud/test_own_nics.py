"""Take NICs of nodes' own away where a node was refused for a while, and undo what a network has no room for after a kill, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from mockcloud import own_nics
from mockcloud.cloud import MockCloud
from mockcloud.externals import NoRoom
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting
from mockcloud.sysinfo import node_uuid
from runtime.errors import HostRefused
from tests.support.killing_steps import Killed, killed, opened
from tests.support.mockcloud import Mockcloud
from tests.support.sample import sample


@pytest.fixture
def run(tmp_path: Path) -> Mockcloud:
    """Make a cloud whose second node was refused when the NICs in a network were taken away, and has one still."""
    made = Mockcloud(tmp_path / "cloud")
    made("create", "3")
    made("nics", "ext", "--subnet", "198.18.0.0/24")
    path = made.folder / "servers" / node_uuid(2) / "sysinfo.json"
    said = path.read_text()
    path.write_text("{")
    made("nics", "ext", "--remove")
    path.write_text(said)
    assert {each["hostname"]: len(each["external"]) for each in made.json("list")["nodes"]} == {"mock1": 0, "mock2": 1, "mock3": 0}
    return made


def given(cloud: MockCloud) -> list[tuple[str, str]]:
    """Give the NICs of nodes' own in networks, as the registry has them."""
    nics = (each["nic"] for each in cloud.registry.client().all("nics", belongs="server"))
    return sorted((each["instance"], each["name"]) for each in nics if each["name"] != "admin")


def test_a_node_that_was_refused_loses_its_nic_by_the_next_removal(run: Mockcloud) -> None:
    assert "no node has a NIC of its own in 'other': one of ext" in run("nics", "other", "--remove", status=69)
    assert [each["external"] for each in run.json("nics", "ext", "--remove")["nodes"]] == [[], [], []]
    with opened(run.folder) as cloud:
        assert given(cloud) == []
    assert "no node has a NIC of its own in 'ext': one of none" in run("nics", "ext", "--remove", status=69)


@pytest.mark.parametrize("readable", [True, False])
def test_a_node_that_is_deleted_takes_its_nic_with_it(run: Mockcloud, readable: bool) -> None:
    if not readable:
        (run.folder / "servers" / node_uuid(2) / "sysinfo.json").write_text("{")
    run("delete", "mock2")
    with opened(run.folder) as cloud:
        assert given(cloud) == []


def test_a_deletion_that_was_killed_at_its_end_leaves_none_of_its_nics(run: Mockcloud) -> None:
    with opened(run.folder) as cloud:
        cloud.gone(f"nodes/{node_uuid(2)}")
        cloud.delete([node_uuid(2)])
        assert given(cloud) == []


def test_what_is_refused_for_others_leaves_it_the_nic_that_it_has(run: Mockcloud) -> None:
    """Undo what was given out in this call alone, where a network has no room for all."""
    with opened(run.folder) as cloud:
        client = cloud.registry.client()
        (network,) = client.all("networks", name="ext")
        body = {"network": network["network"]["uuid"], "allocate": ["mac", "ipv4"]}
        for _ in range(250):
            client.change("POST", "nics", body)
        with pytest.raises(NoRoom, match="nothing has changed"):
            own_nics.attach(cloud, "ext")
        assert given(cloud) == [("mock2", "ext")] and cloud.external == ()


def test_a_network_without_room_leaves_nothing_by_the_next_call_wherever_the_first_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(cloud: MockCloud) -> None:
        cloud.create(3)
        cloud.network("ext", {"subnet": "198.18.0.0/30"})

    def refused(cloud: MockCloud) -> None:
        with pytest.raises(NoRoom, match="nothing has changed"):
            own_nics.attach(cloud, "ext", "198.18.0.0/30")
        assert (given(cloud), cloud.external, [each["external"] for each in cloud.list()]) == ([], (), [[], [], []])

    with opened(tmp_path / "whole") as cloud:
        prepare(cloud)
        with killed(monkeypatch, 0) as steps:
            refused(cloud)
    for at in sample(range(1, steps[0]), 8):
        with opened(tmp_path / str(at)) as cloud:
            prepare(cloud)
            with killed(monkeypatch, at), pytest.raises(Killed):
                refused(cloud)
        with opened(tmp_path / str(at)) as cloud:
            refused(cloud)
            assert len(cloud.create(1)) == 1


def test_what_a_call_that_was_killed_has_had_given_out_goes_by_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as cloud:
        cloud.create(2)
        cloud.network("ext", {"subnet": "198.18.0.0/24"})
        with killed(monkeypatch, 3), pytest.raises(Killed):
            own_nics.attach(cloud, "ext")
        assert len(given(cloud)) == 1 and cloud.external == ()
        own_nics.detach(cloud, "ext")
        assert given(cloud) == []
        with pytest.raises(HostRefused, match="one of none"):
            own_nics.detach(cloud, "ext")


def test_a_network_that_is_called_as_the_nodes_table_makes_no_violation_and_hides_none(tmp_path: Path) -> None:
    with opened(tmp_path) as cloud:
        cloud.create(2)
        own_nics.attach(cloud, "guests", "198.18.2.0/24")
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        Instances(cloud).create("web1", node_uuid(1), [{"network": "blue", "mode": "routed", "link": "guests"}])
        Instances(cloud).start("web1")
        cloud.ready([node_uuid(2)], 5.0)
        assert fitting(cloud) == []
        rules = cloud.nodes[node_uuid(1)].host.kernel.rules
        rules[:] = [each for each in rules if each.iif != "tap0"]
        assert any("no rule or no route leads by tap0" in each for each in fitting(cloud))
