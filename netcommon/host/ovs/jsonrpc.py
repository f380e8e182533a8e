"""A client of OVSDB's protocol (RFC 7047) on a Unix socket: one connection, one call at a time, each with a time limit."""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms

from runtime.errors import TryAgain
from runtime.jsontext import Decoder, IncompleteError, dumps
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


Json = object
CHUNK = 1 << 18
LIMIT = 64 << 20  #: bytes of one message; the largest node's ports are a few million


class Lost(TryAgain):
    """There was no (sane) answer: whether the call was carried out is not known. ``sent`` tells if it can have been."""

    def __init__(self, why: str, sent: bool = True, late: bool = False) -> None:
        super().__init__(why)
        self.sent = sent
        self.late = late  #: the time was over, so that a new connection would not help


class JsonRpc:
    """Connects when first used, and again after a loss."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self.path = path
        self.calls = 0  #: for tests and figures
        self._clock = clock
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._decoder = Decoder()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""

    def __del__(self) -> None:
        self.close()

    def call(self, method: str, parameters: list[Json], deadline: float) -> Json:
        """The result of one call. Raises FileNotFoundError where there is no socket, Lost otherwise. ``deadline`` is of the clock."""
        self.send(method, parameters, deadline)
        while True:
            message = self.receive(deadline)
            if message.get("id") == self.calls and "method" not in message:
                if message.get("error") is not None or "result" not in message:
                    raise self._lost(f"it refuses {method}: {_shown(message.get('error'))}")
                return message["result"]

    def send(self, method: str, parameters: list[Json], deadline: float) -> None:
        """Sends a request without waiting; its id is the count of ``calls``."""
        self.calls += 1
        self._write({"method": method, "params": parameters, "id": self.calls}, deadline)

    def receive(self, deadline: float) -> dict[str, Json]:
        """The next message that is not an echo request, which is answered here. Raises Lost."""
        while True:
            message = self._message()
            while message is None:
                self._read(deadline)
                message = self._message()
            if message.get("method") != "echo":
                return message
            self._write({"result": message.get("params"), "error": None, "id": message.get("id")}, deadline)

    def _connect(self, deadline: float) -> socket.socket:
        if self._socket is None:
            left = self._left(deadline)
            try:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            except OSError as problem:  # no descriptor is left, or a security module refuses it (socket(2))
                raise Lost(f"no socket for OVSDB at {self.path}: {problem}", sent=False) from problem
            try:
                made.settimeout(left)
                made.connect(self.path)
            except FileNotFoundError:
                made.close()
                raise
            except OSError as problem:
                made.close()
                raise Lost(f"OVSDB at {self.path} does not take connections: {problem}", sent=False) from problem
            self._socket = made
        return self._socket

    def _write(self, message: dict[str, Json], deadline: float) -> None:
        connection = self._connect(deadline)
        try:
            connection.settimeout(self._left(deadline))
            connection.sendall(dumps(message).encode())
        except OSError as problem:
            raise self._lost(str(problem), late=isinstance(problem, TimeoutError)) from problem

    def _read(self, deadline: float) -> None:
        if self._socket is None:
            raise Lost(f"OVSDB at {self.path}: the connection is closed")
        try:
            self._socket.settimeout(self._left(deadline))
            data = self._socket.recv(CHUNK)
        except OSError as problem:
            late = isinstance(problem, TimeoutError)
            raise self._lost("no answer in time" if late else str(problem), late=late) from problem
        if not data:
            raise self._lost("it closed the connection")
        self._buffer += data
        if len(self._buffer) > LIMIT:
            raise self._lost("its answer is too large")

    def _message(self) -> dict[str, Json] | None:
        """Takes one whole message from the buffer. Messages follow each other without anything in between."""
        self._buffer = self._buffer.lstrip()
        # A message ends with a brace, so most of a large one's pieces need not be tried.
        if b"}" not in self._buffer[-CHUNK:]:
            return None
        try:
            text = self._buffer.decode()
        except UnicodeDecodeError as problem:
            if problem.end == len(self._buffer) and problem.end - problem.start < 4:
                return None
            raise self._lost("its answer is not UTF-8") from problem
        try:
            message, end = self._decoder.first(text)
        except IncompleteError as problem:
            if text.startswith("{"):
                return None
            raise self._lost("its answer is not JSON") from problem
        except (ValueError, RecursionError) as problem:
            raise self._lost("its answer cannot be read") from problem
        if not isinstance(message, dict):
            raise self._lost("its answer is no object")
        self._buffer = text[end:].encode()
        return message

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock()
        if left <= 0:
            raise self._lost("no answer in time", late=True)
        return left

    def _lost(self, why: str, late: bool = False) -> Lost:
        self.close()
        return Lost(f"OVSDB at {self.path}: {why}", late=late)


def _shown(error: Json) -> str:
    try:
        return dumps(error)[:200]
    except (ValueError, RecursionError, TypeError):
        return "?"


#: The part of the limit that is left for each further wait after one that was in vain; but not less than LEAST seconds of it.
AFTERWARDS = 0.05
LEAST = 0.25


class Deadline:
    """``limit`` seconds for a request; after one not answered in these, only a little for each, until that is ``limit`` seconds ago.

    An up whose port ovs-vswitchd has not taken in must undo it, and the same ovs-vswitchd is to be waited for again. What is not
    answered in the little while says nothing more: a database that takes a second for each answer is given its time again.
    """

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._until = clock() - 1

    @property
    def seconds(self) -> float:
        """Give the seconds that the next request may take."""
        return min(self._limit, max(self._limit * AFTERWARDS, LEAST)) if self._clock() < self._until else self._limit

    @property
    def spent(self) -> bool:
        """Tell whether a wait was in vain a short while ago."""
        return self._clock() < self._until

    def lost(self) -> None:
        """A wait was in vain."""
        if not self.spent:
            self._until = self._clock() + self._limit

    def forget(self) -> None:
        """A hook's call begins: whatever one before has met, this one has its time."""
        self._until = self._clock() - 1
