"""The documents say what is so: every link leads somewhere, and the table of differences is that of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netcommon.options import DEFAULTS
from netcommon.options_schema import OPTIONS
from tests.kernel.differential.differences import TABLE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    found = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in found if "://" not in link and not (page.parent / link).exists()] == []


def test_every_option_is_documented() -> None:
    """In the order of the schema, with its default, modes, meaning and values."""
    rows = [line for line in (ROOT / "docs/options.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(OPTIONS)
    for row, option in zip(rows, OPTIONS, strict=True):
        name, default, modes, meaning, values = row.removeprefix("| ").removesuffix(" |").split(" | ")
        said = getattr(DEFAULTS, option.name)
        shown = str(said).lower() if isinstance(said, bool) else str(said or (0 if said == 0 else "none"))
        assert (name, meaning, values) == (f"`{option.name}`", option.doc, option.kind.expected)
        assert modes == ("all" if len(option.modes) == 3 else ", ".join(option.modes))
        assert default == (shown if said != () else "none")


def test_every_difference_is_documented() -> None:
    """In the order of the table, with its reason."""
    rows = [line.split(" | ") for line in (ROOT / "docs/differences.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert [(name.removeprefix("| ").removesuffix(" (VLAN-aware bridge)"), reason.removesuffix(" |")) for name, reason in rows] == [
        (entry.name, entry.reason) for entry in TABLE
    ]
