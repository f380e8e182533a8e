"""Keep one connection with a service, of which nothing is waited for: HTTP/1.1 (RFC 9112) over a UNIX socket, or by TLS."""

from __future__ import annotations

import select
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mockcloud.replaced.transport.link import link_to
from mockcloud.replaced.transport.session import DEAF, MUTE
from netregistry.reach import CONNECTING
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mockcloud.replaced.scheduler import NodeLoop, RealTime
    from mockcloud.replaced.transport.link import Link
    from netregistry.client import Question
    from netregistry.reach import Place, Places

HELD = 0.1  #: seconds until a connection is looked at again on which nothing goes now
PIECE = 1 << 18  #: bytes that are taken at once


class Reaches(Protocol):
    """The way that connections take: mockcloud.replaced.transport.sockets.Sockets."""

    scheduler: RealTime
    cut: dict[str, str]
    asked: int


class Connection:
    """One connection of a node's, with the first of ``places``. ``read`` is given what comes, b"" at the end; ``failed`` an error instead.
    ``held``: not now.
    """

    def __init__(
        self,
        way: Reaches,
        loop: NodeLoop,
        node: str,
        places: Places,
        read: Callable[[bytes], None],
        failed: Callable[[Exception], None],
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._way, self._loop, self._node, self._read, self._failed, self._held = way, loop, node, read, failed, held
        self._places = places
        self.place: Place = places.first  #: the one that it is with, or was last
        self._link: Link | None = None
        self._out = b""

    def ask(self, question: Question) -> None:
        """Send a question, on a connection that is kept, or another one."""
        self._way.asked += 1
        if self._link is None:
            self.place = self._places.first
            try:
                self._link = link_to(self.place)
            except (NetcommonError, OSError) as error:
                self._fail(error)
                return
            self._loop.after(CONNECTING, partial(self._late, self._link))
        data = question.data or b""
        role = f"node:{self._node}" if self.place.says_role else ""  # elsewhere the certificate says it
        headers = {"Host": "localhost", **question.headers(role), "Content-Length": str(len(data))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._out += f"{question.method} {question.target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + data
        self._go_on(self._link)

    def _fail(self, error: Exception) -> None:
        self.close()
        self._failed(error)

    def _late(self, made: Link) -> None:
        """Go on to the next address where one has not taken the connection in time, as netregistry.reach does."""
        if made is not self._link or not made.connecting:
            return
        self._way.scheduler.neglect(made.fileno())
        try:
            made.give_up()
        except OSError as error:
            self._fail(error)
            return
        self._loop.after(CONNECTING, partial(self._late, made))
        self._go_on(made)

    def _go_on(self, made: Link) -> None:
        """Connect, and send what waits, as far as it goes now."""
        if made is not self._link:
            return  # it was closed meanwhile
        if self._way.cut.get(self._node) in DEAF:
            self._loop.after(HELD, partial(self._go_on, made))
            return
        waits = 0
        try:
            if not made.begun:
                self._way.scheduler.neglect(made.fileno())  # it may go on with another descriptor
                waits = made.begin()
            while self._out and not waits:
                self._out = self._out[made.send(self._out) :]
        except BlockingIOError:
            if not made.begun:  # those that wait to be let in are too many
                self._loop.after(HELD, partial(self._go_on, made))
                return
        except OSError as error:
            self._fail(error)
            return
        self._way.scheduler.attend(made.fileno(), self._ready, waits or select.EPOLLIN | (select.EPOLLOUT if self._out else 0))

    def _ready(self, events: int) -> None:
        made = self._link
        if made is None:
            return
        if self._way.cut.get(self._node) in MUTE or self._held():
            self._way.scheduler.neglect(made.fileno())
            self._loop.after(HELD, partial(self._go_on, made))
            return
        if not made.begun or (self._out and events & select.EPOLLOUT):
            self._go_on(made)
        else:
            self.take()

    def take(self) -> None:
        """Take what has come, if anything has."""
        made = self._link
        if made is None or not made.begun or self._way.cut.get(self._node) in MUTE:
            return
        try:
            data = made.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        try:
            self._read(data)
        except Exception as error:  # whatever came is nothing that is understood
            self._fail(error)

    def close(self) -> None:
        """Close it; the next question opens another one."""
        made, self._link, self._out = self._link, None, b""
        if made is not None:
            self._way.scheduler.neglect(made.fileno())
            made.close()
