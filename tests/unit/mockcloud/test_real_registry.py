"""Nodes of a mock cloud with a registry's service that is a process of its own: real HTTP, real time, and one thread for all nodes."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mockcloud import state
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances.tasks import SECONDS as SHOWN
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting as wrong
from mockcloud.networks import Networks
from mockcloud.nodes import perform
from mockcloud.scenarios import running
from mockcloud.scenarios.faults import Faults
from mockcloud.scenarios.log import Log
from mockcloud.scenarios.running import Run
from mockcloud.served.client import connection
from mockcloud.served.server import Server
from mockcloud.sysinfo import node_uuid
from mockcloud.underlay import fenced, forgotten
from netregistry.client import SILENT, Problem
from netregistry.service.registry import ALIVE
from runtime.errors import HostRefused, TryAgain
from tests.support.mock_nodes import standing, until
from tests.support.netns import slowness
from tests.support.registry_process import Registry

NODES = 4
FIRST, SECOND = node_uuid(1), node_uuid(2)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    made = Registry(tmp_path / "registry")
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.fixture
def cloud(registry: Registry, tmp_path: Path) -> Iterator[MockCloud]:
    made = MockCloud(str(tmp_path / "cloud"), service=str(registry.socket))
    try:
        made.create(NODES)
        made.network("blue", {"subnet": "192.0.2.0/24"})
        made.start(0.0)
        until(made, lambda: set(standing(made)) == {"in step"}, "all agents are in step")
        yield made
    finally:
        made.close()


def alive(cloud: MockCloud) -> int:
    return cloud.counted().alive


def test_nodes_are_alive_by_their_streams_in_one_thread(cloud: MockCloud, registry: Registry) -> None:
    assert alive(cloud) == NODES and threading.active_count() == 1
    with registry.client() as asked:
        assert asked.get("status").body["streams"] == NODES
    until(cloud, lambda: not any(node.agent.status()["registry marks"] for node in cloud.nodes.values()), "all is told")
    begun, asked_before = time.monotonic(), cloud.registry.wire.asked
    cloud.scheduler.passes(ALIVE + 1.0)
    assert time.monotonic() - begun >= ALIVE + 1.0  # real time
    assert alive(cloud) == NODES and set(standing(cloud)) == {"in step"}
    assert cloud.registry.wire.asked - asked_before < NODES  # an open stream is the sign of life: nobody asks anything


def test_an_instance_is_made_moved_and_deleted(cloud: MockCloud) -> None:
    instances = Instances(cloud, SHOWN * slowness())
    instances.create("web1", FIRST, [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}])
    placed = instances.start("web1")
    assert placed.node == FIRST and [each["shown"] for each in instances.shown(placed)["nics"]] == ["running", "running"]
    assert instances.migrate("web1", SECOND).node == SECOND and wrong(cloud) == []
    instances.delete("web1")
    assert wrong(cloud) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "restarted"])
def test_all_come_back_to_a_registry_that_was_started_again(cloud: MockCloud, registry: Registry, how: int) -> None:
    registry.signal(how)
    if how == signal.SIGTERM:
        registry.ended()
    registry.kill()
    until(cloud, lambda: set(standing(cloud)) == {"away"}, "all have lost it")
    registry.start()
    until(cloud, lambda: set(standing(cloud)) == {"in step"} and alive(cloud) == NODES, "all are back")


@pytest.mark.parametrize("how", ["both", pytest.param("answers", marks=pytest.mark.slow)])
def test_a_node_that_is_cut_off_is_not_alive_and_comes_back(cloud: MockCloud, how: str) -> None:
    cloud.registry.wire.cut[FIRST] = how
    until(cloud, lambda: alive(cloud) == NODES - 1, "it is gone", SILENT + ALIVE + 30.0)
    cloud.registry.wire.cut.clear()
    until(cloud, lambda: alive(cloud) == NODES and set(standing(cloud)) == {"in step"}, "it is back", 60.0)


@pytest.mark.slow
def test_a_registry_that_stands_still_is_away_and_then_back(cloud: MockCloud, registry: Registry) -> None:
    """Nobody ends the connections: silence does."""
    registry.signal(signal.SIGSTOP)
    until(cloud, lambda: set(standing(cloud)) == {"away"}, "all take it for gone", SILENT + 30.0)
    registry.signal(signal.SIGCONT)
    until(cloud, lambda: set(standing(cloud)) == {"in step"}, "all are back", 60.0)


def test_who_is_busy_for_longer_than_a_stream_may_be_silent_has_lost_nothing(cloud: MockCloud) -> None:
    streams = {node.name: node.agent.status()["registry told up to"] for node in cloud.nodes.values()}
    begun = time.monotonic()
    while time.monotonic() < begun + SILENT + 1.0:
        pass  # what keeps the one thread
    cloud.scheduler.passes(0.5)
    assert set(standing(cloud)) == {"in step"} and len(streams) == NODES


def test_a_task_of_a_cloud_that_is_served_has_its_time_while_others_wait(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault was over, and the calm behind it, as soon as anybody else asked."""
    server, lasted = Server(cloud), 0.0

    class Ended(Exception):
        """End the serving."""

    def task() -> None:
        nonlocal lasted
        other, begun = connection(cloud.root), time.monotonic()
        assert other is not None
        with other:
            cloud.scheduler.passes(1.0)
        lasted = time.monotonic() - begun
        raise Ended

    monkeypatch.setattr(server, "handle_request", task)
    try:
        with pytest.raises(Ended):
            server.serve()
    finally:
        server.close()
    assert lasted >= 1.0


