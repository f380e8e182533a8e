"""Files of ours in folders that others read: a DHCP server's, for one. Each bears a mark in its first line (facts.FILE_MARK).

A folder is named by its absolute path, or by one below our own folder of the node's state, such as "communication/hosts".
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from netcommon.host.api.facts import FILE_MARK, File
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import DeleteFile, PutFile
from netcommon.host.linux.procfs import inside
from runtime.errors import HostRefused, NicInvalid, RecordUnreadable
from runtime.folder import Folder
from runtime.layout import Layout
from runtime.typed import TYPE_CHECKING
from runtime.validate import uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    MakeLayout = Callable[[], Layout]

#: A file larger than this is none of ours (bytes).
LARGEST = 1 << 16

#: Where we put files below our own state.
OWN = ("communication/hosts",)

#: What to do about a folder that does not exist.
NO_FOLDER = "make it, or correct the settings"


def file_of(folder: str, name: str, content: str, mode: int) -> File:
    """The file with what its mark says, if it bears one."""
    line = content.partition("\n")[0]
    owner, _, reload = line.removeprefix(FILE_MARK).partition(" ")
    try:
        return File(folder, name, content, mode, uuid(owner), reload) if line.startswith(FILE_MARK) else File(folder, name, content, mode)
    except NicInvalid:
        return File(folder, name, content, mode)


def problem(folder: str, name: str) -> str:
    """Why the two name no file that we could make; "" if they do."""
    if not (inside(folder.removeprefix("/")) and folder.isprintable()):
        return f"{folder!r} is no folder's path"
    if "/" in name or not inside(name) or not name.isprintable() or name.startswith(".") or len(name.encode()) > 255:
        return f"{name!r} is no file's name"
    return ""


def not_ours(path: str) -> str:
    """What is said of a file that bears no mark of ours, or another NIC's."""
    return f"{path} was not made by us for this NIC: remove it, or correct the settings"


class Files:
    """The files of this machine. ``folders``: where the settings let us put files; ``layout``: our own state."""

    def __init__(self, layout: MakeLayout, folders: Sequence[str]) -> None:
        self._layout, self._folders = layout, folders

    def file(self, folder: str, name: str) -> File | None:
        """See View. Raises HostRefused where the folder is not to be trusted."""
        if problem(folder, name):
            return None
        with self._opened(folder) as opened:
            return None if opened is None else _read(opened, folder, name)

    def files(self) -> Sequence[File]:
        """See View. A folder that others can write to is not looked at: we put nothing into it."""
        found: list[File] = []
        for folder in dict.fromkeys((*self._folders, *OWN)):
            try:
                with self._opened(folder) as opened:
                    names = opened.names() if opened is not None else []
                    found += [each for name in names if opened is not None and (each := _read(opened, folder, name)) and each.owner]
            except HostRefused:
                continue
        return found

    def folder(self, folder: str) -> bool:
        """See View."""
        if problem(folder, "file"):
            return False
        if not folder.startswith("/"):
            return True
        with self._opened(folder) as opened:
            return opened is not None

    def execute(self, request: PutFile | DeleteFile) -> Answer:
        """Carries it out."""
        wrong = problem(request.folder, request.name)
        if wrong:
            return Answer(errno.EINVAL, wrong)
        try:
            with self._opened(request.folder, isinstance(request, PutFile), isinstance(request, DeleteFile)) as opened:
                if opened is None:
                    return Answer(errno.ENOENT, f"folder {request.folder} does not exist: {NO_FOLDER}")
                return _put(opened, request) if isinstance(request, PutFile) else _delete(opened, request)
        except (HostRefused, RecordUnreadable) as error:
            return Answer(errno.EIO, str(error))
        except OSError as error:
            return Answer(error.errno or errno.EIO, f"{request.folder}/{request.name}: {error.strerror}")

    @contextmanager
    def _opened(self, path: str, make: bool = False, tidy: bool = False) -> Iterator[Folder | None]:
        """The folder, None where there is none. One of our own is made with ``make``, and with ``tidy`` removed if it is empty at last."""
        if path.startswith("/"):
            found = Folder.find(path)
            if found is None:
                yield None
                return
            with found:
                yield found
            return
        layout = self._layout()
        try:
            top, name = path.split("/")
            within = layout.make(top) if make else layout.find(top)
            opened = None if within is None else within.make_sub(name) if make else within.sub(name)
            if within is None or opened is None:
                yield None
                return
            with opened:
                yield opened
            if tidy:
                within.remove_empty(name)
                layout.remove_empty(top)
        finally:
            layout.close()


def _read(opened: Folder, folder: str, name: str) -> File | None:
    try:
        data = opened.read(name, LARGEST)
        if data is None:
            return None
        content = data.decode("utf-8", "surrogateescape")
        mode = os.stat(name, dir_fd=opened.descriptor, follow_symlinks=False).st_mode & 0o7777
    except (RecordUnreadable, OSError):
        return File(folder, name, "", 0)
    return file_of(folder, name, content, mode)


def _put(opened: Folder, request: PutFile) -> Answer:
    there = _read(opened, request.folder, request.name)
    if there is not None and not there.owner:
        return Answer(errno.EEXIST, not_ours(there.path))
    opened.write(request.name, request.content.encode("utf-8", "surrogateescape"), request.mode)
    if request.announce:
        # a rename is no IN_CLOSE_WRITE: the end of this is
        os.close(os.open(request.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened.descriptor))
    return DONE


def _delete(opened: Folder, request: DeleteFile) -> Answer:
    there = _read(opened, request.folder, request.name)
    if there is None:
        return Answer(errno.ENOENT, f"{request.folder}/{request.name} is gone")
    if there.owner != request.owner:
        return Answer(errno.EEXIST, not_ours(there.path))
    opened.remove(request.name)
    return DONE
