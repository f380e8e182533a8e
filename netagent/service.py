"""The process around an agent: one for each network namespace, signals, signs of life, threads that answer, and the hooks' server.

How netagent.agent uses it (the command line calls ``netagent.agent.run(paths, clock, environ, verbose)``):

    service = Service(paths, host.identity(), clock, environ, verbose)
    service.open()                     # raises: settings broken, another agent runs
    agent = Agent(service.state, service, chance)
    service.serve(agent)               # reports, status and metrics are answered from here on, by threads of their own; before ready
    agent.start()                      # calls begin and ready
    each time that the loop's clock reaches what service.tick() returned last, at first at once: service.tick()
    service.close()                    # after the workers have ended
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from netagent.hooks.server import Serving
from netagent.logs import Logs
from netagent.observe.control import SOCKET as CONTROL
from netagent.observe.control import Control
from netagent.observe.exporter import Exposition
from netagent.observe.hook_reports import Reports
from netagent.observe.hook_stats import hooks
from netagent.observe.status import document
from netagent.state import State
from netcommon.doors.agent_report import SOCKET as REPORTS
from netcommon.host.api.host import Identity
from netcommon.lifecycle.context import Clock
from netcommon.log import printable
from netcommon.process.notify import Notifier
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, TryAgain
from runtime.folder import Folder
from runtime.paths import Paths

if TYPE_CHECKING:
    from netagent.loop import Scheduler
    from netcommon.lifecycle.context import Node

#: The file that is locked as long as the agent runs, and holds its process id.
LOCK = "lock"
REMOVED = "removed"  #: the alarm: lock or sockets were removed, and cannot be made again
PATIENCE = 1.0  #: seconds in which the lock of an agent that has ended is free

#: How often the loop shows that it turns where nobody else asks for more (seconds).
TURN = 10.0


class Agent(Protocol):
    """What the service needs of the agent."""

    def reloaded(self, settings: Settings) -> None:
        """New settings are in force. In the main thread."""
        ...

    def stop(self) -> None:
        """SIGTERM or SIGINT: the loop is to end. In the main thread."""
        ...

    def status(self) -> Mapping[str, object]:
        """The agent's part of the status: what JSON can hold. In another thread, so it takes no lock that work is done under."""
        ...

    def hanging(self) -> str:
        """What has been going on in a worker for so long that it will not end any more, in words; "" if nothing. In the main thread."""
        ...


