"""An etcd that is compacted while somebody is away: what he knows in the end is equal to a list, at a service, on a stream and on a node.

The last thing done before is a deletion, at the very revision of the compaction: etcd's own watch from there on is told nothing of it.
https://github.com/etcd-io/etcd/issues/18089
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netregistry.client import Client, Problem
from runtime import wanted
from runtime.errors import TryAgain
from tests.support.etcd import PREFIX, Cluster, text
from tests.support.netns import wait_until
from tests.support.registry import NODES
from tests.support.registry_process import Registry
from tests.support.sim import Sim
from tests.support.sync_agent import Agent

CLUSTER = "c.example.com"
INCARNATION = "13264fb6-0667-415f-9a43-786dc01cbf24"


@pytest.fixture
def etcd(etcds: dict[int, Cluster]) -> Cluster:
    etcds[1].anew()
    return etcds[1]


class Two:
    """Two services over one etcd. Who is away is so at the first one; what happens meanwhile happens at the second one."""

    def __init__(self, folder: Path, etcd: Cluster) -> None:
        self.etcd = etcd
        self.first, self.second = (Registry(folder / name, etcd.url) for name in ("first", "second"))
        self.first.command("init")
        self.first.start()
        self.second.start()
        self.nics: list[str] = []
        self.gone = 0  #: the revision of the latest compaction
        with self.second.client(f"node:{NODES[0]}") as node, self.second.client() as operator:
            node.change("POST", "nodes", {"uuid": NODES[0], "name": "node1"})
            operator.change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
        for number in range(6):
            self.add(number)

    def add(self, number: int) -> None:
        """Let the cluster have one more NIC, with an option of the operator's: each node of it is told."""
        with self.second.client(f"importer:{CLUSTER}") as importer, self.second.client() as operator:
            uuid = importer.change("POST", "nics", {"name": f"n{number}", "cluster": CLUSTER}).body["uuid"]
            operator.change("PATCH", f"nics/{uuid}", {"options": [{"name": "rate_in", "value": f"{number + 1}mbit"}]})
        self.nics.append(uuid)

    def goes_on(self) -> None:
        """Let NICs come, change and go, the last one as the last thing; then nothing of all that is remembered by etcd."""
        self.add(len(self.nics))
        with self.second.client(f"importer:{CLUSTER}") as importer, self.second.client() as operator:
            operator.change("PATCH", f"nics/{self.nics[0]}", {"options": [{"name": "rate_in", "value": "99mbit"}]})
            operator.change("PATCH", f"nics/{self.nics[1]}", {"options": []})
            for uuid in self.nics[2:5]:
                importer.change("DELETE", f"nics/{uuid}")
        self.compact(self.nics[4])

    def compact(self, uuid: str) -> None:
        """Let etcd forget all up to the deletion of a NIC, that among it."""
        gone = self.gone = int(self.etcd.ask("kv/range", {"key": text(b"a")})["header"]["revision"])
        key = text(PREFIX + f"nics/{uuid}".encode())
        before = self.etcd.ask("kv/range", {"key": key, "revision": str(gone - 1)})
        assert before["kvs"] and "kvs" not in self.etcd.ask("kv/range", {"key": key}), "it is the last thing that was done"
        assert "error" not in self.etcd.ask("kv/compaction", {"revision": str(gone)})

    def listed(self) -> dict[str, Any]:
        """Give the options of all NICs that have any, as etcd has them: by no code of the registry's."""
        found = {key.removeprefix("nics/"): json.loads(value) for key, value in self.etcd.keys().items() if key.startswith("nics/")}
        return {uuid: {each["name"]: each["value"] for each in nic["options"]} for uuid, nic in found.items() if nic.get("options")}

    def shown(self, registry: Registry) -> dict[str, Any]:
        with registry.client() as asked:
            found = {item["nic"]["uuid"]: item["nic"]["options"] for item in asked.all("nics")}
        return {uuid: {each["name"]: each["value"] for each in options} for uuid, options in found.items() if options}

    def close(self) -> None:
        self.first.signal(signal.SIGCONT)
        self.first.kill()
        self.second.kill()


@pytest.fixture
def two(etcd: Cluster, tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path, etcd)
    yield made
    made.close()


#: What happens at the first service while somebody is away, and what it can then tell him.
AWAY = {"it goes on": "the same", "it begins again": "anew", "it is away itself": "anew"}


def happens(two: Two, what: str) -> None:
    """Let the first service be away, or not, while NICs come and go and etcd is compacted."""
    if what == "it is away itself":
        two.first.signal(signal.SIGSTOP)
        two.etcd.members[0].kill()  # with what it has sent and nobody has read
        two.etcd.start()
        with two.second.client() as asked:
            wait_until(lambda: answers(asked), 30, "the second service goes on")
        two.goes_on()
        two.first.signal(signal.SIGCONT)
        return
    if what == "it begins again":
        two.first.kill()
    two.goes_on()
    if what == "it begins again":
        two.first.start()


def answers(asked: Client) -> bool:
    try:
        asked.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"}, dry_run=True)
    except (Problem, TryAgain):
        return False
    return True


def heard(asked: Client, known: dict[str, Any], start: str = "") -> str:
    """Take in a stream up to where all was told; give that. Raises Problem."""
    stream = asked.watch(NODES[0], start)
    try:
        for line in stream:
            if line["event"] == "ready":
                return str(line["revision"])
            if line["event"] == "leave":
                known.pop(line["uuid"], None)
            elif line["what"] == "options":
                known[line["uuid"]] = {each["name"]: each["value"] for each in line["value"]}
    finally:
        stream.close()
    raise AssertionError("it has ended")


@pytest.mark.parametrize("what", AWAY)
def test_a_stream_of_who_was_away_is_equal_to_a_list(two: Two, what: str) -> None:
    known: dict[str, Any] = {}
    with two.first.client() as asked:
        start = heard(asked, known)
        assert known == two.listed() and len(known) == 6
        happens(two, what)
        wait_until(lambda: two.shown(two.first) == two.listed(), 30, "the service's own picture is equal")
        try:
            how = "the same"
            while int((start := heard(asked, known, start)).partition(":")[2]) < two.gone:
                pass
        except Problem as refused:
            assert refused.kind == "compacted", refused
            how, known = "anew", {}
            heard(asked, known)
        assert how == AWAY[what]
        assert known == two.listed() == two.shown(two.second) and len(known) == 3


@pytest.mark.parametrize("what", AWAY)
def test_what_lies_on_the_disk_of_a_node_is_equal_to_a_list(two: Two, tmp_path: Path, what: str) -> None:
    """The agent is connected with the first service; what is wanted lies on its disk, for guests that migrate."""
    sim = Sim(str(tmp_path / "node"))
    agent = Agent(sim, str(two.first.socket))

    def equal() -> bool:
        kept = {uuid: {each.option: each.value for each in one.registry} for uuid, one in wanted.all_of(sim.paths, []).items()}
        return {uuid: options for uuid, options in kept.items() if options} == two.listed()

    with agent.running() as sync:
        agent.until(equal, "what is wanted lies on the disk")
        happens(two, what)
        agent.until(lambda: sync.machine.inbox.complete and equal(), "it is equal again")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        assert len(two.listed()) == 3 and equal()
