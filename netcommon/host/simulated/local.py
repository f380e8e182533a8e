"""Files and daemons of a simulated node."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import Daemon
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import Hangup, PutFile, StopDaemon
from netcommon.host.linux.files import NO_FOLDER, OWN, file_of, not_ours, problem
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import File
    from netcommon.host.api.requests import DeleteFile, StartDaemon


class SimulatedFiles:
    """Files by folder and name. ``folders`` are the absolute ones that exist."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.contents: dict[tuple[str, str], File] = {}

    def put(self, folder: str, name: str, content: str, mode: int = 0o644) -> None:
        """A file of whoever."""
        self.contents[folder, name] = file_of(folder, name, content, mode)

    def there(self, folder: str) -> bool:
        """Tell whether files can be put into the folder."""
        return folder in OWN or folder in self.folders

    def execute(self, request: PutFile | DeleteFile) -> Answer:
        """Carries it out."""
        wrong = problem(request.folder, request.name)
        if wrong:
            return Answer(errno.EINVAL, wrong)
        if not self.there(request.folder):
            return Answer(errno.ENOENT, f"folder {request.folder} does not exist: {NO_FOLDER}")
        there = self.contents.get((request.folder, request.name))
        if isinstance(request, PutFile):
            if there is not None and not there.owner:
                return Answer(errno.EEXIST, not_ours(there.path))
            self.put(request.folder, request.name, request.content, request.mode)
            return DONE
        if there is None:
            return Answer(errno.ENOENT, f"{request.folder}/{request.name} is gone")
        if there.owner != request.owner:
            return Answer(errno.EEXIST, not_ours(there.path))
        del self.contents[request.folder, request.name]
        return DONE


class SimulatedDaemons:
    """Daemons by name. ``programs``: what is installed; ``noted``: which program each pid file leads to."""

    def __init__(self) -> None:
        self.programs = {"dnsmasq": "/usr/sbin/dnsmasq"}
        self.running: dict[str, Daemon] = {}
        self.noted: dict[str, str] = {}
        self._last = 1000

    def execute(self, request: StartDaemon | StopDaemon | Hangup) -> Answer:
        """Carries it out."""
        if isinstance(request, Hangup):
            return DONE if self.noted.get(request.pid_file) == request.program else Answer(errno.ESRCH, f"no {request.program} runs")
        running = self.running.get(request.name)
        if isinstance(request, StopDaemon):
            if running is not None:
                self.end(request.name)
            return DONE
        if request.program not in self.programs.values():
            return Answer(errno.ENOENT, f"{request.program}: No such file or directory")
        if running is None or running.options != request.options:
            self._last += 1
            self.running[request.name] = Daemon(request.name, self._last, request.options)
            self.noted[f"{request.name}/pid"] = request.program.rpartition("/")[2]
        return DONE

    def end(self, name: str) -> None:
        """The process ends."""
        del self.running[name]
        self.noted.pop(f"{name}/pid", None)
