"""The guest that is adopted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.ganeti_guest import Guest


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    """Make a node with two bridges, and an instance of Ganeti's without NICs."""
    cli = Cli(tmp_path)
    cli.host.add_bridge("br0")
    cli.host.add_bridge("br1")
    return Guest(cli)
