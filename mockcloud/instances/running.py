"""Run one task, and leave a log of it in the folder of each node that did something."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from mockcloud.sysinfo import SERVERS
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from mockcloud.cloud import MockCloud

LOGS = "logs"
LATEST = 1000  #: lines that are in memory of what nodes do by themselves: one may be of many KiB
MOST = 100  #: logs of a node; older ones go
T = TypeVar("T")


def forget(cloud: MockCloud) -> None:
    """Keep no more than the latest lines of what nodes do by themselves.

    To be called before agents start: what they do first takes many times as much as they do, and a process stays as large as it once was.
    """
    cloud.log = deque(cloud.log, LATEST)


def logged(cloud: MockCloud, name: str, work: Callable[[], T]) -> T:
    """Do ``work``, which is called ``name``; give what it gives. Raises what it raises, HostRefused where no log can be written."""
    before, cloud.log, began = cloud.log, [], cloud.registry.now
    try:
        return work()
    finally:
        of: dict[str, list[str]] = {}
        lines, cloud.log = cloud.log, before  # they are on disk then: a cloud that is served for days keeps none in memory
        for line in lines:
            of.setdefault(line.split(" ", 2)[1], []).append(line)
        for uuid, node in cloud.nodes.items():
            if node.name in of:
                _write(f"{cloud.root}/{SERVERS}/{uuid}/{LOGS}", f"{began:.3f}-{name}.log", of[node.name])


def _write(path: str, name: str, lines: list[str]) -> None:
    with Folder.make(path) as folder:
        folder.write(name, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"), 0o644)
        for old in sorted(folder.names())[:-MOST]:
            folder.remove(old)
