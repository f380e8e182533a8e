"""Clouds of these tests lie in memory: their registries synchronise every commit, which no test here is about."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mockcloud import Mockcloud

MEMORY = "/dev/shm"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mockcloud-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def run(tmp_path: Path) -> Mockcloud:
    """Make a cloud of two nodes and a network."""
    made = Mockcloud(tmp_path / "cloud")
    made("create", "2")
    made("network", "blue", "--subnet", "192.0.2.0/24", "--gateway", "192.0.2.254")
    return made
