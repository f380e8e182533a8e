"""Frames sent as they are, through a packet socket (packet(7))."""

from __future__ import annotations

import errno
import os
from _socket import SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_RAW, if_indextoname, socket

from netcommon.host.api.host import DONE, Answer
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.requests import SendFrame

AF_PACKET = 17
NOTHING_IN = 0  #: the protocol that a socket must have to receive nothing


class Packet:
    """One socket, opened at the first frame; it never waits: a frame for which the device has no room is refused."""

    def __init__(self) -> None:
        self._socket: socket | None = None

    @property
    def descriptor(self) -> int:
        """-1 while none is open."""
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()

    def execute(self, request: SendFrame) -> Answer:
        """Sends one frame."""
        name = f"device {request.index}"
        try:
            name = if_indextoname(request.index)
            if self._socket is None:
                self._socket = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NOTHING_IN)
            self._socket.sendto(request.frame, (name, NOTHING_IN))
        except (OSError, OverflowError) as problem:
            number = problem.errno if isinstance(problem, OSError) and problem.errno else errno.ENODEV
            number = errno.ENODEV if number == errno.ENXIO else number  # as if_indextoname(3) says it
            return Answer(number, f"{name}: {os.strerror(number)}")
        return DONE
