"""Services over one etcd that others reach by TLS: what one of them lets in, refuses or signs holds at the other one, and after a move."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netregistry import credentials
from netregistry.client import Client, Problem
from netregistry.credentials import Credentials
from netregistry.model.certificate import SET_BACK
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import NetcommonError
from tests.support.bootstrap import VENV
from tests.support.etcd import Cluster
from tests.support.netns import wait_until
from tests.support.registry_process import Registry
from tests.support.tls import free_port

INCARNATION = "13264fb6-0667-415f-9a43-786dc01cbf24"


@pytest.fixture
def etcd(etcds: dict[int, Cluster]) -> Cluster:
    etcds[1].anew()
    return etcds[1]


@contextlib.contextmanager
def services(folder: Path, store: str, keys: bool = True) -> Iterator[tuple[Registry, Registry]]:
    """Let two run over one etcd. ``keys``: the second one has the authority's too, as the documents say."""
    first, second = (Registry(folder / name, store, free_port()) for name in ("one", "two"))
    first.command("init")
    if keys:
        shutil.copytree(first.authority, second.authority)
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        first.kill()
        second.kill()


class Machine:
    """Another machine: a folder of this one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir()

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [str(VENV / "bin/netcommon"), "--root", str(self._root), "registry", *words]
        return subprocess.run(argv, check=check, capture_output=True, text=True, timeout=60)

    def join(self, token: str, *at: Registry) -> Credentials:
        """Join at the first of these that lets it in."""
        role = token.partition(".")[0]
        self("join", ",".join(each.url for each in at), token, *(("--name", "node1") if role == "node" else ()))
        found = credentials.read(str(self._root / "var/lib/netcommon"), role)
        assert found is not None
        return found


def at(one: Credentials, *where: Registry) -> Client:
    return Client(one.places([each.url for each in where]), seconds=10.0)


def lets_in(one: Credentials, where: Registry) -> bool:
    with contextlib.suppress(NetcommonError), at(one, where) as asked:
        return bool(asked.get("nodes").body["items"])
    return False


def until(lines: Iterator[dict[str, Any]], event: str) -> dict[str, Any]:
    return next(line for line in lines if line["event"] == event)


def test_who_joins_at_one_service_is_let_in_at_the_other_until_it_is_revoked(etcd: Cluster, tmp_path: Path) -> None:
    with services(tmp_path, etcd.url) as (first, second):
        one = Machine(tmp_path / "node").join(first.token("node"), first, second)
        with at(one, second) as node:  # no second later than at the first
            assert [item["node"]["uuid"] for item in node.all("nodes")] == [one.name]
        with at(one, first, second) as node, second.client() as operator:
            stream = node.watch(one.name, incarnation=INCARNATION)
            ready = until(stream, "ready")
            first.kill()
            with pytest.raises(NetcommonError):
                list(stream)
            stream = node.watch(one.name, ready["revision"], INCARNATION)
            assert until(stream, "ready") and next(operator.all("nodes"))["alive"]
            first.start()
            wait_until(lambda: lets_in(one, first), 30, "the first one lets it in again")
            first.command("certificate", "revoke", "node", "node1")  # and the stream is at the second
            assert not [line for line in stream if line["event"] in ("enter", "change")], "its stream ends"
            for where in (first, second):
                with at(one, where) as asked, pytest.raises(Problem, match="revoked"):
                    asked.get("nodes")
        again = Machine(tmp_path / "again").join(second.token("reader", "ann"), second)
        assert lets_in(again, first) and lets_in(again, second)


def test_what_a_service_without_the_key_cannot_do_the_other_one_does(etcd: Cluster, tmp_path: Path) -> None:
    with services(tmp_path, etcd.url, keys=False) as (first, second):
        joined = Machine(tmp_path / "ann").join(second.token("reader", "ann"), second, first)
        with at(joined, second) as asked, pytest.raises(NetcommonError):
            asked.get("nodes")  # nobody is let in there: it has nothing to show who it is
        assert turned_away(second, "not-ready") > 0
        shutil.copytree(first.authority, second.authority)
        wait_until(lambda: answers(joined, second), 30, "it is let in once the key is there")
        first.command("authority", "rotate")  # whose key the second one has not: it signs nothing
        with at(joined, second, first) as asked:
            renewed = credentials.refresh(joined, asked, joined.since + 2 * SET_BACK)
        assert renewed.authority != joined.authority
        bob = Machine(tmp_path / "bob").join(first.token("reader", "bob"), second, first)
        wait_until(lambda: answers(bob, first), 30, "by the one that signs")
        shutil.copytree(first.authority, second.authority, dirs_exist_ok=True)
        first.command("authority", "retire", "--force", joined.authority)
        for one in (renewed, bob):
            wait_until(lambda one=one: answers(one, second), 30, "by the second one's new certificate")  # type: ignore[misc]


def test_an_operator_elsewhere_has_the_whole_of_an_etcd(etcd: Cluster, tmp_path: Path) -> None:
    """As of a file: nightly copies of another machine go on after a move, and it rehearses what it asks for."""
    with services(tmp_path, etcd.url) as (first, second):
        home, copy = first.file.parent, tmp_path / "copy.sqlite"
        elsewhere = Machine(tmp_path / "elsewhere")
        elsewhere.join(first.token("operator", "ann"), first, second)
        elsewhere("network", "add", "blue", "subnet=192.0.2.0/24")
        assert f"is copied to {copy}" in elsewhere("backup", str(copy)).stdout
        here = tmp_path / "here.sqlite"
        first.command("backup", str(here))
        assert networks(copy) == networks(here) == ["blue"] and not list(home.glob(".backup-*"))
        exported = tmp_path / "exported"
        elsewhere("export", str(exported))
        elsewhere("network", "delete", "blue")
        said = elsewhere("import", str(exported), "--dry-run").stdout
        assert "1 would be made" in said and "0 would be refused" in said
        refused = elsewhere("compact", "--dry-run", check=False)
        assert refused.returncode == 69 and "etcdctl defrag" in refused.stderr, "a copy's size says nothing of an etcd"
        assert "etcdctl defrag" in elsewhere("compact").stdout
        first.kill()
        left = home / ".backup-killed"
        left.mkdir()
        (left / "registry.sqlite").write_bytes(b"as large as the registry")
        first.start()
        assert not left.exists(), "nothing stays of a copy that a service was killed at"


def networks(file: Path) -> list[str]:
    """Give the names of networks in a copy."""
    with SqliteStore(str(file)) as store:
        return [json.loads(item.value)["name"] for item in store.list("networks/").items]


def turned_away(where: Registry, reason: str) -> int:
    """Give how many were not let in for a reason."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.connect(str(where.socket))
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f'netregistry_turned_away_total{{reason="{reason}"}}')]
    return int(line.split()[-1])


