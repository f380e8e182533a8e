"""Telling systemd how we are: datagrams to NOTIFY_SOCKET (sd_notify(3)). Without one, nothing is told to anybody."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """The service manager that started us, by the environment it gave; ``watchdog`` is within how many seconds it wants a sign of
    life, 0 if it wants none."""

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path if path.startswith("/") else ""
        self._said = ""
        meant = environ.get("WATCHDOG_PID", "")
        limit = environ.get("WATCHDOG_USEC", "")
        ours = not meant or meant == str(pid or os.getpid())  # sd_watchdog_enabled(3): a parent's is not ours
        self.watchdog = int(limit) / 1e6 if self._address and ours and limit.isascii() and limit.isdigit() else 0.0

    def ready(self) -> None:
        """The start, or the reload, is over."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The settings are being read again; ``ready`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """We are on our way out."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """A sign of life."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`; only what changes is sent."""
        if text != self._said:
            self._said = text
            self._send("STATUS=" + text.replace("\n", " "))

    def _send(self, text: str) -> None:
        """Never waits and never fails: a manager that does not listen will do what it does without a sign of life."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender:
                sender.sendto(text.encode("utf-8", "backslashreplace"), self._address)
        except OSError:
            pass
