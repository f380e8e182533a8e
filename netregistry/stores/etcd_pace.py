"""Bound an answer as a whole in time: the limit of a socket is for what comes next, and a byte now and then would hold its reader."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

RATE = 1 << 18  #: bytes a second that an answer has at least, however long it is
LONGEST = 20.0  #: seconds for one answer, whatever comes


class Paced:
    """Stand for a connected socket in ``http.client``. ``allow`` is called before each request."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.connection = connection
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Give the next request and its answer so many seconds, and a second more for each RATE bytes."""
        now = time.monotonic()
        self._until, self._last = now + seconds, now + LONGEST

    def _left(self) -> float:
        """Give the seconds that are left. Raises TimeoutError where there are none."""
        left = min(self._until, self._last) - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def sendall(self, data: bytes) -> None:
        """Send all. Raises OSError, TimeoutError among it."""
        rest = memoryview(data)
        while rest:
            self.connection.settimeout(self._left())
            sent = self.connection.send(rest)
            self._until += sent / RATE
            rest = rest[sent:]

    def receive(self, buffer: memoryview) -> int:
        """Read some; give how many bytes, 0 at the end. Raises OSError, TimeoutError among it."""
        self.connection.settimeout(self._left())
        found = self.connection.recv_into(buffer)
        self._until += found / RATE
        return found

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Give what an answer is read from."""
        return io.BufferedReader(_Received(self))

    def fileno(self) -> int:
        return self.connection.fileno()

    def close(self) -> None:
        self.connection.close()


class _Received(io.RawIOBase):
    """Read what a socket receives, as long as it has time."""

    def __init__(self, paced: Paced) -> None:
        super().__init__()
        self._paced = paced

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._paced.receive(buffer)