def answers(one: Credentials, where: Registry) -> bool:
    """Tell whether somebody is let in, of a registry without nodes."""
    with contextlib.suppress(NetcommonError), at(one, where) as asked:
        return not asked.get("nodes").body["items"]
    return False


def test_certificates_and_tokens_outlive_a_move_to_an_etcd(etcd: Cluster, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "one", port=free_port())
    registry.start()
    one = Machine(tmp_path / "node").join(registry.token("node"), registry)
    gone = Machine(tmp_path / "gone").join(registry.token("reader", "gone"), registry)
    registry.command("certificate", "revoke", "reader", "gone")
    token = registry.token("reader", "ann")
    with at(one, registry) as node:
        stream = node.watch(one.name, incarnation=INCARNATION)
        before = until(stream, "ready")["revision"]
        registry.signal(signal.SIGTERM)
        list(stream)
    registry.ended()
    registry.command("move", "--to", etcd.url)
    registry.kept_by(etcd.url)
    registry.start()
    try:
        wait_until(lambda: lets_in(one, registry), 30, "it is let in")
        with at(one, registry) as node:
            with pytest.raises(Problem) as another:
                next(node.watch(one.name, before, INCARNATION))
            assert another.value.kind == "epoch"
            assert until(node.watch(one.name, incarnation=INCARNATION), "ready")["revision"].partition(":")[0] != before.partition(":")[0]
        with at(gone, registry) as asked, pytest.raises(Problem, match="revoked"):
            asked.get("nodes")
        assert lets_in(Machine(tmp_path / "ann").join(token, registry), registry)
    finally:
        registry.kill()
