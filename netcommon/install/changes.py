"""Putting one file in place and taking it back, so that what stood there comes back as the very same file.

What is replaced gets a second name by a hard link, then our file is renamed over the first: there is no moment without a script,
and renaming the second name back restores bytes, mode, owner, times, and a symbolic link as such.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from netcommon.install.manifest import SAVED, TEMPORARY, Change, flush_folder, write_file
from netcommon.install.rooted import outside
from netcommon.install.targets import Target
from netcommon.ours import is_door, is_marked
from runtime.errors import HostRefused

Run = Callable[[Sequence[str]], int]


class Action(NamedTuple):
    """What is done, for people: "write", "save", "folder", "restore", "remove", "keep", "note"; the path in the system; why."""

    what: str
    path: str
    text: str = ""


class Step(NamedTuple):
    """One target with what has to be done for it: the changes to put on record first, and the actions."""

    target: Target
    changes: tuple[Change, ...]
    actions: tuple[Action, ...]
    save: bool = False
    write: bool = False


def run_command(argv: Sequence[str]) -> int:
    """Runs a program of the system without a shell; its exit status, 127 if it is not there."""
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
    except OSError:
        return 127


def plan_step(root: str, target: Target, hooks: str, recorded: Change | None) -> Step:
    """What has to be done for ``target``; reads only. Raises HostRefused where something is in the way that cannot be kept."""
    path, saved = outside(root, target.path), target.path + SAVED
    status = _lstat(path)
    if status is None:
        folders = tuple(_missing_folders(root, target.path))
        made = (*(Change(folder, "folder") for folder in folders), recorded or Change(target.path))
        actions = (*(Action("folder", folder) for folder in folders), Action("write", target.path))
        return Step(target, made, actions, write=True)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        raise HostRefused(f"{path} is neither a file nor a symbolic link: it cannot be kept and is not replaced")
    if _is_marked(path):
        kept = recorded or Change(target.path, saved=saved if _lstat(outside(root, saved)) else "")
        if _same(path, target):
            return Step(target, (kept,), ())
        return Step(target, (kept,), (Action("write", target.path, "an earlier version of ours"),), write=True)
    if is_door(path, hooks):
        return Step(target, (), (Action("keep", target.path, "is a door of ours already"),))
    before = _lstat(outside(root, saved))
    if before is not None and (before.st_dev, before.st_ino) != (status.st_dev, status.st_ino) and not (recorded and recorded.saved):
        raise HostRefused(f"{outside(root, saved)} is in the way: it was not saved by us")
    diverted = _of_package(root, target.path)
    change = Change(target.path, saved=saved, diverted=diverted)
    upgrades = ", also for package upgrades" if diverted else ""
    actions = (Action("save", target.path, f"as {saved}{upgrades}"), Action("write", target.path))
    return Step(target, (change,), actions, save=True, write=True)


def take(root: str, step: Step, run: Run) -> None:
    """Does what the step says. Raises OSError."""
    path = outside(root, step.target.path)
    for change in step.changes:
        if change.kind == "folder":
            os.makedirs(outside(root, change.path), exist_ok=True)
            os.chmod(outside(root, change.path), 0o755)  # noqa: S103  as /etc and /usr/lib are
        elif change.diverted and step.save:
            run(_divert(root, "--add", change))
    if step.save:
        temporary = path + SAVED + TEMPORARY
        _unlink(temporary)
        os.link(path, temporary, follow_symlinks=False)
        os.rename(temporary, path + SAVED)
        _unlink(temporary)  # rename(2) leaves it where both names are one file already
        flush_folder(os.path.dirname(path))
    if step.write:
        write_file(path, step.target.text.encode(), step.target.mode)


def undo_action(root: str, change: Change) -> Action:
    """What taking the change back means as things are now; reads only."""
    path = outside(root, change.path)
    status = _lstat(path)
    if change.kind == "folder":
        return Action("remove", change.path, "if nothing else is in it") if status else Action("keep", change.path, "is gone already")
    kept = _lstat(outside(root, change.saved)) if change.saved else None
    saved = kept is not None
    if kept and status and (kept.st_dev, kept.st_ino) == (status.st_dev, status.st_ino):
        return Action("remove", change.saved, "it is the file itself: the install did not get further")
    if status is not None and not _is_marked(path):
        where = f"; what stood here before us stays in {change.saved}" if saved else ""
        return Action("keep", change.path, f"is no longer ours{where}")
    if saved:
        return Action("restore", change.path, f"from {change.saved}")
    if change.saved and not (change.diverted and status and not _of_package(root, change.path)):
        return Action("keep", change.path, f"{change.saved} is gone: there is nothing to restore")
    return Action("remove", change.path) if status else Action("keep", change.path, "is gone already")


def undo(root: str, change: Change, run: Run) -> Action:
    """Takes the change back. Raises OSError."""
    path, action = outside(root, change.path), undo_action(root, change)
    if change.diverted:
        run(_divert(root, "--remove", change))
    if change.kind == "file":
        for leftover in (path, path + SAVED):  # of an install that was killed
            _unlink(leftover + TEMPORARY)
    if action.what == "restore":
        os.rename(outside(root, change.saved), path)
        flush_folder(os.path.dirname(path))
    elif action.what == "remove" and change.kind == "folder":
        try:
            os.rmdir(path)
        except OSError:
            return Action("keep", change.path, "is not empty")
    elif action.what == "remove":
        os.unlink(outside(root, action.path))
        if change.diverted and not action.text:  # the package is gone, and could not remove the folders that we were in
            _remove_empty(os.path.dirname(path))
    return action


def _divert(root: str, verb: str, change: Change) -> list[str]:
    where = ["--root", root] if root.rstrip("/") else []
    target = ["--divert", change.saved] if verb == "--add" else []
    return ["dpkg-divert", *where, "--quiet", "--local", "--no-rename", *target, verb, change.path]


def _of_package(root: str, path: str) -> bool:
    """Whether a Debian package has put ``path`` there and would put it there again. Files below /etc dpkg asks about itself."""
    if path.startswith("/etc/"):
        return False
    lists = outside(root, "/var/lib/dpkg/info")
    try:
        names = [name for name in os.listdir(lists) if name.endswith(".list")]
    except OSError:
        return False
    line = path.encode()
    for name in names:
        with open(f"{lists}/{name}", "rb") as stream:
            if line in stream.read().split(b"\n"):
                return True
    return False


def _missing_folders(root: str, path: str) -> Iterator[str]:
    """The folders of ``path`` that are not there, the outer first. Raises HostRefused where a file stands in their place."""
    parts = os.path.dirname(path).strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        here = outside(root, folder)
        if not os.path.lexists(here):
            yield folder
        elif not os.path.isdir(here):
            raise HostRefused(f"{here} is not a folder")


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_marked(path: str) -> bool:
    """Whether ``path`` itself, not what a symbolic link leads to, is a file that our install wrote."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as stream:
        return is_marked(stream.read(1 << 16))


def _same(path: str, target: Target) -> bool:
    with open(path, "rb") as stream:
        return stream.read() == target.text.encode() and stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == target.mode


def _remove_empty(folder: str) -> None:
    """Removes ``folder`` if it is empty, then the one it was in, and so on."""
    try:
        os.removedirs(folder)
    except OSError:
        return


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
