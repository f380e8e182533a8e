"""No room, no descriptors, no writing: an up is refused before the first change of the kernel, or done; a down cleans all the same.

tests/kernel/test_doors_disk.py has the plain cases of a full and a read-only /run. Here the room ends at every point of a hook's way.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from netcommon.lifecycle.context import Call, Clock, open_node
from netcommon.lifecycle.gc import gc
from netcommon.log import recording
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.netns import run
from tests.support.node import Node
from tests.support.room import room
from tests.support.rundoor import BASE, HOOKS, rundoor
from tests.support.sample import FULL, sample
from tests.support.snapshot import diff, snapshot

BRIDGED = {"MODE": "bridged", "LINK": "br0", "IP": ""}
STATUS = (69, 75)


class Ended(NamedTuple):
    """How a door ended that was run under a limit."""

    status: int
    stderr: str


def limited(door: str, variables: dict[str, str], limit: Callable[[], None], *arguments: str) -> Ended:
    """Runs a door in whose process ``limit`` was called first."""
    done = subprocess.run(
        [str(HOOKS / door), *arguments], env={**BASE, **variables}, capture_output=True, preexec_fn=limit, cwd="/", check=False, timeout=60
    )
    return Ended(done.returncode, done.stderr.decode())


def descriptors(count: int) -> Callable[[], None]:
    """No descriptor may have a number from ``count`` on (RLIMIT_NOFILE, EMFILE)."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def ended_early(ended: Ended) -> bool:
    """Whether the loader or Python could not even begin (ld.so(8): 127), or a module of ours could not be loaded: no door was open yet."""
    return ended.status == 127 or (ended.status == 1 and not ended.stderr.startswith("netcommon:"))


def collected() -> None:
    """A gc a quarter of an hour later: links to nothing and temporary files go when nobody can be at work on them."""
    made = open_node(Paths(), Settings(), Clock(wall=lambda: time.time() + 1000))
    try:
        assert [found for found in gc(made, Call(recording()[0], time.monotonic() + 30)) if found.action != "removed"] == []
    finally:
        made.store.close()
        made.host.close()  # type: ignore[attr-defined]


@pytest.fixture
def ready(node: Node) -> Node:
    """One NIC of each kind has been up and down: the folders are there."""
    node.bridge("br0")
    node.tap("tap0")
    for changes in ({}, BRIDGED):
        assert rundoor("kvm-ifup", environment(**changes), "tap0").status == 0
        assert rundoor("kvm-ifdown", environment(**changes), "tap0", "hot-remove").status == 0
    return node


@pytest.mark.parametrize("changes", [{}, BRIDGED], ids=["routed", "bridged"])
def test_every_number_of_descriptors(ready: Node, changes: dict[str, str]) -> None:
    """An up is done whole, or refused with the host as it was. A down does it, or says that it did not, and the next does."""
    nic, before, host = environment(**changes), snapshot(), snapshot(())
    down = "kvm-ifdown", nic
    counts = sample(range(3, 40), 5)
    done = 0
    for count in counts:
        ended = limited("kvm-ifup", nic, descriptors(count), "tap0")
        if ended.status != 0:
            assert ended.status in STATUS or ended_early(ended), (count, ended)
            assert ended.stderr.strip(), count
            assert diff(host, snapshot(())) == [], (count, ended)
            collected()
            assert diff(before, snapshot()) == [], (count, ended)
            assert rundoor("kvm-ifup", nic, "tap0").status == 0
        done += ended.status == 0
        ended = limited(*down, descriptors(count), "tap0", "hot-remove")
        if ended.status != 0:
            assert ended.status in STATUS or ended_early(ended), (count, ended)
            assert ended.stderr.strip(), count
            assert rundoor(*down, "tap0", "hot-remove").status == 0
            collected()
        assert diff(before, snapshot()) == [], (count, ended)
    assert done > len(counts) // 4
    figures.add("resources", 2 * len(counts), 0, 0)


@pytest.mark.parametrize(
    "fresh",
    [
        pytest.param(False, id="again"),
        pytest.param(True, id="first", marks=pytest.mark.no_agent("an agent makes the folders again before the first hook does")),
    ],
)
def test_every_amount_of_room(node: Node, fresh: bool) -> None:
    """Inodes end at each of those that a hook makes; pages, before and within its record. The first hook makes the folders too."""
    node.bridge("br0")
    node.tap("tap0")
    nic = environment(**BRIDGED)
    assert rundoor("kvm-ifup", nic, "tap0").status == 0
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    if fresh:
        shutil.rmtree("/run/netcommon")
    plights = [(inodes, 200) for inodes in range(30 if fresh else 14)] + [(100, pages) for pages in range(4)]
    before, host = snapshot(), snapshot(())
    chosen = sample(plights, 4)
    refused = 0
    for plight in chosen:
        with room(*plight):
            up = rundoor("kvm-ifup", nic, "tap0")
            if up.status != 0:
                refused += 1
                assert up.status in STATUS and "/run/netcommon" in up.stderr and "space" in up.stderr, (plight, up)
                assert diff(host, snapshot(())) == [], (plight, up)
        if up.status != 0:
            collected()
            assert fresh or diff(before, snapshot()) == [], (plight, up)
            assert rundoor("kvm-ifup", nic, "tap0").status == 0
        with room(*plight):
            down = rundoor("kvm-ifdown", nic, "tap0", "hot-remove")
            assert diff(host, snapshot(())) == [], (plight, down)
            assert down.status in (0, *STATUS), (plight, down)
        assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
        collected()
        if fresh:
            shutil.rmtree("/run/netcommon")
        assert fresh or diff(before, snapshot()) == [], plight
    assert refused > 0
    figures.add("resources", 2 * len(chosen), 0, 0)


