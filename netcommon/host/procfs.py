"""What /proc holds: kernel settings, this boot's number, and who has a tap open (proc(5))."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from netcommon.host.base import DONE, Answer
from netcommon.host.requests import SetSysctl
from runtime.errors import HostRefused

ABSENT = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EINVAL})


class Proc:
    """The files below ``root``, normally /proc. Its net/ is that of the network namespace the caller is in."""

    def __init__(self, root: str) -> None:
        self.root = root

    def sysctl(self, path: str) -> str | None:
        """A setting's text without the line's end, None where there is no such file."""
        if not inside(path):
            return None
        try:
            with open(f"{self.root}/sys/{path}", encoding="utf-8", errors="surrogateescape") as file:
                return file.read().rstrip("\n")
        except OSError as problem:
            if problem.errno in ABSENT:
                return None
            raise HostRefused(f"cannot read {self.root}/sys/{path}: {problem.strerror}") from problem

    def execute(self, request: SetSysctl) -> Answer:
        """Carries it out."""
        return self.write(request.path, request.value)

    def write(self, path: str, value: str) -> Answer:
        """Sets a kernel setting."""
        if not inside(path):
            return Answer(errno.EINVAL, "not a path below /proc/sys")
        try:
            file = os.open(f"{self.root}/sys/{path}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, value.encode("utf-8", "surrogateescape") + b"\n")
            finally:
                os.close(file)
        except OSError as problem:
            return Answer(problem.errno or errno.EIO, f"{self.root}/sys/{path}: {problem.strerror}")
        return DONE

    def boot(self) -> str:
        """This boot's number."""
        return self.sysctl("kernel/random/boot_id") or ""

    def namespace(self) -> int:
        """The inode of our network namespace: unique among those alive, for kernels without SO_NETNS_COOKIE."""
        try:
            return os.stat(f"{self.root}/self/ns/net").st_ino
        except OSError:
            return 0

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        """The first process that has the tap ``device`` open, 0 if none of them has, or lets us see."""
        line = b"\niff:\t" + device.encode("utf-8", "surrogateescape") + b"\n"
        for process in candidates:
            folder = f"{self.root}/{int(process)}/fdinfo"
            try:
                descriptors = os.listdir(folder)
            except OSError:
                continue
            for descriptor in descriptors:
                try:
                    with open(f"{folder}/{descriptor}", "rb") as file:
                        if line in b"\n" + file.read():
                            return process
                except OSError:
                    continue
        return 0


def inside(path: str) -> bool:
    """Whether ``path`` names something below a folder, without ways out of it."""
    return bool(path) and "\0" not in path and not {"", ".", ".."} & set(path.split("/"))
