"""The page that says what the views show."""

from __future__ import annotations

import pytest

from tests.support.seeing import DOCS


@pytest.fixture(scope="module")
def page() -> str:
    """Read docs/seeing.md."""
    return (DOCS / "seeing.md").read_text("utf-8")
