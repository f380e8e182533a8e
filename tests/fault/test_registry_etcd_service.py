"""Services over one etcd: one leads, each knows what the other has done, and a majority that is away is told in time."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netregistry import moving, transfer
from netregistry.client import Client, Problem
from netregistry.service.registry import LEADING
from netregistry.stores.base import Put, Store
from runtime.errors import NetcommonError
from tests.support.etcd import Cluster, stopped
from tests.support.netns import wait_until
from tests.support.registry import NODES
from tests.support.registry_process import Registry
from tests.support.sample import sample

TOLD = 5.0  #: seconds within which it is told that there is no majority


@pytest.fixture
def three(etcds: dict[int, Cluster]) -> Cluster:
    etcds[3].anew()
    return etcds[3]


@pytest.fixture
def one(etcds: dict[int, Cluster]) -> Cluster:
    etcds[1].anew()
    return etcds[1]


@contextlib.contextmanager
def running(folder: Path, store: str, *names: str) -> Iterator[list[Registry]]:
    """Let services run over one etcd; the first one has made the registry."""
    made = [Registry(folder / name, store) for name in names]
    made[0].command("init")
    try:
        for registry in made:
            registry.start()
        yield made
    finally:
        for registry in made:
            registry.kill()


def leads(registry: Registry) -> bool:
    with contextlib.suppress(NetcommonError), registry.client() as asked:
        return bool(asked.get("status").body["leader"])
    return False


def test_two_services_over_one_etcd_and_one_leads(three: Cluster, tmp_path: Path) -> None:
    with running(tmp_path, three.url, "one", "two") as registries:
        wait_until(lambda: sum(map(leads, registries)) == 1, 30, "one leads")
        leader = next(registry for registry in registries if leads(registry))
        other = next(registry for registry in registries if registry is not leader)
        with leader.client() as here, other.client() as there:
            blue = here.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/28"}).body["uuid"]
            nics = [
                asked.change("POST", "nics", {"network": blue, "allocate": ["ipv4"]}).body["ip"]
                for _ in range(6)
                for asked in (here, there)
            ]
            assert len(set(nics)) == 12, "what either gives out the other knows at once"
            with pytest.raises(Problem) as full:
                for asked in (here, there, here):
                    asked.change("POST", "nics", {"network": blue, "allocate": ["ipv4"]})
            assert full.value.kind == "full"
        leader.kill()
        wait_until(lambda: leads(other), 60, "the other leads")
        leader.start()
        assert not leads(leader)
        with leader.client() as here, other.client() as there:
            assert len(list(here.all("nics"))) == 14 and here.get("").body == there.get("").body


def test_a_service_that_was_killed_leads_again_at_once(one: Cluster, tmp_path: Path) -> None:
    """Lead again at once after a kill: nobody else can have led under the service's name. Where another service leads, that one goes on."""
    with running(tmp_path, one.url, "one", "two") as (first, second):
        wait_until(lambda: leads(first), 30, "the first one leads")
        second.kill()
        for _ in range(2):
            first.kill()
            first.start()
            wait_until(lambda: leads(first), LEADING / 2, "it leads again")
        second.start()
        second.kill()
        second.start()
        with first.client() as asked, second.client() as other:
            assert asked.get("status").body["leader"] and not other.get("status").body["leader"]


def test_a_node_goes_on_at_the_other_service(one: Cluster, tmp_path: Path) -> None:
    """Its stream at one service, then at the other one: the same lines from where it was, and it is alive all the time."""
    incarnation = "13264fb6-0667-415f-9a43-786dc01cbf24"
    with running(tmp_path, one.url, "one", "two") as (first, second):
        with first.client(f"node:{NODES[0]}") as node, first.client() as operator:
            node.change("POST", "nodes", {"uuid": NODES[0], "name": "node1"})
            stream = node.watch(NODES[0], incarnation=incarnation)
            ready = next(line for line in stream if line["event"] == "ready")
            nic = operator.change("POST", "nics", {}).body["uuid"]
        first.kill()
        with second.client(f"node:{NODES[0]}") as node, second.client() as operator:
            again = node.watch(NODES[0], ready["revision"], incarnation)
            assert next(again)["event"] in ("enter", "ready")
            (shown,) = operator.all("nodes")
            assert shown["alive"] and operator.get(f"nics/{nic}").body["nic"]["uuid"] == nic
            again.close()


