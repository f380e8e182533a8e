"""What a user other than root learns of the node's NICs (SECURITY.md, "Who may do what")."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.support import syscalls
from tests.support.bootstrap import ROOT, VENV
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

NOBODY = 65534
HELD = "of-the-hypervisors-environment"
RECORDS = ("list", "check", "tree", "show tap0", "explain tap0", "trace tap0", "graph", "top --once", "repair --all", "down tap0", "gc")
OPEN = ("plan --interface tap9 --mode bridged --link br0 --instance web9 --index 0", "config", "doctor", "--version")


def as_nobody(words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(VENV / "bin/netcommon"), *words.split()]
    return subprocess.run(argv, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, check=False)


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[None]:
    """The checkout is where others may go, also where it lies in a folder of root's alone, such as /root: in this mount namespace only."""
    closed = next((folder for folder in reversed(ROOT.parents) if not folder.stat().st_mode & 0o001), None)
    if closed is None:
        yield
        return
    beside = tmp_path / "checkout"
    beside.mkdir()
    syscalls.mount(str(ROOT), str(beside), flags=syscalls.MS_BIND)
    syscalls.mount("tmpfs", str(closed), "tmpfs", options="mode=0755")
    ROOT.mkdir(parents=True)
    syscalls.mount(str(beside), str(ROOT), flags=syscalls.MS_BIND)
    try:
        yield
    finally:
        for mounted in (ROOT, closed, beside):
            syscalls.umount(str(mounted))


@pytest.fixture
def up(node: Node, reached: None) -> Node:
    node.tap("tap0")
    node.bridge("br0")
    assert rundoor("kvm-ifup", environment(MODE="bridged", LINK="br0", IP="10.0.0.5", HELD=HELD)).status == 0
    return node


def test_records_are_roots(up: Node) -> None:
    """The record holds the whole environment; what reads it ends with 69, says why, and nothing changes."""
    found = list(Path("/run/netcommon/nics").glob("*.json"))
    assert [path.stat().st_mode & 0o777 for path in found] == [0o600] and HELD in found[0].read_text()
    before = snapshot()
    for words in RECORDS:
        done = as_nobody(words)
        assert done.returncode == 69 and "as root" in done.stderr and HELD not in done.stdout + done.stderr, (words, done)
    assert diff(before, snapshot()) == []


def test_what_others_may_run(up: Node) -> None:
    """What needs no record; nothing of it shows what one says. Names of instances and taps are no secret."""
    for words in OPEN:
        done = as_nobody(words)
        assert done.returncode in (0, 1) and HELD not in done.stdout + done.stderr, (words, done)
    assert "tap9" in as_nobody(OPEN[0]).stdout
    listed = subprocess.run(["ls", "/run/netcommon/instances"], user=NOBODY, group=NOBODY, capture_output=True, text=True, check=True)
    assert listed.stdout == "web0\n" and "web0" in run("ip", "link", "show", "tap0")


def test_doctor_takes_no_nic_for_one_without_a_record(up: Node) -> None:
    """Records that it may not read are there; what it says to do is to run it as root."""
    run("ip", "rule", "add", "iif", "tap8", "lookup", "100", "protocol", "174")
    said = as_nobody("doctor --json")
    found = [each for each in json.loads(said.stdout)["findings"] if each["topic"] in ("records", "leftovers")]
    assert [(each["topic"], each["remedy"]) for each in found] == [("records", "run netcommon doctor as root")]
    root = subprocess.run([str(VENV / "bin/netcommon"), "doctor", "--json"], capture_output=True, text=True, check=False)
    (finding,) = [each for each in json.loads(root.stdout)["findings"] if each["topic"] in ("records", "leftovers")]
    assert "iif tap8" in finding["text"]


def test_the_page_says_so() -> None:
    (row,) = (line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| other users of the node |"))
    _, _, may, must_not, _ = row.split("|")
    for name in ("list", "check", "tree"):
        assert f"`{name}`" not in may.replace("netcommon ", "") and f"`{name}`" in must_not.replace("netcommon ", "")
    assert "69" in must_not
