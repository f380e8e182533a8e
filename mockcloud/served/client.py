"""Ask the process that serves a cloud."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from typing import TYPE_CHECKING, Any

from runtime.errors import NetcommonError, TryAgain, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET = "socket"  #: in the cloud's folder
SECONDS = 60.0  #: until the server has room for one more who waits; an answer takes as long as the task does, and what is asked is done
LONGEST = 64 << 20  #: bytes of one


class Refused(NetcommonError):
    """The server has refused a task; ``status`` is the exit status that the command would have ended with itself."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail", "refused, and it does not say why")))
        self.status, self.advice = int(document.get("exit", 69)), str(document.get("advice", ""))


def connection(root: str) -> socket.socket | None:
    """Connect with the server of a cloud; None where there is none. Raises TryAgain where it has no room for one more who waits."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # the kernel's own timeout: with one of Python's the socket does not block, and connecting fails at once where there is no room
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SECONDS))
        made.connect(f"{root}/{SOCKET}")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(0.0))
    except BlockingIOError:
        made.close()
        text = f"the process that serves the mock cloud in {escaped(root)} has had no room for {SECONDS:g} s for one more who waits"
        raise TryAgain(text, "the same may succeed later, when it has answered those who wait") from None
    except OSError:  # also where the path is too long for a socket: no server could listen there
        made.close()
        return None
    return made


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


def served(root: str) -> bool:
    """Tell whether a process serves the cloud of a folder. Raises TryAgain as ``connection``."""
    connected = connection(root)
    if connected is not None:
        connected.close()
    return connected is not None


def ask(connected: socket.socket, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Ask once, and wait for as long as the server lives. Raises Refused, TryAgain where it ends without an answer."""
    way = http.client.HTTPConnection("localhost")
    way.sock = connected
    try:
        way.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = way.getresponse()
        found = json.loads(answer.read(LONGEST))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TryAgain(f"the process that serves the mock cloud has not answered: {error}") from None
    finally:
        way.close()
    if answer.status >= 400:
        raise Refused(found)
    return dict(found)
