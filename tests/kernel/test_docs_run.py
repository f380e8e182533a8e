"""The tutorial and the how-tos do what they say: their commands are pasted into a shell, and what they print is what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import documents
from tests.support.netns import isolate

PAGES = [page for page in documents.pages() if documents.steps(page)]


def played(page: Path, lane: str) -> None:
    isolate()  # where somebody runs pytest by hand; what the page mounts is its own in any case
    assert [why for one in documents.play(page, lane) if (why := documents.wrong(one))] == []


def of_lane(lane: str) -> list[Path]:
    return [page for page in PAGES if any(step.lane == lane for step in documents.steps(page))]


@pytest.mark.parametrize("page", of_lane("kernel"), ids=documents.name)
def test_a_page_does_what_it_says(page: Path) -> None:
    played(page, "kernel")


@pytest.mark.vm
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow, id=documents.name(page)) for page in of_lane("vm")],  # Python is slow in there
)
def test_a_page_does_what_it_says_in_the_machine(page: Path) -> None:
    """What needs VLAN filtering, or another kernel's abilities."""
    played(page, "vm")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- run -->\n```sh\ntrue\nfalse\ntrue\n```\n", "failed, or not as it should: [(1, 'false')]"),
        ("<!-- run, exit 3 -->\n```sh\ntrue\n```\n", "failed, or not as it should: []"),
        ("<!-- run -->\n```sh\necho one\n```\n\n<!-- prints -->\n```\ntwo\n```\n", "prints something else than\ntwo"),
        ("<!-- run -->\n```sh\nexit 0\n```\n", "the shell did not come to its end"),
    ],
)
def test_a_page_that_lies_is_found(tmp_path: Path, text: str, why: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    isolate()
    (found,) = [said for one in documents.play(page, "kernel") if (said := documents.wrong(one))]
    assert why in found


def test_a_page_that_is_true_is_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "<!-- given\nx=1\n-->\n<!-- run -->\n```sh\nunshare --net bash\nip link set lo up\n```\n"
    text += "<!-- run, exit 1 -->\n```sh\nip -br link\ngrep -c nothing /etc/passwd\n```\n\n<!-- prints -->\n```\nlo  ...\n0\n```\n"
    page.write_text(text)
    isolate()
    assert [said for one in documents.play(page, "kernel") if (said := documents.wrong(one))] == []
