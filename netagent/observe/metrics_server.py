"""Answers Prometheus' requests for the metrics at a TCP or Unix address: one thread for all clients, which anybody on the node may be."""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from netcommon.process.socket_file import SocketFile
from runtime.errors import HostRefused

#: Who asks has so long for all of it (seconds).
PATIENCE = 5.0

#: A request is shorter (bytes).
LONGEST = 8192

#: So many are connected at a time: a scrape is there for milliseconds, and who comes when all places are taken gets the oldest idle one's.
MOST = 64

#: So many are let in before those that are there are served again: what they have sent meanwhile is not lost to those who come.
AT_ONCE = 16

#: So many connections wait for being let in: a Unix socket refuses whoever comes after them.
BACKLOG = 1024

#: Who asks so soon after another gets the same text (seconds): however many ask, making it takes little time, and it is held few times.
FRESH = 0.5

#: After an accept(2) that failed, such as for want of descriptors, it is tried again so much later (seconds).
PAUSE = 0.1

#: The media type of the text format 0.0.4.
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Client:
    """A connection: what has come of its request, what is left of its answer, and when its time is over."""

    __slots__ = ("answer", "end", "request", "socket")

    def __init__(self, asking: socket.socket, end: float) -> None:
        self.socket, self.end = asking, end
        self.request = b""
        self.answer: list[memoryview] | None = None  #: None: the request is not whole


class Server:
    """Answers GET /metrics at an address in a thread of its own, several clients at a time.

    Raises OSError or HostRefused where it cannot listen. Memory, descriptors and time are limited whatever clients do: MOST connections, of
    which each has PATIENCE for all of it. HTTP/1.0 as far as a scrape needs it: the standard library's server would cost 7 MB.
    """

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        self._text = text
        self._listener, self._file = _listening(address)
        self._clients: dict[int, Client] = {}  # by descriptor, the oldest first
        self._poll = select.poll()
        self._made, self._made_at = b"", 0.0  # the text of FRESH
        self._deaf_until = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._end()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def address(self) -> Any:
        """Where it listens, as the socket says."""
        return self._listener.getsockname()

    def close(self) -> None:
        """Ends the thread; a socket file is taken away."""
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join(2 * PATIENCE)
        self._end()

    def _end(self) -> None:
        if self._file is not None:
            self._file.remove()
        self._listener.close()

    def _serve(self) -> None:
        listening = self._listener.fileno()
        self._poll.register(listening, select.POLLIN)
        while not self._closing:
            ready = self._poll.poll(self._wait())
            for descriptor, _ in ready:
                if descriptor in self._clients:
                    self._go_on(self._clients[descriptor])
            now = time.monotonic()
            for client in [client for client in self._clients.values() if client.end <= now]:
                self._drop(client)
            if self._deaf_until and now >= self._deaf_until:
                self._deaf_until = 0.0
                self._poll.register(listening, select.POLLIN)
            if not self._clients:
                self._made = b""
            if not self._deaf_until and any(descriptor == listening for descriptor, _ in ready):
                self._accept(now)
        for client in list(self._clients.values()):
            self._drop(client)

    def _wait(self) -> float | None:
        """Return how long nothing has to be done but for who asks (milliseconds); None: for ever."""
        # clients have the same time each, so the first to come is the first whose time is over
        ends = [client.end for client in list(self._clients.values())[:1]]
        ends += [self._deaf_until] if self._deaf_until else []
        return max(0.0, min(ends) - time.monotonic()) * 1000 + 1 if ends else None

    def _accept(self, now: float) -> None:
        for _ in range(AT_ONCE):
            try:
                asking, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # shut down; or a passing lack of descriptors
                self._deaf_until = now + PAUSE
                self._poll.unregister(self._listener.fileno())
                return
            if len(self._clients) >= MOST:
                idle = (client for client in self._clients.values() if client.answer is None)
                self._drop(next(idle, next(iter(self._clients.values()))))
            asking.setblocking(False)
            client = self._clients[asking.fileno()] = Client(asking, now + PATIENCE)
            self._poll.register(asking.fileno(), select.POLLIN)
            self._go_on(client)  # a scrape has sent its request by now, mostly

    def _drop(self, client: Client) -> None:
        self._poll.unregister(client.socket.fileno())
        del self._clients[client.socket.fileno()]
        client.socket.close()

    def _go_on(self, client: Client) -> None:
        """Reads and writes what can be without waiting; a client that is done, or has gone, is let go."""
        try:
            if client.answer is None:
                self._read(client)
            while client.answer:
                client.answer[0] = client.answer[0][client.socket.send(client.answer[0]) :]
                if not client.answer[0]:
                    del client.answer[0]
        except BlockingIOError:
            if client.answer is not None:
                self._poll.modify(client.socket.fileno(), select.POLLOUT)
            return
        except OSError:
            self._drop(client)
            return
        if client.answer is not None:
            self._drop(client)

    def _read(self, client: Client) -> None:
        """Raises BlockingIOError while the request is not whole."""
        while b"\r\n\r\n" not in client.request and b"\n\n" not in client.request and len(client.request) < LONGEST:
            part = client.socket.recv(4096)
            if not part:
                break
            client.request += part
        client.answer = [memoryview(part) for part in self._answer(client.request) if part]

    def _body(self) -> bytes:
        """The text of now, or of a moment ago."""
        now = time.monotonic()
        if not self._made or now - self._made_at >= FRESH:
            self._made, self._made_at = self._text().encode(), now
        return self._made

    def _answer(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body of the answer to a request."""
        method, _, rest = request.split(b"\n", 1)[0].decode("latin-1").strip().partition(" ")
        path = rest.split(" ")[0].split("?")[0]
        status, body = "200 OK", b""
        if method not in ("GET", "HEAD"):
            status = "405 Method Not Allowed"
        elif path != "/metrics":
            status, body = "404 Not Found", b"The metrics are at /metrics.\n"
        else:
            body = self._body()
        kind = TYPE if status == "200 OK" else "text/plain"
        head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode("ascii"), b"" if method == "HEAD" else body


def _listening(address: str) -> tuple[socket.socket, SocketFile | None]:
    """A socket that listens at "ADDRESS:PORT", "[ADDRESS]:PORT", or a Unix socket's path, and its file. Raises OSError, HostRefused."""
    family = socket.AF_UNIX if address.startswith("/") else socket.AF_INET6 if address.startswith("[") else socket.AF_INET
    made, file = socket.socket(family, socket.SOCK_STREAM), None
    try:
        if family == socket.AF_UNIX:
            file = SocketFile(made, address)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            host, _, port = address.rpartition(":")
            made.bind((host.strip("[]"), int(port)))
        made.listen(BACKLOG)
        made.setblocking(False)
    except (HostRefused, OSError):
        if file is not None:
            file.remove()
        made.close()
        raise
    return made, file
