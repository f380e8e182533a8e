"""Files and links in folders that root alone may write to, reached by directory descriptors and never through a symbolic link.

What others could have changed is refused, not followed. Modes are explicit, since a hook's umask is 0077 under one hypervisor
and anything under another.
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import get_native_id
from itertools import count

from runtime.errors import FileRefused, HostRefused, RecordUnreadable, escaped
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Temporary files: longer than any interface's name, and no UUID, so they are never taken for something else.
TEMPORARY = ".netcommon-tmp-"

#: How often a temporary file may be swept away under us before we give up.
SWEPT = 5

#: The folder in a folder in which lies what was damaged in that.
QUARANTINE = "quarantine"

#: Bytes read at once behind those that a file was said to hold.
ROOM = 4096

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def refused(what: str, path: str, error: OSError) -> FileRefused:
    """The error for a system call that failed: one line."""
    return FileRefused(f"{what} {escaped(path)}: {error.strerror or error}")


def trusted(found: os.stat_result, path: str) -> None:
    """Raises HostRefused for what is not root's, or what others can write."""
    if found.st_uid and found.st_uid != os.geteuid():
        raise HostRefused(f"{escaped(path)} belongs to user {found.st_uid}", "it must belong to root")
    if found.st_mode & 0o022:
        raise HostRefused(f"{escaped(path)} has mode {stat.S_IMODE(found.st_mode):04o}", "nobody but root may be able to write to it")


def plain(found: os.stat_result, path: str) -> None:
    """Raises HostRefused for what is no plain file of root's that root alone can write."""
    if not stat.S_ISREG(found.st_mode):
        raise HostRefused(f"{escaped(path)} is not a plain file")
    trusted(found, path)


