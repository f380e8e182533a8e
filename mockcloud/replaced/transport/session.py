"""Speak for many nodes with a registry in one thread: what each asks, question by question, and the lines that it is told."""

from __future__ import annotations

import http.client
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from netagent.sync.messages import Ended, Failed, Failure, Line
from netagent.sync.session import answering, failure_of
from netregistry.client import LONGEST_LINE, SILENT, Answer, Moment, Problem, Question, decoded
from netregistry.request import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from random import Random

    from mockcloud.replaced.scheduler import NodeLoop
    from netagent.loop import Timer
    from netagent.sync.messages import Answered, Asking, Event
    from netregistry.reach import Places

    Tell = Callable[[Event], None]
    Crowded = Callable[[], bool]
    At = Callable[[str], None]
    Then = Callable[[Answer | Exception], None]


DEAF = ("both", "requests")  #: ways that are cut so that the registry hears nothing
MUTE = ("both", "answers")  #: and so that nothing is heard of it


class Asks(Protocol):
    """Asks for one node, one question after the other."""

    def ask(self, question: Question, then: Then) -> None:
        """Ask; ``then`` is given what comes of it, later."""
        ...

    def close(self) -> None:
        """Ask no more."""
        ...


class Way(Protocol):
    """A way from nodes to their registry. ``cut``: nodes whose way is cut: "both"; "answers" or "requests" alone."""

    cut: dict[str, str]
    chance: Random

    def asker(self, loop: NodeLoop, node: str, where: str | Places) -> Asks:
        """Give what asks for the node of a loop. ``where``: its agent takes the registry to be."""
        ...

    def stream(
        self, loop: NodeLoop, node: str, where: str | Places, question: Question, tell: Tell, crowded: Crowded, reached: At
    ) -> Stream:
        """Begin a stream to a node."""
        ...


class Session:
    """Speak for a node with its registry, in the one thread of all nodes: a netagent.sync.driver.Speaks.

    ``reached`` is told when a request is about to leave ("ask"), when an answer has come ("answer"), and when a line has ("line").
    """

    def __init__(
        self,
        way: Way,
        loop: NodeLoop,
        reached: At,
        where: str | Places,
        node: str,
        incarnation: str,
        tell: Callable[[Event, int], None],
        crowded: Callable[[], bool],
    ) -> None:
        self._where, self._node, self._incarnation, self._tell, self._crowded = where, node, incarnation, tell, crowded
        self._way, self._loop, self._reached = way, loop, reached
        self._moment = Moment(loop.wall)
        self._asker = way.asker(loop, node, where)
        self._stream: Stream | None = None
        self._waiting: deque[Asking] = deque()  # the first of them is being asked
        self.stream = 0

    @property
    def moment(self) -> float:
        return self._moment()

    def ask(self, request: Asking) -> None:
        self._reached("ask")
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._begin()

    def _begin(self) -> None:
        steps = answering(self._node, self._incarnation, self._waiting[0])
        self._step(steps, lambda: next(steps))

    def _step(self, steps: Generator[Question, Answer, Answered], on: Callable[[], Question]) -> None:
        """Go on with what is being asked: the next question, or what has come of it."""
        try:
            question = on()
            if question.method != "GET" and not question.key:
                question = question._replace(key=new_id(self.moment, self._way.chance.getrandbits(74)))
        except StopIteration as done:
            self._answered(done.value)
        except Exception as error:  # as the session by threads
            if isinstance(error, Problem):
                self._moment.learn(error)
            self._answered(Failed(failure_of(error)))
        else:
            self._asker.ask(question, lambda answer: self._step(steps, partial(_sent, steps, answer)))

    def _answered(self, event: Event) -> None:
        self._waiting.popleft()
        self._reached("answer")
        self._tell(event, 0)
        if self._waiting:
            self._begin()

    def watch(self, start: str, underlay: bool = False) -> None:
        self.end()
        self.stream += 1
        number, tell = self.stream, self._tell
        question = Question.stream(self._node, start, self._incarnation, underlay)
        given = question, lambda event: tell(event, number), self._crowded, self._reached
        self._stream = self._way.stream(self._loop, self._node, self._where, *given)

    def end(self) -> None:
        if self._stream is not None:
            self._stream.end()
            self._stream = None
            self.stream += 1

    def close(self, seconds: float) -> None:
        self.end()
        self._asker.close()


def _sent(steps: Generator[Question, Answer, Answered], answer: Answer | Exception) -> Question:
    return steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)


class Stream:
    """One stream of lines to a node. It is over when it is silent for too long."""

    def __init__(self, loop: NodeLoop, tell: Tell, crowded: Crowded, reached: At) -> None:
        self._loop, self._tell, self._crowded, self._reached = loop, tell, crowded, reached
        self._over = False
        self._rest = b""
        self._last = 0.0  # when a line has come
        self._silent: Timer | None = None

    def end(self) -> None:
        """Let nothing more be told."""
        self._over = True
        if self._silent is not None:
            self._silent.cancel()

    def _ended(self, failure: Failure) -> None:
        if not self._over:
            self.end()
            self._tell(Ended(failure))

    def _heard(self) -> None:
        self._last = self._loop.now()
        if self._silent is None:
            self._silent = self._loop.at(self._last + SILENT, self._look)

    def _look(self) -> None:
        self._silent = None
        if self._over:
            return
        if self._loop.now() >= self._last + SILENT:
            self._is_silent()
        else:
            self._silent = self._loop.at(self._last + SILENT, self._look)

    def _is_silent(self) -> None:
        self._ended(Failure("", "the registry's stream was cut off: timed out"))

    def _read(self, data: bytes) -> None:
        """Take the next bytes. Raises Garbled, http.client.LineTooLong."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._heard()
        for line in lines:
            if not self._over:
                self._reached("line")
                self._tell(Line(decoded(line), len(line)))
        if len(self._rest) > LONGEST_LINE:
            raise http.client.LineTooLong("answer")
