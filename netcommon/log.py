"""One line per operation to the journal or the syslog socket, and what went wrong for people.

A line is a datagram to journald, with the NIC's names as fields of their own, or, where there is none, an RFC 3164 datagram on
/dev/log (syslog(3), unix(7)), sent without ever waiting: a full or absent log never delays or fails a hook, and what could not be sent
is counted. Every value is escaped, so that nobody can forge a line or a field.
"""

from __future__ import annotations

import os
import time
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, socket  # the module socket costs 5 ms

from runtime.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ERROR, WARNING, INFO = 3, 4, 6  #: severities, RFC 3164 section 4.1.1

#: Facilities by name, RFC 3164 section 4.1.1.
FACILITIES = {"user": 1, "daemon": 3, **{f"local{number}": 16 + number for number in range(8)}}

#: A longer line is cut: what rsyslog takes by default, less room for its own header (bytes).
LONGEST = 7680

#: So many problems are kept for the summary; the others are counted.
KEPT = 40

#: After one line that the journal did not take, so many more go to syslog without asking it.
PASSED = 50

#: The journal's names of the fields that lines are bound to.
JOURNAL = {"instance": "INSTANCE", "nic": "NIC_INDEX", "uuid": "NIC_UUID", "tap": "TAP"}

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def printable(text: str) -> str:
    """``text`` on one line: every character that does not print (controls, line ends, lone surrogates) as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def field(name: str, value: object) -> str:
    """``name=value``, quoted where the value could be taken for more than one."""
    text = printable(str(value))
    if not text or any(char in ' "=\\' for char in text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{name}={text}"


NOTHING: Mapping[str, object] = {}


class Sender(Protocol):
    """Where lines go."""

    @property
    def dropped(self) -> int:
        """Lines that could not be delivered."""
        ...

    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        """Delivers one line, or counts it as dropped; ``fields`` are those bound, which the line begins with. Never waits or raises."""
        ...

    def close(self) -> None: ...


class Socket:
    """A Unix socket that sends datagrams to ``path``, whoever listens there at the time; one socket serves the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket | None = None

    def sent(self, data: bytes) -> bool:
        """Tell whether it was taken. The path is looked up for each datagram: a log daemon may be restarted at any time."""
        try:
            if self._socket is None:
                self._socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
            self._socket.sendto(data, self._path)
            return True
        except OSError:
            return False

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Syslog:
    """The syslog socket ``path``. ``facility`` and ``given_pid`` may be set at any time."""

    def __init__(self, path: str, facility: str = "daemon", wall: Callable[[], float] = time.time, ident: str = "netcommon") -> None:
        self.dropped = 0
        self.facility, self.ident, self._wall = facility, ident, wall
        self.given_pid = 0  #: of the process that the lines are about; 0: the one that made this
        self._pid = os.getpid()  #: a child that it has left behind to go on logs under its number
        self._socket = Socket(path)

    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        now = time.localtime(self._wall())
        stamp = f"{MONTHS[now.tm_mon - 1]} {now.tm_mday:2} {now.tm_hour:02}:{now.tm_min:02}:{now.tm_sec:02}"
        head = f"<{FACILITIES[self.facility] * 8 + severity}>{stamp} {self.ident}[{self.pid}]: "
        if not self._socket.sent(cut(head + text)):
            self.dropped += 1

    @property
    def pid(self) -> int:
        return self.given_pid or self._pid

    def close(self) -> None:
        self._socket.close()


def cut(text: str) -> bytes:
    """``text`` in UTF-8, cut after LONGEST bytes."""
    line = text.encode("utf-8", "backslashreplace")
    return line if len(line) <= LONGEST else line[: LONGEST - 3].decode("utf-8", "ignore").encode() + b"..."


