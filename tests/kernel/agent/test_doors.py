"""A `gnt-cluster upgrade` leads Ganeti's link to scripts without doors of ours: the agent, and Ganeti's own hook, put them in place."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.install import install
from netcommon.scripts.door_files import is_door
from netcommon.scripts.site import HOOKS
from tests.support import syscalls
from tests.support.agent import agent
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor

CALLED = Path("/usr/lib/ganeti/kvm-ifup")


def version(name: str) -> None:
    """The scripts of a version, of which nobody tells our install."""
    script = Path(f"/usr/lib/ganeti/{name}/usr/lib/ganeti/kvm-ifup")
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/bash\n# {name}\n")
    script.chmod(0o755)


def upgrade(name: str) -> None:
    """Do what `gnt-cluster upgrade` does on every node, where Ganeti's own link is in its place."""
    for target, link in ((f"/usr/lib/ganeti/{name}", "/etc/ganeti/lib"), ("default/usr/lib/ganeti/kvm-ifup", CALLED)):
        subprocess.run(["ln", "-s", "-f", "-T", target, link], check=True)


def ours() -> bool:
    return is_door(os.path.realpath(CALLED), HOOKS)


@pytest.fixture
def ganeti(node: Node, tmp_path: Path) -> Iterator[Node]:
    """A node with Debian's Ganeti 3.0, and our doors in its place."""
    syscalls.mount("tmpfs", str(tmp_path), "tmpfs", options="mode=0755")
    for name in ("upper", "work"):
        (tmp_path / name).mkdir()
    syscalls.mount("overlay", "/usr/lib", "overlay", options=f"lowerdir=/usr/lib,upperdir={tmp_path}/upper,workdir={tmp_path}/work")
    try:
        shutil.rmtree("/usr/lib/ganeti", ignore_errors=True)  # that of a machine that has Ganeti
        version("3.0")
        upgrade("3.0")
        Path("/usr/lib/ganeti/default").symlink_to("/etc/ganeti/lib")
        install("ganeti")
        yield node
    finally:
        for path in ("/usr/lib", str(tmp_path)):
            subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.no_agent("it starts its own")
@pytest.mark.usefixtures("ganeti")
def test_the_agent_follows_the_link() -> None:
    with agent() as running:
        assert ours()
        for name in ("3.1", "3.5"):
            version(name)
            upgrade(name)
            wait_until(ours, seconds=60, what=f"a door of ours in {name}")  # bytecode is made first, where there is none
            assert f"Ganeti calls what is no door of ours: /usr/lib/ganeti/{name}/usr/lib/ganeti/kvm-ifup" in running.output


@pytest.mark.no_agent("it would be faster")
@pytest.mark.usefixtures("ganeti")
def test_ganetis_hook_of_cluster_verify() -> None:
    version("3.1")
    upgrade("3.1")
    assert not ours()
    done = rundoor("ganeti-hook", {"GANETI_OBJECT_TYPE": "CLUSTER", "GANETI_HOOKS_PHASE": "post"})
    assert (done.status, ours()) == (0, True), done
