"""examples/cluster tells its story to the end, and each of its promises is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.clusterlib.story import play
from tests.support.bootstrap import ROOT


@pytest.mark.no_agent("a registry needs none")
def test_the_cluster_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(ROOT, tmp_path)
    said = capsys.readouterr().out
    assert said.count("  ok  ") == 7 and "FAILED" not in said