class Service:
    """The process of an agent, as the node's administrator and service manager see it. ``state``: of its node."""

    def __init__(
        self,
        paths: Paths,
        identity: Identity,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        verbose: bool = False,
    ) -> None:
        given: Mapping[str, str] = os.environ if environ is None else environ
        clock = clock or Clock()
        self.logs = Logs(paths, clock.wall, verbose)
        self.state = State(paths, identity, clock, self.logs, given)
        self.notifier = Notifier(given)
        self._agent: Agent | None = None
        self._folder: Folder | None = None
        self._lock = -1
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._handlers: dict[int, object] = {}
        self._wakeup = -1
        self._parts: list[Reports | Control] = []
        self.displaced: TryAgain | None = None  #: why this agent ends: another one has its lock
        self._exposition: Exposition | None = None

    def open(self) -> None:
        """Reads the settings, and makes sure that we are the only agent of this namespace. Signals from here on are kept for ``begin``.

        Raises SettingsInvalid, TryAgain where an agent runs already, HostRefused.
        """
        self.state.read()
        self._folder, self._lock = self._place()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, lambda number, frame: None)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def serve(self, agent: Agent) -> None:
        """Takes reports of hooks, and answers those who ask for the status or the metrics. Raises HostRefused."""
        if self._folder is None:
            raise RuntimeError("the service is not open")
        self._agent = agent
        state = self.state
        state.metrics.gauge("netcommon_agent_start_time_seconds", round(state.standing.started, 3))
        self._listen(self._folder, agent)
        self._exposition = Exposition(state.metrics, state.alarms)
        self._exposition.start()
        self._exposition.configure(state.settings)

    def _listen(self, within: Folder, agent: Agent) -> None:
        """Make the sockets."""
        state = self.state
        parts: list[Reports | Control] = [
            Reports(within, state.metrics),
            Control(
                within,
                lambda: document(state.standing, state.clock.now(), state.alarms.active(), agent.status()),
                {"hooks": lambda _rest: hooks(state.metrics), "events": state.journal.asked},
            ),
        ]
        for part in parts:
            part.start()
            self._parts.append(part)

    def _place(self) -> tuple[Folder, int]:
        """Open the folder of the namespace's agent, made if need be, and take its lock. Raises TryAgain, HostRefused."""
        made = Folder.make(self.state.folder)
        try:
            return made, _locked(made)
        except (TryAgain, HostRefused):
            made.close()
            raise

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in which the agent must have its sockets, and its lock."""
        return os.path.dirname(self.state.folder), self.state.folder

    def stands(self) -> bool:
        """Tell whether lock and sockets are where they are looked for. Whoever removes them hides the agent from hooks and from another."""
        if self._folder is None:
            return True
        return self._locks() and all(os.path.exists(f"{self._folder.path}/{name}") for name in (REPORTS, CONTROL))

    def _locks(self) -> bool:
        """Tell whether the lock that is ours is the one that the next agent would find."""
        try:
            mine, there = os.fstat(self._lock), os.lstat(f"{self.state.folder}/{LOCK}")
        except OSError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def again(self) -> None:
        """Make anew what somebody has removed. In the main thread. Where another agent has come meanwhile, it stays, and we end."""
        if self._agent is None or self._folder is None or self.stands():
            return
        try:
            place = None if self._locks() else self._place()
            for part in self._parts:
                part.close()
            self._parts.clear()
            if place is not None:
                self._folder.close()
                os.close(self._lock)
                self._folder, self._lock = place
            self._listen(self._folder, self._agent)
        except TryAgain as error:
            self.state.log.error(f"the lock was removed, and {error}: this one ends")
            self.displaced = error
            self.stopping()
        except HostRefused as error:
            self.state.alarms.set(REMOVED, f"lock or sockets were removed, and cannot be made again: {error}")
        else:
            self.state.alarms.clear(REMOVED)
            self.state.log.warning(f"lock or sockets were removed from {self._folder.path}: they were made again")

    def hooks(self, open_node: Callable[[Settings], Node]) -> Serving:
        """Make the hooks' server; ``open_node`` opens a node for one call, by these settings."""
        return Serving(self.state, open_node)

    def begin(self, loop: Scheduler) -> None:
        """Have signals heeded in the loop. In the main thread."""
        loop.watch(self._reader.fileno(), self.signalled)

    def signalled(self) -> None:
        """Does what the signals that have come ask for. In the main thread."""
        try:
            numbers = set(self._reader.recv(4096))
        except BlockingIOError:
            return
        if numbers & {signal.SIGTERM, signal.SIGINT}:
            self.stopping()
        elif signal.SIGHUP in numbers:
            self.reload()

    def stopping(self) -> None:
        """Tells everybody that we end, and the agent to do so."""
        self.state.standing.state = "stopping"
        self.notifier.stopping()
        if self._agent is not None:
            self._agent.stop()

    def reload(self) -> bool:
        """Reads the settings again; a broken file leaves the old ones in force, and is an alarm until it is whole again."""
        self.notifier.reloading()
        read, settings = self.state.reload(), self.state.settings
        if read:
            if self._exposition is not None:
                self._exposition.configure(settings)
            if self._agent is not None:
                self._agent.reloaded(settings)
            self.state.log.info("the settings were read again")
            for line in settings.renamed:
                self.state.log.warning(line)
        self.notifier.ready()
        return read

    def ready(self, text: str = "") -> None:
        """The agent is at work: the first picture was read."""
        self.state.standing.state = "running"
        self.notifier.ready()
        self.say(text)

    def say(self, text: str) -> None:
        """One line on how things are, for `systemctl status`."""
        self.state.standing.text = text
        self.notifier.status(text)

    def tick(self) -> float:
        """The loop turns: a sign of life, unless a worker hangs. Returns when it is to be called again (monotonic seconds)."""
        now = self.state.clock.now()
        self.state.standing.turned = now
        trouble = self._agent.hanging() if self._agent is not None else ""
        if trouble:
            self.state.alarms.set("stuck", trouble)  # without signs of life the service manager starts us anew, which loses nothing
        else:
            self.state.alarms.clear("stuck")
            self.notifier.alive()
        return now + (min(self.notifier.watchdog / 2, TURN) or TURN)

    def close(self) -> None:
        """Ends what was begun, in reverse."""
        if self._exposition is not None:
            self._exposition.close()
            self._exposition = None
        for part in reversed(self._parts):
            part.close()
        self._parts.clear()
        if self._handlers:
            signal.set_wakeup_fd(self._wakeup)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)  # type: ignore[arg-type] # it is what signal() gave
            self._handlers.clear()
        for end in (self._reader, self._writer):
            end.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        self.logs.close()


def _locked(within: Folder) -> int:
    """The open lock file, which lasts as long as this process. Raises TryAgain, HostRefused.

    Of an agent that was killed a child may have it for a moment yet, until it runs its program.
    """
    try:
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=within.descriptor)
    except OSError as error:
        raise HostRefused(f"cannot open {within.path}/{LOCK}: {error.strerror}") from None
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() < limit:
                time.sleep(PATIENCE / 20)
                continue
        holder = os.pread(descriptor, 16, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise TryAgain(f"an agent of this network namespace runs already: process {printable(holder) or 'unknown'}")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor
