"""Find the guests of a node whose files nobody can read, for somebody has edited them: by their processes, since they are left alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mockcloud import stored
from mockcloud.hardware import TAP
from runtime.errors import NetcommonError
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Collection

OPEN = re.compile(r"^iff:\t(\S+)$", re.MULTILINE | re.ASCII)  #: in /proc/PID/fdinfo/FD: the tap that is open
LONGEST = 1 << 16  #: bytes


def unread(root: str, node: str, proc: str) -> dict[int, list[str]]:
    """Give the processes of such guests, each with the taps that it has open. ``proc``: the node's /proc."""
    wanted = frozenset(stored.named(root, node)) - {vm.uuid for vm in stored.of_node(root, node)[0]}
    return processes(proc, wanted)


def processes(proc: str, wanted: Collection[str]) -> dict[int, list[str]]:
    """Give the processes of the instances ``wanted``, each with the taps that it has open."""
    found: dict[int, list[str]] = {}
    if wanted and (folder := Folder.find(proc)) is not None:
        with folder:
            for name in filter(str.isdecimal, folder.names()):
                try:
                    taps = _taps(f"{proc}/{name}", wanted)
                except NetcommonError:  # somebody has edited that, too
                    continue
                if taps:
                    found[int(name)] = taps
    return found


def _taps(process: str, wanted: Collection[str]) -> list[str]:
    """Give the taps of a process, none where it is not the QEMU of one of the instances ``wanted``. Raises NetcommonError."""
    words = (_read(process, "cmdline") or "").split("\0")
    if "-uuid" not in words[:-1] or words[words.index("-uuid") + 1] not in wanted:
        return []
    folder = Folder.find(f"{process}/fdinfo")
    if folder is None:
        return []
    with folder:
        names = folder.names()
    return [tap for name in names for tap in OPEN.findall(_read(f"{process}/fdinfo", name) or "") if TAP.fullmatch(tap)]


def _read(path: str, name: str) -> str | None:
    folder = Folder.find(path)
    if folder is None:
        return None
    with folder:
        data = folder.read(name, LONGEST)
    return None if data is None else data.decode("utf-8", "replace")
