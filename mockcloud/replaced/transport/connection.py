"""Keep one connection with a service, of which nothing is waited for: HTTP/1.1 on its UNIX socket (RFC 9112, unix(7))."""

from __future__ import annotations

import select
import socket
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mockcloud.replaced.transport.session import DEAF, MUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mockcloud.replaced.scheduler import NodeLoop, RealTime
    from netregistry.client import Question

HELD = 0.1  #: seconds until a connection is looked at again on which nothing goes now
PIECE = 1 << 18  #: bytes that are taken at once


class Reaches(Protocol):
    """The way that connections take: mockcloud.replaced.transport.sockets.Sockets."""

    scheduler: RealTime
    path: str
    cut: dict[str, str]
    asked: int


class Connection:
    """One connection of a node's. ``read`` is given what comes, b"" at the end; ``failed`` an error instead. ``held``: not now."""

    def __init__(
        self,
        way: Reaches,
        loop: NodeLoop,
        node: str,
        read: Callable[[bytes], None],
        failed: Callable[[Exception], None],
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._way, self._loop, self._node, self._read, self._failed, self._held = way, loop, node, read, failed, held
        self._socket: socket.socket | None = None
        self._out = b""
        self._connected = False

    def ask(self, question: Question) -> None:
        """Send a question, on a connection that is kept, or another one."""
        self._way.asked += 1
        data = question.data or b""
        headers = {"Host": "localhost", **question.headers(f"node:{self._node}"), "Content-Length": str(len(data))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._out += f"{question.method} {question.target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + data
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._go_on(self._socket)

    def _go_on(self, made: socket.socket) -> None:
        """Connect, and send what waits, as far as it goes now."""
        if made is not self._socket:
            return  # it was closed meanwhile
        if self._way.cut.get(self._node) in DEAF:
            self._loop.after(HELD, partial(self._go_on, made))
            return
        try:
            if not self._connected:
                made.connect(self._way.path)  # of a UNIX socket it is done at once, or not at all (unix(7))
                self._connected = True
            while self._out:
                self._out = self._out[made.send(self._out) :]
        except BlockingIOError:
            if not self._connected:  # those that wait to be let in are too many
                self._loop.after(HELD, partial(self._go_on, made))
                return
        except OSError as error:
            self.close()
            self._failed(error)
            return
        self._way.scheduler.attend(made.fileno(), self._ready, select.EPOLLIN | (select.EPOLLOUT if self._out else 0))

    def _ready(self, events: int) -> None:
        made = self._socket
        if made is None:
            return
        if self._way.cut.get(self._node) in MUTE or self._held():
            self._way.scheduler.neglect(made.fileno())
            self._loop.after(HELD, partial(self._go_on, made))
        elif self._out and events & select.EPOLLOUT:
            self._go_on(made)
        else:
            self.take()

    def take(self) -> None:
        """Take what has come, if anything has."""
        made = self._socket
        if made is None or not self._connected or self._way.cut.get(self._node) in MUTE:
            return
        try:
            data = made.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            self._failed(error)
            return
        try:
            self._read(data)
        except Exception as error:  # whatever came is nothing that is understood
            self.close()
            self._failed(error)

    def close(self) -> None:
        """Close it; the next question opens another one."""
        made, self._socket, self._out, self._connected = self._socket, None, b"", False
        if made is not None:
            self._way.scheduler.neglect(made.fileno())
            made.close()
