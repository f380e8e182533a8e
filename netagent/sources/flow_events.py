"""Say what a bridge of Open vSwitch tells of its flows (OpenFlow 1.4, 7.3.5.19): flows of ours that go, or that others change or replace.

ovs-vswitchd keeps no list for it: each change of a flow is held against the monitors there are, and a frame costs nothing. Of what it
tells only the head of each flow is read here, since a controller may change thousands that are nothing to us.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from struct import Struct, error

from netagent.events import FLOWS, NAME, SWITCH, Changed, Event, Gone
from netagent.sources.ovs_events import SILENCE
from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK
from netcommon.host.ovs.openflow_bundle import ANY, ERROR, EVERY_TABLE, HEADER, HELLO, message
from netcommon.host.ovs.openflow_codec import MATCH, match

ECHO_REQUEST, ECHO_REPLY, MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 2, 3, 18, 19, 20, 21
FLOW_MONITOR = 16  #: type of a multipart message
MULTIPART = Struct("!HH4x")  #: type, flags
WANTED = Struct("!IIIHBB")  #: number, port and group of outputs, flags, table, command
EVENT = Struct("!HH")  #: length, event
UPDATE = Struct("!HHBBHHH4xQ")  #: length, event, table, reason, idle and hard time-out, priority, cookie
ADDED, REMOVED, MODIFIED, PAUSED, RESUMED = 1, 2, 3, 5, 6
TOLD = 2 | 4 | 8  #: what is added, removed and modified
HEAD = Struct("!HBB")  #: class, field and whether there is a mask, length
IN_PORT = (0x8000, 0)

CHUNK = 1 << 18  #: bytes that are read at a time: other descriptors are looked at in between


class FlowEvents:
    """A flow monitor of ``bridge``, on its own socket at ``path``. ``open`` begins it, again after it was lost.

    ``names``: the devices that may have this OpenFlow number.
    """

    def __init__(self, path: str, bridge: str, names: Callable[[int], Iterable[str]], clock: Callable[[], float]) -> None:
        self._path, self._bridge, self._names, self._clock = path, bridge, names, clock
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._removed = set[bool]()  #: of what was removed at a time: whether it was ours
        self.late = False  #: it has answered after it was silent for a while
        self._asked = 0.0  #: since when an echo is waited for, 0: none is
        self.subscribed = False  #: it tells, or says that it cannot: what happens from now on is not missed

    @property
    def connected(self) -> bool:
        return self._socket is not None

    @property
    def waits(self) -> bool:
        """Tell whether it was asked for a sign of life, and has not answered."""
        return bool(self._asked)

    @property
    def descriptor(self) -> int:
        """Give that of the connection; -1 where there is none."""
        return self._socket.fileno() if self._socket is not None else -1

    def open(self) -> bool:
        """Connects and subscribes, if that is not so already; whether there is a connection now."""
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            wanted = MULTIPART.pack(FLOW_MONITOR, 0) + WANTED.pack(1, ANY, ANY, TOLD, EVERY_TABLE, 0) + match(b"")
            try:
                made.connect(self._path)
                made.send(message(HELLO, 1) + message(MULTIPART_REQUEST, 2, wanted) + message(BARRIER_REQUEST, 3))
                self._socket = made
            except OSError:
                made.close()
        return self.connected

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer, self.subscribed, self._asked = None, b"", False, 0.0

    def ask(self) -> None:
        """Asks for a sign of life; ``late`` says if that took long."""
        if self._socket is not None and not self._asked:
            try:
                self._socket.send(message(ECHO_REQUEST, 4))
                self._asked = self._clock()
            except OSError:
                pass  # what is lost, ``read`` tells

    def read(self) -> list[Event]:
        """Give what has happened since it was last read, each once; when the connection is lost, ``connected`` says so."""
        found: dict[Event, None] = {}
        self._removed.clear()
        try:
            data = self._socket.recv(CHUNK) if self._socket is not None else b""
            if not data:
                raise ConnectionError
            self._buffer += data
            for kind, number, body in self._messages():
                found.update(dict.fromkeys(self._take(kind, number, body)))
        except BlockingIOError:
            pass
        except (OSError, error):
            self.close()
            found[Gone(((SWITCH, self._bridge),))] = None
        if len(self._removed) == 2:  # whoever removes ours with others' means none of them: the bridge was swept
            found[Gone(((SWITCH, self._bridge),))] = None
        return list(found)

    def _messages(self) -> Iterator[tuple[int, int, bytes]]:
        """The whole messages of the buffer. Raises ConnectionError."""
        at = 0
        while at + HEADER.size <= len(self._buffer):
            _version, kind, length, number = HEADER.unpack_from(self._buffer, at)
            if length < HEADER.size:
                raise ConnectionError
            if at + length > len(self._buffer):
                break
            yield kind, number, self._buffer[at + HEADER.size : at + length]
            at += length
        self._buffer = self._buffer[at:]

    def _take(self, kind: int, number: int, body: bytes) -> Iterator[Event]:
        if kind == ECHO_REQUEST and self._socket is not None:
            self._socket.send(message(ECHO_REPLY, number, body))
        elif kind == ECHO_REPLY:
            self.late, self._asked = self.late or self._clock() - self._asked > SILENCE, 0.0
        elif kind in (BARRIER_REPLY, ERROR):
            self.subscribed = True  # an Open vSwitch before 2.16 refuses; that it ends is seen all the same
        elif kind == MULTIPART_REPLY and MULTIPART.unpack_from(body)[0] == FLOW_MONITOR:
            yield from self._updates(body)

    def _updates(self, body: bytes) -> Iterator[Event]:
        at = MULTIPART.size
        while at < len(body):
            length, event = EVENT.unpack_from(body, at)
            if length < EVENT.size:
                raise ConnectionError
            if event in (PAUSED, RESUMED):  # it had more to tell than we have read
                yield Gone(((SWITCH, self._bridge),))
            elif event in (ADDED, REMOVED, MODIFIED):
                yield from self._update(event, UPDATE.unpack_from(body, at)[-1], body[at + UPDATE.size : at + length])
            at += length

    def _update(self, event: int, cookie: int, rest: bytes) -> Iterator[Event]:
        if event == REMOVED:
            self._removed.add(ours(cookie))
        yield from of_flow(event, self._bridge, cookie, lambda: _in_port(rest), self._names)


def ours(cookie: int) -> bool:
    """Tell whether a flow with this cookie is ours."""
    return cookie & FLOW_MARK_MASK == FLOW_MARK


def of_flow(event: int, bridge: str, cookie: int, port: Callable[[], int], names: Callable[[int], Iterable[str]]) -> Iterator[Event]:
    """Tell that a flow of ours was removed or modified; or that one of somebody else's came that may have taken the place of ours."""
    if ours(cookie):
        if event != ADDED:
            marks = ((FLOWS, (bridge, cookie)),)
            yield Gone(marks) if event == REMOVED else Changed(marks)
    elif event != REMOVED:
        number = port()
        for name in names(number) if number else ():
            yield Changed(((NAME, name),))


def _in_port(rest: bytes) -> int:
    """The port that a match is about, 0 for none."""
    _kind, length = MATCH.unpack_from(rest)
    at = MATCH.size
    while at + HEAD.size <= length:
        kind, field, size = HEAD.unpack_from(rest, at)
        at += HEAD.size
        if (kind, field) == IN_PORT:
            return int.from_bytes(rest[at : at + size], "big")
        at += size
    return 0
