"""What /proc holds: kernel settings, this boot's number, and who has a tap open (proc(5))."""

from __future__ import annotations

import errno
import fcntl
import os
import sys

from netcommon.host.api.host import DONE, Answer
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from netcommon.host.api.requests import SetSysctl

SIOCGIFINDEX, IFREQ = 0x8933, 40  #: netdevice(7), <linux/sockios.h>; bytes of struct ifreq
ABSENT = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EINVAL})

LONGEST = 1 << 16  #: bytes that are read of a setting; those that we know are words


class Proc:
    """The files below ``root``, normally /proc. Its net/ is that of the network namespace the caller is in.

    ``socket``: the descriptor of any socket there, which is asked for devices: a hook that has no descriptor left needs no more for it.
    """

    def __init__(self, root: str, socket: Callable[[], int]) -> None:
        self.root, self._socket = root, socket

    def sysctl(self, path: str) -> str | None:
        """A setting's text without the line's end, None where there is no such file."""
        if not inside(path):
            return None
        try:
            # not open(): each routed NIC has four of them, each time it is looked at
            file = os.open(f"{self.root}/sys/{path}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(file, LONGEST).decode("utf-8", "surrogateescape").rstrip("\n")
            finally:
                os.close(file)
        except OSError as problem:
            if problem.errno in ABSENT:
                return None
            raise HostRefused(f"cannot read {self.root}/sys/{path}: {problem.strerror}") from problem

    def legacy_tables(self) -> list[str]:
        """The tables of iptables-legacy and ip6tables-legacy in the caller's namespace; none where the kernel does without them."""
        found: list[str] = []
        for name in ("ip_tables_names", "ip6_tables_names"):
            try:
                with open(f"{self.root}/thread-self/net/{name}", encoding="utf-8", errors="surrogateescape") as file:
                    found += file.read(LONGEST).split()
            except OSError as problem:
                if problem.errno not in ABSENT:
                    raise HostRefused(f"cannot read {self.root}/thread-self/net/{name}: {problem.strerror}") from problem
        return found

    def execute(self, request: SetSysctl) -> Answer:
        """Carries it out."""
        return self.write(request.path, request.value, request.index)

    def write(self, path: str, value: str, index: int = 0) -> Answer:
        """Sets a kernel setting; with ``index``, only that of the device which had the path's name all the time.

        Where /proc/sys is read-only, as in some containers, one that has the value is as it should be.
        """
        if not inside(path):
            return Answer(errno.EINVAL, "not a path below /proc/sys")
        wanted, name, readonly = value.encode("utf-8", "surrogateescape"), f"{self.root}/sys/{path}", None
        try:
            try:
                file = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
            except OSError as problem:
                if problem.errno != errno.EROFS:
                    raise
                file, readonly = os.open(name, os.O_RDONLY | os.O_CLOEXEC), problem
            try:
                # what is open is one device's own: looked at in this order, it is that of ``index``, or of one that is gone
                if index and self.index_of(path.split("/")[3]) != index:
                    return Answer(errno.ENODEV, f"{self.root}/sys/{path}: another device has that name now")
                if readonly is None:
                    os.write(file, wanted + b"\n")
                elif os.read(file, LONGEST).rstrip(b"\n") != wanted:
                    raise readonly
            finally:
                os.close(file)
        except OSError as problem:
            return Answer(problem.errno or errno.EIO, f"{self.root}/sys/{path}: {problem.strerror}")
        return DONE

    def index_of(self, device: str) -> int:
        """The index of the device that has this name now, 0 if none has. Raises OSError."""
        try:
            found = fcntl.ioctl(self._socket(), SIOCGIFINDEX, device.encode("utf-8", "surrogateescape").ljust(IFREQ, b"\0"))
        except OSError as problem:
            if problem.errno != errno.ENODEV:
                raise
            return 0
        return int.from_bytes(found[16:20], sys.byteorder)

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
