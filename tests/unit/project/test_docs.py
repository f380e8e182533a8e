"""The documents say what is so: every link leads somewhere, every command can be given, and what the program knows is made from it."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from pathlib import Path

import pytest

import netcommon
from netcommon.cli.group import netcommon as command
from netcommon.options.model import DEFAULTS
from netcommon.options.schema import OPTIONS
from runtime.environment import nic_from_environment
from runtime.nic import MODES
from runtime.paths import Paths
from tests.kernel.differential.differences import TABLE
from tests.support import documents
from tests.support.bootstrap import ROOT

PAGES = documents.pages()
DOCS = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
RUN = [page for page in PAGES if page == ROOT / "docs/tutorial.md" or page.parent == ROOT / "docs/howto"]


@pytest.mark.parametrize("page", PAGES, ids=documents.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files are there, and have the heading that is meant."""
    wrong = []
    for link in documents.links(page):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and anchor not in documents.anchors(target)):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=documents.name)
def test_commands_can_be_given(page: Path) -> None:
    """Each is one that the command line has, with options that it has. Arguments may be words that stand for others."""
    assert [f"netcommon {line}: {why}" for line in documents.commands(page) if (why := documents.refused(command, line))] == []


def test_commands_are_found() -> None:
    """Else the test above would hold nothing: in fences, indented, within a line, after others, and wrong ones are refused."""
    assert sum(len(documents.commands(page)) for page in PAGES) > 200
    for line, why in {
        "check --all": "",
        "dns sync INSTANCE": "",
        "graph --format dot >node.dot": "",
        "-v agent run": "",
        "chekc": "there is no command chekc",
        "check --every": "No such option '--every'.",
        "dns snyc": "there is no command snyc",
        "install xen": "it takes no xen",
    }.items():
        assert documents.refused(command, line).startswith(why) and bool(why) == bool(documents.refused(command, line)), line


def test_how_commands_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `netcommon check` or `netcommon list`.\n\n"
        "    $ netcommon -v up tap0    # now\n    netcommon agent is a word\n    # netcommon no\n\n"
        "```sh\nsudo netcommon plan \\\n  --mode ext && netcommon gc | less\n/usr/bin/netcommon tree >file\n```\n"
        "<!-- given\nnetcommon down --all\n-->\n```console\n# netcommon doctor\n```\n<!-- prints -->\n```\nnetcommon prints\n```\n"
    )
    found = ["plan --mode ext", "gc", "tree '>file'", "doctor", "down --all", "-v up tap0", "agent is a word", "check", "list"]
    assert documents.commands(page) == found


