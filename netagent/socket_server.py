"""A thread of its own that answers whoever connects to a socket, one after the other."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Callable

#: struct ucred, unix(7): pid, uid, gid.
CREDENTIALS = struct.Struct("iII")

#: After an accept(2) that failed, such as for want of descriptors, it is tried again so much later (seconds).
PAUSE = 0.1


class Accepting:
    """Answers until ``close``."""

    def __init__(self, listener: socket.socket, name: str, answer: Callable[[socket.socket], None]) -> None:
        """``listener``: a stream socket that listens; it is closed with this. ``name``: the thread's.

        ``answer`` is given each connection, which is closed after it, and limits its time itself (``socket.settimeout``): the next one
        waits. An OSError of it ends that connection alone: who asked has gone, or takes too long.

        Raises OSError where there can be no thread more.
        """
        self._listener, self._answer = listener, answer
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            listener.close()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def listener(self) -> socket.socket:
        return self._listener

    def close(self, patience: float) -> None:
        """Accepts nobody any more, and ends the thread: so long (seconds) is waited for an answer under way."""
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(patience)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                asking, _address = self._listener.accept()
            except OSError:  # shut down; or a passing lack of descriptors
                if self._closing.wait(PAUSE):
                    return
                continue
            with asking:
                try:
                    self._answer(asking)
                except OSError:
                    continue


def user_of(asking: socket.socket) -> int:
    """The user (uid) of who has connected to a Unix socket."""
    return int(CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))[1])
