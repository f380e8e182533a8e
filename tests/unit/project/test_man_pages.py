"""Man pages, the reference of commands and completion are as the program is; man takes the pages, and bash completes with its file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mockcloud.cli.group import mockcloud as mockcloud_group
from netcommon.cli.group import COMMANDS, LazyGroup
from netcommon.options.schema import OPTIONS
from netcommon.settings.schema import KEYS
from tests.support.bootstrap import ROOT
from tests.support.cli import UUIDS

MOCKCLOUD = mockcloud_group.rows if isinstance(mockcloud_group, LazyGroup) else {}
MAN, COMPLETION = ROOT / "packaging" / "man", ROOT / "packaging" / "completion"
PAGES = sorted(MAN.iterdir())
MACROS = {".TH", ".SH", ".SS", ".PP", ".TP", ".IP", ".RS", ".RE", ".nf", ".fi", ".nh", ".ad"}


def made(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(root / "packaging" / "make-man"), *arguments], capture_output=True, text=True, check=False)


def test_they_are_as_the_program_is() -> None:
    done = made(ROOT, "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("program", "page", "least"), [("netcommon", "commands.md", 40), ("mockcloud", "mockcloud-commands.md", 7)])
def test_the_reference_names_every_document_of_a_command(program: str, page: str, least: int) -> None:
    """Also that of an option which makes it another one, such as --dry-run: the schemas say by what they are printed."""
    rows = dict(re.findall(r"^\| \[`([a-z -]+)`\].*\| ([^|]*) \|$", (ROOT / "docs/reference" / page).read_text(), re.M))
    seen = 0
    for path in (ROOT / "docs/schemas").glob(f"{program}-*.json"):
        by = json.loads(path.read_text())["description"].partition("Printed by: ")[2].rstrip(".")
        for command in re.findall(rf"{program} ([a-z -]+?) --json", by):
            words, _, option = command.partition(" --")
            cell = f"[{path.stem}](../schemas/{path.name})" + (f" with `--{option}`" if option else "")
            assert cell in rows[words].split(", "), (command, rows[words])
            seen += 1
    assert seen > least


def test_what_is_out_of_date_is_seen_and_written(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging", ignore=shutil.ignore_patterns("deb", "__pycache__"))
    shutil.copytree(ROOT / "docs" / "reference", tmp_path / "docs" / "reference", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("runtime", "netagent", "netregistry", "mockcloud"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "netcommon", tmp_path / "netcommon", ignore=shutil.ignore_patterns("__pycache__"))
    help_of_up = tmp_path / "netcommon" / "cli" / "commands" / "up.py"
    help_of_up.write_text(help_of_up.read_text().replace("Every NIC that is defined.", "All that is defined."))
    done = made(tmp_path, "--check")
    assert done.returncode == 1
    stale = {line.partition(" is out of date")[0].rpartition("/")[2] for line in done.stderr.splitlines()}
    assert stale == {"netcommon-up.1", "commands.md", "_netcommon"}
    assert made(tmp_path).returncode == 0 and made(tmp_path, "--check").returncode == 0


def test_every_command_door_and_format_has_its_page() -> None:
    names = {path.name for path in PAGES}
    assert {"netcommon.1", *(f"netcommon-{command}.1" for command in COMMANDS)} <= names
    assert {"mockcloud.1", *(f"mockcloud-{command}.1" for command in MOCKCLOUD)} <= names
    doors = {path.name for path in (ROOT / "hooks").iterdir() if not path.is_dir()} - {"launcher"}
    assert {f"{door}.8" for door in doors} == {name for name in names if name.endswith(".8")}
    assert {name for name in names if name.endswith(".5")} == {
        f"netcommon-{name}.5" for name in ("config", "definition", "network", "node", "options", "record", "wanted")
    }


def test_every_setting_and_option_is_in_them() -> None:
    settings, options = (_plain(MAN / name) for name in ("netcommon-config.5", "netcommon-options.5"))
    assert [key for key in KEYS if key.field not in ("nic", "networks") and f"\n\\fB{key.name}\\fR\n" not in settings] == []
    assert [one.name for one in OPTIONS if f"\n\\fB{one.name}\\fR\n" not in options] == []


def _plain(path: Path) -> str:
    return path.read_text().replace("\\-", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_well_formed(page: Path) -> None:
    """Only macros that are meant, escapes that are known, and a name that apropos finds."""
    lines = page.read_text().splitlines()
    assert {line.split()[0] for line in lines if line.startswith(".") and not line.startswith('.\\"')} <= MACROS
    assert [line for line in lines if line.startswith("'") or not line] == []
    assert [line for line in lines if re.search(r"\\(?![-&efB(\"]|e)", line)] == []
    assert lines[5].startswith(f"{page.stem.replace('-', chr(92) + '-')} \\- ")
    assert page.read_text().isascii()


def test_man_takes_them_without_a_word() -> None:
    """groff, as man has it; where this machine has no man, what the test above says is all."""
    if man := shutil.which("man"):
        environ = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
        for page in PAGES:
            done = subprocess.run([man, "--warnings", "-l", str(page)], capture_output=True, text=True, check=False, env=environ)
            assert (done.returncode, done.stderr) == (0, "") and page.stem.upper() in done.stdout


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """What a NIC leaves on a node, and the completion that looks there."""
    state, defined = tmp_path / "run", tmp_path / "nics.d"
    for path in (state / "devices" / "tap0", state / "nics" / f"{UUIDS[0]}.json", state / "instances" / "web1" / "0"):
        path.parent.mkdir(parents=True)
        path.touch()
    for path in (defined / f"{UUIDS[1]}.toml", defined / "by-device" / "tap7"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    names = tmp_path / "names"
    names.mkdir()
    for kind, lines in (("networks", "blue\nblack\nred\n"), ("nics", "web1/0\nweb2/0\n$(touch${IFS}owned)\n"), ("nodes", "node0\n")):
        (names / kind).write_text(lines)
    text = (COMPLETION / "netcommon").read_text().replace("/run/netregistry/names", str(names))
    (tmp_path / "completion").write_text(text.replace("/run/netcommon", str(state)).replace("/etc/netcommon/nics.d", str(defined)))
    return tmp_path


def completed(node: Path, *words: str, program: str = "netcommon") -> list[str]:
    """What Tab offers after these words."""
    script = f'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() {{ :; }}; _{program}; '
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    path = node / "completion" if program == "netcommon" else COMPLETION / program
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", str(path), program, *words],
        capture_output=True, text=True, check=True, cwd=node, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("expl",), ["explain"]),
        (("",), sorted(COMMANDS)),
        (("--v",), ["--verbose", "--version"]),
        (("-v", "re"), ["registry", "repair"]),
        (("registry", "net"), ["network"]),
        (("registry", "network", "s"), ["set", "show"]),
        (("registry", "nic", "allocate", "--d"), ["--dry-run"]),
        (("registry", "network", "set", "bl"), ["black", "blue"]),
        (("registry", "nic", "show", "w"), ["web1/0", "web2/0"]),
        (("registry", "nic", "show", "$"), [r"\$\(touch\$\{IFS\}owned\)"]),
        (("registry", "watch", ""), ["node0"]),
        (("agent", ""), ["run", "status"]),
        (("dns", "s"), ["sync"]),
        (("dns", "sync", "--a"), ["--all"]),
        (("up", "--pr"), ["--present", "--progress"]),
        (("down", "--context", "mig"), ["migrate", "migrate-failed"]),
        (("graph", "--format", ""), ["dot", "svg"]),
        (("graph", "-o", "comp"), ["completion"]),
        (("show", ""), [UUIDS[0], UUIDS[1], "tap0", "tap7", "web1/0"]),
        (("check", "--json", "web"), ["web1/0"]),
        (("explain", "tap0", "tap"), ["tap0", "tap7"]),
        (("completion", "b"), ["bash"]),
        (("list", ""), []),
        (("define", "--mac", ""), []),
        (("nonsense", ""), []),
    ],
)
def test_bash_completes(node: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(node, *words) == offered


def test_bash_completes_mockcloud(node: Path) -> None:
    assert completed(node, "", program="mockcloud") == sorted(MOCKCLOUD)
    assert completed(node, "create", "--pro", program="mockcloud") == ["--profile"]
    assert completed(node, "create", "--profile", "s", program="mockcloud") == ["single", "switched"]


def test_no_python_is_run_by_either() -> None:
    for path in COMPLETION.iterdir():
        assert not re.search(r"python|_NETCOMMON_COMPLETE|\$\(netcommon|`", path.read_text())


def test_the_zsh_function_names_every_command_and_option() -> None:
    """Its syntax too where this machine has a zsh."""
    text = (COMPLETION / "_netcommon").read_text()
    assert text.startswith("#compdef netcommon\n") and text.endswith('_netcommon "$@"\n')
    assert [command for command in COMMANDS if f"\n_netcommon_{command}() {{\n" not in text] == []
    if zsh := shutil.which("zsh"):
        subprocess.run([zsh, "-n", str(COMPLETION / "_netcommon")], check=True)


def test_completion_runs_nothing(node: Path) -> None:
    """Names come from whoever may name an instance: they are quoted for the shell that they are put into."""
    for name in ("$(touch${IFS}owned)", "`touch owned`", "web;owned", "a b"):
        path = node / "run" / "instances" / name / "0"
        path.parent.mkdir()
        path.touch()
    offered = completed(node, "show", "")
    assert not (node / "owned").exists()
    assert {r"\$\(touch\$\{IFS\}owned\)/0", r"\`touch\ owned\`/0", r"web\;owned/0", r"a\ b/0", "tap0"} <= set(offered)
