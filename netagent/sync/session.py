"""Speak with a registry, in threads of its own: one request at a time, and the lines of one stream."""

from __future__ import annotations

import json
import queue
import threading
from typing import TYPE_CHECKING, Any, Protocol

from netagent.sync.messages import FORGOTTEN, Answered, Ask, AskNode, Beat, Ended, Failed, Failure, Hello, Line, List
from netregistry.client import Client, Garbled, Problem, Question
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from netagent.sync.messages import Asking, Event
    from netregistry.client import Answer
    from netregistry.reach import Places

SECONDS = 20.0  #: for one answer
LARGEST = 32 << 20  #: bytes of one list
LISTS: dict[str, tuple[str, str]] = {"reports": ("reports", "node"), "nics": ("nics", "node"), "mastered": ("nics", "master")}


class Asks(Protocol):
    """Asks a registry, and waits for its answer: netregistry.client.Asker."""

    def ask(self, question: Question) -> Answer: ...


def answering(node: str, incarnation: str, request: Asking) -> Generator[Question, Answer, Answered]:
    """Say what to ask a registry, question by question, for what a node's synchronisation wants of it. Who asks sends each answer.

    Raises ValueError for a list that is too long.
    """
    place = f"nodes/{node}"
    if isinstance(request, List):
        return (yield from _listed(node, request))
    if isinstance(request, Hello):
        question = Question("GET", "")
    elif isinstance(request, AskNode):
        question = Question("GET", place)
    elif isinstance(request, Beat):
        question = Question("POST", f"{place}/heartbeat", body={"incarnation": incarnation})
    elif isinstance(request, Ask):
        target = "nics" if request.method == "POST" else f"nics/{request.uuid}"
        question = Question(request.method, target, {}, request.body, request.match, request.id)
    else:
        question = Question("POST", f"{place}/reports", body=request.body, key=request.id)
    return Answered(*(yield question))


def _listed(node: str, request: List) -> Generator[Question, Answer, Answered]:
    place, name = LISTS[request.what]
    question: Question | None = Question.listing(place, {name: f"node:{node}" if name == "master" else node})
    items: list[Any] = []
    revision, size = "", 0
    while question is not None:
        page = (yield question).body
        revision = revision or str(page["revision"])
        items += page["items"]
        size += len(json.dumps(page))
        if size > LARGEST:
            raise ValueError(f"a list has more than {LARGEST} bytes")
        question = question.next(page)
    return Answered(items, revision)


def answered(client: Asks, node: str, incarnation: str, request: Asking) -> Answered:
    """Ask a registry what a node's synchronisation wants of it. Raises what the client raises; ValueError for a list that is too long."""
    steps = answering(node, incarnation, request)
    question = next(steps)
    try:
        while True:
            question = steps.send(client.ask(question))
    except StopIteration as done:
        found: Answered = done.value
        return found


class Session:
    """Both threads. ``where``: the registry is (netregistry.client.Client).

    ``tell`` is given each event, in one of them, with the number of the stream that it is of, 0 for none; ``crowded`` tells whether who is
    told has too much to do by now.
    """

    def __init__(
        self, where: str | Places, node: str, incarnation: str, tell: Callable[[Event, int], None], crowded: Callable[[], bool]
    ) -> None:
        self._where, self._node, self._incarnation, self._tell, self._crowded = where, node, incarnation, tell, crowded
        self._client = Client(where, f"node:{node}", SECONDS)
        self._asked: queue.SimpleQueue[Asking | None] = queue.SimpleQueue()
        self._stream: _Stream | None = None
        self.stream = 0  #: the number of the stream that counts
        self._asker = threading.Thread(target=self._answer, name="registry", daemon=True)
        self._asker.start()

    @property
    def moment(self) -> float:
        """Give the time at which a request of now is made: netregistry.client.Client.moment."""
        return self._client.moment

    def ask(self, request: Asking) -> None:
        """Ask something; the answer comes as an event."""
        self._asked.put(request)

    def watch(self, start: str, underlay: bool = False) -> None:
        """Begin the stream. ``underlay``: it is to tell what the node has of that."""
        self.end()
        self.stream += 1
        number, tell = self.stream, self._tell
        question = self._node, start, self._incarnation, underlay
        self._stream = _Stream(self._where, question, lambda event: tell(event, number), self._crowded)

    def end(self) -> None:
        """End the stream, if there is one; that is no event."""
        if self._stream is not None:
            self._stream.end()
            self._stream = None
            self.stream += 1

    def close(self, seconds: float) -> None:
        """End both; what hangs is not waited for."""
        self.end()
        self._asked.put(None)
        self._asker.join(seconds)

    def _answer(self) -> None:
        while (request := self._asked.get()) is not None:
            try:
                event: Event = answered(self._client, self._node, self._incarnation, request)
            except Exception as error:  # whatever comes instead of an answer
                event = Failed(failure_of(error))
            self._tell(event, 0)
        self._client.close()


class _Stream:
    """One stream, in a thread of its own."""

    def __init__(
        self, where: str | Places, asked: tuple[str, str, str, bool], tell: Callable[[Event], None], crowded: Callable[[], bool]
    ) -> None:
        """``asked``: as netregistry.client.Client.watch is."""
        self._client = Client(where, f"node:{asked[0]}", SECONDS)
        self._lines = self._client.watch(*asked)
        self._tell, self._crowded = tell, crowded
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hear, name="registry-stream", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let nothing more be told."""
        self._over.set()

    def _hear(self) -> None:
        failure = Failure("", "the registry has ended the stream")
        try:
            for said in self._lines:
                while self._crowded() and not self._over.wait(0.05):
                    pass
                if self._over.is_set():
                    break
                self._tell(Line(said, len(json.dumps(said))))
        except Exception as error:  # whatever comes instead of lines
            failure = failure_of(error)
        finally:
            self._lines.close()
        if not self._over.is_set():
            self._tell(Ended(failure))


def failure_of(error: Exception) -> Failure:
    """Say what an error means: refused, no answer, or nothing that a registry says."""
    if isinstance(error, Problem):
        if error.kind == "certificate":  # nobody has judged what was asked for: it is sent again as it was, with one that counts
            return Failure(FORGOTTEN if error.document.get("reason") == FORGOTTEN else "", str(error))
        # a status without a kind is no refusal of ours: whoever answers there is another
        return Failure(error.kind or "fault", str(error))
    if isinstance(error, NetcommonError):
        return Failure("", str(error), lie=isinstance(error, Garbled))
    return Failure("", f"{type(error).__name__}: {error}"[:200], lie=True)
