"""Hand a bundle of flows to ovs-vswitchd on its own socket (OpenFlow 1.4, 7.3.9): flows that netcommon.host.ovs.openflow_codec knows."""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms
from struct import Struct

from netcommon.host.api.requests import DeleteFlows
from netcommon.host.ovs import openflow_codec
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netcommon.host.api.requests import PutFlows

VERSION = 5  #: OpenFlow 1.4
HELLO, ERROR, FLOW_MOD, BUNDLE_CONTROL, BUNDLE_ADD = 0, 1, 14, 33, 34
OPEN, COMMIT, COMMITTED = 0, 4, 5
ATOMIC_AND_ORDERED = 3
BUNDLE = 1  #: its number, which is the connection's own
ADD, DELETE = 0, 3
EVERY_TABLE, ANY = 0xFF, 0xFFFFFFFF
EXACTLY = (1 << 64) - 1

HEADER = Struct("!BBHI")  #: version, type, length, number
CONTROL = Struct("!IHH")  #: bundle, type, flags
ADDED = Struct("!I2xH")  #: bundle, flags
#: cookie, its mask, table, command, idle and hard time-out, priority, buffer, port, group, flags, importance
MODIFY = Struct("!QQBBHHHIIIHH")

CHUNK = 1 << 16


def changes(requests: Sequence[PutFlows | DeleteFlows], ports: Mapping[str, int]) -> list[bytes]:
    """The bodies of the changes in the order they are to be made. Raises StrangeError; KeyError for a port whose number is not known."""
    found: list[bytes] = []
    for request in requests:
        found.append(_modify(request.cookie, EXACTLY, EVERY_TABLE, DELETE, 0) + openflow_codec.match(b""))
        if isinstance(request, DeleteFlows):
            continue
        port = ports[request.port]
        for flow in request.flows:
            priority, rest = openflow_codec.encode(flow, port)
            found.append(_modify(request.cookie, 0, 0, ADD, priority) + rest)
    return found


def _modify(cookie: int, mask: int, table: int, command: int, priority: int) -> bytes:
    return MODIFY.pack(cookie, mask, table, command, 0, 0, priority, ANY, ANY, ANY, 0, 0)


def bundle(path: str, bodies: Sequence[bytes], seconds: float, clock: Callable[[], float]) -> bool:
    """Whether the switch at ``path`` has made all these changes at one moment; False: it has refused, and nothing has changed.

    Raises TimeoutError, and OSError where the connection is not made or lost.
    """
    end = clock() + seconds
    messages = [message(HELLO, 1), _control(OPEN, 2)]
    for place, body in enumerate(bodies):
        number = place + 3
        inner = message(FLOW_MOD, number, body)
        messages.append(message(BUNDLE_ADD, number, ADDED.pack(BUNDLE, ATOMIC_AND_ORDERED) + inner))
    messages.append(_control(COMMIT, len(bodies) + 3))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.sendall(b"".join(messages))
        return _committed(connection, end, clock)
    finally:
        connection.close()


def listens(path: str) -> bool:
    """Tell whether somebody takes connections at ``path``, or would but for those that wait already."""
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    except OSError:
        return False  # nobody can be asked just now
    try:
        connection.setblocking(False)
        connection.connect(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.close()
    return True


def message(kind: int, number: int, body: bytes = b"") -> bytes:
    """Make an OpenFlow message of this type; ``number`` is repeated in its answer."""
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), number) + body


def _control(kind: int, number: int) -> bytes:
    return message(BUNDLE_CONTROL, number, CONTROL.pack(BUNDLE, kind, ATOMIC_AND_ORDERED))


def _committed(connection: socket.socket, end: float, clock: Callable[[], float]) -> bool:
    """Reads until the answer to the commit, or the first error. What else a switch tells is for those who asked."""
    read = b""
    while True:
        while len(read) >= HEADER.size:
            version, kind, length, _ = HEADER.unpack_from(read)
            if length < HEADER.size:
                raise ConnectionError("a message shorter than its head")
            if len(read) < length:
                break
            body, read = read[HEADER.size : length], read[length:]
            if kind == ERROR or (kind != HELLO and version != VERSION):
                return False
            if kind == BUNDLE_CONTROL and len(body) >= CONTROL.size and CONTROL.unpack_from(body)[1] == COMMITTED:
                return True
        left = end - clock()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        got = connection.recv(CHUNK)
        if not got:
            raise ConnectionError("it closed the connection")
        read += got
