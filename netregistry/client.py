"""Ask a registry: small, and one request at a time; the command line and agents use it."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import time
from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

from netregistry.reach import NoCertificate, NoCertificateYet, Places, UnixPlace, words
from netregistry.request import ANY, new_id
from runtime.errors import HostRefused, NetcommonError, TryAgain, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from netregistry.reach import Connection, Place

SOCKET = "/run/netregistry/socket"
SECONDS = 60.0  #: for one answer
SILENT = 10.0  #: seconds without a sign of life after which a stream is over
AGAIN = 3  #: times that a request without answer is sent
LONGEST_LINE = 4 << 20  #: bytes
LONGEST_ANSWER = 64 << 20  #: bytes


def served(path: str) -> bool:
    """Tell whether somebody listens on a socket: its file alone may be left of one that was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        try:
            asking.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass  # somebody does, and cannot be spoken to now: who asks is told why
    return True


def request_id() -> str:
    """Make the id of a request: whatever is sent with it is done once."""
    return new_id(time.time(), secrets.randbits(74))


class Problem(NetcommonError):
    """The registry refused a request: ``kind`` is what the problem's type ends in, ``document`` all that it said (RFC 9457)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.kind = str(document.get("type", "")).rpartition("/")[2]
        self.code = document.get("status", 0)
        super().__init__(str(document.get("detail") or document.get("title") or "refused, and it does not say why"))
        self.status = 64 if self.code in (400, 404, 413, 415, 428) else TryAgain.status if self.code in (429, 503) else 69
        self.retry = self.status == TryAgain.status
        if self.kind in ("stale", "match"):
            self.advice = "somebody has changed it meanwhile: look at it again, and repeat what is still wanted"
        elif self.retry:
            self.advice = "the same may succeed later: try again"
        elif document.get("command"):
            self.advice = str(document["command"])

    @property
    def undone(self) -> bool:
        """Tell whether nothing of it was done for certain: what belongs to it need not be kept. A fault may be one behind the commit."""
        return not self.retry and isinstance(self.code, int) and 400 <= self.code < 500


class Garbled(TryAgain):
    """Say that what came is nothing that a registry says."""


class Answer(NamedTuple):
    """A body, and the revision (EPOCH:REVISION) that it is of; "" for none."""

    body: Any
    revision: str


class Question(NamedTuple):
    """Hold one request. ``place``: a path below /v1, such as "nics"; "": the service itself. ``match``: EPOCH:REVISION or "*".

    ``key``: the id of a change, whose whole is done once, however often it is sent; "": one is made when it is asked.
    """

    method: str
    place: str
    query: Mapping[str, Any] = MappingProxyType({})
    body: Any = None
    match: str = ANY
    key: str = ""

    @property
    def target(self) -> str:
        """Give the path with its query; ``place`` is encoded but for its slashes."""
        shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in self.query.items() if value is not None}
        return f"/v1/{quote(self.place, safe='/:')}".rstrip("/") + (f"?{urlencode(shown)}" if shown else "")

    @property
    def data(self) -> bytes | None:
        """Give the body as it is sent; None for none."""
        return None if self.body is None else json.dumps(self.body).encode("ascii")

    @property
    def said(self) -> str:
        """Give what If-Match says of a change; "" where it is not sent."""
        return self.match if self.method in ("PATCH", "DELETE") or self.match != ANY else ""

    def headers(self, role: str) -> dict[str, str]:
        """Give the headers; ``role``: as whom it is asked, "" where that is not said."""
        found = {"Netcommon-Role": quote(role, safe=":")} if role else {}
        if self.body is not None:
            found["Content-Type"] = "application/json"
        if self.key:
            found["Idempotency-Key"] = self.key
            if self.said:
                found["If-Match"] = self.said if self.said == ANY else f'"{self.said}"'
        return found

    @classmethod
    def listing(cls, place: str, query: Mapping[str, Any]) -> Question:
        """Ask for the first part of a list."""
        return cls("GET", place, {"limit": 1000, **query})

    def next(self, page: Mapping[str, Any]) -> Question | None:
        """Ask for the part of a list behind ``page``; None where that is the last."""
        return self._replace(query={**self.query, "cursor": page["next"]}) if page["next"] else None

    @classmethod
    def stream(cls, node: str, start: str = "", incarnation: str = "", underlay: bool = False) -> Question:
        """Ask for the stream of a node. ``underlay``: also for what that is to have of it, of a service that can tell (GET /v1)."""
        query = {"node": node, "from": start, "incarnation": incarnation, "underlay": "1" if underlay else ""}
        return cls("GET", "watch", {name: value for name, value in query.items() if value})


class Reply(NamedTuple):
    """Hold what came from a place: a status with what goes with it, or an error instead."""

    place: Place
    status: int = 0
    revision: str = ""
    data: bytes = b""
    error: Exception | None = None


def attempts(places: Places) -> Generator[None, Reply, Answer]:
    """Ask at places until one has answered: it waits for a reply each time, and returns the answer. No socket is in it.

    Raises Problem; HostRefused, TryAgain where nobody answers; Garbled.
    """
    failed: list[NetcommonError] = []
    for attempt in range(max(AGAIN, len(places))):
        reply = yield
        if reply.error is not None:
            places.failed(reply.place)
            failed.append(reply.place.wrong(reply.error))
            if attempt + 1 >= len(places) and (isinstance(reply.error, TimeoutError) or not failed[-1].retry):
                break
        elif reply.status == 503:  # it stops, or cannot do it: another one may
            places.failed(reply.place)
            failed.append(problem(reply.status, reply.data))
            if attempt + 1 >= len(places):
                break
        elif reply.status >= 400:
            raise problem(reply.status, reply.data)
        else:
            return Answer(decoded(reply.data) if reply.data else None, reply.revision)
    try:
        raise _nobody(failed, places)
    finally:
        failed.clear()  # an error that its own frame holds, and what that has open, would be left to the collection of garbage


class Moment:
    """Tell at which time a request is made, for its id: by a clock, but for a registry whose own was fast."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self.floor = 0.0  #: seconds since the epoch; of what was made before the registry does not know whether it was done

    def __call__(self) -> float:
        return max(self._wall(), self.floor)

    def learn(self, refused: Problem) -> None:
        """Take what a refusal says of it: also that it is an earlier one than was said while the registry's clock was fast."""
        if isinstance(floor := refused.document.get("floor"), int):
            self.floor = floor // 1000 + 1.0


