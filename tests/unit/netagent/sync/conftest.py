"""A registry's service, and an agent of a node that has joined it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Served, served
from tests.support.sim import Sim
from tests.support.sync_agent import Agent


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        found.join(0)
        yield found


@pytest.fixture
def agent(sim: Sim, service: Served) -> Agent:
    found = Agent(sim, service.path)
    found.service = service
    return found
