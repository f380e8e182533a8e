"""The importer's service takes up a join, and another one, while it runs: nothing has to be restarted."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netcommon.cli.commands import registry_ganeti
from netcommon.cli.commands.registry_ganeti import follow
from netregistry import credentials
from netregistry.importer import watch
from netregistry.service.tls import Listening
from netregistry.stores.sqlite import SqliteStore
from tests.support.cli import Cli
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.netns import wait_until
from tests.support.service import Served, served
from tests.support.tls import NAMES, free_port


@contextlib.contextmanager
def registry(home: Cli) -> Iterator[tuple[Served, str]]:
    """Serve a registry that others reach by TLS; give it, and its URL."""
    (home.root / "run/netregistry").mkdir(parents=True)
    home("registry", "init")
    port, keys = free_port(), str(home.root / "var/lib/netregistry/authority")
    store = SqliteStore(str(home.root / "var/lib/netregistry/registry.sqlite"))
    with served(home.root / "run/netregistry", store=store, others=Listening((("127.0.0.1", port),), NAMES, keys)) as service:
        service.until(lambda: service.service.figures.until > 0)
        yield service, f"https://localhost:{port}"


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A Ganeti cluster's master, on which the service runs."""
    monkeypatch.setattr(watch, "LOOK", 1.0)
    reader, writer = os.pipe()
    monkeypatch.setattr(watch, "pipe_of_signals", lambda: reader)
    cli = Cli(tmp_path / "master")
    node = GanetiNode(cli.root)
    node.start()
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    node.write(cluster)
    running = threading.Thread(target=follow, args=(cli.app(),))
    running.start()
    yield cli
    os.write(writer, b".")
    running.join(20.0)
    node.stop()
    assert not running.is_alive()
    for each in (reader, writer):
        os.close(each)


def join(master: Cli, home: Cli, url: str) -> None:
    master("registry", "join", url, home("registry", "token", "create", "importer", CLUSTER).stdout.strip())


def imported(service: Served) -> bool:
    return bool(service.say("GET", "/v1/imports").body["items"])


def test_a_join_and_another_one_are_taken_up(master: Cli, tmp_path: Path) -> None:
    wait_until(lambda: any("no registry is served" in line for line in master.log.lines), 20)
    one, two = Cli(tmp_path / "one"), Cli(tmp_path / "two")
    with registry(one) as (service, url):
        join(master, one, url)
        wait_until(lambda: imported(service), 20)
    with registry(two) as (service, url):
        join(master, two, url)
        wait_until(lambda: imported(service), 20)


def test_a_certificate_of_an_hour_is_renewed_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the configuration once a minute, as Watcher.run does, by a clock that runs ahead."""
    home, master = Cli(tmp_path / "home"), Cli(tmp_path / "master")
    home.wall = master.wall = begun = time.time()
    master.root.mkdir()
    ahead = 0.0
    monkeypatch.setattr(registry_ganeti, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead, sleep=time.sleep))
    until: list[float] = []

    class Minutes:
        def __init__(self, _source: Any, importer: Callable[[str], Any], *_more: Any) -> None:
            self.importer = importer

        def run(self) -> None:
            nonlocal ahead
            while ahead < 3300.0:  # well before its end
                ahead += 60.0
                master.wall = begun + ahead
                self.importer(CLUSTER)
                found = credentials.read(master.app().paths.lib, "importer")
                assert found is not None
                until.append(found.until)
                if until[-1] > until[0]:
                    return

    monkeypatch.setattr(watch, "Watcher", Minutes)
    monkeypatch.setattr(watch, "pipe_of_signals", lambda: -1)
    with registry(home) as (_service, url):
        home("registry", "settings", "certificate_seconds=3600")
        join(master, home, url)
        follow(master.app())
    assert until[-1] > until[0]
