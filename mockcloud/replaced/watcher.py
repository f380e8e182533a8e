"""Watch the folders of many nodes by one inotify descriptor."""

from __future__ import annotations

from mockcloud.replaced.scheduler import NodeLoop
from runtime.inotify import IN_IGNORED, Inotify, Seen


class SharedWatcher:
    """The descriptor. No two nodes have a folder in common."""

    def __init__(self) -> None:
        self.inotify = Inotify()
        self.parts: dict[int, Part] = {}

    def part(self, loop: NodeLoop) -> Part:
        """Make the watcher of one node."""
        return Part(self, loop)

    def pump(self) -> None:
        """Hand out what has happened."""
        for seen in self.inotify.read():
            part = self.parts.get(seen.watch)
            if part is not None:
                part.hear(seen)

    def close(self) -> None:
        self.inotify.close()


class Part:
    """The watcher of one node: a netagent.sources.inotify.Watcher."""

    def __init__(self, whole: SharedWatcher, loop: NodeLoop) -> None:
        self._whole, self._loop = whole, loop
        self.descriptor = loop.scheduler.descriptor()
        self._waiting: list[Seen] = []

    def add(self, folder: str, mask: int, what: str) -> int | None:
        made = self._whole.inotify.add(folder, mask, what)
        if made is not None:
            self._whole.parts[made] = self
        return made

    def hear(self, seen: Seen) -> None:
        """Something has happened in a folder of this node."""
        if seen.mask & IN_IGNORED:
            del self._whole.parts[seen.watch]
        self._waiting.append(seen)
        self._loop.readable(self.descriptor)

    def read(self) -> list[Seen]:
        found, self._waiting = self._waiting, []
        return found

    def close(self) -> None:
        self._whole.pump()
        for watch in [watch for watch, part in self._whole.parts.items() if part is self]:
            del self._whole.parts[watch]
            self._whole.inotify.forget(watch)
