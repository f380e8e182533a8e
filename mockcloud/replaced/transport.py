"""Stand for connections and threads between nodes and their registry: what is asked comes to it in the same process, some time later.

Bodies are bytes of JSON on their way, as with HTTP, and every request takes the way of its endpoint: the same roles, filters and refusals.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from netagent.sync.messages import Ended, Failed, Failure, Hello, Line
from netagent.sync.session import SECONDS, answered, failure_of
from netregistry.client import SILENT, Answer, Problem
from netregistry.model.codec import Invalid
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import ANY, Call, new_id
from netregistry.roles import check
from netregistry.service import filters
from netregistry.service.bodies import parsed
from netregistry.service.identity import ORIGIN
from netregistry.service.routes import ROUTES, WATCH
from runtime.errors import NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from mockcloud.replaced.scheduler import NodeLoop
    from netagent.loop import Timer
    from netagent.sync.messages import Asking, Event
    from netregistry.reach import Places
    from netregistry.service.registry import Registry
    from netregistry.service.routes import Route
    from netregistry.service.streams import Channel

LATENCY = 0.0005, 0.005  #: seconds from one side to the other: the least and the most
CROWDED = 0.05  #: seconds until a hearer that has too much to do is asked again
COPY = 40.0  #: seconds until a copy of a request comes, at most: longer than an answer is waited for
DEAF = ("both", "requests")  #: ways that are cut so that the registry hears nothing


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
        self.asked = 0  #: requests that came to the registry
        self.chance = chance

    def later(self) -> float:
        """Give how long something is on its way (seconds)."""
        return self.chance.uniform(*LATENCY) + (self.chance.uniform(0.0, self.slow) if self.slow else 0.0)

    def reach(self, node: str) -> Registry:
        """Give the registry. Raises TryAgain where nobody answers."""
        if self.registry is None or self.cut.get(node) in DEAF:
            raise TryAgain("no registry answers")
        return self.registry


class Client:
    """Ask a registry as one identity: what netregistry.client.Client does by a socket."""

    def __init__(self, wire: Wire, who: Identity, wall: Callable[[], float]) -> None:
        self._wire, self._who, self._wall = wire, who, wall
        self._floor = 0.0

    @property
    def moment(self) -> float:
        """See netregistry.client.Client.moment."""
        return max(self._wall(), self._floor)

    def get(self, place: str, **query: Any) -> Answer:
        """Look at something. Raises Problem, TryAgain."""
        return self._asked("GET", place, query, None, ANY, "")

    def pages(self, place: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give a list part by part. Raises Problem, TryAgain."""
        query.setdefault("limit", 1000)
        while True:
            page = self.get(place, **query).body
            yield page
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    def all(self, place: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give all items of a list. Raises Problem, TryAgain."""
        for page in self.pages(place, **query):
            yield from page["items"]

    def change(self, method: str, place: str, body: Any = None, match: str = ANY, *, key: str = "", **query: Any) -> Answer:
        """Ask for a change, once. Raises Problem, TryAgain."""
        return self._asked(method, place, query, body, match, key or new_id(self.moment, self._wire.chance.getrandbits(74)))

    def _asked(self, method: str, place: str, query: Mapping[str, Any], body: Any, match: str, key: str) -> Answer:
        registry = self._wire.reach(self._who.name)
        self._wire.asked += 1
        try:
            route, parts = found(method, f"/v1/{place}".rstrip("/"))
            check(route.name, self._who.role)
            wanted = filters.given(route.query, ((name, _text(value)) for name, value in query.items()))
            sent = parsed(json.dumps(body).encode("ascii")) if body is not None else {"force": True} if wanted.get("force") else None
            said, revision = _done(registry, route, parts, wanted, Call(key, route.action, "", sent, match), self._who)
        except NetcommonError as error:
            problem = _problem(error)
            if isinstance(floor := problem.document.get("floor"), int):
                self._floor = floor // 1000 + 1.0
            raise problem from None
        return Answer(json.loads(json.dumps(said)), revision)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        if target != who.name:
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


class Session:
    """Speak for a node with its registry: a netagent.sync.driver.Speaks.

    ``reached`` is told when a request is about to leave ("ask"), when an answer has come ("answer"), and when a line has ("line").
    """

    def __init__(
        self,
        wire: Wire,
        loop: NodeLoop,
        reached: Callable[[str], None],
        _where: str | Places,
        node: str,
        incarnation: str,
        tell: Callable[[Event, int], None],
        crowded: Callable[[], bool],
    ) -> None:
        self._wire, self._loop, self._node, self._incarnation, self._tell, self._crowded = wire, loop, node, incarnation, tell, crowded
        self._reached, self._asked, self._told = reached, 0, 0
        self._who = Identity("node", node, ORIGIN)
        self._client = Client(wire, self._who, loop.wall)
        self._stream: _Stream | None = None
        self.stream = 0

    @property
    def moment(self) -> float:
        return self._client.moment

    def ask(self, request: Asking) -> None:
        self._reached("ask")
        wire = self._wire
        self._asked += 1
        self._loop.after(SECONDS, partial(self._answer, self._asked, Failed(Failure("", f"no answer within {SECONDS:.0f} s"))))
        wire.loop.after(wire.later(), partial(self._arrive, self._asked, request))
        if wire.copies and wire.chance.random() < wire.copies:
            wire.loop.after(wire.later() + wire.chance.uniform(0.0, COPY), partial(self._copy, request))

    def _arrive(self, number: int, request: Asking) -> None:
        """Do what is asked at the registry, where it comes there."""
        if self._wire.cut.get(self._node) in DEAF:
            return
        event = self._serve(request)
        if self._node not in self._wire.cut:
            self._loop.after(self._wire.later(), partial(self._answer, number, event))

    def _copy(self, request: Asking) -> None:
        """Do what a copy of a request asks for; nobody hears the answer."""
        if self._wire.cut.get(self._node) not in DEAF:
            self._serve(request)

    def _serve(self, request: Asking) -> Event:
        try:
            found = answered(self._client, self._node, self._incarnation, request)
        except Exception as error:  # as the session by threads
            return Failed(failure_of(error))
        lacks = self._wire.lacks.get(self._node)
        if lacks and isinstance(request, Hello):
            for name in ("abilities", "actions"):
                found.body[name] = [each for each in found.body[name] if each not in lacks]
        return found

    def _answer(self, number: int, event: Event) -> None:
        """Tell of the answer, or that there is none; which of the two comes first counts."""
        if number > self._told:
            self._told = number
            self._reached("answer")
            self._tell(event, 0)

    def watch(self, start: str) -> None:
        self.end()
        self.stream += 1
        number, tell = self.stream, self._tell
        query = {"node": self._node, "from": start, "incarnation": self._incarnation}
        own = lambda event: tell(event, number)  # noqa: E731 - one line
        self._stream = _Stream(self._wire, self._loop, self._reached, self._who, query, own, self._crowded)

    def end(self) -> None:
        if self._stream is not None:
            self._stream.end()
            self._stream = None
            self.stream += 1

    def close(self, seconds: float) -> None:
        self.end()


class _Stream:
    """One stream."""

    def __init__(
        self,
        wire: Wire,
        loop: NodeLoop,
        reached: Callable[[str], None],
        who: Identity,
        query: dict[str, str],
        tell: Callable[[Event], None],
        crowded: Callable[[], bool],
    ) -> None:
        self._wire, self._loop, self._reached, self._who, self._query = wire, loop, reached, who, query
        self._tell, self._crowded = tell, crowded
        self._registry: Registry | None = None
        self._channel: Channel | None = None
        self._reading = self._over = False
        self._rest = b""
        self._silent: Timer | None = None
        wire.loop.after(wire.later(), self._open)

    def end(self) -> None:
        """Let nothing more be told; the registry sees that the connection has ended, where anything reaches it."""
        self._over = True
        if self._silent is not None:
            self._silent.cancel()
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

    def _ended(self, failure: Failure) -> None:
        if not self._over:
            self.end()
            self._tell(Ended(failure))

    def _open(self) -> None:
        if self._over:
            return
        try:
            self._registry = self._wire.reach(self._who.name)
            check("watch", self._who.role)
            wanted = filters.given(WATCH, ((name, value) for name, value in self._query.items() if value))
            self._channel = self._registry.watch(self._who, wanted, self._wake, None, self._silent_now)
        except TryAgain as error:
            self._ended(failure_of(error))
        except NetcommonError as error:
            self._ended(failure_of(_problem(error)))
        else:
            self._heard()
            self._wake()

    def _heard(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
        self._silent = self._loop.after(SILENT, lambda: self._ended(Failure("", "the registry's stream was cut off: timed out")))

    def _wake(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.after(self._wire.later(), self._read)

    def _read(self) -> None:
        self._reading = False
        channel = self._channel
        if self._over or channel is None or self._wire.cut.get(self._who.name, "requests") != "requests":
            return
        if self._crowded():
            self._reading = True
            self._loop.after(CROWDED, self._read)
            return
        ended, data = channel.ended, channel.take()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard()
            self._reached("line")
            said = json.loads(line)
            self._tell(Line(said, len(json.dumps(said))))
        if data:
            self._wake()
        elif ended:
            self._ended(Failure("", "the registry has ended the stream"))
