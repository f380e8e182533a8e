"""The files of a node below one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.paths import Paths
from runtime.store import Store
from tests.support.nics import BOOT


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return the paths of a node whose root is the test's own folder; nothing is there yet."""
    return Paths.under(str(tmp_path))


@pytest.fixture
def store(paths: Paths) -> Store:
    """Return the store of the network namespace 1."""
    return Store(paths, 1, BOOT)


@pytest.fixture
def state(paths: Paths) -> Path:
    """Return the state directory."""
    return Path(paths.state)
