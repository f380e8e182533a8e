"""A registry on another machine, all of it as it runs: the service as a process with its settings, the command line, and the agent."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.observe.control import ask
from netcommon.host.linux.host import LinuxHost
from runtime.paths import Paths
from tests.support.agent import agent
from tests.support.bootstrap import VENV
from tests.support.etcd import Cluster
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry
from tests.support.tls import free_port

PROGRAM = str(VENV / "bin/netcommon")


@pytest.fixture
def home(node: Node, tmp_path: Path) -> Iterator[Registry]:
    """Give the registry's machine: a folder of this one."""
    run("ip", "link", "set", "lo", "up")
    registry = Registry(tmp_path / "home", port=free_port())
    registry.start()
    try:
        yield registry
    finally:
        registry.kill()


def status() -> dict[str, Any]:
    host = LinuxHost(Paths(), clock=time.monotonic)
    try:
        found: dict[str, Any] = ask(Paths().state, host.identity().netns)["agent"]
        return found
    finally:
        host.close()


def joined(home: Registry, *words: str) -> str:
    return run(PROGRAM, "registry", "join", home.url, home.token(*words), *(() if words[1:] else ("--name", "node0")))


def in_step() -> bool:
    return status().get("registry") == "in step"


def nodes(home: Registry) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(home.command("node", "list", "--json").stdout)["items"]
    return found


def test_a_node_joins_is_revoked_and_joins_again(home: Registry) -> None:
    joined(home, "node")
    with agent(settings="[registry]\ncompare_delay = 1\n"):
        wait_until(in_step, 30, "the node is told all")
        (found,) = nodes(home)
        assert (found["node"]["name"], found["alive"]) == ("node0", True)
        assert "node0" in run(PROGRAM, "registry", "node", "list")  # by the node's own certificate
        home.command("certificate", "revoke", "node", "node0")
        wait_until(lambda: "revoked" in status().get("registry", ""), 30, "the node knows why")
        refused = subprocess.run([PROGRAM, "registry", "node", "list"], capture_output=True, text=True, check=False)
        assert refused.returncode == 69 and "netcommon registry join URL TOKEN" in refused.stderr
        joined(home, "node", "node0")
        wait_until(in_step, 30, "it goes on")
        home.command("authority", "rotate")
        wait_until(in_step, 30, "nobody is cut off by that")


def test_a_node_goes_on_where_its_registry_was_moved_to_an_etcd(home: Registry, tmp_path: Path) -> None:
    """With the certificate that it has, and the address: in another epoch, of which it is told all."""
    joined(home, "node")
    with Cluster(tmp_path / "etcd", 1) as etcd, agent(settings="[registry]\ncompare_delay = 1\n"):
        wait_until(in_step, 30, "the node is told all")
        before = nodes(home)[0]["revision"].partition(":")[0]
        home.signal(signal.SIGTERM)
        home.ended()
        home.command("move", "--to", etcd.url)
        home.kept_by(etcd.url)
        home.start()
        wait_until(lambda: nodes(home)[0]["reported"] > 0 and in_step(), 60, "it goes on")
        (found,) = nodes(home)
        assert found["alive"] and found["revision"].partition(":")[0] != before
