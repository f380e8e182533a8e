"""Install on a node whose root is an overlay, as a container's is: a file has other numbers by its second name there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.install import install
from netcommon.install.manifest import SAVED
from tests.support import syscalls
from tests.support.rundoor import HOOKS

SCRIPT = "#!/bin/sh\nexit 7\n"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A system with a script of QEMU's, on an overlay whose upper file system is another than the lower one."""
    lower, memory, made = (tmp_path / name for name in ("lower", "memory", "root"))
    for folder in (lower / "etc", memory, made):
        folder.mkdir(parents=True)
    (lower / "etc/qemu-ifup").write_text(SCRIPT)
    (lower / "etc/qemu-ifup").chmod(0o755)
    syscalls.mount("tmpfs", str(memory), "tmpfs")
    for name in ("upper", "work"):
        (memory / name).mkdir()
    syscalls.mount("overlay", str(made), "overlay", options=f"lowerdir={lower},upperdir={memory}/upper,workdir={memory}/work")
    yield made
    syscalls.umount(str(made))
    syscalls.umount(str(memory))


def test_installed_twice_and_taken_back(root: Path) -> None:
    path = root / "etc/qemu-ifup"
    os.link(path, root / "etc/other")
    assert path.stat().st_ino != (root / "etc/other").stat().st_ino, "this is what the test is about"
    (root / "etc/other").unlink()
    install("qemu", str(root), hooks=str(HOOKS), run=lambda argv: 0)
    assert path.read_text() != SCRIPT and (root / f"etc/qemu-ifup{SAVED}").read_text() == SCRIPT
    assert install("qemu", str(root), hooks=str(HOOKS), run=lambda argv: 0) == []
    install("qemu", str(root), uninstall=True, hooks=str(HOOKS), run=lambda argv: 0)
    assert path.read_text() == SCRIPT and sorted(os.listdir(root / "etc")) == ["qemu-ifup"]
