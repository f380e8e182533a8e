"""Let nodes speak with a registry's service that is a process of its own, over its UNIX socket and by the clock of this machine."""

from __future__ import annotations

import errno
import http.client
from random import Random
from typing import TYPE_CHECKING

from mockcloud.replaced.transport.connection import Connection
from mockcloud.replaced.transport.received import Received
from mockcloud.replaced.transport.session import Stream
from netagent.sync.messages import Failure
from netagent.sync.session import SECONDS, failure_of
from netregistry.client import LONGEST_ANSWER, Answer, Garbled, Question, Reply, attempts, problem
from netregistry.reach import Places, UnixPlace, words
from runtime.errors import TryAgain

if TYPE_CHECKING:
    from collections.abc import Generator

    from mockcloud.replaced.scheduler import NodeLoop, RealTime
    from mockcloud.replaced.transport.session import At, Crowded, Tell, Then
    from netagent.loop import Timer


class Sockets:
    """The way to a registry's service that is a process of its own, over its UNIX socket: HTTP, and no thread for it.

    ``cut``: as with Wire. What is on its way when it is cut comes when it is no more, or never, as it was ended meanwhile.
    """

    def __init__(self, scheduler: RealTime, path: str) -> None:
        self.scheduler, self.path = scheduler, path
        self.place = UnixPlace(path)
        self.cut: dict[str, str] = {}
        self.dead: set[str] = set()  #: nodes that have lost their power
        self.asked = 0  #: requests that were sent
        self.chance = Random(scheduler.chance.random())

    def forget(self, node: str) -> None:
        """Let nothing be wrong with a node that is there no more."""
        self.cut.pop(node, None)
        self.dead.discard(node)

    def asker(self, loop: NodeLoop, node: str) -> _HttpAsker:
        """Give what asks for a node."""
        return _HttpAsker(self, loop, node)

    def stream(self, loop: NodeLoop, node: str, question: Question, tell: Tell, crowded: Crowded, reached: At) -> Stream:
        """Begin a stream to a node."""
        return _HttpStream(self, loop, node, question, tell, crowded, reached)


class _HttpAsker:
    """Ask for one node, one question after the other, on a connection that is kept: netregistry.client.Client without its waiting."""

    def __init__(self, way: Sockets, loop: NodeLoop, node: str) -> None:
        self._way, self._loop = way, loop
        self._connection = Connection(way, loop, node, self._read, self._failed)
        self._asking: _Asking | None = None

    def ask(self, question: Question, then: Then) -> None:
        """Ask; ``then`` is given what comes of it."""
        steps = attempts(Places([self._way.place]))
        next(steps)
        self._asking = _Asking(question, steps, then)
        self._send(self._asking)

    def _send(self, asking: _Asking) -> None:
        asking.received, asking.data = Received(), b""
        asking.timer = self._loop.after(SECONDS, lambda: self._failed(TimeoutError(errno.ETIMEDOUT, "timed out")))
        self._connection.ask(asking.question)

    def _read(self, data: bytes) -> None:
        asking = self._asking
        if not data or asking is None:
            self._connection.close()
            if asking is not None:
                self._failed(http.client.RemoteDisconnected("it has ended the connection without an answer"))
            return
        asking.data += asking.received.feed(data)
        if len(asking.data) > LONGEST_ANSWER:
            raise Garbled(f"the registry's answer has more than {LONGEST_ANSWER} bytes")
        if asking.received.whole:
            said = asking.received
            if said.status == 503:
                self._connection.close()
            self._reply(asking, Reply(self._way.place, said.status, said.headers.get("etag", "").strip('"'), asking.data))

    def _failed(self, error: Exception) -> None:
        asking = self._asking
        self._connection.close()
        if asking is None:
            return
        if isinstance(error, (OSError, http.client.HTTPException)):
            self._reply(asking, Reply(self._way.place, error=error))
        else:
            self._over(asking, error)

    def _reply(self, asking: _Asking, reply: Reply) -> None:
        asking.timer.cancel()
        try:
            asking.steps.send(reply)
        except StopIteration as done:
            self._over(asking, done.value)
        except Exception as error:
            self._over(asking, error)
        else:
            self._send(asking)

    def _over(self, asking: _Asking, answer: Answer | Exception) -> None:
        asking.timer.cancel()
        self._asking = None
        asking.then(answer)

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.timer.cancel()
            self._asking = None
        self._connection.close()


class _Asking:
    """Hold what is being asked, and what has come of the answer."""

    received: Received
    timer: Timer

    def __init__(self, question: Question, steps: Generator[None, Reply, Answer], then: Then) -> None:
        self.question, self.steps, self.then = question, steps, then
        self.data = b""


class _HttpStream(Stream):
    """A stream of a service elsewhere, on a connection of its own."""

    def __init__(self, way: Sockets, loop: NodeLoop, node: str, question: Question, tell: Tell, crowded: Crowded, reached: At) -> None:
        super().__init__(loop, tell, crowded, reached)
        self._received, self._refusal = Received(), b""
        self._place = way.place
        self._connection = Connection(way, loop, node, self._take, self._failed, crowded)
        self._heard()
        self._connection.ask(question)

    def end(self) -> None:
        super().end()
        self._connection.close()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, (OSError, http.client.HTTPException)):
            error = (
                self._place.wrong(error) if not self._received.status else TryAgain(f"the registry's stream was cut off: {words(error)}")
            )
        self._ended(failure_of(error))

    def _take(self, data: bytes) -> None:
        received = self._received
        if not data:
            raise http.client.IncompleteRead(b"")
        found = received.feed(data)
        if received.status == 200:
            self._read(found)
            if received.whole:
                self._ended(Failure("", "the registry has ended the stream"))
        elif received.status:
            self._refusal += found
            if received.whole:
                raise problem(received.status, self._refusal)

    def _is_silent(self) -> None:
        before = self._last
        self._connection.take()  # this process may have been busy
        if self._last == before:
            super()._is_silent()
        elif not self._over:
            self._look()
