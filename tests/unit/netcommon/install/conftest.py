"""A system into which doors are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installed import System


@pytest.fixture
def system(tmp_path: Path) -> System:
    """Make a system without a hypervisor."""
    return System(tmp_path / "root", tmp_path / "opt" / "hooks")
