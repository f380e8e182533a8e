"""A registry, or a registry's service, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.registry import Registry
from tests.support.service import Served, served


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found
