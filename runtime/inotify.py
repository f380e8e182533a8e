"""Follow what happens in folders: inotify(7), by the C library, for Python has no module of it."""

from __future__ import annotations

import ctypes
import os
from struct import Struct
from typing import NamedTuple

from runtime.errors import HostRefused

IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_MODIFY = 0x02
IN_CLOSE_WRITE, IN_CLOSE_NOWRITE = 0x08, 0x10
IN_CLOSE = IN_CLOSE_WRITE | IN_CLOSE_NOWRITE
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR = 0x4000, 0x8000, 0x01000000

#: A file came, whole, or went: one that is only begun is not looked at.
NAMES = IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE

EVENT = Struct("=iIII")  #: struct inotify_event: watch, mask, cookie, length of the name
ROOM = 1 << 16
NOTHING_THERE = (2, 13, 20)  #: ENOENT, EACCES, ENOTDIR

_libc = ctypes.CDLL(None, use_errno=True)


class Seen(NamedTuple):
    """One event: the number of its watch, what happened, and to which file of the folder ("": to the folder itself)."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One inotify descriptor. Raises HostRefused where the kernel gives none."""

    def __init__(self) -> None:
        self.descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise HostRefused(f"inotify: {os.strerror(ctypes.get_errno())}")

    def close(self) -> None:
        os.close(self.descriptor)

    def add(self, folder: str, mask: int, what: str) -> int | None:
        """Watch a folder; give the watch's number, None where there is nothing to watch. ``what``: how it is called.

        Raises HostRefused at the system's limit.
        """
        made = int(_libc.inotify_add_watch(self.descriptor, os.fsencode(folder), mask | IN_ONLYDIR))
        if made >= 0:
            return made
        number = ctypes.get_errno()
        if number in NOTHING_THERE:
            return None
        raise HostRefused(f"cannot watch {what}: {os.strerror(number)} (fs.inotify.max_user_watches)")

    def forget(self, number: int) -> None:
        """Watch a folder no more; nothing where it is not watched any more."""
        _libc.inotify_rm_watch(self.descriptor, number)

    def read(self) -> list[Seen]:
        """Give what has happened since it was last read, in order; never waits."""
        found: list[Seen] = []
        while True:
            try:
                data = os.read(self.descriptor, ROOM)
            except BlockingIOError:
                return found
            offset = 0
            while offset + EVENT.size <= len(data):
                watch, mask, _cookie, length = EVENT.unpack_from(data, offset)
                name = data[offset + EVENT.size : offset + EVENT.size + length].rstrip(b"\0")
                offset += EVENT.size + length
                found.append(Seen(watch, mask, os.fsdecode(name)))
