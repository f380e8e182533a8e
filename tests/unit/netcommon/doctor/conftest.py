"""The node that is examined."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sim import Sim


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    """Make a simulated node with a second tap."""
    made = Sim(str(tmp_path))
    made.tap("tap1")
    return made
