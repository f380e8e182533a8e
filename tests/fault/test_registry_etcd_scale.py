"""A registry of many NICs over three members of an etcd, under many who ask at once: how long that takes at most.

All of it in a full run: ten thousand NICs and two thousand nodes. The bounds are of that, whatever the run.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from netagent.sync.connection import SILENT
from netagent.sync.rules import Rules
from tests.bench.registry_content import Size, lines, uuid
from tests.support.etcd import Cluster
from tests.support.registry_load import allocated, nodes
from tests.support.registry_process import Registry
from tests.support.sample import FULL

SIZE = Size(10_000, 2000) if FULL else Size(1000, 200)
ALLOCATIONS, ALLOCATED = 200, 10.0  #: addresses, and seconds for all of them
BACK = SILENT if FULL else 30.0  #: seconds until all nodes are told all again: before any has an alarm
ASKED = 2  #: requests of a node that comes back: what the service can do, and its stream
#: Requests a second: pauses are spread over as many seconds as they have, and whoever waits for a processor comes together with others.
RATE = 2 * ASKED * SIZE.nodes / Rules().pause


@pytest.fixture(scope="module")
def registry(etcds: dict[int, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Give a registry that is filled, whose service runs."""
    etcds[3].anew()
    folder = tmp_path_factory.mktemp("registry")
    made = Registry(folder / "one", etcds[3].url)
    made.command("init")
    made.start()
    file = folder / "lines"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines(SIZE)))
    made.command("import", str(file), seconds=600)
    yield made
    made.kill()


def test_two_hundred_addresses_at_once(registry: Registry) -> None:
    seconds, found = allocated(registry.socket, [uuid(1, number) for number in range(8)], ALLOCATIONS)
    assert len(set(found)) == ALLOCATIONS and seconds <= ALLOCATED


def test_all_nodes_go_on_at_another_service_at_once(registry: Registry, etcds: dict[int, Cluster], tmp_path: Path) -> None:
    """Each asks the other one at once what it can do, and begins its stream after its pause."""
    other = Registry(tmp_path / "two", etcds[3].url)
    other.start()
    try:
        with nodes(SIZE.nodes, registry.socket, other.socket) as agents:
            found = agents.again(registry.kill, other.socket)
            assert found.seconds <= BACK and 0 < found.peak <= SIZE.nodes + RATE
            with other.client() as asked:
                assert asked.get("status").body["streams"] == SIZE.nodes
    finally:
        other.kill()
        registry.start()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "restarted"])
def test_all_nodes_come_back_at_once(registry: Registry, how: int) -> None:
    with nodes(SIZE.nodes, registry.socket) as agents:

        def again() -> None:
            registry.signal(how)
            if how == signal.SIGTERM:
                registry.ended()
            registry.kill()
            registry.start()

        found = agents.again(again)
        assert found.seconds <= BACK and 0 < found.peak <= RATE
        with registry.client() as asked:
            assert asked.get("status").body["streams"] == SIZE.nodes