class Asker(ABC):
    """Asks a registry one question at a time, and waits for the answer; how it comes there is ``_asked``."""

    def __init__(self, wall: Callable[[], float] = time.time, bits: Callable[[int], int] = secrets.randbits) -> None:
        self._moment, self._bits = Moment(wall), bits

    @abstractmethod
    def _asked(self, question: Question) -> Answer:
        """Ask once. Raises Problem; HostRefused, TryAgain where nobody answers; Garbled."""

    @property
    def moment(self) -> float:
        """Give the time at which a request of now is made, for its id: by the clock, but for a registry whose clock was fast."""
        return self._moment()

    def ask(self, question: Question) -> Answer:
        """Ask. Raises Problem; HostRefused, TryAgain where nobody answers; Garbled."""
        if question.method != "GET" and not question.key:
            question = question._replace(key=new_id(self.moment, self._bits(74)))
        try:
            return self._asked(question)
        except Problem as refused:
            self._moment.learn(refused)
            raise

    def get(self, place: str, **query: Any) -> Answer:
        """Look at something: ``place`` is a path below /v1, such as "nics"; "": what the service can do. Raises as ``ask`` does."""
        return self.ask(Question("GET", place, query))

    def all(self, place: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give all items of a list. Raises as ``ask`` does."""
        for page in self.pages(place, **query):
            yield from page["items"]

    def pages(self, place: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give a list part by part: each with its items and the revision. Raises as ``ask`` does."""
        question: Question | None = Question.listing(place, query)
        while question is not None:
            page = self.ask(question).body
            yield page
            question = question.next(page)

    def change(
        self, method: str, place: str, body: Any = None, match: str = ANY, dry_run: bool = False, key: str = "", **query: Any
    ) -> Answer:
        """Ask for a change, once: a request that was not answered is sent again with its id. Raises as ``ask`` does.

        ``match``: EPOCH:REVISION at which what is changed was read, or "*"; ``key``: the request's id, for who goes on asking after
        TryAgain: ``request_id``.
        """
        if dry_run:
            query["dry_run"] = True
        question, floor = Question(method, place, query, body, match, key), self._moment.floor
        try:
            return self.ask(question)
        except Problem as refused:
            if key or refused.kind != "outdated" or self._moment.floor == floor:
                raise
        return self.ask(question)  # another request: the first one was not done

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Asker):
    """A registry's client. ``where``: the path of its UNIX socket, or where else it is.

    ``role``: as whom to ask over the socket (operator:NAME, importer:CLUSTER, node:UUID, reader); "": root, as operator. Elsewhere the
    certificate says it. ``longest``: bytes of an answer. ``old``: hears, once, that what is shown is so many seconds old.
    """

    def __init__(
        self,
        where: str | Places = SOCKET,
        role: str = "",
        seconds: float = SECONDS,
        longest: int = LONGEST_ANSWER,
        old: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self._old = old
        self._places = Places([UnixPlace(where)]) if isinstance(where, str) else where
        self._role, self._seconds, self._longest = role, seconds, longest
        self._connection: Connection | None = None
        self._place: Place = self._places.first

    # -- streams

    def watch(self, node: str, start: str = "", incarnation: str = "", underlay: bool = False) -> Generator[dict[str, Any], None, None]:
        """Give the lines of a node's stream, signs of life too. Ends where the service ends it; raises TryAgain where it is cut off."""
        connection, response = self._begun(SILENT, Question.stream(node, start, incarnation, underlay))
        try:
            if response.status != 200:
                raise problem(response.status, _body(response))
            for line in _lines(response, connection):
                yield decoded(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TryAgain(f"the registry's stream was cut off: {words(error)}") from None
        finally:
            connection.close()

    # -- the whole

    def backup(self) -> Iterator[bytes]:
        """Give a copy of the registry, piece by piece. Raises as ``get`` does."""
        return self._pieces("backup", _blocks)

    def export(self) -> Iterator[bytes]:
        """Give the registry as lines of JSON (netregistry.exchange), in printable ASCII. Raises as ``get`` does; Garbled."""
        for line in self._pieces("export", _lines):
            if not (line.isascii() and line.decode("ascii")[:-1].isprintable()):  # it may be shown on a terminal
                raise Garbled(f"the registry's answer is no JSON of ours: {escaped(line[:80].decode('latin-1'))}")
            yield line

    def _pieces(self, place: str, read: Callable[[http.client.HTTPResponse, Connection], Iterator[bytes]]) -> Iterator[bytes]:
        connection, response = self._begun(self._seconds, Question("GET", place))
        try:
            if response.status != 200:
                raise problem(response.status, _body(response))
            yield from read(response, connection)
        except (OSError, http.client.HTTPException) as error:
            raise TryAgain(f"the registry's answer was cut off: {words(error)}") from None
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- requests

    def _asked(self, question: Question) -> Answer:
        steps = attempts(self._places)
        next(steps)
        try:
            while True:
                steps.send(self._reply(question))  # a connection that was kept may have ended; the id lets a change be done once
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        except Problem as refused:
            if refused.kind == "certificate":
                self.close()  # another connection shows the certificate that there is by then
            raise

    def _reply(self, question: Question) -> Reply:
        try:
            if self._connection is None:
                self._place = self._places.first
                self._connection = self._place.connection(self._seconds)
            response = self._sent(self._connection, self._place, question)
            data = _body(response, self._longest)
        except Garbled:
            self.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Reply(self._place, error=error)
        if response.status == 503:
            self.close()
        elif response.status < 400:
            self._looked_at(response)
        return Reply(self._place, response.status, response.headers.get("ETag", "").strip('"'), data)

    def _begun(self, seconds: float, question: Question) -> tuple[Connection, http.client.HTTPResponse]:
        """Begin an answer of its own connection, at the first place that gives one."""
        failed: list[NetcommonError] = []
        for _ in range(len(self._places)):
            place = self._places.first
            connection = place.connection(seconds)
            try:
                response = self._sent(connection, place, question)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._places.failed(place)
                failed.append(place.wrong(error))
                continue
            if response.status != 503:
                self._looked_at(response)
                return connection, response
            failed.append(problem(503, _rest(response)))
            connection.close()
            self._places.failed(place)
        try:
            raise _nobody(failed, self._places)
        finally:
            failed.clear()  # an error that its own frame holds, and what that has open, would be left to the collection of garbage

    def _looked_at(self, response: http.client.HTTPResponse) -> None:
        """Tell, once, how old an answer is: since when nobody knows whether it is so still (RFC 9111, 5.1)."""
        age = response.headers.get("Age", "")
        if self._old is not None and age.isascii() and age.isdecimal() and len(age) <= 9 and int(age):
            self._old(int(age))
            self._old = None

    def _sent(self, connection: Connection, place: Place, question: Question) -> http.client.HTTPResponse:
        if connection.sock is None:
            connection.connect()
        connection.wait()
        connection.request(question.method, question.target, question.data, question.headers(self._role if place.says_role else ""))
        return connection.getresponse()


def _nobody(failed: list[NetcommonError], places: Places) -> NetcommonError:
    """Give what is to be said where nobody could do it: what may be done stays so, whatever another one said."""
    told = [each for each in failed if isinstance(each, Problem)]
    if told:
        return next((each for each in told if each.kind == "unsure"), told[-1])
    if len(places) == 1:
        return failed[-1]
    text = f"no registry answers: {'; '.join(dict.fromkeys(str(each) for each in failed))}"
    again = any(each.retry for each in failed)
    if any(isinstance(each, NoCertificate) for each in failed):  # there another certificate may be taken
        return NoCertificateYet(text) if again else NoCertificate(text)
    return TryAgain(text) if again else HostRefused(text)


def _body(response: http.client.HTTPResponse, longest: int = LONGEST_ANSWER) -> bytes:
    """Give a whole body. Raises Garbled for one that is too long, IncompleteRead where it ends before its length."""
    data = response.read(longest + 1)
    if len(data) > longest:
        raise Garbled(f"the registry's answer has more than {longest} bytes")
    if response.length:
        raise http.client.IncompleteRead(data, response.length)
    return data


def _rest(response: http.client.HTTPResponse) -> bytes:
    """Give what can be read of a body that says why something cannot be done."""
    try:
        return _body(response)
    except (OSError, http.client.HTTPException, Garbled):
        return b""


def _blocks(response: http.client.HTTPResponse, connection: Connection) -> Iterator[bytes]:
    """Give a body whose length is known. Raises IncompleteRead where it ends before: http.client's own ``read`` does not."""
    while data := response.read(1 << 16):
        yield data
        connection.wait()
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)


def _lines(response: http.client.HTTPResponse, connection: Connection) -> Iterator[bytes]:
    """Give a body in chunks line by line, as they come. Raises IncompleteRead where it ends before: ``readline`` does not.

    Each line is waited for, and not each part of one.
    """
    rest = b""
    while data := response.read1(1 << 16):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if whole:
            connection.wait()
        if len(rest) > LONGEST_LINE:
            raise http.client.LineTooLong("answer")
    if rest:
        raise http.client.IncompleteRead(rest)


def decoded(data: bytes) -> Any:
    """Read JSON that a registry has sent. Raises Garbled."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Garbled(f"the registry's answer is no JSON: {escaped(data[:80].decode('latin-1'))}") from None


def problem(status: int, data: bytes) -> Problem:
    """Read a refusal, whatever it is."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return Problem(found if isinstance(found, dict) else {"status": status, "detail": f"refused with status {status}"})
