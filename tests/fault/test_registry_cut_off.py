"""A node whose power is cut, or whose cable is out, says no farewell: the registry's service sees it all the same, and in time."""

from __future__ import annotations

import contextlib
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netregistry import credentials
from netregistry.client import Client, Problem
from netregistry.credentials import Credentials
from runtime.errors import NetcommonError
from tests.support.bootstrap import VENV
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry
from tests.support.tls import free_port

GONE = 25.0  #: seconds after which a node counts as gone, as docs/registry.md says
ENDED = 45.0  #: and its connections have ended


@pytest.fixture
def registry(node: Node, tmp_path: Path) -> Iterator[Registry]:
    found = Registry(tmp_path / "registry", port=free_port())
    found.start()
    yield found
    found.kill()


def joined(registry: Registry, root: Path) -> Credentials:
    root.mkdir()
    argv = [str(VENV / "bin/netcommon"), "--root", str(root), "registry", "join", registry.url, registry.token("node"), "--name", "node1"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    found = credentials.read(str(root / "var/lib/netcommon"), "node")
    assert found is not None
    return found


@contextlib.contextmanager
def stream(one: Credentials) -> Iterator[Iterator[dict[str, Any]]]:
    """Let the node's agent, another one each time, have a stream that has begun."""
    lines = Client(one.places(), seconds=20).watch(one.name, incarnation=str(uuid.uuid4()))
    with contextlib.closing(lines):
        assert next(lines)["event"] == "ready"
        yield lines


def connections(registry: Registry) -> list[str]:
    """Give the ports at the other ends of the connections that the service has."""
    argv = ["ss", "-Htn", "state", "established", f"( sport = :{registry.port} )"]
    found = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return [line.split()[3].rpartition(":")[2] for line in found.splitlines()]


def cut(registry: Registry) -> None:
    """Let nothing arrive any more at either side of the connections that there are; others are let through."""
    ports = ", ".join(connections(registry))
    rules = [f"tcp dport {registry.port} tcp sport {{ {ports} }} drop", f"tcp sport {registry.port} tcp dport {{ {ports} }} drop"]
    lines = ["table inet cable {", "chain cut {", "type filter hook input priority 0", *rules, "}", "}", ""]
    subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=True)


def test_a_node_that_is_cut_off_is_gone_and_may_come_back(registry: Registry, tmp_path: Path) -> None:
    one = joined(registry, tmp_path / "machine")
    with registry.client() as asked, contextlib.ExitStack() as stack:

        def alive() -> bool:
            return bool(asked.get(f"nodes/{one.name}").body["alive"])

        lines = stack.enter_context(stream(one))
        wait_until(alive, 10, "the node is alive")
        cut(registry)
        begun = time.monotonic()
        with pytest.raises(NetcommonError, match="cut off"):
            list(lines)
        assert time.monotonic() - begun < 15, "the node's side notices it too"
        with pytest.raises(Problem, match="another agent is alive"), stream(one):  # its lease lasts still
            pass
        wait_until(lambda: not alive(), GONE, "the node is gone")
        assert time.monotonic() - begun < GONE
        with stream(one):  # the machine has been started again
            assert alive()
        wait_until(lambda: not connections(registry), ENDED, "nothing is kept of who is gone")
        assert time.monotonic() - begun < ENDED


def test_a_cable_that_is_out_for_a_moment(registry: Registry, tmp_path: Path) -> None:
    """Nobody is gone by that, and the stream goes on."""
    one = joined(registry, tmp_path / "machine")
    with registry.client() as asked, stream(one) as lines:
        since = asked.get(f"nodes/{one.name}").body["since"]
        cut(registry)
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() > begun + 5, 10, "two signs of life are lost")
        subprocess.run(["nft", "delete", "table", "inet", "cable"], check=True)
        for _ in range(3):
            assert next(lines)["event"] == "ready"
        shown = asked.get(f"nodes/{one.name}").body
        assert shown["alive"] and shown["since"] == since
