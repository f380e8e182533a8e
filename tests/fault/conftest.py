"""Fixtures of the fault suite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import Host, prepared
from tests.support.etcd import Cluster
from tests.support.node import Node


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, as /run is: a disk that is busy with other things decides nothing here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def etcds() -> Iterator[dict[int, Cluster]]:
    """Give an etcd of one member and one of three, in memory too, which are started when a test needs them (Cluster.anew)."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        made = {members: Cluster(Path(folder) / str(members), members) for members in (1, 3)}
        yield made
        for cluster in made.values():
            cluster.stop()


@pytest.fixture
def host(node: Node, case: str, request: pytest.FixtureRequest) -> Host:
    """Prepare the node for the NIC of the test's parameter ``case``."""
    return prepared(node, case, request)
