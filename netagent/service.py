"""The agent as a service: one for each network namespace, signals, settings that can be read again, signs of life, and who may ask.

How netagent.agent uses it (the command line calls ``netagent.agent.run(paths, clock, environ, verbose)``):

    service = Service(paths, host.identity(), clock, environ, verbose)
    service.open()                     # raises: settings broken, another agent runs
    ... open the subscriptions, with service.settings, service.metrics, service.alarms, service.make_log()
    service.serve(agent)               # reports, status and metrics are answered from here on, by threads of their own; before ready
    loop.watch(service.descriptor, service.signalled)
    service.ready("5000 NICs")
    each time that the loop's clock reaches what service.tick() returned last, at first at once: service.tick()
    service.close()                    # after the workers have ended
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from netagent.observe.alarms import Alarms
from netagent.observe.control import SOCKET as CONTROL
from netagent.observe.control import Control
from netagent.observe.exporter import Exposition
from netagent.observe.history import Journal as EventJournal
from netagent.observe.hook_reports import Reports
from netagent.observe.hook_stats import hooks
from netagent.observe.metrics import Metrics
from netagent.observe.status import Standing, document
from netcommon.doors.agent_report import SOCKET as REPORTS
from netcommon.doors.agent_report import folder
from netcommon.host.api.host import Identity
from netcommon.lifecycle.context import Clock
from netcommon.log import INFO, NOTHING, Journal, Log, Sender, Syslog, printable
from netcommon.process.notify import Notifier
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, SettingsInvalid, TryAgain
from runtime.folder import Folder
from runtime.paths import Paths

#: The file that is locked as long as the agent runs, and holds its process id.
LOCK = "lock"
REMOVED = "removed"  #: the alarm: lock or sockets were removed, and cannot be made again
PATIENCE = 1.0  #: seconds in which the lock of an agent that has ended is free

#: How often the loop shows that it turns where nobody else asks for more (seconds).
TURN = 10.0

#: The range of an automatic delay before the first reaping (seconds): not all nodes of a cluster that is switched on at once.
SHORTEST, LONGEST = 120.0, 600.0


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


class Echo:
    """Passes lines on, and shows them on stderr: for an agent that somebody runs at a terminal."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.dropped = 0

    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        self._sender.send(severity, text, fields)
        try:
            os.write(2, f"{'' if severity == INFO else 'warning: '}{text}\n".encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # nobody looks

    def close(self) -> None:
        self._sender.close()


class Service:
    """The agent of one network namespace, as the node's administrator and service manager see it. ``settings`` are those in force."""

    def __init__(
        self,
        paths: Paths,
        identity: Identity,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        verbose: bool = False,
    ) -> None:
        self.paths, self.identity, self.clock = paths, identity, clock or Clock()
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.settings = Settings()
        self.metrics = Metrics()
        self._senders: list[Syslog] = []
        self._logs: list[Log] = []
        self._verbose = verbose
        self.log = self.make_log()
        self.journal = EventJournal(self.clock.wall)
        self.alarms = Alarms(self.make_log(), self.metrics, self.journal.alarm)
        self.notifier = Notifier(self.environ)
        self.standing = Standing(os.getpid(), identity.netns, self.clock.wall(), self.clock.now())
        self._agent: Agent | None = None
        self._folder: Folder | None = None
        self._lock = -1
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._handlers: dict[int, object] = {}
        self._wakeup = -1
        self._parts: list[Reports | Control] = []
        self.displaced: TryAgain | None = None  #: why this agent ends: another one has its lock
        self._exposition: Exposition | None = None

    def make_log(self) -> Log:
        """A log with a sender of its own, for one thread; its facility follows the settings."""
        syslog = Syslog(self.paths.log, self.settings.syslog_facility, self.clock.wall, "netcommon-agent")
        self._senders.append(syslog)
        journal = Journal(self.paths.journal, syslog)
        self._logs.append(Log(Echo(journal) if self._verbose else journal))
        return self._logs[-1]

    def open(self) -> None:
        """Reads the settings, and makes sure that we are the only agent of this namespace; from here on signals come to ``descriptor``.

        Raises SettingsInvalid, TryAgain where an agent runs already, HostRefused.
        """
        self._apply(load(self.paths))
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
        self.metrics.gauge("netcommon_agent_start_time_seconds", round(self.standing.started, 3))
        self._listen(self._folder, agent)
        self._exposition = Exposition(self.metrics, self.alarms)
        self._exposition.start()
        self._exposition.configure(self.settings)

    def _listen(self, within: Folder, agent: Agent) -> None:
        """Make the sockets."""
        parts: list[Reports | Control] = [
            Reports(within, self.metrics),
            Control(
                within,
                lambda: document(self.standing, self.clock.now(), self.alarms.active(), agent.status()),
                {"hooks": lambda _rest: hooks(self.metrics), "events": self.journal.asked},
            ),
        ]
        for part in parts:
            part.start()
            self._parts.append(part)

    def _place(self) -> tuple[Folder, int]:
        """Open the folder of the namespace's agent, made if need be, and take its lock. Raises TryAgain, HostRefused."""
        made = Folder.make(folder(self.paths.state, self.identity.netns))
        try:
            return made, _locked(made)
        except (TryAgain, HostRefused):
            made.close()
            raise

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in which the agent must have its sockets, and its lock."""
        place = folder(self.paths.state, self.identity.netns)
        return os.path.dirname(place), place

    def stands(self) -> bool:
        """Tell whether lock and sockets are where they are looked for. Whoever removes them hides the agent from hooks and from another."""
        if self._folder is None:
            return True
        return self._locks() and all(os.path.exists(f"{self._folder.path}/{name}") for name in (REPORTS, CONTROL))

    def _locks(self) -> bool:
        """Tell whether the lock that is ours is the one that the next agent would find."""
        try:
            mine, there = os.fstat(self._lock), os.lstat(f"{folder(self.paths.state, self.identity.netns)}/{LOCK}")
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
            self.log.error(f"the lock was removed, and {error}: this one ends")
            self.displaced = error
            self.stopping()
        except HostRefused as error:
            self.alarms.set(REMOVED, f"lock or sockets were removed, and cannot be made again: {error}")
        else:
            self.alarms.clear(REMOVED)
            self.log.warning(f"lock or sockets were removed from {self._folder.path}: they were made again")

    @property
    def descriptor(self) -> int:
        """Becomes readable when a signal has come: then call ``signalled``."""
        return self._reader.fileno()

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
        self.standing.state = "stopping"
        self.notifier.stopping()
        if self._agent is not None:
            self._agent.stop()

    def reload(self) -> bool:
        """Reads the settings again; a broken file leaves the old ones in force, and is an alarm until it is whole again."""
        self.notifier.reloading()
        try:
            settings = load(self.paths)
        except SettingsInvalid as error:
            self.standing.settings = f"broken, those from before are in force: {printable(str(error).replace(chr(10), '; '))}"
            self.alarms.set("settings", self.standing.settings)
            self.notifier.ready()
            return False
        self.alarms.clear("settings")
        self._apply(settings)
        if self._exposition is not None:
            self._exposition.configure(settings)
        if self._agent is not None:
            self._agent.reloaded(settings)
        self.log.info("the settings were read again")
        for line in settings.renamed:
            self.log.warning(line)
        self.notifier.ready()
        return True

    def ready(self, text: str = "") -> None:
        """The agent is at work: the first picture was read."""
        self.standing.state = "running"
        self.notifier.ready()
        self.say(text)

    def say(self, text: str) -> None:
        """One line on how things are, for `systemctl status`."""
        self.standing.text = text
        self.notifier.status(text)

    def tick(self) -> float:
        """The loop turns: a sign of life, unless a worker hangs. Returns when it is to be called again (monotonic seconds)."""
        now = self.clock.now()
        self.standing.turned = now
        trouble = self._agent.hanging() if self._agent is not None else ""
        if trouble:
            self.alarms.set("stuck", trouble)  # without signs of life the service manager starts us anew, which loses nothing
        else:
            self.alarms.clear("stuck")
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
        for log in self._logs:
            log.close()

    def _apply(self, settings: Settings) -> None:
        self.settings = settings
        self.standing.settings = "in force"
        for sender in self._senders:
            sender.facility = settings.syslog_facility


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


def start_delay(settings: Settings, environ: Mapping[str, str], paths: Paths, chance: Callable[[], float] = random.random) -> float:
    """How long after the start the first reaping is (seconds). By itself: a random time where systemd has started us on a node with
    Ganeti, whose other nodes may be starting too and whose files may come late; else at once. ``chance`` gives 0 to 1."""
    if settings.agent_start_delay != "auto":
        return float(settings.agent_start_delay)
    if "INVOCATION_ID" in environ and os.path.isdir(paths.ganeti_run):
        return SHORTEST + (LONGEST - SHORTEST) * chance()
    return 0.0
