"""A node whose power is cut, or whose cable is out, says no farewell: the registry's service sees it all the same, and in time."""

from __future__ import annotations

import contextlib
import socket
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
from netregistry.service.streams import OF_ONE
from runtime.errors import NetcommonError
from tests.support.bootstrap import VENV
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry
from tests.support.tls import free_port

GONE = 25.0  #: seconds after which a node counts as gone, as docs/registry.md says
ENDED = 45.0  #: and its connections have ended
HEARERS, NICS = OF_ONE, 2000
EACH = 600  #: KiB that a hearer takes who does not read: what it is to be told, some 400, and little more
OPTIONS = [{"name": "rate_in", "value": "100mbit"}, {"name": "firewall", "value": "protected"}]


@pytest.fixture
def registry(node: Node, tmp_path: Path) -> Iterator[Registry]:
    found = Registry(tmp_path / "registry", port=free_port())
    found.start()
    yield found
    found.kill()


def joined(registry: Registry, root: Path, *reader: str) -> Credentials:
    """Let a machine join, as a node or as a reader of that name."""
    root.mkdir()
    words = [registry.url, registry.token("reader", *reader)] if reader else [registry.url, registry.token("node"), "--name", "node1"]
    argv = [str(VENV / "bin/netcommon"), "--root", str(root), "registry", "join", *words]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    found = credentials.read(str(root / "var/lib/netcommon"), "reader" if reader else "node")
    assert found is not None
    return found


@contextlib.contextmanager
def stream(one: Credentials) -> Iterator[Iterator[dict[str, Any]]]:
    """Let the node's agent, another one each time, have a stream that has begun."""
    lines = Client(one.places(), seconds=20).watch(one.name, incarnation=str(uuid.uuid4()))
    with contextlib.closing(lines):
        assert any(line["event"] == "ready" for line in lines)
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


def test_hearers_that_do_not_read_take_little_and_are_cut_off(registry: Registry, tmp_path: Path) -> None:
    """As many as one reader may have, each with the whole cluster to be told; the cluster's node has its stream all the while."""
    one = joined(registry, tmp_path / "machine")
    reader = Path(joined(registry, tmp_path / "reader", "mallory").folder)
    context = credentials.trusting(str(reader / credentials.AUTHORITIES))
    context.load_cert_chain(reader / credentials.IDENTITY)
    with registry.client() as asked, contextlib.ExitStack() as stack:
        asked.change("PATCH", f"nodes/{one.name}", {"cluster": "c"})
        for begin in range(0, NICS, 20):
            bodies = [{"instance": f"vm{number}", "index": 0, "cluster": "c", "options": OPTIONS} for number in range(begin, begin + 20)]
            asked.change("POST", "batch", {"parts": [{"action": "nic.add", "body": body} for body in bodies]})

        def resident() -> int:
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{registry.pid}/status").read_text().splitlines())
            return int(lines["VmHWM"].split()[0])

        def streams() -> int:
            return int(asked.get("status").body["streams"])

        before = resident()
        for _ in range(HEARERS):
            plain = stack.enter_context(socket.socket())
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect(("127.0.0.1", registry.port))
            made = stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            made.sendall(f"GET /v1/watch?node={one.name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: streams() == HEARERS, 60, "all have begun")
        assert resident() - before < HEARERS * EACH
        with stream(one) as lines:
            wait_until(lambda: next(lines)["event"] == "ready" and streams() == 1, 60, "all are cut off but the node")
        assert resident() - before < HEARERS * EACH
