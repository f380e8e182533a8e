"""What happens in folders (inotify(7)): records that are written and removed, locks that are let go, daemons' sockets that appear.

A folder is watched by its open descriptor, so nobody can put another in its place on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from netagent.events import Event, Overrun
from runtime.inotify import IN_IGNORED, IN_Q_OVERFLOW, Inotify, Seen

SOURCE = "inotify"

#: What is made of a file's name in a watched folder; none: it is nothing to us.
Reader = Callable[[str], Event | None]


class Watch(NamedTuple):
    """A watched folder."""

    what: str
    reader: Reader


class Watcher(Protocol):
    """Watches folders: runtime.inotify.Inotify, or a part of one that many share."""

    @property
    def descriptor(self) -> int: ...
    def add(self, folder: str, mask: int, what: str) -> int | None: ...
    def read(self) -> list[Seen]: ...
    def close(self) -> None: ...


class FileEvents:
    """A watcher's events. ``lost`` names the watches whose folder has gone since, or whose filesystem was unmounted."""

    def __init__(self, watcher: Callable[[], Watcher] = Inotify) -> None:
        self._inotify = watcher()
        self.descriptor = self._inotify.descriptor
        self._watches: dict[int, Watch] = {}
        self.lost: set[str] = set()

    def close(self) -> None:
        self._inotify.close()

    def watch(self, what: str, folder: int | str, mask: int, reader: Reader) -> bool:
        """Watches an open folder, or one by its path, under the name ``what``; whether it could.

        Raises HostRefused at the system's limit.
        """
        made = self._inotify.add(f"/proc/self/fd/{folder}" if isinstance(folder, int) else folder, mask, what)
        if made is None:
            self.lost.add(what)
            return False
        self._watches[made] = Watch(what, reader)
        self.lost.discard(what)
        return True

    def read(self) -> list[Event]:
        """What has happened since it was last read, each once, in the order of its last time."""
        found: dict[Event, None] = {}
        for seen in self._inotify.read():
            event = self._event(*seen)
            if event is not None:
                found.pop(event, None)
                found[event] = None
        return list(found)

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
