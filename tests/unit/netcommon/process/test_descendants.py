"""Descendants of a program whose time is over: which of the others bear its mark, and which cannot be told yet."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.process.descendants import PF_KTHREAD, Family

MARK = b"NETCOMMON_SCRIPT=77331"


def stat(path: Path, began: int, state: str = "S", flags: int = 0, env: tuple[int, int] = (4096, 8192)) -> None:
    """Write fields of proc_pid_stat(5); those that nobody reads are 1."""
    words = [state, *["1"] * 49]
    words[6], words[19], words[47], words[48] = str(flags), str(began), *map(str, env)
    path.mkdir(exist_ok=True)
    (path / "stat").write_text(f"1 (a ) b) {' '.join(words)}\n")


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """Two processes of ours, to have handles of: what procfs says of them is the test's."""
    made = [subprocess.Popen(["/bin/sleep", "100"]) for _ in range(2)]
    yield [each.pid for each in made]
    for each in made:
        each.kill()
        each.wait()


@pytest.mark.parametrize(
    ("environment", "fields", "found"),
    [
        (b"A=1\0" + MARK + b"\0", {}, True),
        (b"A=1\0" + MARK + b"0\0", {}, False),
        (b"", {"env": (0, 0)}, True),  # execve(2) has made its memory, and nothing is in it yet
        (b"", {"env": (4096, 0)}, True),
        (b"", {"env": (4096, 8192)}, True),  # there is an environment by now
        (b"", {"env": (4096, 4096)}, False),  # it was started without one
        (b"", {"env": (0, 0), "state": "Z"}, False),
        (b"", {"env": (0, 0), "flags": PF_KTHREAD}, False),
        (b"", {"env": (0, 0), "began": 4}, False),  # before the program
    ],
)
def test_which_others_are_looked_for_again(
    tmp_path: Path, processes: list[int], environment: bytes, fields: dict[str, object], found: bool
) -> None:
    """A pass that found none ends the search, so one that is between two programs must count."""
    program, other = processes
    stat(tmp_path / str(program), 5)
    stat(tmp_path / str(other), **{"began": 6, **fields})  # type: ignore[arg-type]
    (tmp_path / str(other) / "environ").write_bytes(environment)
    family = Family(program, MARK, time.monotonic, str(tmp_path))
    assert family.search(time.monotonic() + 5) is found
    assert bool(family.handles) is (MARK in environment.split(b"\0"))
    family.close()
    os.kill(other, 0)  # a search alone kills none
