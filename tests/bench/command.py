"""tests/bench/run: sets the machine up, and measures in namespaces of its own (tests/bench/measure.py has the options). Needs root.

Standard library only: it runs before the environment is there.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support import bootstrap, inside
from tests.support.bootstrap import ROOT, VENV, SetupFailed

PYTHON = str(VENV / "bin/python")


def main(arguments: list[str]) -> int:
    """Exit status of the measuring process; 69 where the machine could not be set up."""
    measuring = [PYTHON, "-m", "tests.bench.measure", *arguments]
    if {"-h", "--help"} & {*arguments} and VENV.exists():
        return subprocess.run(measuring, cwd=ROOT, check=False).returncode
    if os.geteuid() != 0:
        print("tests/bench/run: needs root", file=sys.stderr)
        return 69
    try:
        bootstrap.setup(["environment", "kernel"])
    except SetupFailed as error:
        print(f"tests/bench/run: {error}", file=sys.stderr)
        return 69
    return subprocess.run(inside.wrapped(PYTHON, measuring), cwd=ROOT, check=False).returncode
