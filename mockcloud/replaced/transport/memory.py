"""Let what is asked come to a registry in the same process, some time later.

Bodies are bytes of JSON on their way, as with HTTP, and every request takes the way of its endpoint: the same roles, filters and refusals.
Endpoints that are about the service's process, its certificates and its files (ELSEWHERE) are refused by name.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from mockcloud.replaced.transport.session import DEAF, Stream
from netagent.sync.messages import Failure
from netagent.sync.session import SECONDS, failure_of
from netregistry.client import Answer, Asker, Problem, Question
from netregistry.model.codec import Invalid
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call
from netregistry.roles import check
from netregistry.service import filters
from netregistry.service.bodies import parsed
from netregistry.service.identity import ORIGIN
from netregistry.service.routes import ROUTES, WATCH
from runtime.errors import NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mockcloud.replaced.scheduler import NodeLoop
    from mockcloud.replaced.transport.session import At, Crowded, Tell, Then
    from netregistry.reach import Places
    from netregistry.service.registry import Registry
    from netregistry.service.routes import Route
    from netregistry.service.streams import Channel

LATENCY = 0.0005, 0.005  #: seconds from one side to the other: the least and the most
#: Names of endpoints, as netregistry.service.routes has them; a stream is begun by Wire.stream.
ELSEWHERE = {"backup", "export", "compact", "metrics", "healthz", "openapi", "problem", "watch"}
ELSEWHERE |= {"certificate.join", "certificate.renew", "authority.add"}
CROWDED = 0.05  #: seconds until a hearer that has too much to do is asked again
COPY = 40.0  #: seconds until a copy of a request comes, at most: longer than an answer is waited for


class Wire:
    """The way between the nodes and their registry. ``registry``: None while its service is stopped.

    ``cut``: nodes whose way is cut: "both"; "answers" where the registry is reached, and nothing comes back; "requests" where it is not,
    and its streams are heard. ``slow``: seconds that everything takes longer, at most; ``copies``: the share of requests of which a copy
    comes late; ``dead``: nodes that have lost their power; ``lacks``: what nodes of an older version do not know of a service.
    ``loop``: does what is to be done at the registry's side, whatever becomes of the node meanwhile.
    """

    def __init__(self, chance: Random, loop: NodeLoop) -> None:
        self.registry: Registry | None = None
        self.loop = loop
        self.cut: dict[str, str] = {}
        self.slow = self.copies = 0.0
        self.lacks: dict[str, frozenset[str]] = {}
        self.dead: set[str] = set()
        self.fault: Callable[[str, Exception], None] = lambda _what, _error: None  #: is told of errors of the registry's own code
        self.asked = 0  #: requests that came to the registry
        self.chance = chance

    def forget(self, node: str) -> None:
        """Let nothing be wrong with a node that is there no more."""
        self.cut.pop(node, None)
        self.lacks.pop(node, None)
        self.dead.discard(node)

    def later(self) -> float:
        """Give how long something is on its way (seconds)."""
        return self.chance.uniform(*LATENCY) + (self.chance.uniform(0.0, self.slow) if self.slow else 0.0)

    def asker(self, loop: NodeLoop, node: str, where: str | Places) -> _Asker:
        """Give what asks for a node."""
        return _Asker(self, loop, node)

    def stream(
        self, loop: NodeLoop, node: str, where: str | Places, question: Question, tell: Tell, crowded: Crowded, reached: At
    ) -> Stream:
        """Begin a stream to a node."""
        return _Channelled(self, loop, node, question, tell, crowded, reached)

    def reach(self, node: str) -> Registry:
        """Give the registry. Raises TryAgain where nobody answers."""
        if self.registry is None or self.cut.get(node) in DEAF:
            raise TryAgain("no registry answers")
        return self.registry


class Client(Asker):
    """Ask a registry in this process as one identity: what netregistry.client.Client does by a socket."""

    def __init__(self, wire: Wire, who: Identity, wall: Callable[[], float]) -> None:
        super().__init__(wall, wire.chance.getrandbits)
        self._wire, self._who = wire, who

    def _asked(self, question: Question) -> Answer:
        registry = self._wire.reach(self._who.name)
        self._wire.asked += 1
        try:
            route, parts = found(question.method, unquote(question.target.partition("?")[0]))
            check(route.name, self._who.role)
            if route.name in ELSEWHERE:
                raise Refused("missing", f"a registry without a process of its own has no {route.name}")
            wanted = filters.given(route.query, parse_qsl(question.target.partition("?")[2], keep_blank_values=True))
            sent = parsed(question.data) if question.data is not None else {"force": True} if wanted.get("force") else None
            call = Call(question.key, route.action, "", sent, question.said, wanted.get("dry_run", False))
            said, revision = _done(registry, route, parts, wanted, call, self._who)
        except NetcommonError as error:
            raise _problem(error) from None
        except Exception as error:  # of the registry's own code
            self._wire.fault(f"{question.method} {question.target}", error)
            text = f"the service has a fault, and its log says which: {type(error).__name__}"
            raise Problem(Refused("fault", text).problem()) from None
        return Answer(json.loads(json.dumps(said)), revision)

    def close(self) -> None:
        """Close nothing: no socket is open."""


def found(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Find the endpoint of a path, and the variable parts of that. Raises Refused where there is none."""
    words = path.split("/")
    for route in ROUTES:
        pattern = route.path.split("/")
        if route.method == method and len(pattern) == len(words):
            pairs = list(zip(pattern, words, strict=True))
            if all(part[:1] == "{" or part == word for part, word in pairs):
                return route, {part[1:-1]: word for part, word in pairs if part[:1] == "{"}
    raise Refused("missing", f"there is no endpoint {path!a:.200}")


