"""Many nodes in one process and one thread: the real agents on simulated hosts, by a virtual clock, in an order drawn from a seed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from mockcloud.replaced.scheduler import EPOCH
from netagent.sync.messages import Failed, Failure
from runtime import membership
from tests.support import mock_nodes, storm
from tests.support.bootstrap import PYTHON, ROOT
from tests.support.mock_nodes import Cluster
from tests.support.registry import NODES as NODES_OF_REGISTRY
from tests.support.storm import told

if TYPE_CHECKING:
    from netagent.sync.messages import Asking, Event

NODES = 50


def descriptors() -> list[str]:
    """List what this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return sorted(found)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of the process be touched, and nobody wait."""

    def forbidden(*_given: object, **_named: object) -> Any:
        raise AssertionError("a node does not touch the process that it is in")

    for owner, name in (
        (threading.Thread, "start"),
        (signal, "signal"),
        (signal, "set_wakeup_fd"),
        (time, "sleep"),
        (os, "fork"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(owner, name, forbidden)


@pytest.fixture
def cluster(tmp_path: Path, alone: None) -> Iterator[Cluster]:
    before = descriptors()
    made = Cluster(str(tmp_path), NODES, 1)
    made.start()
    yield made
    made.close()
    assert descriptors() == before


def test_what_is_undone_by_hand_is_repaired_and_what_vanishes_is_undone(cluster: Cluster) -> None:
    nodes = cluster.nodes
    bare = [mock_nodes.picture(node) for node in nodes]
    storm.come_up(cluster)
    assert all(
        len(mock_nodes.records(node)) == len(storm.MODES) and all(one.endswith(" up") for one in mock_nodes.records(node)) for node in nodes
    )
    up = [mock_nodes.picture(node) for node in nodes]
    storm.drift(cluster)
    assert [node.name for node, picture in zip(nodes, up, strict=True) if mock_nodes.picture(node) != picture] == []
    repaired = {line.split(" ")[1] for line in cluster.log if ": repaired " in line}
    assert repaired == {node.name for node in nodes}, "each node had lost something"
    assert [node.name for node in nodes if node.state.alarms.active()] == []
    assert len(descriptors()) < 20, "one for all folders that are watched, none for each node"
    storm.vanish(cluster)
    assert [node.name for node in nodes if mock_nodes.records(node)] == []
    assert [node.name for node, picture in zip(nodes, bare, strict=True) if mock_nodes.picture(node) != picture] == []
    assert [line for line in cluster.log if " error: " in line] == []


def test_a_hook_at_work_on_one_node_is_left_alone_there_and_nowhere_else(cluster: Cluster) -> None:
    """Locks are each node's: two nodes' NICs may have the same UUID, as while one moves."""
    first, second = cluster.nodes[:2]
    same = storm.nics(1)[0]
    for node in (first, second):
        mock_nodes.tap(node, "tap0")
        mock_nodes.up(node, same)
    cluster.scheduler.passes(1.0)
    up = [mock_nodes.picture(node) for node in (first, second)]
    hook = first.locks.hold(same.uuid)
    for node in (first, second):
        storm.HARM[1](node)
    cluster.scheduler.passes(1.0)
    assert mock_nodes.picture(first) != up[0] and mock_nodes.picture(second) == up[1]
    hook.close()
    cluster.scheduler.passes(0.1)
    assert mock_nodes.picture(first) == up[0], "the lock that was let go is an event"


def test_settings_are_each_nodes(cluster: Cluster) -> None:
    first, second = cluster.nodes[:2]
    for node in (first, second):
        os.makedirs(node.paths.etc, exist_ok=True)
    Path(first.paths.config).write_text("[repair]\nrule = 'off'\n", encoding="utf-8")
    assert first.state.reload() and second.state.reload()
    for node in (first, second):
        node.agent.reloaded(node.state.settings)
        mock_nodes.tap(node, "tap1")
        mock_nodes.up(node, storm.nics(1)[1])
    up = [mock_nodes.picture(node) for node in (first, second)]
    for node in (first, second):
        storm.HARM[0](node)
    cluster.scheduler.passes(storm.RESYNC)
    assert mock_nodes.picture(first) != up[0] and mock_nodes.picture(second) == up[1]


def test_an_agent_that_is_started_again_goes_on_where_it_was(tmp_path: Path, alone: None) -> None:
    made = Cluster(str(tmp_path), 1, 1)
    made.start()
    storm.come_up(made)
    node, up = made.nodes[0], mock_nodes.picture(made.nodes[0])
    node.close()
    storm.HARM[0](node)
    node.again()
    made.start()
    made.scheduler.passes(1.0)
    assert mock_nodes.picture(node) == up
    made.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_the_same_log(alone: None, seed: int) -> None:
    assert told(5, seed) == told(5, seed)


def test_another_seed_another_log(alone: None) -> None:
    assert told(5, 1) != told(5, 2)


def test_no_order_comes_from_how_python_keeps_sets() -> None:
    def hashed(number: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        return subprocess.check_output([PYTHON, "-m", "tests.support.storm", "5", "1"], cwd=ROOT, env=environment, text=True)

    found = {hashed(number) for number in (0, 1, 2)}
    assert len(found) == 1


class Silent:
    """Speaks with a registry that never answers."""

    stream, moment = 0, EPOCH
    made: ClassVar[list[Silent]] = []

    def __init__(self, where: object, node: str, incarnation: str, tell: Callable[[Event, int], None], crowded: object) -> None:
        self.node, self.incarnation, self._tell = node, incarnation, tell
        self.asked: list[Asking] = []
        self.made.append(self)

    def ask(self, request: Asking) -> None:
        self.asked.append(request)
        self._tell(Failed(Failure("", "nobody answers")), 0)

    def watch(self, start: str) -> None:
        raise AssertionError("nothing was answered")

    def end(self) -> None: ...
    def close(self, seconds: float) -> None: ...


def test_nodes_that_have_joined_speak_by_what_they_are_given(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread and no socket; what is made up comes from the seed."""

    def run(folder: str) -> list[tuple[str, str, int]]:
        monkeypatch.setattr(Silent, "made", [])
        made = Cluster(str(tmp_path / folder), 2, 1, session=Silent)
        for node, uuid in zip(made.nodes, NODES_OF_REGISTRY, strict=False):
            membership.write(node.paths, membership.Membership(uuid, node.name))
        made.start()
        made.scheduler.passes(60.0)
        found = [(each.node, each.incarnation, len(each.asked)) for each in Silent.made]
        assert all(str(node.agent.status()["registry"]).startswith("away: nobody answers") for node in made.nodes)
        made.close()
        return sorted(found)

    first = run("first")
    assert [node for node, _incarnation, _asked in first] == sorted(NODES_OF_REGISTRY[:2])
    assert len({incarnation for _node, incarnation, _asked in first}) == 2 and all(asked > 3 for _node, _incarnation, asked in first)
    assert run("second") == first
