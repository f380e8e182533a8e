"""What a disk may hold after the power went: every prefix of a program's file operations, and of those that were not flushed any part.

The model is no file system's but what all of them allow (fsync(2), rename(2)): what fsync(2) was called for is there; of what came after,
the entries of folders may have reached the disk or not, each on its own and in any order, and the bytes of a file whole, in part or not at
all, whatever its name says. A rename is there or not, as one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

Place = tuple[str, str]  #: folder and name
MOST = 10  #: of more operations in the air than so many, those in the middle are there in their order


class Node(NamedTuple):
    """What an entry leads to: a file by its number, a link's target, or a folder."""

    kind: str
    value: int | str = 0


class Step(NamedTuple):
    """One operation: entries it sets (None: removes), or bytes of a file, or a flush of a file or of a folder."""

    name: str
    entries: tuple[tuple[Place, Node | None], ...] = ()
    file: int = -1
    data: bytes | None = None
    flushed: str = ""  #: the folder that fsync was called for; with ``file`` and no data: that file


class Recorder:
    """Stands in for ``os`` in the modules under test and notes what they do to files below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.steps: list[Step] = []
        self._entries: dict[Place, Node] = {}
        self._files: dict[int, bytes] = {}
        self._open: dict[int, int] = {}
        for where, folders, names in os.walk(root):
            for name in folders:
                self._entries[where, name] = Node("folder")
            for name in names:
                path = f"{where}/{name}"
                if os.path.islink(path):
                    self._entries[where, name] = Node("link", os.readlink(path))
                else:
                    self._entries[where, name] = self._file(Path(path).read_bytes())
        self.first = dict(self._entries)
        self.contents = dict(self._files)

    def _file(self, data: bytes = b"") -> Node:
        self._files[len(self._files)] = data
        return Node("file", len(self._files) - 1)

    @contextmanager
    def watching(self, *modules: ModuleType) -> Iterator[Recorder]:
        """While it lasts, ``os`` of these modules is this recorder."""
        for module in modules:
            vars(module)["os"] = self
        try:
            yield self
        finally:
            for module in modules:
                vars(module)["os"] = os

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _place(self, path: Any, within: int | None) -> Place:
        folder = os.readlink(f"/proc/self/fd/{within}") if within is not None else ""
        whole = os.path.join(folder, os.fspath(path))
        return os.path.dirname(whole), os.path.basename(whole)

    def _note(self, name: str, *entries: tuple[Place, Node | None]) -> None:
        for place, node in entries:
            if node is None:
                self._entries.pop(place, None)
            else:
                self._entries[place] = node
        self.steps.append(Step(name, entries))

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd)
        fresh = flags & os.O_CREAT and place not in self._entries
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
        if fresh:
            self._note("create", (place, self._file()))
        node = self._entries.get(place)
        if node is not None and node.kind == "file":
            self._open[descriptor] = int(node.value)
            if flags & os.O_TRUNC and not fresh:
                self.steps.append(Step("truncate", file=int(node.value), data=b""))
                self._files[int(node.value)] = b""
        else:
            self._open.pop(descriptor, None)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        os.close(descriptor)

    def write(self, descriptor: int, data: Any) -> int:
        written = os.write(descriptor, data)
        file = self._open[descriptor]
        self._files[file] += bytes(data[:written])
        self.steps.append(Step("write", file=file, data=self._files[file]))
        return written

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)
        if descriptor in self._open:
            self.steps.append(Step("fsync", file=self._open[descriptor]))
        else:
            self.steps.append(Step("fsync", flushed=os.readlink(f"/proc/self/fd/{descriptor}")))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        os.mkdir(path, mode, dir_fd=dir_fd)
        self._note("mkdir", (self._place(path, dir_fd), Node("folder")))

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        os.rmdir(path, dir_fd=dir_fd)
        self._note("rmdir", (self._place(path, dir_fd), None))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)
        self._note("unlink", (self._place(path, dir_fd), None))

    def symlink(self, target: str, path: Any, *, dir_fd: int | None = None) -> None:
        os.symlink(target, path, dir_fd=dir_fd)
        self._note("symlink", (self._place(path, dir_fd), Node("link", target)))

    def link(self, path: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None, **more: Any) -> None:
        os.link(path, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **more)
        self._note("link", (self._place(new, dst_dir_fd), self._entries[self._place(path, src_dir_fd)]))

    def rename(self, path: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        os.rename(path, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        source = self._place(path, src_dir_fd)
        self._note("rename", (self._place(new, dst_dir_fd), self._entries[source]), (source, None))

    # -- what may be left

    def crashes(self) -> Iterator[Crash]:
        """Every state of the disk, at every instant; those that are the same come once."""
        seen: set[Any] = set()
        for end in range(len(self.steps) + 1):
            done = self.steps[:end]
            for kept in _subsets([number for number, step in enumerate(done) if step.entries and not _flushed(done, number)]):
                entries = dict(self.first)
                for number, step in enumerate(done):
                    if _flushed(done, number) or number in kept:
                        for place, node in step.entries:
                            entries.pop(place, None) if node is None else entries.update({place: node})
                entries = {place: node for place, node in entries.items() if _reachable(place[0], entries, self.root)}
                for files in self._contents(done, entries):
                    what = frozenset((place, node.kind, files.get(place, node.value)) for place, node in entries.items())
                    if (what, end == len(self.steps)) not in seen:
                        seen.add((what, end == len(self.steps)))
                        yield Crash(end, end == len(self.steps), entries, files)

    def _contents(self, done: Sequence[Step], entries: dict[Place, Node]) -> Iterator[dict[Place, bytes]]:
        """What the files that are there may hold."""
        choices: list[list[tuple[Place, bytes]]] = []
        for place, node in entries.items():
            if node.kind != "file":
                continue
            file = int(node.value)
            writes = [(number, step.data) for number, step in enumerate(done) if step.file == file and step.data is not None]
            flushes = [number for number, step in enumerate(done) if step.file == file and step.data is None]
            safe = self.contents.get(file, b"")
            for number, data in writes:
                if flushes and number < flushes[-1]:
                    safe = data or b""
            loose = [data for number, data in writes if not flushes or number > flushes[-1]]
            last = (loose[-1] if loose else safe) or b""
            possible = dict.fromkeys((safe, last, last[: len(last) // 2]) if loose else (safe,))
            choices.append([(place, data) for data in possible])
        for chosen in itertools.product(*choices):
            yield dict(chosen)


class Crash(NamedTuple):
    """A disk as it may be: after how many operations, whether that was all of them, entries, and bytes of files."""

    end: int
    complete: bool
    entries: dict[Place, Node]
    files: dict[Place, bytes]

    def put(self, root: str, target: Path) -> None:
        """Makes it what is below ``target``."""
        target.mkdir()
        for place, node in sorted(self.entries.items(), key=lambda item: (item[0][0].count("/"), item[0])):
            path = target / os.path.relpath(f"{place[0]}/{place[1]}", root)
            if node.kind == "folder":
                path.mkdir()
            elif node.kind == "link":
                path.symlink_to(str(node.value))
            else:
                path.write_bytes(self.files[place])
                path.chmod(0o644)


def _flushed(done: Sequence[Step], number: int) -> bool:
    """Whether what the step did to folders was flushed later on, each of them."""
    folders = {place[0] for place, _node in done[number].entries}
    return folders <= {step.flushed for step in done[number + 1 :]}


def _subsets(numbers: Sequence[int]) -> Iterator[set[int]]:
    """All of them; of many, the first ones and the last ones freely, those in the middle in their order."""
    free, middle = list(numbers), []
    if len(numbers) > MOST:
        free, middle = [*numbers[: MOST // 2], *numbers[-MOST // 2 :]], list(numbers[MOST // 2 : -MOST // 2])
    for count in range(len(free) + 1):
        for chosen in itertools.combinations(free, count):
            for length in range(len(middle) + 1):
                yield {*chosen, *middle[:length]}


def _reachable(folder: str, entries: dict[Place, Node], root: str) -> bool:
    """A folder that did not reach the disk takes all that is in it along."""
    while folder != root:
        parent, name = os.path.split(folder)
        node = entries.get((parent, name))
        if node is None or node.kind != "folder":
            return False
        folder = parent
    return True