def test_no_majority_is_answered_in_time_and_looking_goes_on(three: Cluster, tmp_path: Path) -> None:
    with running(tmp_path, three.url, "one") as (registry,), registry.client() as asked:
        asked.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"})
        with stopped(*three.members[:2]):
            for _ in range(3):
                begun = time.monotonic()
                with pytest.raises(Problem) as refused:
                    asked.change("POST", "networks", {"name": "green", "subnet": "198.51.100.0/24"})
                assert refused.value.code == 503 and time.monotonic() - begun <= TOLD
                begun = time.monotonic()
                names, age = looked_at(registry)
                assert names in (["blue"], ["blue", "green"]) and time.monotonic() - begun <= TOLD
                assert 1 <= age <= 60, "it says how old it is"
                for path, status, words in (("/networks", 200, "The store has not answered for "), ("/history", 503, "503: ")):
                    begun = time.monotonic()
                    said = page_of(registry, path)
                    assert said.status == status and words in said.text and time.monotonic() - begun <= TOLD, said

        def works() -> bool:
            with contextlib.suppress(Problem):
                return asked.change("POST", "networks", {"name": "red", "subnet": "203.0.113.0/24"}).revision != ""
            return False

        wait_until(works, 30, "it goes on by itself")
        assert looked_at(registry)[1] == 0


class Answer(NamedTuple):
    """An answer of the service's. ``age``: for how many seconds nobody knows whether it is so: the header Age."""

    status: int
    text: str
    age: int


def page_of(registry: Registry, path: str) -> Answer:
    """Ask as a browser does."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.connect(str(registry.socket))
        connection.request("GET", path, headers={"Accept": "text/html"})
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(), int(response.headers.get("Age", "0")))


def looked_at(registry: Registry) -> tuple[list[str], int]:
    """Give the names of the networks, and their age."""
    said = page_of(registry, "/v1/networks")
    return [item["network"]["name"] for item in json.loads(said.text)["items"]], said.age


# -- moved from a file


def filled(registry: Registry) -> dict[str, Any]:
    """Let a registry in a file hold something of everything; give what it shows."""
    registry.start()
    with registry.client() as asked, registry.client(f"node:{NODES[0]}") as node:
        blue = asked.change("POST", "networks", {"name": "blue", "subnet": "10.0.0.0/16"}).body["uuid"]
        for _ in range(6):
            parts = [{"action": "nic.add", "body": {"network": blue, "allocate": ["ipv4"]}} for _ in range(25)]
            asked.change("POST", "batch", {"parts": parts})
        asked.change("DELETE", f"nics/{next(iter(asked.all('nics')))['nic']['uuid']}")
        node.change("POST", "nodes", {"uuid": NODES[0], "name": "node1"})
        node.change("POST", f"nodes/{NODES[0]}/heartbeat", {"incarnation": "13264fb6-0667-415f-9a43-786dc01cbf24"})
        found = shown(asked)
    registry.signal(signal.SIGTERM)
    registry.ended()
    return found


def shown(asked: Client) -> dict[str, Any]:
    """Give what a registry shows, but for revisions, which each epoch has of its own."""
    kinds = {"networks": "network", "nics": "nic", "nodes": "node", "history": "entry", "claims": "claim"}
    return {place: [item[kind] for item in asked.all(place)] for place, kind in kinds.items()}


def keys_of(file: Path) -> dict[str, bytes]:
    """Give what a file holds, read by SQLite itself."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return dict(database.execute("SELECT key, value FROM items WHERE key != 'leader'").fetchall())


def test_a_registry_is_moved_from_its_file(three: Cluster, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "one")
    before = filled(registry)
    file = tmp_path / "one/var/lib/netregistry/registry.sqlite"
    held = keys_of(file)
    registry.start()
    refused = registry.command("move", "--to", three.url, check=False)
    assert refused.returncode == 75 and "systemctl stop netcommon-registry" in refused.stderr
    registry.kill()
    said = registry.command("move", "--to", three.url).stdout
    assert f"{len(held)} keys" in said and three.url in said
    assert three.keys() == held and not file.exists() and keys_of(Path(f"{file}.moved")) == held
    wrong = registry.command("serve", check=False)
    assert wrong.returncode == 69 and f"was moved to '{three.url}'" in wrong.stderr
    assert registry.command("move", "--to", three.url).stdout == said, "what was done is told again"
    registry.kept_by(three.url)
    registry.start()
    with registry.client() as asked:
        assert shown(asked) == before
        status = asked.get("status").body
        assert status["epoch"] in said and status["alive"] == 1 and status["waiting"] == [NODES[0]], "who was alive is heard first"
        with pytest.raises(Problem) as waits:
            asked.change("POST", "nics", {"network": before["networks"][0]["uuid"], "allocate": ["ipv4"]})
        assert waits.value.kind == "waiting"
    registry.kill()


