"""Reach a service by a socket of which nothing is waited for: a UNIX socket (unix(7)), or TLS over TCP (RFC 8446)."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from netregistry.reach import TlsPlace, UnixPlace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from netregistry.reach import Place


class Link(ABC):
    """One socket. ``begun``: what is sent now gets there."""

    begun = False

    @abstractmethod
    def fileno(self) -> int:
        """Give its descriptor, which may be another one after ``begin``."""

    @abstractmethod
    def begin(self) -> int:
        """Connect, as far as it goes now; give what is waited for (epoll(7)), 0 where it is done.

        Raises BlockingIOError where nothing tells when it may go on; OSError.
        """

    @property
    def connecting(self) -> bool:
        """Tell whether the other side has neither taken nor refused the connection yet."""
        return False

    def give_up(self) -> None:
        """Go on to the next address, which is another descriptor. Raises OSError where there is none."""
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    @abstractmethod
    def send(self, data: bytes) -> int:
        """Send some of it; tell how much. Raises BlockingIOError, OSError."""

    @abstractmethod
    def recv(self, most: int) -> bytes:
        """Give what has come, b"" at the end. Raises BlockingIOError, OSError."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


def link_to(place: Place) -> Link:
    """Make a link to a place. Raises HostRefused where what is to be shown there cannot be read; OSError."""
    if isinstance(place, UnixPlace):
        return UnixLink(place.path)
    if isinstance(place, TlsPlace):
        return TlsLink(place.host, place.port, place.context())
    raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))


class UnixLink(Link):
    """A UNIX socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    def fileno(self) -> int:
        return self._socket.fileno()

    def begin(self) -> int:
        if not self.begun:
            self._socket.connect(self._path)  # it is done at once, or not at all
            self.begun = True
        return 0

    def send(self, data: bytes) -> int:
        return self._socket.send(data)

    def recv(self, most: int) -> bytes:
        return self._socket.recv(most)

    def close(self) -> None:
        self._socket.close()


class TlsLink(Link):
    """TLS, at the first of a host's addresses that takes connections. Raises OSError where none does.

    The one thing that is waited for is the resolver: a name that it is slow to find holds all nodes.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._host, self._context = host, context
        self._addresses: Iterator[tuple[int, Any]] = iter(
            [(family, address) for family, _kind, _protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        )
        self._connecting = False
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLSocket | None = None
        self._next(OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)))

    def _next(self, refused: OSError) -> None:
        """Begin to connect to the next address. Raises OSError where there is none: ``refused``, or what another one has said since."""
        for family, address in self._addresses:
            self._close()
            self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = self._socket.connect_ex(address)
            if number in (0, errno.EINPROGRESS):
                self._connecting = True
                return
            refused = OSError(number, os.strerror(number))
        self._close()
        raise refused

    def fileno(self) -> int:
        made = self._tls or self._socket
        return -1 if made is None else made.fileno()

    def begin(self) -> int:
        if self.begun:
            return 0
        if self._connecting:
            if not self._connected():
                return select.EPOLLOUT
            self._connecting = False
        try:
            if self._socket is not None:
                self._tls = self._context.wrap_socket(self._socket, server_hostname=self._host, do_handshake_on_connect=False)
                self._socket = None  # its descriptor is the other's now
            self._there.do_handshake()
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        self.begun = True
        return 0

    def _connected(self) -> bool:
        """Tell whether the connection is there, of this address or the next. Raises OSError where the last one refuses it."""
        if self._socket is None:
            return True
        if self.connecting:
            return False
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number == 0:
            return True
        self._next(OSError(number, os.strerror(number)))
        return False

    @property
    def connecting(self) -> bool:
        if self._socket is None or not self._connecting:
            return False
        waiting = select.poll()
        waiting.register(self._socket, select.POLLOUT)
        return not waiting.poll(0)

    def give_up(self) -> None:
        self._next(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def send(self, data: bytes) -> int:
        try:
            return self._there.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def recv(self, most: int) -> bytes:
        try:
            found = self._there.recv(most)
            while left := self._there.pending():  # what is read already, of which no descriptor tells
                found += self._there.recv(left)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        return found

    @property
    def _there(self) -> ssl.SSLSocket:
        if self._tls is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._tls

    def close(self) -> None:
        self._close()

    def _close(self) -> None:
        for made in (self._tls, self._socket):
            if made is not None:
                made.close()
        self._tls = self._socket = None
