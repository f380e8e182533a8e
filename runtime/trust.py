"""Whether a file may be run as root: nobody but root can have written it, or put it there."""

from __future__ import annotations

import errno
import os
import stat

#: The modes that let others than the owner write.
GROUP, WORLD = 0o020, 0o002


#: Symbolic links on one way, at most: what the kernel follows (path_resolution(7)).
LINKS = 40


def distrust(path: str) -> str:
    """Why the file at ``path`` must not be run as root, in words; "" if it may.

    The file and every folder on the way to it, through each symbolic link, must belong to root and be writable by root alone. A
    sticky folder (/tmp) protects a folder that lies in it, but is no place for a script or for a link on the way.
    """
    try:
        real, folders = _way(path)
        status = os.lstat(real)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file"
    if reason := _writers(status, real):
        return f"{real} {reason}"
    return _distrusted({**folders, os.path.dirname(real): True})


def distrust_folder(path: str) -> str:
    """Why files in the folder ``path`` cannot be trusted; "" if they can."""
    try:
        real, folders = _way(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return _distrusted({**folders, real: True})


def distrust_tree(folder: str) -> str:
    """Why the files below ``folder`` must not be run as root; "" if they may: each belongs to root, who alone can write it.

    A symbolic link to a file is followed and checked as that file is; one to a folder is not accepted.
    """
    if reason := distrust_folder(folder):
        return reason
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        for path in (f"{folder}/{name}" for name in names):
            status = os.lstat(path)
            if reason := distrust_tree(path) if stat.S_ISDIR(status.st_mode) else distrust(path):
                return reason
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def _way(path: str) -> tuple[str, dict[str, bool]]:
    """Where ``path`` leads, as the kernel goes it, and the folders passed: True for one that a symbolic link was read in.

    Raises OSError, also where it leads nowhere.
    """
    folders: dict[str, bool] = {}
    here, ahead, links = "/", os.path.abspath(path).split("/")[::-1], 0
    while ahead:
        name = ahead.pop()
        if name in ("", ".", ".."):
            here = os.path.dirname(here) if name == ".." else here
            continue
        folders.setdefault(here, False)
        entry = os.path.join(here, name)
        if not stat.S_ISLNK(os.lstat(entry).st_mode):
            here = entry
            continue
        links += 1
        if links > LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        folders[here] = True
        target = os.readlink(entry)
        here = "/" if target.startswith("/") else here
        ahead += target.split("/")[::-1]
    return here, folders


def _distrusted(folders: dict[str, bool]) -> str:
    """What is wrong with the first folder that others can write; sticky ones are good enough unless marked True."""
    for folder, holds in reversed(folders.items()):
        try:
            status = os.lstat(folder)
        except OSError as error:
            return f"{folder}: {error.strerror}"
        reason = _writers(status, folder)
        if reason and (holds or not status.st_mode & stat.S_ISVTX or not _owned(status)):
            return f"{folder} {reason}"
    return ""


def _owned(status: os.stat_result) -> bool:
    """Whether it belongs to root, or to who we are."""
    return not status.st_uid or status.st_uid == os.geteuid()


def _writers(status: os.stat_result, path: str) -> str:
    """Say who else can write it."""
    if not _owned(status):
        return f"does not belong to root but to user {status.st_uid}"
    if status.st_mode & WORLD:
        return "can be written by everybody"
    if status.st_mode & GROUP and status.st_gid != 0:
        return f"can be written by group {status.st_gid}"
    if status.st_mode & GROUP and _listed(path):
        return "can be written by those that its access control list names (getfacl(1))"
    return ""


def _listed(path: str) -> bool:
    """Tell whether it has an access control list, whose mask is what the mode shows for the group (acl(5))."""
    try:
        return bool(os.getxattr(path, "system.posix_acl_access"))
    except OSError:
        return False
