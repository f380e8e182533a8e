"""A cloud whose process was killed (kill -9) is as it was when another one goes on with it, and its registry is not written to."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting as wrong
from mockcloud.replaced.sources import Sources
from netagent.sync.driver import INCARNATION
from netcommon.host.simulated.events import Event
from tests.support import mock_nodes
from tests.support.killing_steps import opened

PAIR = ({"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"})
#: What is written as time goes by: signs of life, whose leases end while nobody runs.
BY_TIME = ("alive", "gone", "leader", "clock")


def populate(cloud: MockCloud) -> None:
    """Have a bit of everything, and let it come to rest."""
    nodes = [each.uuid for each in cloud.create(4)]
    cloud.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
    instances = Instances(cloud)
    for number in range(4):
        instances.create(f"web{number}", nodes[number], PAIR)
        instances.start(f"web{number}")
    instances.migrate("web0", nodes[1])
    instances.migrate("web1", nodes[2], fail=True)
    instances.change("web1", 0, {"isolated": "yes"})
    instances.update("web2", 0, {"link": "br1"})
    instances.crash("web3")
    cloud.scheduler.passes(1000.0)
    assert wrong(cloud) == []


def on_record(path: Path) -> Any:
    """Read a record, without which of several NICs has made a table that they share: the first that is put together again has."""
    found = json.loads(path.read_text())
    for operation in found["operations"]:
        operation.pop("now", None)
    return found


def picture(cloud: MockCloud) -> dict[str, Any]:
    """Give all that there is, of nodes whose agents run: hosts, records, files of instances, and the registry with its revisions."""
    found: dict[str, Any] = {}
    for uuid, node in cloud.nodes.items():
        host = {
            name: sorted(f"{key} {value}" for key, value in part.items()) if isinstance(part, dict) else sorted(map(repr, part))
            for name, part in mock_nodes.picture(node).items()
        }
        folder = Path(cloud.root, "servers", uuid)
        vms = {path.name: json.loads(path.read_text()) for path in (folder / "vms").glob("*")}
        records = {path.stem: on_record(path) for path in (folder / "run/netcommon/nics").glob("*.json")}
        found[uuid] = {**host, **vms, **records}
    store = cloud.registry.registry.store
    found["registry"] = {
        each.key: [each.revision, each.value.decode()] for each in store.list("").items if each.key.partition("/")[0] not in BY_TIME
    }
    return found


def test_all_is_as_it_was_and_nothing_is_written(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            cloud = MockCloud(str(tmp_path / "cloud"))
            populate(cloud)
            (tmp_path / "before").write_text(json.dumps(picture(cloud)))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    before = json.loads((tmp_path / "before").read_text())
    for seed in (2, 3):
        with opened(tmp_path / "cloud", seed) as cloud:
            cloud.start(1000.0)
            after = json.loads(json.dumps(picture(cloud)))
            parts = {(name, part) for name in before for part in before[name] | after[name]}
            other = {part: (before[part[0]].get(part[1]), after[part[0]].get(part[1])) for part in parts}
            differing = {part: both for part, both in other.items() if both[0] != both[1]}
            assert not differing, json.dumps(list(differing.items()), indent=1)
            assert before.keys() == after.keys() and wrong(cloud) == []


def test_an_agent_hears_nothing_of_how_its_host_was_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real host has stayed as it was: its agent begins where nothing happens, and nothing was done that anybody could read of."""
    with opened(tmp_path / "cloud") as cloud:
        populate(cloud)
    heard: list[Event] = []
    monkeypatch.setattr(Sources, "_pass", lambda _self, event: heard.append(event))
    with opened(tmp_path / "cloud") as cloud:
        cloud.start(10.0)
        assert wrong(cloud) == [] and heard == []
        assert [line for line in cloud.log if "AddRoute" in line or "SetAlias" in line] == []


def test_another_boot_of_a_node_tells_all_anew(tmp_path: Path) -> None:
    """Check that what was said in another life of the node does not count: its registry shows nothing of it as running until it is told."""
    with opened(tmp_path / "cloud") as cloud:
        populate(cloud)
        node = cloud.create(1)[0].uuid
        instances = Instances(cloud)
        instances.create("db1", node, PAIR)
        instances.start("db1")
        cloud.scheduler.passes(60.0)
        client = cloud.registry.client()
        life, before = client.get(f"nodes/{node}").body["life"], reported(cloud, node)
    (path,) = (tmp_path / "cloud/servers" / node / "run/netcommon/agent").glob(f"*/{INCARNATION}")
    path.unlink()
    with opened(tmp_path / "cloud") as cloud:
        cloud.start(60.0)
        client = cloud.registry.client()
        after = reported(cloud, node)
        assert client.get(f"nodes/{node}").body["life"] not in ("", life) and wrong(cloud) == []
        assert all(after[nic][0] == before[nic][0] and after[nic][1] > before[nic][1] for nic in before) and len(before) == 2


def reported(cloud: MockCloud, node: str) -> dict[str, tuple[Any, int]]:
    """Give what a node says of its NICs, and at which revision."""
    items = cloud.registry.client().all("reports", node=node)
    return {each["report"]["nic"]: (each["report"], int(each["revision"].rpartition(":")[2])) for each in items}