class Journal:
    """journald's own socket ``path`` (systemd.journal-fields(7)); while it takes nothing, which is so where it does not run, ``syslog``."""

    def __init__(self, path: str, syslog: Syslog) -> None:
        self._syslog, self._socket = syslog, Socket(path)
        self._passed = 0  #: so many lines are not tried: a hook shall not pay for each that there is no journald

    @property
    def dropped(self) -> int:
        return self._syslog.dropped

    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        if self._passed:
            self._passed -= 1
            self._syslog.send(severity, text)
            return
        given = [
            ("PRIORITY", severity),
            ("SYSLOG_FACILITY", FACILITIES[self._syslog.facility]),
            ("SYSLOG_IDENTIFIER", self._syslog.ident),
            ("SYSLOG_PID", self._syslog.pid),
            *((JOURNAL[name], value) for name, value in fields.items() if name in JOURNAL),
        ]
        # no value has a line end: that is an escape, as in the text
        entry = "".join(f"{name}={printable(str(value))}\n" for name, value in given).encode("utf-8", "backslashreplace")
        if not self._socket.sent(entry + b"MESSAGE=" + cut(text) + b"\n"):
            self._passed = PASSED
            self._syslog.send(severity, text)

    def close(self) -> None:
        self._socket.close()
        self._syslog.close()


class Recorder:
    """Keeps the lines, "warning: text", instead of sending them: for tests, and where no log is wanted."""

    def __init__(self) -> None:
        self.dropped = 0
        self.lines: list[str] = []

    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        self.lines.append(f"{NAMES[severity]}: {text}")

    def close(self) -> None:
        """Nothing is open."""


NAMES = {ERROR: "error", WARNING: "warning", INFO: "info"}


class _Problems:
    """Warnings and errors, in order; shared by all logs bound from one."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.more = 0
        self.errors = 0

    def add(self, severity: int, text: str) -> None:
        self.errors += severity == ERROR
        if text in self.texts:
            return
        if len(self.texts) < KEPT:
            self.texts.append(text)
        else:
            self.more += 1


class Log:
    """Writes lines that bear the bound fields, and keeps warnings and errors for ``summary``. Writes nothing anywhere else."""

    def __init__(
        self, sender: Sender, fields: Mapping[str, object] | None = None, label: str = "", problems: _Problems | None = None
    ) -> None:
        self._sender, self._fields, self._label = sender, dict(fields or {}), label
        self._prefix = "".join(field(name, value) + " " for name, value in self._fields.items())
        self._problems = problems or _Problems()

    def bind(self, instance: str = "", nic: int | None = None, uuid: str = "", tap: str = "", **more: object) -> Log:
        """A log whose lines bear these fields too, or instead; empty ones are left out. It shares the summary with this one."""
        values = {"instance": instance or None, "nic": nic, "uuid": uuid or None, "tap": tap or None, **more}
        fields = {**self._fields, **{name: value for name, value in values.items() if value is not None}}
        label = "/".join(str(part) for part in (instance or tap, nic) if part not in ("", None))
        return Log(self._sender, fields, printable(label) or self._label, self._problems)

    def info(self, text: str) -> None:
        self._write(INFO, text)

    def warning(self, text: str) -> None:
        self._write(WARNING, text)

    def error(self, text: str) -> None:
        self._write(ERROR, text)

    def _write(self, severity: int, text: str) -> None:
        shown = printable(text)
        if severity != INFO:
            self._problems.add(severity, f"{NAMES[severity]}: " + (f"{self._label}: " if self._label else "") + shown)
        self._sender.send(severity, self._prefix + shown, self._fields)

    @property
    def errors(self) -> int:
        """How many errors there were."""
        return self._problems.errors

    @property
    def problems(self) -> tuple[str, ...]:
        """Warnings and errors so far, each once, in order."""
        return tuple(self._problems.texts)

    def summary(self) -> str:
        """Warnings and errors for stderr, one a line with a line end; "" if there were none."""
        texts = list(self._problems.texts)
        if texts and self._problems.more:
            texts.append(f"{self._problems.more} more")
        return "".join(f"netcommon: {text}\n" for text in texts)

    def close(self) -> None:
        self._sender.close()


def recording() -> tuple[Log, list[str]]:
    """A log for tests, and the list that its lines go to."""
    recorder = Recorder()
    return Log(recorder), recorder.lines
