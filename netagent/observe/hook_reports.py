"""Take in what hooks report: calls are counted by door, mode and outcome, and how long they took (netcommon.doors.agent_report sends it).

A hook never waits: while the socket's queue is full (net.unix.max_dgram_qlen datagrams, 10 unless systemd or the site has raised it) its
report is lost, so a thread does nothing else than to take them.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence

from netagent.observe.metrics import Metrics
from netagent.socket_server import CREDENTIALS
from netcommon.doors.agent_report import SOCKET, VERSION
from runtime.errors import CONFIG, OK, TEMPORARY, UNAVAILABLE, USAGE, HostRefused
from runtime.folder import Folder
from runtime.nic import MODES

#: What an exit status means.
OUTCOMES = {OK: "ok", USAGE: "invalid", UNAVAILABLE: "refused", TEMPORARY: "again", CONFIG: "settings"}

#: The doors there are; another word does not become a label.
DOORS = frozenset({"kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "vif-ganeti", "ganeti-hook", "ganeti-dns-hook"})

#: Who has done the work of a call: the agent, or the hook itself.
WARM, COLD = "warm", "cold"

#: A report is shorter (bytes).
LONGEST = 256


class Reports:
    """Takes the reports of hooks until ``close``. ``within``: the agent's folder."""

    def __init__(self, within: Folder, metrics: Metrics) -> None:
        self._within, self._metrics = within, metrics
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Raises HostRefused."""
        self._socket = bound(self._within, SOCKET, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._take, args=(self._socket,), name="reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and takes the socket away."""
        if self._socket is None or self._thread is None:
            return
        self._within.remove(SOCKET)
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()
        self._socket = None

    def _take(self, receiver: socket.socket) -> None:
        while True:
            data, ancillary, _flags, _sender = receiver.recvmsg(LONGEST, socket.CMSG_SPACE(CREDENTIALS.size))
            if not ancillary:
                return  # every datagram bears credentials: this is the end
            if _user(ancillary) in (0, os.geteuid()):
                count(data, self._metrics)


def count(data: bytes, metrics: Metrics) -> bool:
    """Counts one report; False for what is none."""
    words = data.decode("ascii", "replace").split(" ")
    if len(words) != 5 or words[0] != VERSION or not words[3].isdecimal() or not words[4].isdecimal() or len(words[4]) > 12:
        return False
    called(metrics, words[1], words[2], int(words[3]), int(words[4]) / 1e6, COLD)
    return True


def called(metrics: Metrics, door: str, mode: str, status: int, seconds: float, path: str) -> None:
    """Counts one call, done by ``path``: WARM or COLD."""
    door = door if door in DOORS else "other"
    mode = mode if mode in MODES else "unknown"
    metrics.count("netcommon_hook_calls_total", door=door, mode=mode, outcome=OUTCOMES.get(status, "failed"), path=path)
    metrics.observe("netcommon_hook_seconds", seconds, door=door, mode=mode, path=path)


def bound(within: Folder, name: str, kind: socket.SocketKind) -> socket.socket:
    """A Unix socket ``name`` in the folder, for root alone; one that a killed agent has left is replaced. Raises HostRefused.

    The umask is every thread's, so the mode comes after bind(2); the credentials of who sends are looked at in any case.
    """
    within.remove(name)
    made = socket.socket(socket.AF_UNIX, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, kind == socket.SOCK_DGRAM)
        made.bind(f"{within.path}/{name}")
        os.chmod(name, 0o600, dir_fd=within.descriptor)
    except OSError as error:
        made.close()
        raise HostRefused(f"cannot make the socket {within.path}/{name}: {error.strerror or error}") from None
    return made


def _user(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(CREDENTIALS.unpack(data)[1])
    return -1