def _done(registry: Registry, route: Route, parts: dict[str, str], wanted: dict[str, Any], call: Call, who: Identity) -> tuple[Any, str]:
    """Do a request at its endpoint, as netregistry.service.http does; give body and revision. Raises Refused, Invalid; Unavailable."""
    if route.name == "heartbeat":
        return {"seconds": registry.heartbeat(who, parts["uuid"], call.body)}, ""
    if not route.action:
        shown, _age = registry.look(route.name, parts.get("uuid", ""), wanted, who)
        return shown.body, shown.revision
    target = parts.get("uuid") or parts.get("cluster") or parts.get("label", "")
    if route.action == "report":
        if target != who.name and who.role == "node":
            registry.misplace(target)
        target = ""
    elif route.action.startswith("claim."):
        target = f"{parts['kind']}/{parts['scope']}/{parts['what']}"
    response = registry.answer(call._replace(target=target), who)
    if response.status >= 400:
        raise Problem(response.body)
    return response.body, response.revision


def _problem(error: NetcommonError) -> Problem:
    """Give the problem that the service makes of an error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Invalid):
        return Problem(Refused("invalid", str(error), field=error.field, expected=error.expected).problem())
    return Problem((error if isinstance(error, Refused) else Refused("unavailable", str(error))).problem())


class _Asker:
    """Ask for one node; each question and each answer is on its way for a while."""

    def __init__(self, wire: Wire, loop: NodeLoop, node: str) -> None:
        self._wire, self._loop, self._node = wire, loop, node
        self._client = Client(wire, Identity("node", node, ORIGIN), loop.wall)
        self._asked = self._told = 0

    def ask(self, question: Question, then: Then) -> None:
        """Ask; ``then`` is given what comes of it, or that nothing has come."""
        wire = self._wire
        self._asked += 1
        none = TryAgain(f"no answer within {SECONDS:.0f} s")
        self._loop.after(SECONDS, partial(self._answer, self._asked, none, then))
        wire.loop.after(wire.later(), partial(self._arrive, self._asked, question, then))
        if wire.copies and wire.chance.random() < wire.copies:
            wire.loop.after(wire.later() + wire.chance.uniform(0.0, COPY), partial(self._copy, question))

    def _arrive(self, number: int, question: Question, then: Then) -> None:
        """Do what is asked at the registry, where it comes there."""
        if self._wire.cut.get(self._node) in DEAF:
            return
        answer = self._serve(question)
        if self._node not in self._wire.cut:
            self._loop.after(self._wire.later(), partial(self._answer, number, answer, then))

    def _copy(self, question: Question) -> None:
        """Do what a copy of a request asks for; nobody hears the answer."""
        if self._wire.cut.get(self._node) not in DEAF:
            self._serve(question)

    def _serve(self, question: Question) -> Answer | Exception:
        try:
            found = self._client.ask(question)
        except Exception as error:  # it is for the session
            return error
        lacks = self._wire.lacks.get(self._node)
        if lacks and not question.place:
            for name in ("abilities", "actions"):
                found.body[name] = [each for each in found.body[name] if each not in lacks]
        return found

    def _answer(self, number: int, answer: Answer | Exception, then: Then) -> None:
        """Tell of the answer, or that there is none; which of the two comes first counts."""
        if number > self._told:
            self._told = number
            then(answer)

    def close(self) -> None:
        """Ask no more."""


class _Channelled(Stream):
    """A stream of a registry in this process."""

    def __init__(self, wire: Wire, loop: NodeLoop, node: str, question: Question, tell: Tell, crowded: Crowded, reached: At) -> None:
        super().__init__(loop, tell, crowded, reached)
        self._wire, self._who, self._query = wire, Identity("node", node, ORIGIN), question.query
        self._registry: Registry | None = None
        self._channel: Channel | None = None
        self._reading = False
        wire.loop.after(wire.later(), self._open)

    def end(self) -> None:
        """Let nothing more be told; the registry sees that the connection has ended, where anything reaches it."""
        super().end()
        seen = self._registry is self._wire.registry and not self._cut
        if self._channel is not None and self._registry is not None and seen:
            self._registry.streams.close(self._channel)
        self._channel = None

    def _silent_now(self) -> bool:
        """Tell whether nothing of the other side comes to the registry: the way is cut, or nobody has the connection any more."""
        return self._over or self._cut

    @property
    def _cut(self) -> bool:
        return self._who.name in self._wire.cut or self._who.name in self._wire.dead

    def _open(self) -> None:
        if self._over:
            return
        try:
            self._registry = self._wire.reach(self._who.name)
            check("watch", self._who.role)
            wanted = filters.given(WATCH, self._query.items())
            self._channel = self._registry.watch(self._who, wanted, self._wake, None, self._silent_now)
        except TryAgain as error:
            self._ended(failure_of(error))
        except NetcommonError as error:
            self._ended(failure_of(_problem(error)))
        else:
            self._heard()
            self._wake()

    def _wake(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.after(self._wire.later(), self._take)

    def _take(self) -> None:
        self._reading = False
        channel = self._channel
        if self._over or channel is None or self._wire.cut.get(self._who.name, "requests") != "requests":
            return
        if self._crowded():
            self._reading = True
            self._loop.after(CROWDED, self._take)
            return
        ended, data = channel.ended, channel.take()
        self._read(data)
        if data:
            self._wake()
        elif ended:
            self._ended(Failure("", "the registry has ended the stream"))
