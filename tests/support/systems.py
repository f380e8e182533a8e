"""A system's folder full of whatever may stand where our install puts its doors, and what a package manager does to it."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10  #: <linux/fs.h>

#: Where programs lie that links lead to. Nothing of ours may ever be written there.
PROGRAMS = "/usr/local/sbin"

DPKG = "/var/lib/dpkg"

#: What may stand at the path of a file, and what stands at most where there are many: none of these refuses an install.
STATES = (
    *("missing", "file", "link", "chain", "loop", "dangling", "hard link", "same inode", "link to another"),
    *("immutable", "no file", "link to a folder", "package", "package link", "stranger"),
)
COMMON = ("missing", "missing", "file", "link", "hard link", "same inode", "link to another", "package", "package link")
NEEDED = ("file", "link", "chain", "hard link", "package")

#: What may stand at the path of a folder.
FOLDERS = ("missing", "link", "relative link", "dangling", "loop", "file", "immutable")

ENDINGS = (".netcommon-saved", ".netcommon-new", ".netcommon-saved.netcommon-new")


def immutable(path: str, wanted: bool) -> None:
    """chattr(1) +i or -i, where the kernel's file system has it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, struct.pack("l", 0)))
        fcntl.ioctl(descriptor, FS_IOC_SETFLAGS, struct.pack("l", flags | IMMUTABLE if wanted else flags & ~IMMUTABLE))
    finally:
        os.close(descriptor)


