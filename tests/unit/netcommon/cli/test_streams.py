"""Output that cannot be written: an exit status of its own, one line, and no other meaning than that."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bootstrap import ROOT, VENV

COMMANDS = {
    "help": ("--help",),
    "help of a command": ("check", "--help"),
    "version": ("--version",),
    "completion": ("completion", "bash"),
    "table": ("list",),
    "json": ("list", "--json"),
    "check": ("check",),
    "tree": ("tree",),
    "picture": ("graph",),
    "config": ("config",),
    "plan": ("plan", "--interface=tap0", "--mode=bridged", "--link=br0", "--mac=aa:00:00:00:00:01", "--instance=web1", "--index=0"),
}


def command(
    root: Path, *arguments: str, stdout: int, stderr: int = subprocess.PIPE, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """``netcommon`` on a node on which nothing is."""
    return subprocess.run(
        [VENV / "bin/python", "-m", "netcommon.cli", "--root", str(root), *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        preexec_fn=before,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_file_system_and_a_closed_stdout(name: str, tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        found = command(tmp_path, *COMMANDS[name], stdout=full)
    finally:
        os.close(full)
    assert (found.returncode, found.stderr) == (74, b"netcommon: the output cannot be written: No space left on device\n")
    found = command(tmp_path, *COMMANDS[name], stdout=subprocess.DEVNULL, before=lambda: os.close(1))
    assert (found.returncode, found.stderr) == (74, b"netcommon: the output cannot be written: Bad file descriptor\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_has_gone(name: str, tmp_path: Path) -> None:
    """It dies of that, as other tools do, and says nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = command(tmp_path, *COMMANDS[name], stdout=writer)
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize(("arguments", "status"), [(("list",), 0), (("nonsense",), 2), (("check", "nosuch"), 64), (("-v", "check"), 0)])
def test_messages_that_nobody_hears(arguments: tuple[str, ...], status: int, tmp_path: Path) -> None:
    """Change neither the work nor its status."""
    heard = command(tmp_path, *arguments, stdout=subprocess.PIPE)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        found = command(tmp_path, *arguments, stdout=subprocess.PIPE, stderr=full)
    finally:
        os.close(full)
    closed = command(tmp_path, *arguments, stdout=subprocess.PIPE, before=lambda: os.close(2))
    assert heard.returncode == found.returncode == closed.returncode == status
    assert heard.stdout == found.stdout == closed.stdout


def test_nothing_at_all_is_open(tmp_path: Path) -> None:
    """Give none of the streams' numbers to what is opened by then."""
    found = command(tmp_path, "list", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, before=lambda: os.closerange(0, 3))
    assert found.returncode == 74
