"""Make a network namespace that no file and no process but this one holds: whatever ends this process ends it too.

It has no name in /run/netns, and its /sys is mounted nowhere (fsmount(2)): both are descriptors.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, ClassVar

from runtime.errors import HostRefused

CLONE_NEWNET = 0x40000000  #: <linux/sched.h>
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432  #: system calls of all architectures (Linux 5.2)
FSCONFIG_CMD_CREATE = 6  #: <linux/mount.h>
CLOEXEC = 1  #: FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC
OWN = "/proc/thread-self/ns/net"
MAKING = "a mock node of depth namespace needs root, a kernel that has network namespaces, and Linux 5.2 or later"

_libc = ctypes.CDLL(None, use_errno=True)


class Place:
    """A network namespace, with nothing in it but its loopback. Raises HostRefused where none can be made.

    Whoever works with what is in it is inside: ``with place``. One may be inside of one at a time.
    """

    entered: ClassVar[Place | None] = None  #: the one that this thread is in; it is the only one of this process

    def __init__(self) -> None:
        self._home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        self.descriptor = self.sysfs = -1
        try:
            _call(_libc.unshare, CLONE_NEWNET)
            try:
                self.descriptor = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
                self.sysfs = _sysfs()
            finally:
                _call(_libc.setns, self._home, CLONE_NEWNET)
        except OSError as error:
            self.close()
            raise HostRefused(f"no network namespace: {error.strerror}", MAKING) from None
        self._depth = 0

    def __enter__(self) -> Place:
        if Place.entered not in (None, self):
            raise RuntimeError("inside of another node's namespace")
        if not self._depth:
            _call(_libc.setns, self.descriptor, CLONE_NEWNET)
            Place.entered = self
        self._depth += 1
        return self

    def __exit__(self, *_error: object) -> None:
        self._depth -= 1
        if not self._depth:
            Place.entered = None
            _call(_libc.setns, self._home, CLONE_NEWNET)

    def check(self) -> None:
        """Raise RuntimeError where the caller is not inside: no request for a node may come to the machine's own network."""
        if Place.entered is not self:
            raise RuntimeError("outside of the node's namespace")

    def close(self) -> None:
        """Let it go: what holds no device of it open any more ends it."""
        for descriptor in (self.sysfs, self.descriptor, self._home):
            if descriptor >= 0:
                os.close(descriptor)
        self.sysfs = self.descriptor = self._home = -1


def _sysfs() -> int:
    """Mount the /sys of the namespace that the caller is in, at no place; give its descriptor. Raises OSError."""
    opened = _call(_libc.syscall, FSOPEN, b"sysfs", CLOEXEC)
    try:
        _call(_libc.syscall, FSCONFIG, opened, FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(_libc.syscall, FSMOUNT, opened, CLOEXEC, 0)
    finally:
        os.close(opened)


def _call(function: Any, *arguments: int | bytes | None) -> int:
    """Call the C library. Raises OSError."""
    result: int = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
