"""The documents say what is so: every link leads somewhere, and the table of differences is that of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kernel.differential.differences import TABLE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    found = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in found if "://" not in link and not (page.parent / link).exists()] == []


def test_every_difference_is_documented() -> None:
    """In the order of the table, with its reason."""
    rows = [line.split(" | ") for line in (ROOT / "docs/differences.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert [(name.removeprefix("| ").removesuffix(" (VLAN-aware bridge)"), reason.removesuffix(" |")) for name, reason in rows] == [
        (entry.name, entry.reason) for entry in TABLE
    ]
