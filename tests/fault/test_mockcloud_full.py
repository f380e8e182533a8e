"""Fill the disk of a mock cloud: the cloud can still be looked at, deleting makes room, and with room everything goes on."""

from __future__ import annotations

import os
from pathlib import Path

from mockcloud import state
from tests.support import syscalls
from tests.support.mockcloud import Mockcloud


def test_a_cloud_on_a_disk_that_is_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    syscalls.mount("tmpfs", str(small), "tmpfs", options="size=3m,mode=0755")
    run, fill = Mockcloud(small / "cloud"), small / "fill"
    try:
        run("create", "3")
        run("network", "blue", "--subnet", "192.0.2.0/24")
        run("instance", "create", "web1", "--node", "mock1", "--nic", "network=blue", "--start")
        run("status")
        nodes, instances, before = run.json("list")["nodes"], run.json("instance", "list"), state.read(str(run.folder))
        fill.write_bytes(bytes(os.statvfs(small).f_bavail * 4096))
        for _ in range(2):  # none of them can note that it was there
            assert run.json("list")["nodes"] == nodes and run.json("count")["nodes"] == 3
            assert run.json("instance", "list") == instances
            assert "3 fit, by room on disk" in run("create", status=69)
        assert state.read(str(run.folder)) == before
        assert [each["hostname"] for each in run.json("delete", "mock1")["nodes"]] == ["mock1"]
        assert [each["hostname"] for each in run.json("list")["nodes"]] == ["mock2", "mock3"]
        fill.unlink()
        assert [each["agent"]["registry"] for each in run.json("status")["nodes"]] == ["in step"] * 2
        assert run.json("fault", "node", "mock2", "--for", "2", "--settle", "30")["violations"] == []
    finally:
        syscalls.umount(str(small))