@pytest.mark.parametrize("ended", sample([0.3, 0.5, 0.7, 0.9, 1.1], 3))
def test_a_move_that_was_killed_is_begun_again(one: Cluster, tmp_path: Path, ended: float) -> None:
    """Kill it when etcd holds this part of what is to be moved, or (1.1) as soon as it says that it is whole."""
    registry = Registry(tmp_path / "one")
    filled(registry)
    file = tmp_path / "one/var/lib/netregistry/registry.sqlite"
    held = keys_of(file)
    moving = subprocess.Popen(registry.argv("move", "--to", one.url), stdout=subprocess.DEVNULL)

    def reached() -> bool:
        if ended > 1:
            return b'"whole": true' in one.said() or moving.poll() is not None
        return len(one.keys()) >= len(held) * ended or moving.poll() is not None

    wait_until(reached, 30, "it is so far")
    os.kill(moving.pid, signal.SIGKILL)
    moving.wait()
    if b'"whole": false' in one.said():
        registry.kept_by(one.url)
        refused = registry.command("serve", check=False)
        assert refused.returncode == 75 and "is not finished" in refused.stderr, "no part is served, and whoever is at it may finish it"
        assert keys_of(file) == held
        (tmp_path / "one/etc/netcommon/config.toml").unlink()
    registry.command("move", "--to", one.url)
    assert one.keys() == held and not file.exists()


