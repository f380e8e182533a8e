"""Read standard input in a process whose standard input is closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT


@pytest.mark.parametrize("words", [("change", "tap0", "--tags-from", "-"), ("plan", "--env-file", "-")])
def test_standard_input_that_is_closed(tmp_path: Path, words: tuple[str, ...]) -> None:
    """It reads as an empty file, which says too little (netcommon.cli.streams): one line, and nothing is done."""
    command = [sys.executable, "-m", "netcommon.cli", "--root", str(tmp_path), *words]
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (64, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("netcommon: --tags-from='-'" if "change" in words else "netcommon: MODE=''")
