"""An agent that is started again in the same boot tells its registry what has changed meanwhile, and nothing else.

The agent and the registry are the real ones, on a simulated host and by a virtual clock (mockcloud).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mockcloud.node import MockNode
from mockcloud.registry import MockRegistry
from netagent.sync import hands, local
from netagent.sync.driver import INCARNATION
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import SetPort
from netregistry.model.codec import write
from netregistry.service.registry import ALIVE
from runtime import definitions
from runtime.nic import Nic
from tests.support import mock_nodes
from tests.support.mock_nodes import Cluster
from tests.support.registry import NODES
from tests.support.sim import UUIDS, nic
from tests.unit.mockcloud.test_registry import joined

#: What is written as time goes by: signs of life, and since when the clock goes right.
BY_TIME = ("alive", "gone", "leader", "clock")
SECONDS = 60.0  #: less than until the first comparison
Store = dict[str, tuple[bytes, int]]


class Told(NamedTuple):
    """A node that has told all, and its registry."""

    cluster: Cluster
    node: MockNode
    registry: MockRegistry

    def written(self) -> Store:
        """Give all that is in the store and when it was written, but for what is by time."""
        items = self.registry.registry.store.list("").items
        return {each.key: (each.value, each.revision) for each in items if each.key.partition("/")[0] not in BY_TIME}

    def begins_again(self, off: float = 0.0) -> Store:
        """End the agent, and start another one ``off`` seconds later; give what is written by it."""
        before = self.written()
        self.node.close()
        self.cluster.scheduler.passes(off)
        self.node.again()
        self.node.agent.start()
        self.cluster.scheduler.passes(SECONDS)
        assert self.node.agent.status()["registry"] == "in step"
        now = self.written()
        return {key: now.get(key, (b"", 0)) for key in before.keys() | now.keys() if before.get(key) != now.get(key)}

    def reports(self) -> dict[str, dict[str, Any]]:
        return {each["report"]["nic"]: each["report"] for each in self.registry.client().all("reports", node=NODES[0])}

    def known(self, uuid: str) -> bool:
        return any(each["nic"]["uuid"] == uuid for each in self.registry.client().all("nics"))


def one(number: int) -> Nic:
    """Give one of several NICs of plain QEMU."""
    more = {"INTERFACE": f"tap{number}", "INTERFACE_UUID": UUIDS[number], "MAC": f"aa:00:00:00:00:0{number + 1}"}
    return nic("bridged", **more, INTERFACE_INDEX=str(number))


def seen(number: int) -> str:
    return f"seen/{NODES[0]}/{UUIDS[number]}"


REPORTS = f"reports/{NODES[0]}"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """A node with a NIC that runs, one that is refused what is wanted of it, one that is stopped, and one that is gone; all is told."""
    cluster = joined(tmp_path, count=1)
    node, registry = cluster.nodes[0], cluster.registry
    assert registry is not None
    found = Told(cluster, node, registry)
    for number in range(4):
        mock_nodes.tap(node, f"tap{number}")
        definitions.write(node.paths, one(number))
        if number < 2:
            mock_nodes.up(node, one(number))
    cluster.scheduler.passes(1000.0)  # what was defined is found by the first comparison
    port = node.host.kernel.named("tap1")
    node.host.fail = lambda request: (
        Answer(errno.EPERM, "no") if isinstance(request, SetPort) and port is not None and request.index == port.index else None
    )
    registry.client().change("PATCH", f"nics/{UUIDS[1]}", {"options": [{"name": "isolated", "value": "yes"}]})
    cluster.scheduler.passes(SECONDS)
    definitions.remove(node.paths, UUIDS[3])
    cluster.scheduler.passes(SECONDS)
    node.close()
    node.again()
    node.agent.start()  # which finds nothing of the last one
    cluster.scheduler.passes(SECONDS)
    said = found.reports()
    assert {said[uuid]["state"] for uuid in UUIDS[:2]} == {"running"} and said[UUIDS[1]]["refused"]
    assert {said[uuid]["state"] for uuid in UUIDS[2:4]} == {"stopped"} and all(found.known(uuid) for uuid in UUIDS[:4])
    yield found
    cluster.close()


@pytest.mark.parametrize("off", [0.0, 2 * ALIVE, 1000.0])
def test_nothing_is_written_where_nothing_has_changed(told: Told, off: float) -> None:
    """Nor when its lease has ended meanwhile."""
    assert told.begins_again(off) == {} == told.begins_again()


CHANGES: dict[str, tuple[Callable[[MockNode], object], set[str]]] = {
    "down": (lambda node: mock_nodes.down(node, one(0)), {seen(0), REPORTS}),
    "up": (lambda node: mock_nodes.up(node, one(2)), {seen(2), REPORTS}),
    "tap gone": (lambda node: node.machine.let_go("tap1"), {seen(1), REPORTS}),
    "defined": (lambda node: definitions.write(node.paths, one(3)), set()),  # it is stopped, as was said
    "bridge": (lambda node: node.host.add_bridge("br7"), {REPORTS}),
}


@pytest.mark.parametrize(("change", "keys"), CHANGES.values(), ids=CHANGES)
def test_what_has_changed_meanwhile_is_told(told: Told, change: Callable[[MockNode], object], keys: set[str]) -> None:
    """Check that what is told before the registry knows that the agent is alive is told once more, all of it; but it is the same."""
    before = told.written()
    told.node.close()
    told.node.again()
    change(told.node)
    now = told.begins_again()
    assert {key for key, (value, _revision) in now.items() if value != before[key][0]} == keys


def test_another_boot_tells_all_anew(told: Told) -> None:
    """Check that what was said in another life of the node does not count."""
    Path(told.node.state.folder, INCARNATION).unlink()
    assert {seen(0), seen(1), REPORTS} <= told.begins_again(2 * ALIVE).keys()
    assert told.begins_again() == {}


def test_what_was_fenced_is_told_again(told: Told) -> None:
    client = told.registry.client()
    told.node.close()
    client.change("POST", f"nodes/{NODES[0]}/fence", None, client.get(f"nodes/{NODES[0]}").body["revision"], force=True)
    assert told.reports() == {}
    told.node.again()
    told.begins_again()
    assert [told.reports()[uuid]["state"] for uuid in UUIDS[:3]] == ["running", "running", "stopped"]


def test_a_nic_that_was_told_and_not_added_is_added(told: Told) -> None:
    """The agent was killed in between: the registry has its report as it is, and wants no such NIC."""
    node, client = told.node, told.registry.client("node", NODES[0])
    life = Path(node.state.folder, INCARNATION).read_text().strip()
    node.close()
    node.again()
    mock_nodes.tap(node, "tap4")
    definitions.write(node.paths, one(4))
    mock_nodes.up(node, one(4))
    opened = node.process.open_node(node.state.settings)
    report = local.looked(opened, [UUIDS[4]], None, hands.applied, {}).nics[UUIDS[4]].report
    opened.store.close()
    said = {name: value for name, value in write(report).items() if name != "moved_to"}
    after = client.get(f"nodes/{NODES[0]}").body
    assert after["life"] == life
    client.change("POST", f"nodes/{NODES[0]}/reports", {"after": after["reports"], "nics": [said], "removed": []})
    latest = max(revision for _value, revision in told.written().values())
    now = told.begins_again()
    assert told.known(UUIDS[4]) and now[f"nics/{UUIDS[4]}"][1] == latest + 1, "it was not told anew before"


def test_what_an_older_service_has_is_told_anew(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say of which life it is."""
    reader = told.registry.registry.reader
    node = reader.node

    def older(uuid: str) -> Any:
        found = node(uuid)
        return found._replace(body={name: value for name, value in found.body.items() if name != "life"})

    monkeypatch.setattr(reader, "node", older)
    assert {seen(0), seen(1), REPORTS} <= told.begins_again().keys()
