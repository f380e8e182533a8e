"""Let a node be lost for good, and another machine come into its place, which has nothing of it.

A note on the node's disk is written first, and goes last: a command that was killed in between is completed by the next one that starts
the node.
"""

from __future__ import annotations

import os
import shutil

from mockcloud import stored
from mockcloud.sysinfo import SERVERS, paths_of
from runtime.folder import Folder

NOTE = "lost"  #: in the node's folder
VOLATILE = ("run", "var/run", "proc")  #: folders of a node that a boot finds empty


def lose(root: str, node: str) -> None:
    """Remove what a node knows of itself and of its registry. Raises HostRefused."""
    with Folder.make(f"{root}/{SERVERS}/{node}") as folder:
        folder.write(NOTE, b"", 0o644)
    shutil.rmtree(paths_of(root, node).lib, ignore_errors=True)


def is_lost(root: str, node: str) -> bool:
    """Tell whether a node was lost, and no other machine was switched on since."""
    return os.path.lexists(f"{root}/{SERVERS}/{node}/{NOTE}")


def switch_on(root: str, node: str) -> None:
    """Let a node be at another boot, with nothing in /run and /proc; one that was lost is another machine by now. Raises HostRefused."""
    for path in (f"{root}/{SERVERS}/{node}/{name}" for name in VOLATILE):
        shutil.rmtree(path, ignore_errors=True)
    stored.count(root, node, stored.Counters(stored.counters(root, node).boot + 1))
    with Folder.make(f"{root}/{SERVERS}/{node}") as folder:
        folder.remove(NOTE)
