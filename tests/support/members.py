"""Let nodes of a test be members of a registry that is served by a process of its own, each with an agent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from runtime.membership import Membership, write
from runtime.paths import Paths
from tests.support.agent import Agent
from tests.support.registry import NODES
from tests.support.registry_process import Registry

CLUSTER = "gnt.example.com"  #: of which they are


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Registry]:
    """Serve a registry below a folder, which the test may kill and start again."""
    made = Registry(folder)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def joins(registry: Registry, number: int) -> None:
    """Let the calling thread's node be one of the registry's, of the cluster."""
    registry.here()
    with registry.client(f"node:{NODES[number]}") as asked:
        asked.change("POST", "nodes", {"uuid": NODES[number], "name": f"node{number}"})
    with registry.client() as asked:
        asked.change("PATCH", f"nodes/{NODES[number]}", {"cluster": CLUSTER})
    write(Paths(), Membership(NODES[number], f"node{number}"))


def started(settings: str) -> Agent:
    """Start an agent on the calling thread's node."""
    Path("/etc/netcommon/config.toml").write_text(settings)
    made = Agent()
    made.start()
    return made