def test_every_page_is_named() -> None:
    """In the index, and in what the HTML is made with: each once, with the other way round."""
    indexed = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in documents.links(ROOT / "docs/index.md")}
    assert {*DOCS} - {ROOT / "docs/index.md"} <= indexed
    listed = re.findall(r"^ +- [^\n]*?: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(listed) == len({*listed})
    others = [page for page in PAGES if page.parent == ROOT or "examples" in page.parts]
    assert {ROOT / name for name in listed} == {*DOCS, *others, ROOT / "tests/README.md"}


@pytest.mark.parametrize("page", RUN, ids=documents.name)
def test_what_is_run_is_said(page: Path) -> None:
    """Each fence of shell is run, or says why it is not; and the index says which kind of page it is."""
    assert documents.unmarked(page) == []
    text = page.read_text()
    run = "in part" if "<!-- not run: " in text else "all"
    (row,) = [line for line in (ROOT / "docs/index.md").read_text().splitlines() if f"]({page.relative_to(ROOT / 'docs')})" in line]
    assert row.endswith(f"| {run} |") and documents.steps(page)


@pytest.mark.parametrize(
    ("shown", "printed", "fit"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a ... c", "a b c", True),
        ("a ... c", "a b\nc", False),
        ("...\nb", "1\n2\nb\n", True),
        ("...\nb", "b\n", True),
        ("a\n...", "a\nb\n", True),
        ("a", "a\nb\n", False),
        ("NIC     UUID", "NIC  UUID", True),
        ("NIC     UUID", "NIC UUID", False),
        ("a.c", "abc", False),
    ],
)
def test_what_fits(shown: str, printed: str, fit: bool) -> None:
    assert documents.fits(shown, printed) == fit


@pytest.mark.parametrize("name", ["settings.md", "operations.md", "environment.md", "metrics.md", "registry-api.md"])
def test_the_reference_is_made_of_the_program(name: str) -> None:
    """Run docs/reference/make.py after a change."""
    made = runpy.run_path(str(ROOT / "docs/reference/make.py"))["PAGES"]
    assert (ROOT / "docs/reference" / name).read_text() == made[name]()


@pytest.mark.parametrize(("part", "place"), [("migration", "docs/migration.md"), ("example", "examples/config.toml")])
def test_what_is_said_of_each_operation_is_made_of_it(part: str, place: str) -> None:
    """Run docs/reference/make.py after a change."""
    text = (ROOT / place).read_text()
    assert runpy.run_path(str(ROOT / "docs/reference/make.py"))[part](text) == text


def test_the_layers_are_drawn() -> None:
    """Run docs/pictures/rooms.py after a change."""
    page = ROOT / "docs/architecture.md"
    assert runpy.run_path(str(ROOT / "docs/pictures/rooms.py"))["drawn"](page.read_text()) == page.read_text()


class _Asked(dict[str, str]):
    """An environment that notes what is read of it."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self.names: set[str] = set()

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        self.names.add(name)
        return super().get(name, default)


def test_every_variable_is_documented() -> None:
    told = runpy.run_path(str(ROOT / "docs/reference/make.py"))["NIC"]
    asked: set[str] = set()
    for mode in MODES:
        environ = _Asked({"MODE": mode, "LINK": "br0", "INTERFACE": "tap0", "MAC": "aa:00:00:00:00:01"})
        nic_from_environment(environ)
        asked |= environ.names
    assert asked == {*told}


def test_every_path_is_documented() -> None:
    text = (ROOT / "docs/reference/files.md").read_text()
    places = [place for value in Paths() for place in (value if isinstance(value, tuple) else (value,))]
    assert [place for place in places if place not in text] == []


def test_the_changelog_has_this_version() -> None:
    """The newest one that has a date."""
    versions = re.findall(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert versions[0] == netcommon.__version__


def test_every_option_is_documented() -> None:
    """In the order of the schema, with its default, modes, meaning and values."""
    rows = [line for line in (ROOT / "docs/options.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(OPTIONS)
    for row, option in zip(rows, OPTIONS, strict=True):
        name, default, modes, meaning, values = row.removeprefix("| ").removesuffix(" |").split(" | ")
        said = getattr(DEFAULTS, option.name)
        shown = str(said).lower() if isinstance(said, bool) else str(said or (0 if said == 0 else "none"))
        assert (name, meaning, values) == (f"`{option.name}`", option.doc, option.kind.expected)
        assert modes == ("all" if len(option.modes) >= 3 else ", ".join(option.modes))
        assert default == ((" ".join(said) or "none") if isinstance(said, tuple) else shown)


def test_every_difference_is_documented() -> None:
    """In the order of the table, with its reason."""
    rows = [line.split(" | ") for line in (ROOT / "docs/differences.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert [(name.removeprefix("| ").removesuffix(" (VLAN-aware bridge)"), reason.removesuffix(" |")) for name, reason in rows] == [
        (entry.name, entry.reason) for entry in TABLE
    ]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "tests/README.md", "docs/extending.md"])
def test_places_that_a_page_names_are_there(page: str) -> None:
    """Files and folders of ours; a name in capitals, or with a star, stands for one that the reader chooses."""
    folders = "docs|examples|hooks|netagent|netcommon|netregistry|packaging|runtime|tests"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", (ROOT / page).read_text())
    assert [name for name in named if not (ROOT / name).exists() and name.lower() == name] == []


def test_tests_that_a_page_names_are_there() -> None:
    """By file, or by file and name."""
    text = (ROOT / "docs/registry.md").read_text()
    named = re.findall(r"`((?:unit|kernel|fault)/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 20
    assert [(file, test) for file, test in named if f"def {test}" not in (ROOT / "tests" / file).read_text()] == []
