"""Requests about this machine's own files and daemons (netcommon.host.requests has the others)."""

from __future__ import annotations

import errno

from runtime.typed import NamedTuple


class PutFile(NamedTuple):
    """Writes the file ``name`` of ``folder`` whole and at once (rename(2)); EEXIST where there is one without our mark.

    ``folder``: an absolute path, which must be there, or one below our own folder of the node's state, which is made.
    ``content`` begins with our mark. ``announce``: for a reader that watches for a file closed after writing alone (inotify(7)).
    """

    folder: str
    name: str
    content: str
    mode: int = 0o644
    announce: bool = False

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteFile(NamedTuple):
    """Deletes the file if its mark names ``owner``, a NIC's UUID; EEXIST where it does not. Our own folder goes when it is empty."""

    folder: str
    name: str
    owner: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.EEXIST})


class StartDaemon(NamedTuple):
    """Runs ``program`` (an absolute path) as the node's daemon ``name``, unless it runs with just these options.

    It writes its pid to the file that the option ``--pid-file=`` names. In the options "{folder}" stands for the daemon's folder in
    the node's state. Answers when the daemon is at work; one with other options was ended before.
    """

    name: str
    program: str
    options: tuple[str, ...]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class StopDaemon(NamedTuple):
    """Ends the node's daemon ``name`` and removes its folder. Answers when the process is gone."""

    name: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ESRCH})


class Hangup(NamedTuple):
    """SIGHUP to the process that ``pid_file`` names, if its program is really ``program``; ESRCH where it is not, or none runs."""

    pid_file: str
    program: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ESRCH})
