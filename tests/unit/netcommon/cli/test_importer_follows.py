"""The importer's service takes up a join, and another one, while it runs: nothing has to be restarted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.cli.commands.registry_ganeti import follow
from netregistry.importer import watch
from tests.support.cli import Cli
from tests.support.elsewhere import registry
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.netns import wait_until
from tests.support.service import Served


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
