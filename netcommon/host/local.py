"""What a live view tells of this machine's own files and daemons; what it takes is loaded when it is asked."""

from __future__ import annotations

from runtime.layout import Layout
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.daemons import Daemons
    from netcommon.host.facts import Daemon, File
    from netcommon.host.files import Files
    from netcommon.host.linux import LinuxHost


class LocalView:
    """The part of a live view that is about files and daemons."""

    _host: LinuxHost

    def file(self, folder: str, name: str) -> File | None:
        return files(self._host).file(folder, name)

    def files(self) -> Sequence[File]:
        return files(self._host).files()

    def daemon(self, name: str) -> Daemon | None:
        return daemons(self._host).daemon(name)

    def program(self, name: str) -> str:
        from netcommon.host.daemons import program

        return program(name)


def files(host: LinuxHost) -> Files:
    """The service "files" of ``host``."""
    from netcommon.host.files import Files

    return Files(lambda: _layout(host), host.folders)


def daemons(host: LinuxHost) -> Daemons:
    """The service "daemons" of ``host``."""
    from netcommon.host.daemons import Daemons

    return Daemons(lambda: _layout(host), host.paths.proc, host.timeout)


def _layout(host: LinuxHost) -> Layout:
    """Our own state on this node, opened anew: what others remove meanwhile is not held on to."""
    identity = host.identity()
    return Layout(host.paths.state, identity.netns, identity.boot, readonly=False)