@pytest.mark.slow
def test_nodes_more_and_less_while_it_lives(cloud: MockCloud) -> None:
    cloud.live = True
    assert perform(cloud, "count", {"number": NODES + 2})["running"] == NODES + 2
    until(cloud, lambda: alive(cloud) == NODES + 2, "new ones are alive")
    assert perform(cloud, "count", {"number": 1})["nodes"] == 1
    until(cloud, lambda: alive(cloud) == 1, "one is alive")


def test_descriptors_are_given_back(cloud: MockCloud) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        cloud.stop([FIRST])
        cloud.start(0.0)
        until(cloud, lambda: set(standing(cloud)) == {"in step"}, "it is in step")
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_another_process_goes_on_with_the_same_registry(registry: Registry, tmp_path: Path) -> None:
    root = str(tmp_path / "cloud")
    made = MockCloud(root, service=str(registry.socket))
    made.create(1)
    made.close()
    again = MockCloud(root)
    assert again.service == str(registry.socket)
    again.delete([FIRST])
    again.close()
    with pytest.raises(HostRefused, match=r"the registry of the mock cloud in .* is served on"):
        MockCloud(root, service="/run/other")
    with registry.client() as asked:
        assert asked.get("nodes").body["items"] == []


def test_a_service_is_one_clouds_alone(cloud: MockCloud, registry: Registry, tmp_path: Path) -> None:
    """Another one would take its nodes for its own, and delete them."""
    for _ in range(2):
        with pytest.raises(HostRefused, match="the registry's network mock-admin is of another mock cloud"):
            MockCloud(str(tmp_path / "another"), service=str(registry.socket))
    assert len(cloud.list()) == NODES and not (tmp_path / "another/servers").exists()
    with registry.client() as asked:
        before = asked.get("nodes").body["items"]
        own = MockCloud(str(tmp_path / "another"))
        own.create(1)
        own.close()
        assert own.service == "" and asked.get("nodes").body["items"] == before, "a folder that was refused is bound to nothing"


def test_another_registry_in_the_place_of_the_clouds_is_refused(registry: Registry, tmp_path: Path) -> None:
    """Refuse another registry at the cloud's socket: it knows none of the nodes, and would give out their addresses anew."""
    root = str(tmp_path / "cloud")
    made = MockCloud(root, service=str(registry.socket))
    made.create(1)
    noted = list[str]()
    Faults(made, noted.append).strike("restore", [], {}, 0.0)
    assert "is a process of its own" in noted[0] and "backup" not in noted[0]
    registry.kill()
    made.same()  # one that does not answer may be the same
    shutil.move(registry.file.parent, tmp_path / "before")
    registry.command("init")
    registry.start()
    with pytest.raises(HostRefused, match="it is another one than they have joined: have that one served there again"):
        perform(made, "create", {})
    server = Server(made)
    tasks: dict[str, tuple[str, dict[str, object]]] = {
        "/nodes": ("count", {"number": 0}),
        "/tasks": ("create", {"name": "web1", "node": "mock1", "nics": []}),
        "/faults": ("agent", {"nodes": ["mock1"], "for": 1}),
        f"/nodes/{FIRST}/tasks": ("create", {"name": "web1", "nics": []}),
    }
    for path, (task, params) in tasks.items():
        with pytest.raises(HostRefused, match="it is another one than they have joined"):
            server.task(path, "", {"task": task, "params": params})
    server.close()
    assert len(made.list()) == 1
    made.close()
    with pytest.raises(HostRefused, match="it is another one than they have joined"):
        MockCloud(root)
    with registry.client() as asked:
        assert asked.get("networks").body["items"] == [], "it is claimed by nobody"
    registry.kill()
    shutil.rmtree(registry.file.parent)
    shutil.move(tmp_path / "before", registry.file.parent)
    registry.start()
    again = MockCloud(root)
    assert len(again.create(1)) == 1
    again.close()