def refuse_unwritable(path: str) -> None:
    """Raise FileRefused where nothing can be written into the folder at ``path``, which need not be there: read-only, or full. A look."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    try:
        about = os.statvfs(path)
    except OSError as error:
        raise refused("cannot look at", path, error) from None
    if not os.access(path, os.W_OK):  # also what chattr(1) has made immutable
        code = errno.EROFS if about.f_flag & os.ST_RDONLY else errno.EACCES
    elif not about.f_bfree or (about.f_files and not about.f_ffree):
        code = errno.ENOSPC
    else:
        return
    raise refused("cannot write into", path, OSError(code, os.strerror(code)))


class Folder:
    """One folder, held open. ``path`` is for messages only."""

    def __init__(self, descriptor: int, path: str, ours: bool = True) -> None:
        self.descriptor, self.path, self.ours = descriptor, path, ours

    @classmethod
    def find(cls, path: str, ours: bool = True) -> Folder | None:
        """The folder at the absolute ``path``; None where there is none.

        Raises HostRefused where it is a symbolic link or something else, belongs to another user, or others may write to it;
        the latter two are not looked at where it is not ``ours`` (Ganeti makes its own 0775).
        """
        return cls._opened(path, None, path, ours)

    @classmethod
    def make(cls, path: str, ours: bool = True, sync: bool = False) -> Folder:
        """The folder at the absolute ``path``, made if need be, 0755; likewise. ``sync``: it survives a crash of the machine."""
        made = cls._opened(path, None, path, ours)
        if made is None:
            try:
                _make_parents(path)
            except OSError as error:
                raise refused("cannot make", path, error) from None
            made = cls._made(path, None, path, ours)
        if sync:
            _flush_parents(path)
        return made

    @classmethod
    def forget(cls, path: str, name: str) -> bool:
        """Remove a file of the folder at ``path``, to outlive a power failure; True if it was there. Raises HostRefused."""
        folder = cls.find(path)
        if folder is None:
            return False
        with folder:
            gone = folder.remove(name)
            if gone:
                folder.flush()
            return gone

    def sub(self, name: str) -> Folder | None:
        """The folder ``name`` in this one, None where there is none; raises as find."""
        return self._opened(name, self.descriptor, f"{self.path}/{name}", self.ours)

    def make_sub(self, name: str) -> Folder:
        """The folder ``name`` in this one, made if need be; raises as find."""
        return self.sub(name) or self._made(name, self.descriptor, f"{self.path}/{name}", self.ours)

    @classmethod
    def _made(cls, name: str, within: int | None, path: str, ours: bool) -> Folder:
        while True:
            try:
                os.mkdir(name, 0o755, dir_fd=within)
                fresh = True
            except FileExistsError:
                fresh = False
            except OSError as error:
                raise refused("cannot make", path, error) from None
            made = cls._opened(name, within, path, ours)
            if made is None:
                continue  # removed again as an empty one
            if fresh:
                try:
                    os.fchmod(made.descriptor, 0o755)  # whatever the umask
                except OSError as error:
                    made.close()
                    raise refused("cannot set the mode of", path, error) from None
            return made

    @classmethod
    def _opened(cls, name: str, within: int | None, path: str, ours: bool) -> Folder | None:
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=within)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise HostRefused(f"{escaped(path)} is not a folder, or is a symbolic link: it must be a folder") from None
            raise refused("cannot open", path, error) from None
        try:
            if ours:
                trusted(os.fstat(descriptor), path)
        except HostRefused:
            os.close(descriptor)
            raise
        return cls(descriptor, path, ours)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, name: str, limit: int) -> bytes | None:
        """The bytes of the file ``name``; None where there is none.

        Raises RecordUnreadable where it is not a plain file, is longer than ``limit`` bytes or belongs to another user;
        HostRefused where the kernel refuses (no permission, for one).
        """
        path = f"{self.path}/{name}"
        try:
            descriptor = os.open(name, _READ, dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise RecordUnreadable(f"{escaped(path)} is not a plain file") from None
            raise refused("cannot read", path, error) from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise RecordUnreadable(f"{escaped(path)} is not a plain file")
            if (found.st_uid and found.st_uid != os.geteuid()) or found.st_mode & 0o022:
                raise RecordUnreadable(f"{escaped(path)} could be written by others than root")
            if found.st_size > limit:
                raise RecordUnreadable(f"{escaped(path)} holds {found.st_size} bytes, more than {limit}")
            return _read_all(descriptor, limit, found.st_size)
        except OSError as error:
            raise refused("cannot read", path, error) from None
        finally:
            os.close(descriptor)

    def write(self, name: str, data: bytes, mode: int = 0o600, sync: bool = False, said: str = "") -> None:
        """Replaces the file ``name`` at once. ``sync``: it survives a crash of the machine; ``said``: as an error calls it, if not so.

        Raises HostRefused.
        """

        def make(temporary: str) -> None:
            descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=self.descriptor)
            try:
                os.fchmod(descriptor, mode)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

        self._replace(name, make, said or name)
        if sync:
            self.flush()

    def create(self, name: str, data: bytes, mode: int = 0o644) -> bool:
        """Makes the file ``name`` with all of ``data`` at once, unless there is one: then False. Raises HostRefused."""
        aside = f"{TEMPORARY}{name}-{get_native_id()}"
        for attempt in range(1, SWEPT + 1):
            self.write(aside, data, mode, said=name)
            try:
                os.link(aside, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)
                return True
            except FileExistsError:
                return False
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or attempt == SWEPT:  # as in _replace
                    raise refused("cannot make", f"{self.path}/{name}", error) from None
            finally:
                self._discard(aside)
        raise AssertionError("unreachable")  # pragma: no cover

    def move(self, name: str, to: Folder, new: str) -> None:
        """Renames ``name`` into another folder; nothing happens if it is gone. Raises HostRefused."""
        try:
            os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=to.descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refused("cannot move", f"{self.path}/{name}", error) from None

    def put_aside(self, name: str) -> str:
        """Move what is called so into QUARANTINE, beside what was called so earlier; return where it is, below this. Raises HostRefused."""
        with self.make_sub(QUARANTINE) as aside:
            free = next(free for number in count() if not aside.exists(free := f"{name}-{number}"))
            self.move(name, aside, free)
            return f"{QUARANTINE}/{free}"

    def damaged(self, name: str, why: str, instead: str, readonly: bool = False) -> str:
        """Put a damaged file aside, or whatever is in its place, bytes intact, unless ``readonly``; give what is said of it.

        ``instead``: what holds without it.
        """
        path = f"{self.path}/{name} is damaged"
        if readonly:
            return f"{path}: {why}"
        try:
            return f"{path} ({why}): it is {self.put_aside(name)}, and {instead}"
        except HostRefused as error:
            return f"{path} ({why}), and could not be put aside: {error}"

    def link(self, name: str, target: str) -> None:
        """Replaces the symbolic link (or whatever file) ``name`` at once. Raises HostRefused."""
        self._replace(name, lambda temporary: os.symlink(target, temporary, dir_fd=self.descriptor), name)

    def _replace(self, name: str, make: Callable[[str], None], said: str) -> None:
        temporary, swept = "", 0
        try:
            for temporary in _temporary_names():
                try:
                    make(temporary)
                except FileExistsError:
                    continue
                try:
                    os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
                    return
                except FileNotFoundError:
                    # somebody took ours for one left behind long ago: the clock was set forward in between
                    swept += 1
                    if swept == SWEPT:
                        raise
        except BaseException as error:  # a signal too
            if temporary:
                self._discard(temporary)
            if isinstance(error, OSError):
                raise refused("cannot write", f"{self.path}/{said}", error) from None
            raise

    def _discard(self, temporary: str) -> None:
        """Remove what was made on the way, if that can be done: why the file cannot be written is what matters, and the rest is swept."""
        try:
            os.unlink(temporary, dir_fd=self.descriptor)
        except OSError:
            pass

    def target(self, name: str) -> str:
        """Where the symbolic link ``name`` points; "" where there is none."""
        try:
            return os.readlink(name, dir_fd=self.descriptor)
        except OSError:
            return ""

    def unlink_if(self, name: str, target: str) -> bool:
        """Removes the symbolic link ``name`` if it points at ``target``, also while others replace it. True if it did."""
        if self.target(name) != target:
            return False
        for aside in _temporary_names():
            if self.exists(aside):
                continue
            try:
                os.rename(name, aside, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            except OSError:
                return False
            break
        ours = self.target(aside) == target
        if not ours:
            # somebody replaced it between our look and our rename: put theirs back, unless a newer one is there by now
            try:
                os.link(aside, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)
            except OSError:
                pass
        self.remove(aside)
        return ours

    def remove(self, name: str) -> bool:
        """Removes the file or link ``name``; True if it was there. Raises HostRefused."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise refused("cannot remove", f"{self.path}/{name}", error) from None
        return True

    def flush(self) -> None:
        """What was made in it, renamed or removed survives a crash of the machine (fsync(2))."""
        os.fsync(self.descriptor)

    def remove_empty(self, name: str) -> None:
        """Removes the folder ``name`` if nothing is in it."""
        try:
            os.rmdir(name, dir_fd=self.descriptor)
        except OSError:
            pass

    def exists(self, name: str) -> bool:
        """Is there anything called ``name``, a dangling link included?"""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    def removed(self) -> bool:
        """Tell whether somebody has removed the folder since it was opened."""
        return os.fstat(self.descriptor).st_nlink == 0

    def names(self) -> list[str]:
        """What is in it, sorted, without temporary files. Raises HostRefused."""
        try:
            return sorted(name for name in os.listdir(self.descriptor) if not name.startswith(TEMPORARY))
        except OSError as error:
            raise refused("cannot list", self.path, error) from None

    def temporary(self) -> list[str]:
        """List the temporary files and links in it. A folder is none: an instance may have such a name."""
        with os.scandir(self.descriptor) as entries:
            return sorted(each.name for each in entries if each.name.startswith(TEMPORARY) and not each.is_dir(follow_symlinks=False))

    def modified(self, name: str) -> float:
        """When ``name`` was last written, seconds since the epoch; 0 where there is none."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mtime
        except OSError:
            return 0.0


def _temporary_names() -> Iterator[str]:
    """Names that no other process uses, nor another thread of this one: who takes a link away renames it to one that is free."""
    return (f"{TEMPORARY}{get_native_id()}-{number}" for number in count())


def _read_all(descriptor: int, limit: int, size: int) -> bytes:
    """Read a file that held ``size`` bytes a moment ago, to its end or ``limit`` and one more."""
    parts = []
    left, room = limit + 1, size
    while left > 0:
        part = os.read(descriptor, min(left, max(room, ROOM)))
        if not part:
            break
        parts.append(part)
        left -= len(part)
        room -= len(part)
    return b"".join(parts)


def _make_parents(path: str) -> None:
    parent = os.path.dirname(path)
    if parent in ("/", "") or os.path.isdir(parent):
        return
    Folder.make(parent, ours=False).close()


def _flush_parents(path: str) -> None:
    """Whoever made them, and was perhaps killed before it could do this."""
    while path != "/":
        path = os.path.dirname(path)
        descriptor = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
