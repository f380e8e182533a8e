"""The file of a Unix socket: made where root alone can change anything. Nothing else is taken away."""

from __future__ import annotations

import os
import socket
import stat

from netcommon.log import printable
from runtime.errors import HostRefused
from runtime.folder import Folder
from runtime.trust import distrust_folder

EVERYBODY, OWNER = 0o666, 0o600  #: who may connect, beside what the folder's mode says


class SocketFile:
    """A socket bound at an absolute path, until ``remove``. Raises HostRefused or OSError where it cannot be, and leaves what is there.

    Root alone can write to each folder on the way, so nobody can put a link or another file there between two of our looks. The folder
    is held open: what is removed in the end is in the same one, whatever has become of the way. ``mode``: who may connect.
    """

    def __init__(self, bound: socket.socket, path: str, mode: int = EVERYBODY) -> None:
        self._mode = mode
        above, self._name = os.path.split(path)
        if reason := distrust_folder(above):
            raise HostRefused(printable(reason), "nobody but root may be able to write to a folder on the way to the socket")
        found = Folder.find(os.path.realpath(above))
        if found is None:
            raise FileNotFoundError(2, "there is no such folder")
        self._folder = found
        try:
            self._free(path)
            os.fchmod(bound.fileno(), mode)  # with which the file is made: never wider, not for a moment (unix(7))
            bound.bind(path)
            self._made = self._shown()
        except (HostRefused, OSError):
            self._folder.close()
            raise

    def remove(self) -> None:
        """Takes the file away, before the socket is closed: until then no other file can have its number."""
        try:
            found = os.stat(self._name, dir_fd=self._folder.descriptor, follow_symlinks=False)
            if (found.st_dev, found.st_ino) == self._made:
                self._folder.remove(self._name)
        except (HostRefused, OSError):
            pass  # gone, or in a file system that is read-only by now: the next one that listens there removes or reports it
        self._folder.close()

    def _free(self, path: str) -> None:
        """Removes the socket that one who has ended has left there. Raises HostRefused for whatever else is there."""
        try:
            found = os.stat(self._name, dir_fd=self._folder.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise HostRefused("something that is no socket is there, and stays", "expected a path where there is nothing")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)  # who answers may have a queue that is full
            try:
                asking.connect(path)
            except ConnectionRefusedError:
                self._folder.remove(self._name)
                return
            except OSError:
                pass  # a socket of another type, or a full queue: somebody is there
        raise HostRefused("another process listens there", "expected a path where there is nothing")

    def _shown(self) -> tuple[int, int]:
        """Sets who may connect; the file's device and number. By its descriptor: chmod(2) of a path follows links."""
        descriptor = os.open(self._name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder.descriptor)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISSOCK(found.st_mode):
                raise HostRefused("the socket was replaced while it was made")
            os.chmod(f"/proc/self/fd/{descriptor}", self._mode)
        finally:
            os.close(descriptor)
        return found.st_dev, found.st_ino
