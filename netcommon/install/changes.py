"""Putting one file in place and taking it back, so that what stood there comes back as the very same file.

What is replaced gets a second name by a hard link, then our file is renamed over the first: there is no moment without a script,
and renaming the second name back restores bytes, mode, owner, times, and a symbolic link as such. What a link leads to is never
touched: others use it too, and another of our own files may be about to replace it.

dpkg is told last, and told otherwise first: whatever a run is killed between, a new version of a package's file lands where it
belongs, over our door or beside it, and never under the name from which an older one is about to be restored.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from netcommon.install import packages, wrappers
from netcommon.install.manifest import SAVED, TEMPORARY, Change, flush_folder, unlink, write_file
from netcommon.install.rooted import outside, placed, resolved
from netcommon.install.targets import Target
from netcommon.scripts.door_files import MARKER, is_door
from runtime.errors import HostRefused, TryAgain

Run = Callable[[Sequence[str]], int]

#: Why a file of ours is kept or removed, where that says which.
EDITED = "somebody has edited our door, so it is not brought up to date: move it away and install again to have ours"
UNFINISHED = "it is the file itself: the install did not get further"
LOST = "what stood here first is lost: an earlier version saved a door of ours in its place. Bring it back from its package, or a backup"

#: What is said of a path that is another thing than a moment ago.
OTHERS = " is being changed by somebody else: what stands there was left alone"


class Action(NamedTuple):
    """Say what is done, for people: "write", "save", "divert", "folder", "restore", "remove", "keep" or "note"; the path in the system; and
    why.
    """

    what: str
    path: str
    text: str = ""


class Step(NamedTuple):
    """One target with what has to be done for it: the changes to put on record first, and the actions."""

    target: Target
    changes: tuple[Change, ...]
    actions: tuple[Action, ...]
    kept: os.stat_result | None = None  #: what is saved already
    save: bool = False
    write: bool = False
    divert: bool = False


def run_command(argv: Sequence[str]) -> int:
    """Runs a program of the system without a shell; its exit status, 127 if it is not there."""
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
    except OSError:
        return 127


def plan_step(root: str, target: Target, hooks: str, recorded: Change | None) -> Step:
    """What has to be done for ``target``; reads only. Raises HostRefused where something is in the way that cannot be kept."""
    path, saved = outside(root, target.path), target.path + SAVED
    status, kept = _lstat(path), _lstat(outside(root, saved))
    if status and not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        raise HostRefused(f"{path} is neither a file nor a symbolic link: it cannot be kept and is not replaced")
    marked = is_ours(path)
    if status and not marked and is_door(path, hooks) and not _leads_to_wrapper(root, target.path):
        why = EDITED if MARKER.encode() in content(path, links=1) else "is a door of ours already"
        return Step(target, (), (Action("keep", target.path, why),))
    if not marked:
        _refuse_strangers(root, target.path, recorded)
    already = packages.diverted(root, target.path)
    divert = not already and status is not None and packages.owned(root, target.path)
    change = Change(target.path, diverted=divert or bool(recorded and recorded.diverted))
    if kept or change.diverted or (status and not marked):
        change = change._replace(saved=saved)
    upgrades = (Action("divert", target.path, f"package upgrades go to {saved}"),) if divert else ()
    if status is None:
        folders = tuple(_missing_folders(root, target.path))
        made = (*(Change(folder, "folder") for folder in folders), change)
        return Step(target, made, (*(Action("folder", folder) for folder in folders), Action("write", target.path)), write=True)
    if marked and _same(path, target):
        return Step(target, (change,), upgrades, divert=divert)
    if marked:
        return Step(target, (change,), (Action("write", target.path, "an earlier version of ours"), *upgrades), write=True, divert=divert)
    if kept and already == saved and not _one_file(kept, status):
        raise HostRefused(f"{path} is not ours any more, and {saved} is its package's: move one of the two away")
    text = f"as {saved}" + (", also for package upgrades" if divert else "")
    actions = (Action("save", target.path, text), Action("write", target.path))
    return Step(target, (change,), actions, kept, save=True, write=True, divert=divert)


def take(root: str, step: Step, run: Run) -> None:
    """Does what the step says. Raises OSError, and TryAgain where things have become others since it was planned."""
    path = outside(root, step.target.path)
    for change in step.changes:
        if change.kind == "folder":
            os.mkdir(outside(root, change.path), 0o755)
    if step.save:
        try:
            _save(path, step.kept)
        except (FileNotFoundError, FileExistsError):
            raise TryAgain(f"{path}{OTHERS}") from None
    if step.write:
        status, kept = _lstat(path), _lstat(path + SAVED)
        if status and not (is_ours(path) or (step.save and kept and _one_file(kept, status))):
            raise TryAgain(f"{path}{OTHERS}")  # it came after we looked, and is nowhere else
        write_file(path, step.target.text.encode(), step.target.mode)
    if step.divert:
        run(packages.divert(root, "--add", step.target.path, step.target.path + SAVED))


def _save(path: str, before: os.stat_result | None) -> None:
    """Give what stands at ``path`` its second name; in place of ``before``, if that is saved there, never of anything else.

    Raises TryAgain where it is a door of ours by now, or another one is saved; OSError, FileExistsError too.
    """
    saved, temporary = path + SAVED, path + SAVED + TEMPORARY
    unlink(temporary)
    os.link(path, temporary, follow_symlinks=False)  # from here on it is one file, whatever comes to stand at ``path``
    try:
        now = _lstat(saved)
        if is_ours(temporary) or (before and not (now and _one_file(now, before))):
            raise TryAgain(f"{path}{OTHERS}")
        if before:
            os.rename(temporary, saved)
        else:
            os.link(temporary, saved, follow_symlinks=False)  # link(2) replaces nothing
    finally:
        unlink(temporary)  # rename(2), too, leaves it where both names are one file already
    flush_folder(os.path.dirname(path))


def undo_action(root: str, change: Change) -> Action:
    """What taking the change back means as things are now; reads only."""
    try:
        path, saved = (outside(root, placed(root, name)) if name else "" for name in (change.path, change.saved))
    except HostRefused as error:
        return Action("keep", change.path, f"cannot be reached: {error}")
    status = _lstat(path)
    if change.kind == "folder":
        return Action("remove", change.path, "if nothing else is in it") if status else Action("keep", change.path, "is gone already")
    kept = _lstat(saved) if saved else None
    if kept and status and _one_file(kept, status):
        return Action("remove", change.saved, UNFINISHED)
    if status is not None and not is_ours(path):
        where = f"; what stood here before us stays in {change.saved}" if kept else ""
        return Action("keep", change.path, f"is no longer ours{where}")
    if kept and is_ours(saved):
        return Action("remove", change.path, LOST)
    if kept:
        return Action("restore", change.path, f"from {change.saved}")
    if change.saved and not (change.diverted and status and not packages.owned(root, change.path)):
        return Action("keep", change.path, f"{change.saved} is gone: there is nothing to restore")
    return Action("remove", change.path) if status else Action("keep", change.path, "is gone already")


def undo(root: str, change: Change, run: Run) -> Action:
    """Takes the change back. Raises OSError."""
    action = undo_action(root, change)
    if change.diverted:
        run(packages.divert(root, "--remove", change.path, change.saved))
    try:
        path = outside(root, placed(root, change.path))
    except HostRefused:
        return action
    if change.kind == "file":
        for leftover in (path, path + SAVED):  # of an install that was killed
            unlink(leftover + TEMPORARY)
    if action.what == "restore":
        os.rename(path + SAVED, path)
        flush_folder(os.path.dirname(path))
    elif action.what == "remove" and change.kind == "folder":
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise  # it may go another time
            return Action("keep", change.path, "is not empty")
    elif action.what == "remove":
        if action.text in (UNFINISHED, LOST):
            unlink(path + SAVED)
        if action.text != UNFINISHED:
            unlink(path)
        if change.diverted and not action.text:  # the package is gone, and could not remove the folders that we were in
            _remove_empty(os.path.dirname(path))
    return action


def _refuse_strangers(root: str, path: str, recorded: Change | None) -> None:
    """Refuse to use names that are ours by their endings, where what bears them is not on record as ours."""
    ours = (recorded is not None and recorded.saved == path + SAVED, recorded is not None, recorded is not None)
    for ending, mine in zip((SAVED, TEMPORARY, SAVED + TEMPORARY), ours, strict=True):
        if not mine and os.path.lexists(outside(root, path + ending)):
            raise HostRefused(f"{outside(root, path + ending)} is in the way: no install of ours has it on record")


def _leads_to_wrapper(root: str, path: str) -> bool:
    """Tell if ``path`` is a link to a file that our install wrote: that one serves its own name, and goes when it is taken back."""
    if not os.path.islink(outside(root, path)):
        return False
    try:
        return is_ours(outside(root, resolved(root, path)))
    except HostRefused:
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


def _one_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Tell whether two names are those of one file.

    On an overlay the two of a file from its lower file system may bear different numbers, until nobody remembers the first
    (Documentation/filesystems/overlayfs.rst, "Non-standard behavior"). There a file is known by when it got its second name, and all else.
    """
    if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino):
        return True
    return one.st_nlink > 1 and _looks(one) == _looks(other)


def _looks(file: os.stat_result) -> tuple[int, ...]:
    return file.st_nlink, file.st_ctime_ns, file.st_mtime_ns, file.st_size, file.st_mode, file.st_uid, file.st_gid


def is_ours(path: str) -> bool:
    """Tell whether ``path`` itself, and no symbolic link's target, is a file that our install wrote and nobody has changed since."""
    return wrappers.is_ours(content(path))


def content(path: str, links: int = 0) -> bytes:
    """Return what is in the plain file ``path``; nothing of a symbolic link, and where ``links`` says how many names it must have."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, 1 << 16) if stat.S_ISREG(status.st_mode) and links in (0, status.st_nlink) else b""
    finally:
        os.close(descriptor)


def _same(path: str, target: Target) -> bool:
    with open(path, "rb") as stream:
        return stream.read() == target.text.encode() and stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == target.mode


def _remove_empty(folder: str) -> None:
    """Removes ``folder`` if it is empty, then the one it was in, and so on."""
    try:
        os.removedirs(folder)
    except OSError:
        return
