"""A registry on another machine, all of it as it runs: the service as a process with its settings, the command line, and the agent."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netagent.observe.control import ask
from netcommon.host.linux.host import LinuxHost
from runtime.paths import Paths
from tests.support.agent import agent
from tests.support.bootstrap import VENV
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry
from tests.support.tls import free_port

PROGRAM = str(VENV / "bin/netcommon")


class Home(NamedTuple):
    """The registry's machine: a folder of this one."""

    root: Path
    url: str

    def __call__(self, *words: str) -> str:
        return run(PROGRAM, "--root", str(self.root), "registry", *words)

    def token(self, *words: str) -> str:
        return str(json.loads(self("token", "create", *words, "--json"))["value"]["token"])


@pytest.fixture
def home(node: Node, tmp_path: Path) -> Iterator[Home]:
    run("ip", "link", "set", "lo", "up")
    port, settings = free_port(), tmp_path / "etc/netcommon/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[registry]\nlisten = ["127.0.0.1:{port}", "[::1]:{port}"]\nnames = ["localhost"]\n')
    registry = Registry(tmp_path)
    registry.start()
    try:
        yield Home(tmp_path, f"https://localhost:{port}")
    finally:
        registry.kill()


def status() -> dict[str, Any]:
    host = LinuxHost(Paths(), clock=time.monotonic)
    try:
        found: dict[str, Any] = ask(Paths().state, host.identity().netns)["agent"]
        return found
    finally:
        host.close()


def test_a_node_joins_is_revoked_and_joins_again(home: Home) -> None:
    run(PROGRAM, "registry", "join", home.url, home.token("node"), "--name", "node0")
    with agent(settings="[registry]\ncompare_delay = 1\n"):
        wait_until(lambda: status().get("registry") == "in step", 30, "the node is told all")
        (found,) = json.loads(home("node", "list", "--json"))["items"]
        assert (found["node"]["name"], found["alive"]) == ("node0", True)
        assert "node0" in run(PROGRAM, "registry", "node", "list")  # by the node's own certificate
        home("certificate", "revoke", "node", "node0")
        wait_until(lambda: "revoked" in status().get("registry", ""), 30, "the node knows why")
        refused = subprocess.run([PROGRAM, "registry", "node", "list"], capture_output=True, text=True, check=False)
        assert refused.returncode == 69 and "netcommon registry join URL TOKEN" in refused.stderr
        run(PROGRAM, "registry", "join", home.url, home.token("node", "node0"))
        wait_until(lambda: status().get("registry") == "in step", 30, "it goes on")
        home("authority", "rotate")
        wait_until(lambda: status().get("registry") == "in step", 30, "nobody is cut off by that")
