"""The figures of the fault suite: what is noted, and the page made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import figures, reliability
from tests.support.bootstrap import ROOT
from tests.support.progress import tree_key

HERE = Path(__file__).relative_to(ROOT)
TEMPLATE = "# A\n{table}\n## Faults found and mended\n| row | what |\n| --- | --- |\n| kill | one |\n| kill | two |\n| clock | three |\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(figures.VARIABLE, str(tmp_path / "noted"))
    return tmp_path


def test_what_is_noted_is_collected(folder: Path) -> None:
    """With the test that it comes from; again from the same test, it counts once."""
    for tried in (7, 9):
        figures.add("kill", tried, 2, 1, "slow")
    figures.add("clock", 3, 0, 0)
    found = figures.collect(folder)
    here = f"{HERE}::test_what_is_noted_is_collected"
    assert [(one.row, one.tried, one.test) for one in found] == [("clock", 3, here), ("kill", 9, here)]


def test_nothing_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in ("", None):
        if value is None:
            monkeypatch.delenv(figures.VARIABLE, raising=False)
        else:
            monkeypatch.setenv(figures.VARIABLE, value)
        figures.add("kill", 1, 0, 0)
        assert list(tmp_path.iterdir()) == []


def test_wrong_figures_are_refused(folder: Path) -> None:
    with pytest.raises(KeyError):
        figures.add("another", 1, 0, 0)
    with pytest.raises(AssertionError):
        figures.add("kill", 1, 0, 1)


def test_the_page(folder: Path) -> None:
    """A line for each row; faults that were mended count as found; who ran nothing says so."""
    figures.add("kill", 1500, 1, 1, "median 3 ms")
    figures.add("endurance", 1500, 0, 0, every=4000)
    lines = figures.document(TEMPLATE, figures.collect(folder)).splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == len(figures.ROWS) + 2 + 5
    (kill,) = [line for line in lines if line.startswith(f"| {figures.ROWS['kill'].fault} ")]
    assert f"; median 3 ms | 1,500 | 3 | 1 | `tests/run --full --lane unit {HERE}`" in kill
    assert any("| 1,500 of 4,000 | 0 | 0 |" in line for line in lines)
    assert f"| {figures.ROWS['clock'].fault} | {figures.ROWS['clock'].bar} | not run | 1 |  |  |" in lines


def test_the_page_is_no_part_of_the_tree(tmp_path: Path) -> None:
    """Writing it does not make what was run count for another tree."""
    (tmp_path / "docs").mkdir()
    before = tree_key(tmp_path)
    (tmp_path / "docs/reliability.md").write_text("figures")
    assert tree_key(tmp_path) == before
    (tmp_path / "docs/other.md").write_text("text")
    assert tree_key(tmp_path) != before


def test_the_page_says_what_the_template_says() -> None:
    """Every row, and the list of mended faults as it is kept; each of its tests is there."""
    template, page = reliability.TEMPLATE.read_text(), reliability.PAGE.read_text()
    above, _, below = template.partition("{table}")
    assert page.startswith(above) and page.endswith(below)
    assert all(f"| {row.fault} | {row.bar}" in page for row in figures.ROWS.values())
    assert figures.mended(template)
    named = [cell for line in below.splitlines() if line.startswith("| ") for cell in line.split() if cell.startswith("tests/")]
    assert named and [name for name in named if not (ROOT / name.partition("::")[0]).exists()] == []