def test_of_two_copies_at_once_no_part_is_said_to_be_whole(one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another copy begins while a move compares, and is ended after its first commit."""
    registry = Registry(tmp_path / "one")
    filled(registry)
    file = tmp_path / "one/var/lib/netregistry/registry.sqlite"
    copy, compared = tmp_path / "copy.sqlite", transfer.compared
    held = keys_of(file)
    registry.command("backup", str(copy))

    def another_begins(source: Store, target: Store) -> None:
        compared(source, target)
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(transfer, "MOST", 10)
            patch.setattr(transfer, "_written", ends_after_the_first())
            transfer.bring_back(str(copy), one.url, str(tmp_path / "kept.sqlite"))

    monkeypatch.setattr(transfer, "compared", another_begins)
    with pytest.raises(NetcommonError, match="somebody else"):
        moving.move(str(file), one.url)
    assert 0 < len(one.keys()) < len(held) and b'"whole": false' in one.said()
    assert keys_of(file) == held
    monkeypatch.undo()
    registry.command("move", "--to", one.url)
    assert one.keys() == held and not file.exists()


def ends_after_the_first() -> Callable[[Store, list[Put]], None]:
    """Give what writes one commit of a copy, and ends it before the next."""
    written, ended = transfer._written, iter((False, True))

    def act(target: Store, batch: list[Put]) -> None:
        if next(ended):
            raise KeyboardInterrupt
        written(target, batch)

    return act


def test_what_is_there_is_not_written_over(one: Cluster, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "one")
    filled(registry)
    one.ask("kv/put", {"key": "YQ==", "value": "YQ=="})
    for words in (("move", "--to", one.url), ("serve", "--store", one.url)):
        refused = registry.command(*words, check=False)
        assert refused.returncode == 69, refused.stderr
    assert one.keys() == {} and one.said() == b""
    registry.kept_by(one.url)
    assert registry.command("init", check=False).returncode == 69
    one.clear()
    refused = registry.command("init", check=False)  # it would be an empty one beside the file, which is one
    assert refused.returncode == 69 and one.keys() == {}
    Registry(tmp_path / "another", one.url).command("init")
    assert registry.command("move", "--to", one.url, check=False).returncode == 69
    (tmp_path / "one/etc/netcommon/config.toml").unlink()
    refused = registry.command("move", "--to", one.url, check=False)
    assert refused.returncode == 69 and "holds a registry already" in refused.stderr


def test_backup_restore_and_rehearsal(one: Cluster, tmp_path: Path) -> None:
    """A backup of an etcd is a file like any other. Restored, it is another epoch: a service that has not heard of it changes nothing."""
    registry = Registry(tmp_path / "one")
    before = filled(registry)
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    registry.start()
    copy, old = tmp_path / "copy.sqlite", one.said()
    with registry.client() as asked:
        held = one.keys()
        registry.command("backup", str(copy))
        assert {key: value for key, value in held.items() if key != "leader"} == keys_of(copy)
        assert registry.command("backup", str(copy), check=False).returncode == 69
        exported = tmp_path / "exported"
        registry.command("export", str(exported))
        assert "0 would be refused" in registry.command("import", str(exported), "--dry-run").stdout
        assert registry.command("compact", "--dry-run", check=False).returncode == 69
        assert "etcdctl defrag" in registry.command("compact").stdout
        asked.change("POST", "networks", {"name": "late", "subnet": "192.0.2.0/24"})
        registry.command("restore", str(copy))
        assert one.said() != old
    registry.ended(75)
    assert "another than it was" in registry.log()
    replaced = keys_of(tmp_path / "one/var/lib/netregistry/registry.sqlite.replaced")
    assert any(b'"late"' in value for value in replaced.values())
    registry.start()
    with registry.client() as asked:
        assert shown(asked) == before
    registry.kill()


def test_an_etcd_that_begins_to_ask_who_it_is_and_ends_it(tmp_path: Path) -> None:
    """Changes are refused with what helps; what is looked at is what was known last; and all goes on by itself."""
    with Cluster(tmp_path / "etcd", 1) as cluster, running(tmp_path, cluster.url, "one") as (registry,), registry.client() as asked:
        asked.change("POST", "networks", {"name": "first", "subnet": "192.0.2.0/24"})
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            assert "error" not in cluster.ask(f"auth/{path}", body)
        with pytest.raises(Problem, match="add user=NAME") as refused:
            asked.change("POST", "networks", {"name": "second", "subnet": "198.51.100.0/24"})
        assert refused.value.code == 503
        assert [each["network"]["name"] for each in asked.all("networks")] == ["first"]
        token = str(cluster.ask("auth/authenticate", {"name": "root", "password": "secret"})["token"])
        assert "error" not in cluster.ask("auth/disable", {}, token=token)

        def goes_on() -> bool:
            with contextlib.suppress(NetcommonError):
                asked.change("POST", "networks", {"name": "third", "subnet": "203.0.113.0/24"})
                return True
            return False

        wait_until(goes_on, 30, "changes are taken again")
        assert leads(registry)


def test_a_leader_that_stands_still_past_its_lease_leads_no_more(one: Cluster, tmp_path: Path) -> None:
    """SIGSTOP: another one leads meanwhile; when it goes on, it does so as one of those who follow."""
    with running(tmp_path, one.url, "first", "second") as (first, second):
        wait_until(lambda: leads(first) or leads(second), 30, "one leads")
        still, other = (first, second) if leads(first) else (second, first)
        still.signal(signal.SIGSTOP)
        try:
            wait_until(lambda: leads(other), 40, "the other one leads")
            with other.client() as asked:
                asked.change("POST", "networks", {"name": "meanwhile", "subnet": "192.0.2.0/24"})
        finally:
            still.signal(signal.SIGCONT)
        wait_until(lambda: not leads(still), 20, "it leads no more")
        assert leads(other)
        with still.client() as asked:
            assert [each["network"]["name"] for each in asked.all("networks")] == ["meanwhile"]
            asked.change("POST", "networks", {"name": "after", "subnet": "198.51.100.0/24"})


def test_two_moves_at_once_and_one_is_done(one: Cluster, tmp_path: Path) -> None:
    """Move one file, and two files to one etcd: what is not done is refused, and its file stays the registry."""
    made = [Registry(tmp_path / name) for name in ("first", "second")]
    for registry in made:
        filled(registry)
    argv = [made[0].argv("move", "--to", one.url)] * 2 + [made[1].argv("move", "--to", one.url)]
    moves = [subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for each in argv]
    statuses = [each.wait(120) for each in moves]
    assert set(statuses) <= {0, 69, 75}, statuses
    if b'"whole": true' not in one.said():  # both have stopped each other
        made[0].command("move", "--to", one.url)
    gone = [registry for registry in made if not registry.file.exists()]
    assert len(gone) == 1
    assert one.keys() == keys_of(Path(f"{gone[0].file}.moved"))
    (left,) = (registry for registry in made if registry.file.exists())
    left.start()
    left.kill()


def test_nodes_of_a_service_that_stood_still_are_not_taken_for_gone(one: Cluster, tmp_path: Path) -> None:
    """Etcd ends their leases meanwhile: nobody could keep them."""

    def lives() -> bool:
        return f"alive/{NODES[0]}" in set(one.keys())

    with running(tmp_path, one.url, "one") as (registry,), registry.client(f"node:{NODES[0]}") as node:
        node.change("POST", "nodes", {"uuid": NODES[0], "name": "node1"})
        stream = node.watch(NODES[0], incarnation="13264fb6-0667-415f-9a43-786dc01cbf24")
        assert any(line["event"] == "ready" for line in stream)
        wait_until(lambda: leads(registry) and lives(), 30, "it leads, and the node is alive")
        registry.signal(signal.SIGSTOP)
        try:
            wait_until(lambda: not lives(), 40, "the node's lease has ended")
        finally:
            registry.signal(signal.SIGCONT)
        wait_until(lambda: lives() and leads(registry), 30, "the node is alive again")
        stream.close()
        one.history(tmp_path / "history", one.members[0])
        with contextlib.closing(sqlite3.connect(tmp_path / "history")) as database:
            assert database.execute("SELECT count(*) FROM versions WHERE key LIKE 'gone/%'").fetchone() == (0,)
