"""Read a stream of etcd's gateway: lines of JSON that come as long as the connection lasts.

It is asked for by HTTP/1.0, whose answer is not in chunks, so that the socket can be read with a time limit and read on after that:
``http.client`` cannot.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import select
import socket
import time

from netregistry.stores.etcd_answers import Garbled
from runtime.errors import escaped

AT_ONCE = 1 << 16  #: bytes
LONGEST_HEAD = 1 << 16  #: bytes
LONGEST_LINE = 64 << 20  #: bytes; a message of etcd's has 1.5 MiB where it may come in fragments, but for one larger event


class Cut(Exception):
    """Say why a stream has ended."""


class Stream:
    """A stream over a connected socket. One thread reads it; ``close`` is for any. ``where``: the member, for people."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self.where = connection, ""
        self._data = bytearray()
        self._looked = 0  # so much of the data has no end of line

    def begin(self, host: str, path: str, body: bytes, headers: dict[str, str], seconds: float) -> tuple[int, str, bytes]:
        """Send the request, and read the head of what is answered; give its status and type, and of an error all of it.

        Raises OSError, Garbled.
        """
        fields = {"Host": host, "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        until = time.monotonic() + seconds
        self._socket.settimeout(seconds)
        self._socket.sendall(f"POST {path} HTTP/1.0\r\n{head}\r\n".encode("latin-1") + body)
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            if len(self._data) > LONGEST_HEAD:
                raise Garbled("its answer has no end of its head")
            self._more(until)
        text, self._data = bytes(self._data[: end + 4]), self._data[end + 4 :]
        first, _, rest = text.partition(b"\r\n")
        try:
            version, status = first.split(None, 2)[:2]
            found = http.client.parse_headers(io.BytesIO(rest))
            if not version.startswith(b"HTTP/1.") or "Transfer-Encoding" in found:
                raise ValueError
            number, kind = int(status), found.get("Content-Type", "")
        except (ValueError, http.client.HTTPException):
            raise Garbled(f"its answer is not the head of a stream: {escaped(first.decode('latin-1'))}") from None
        if number != 200 or not kind.startswith("application/json"):
            with contextlib.suppress(OSError):
                while len(self._data) < LONGEST_HEAD:
                    self._more(until)
        return number, kind, bytes(self._data)

    @property
    def ready(self) -> bool:
        """Tell whether there is something to read, its end too."""
        if self._data:
            return True
        try:
            waiting = select.poll()
            waiting.register(self._socket, select.POLLIN)
            return bool(waiting.poll(0))
        except (OSError, ValueError):  # another thread has closed it: to read it says so
            return True

    def line(self, seconds: float) -> bytes | None:
        """Give the next line; None where none came within so many seconds. Raises Cut where there will be no more."""
        until = time.monotonic() + seconds
        while (end := self._data.find(b"\n", self._looked)) < 0:
            self._looked = len(self._data)
            if self._looked > LONGEST_LINE:
                raise Cut(f"it tells more than {LONGEST_LINE} bytes at once")
            try:
                self._more(until)
            except TimeoutError:
                return None
            except (OSError, ValueError) as error:
                raise Cut(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None
        found = bytes(self._data[:end])
        del self._data[: end + 1]
        self._looked = 0
        return found

    def _more(self, until: float) -> None:
        """Read some more. Raises OSError, TimeoutError among it."""
        self._socket.settimeout(max(until - time.monotonic(), 0.001))
        data = self._socket.recv(AT_ONCE)
        if not data:
            raise ConnectionResetError("the connection has ended")
        self._data += data

    def close(self) -> None:
        """End it; a ``line`` that waits in another thread raises Cut."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # of TLS too: nothing is to be said any more
        self._socket.close()
