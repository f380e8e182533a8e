"""Make the logs of an agent, one for each of its threads: to journald or syslog, and to stderr for who runs it at a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from netcommon.log import INFO, NOTHING, Journal, Log, Sender, Syslog
from netcommon.settings.model import Settings
from runtime.paths import Paths


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


class Logs:
    """The logs of one agent. ``wall``: seconds since the epoch."""

    def __init__(self, paths: Paths, wall: Callable[[], float], verbose: bool = False) -> None:
        self._paths, self._wall, self._verbose = paths, wall, verbose
        self._facility = Settings().syslog_facility
        self.senders: list[Syslog] = []
        self._made: list[Log] = []

    def make(self) -> Log:
        """Make a log with a sender of its own, for one thread."""
        syslog = Syslog(self._paths.log, self._facility, self._wall, "netcommon-agent")
        self.senders.append(syslog)
        journal = Journal(self._paths.journal, syslog)
        self._made.append(Log(Echo(journal) if self._verbose else journal))
        return self._made[-1]

    def use(self, settings: Settings) -> None:
        """Let all of them be as the settings say."""
        self._facility = settings.syslog_facility
        for sender in self.senders:
            sender.facility = self._facility

    def close(self) -> None:
        """Close what is open."""
        for log in self._made:
            log.close()
