"""A registry for each test."""

from __future__ import annotations

import pytest

from tests.support.registry import Registry


@pytest.fixture
def registry() -> Registry:
    return Registry()
