"""What happens in folders (inotify(7)): records that are written and removed, locks that are let go, daemons' sockets that appear.

A folder is watched by its open descriptor, so nobody can put another in its place on the way.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from netagent.events import Event, Overrun
from runtime.errors import HostRefused

SOURCE = "inotify"

IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_CLOSE_WRITE, IN_CLOSE_NOWRITE = 0x08, 0x10
IN_CLOSE = IN_CLOSE_WRITE | IN_CLOSE_NOWRITE
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR = 0x4000, 0x8000, 0x01000000

#: A file came, whole, or went: one that is only begun is not looked at.
NAMES = IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE

EVENT = Struct("=iIII")  #: struct inotify_event: watch, mask, cookie, length of the name
ROOM = 1 << 16

#: What is made of a file's name in a watched folder; none: it is nothing to us.
Reader = Callable[[str], Event | None]

_libc = ctypes.CDLL(None, use_errno=True)


class Watch(NamedTuple):
    """A watched folder."""

    what: str
    reader: Reader


class FileEvents:
    """One inotify descriptor. ``lost`` names the watches whose folder has gone since, or whose filesystem was unmounted."""

    def __init__(self) -> None:
        self.descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise HostRefused(f"inotify: {os.strerror(ctypes.get_errno())}")
        self._watches: dict[int, Watch] = {}
        self.lost: set[str] = set()

    def close(self) -> None:
        os.close(self.descriptor)

    def watch(self, what: str, folder: int | str, mask: int, reader: Reader) -> bool:
        """Watches an open folder, or one by its path, under the name ``what``; whether it could.

        Raises HostRefused at the system's limit.
        """
        path = f"/proc/self/fd/{folder}" if isinstance(folder, int) else folder
        made = _libc.inotify_add_watch(self.descriptor, os.fsencode(path), mask | IN_ONLYDIR)
        if made >= 0:
            self._watches[made] = Watch(what, reader)
            self.lost.discard(what)
            return True
        number = ctypes.get_errno()
        if number in (2, 13, 20):  # ENOENT, EACCES, ENOTDIR: there is nothing to watch
            self.lost.add(what)
            return False
        raise HostRefused(f"cannot watch {what}: {os.strerror(number)} (fs.inotify.max_user_watches)")

    def read(self) -> list[Event]:
        """What has happened since it was last read, each once, in the order of its last time."""
        found: dict[Event, None] = {}
        while True:
            try:
                data = os.read(self.descriptor, ROOM)
            except BlockingIOError:
                return list(found)
            offset = 0
            while offset + EVENT.size <= len(data):
                watch, mask, _cookie, length = EVENT.unpack_from(data, offset)
                name = data[offset + EVENT.size : offset + EVENT.size + length].rstrip(b"\0")
                offset += EVENT.size + length
                event = self._event(watch, mask, os.fsdecode(name))
                if event is not None:
                    found.pop(event, None)
                    found[event] = None

    def _event(self, number: int, mask: int, name: str) -> Event | None:
        if mask & IN_Q_OVERFLOW:
            return Overrun(SOURCE)
        watch = self._watches.get(number)
        if watch is None:
            return None
        if mask & IN_IGNORED:
            del self._watches[number]
            self.lost.add(watch.what)
            return Overrun(SOURCE)
        return watch.reader(name) if name else None
