"""Say how many nodes this machine can hold, before they are made: by memory, by inotify watches, by inodes and room of the file system.

What a node needs was measured with an instance of five NICs on each, and is rounded up.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mockcloud.sysinfo import NAMESPACE, TREE
from runtime.errors import HostRefused, escaped

MEMORY = 384 << 10  #: bytes of a node whose agent runs: its own, the registry's part, and what Python keeps back
WATCHES = 3  #: of its records, and of Ganeti's files
INODES = 100
DISK = 256 << 10  #: bytes: folders and files of 4 KiB, and what the registry writes down
BASE = 64 << 20  #: bytes of memory without any node
SOCKETS = 2  #: descriptors of a node whose registry is served elsewhere: its stream, and what it asks by
MEMBER = 128 << 20  #: bytes on disk of a member of an etcd from its start: two files of 64 MB for its log, and some more
SPARE = 64  #: descriptors of this process for anything else
NUMBERS = 200_000  #: nodes at most: addresses of the admin network
WORD = {"memory": "memory", "watches": "fs.inotify.max_user_watches", "inodes": "inodes", "disk": "room on disk", "numbers": "addresses"}
WORD["descriptors"] = "open files (RLIMIT_NOFILE)"
WORD["namespaces"] = "user.max_net_namespaces"
OF_TLS = 128 << 10  #: bytes of memory for the two connections of a node that speaks TLS, which have a context each
OF_NAMESPACE = 2 << 20  #: bytes of the kernel's memory for a network namespace
DEEP = 40  #: descriptors of a node in a namespace: its own, its sockets, its taps


class Room(NamedTuple):
    """Say how many nodes fit, with those that are there already, and of what there is least."""

    nodes: int
    least: str  #: one of WORD
    has: int
    needs: int  #: for one node


def room(
    root: str,
    proc: str = "/proc",
    cgroup: str = "/sys/fs/cgroup",
    sockets: int = 0,
    depth: str = TREE,
    there: int = 0,
    running: int = 0,
    tls: bool = False,
    members: int = 0,
) -> Room:
    """Look at this machine. What cannot be read limits nothing.

    ``sockets``: of each node; ``tls``: they are TLS's; ``depth``: of those that are to fit; ``there``: how many are on disk, and have their
    part of it; ``running``: how many run in this process, and have their memory; ``members``: of an etcd that is to be made there before.
    What is limited as a whole, and not by what is free now, has to do for all of them.
    """
    disk = os.statvfs(_there(root))
    found = [Room(NUMBERS, "numbers", NUMBERS, 1)]
    deep = depth == NAMESPACE
    sockets += DEEP if deep else 0
    for least, has, needs in (
        ("memory", _memory(proc, cgroup), MEMORY + (OF_NAMESPACE if deep else 0) + (OF_TLS if tls else 0)),
        ("namespaces", _number(f"{proc}/sys/user/max_net_namespaces") if deep else None, 1),
        ("watches", _number(f"{proc}/sys/fs/inotify/max_user_watches"), WATCHES),
        ("inodes", disk.f_favail if disk.f_files else None, INODES),
        ("disk", max(disk.f_bavail * disk.f_frsize - members * MEMBER, 0), DISK),
    ):
        if has is not None:
            more = {"memory": running, "inodes": there, "disk": there}.get(least, 0)
            found.append(Room(max(has - (BASE if least == "memory" else 0), 0) // needs + more, least, has, needs))
    if sockets:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # as many as this process may give itself
        found.append(Room(max(most - SPARE, 0) // sockets, "descriptors", most, sockets))
    return min(found)


def let_open() -> None:
    """Let this process have as many descriptors as it may."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != most:
        with suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check(number: int, room: Room) -> None:
    """Raise HostRefused where ``number`` nodes do not fit."""
    if number > room.nodes:
        has, needs = (each if room.least not in ("memory", "disk") else f"{each >> 10} KiB" for each in (room.has, room.needs))
        by = f"{room.nodes} fit, by {WORD[room.least]} ({has} free, {needs} for a node)"
        raise HostRefused(f"{number} nodes are more than this machine can hold: {by}", f"ask for {room.nodes} at most, or make room")


def check_members(members: int, root: str) -> None:
    """Raise HostRefused where an etcd of so many members has no room on disk; without members nothing is needed."""
    disk = os.statvfs(_there(root))
    free = disk.f_bavail * disk.f_frsize
    if members and free < members * MEMBER:
        what = f"an etcd of {members} members needs {members * MEMBER >> 20} MiB on disk, and {free >> 20} are free in {escaped(root)}"
        raise HostRefused(what, "make room, or name another folder (mockcloud run: --keep, or TMPDIR)")


def _memory(proc: str, cgroup: str) -> int | None:
    """Give what is free of the memory, or of what this process' group may have (cgroup v2)."""
    free = []
    try:
        for line in Path(f"{proc}/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) << 10)
    except (OSError, ValueError, IndexError):
        pass
    most, used = _number(f"{cgroup}/memory.max"), _number(f"{cgroup}/memory.current")
    if most is not None and used is not None:
        free.append(max(most - used, 0))
    return min(free, default=None)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" says that there is no limit
        return None


def _there(path: str) -> str:
    """Give the folder, or the nearest above it that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path