@pytest.mark.slow
def test_a_copy_of_a_cloud_is_another_one(cloud: MockCloud, registry: Registry, tmp_path: Path) -> None:
    """It would take the nodes of the one that it is a copy of for its own, and delete them."""
    shutil.copytree(cloud.root, tmp_path / "copy", symlinks=True)
    with pytest.raises(HostRefused, match="is of another mock cloud, or of another folder"):
        MockCloud(str(tmp_path / "copy"))
    assert len(cloud.list()) == NODES


def test_a_cloud_with_a_registry_of_its_own_keeps_it(registry: Registry, tmp_path: Path) -> None:
    MockCloud(str(tmp_path / "own")).close()
    with pytest.raises(HostRefused, match="is its own"):
        MockCloud(str(tmp_path / "own"), service=str(registry.socket))


def test_a_registry_that_cannot_be_claimed_leaves_no_cloud(registry: Registry, tmp_path: Path) -> None:
    with registry.client() as asked:
        asked.change("POST", "networks", {"name": "mock-admin", "subnet": "192.0.2.0/24"})
    with pytest.raises(Problem):
        MockCloud(str(tmp_path / "cloud"), service=str(registry.socket))
    assert not state.there(str(tmp_path / "cloud"))


def test_a_cloud_that_may_have_claimed_its_registry_goes_on_with_it(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer did not come: under another name it would be refused for ever."""
    root, claim = str(tmp_path / "cloud"), Networks.claim

    def unanswered(networks: Networks, name: str) -> None:
        claim(networks, name)
        raise TryAgain("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Networks, "claim", unanswered)
        with pytest.raises(TryAgain):
            MockCloud(root, service=str(registry.socket))
    MockCloud(root, service=str(registry.socket)).close()


def test_no_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match="no registry is served on"):
        MockCloud(str(tmp_path / "cloud"), service=str(tmp_path / "socket"))


def test_commands_end_a_member_of_an_etcd_and_bring_it_back(registry: Registry, tmp_path: Path) -> None:
    """A command that has failed may have ended it all the same: it is brought back at once."""
    cloud = MockCloud(str(tmp_path / "cloud"), service=str(registry.socket))
    said: list[str] = []
    faults = Faults(cloud, said.append)
    gone = tmp_path / "gone"
    back = f"rm '{gone}'"
    try:
        faults.strike("etcd", [""], {}, 0.1)
        assert said[-1].startswith("etcd of the registry cannot be: it is not known how to end a member of the registry's etcd")
        faults.strike("etcd", [""], {"lose": f"cp /dev/null '{gone}'", "back": back}, 0.1)
        assert gone.exists()
        until(cloud, lambda: said[-1] == "etcd of the registry is over", "it is over")
        assert not gone.exists()
        gone.touch()
        faults.strike("etcd", [""], {"lose": "false", "back": back}, 0.1)
        assert said[-1] == "etcd of the registry cannot be: 'false' has ended with 1" and not gone.exists()
        faults.strike("etcd", [""], {"lose": f"{tmp_path}/none", "back": back}, 0.1)
        assert "No such file or directory" in said[-1]
    finally:
        faults.end()
        cloud.close()


def test_nodes_have_most_of_the_time_while_a_registry_is_listed(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = [0.0], [0, 0]

    def look(_commits: Commits, _client: object) -> None:
        clock[0] += 2.0  # so long it takes
        looks[0] += 1

    def always(_cloud: MockCloud) -> tuple[str, ...]:
        looks[1] += 1
        return ()

    monkeypatch.setattr(Commits, "look", look)
    monkeypatch.setattr(running, "always", always)
    monkeypatch.setattr(running, "LOOK", 0.01)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    run = Run(cloud, (), 1, False, Log(root=cloud.root))
    try:
        run.begin()
        until(cloud, lambda: looks[1] > 10, "it is looked often")
        assert looks[0] == 1
        clock[0] += 20.0
        until(cloud, lambda: looks[0] > 1, "it is listed again")
    finally:
        run.end()


def test_a_node_is_fenced_and_forgotten_at_a_service(cloud: MockCloud, registry: Registry) -> None:
    """By an operator who says at which revision the service's node was read."""
    instances = Instances(cloud, SHOWN * slowness())
    instances.create("web1", FIRST, [{"network": "blue"}])
    instances.start("web1")
    fenced(cloud, FIRST)
    with registry.client() as asked:
        assert [
            each["report"]["nic"] for each in asked.all("reports") if each["node"] == FIRST and each["report"]["nic"] in cloud.let_go
        ] == []
        assert cloud.let_go
        forgotten(cloud, SECOND)
        assert SECOND not in {each["node"]["uuid"] for each in asked.all("nodes")}


def test_a_folder_of_others_is_not_taken_for_that_of_an_etcd(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    for _ in range(2):
        with pytest.raises(HostRefused, match="/etcd' is there already, and no mock cloud's"):
            MockCloud(str(tmp_path), service="etcd:1")
    assert (tmp_path / "etcd").exists()
