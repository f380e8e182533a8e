"""Let a disk be full, and say when its files were changed.

A full one is made by the kernel, which refuses every write to a file, as where there is no room (setrlimit(2), RLIMIT_FSIZE).
"""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runtime.folder import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime.folder import Folder


@contextmanager
def no_room() -> Iterator[None]:
    """Let nothing that is done within write into a file. Files may be made, and go: as on a disk that has inodes left.

    Of the whole process, so only for what runs in one thread. Python ignores the signal that would come with it (SIGXFSZ).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Dates:
    """The dates of a node's files by its own clock, ``wall``: each was changed when it was first looked at.

    They bear the dates of this machine's clock, which is another one, and runs otherwise.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._seen: dict[tuple[int, int, int], float] = {}

    def look(self, root: str) -> None:
        """Look at what killed processes may have left below a folder: temporary files, and links that lead nowhere."""
        for where, _folders, names in os.walk(root):
            for name in names:
                path = f"{where}/{name}"
                if name.startswith(TEMPORARY) or not os.path.exists(path):
                    self._of(os.lstat(path))

    def _of(self, found: os.stat_result) -> float:
        return self._seen.setdefault((found.st_dev, found.st_ino, found.st_mtime_ns), self._wall())

    def modified(self, folder: Folder, name: str) -> float:
        """Give when a file or link was last written (seconds since the epoch); 0 where there is none."""
        try:
            found = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
        except OSError:
            return 0.0
        return self._of(found)
