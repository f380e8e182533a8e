"""Threads of one process at work in one folder: the agent has several."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

from runtime.folder import Folder
from tests.support.interleave import Scheduler


def test_links_that_two_threads_change_at_once(tmp_path: Path) -> None:
    """One takes its link away while the other makes one: neither's temporary file is the other's, in whatever order they go."""
    switches = 0
    with Folder.make(str(tmp_path / "devices")) as folder:
        for seed in range(200):
            folder.link("tap0", "gone")
            scheduler = Scheduler(Random(seed))
            with scheduler.files():
                ended = scheduler.run([partial(folder.unlink_if, "tap0", "gone"), partial(folder.link, "tap1", f"made {seed}")])
            switches += scheduler.switches
            assert [one.error for one in ended] == [None, None]
            assert folder.names() == ["tap1"] and folder.temporary() == []
            assert folder.target("tap1") == f"made {seed}"
    assert switches > 200
