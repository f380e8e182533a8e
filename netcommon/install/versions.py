"""Ganeti's scripts, of which Debian has several versions beside each other (ganeti-3.0, ganeti-3.1).

What Ganeti calls, /usr/lib/ganeti/kvm-ifup, leads by links into the folder of one version: /usr/lib/ganeti/default, /etc/ganeti/lib,
/usr/lib/ganeti/3.0. `gnt-cluster upgrade` moves the second of these links on every node (client/gnt_cluster.py), and no package does
anything then. So our doors stand in the folder of each version, and who could notice looks if what is called is still ours.
"""

from __future__ import annotations

import fcntl
import os
import struct

from netcommon.install import manifest
from netcommon.install.manifest import SAVED
from netcommon.install.rooted import outside, resolved
from netcommon.scripts.door_files import is_door, is_marked

#: Ganeti's folder of helpers; also, within the folder of a version, the same.
PKGLIBDIR = "/usr/lib/ganeti"

#: What it calls there: 3.0 and 3.1 the first, 3.2 the last.
DOORS = ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup")

#: Where a change can have Ganeti call another script: its links, and the scripts.
LINKS = (PKGLIBDIR, "/etc/ganeti")

DPKG_LOCK = "/var/lib/dpkg/lock"
FLOCK = struct.Struct("@hhqqi4x")  #: struct flock (fcntl(2)): type, whence, start, length, process


def scripts(root: str) -> list[str]:
    """Return the scripts in the versions' folders that have doors of ours."""
    paths = [f"{folder}/{door}" for folder in all_folders(root)[1:] for door in DOORS]
    return [path for path in paths if not is_gone(root, path)]


def all_folders(root: str) -> list[str]:
    """Return the folders that may have scripts: the one in which Ganeti looks first, then those of the versions.

    /usr/lib/ganeti/default is none: it leads to a version's, and from below another root out of it.
    """
    try:
        with os.scandir(outside(root, PKGLIBDIR)) as entries:
            versions = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        versions = []
    return [PKGLIBDIR, *(f"{PKGLIBDIR}/{version}{PKGLIBDIR}" for version in versions)]


def is_script(path: str) -> bool:
    """Tell if ``path`` is in the folder of a version."""
    folder = os.path.dirname(path)
    return folder.startswith(PKGLIBDIR + "/") and folder.endswith(PKGLIBDIR)


def is_gone(root: str, path: str) -> bool:
    """Tell if Ganeti has no script there: neither in its place, where our own door may be left, nor saved by us."""
    here = outside(root, path)
    if os.path.lexists(here + SAVED):
        return False
    try:
        with open(here, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            return is_marked(stream.read(1 << 16))
    except OSError:
        return True


def missing(root: str, hooks: str) -> list[str]:
    """Return the scripts that Ganeti calls and that are no doors of ours, where our install has put them in place and nobody takes
    it back; else none. Raises HostRefused where it cannot be told.
    """
    if not manifest.read(root).wanted("ganeti"):
        return []
    called = (_no_door(root, f"{PKGLIBDIR}/{door}", hooks) for door in DOORS)
    return [path for path in called if path]


def _no_door(root: str, called: str, hooks: str) -> str:
    """Return the script to which ``called`` leads, if it is no door of ours; "" where it is one, or nothing is there."""
    path = resolved(root, called)
    while os.path.isfile(outside(root, path)) and not is_door(outside(root, path), hooks):
        before, path = path, resolved(root, called)
        if path == before:
            return path
    return ""  # a link that was led elsewhere meanwhile has been followed anew: what is said is of one moment


def folders(root: str) -> list[str]:
    """Return the folders in which a change can have Ganeti call another script. Raises HostRefused for links in a circle."""
    last = os.path.dirname(resolved(root, f"{PKGLIBDIR}/{DOORS[0]}"))
    return [outside(root, folder) for folder in dict.fromkeys((*LINKS, last))]


def dpkg_at_work(root: str) -> bool:
    """Tell if dpkg holds its lock: it may be about to put scripts in place, and has our package look after them at its end."""
    try:
        descriptor = os.open(outside(root, DPKG_LOCK), os.O_RDONLY | os.O_CLOEXEC)  # the agent may not write there
    except OSError:
        return False
    try:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        held: int = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0]
        return held != fcntl.F_UNLCK
    finally:
        os.close(descriptor)
