"""Kill what runs on a simulated node at one of its requests, as SIGKILL does: nothing that it would do on its way out is done.

What is killed is unwound by an exception, so its handlers run. What they would change of the host is refused by whoever raises it again;
what they change of files is put back (``Frozen``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 1 << 26  #: bytes of one file
MODE = 0o7777


class Killed(BaseException):
    """Stands for SIGKILL."""


class Frozen:
    """The files below some folders as they are now. Raises OSError."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = tuple(roots)
        self._files = dict(self._now())

    def restore(self) -> None:
        """Let the files be as they were: those that have changed are written anew, new ones go. Raises HostRefused."""
        now = dict(self._now())
        for path in now.keys() - self._files.keys():
            os.unlink(path)
        for path, (mode, data) in sorted(self._files.items()):
            if now.get(path) == (mode, data):
                continue
            with Folder.make(os.path.dirname(path)) as folder:
                if mode:
                    folder.write(os.path.basename(path), data, mode)
                else:
                    folder.link(os.path.basename(path), os.fsdecode(data))

    def _now(self) -> Iterator[tuple[str, tuple[int, bytes]]]:
        """Give path, mode and content of each file; of a symbolic link 0 and where it leads."""
        for root in self._roots:
            for where, _folders, names in os.walk(root):
                for name in names:
                    path = f"{where}/{name}"
                    if os.path.islink(path):
                        yield path, (0, os.fsencode(os.readlink(path)))
                    else:
                        with open(path, "rb") as file:
                            yield path, (os.fstat(file.fileno()).st_mode & MODE, file.read(LONGEST))