READ_ONLY = ("/run", "/run/netcommon", "/run/netcommon/nics", "/run/netcommon/devices", "/run/netcommon/instances", "/run/netcommon/owners")


@contextlib.contextmanager
def readonly(path: str) -> Iterator[None]:
    """The folder and what is below it cannot be written."""
    run("mount", "--bind", path, path)
    run("mount", "-o", "remount,bind,ro", path)
    try:
        yield
    finally:
        run("umount", path)


@pytest.mark.no_agent("mounts over folders that an agent has open")
@pytest.mark.parametrize("path", sample(READ_ONLY, 3))
def test_each_folder_read_only(ready: Node, path: str) -> None:
    nic, before, host = environment(**BRIDGED), snapshot(), snapshot(())
    with readonly(path):
        up = rundoor("kvm-ifup", nic, "tap0")
        assert up.status in STATUS and "/run/netcommon" in up.stderr and "Read-only" in up.stderr, up
        assert diff(host, snapshot(())) == [], up
    assert rundoor("kvm-ifup", nic, "tap0").status == 0
    with readonly(path):
        down = rundoor("kvm-ifdown", nic, "tap0", "hot-remove")
        told = [f"+ links: tap0: ifalias = {nic['INTERFACE_UUID']} /down"]  # what its record cannot tell
        assert diff(host, snapshot(())) in ([], told if os.path.exists(f"/run/netcommon/nics/{nic['INTERFACE_UUID']}.json") else []), down
        assert down.status in (0, *STATUS), down
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    collected()
    assert diff(before, snapshot()) == []
    figures.add("resources", 2, 0, 0)


def trace(door: str, variables: dict[str, str], *arguments: str) -> dict[str, int]:
    """How often the door makes each system call that can run out of something."""
    calls = "openat,mkdir,rename,renameat,renameat2,symlinkat,symlink,write,socket,pipe2,fchmod,linkat,unlinkat,unlink,memfd_create"
    argv = ["strace", "-f", "-qq", "-o", "/run/trace", "-e", f"trace={calls}", str(HOOKS / door), *arguments]
    subprocess.run(argv, env={**BASE, **variables}, capture_output=True, check=True, cwd="/", timeout=120)
    text = Path("/run/trace").read_text()
    os.unlink("/run/trace")
    counts: dict[str, int] = {}
    for call in re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE):
        counts[call] = counts.get(call, 0) + 1
    return counts


#: What each call fails with where something has run out.
OUT = {
    "mkdir": "ENOSPC", "mkdirat": "ENOSPC", "rename": "ENOSPC", "renameat": "ENOSPC", "symlinkat": "ENOSPC", "symlink": "ENOSPC",
    "linkat": "ENOSPC", "unlinkat": "EROFS", "unlink": "EROFS", "write": "ENOSPC", "socket": "EMFILE", "pipe2": "EMFILE", "fchmod": "EROFS",
    "memfd_create": "EMFILE", "openat": "EMFILE",
}  # fmt: skip


@pytest.mark.no_agent("disturbs the hook's own process")
def test_every_call_that_can_run_out(ready: Node) -> None:
    """Each call of an up in turn fails as if something had run out just then: it is refused, the host as before, or it is done."""
    nic, before, host = environment(**BRIDGED), snapshot(), snapshot(())
    counts = trace("kvm-ifup", nic, "tap0")
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    first = counts["openat"] - 60  # before that Python reads its own files
    points = [(call, number) for call, count in sorted(counts.items()) for number in range(1, count + 1)]
    points = [(call, number) for call, number in points if call != "openat" or number > first]
    chosen = points if FULL else [point for point in points if point[0] in ("write", "symlinkat", "socket")][::2][:6]
    refused = 0
    for call, number in chosen:
        inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error={OUT[call]}:when={number}"]
        done = subprocess.run(
            [*inject, str(HOOKS / "kvm-ifup"), "tap0"], env={**BASE, **nic}, capture_output=True, check=False, cwd="/", timeout=120
        )
        said = Ended(done.returncode, done.stderr.decode())
        point = (call, number, said)
        if said.status != 0:
            refused += 1
            assert said.status in STATUS or ended_early(said), point
            assert diff(host, snapshot(())) == [], point
            collected()
            assert diff(before, snapshot()) == [], point
            assert rundoor("kvm-ifup", nic, "tap0").status == 0, point
        assert rundoor("kvm-ifup", nic, "tap0").status == 0, point
        argv = [*inject, str(HOOKS / "kvm-ifdown"), "tap0", "hot-remove"]
        done = subprocess.run(argv, env={**BASE, **nic}, capture_output=True, check=False, cwd="/", timeout=120)
        assert done.returncode in (0, 1, *STATUS), (point, done)
        assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0, point
        collected()
        assert diff(before, snapshot()) == [], point
    assert refused > 0
    figures.add("resources", 2 * len(chosen), 0, 0)