class System:
    """A system below the folder ``root``, furnished by chance: two with the same seed are the same."""

    def __init__(self, root: str, seed: int, flags: bool) -> None:
        self.root, self.random, self.flags = root, Random(seed), flags
        self.frozen: list[str] = []
        for folder in ("/etc", "/var/lib", f"{DPKG}/info", PROGRAMS):
            os.makedirs(root + folder, exist_ok=True)
        self.programs = [self.file(f"{PROGRAMS}/program{number}") for number in range(3)]
        self.packaged: list[str] = []

    def furnish(self, paths: Sequence[str], folders: Sequence[str], needed: str) -> None:
        """Puts something at each of the paths, a script at ``needed`` nearly always, and something else than folders at some ``folders``.

        What cannot be changed is made so last.
        """
        for folder in folders:
            self._folder(folder, self.random.choice(FOLDERS) if self.random.random() < 0.6 / len(folders) else "folder")
        for path in paths:
            if path == needed and os.path.isdir(os.path.dirname(self.root + path)) and self.random.random() < 0.9:
                self._remove(path)
                self._place(path, self.random.choice(NEEDED), paths)
            if os.path.isdir(os.path.dirname(self.root + path)) and not os.path.lexists(self.root + path):
                self._place(path, self.random.choice(STATES if self.random.random() < 1 / len(paths) else COMMON), paths)
        self._write_list()
        for where in self.frozen:
            immutable(where, True)

    def file(self, path: str) -> str:
        """Makes a script with contents, mode, owner and times by chance; its path."""
        where = self._at(path)
        os.makedirs(os.path.dirname(where), exist_ok=True)
        with open(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666), "w", encoding="ascii") as stream:
            stream.write(f"#!/bin/sh\necho {path} {self.random.getrandbits(40)}\n" if self.random.random() < 0.9 else "")
        os.chown(where, *self.random.choice(((0, 0), (0, 0), (1000, 1000), (65534, 4))))
        os.chmod(where, self.random.choice((0o755, 0o755, 0o700, 0o444, 0o644, 0o000, 0o4755)))
        os.utime(where, ns=(0, self.random.randrange(10**18)))
        return path

    def inside(self, path: str) -> bool:
        """Tell whether it is below the root by the kernel's way, which follows absolute links to the running system's own files."""
        folder = os.path.realpath(os.path.dirname(self.root + path))
        return os.path.commonpath((folder, os.path.realpath(self.root))) == os.path.realpath(self.root)

    def _at(self, path: str) -> str:
        if not self.inside(path):
            raise AssertionError(f"{path} leads out of {self.root}: nothing may be written there")
        return self.root + path

    def link(self, path: str, target: str) -> None:
        """Makes a link, one half of those to absolute paths a relative one."""
        where = self._at(path)
        if target.startswith("/") and self.random.random() < 0.5:
            target = os.path.relpath(target, os.path.dirname(path))
        os.symlink(target, where)
        os.utime(where, ns=(0, self.random.randrange(10**18)), follow_symlinks=False)

    def _remove(self, path: str) -> None:
        """Take away what the running system has there, which an overlay shows."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(path))

    def _folder(self, path: str, kind: str) -> None:
        where, elsewhere = self.root + path, f"/srv/{path.strip('/').replace('/', '-')}"
        if not os.path.isdir(os.path.dirname(where)) or os.path.lexists(where):
            return
        if kind in ("folder", "immutable"):
            os.mkdir(where)
            if kind == "immutable":
                self._freeze(where)
        elif kind in ("link", "relative link"):
            os.makedirs(self.root + elsewhere)
            self.link(path, elsewhere if kind == "link" else os.path.relpath(elsewhere, os.path.dirname(path)))
        elif kind in ("dangling", "loop"):
            self.link(path, "nowhere/at-all" if kind == "dangling" else os.path.basename(path))
        elif kind == "file":
            self.file(path)

    def _place(self, path: str, kind: str, paths: Sequence[str]) -> None:
        where, random = self._at(path), self.random
        program = random.choice(self.programs)
        other = random.choice([one for one in paths if one != path] or paths)
        match kind:
            case "file" | "immutable" | "package" | "stranger":
                self.file(path)
            case "link":
                self.link(path, program)
            case "chain":
                for number in range(random.randrange(1, 4)):
                    name = f"{path}-{number}"
                    self.link(name, program)
                    program = name
                self.link(path, program)
            case "loop" | "link to another" | "package link":
                self.link(path, path if kind == "loop" else other)
            case "dangling":
                self.link(path, f"{PROGRAMS}/nothing")
            case "hard link":
                os.link(self.root + program, where)
            case "same inode":
                if not os.path.lexists(self.root + other) and os.path.isdir(os.path.dirname(self.root + other)):
                    self.file(other)
                if other != path and os.path.lexists(self.root + other) and not stat.S_ISDIR(os.lstat(self.root + other).st_mode):
                    os.link(self.root + other, where, follow_symlinks=False)
            case "no file":
                os.mkdir(where) if random.random() < 0.5 else os.mkfifo(where)
            case "link to a folder":
                self.link(path, PROGRAMS)
        if kind == "immutable":
            self._freeze(where)
        if kind == "stranger":
            self.file(path + random.choice(ENDINGS))
        if kind.startswith("package"):
            self.packaged.append(path)

    def _freeze(self, where: str) -> None:
        if self.flags and os.path.lexists(where):
            self.frozen.append(where)

    def thaw(self) -> None:
        for where in self.frozen:
            immutable(where, False)
        self.frozen.clear()

    def _write_list(self) -> None:
        with open(f"{self.root}{DPKG}/info/trial.list", "w", encoding="ascii") as stream:
            stream.write("".join(f"{path}\n" for path in ("/.", *self.packaged)))

    def diversions(self) -> dict[str, str]:
        """Where dpkg puts files, by their paths."""
        try:
            with open(f"{self.root}{DPKG}/diversions", encoding="ascii") as stream:
                lines = stream.read().split("\n")
        except FileNotFoundError:
            return {}
        return dict(zip(lines[0::3], lines[1::3], strict=False))

    def run(self, argv: Sequence[str]) -> int:
        """dpkg-divert(1), as our install calls it."""
        if argv[0] == "dpkg-divert":
            assert argv[1:3] == ["--root", self.root] and argv[3:6] == ["--quiet", "--local", "--no-rename"]
            found = self.diversions()
            found.pop(argv[-1], None)
            if argv[-2] == "--add":
                found[argv[-1]] = argv[-3]
            with open(f"{self.root}{DPKG}/diversions", "w", encoding="ascii") as stream:
                stream.write("".join(f"{path}\n{saved}\n:\n" for path, saved in found.items()))
        return 0

    def upgrade(self, path: str, seed: int) -> None:
        """A new version of the package that ``path`` is of, now at least: as dpkg unpacks it, beside and then over what is there.

        Raises PermissionError where that cannot be changed.
        """
        chance = Random(seed)
        place = self._at(self.diversions().get(path, path))
        new = place + ".dpkg-new"
        if chance.random() < 0.3:
            os.symlink(f"{PROGRAMS}/program1", new)
        else:
            with open(new, "w", encoding="ascii") as stream:
                stream.write(f"#!/bin/sh\necho {path} of a new version {chance.getrandbits(40)}\n")
            os.chmod(new, 0o755)
        os.utime(new, ns=(0, seed), follow_symlinks=False)
        try:
            os.rename(new, place)
        except PermissionError:
            os.unlink(new)
            raise
        if path not in self.packaged:
            self.packaged.append(path)
            self._write_list()

    def picture(self, tops: Sequence[str] = ("",)) -> dict[str, tuple[object, ...]]:
        """Everything below: kind, mode, owner, contents or target, time of change, and the other names of the same file."""
        found: dict[str, tuple[object, ...]] = {}
        names: dict[tuple[int, int], list[str]] = {}
        for path, status in self._walk(tops):
            kind = stat.S_IFMT(status.st_mode)
            what: tuple[object, ...] = (kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
            if kind == stat.S_IFLNK:
                what += (os.readlink(self.root + path), status.st_mtime_ns)
            elif kind == stat.S_IFREG:
                with open(self.root + path, "rb") as stream:
                    what += (stream.read(), status.st_mtime_ns)
            if kind != stat.S_IFDIR:
                names.setdefault((status.st_dev, status.st_ino), []).append(path)
            found[path] = what
        for group in names.values():
            for path in group:
                found[path] += (tuple(sorted(group)),)
        return found

    def _walk(self, tops: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
        left = [path for path in tops if os.path.lexists(self.root + path)]
        while left:
            path = left.pop()
            status = os.lstat(self.root + path)
            if path == DPKG:
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                left += [f"{path}/{name}" for name in os.listdir(self.root + path)]


class Killed(BaseException):
    """The process has ended: nothing of it runs any more."""


class Interruption:
    """Ends, or fails, a run at one of its changes to the file system or its calls of programs."""

    CALLS = ("rename", "link", "mkdir", "unlink", "rmdir", "fchmod", "fsync", "open")

    def __init__(self, after: int, error: int | None) -> None:
        self.left, self.error, self.struck = after, error, False

    def strike(self) -> None:
        self.left -= 1
        if self.left < 0 and self.error is None:
            self.struck = True
            raise Killed
        if self.left == -1 and self.error is not None:
            self.struck = True
            raise OSError(self.error, os.strerror(self.error))

    @contextmanager
    def active(self) -> Iterator[None]:
        """All of the process's own calls go by here meanwhile."""
        originals = {name: getattr(os, name) for name in self.CALLS}

        def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                if name != "open" or (len(arguments) > 1 and arguments[1] & os.O_CREAT):
                    self.strike()
                return original(*arguments, **named)

            return call

        for name, original in originals.items():
            setattr(os, name, watched(name, original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(os, name, original)

    def running(self, run: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
        """The same for programs: killed before one, or after it."""

        def call(argv: Sequence[str]) -> int:
            if self.error is None:
                self.strike()
            status = run(argv)
            if self.error is None:
                self.strike()
            return status

        return call
