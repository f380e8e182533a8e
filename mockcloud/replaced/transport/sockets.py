"""Let nodes speak with a registry's service that is a process of its own, by the clock of this machine: over its UNIX socket, or by TLS."""

from __future__ import annotations

import errno
import http.client
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from mockcloud.replaced.transport.connection import Connection
from mockcloud.replaced.transport.received import Received
from mockcloud.replaced.transport.session import Stream
from mockcloud.sysinfo import ANOTHER
from netagent.sync.messages import Failure
from netagent.sync.session import SECONDS, failure_of
from netregistry.client import LONGEST_ANSWER, Answer, Garbled, Problem, Question, Reply, attempts, problem
from netregistry.reach import Places, UnixPlace, words
from runtime.errors import HostRefused, NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import Generator

    from mockcloud.replaced.scheduler import NodeLoop, RealTime
    from mockcloud.replaced.transport.session import At, Crowded, Tell, Then
    from netagent.loop import Timer
    from netregistry.reach import Connection as Reaching


class NoPlace(NamedTuple):
    """Stand for a registry elsewhere that a node cannot reach, since it has no certificate: a netregistry.reach.Place."""

    shown: str = "nowhere"
    says_role: bool = False

    def connection(self, seconds: float) -> Reaching:
        raise self.wrong(OSError())

    def wrong(self, _error: Exception) -> NetcommonError:
        return HostRefused("this node has no certificate for its registry", ANOTHER)


class Sockets:
    """The way to a registry's service that is a process of its own: HTTP, and no thread for it. ``path``: of its UNIX socket; "": it is
    elsewhere, and each node goes by the certificate that it has got there.

    ``cut``: as with Wire. What is on its way when it is cut comes when it is no more, or never, as it was ended meanwhile.
    """

    def __init__(self, scheduler: RealTime, path: str) -> None:
        self.scheduler, self.path = scheduler, path
        self.cut: dict[str, str] = {}
        self.dead: set[str] = set()  #: nodes that have lost their power
        self.asked = 0  #: requests that were sent
        self.chance = Random(scheduler.chance.random())

    def forget(self, node: str) -> None:
        """Let nothing be wrong with a node that is there no more."""
        self.cut.pop(node, None)
        self.dead.discard(node)

    def places(self, where: str | Places) -> Places:
        """Give where a node reaches it. ``where``: its agent takes it to be: a socket is that of its own machine, and here another one."""
        if not isinstance(where, str):
            return where
        return Places([UnixPlace(self.path) if self.path else NoPlace()])

    def asker(self, loop: NodeLoop, node: str, where: str | Places) -> _HttpAsker:
        """Give what asks for a node."""
        return _HttpAsker(self, loop, node, self.places(where))

    def stream(
        self, loop: NodeLoop, node: str, where: str | Places, question: Question, tell: Tell, crowded: Crowded, reached: At
    ) -> Stream:
        """Begin a stream to a node."""
        return _HttpStream(self, loop, node, self.places(where), question, tell, crowded, reached)


class _HttpAsker:
    """Ask for one node, one question after the other, on a connection that is kept: netregistry.client.Client without its waiting."""

    def __init__(self, way: Sockets, loop: NodeLoop, node: str, places: Places) -> None:
        self._loop, self._places = loop, places
        self._connection = Connection(way, loop, node, places, self._read, self._failed)
        self._asking: _Asking | None = None

    def ask(self, question: Question, then: Then) -> None:
        """Ask; ``then`` is given what comes of it."""
        steps = attempts(self._places)
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
            self._reply(asking, Reply(self._connection.place, said.status, said.headers.get("etag", "").strip('"'), asking.data))

    def _failed(self, error: Exception) -> None:
        asking = self._asking
        self._connection.close()
        if asking is None:
            return
        if isinstance(error, (OSError, http.client.HTTPException)):
            self._reply(asking, Reply(self._connection.place, error=error))
        else:
            self._over(asking, error)

    def _reply(self, asking: _Asking, reply: Reply) -> None:
        asking.timer.cancel()
        try:
            asking.steps.send(reply)
        except StopIteration as done:
            self._over(asking, done.value)
        except Exception as error:
            if isinstance(error, Problem) and error.kind == "certificate":
                self._connection.close()  # another one shows the certificate that there is by then
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

    def __init__(
        self,
        way: Sockets,
        loop: NodeLoop,
        node: str,
        places: Places,
        question: Question,
        tell: Tell,
        crowded: Crowded,
        reached: At,
    ) -> None:
        super().__init__(loop, tell, crowded, reached)
        self._received, self._refusal = Received(), b""
        self._places = places
        self._connection = Connection(way, loop, node, places, self._take, self._failed, crowded)
        self._heard()
        self._connection.ask(question)

    def end(self) -> None:
        super().end()
        self._connection.close()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, (OSError, http.client.HTTPException)):
            if self._received.status:
                error = TryAgain(f"the registry's stream was cut off: {words(error)}")
            else:
                self._places.failed(self._connection.place)
                error = self._connection.place.wrong(error)
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
