"""examples/mockcloud tells its story to the end with a few nodes, each of its promises is kept, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bootstrap import ROOT
from tests.support.netns import slowness

EXAMPLE = str(ROOT / "examples/mockcloud")
TOLD, GONE = 300, 60  #: seconds until all is told; until what a signal has ended is gone
NODES = 6


@pytest.fixture
def given() -> Iterator[dict[str, str]]:
    """Give an environment by which what it leaves is seen; the path is short, as a socket's has to be."""
    with tempfile.TemporaryDirectory(prefix="told-") as temporary:
        yield {**os.environ, "TMPDIR": temporary}


@pytest.mark.no_agent("it has agents of its own")
def test_the_story_is_told(given: dict[str, str]) -> None:
    done = subprocess.run([EXAMPLE, str(NODES)], env=given, capture_output=True, text=True, check=False, timeout=TOLD * slowness())
    assert done.returncode == 0, done.stdout + done.stderr
    # joined; started, running; cut off: unknown, others, records; back, running; restarted, running; moved, running, no conflict, arrived
    assert done.stdout.count("  ok  ") == 1 + 2 + 3 + 2 + 2 + 4 and "FAILED" not in done.stdout
    assert os.listdir(given["TMPDIR"]) == []


@pytest.mark.no_agent("it has agents of its own")
def test_a_signal_leaves_nothing(given: dict[str, str]) -> None:
    child = subprocess.Popen([EXAMPLE, str(NODES)], env=given, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert any("in step with the registry" in said for said in child.stdout)
        child.send_signal(signal.SIGTERM)
        assert child.wait(GONE * slowness()) == 128 + signal.SIGTERM
    finally:
        child.kill()
        child.stdout.close()
    assert os.listdir(given["TMPDIR"]) == []


@pytest.mark.no_agent("nothing is begun")
@pytest.mark.parametrize("number", ["0", "3", "4001", "many", "-1", "\u0665"])
def test_another_number_is_refused(number: str) -> None:
    ended = subprocess.run([EXAMPLE, number], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (64, "") and "mockcloud [NODES]" in ended.stderr


def test_the_script_is_where_the_pages_say() -> None:
    assert "examples/mockcloud" in Path(ROOT, "README.md").read_text() and os.access(EXAMPLE, os.X_OK)
