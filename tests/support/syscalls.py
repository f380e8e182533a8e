"""Namespaces and mounts for the tests, by libc (Python 3.11 has no os.unshare, os.setns, os.mount)."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000  #: <linux/sched.h>
CLONE_NEWNET = 0x40000000
MS_RDONLY = 0x1  #: <linux/mount.h>
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
SYS_PIVOT_ROOT = 155  #: x86-64; the C library has no function for it

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2) of the calling thread. Raises OSError."""
    _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """setns(2) of the calling thread. Raises OSError."""
    _checked(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError."""
    _checked(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()), f"mount {kind} on {target}")


def umount(target: str) -> None:
    """umount2(2), lazily: what still holds a file there does not stop it. Raises OSError."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2). Raises OSError."""
    _checked(_libc.syscall(SYS_PIVOT_ROOT, new.encode(), old.encode()), f"pivot_root {new}")
