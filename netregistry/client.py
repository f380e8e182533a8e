"""Ask a registry: small, and one request at a time; the command line and agents use it."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

from netregistry.reach import Places, UnixPlace, words
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


class Garbled(TryAgain):
    """Say that what came is nothing that a registry says."""


class Answer(NamedTuple):
    """A body, and the revision (EPOCH:REVISION) that it is of; "" for none."""

    body: Any
    revision: str


class Client:
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
        self._old = old
        self._places = Places([UnixPlace(where)]) if isinstance(where, str) else where
        self._role, self._seconds, self._longest = role, seconds, longest
        self._connection: Connection | None = None
        self._place: Place = self._places.first
        self._floor = 0.0  # seconds since the epoch; of what was made before the registry does not know whether it was done

    @property
    def moment(self) -> float:
        """Give the time at which a request of now is made, for its id: by the clock, but for a registry whose clock was fast."""
        return max(time.time(), self._floor)

    # -- looking

    def get(self, place: str, **query: Any) -> Answer:
        """Look at something: ``place`` is a path below /v1, such as "nics"; "": what the service can do.

        Raises Problem; HostRefused, TryAgain where nobody answers.
        """
        return self._asked("GET", _target(place, query), None, {})

    def all(self, place: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give all items of a list. Raises as ``get`` does."""
        for page in self.pages(place, **query):
            yield from page["items"]

    def pages(self, place: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give a list part by part: each with its items and the revision. Raises as ``get`` does."""
        query.setdefault("limit", 1000)
        while True:
            page = self.get(place, **query).body
            yield page
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    # -- changing

    def change(
        self, method: str, place: str, body: Any = None, match: str = ANY, dry_run: bool = False, key: str = "", **query: Any
    ) -> Answer:
        """Ask for a change, once: a request that was not answered is sent again with its id. Raises as ``get`` does.

        ``match``: EPOCH:REVISION at which what is changed was read, or "*"; ``key``: the request's id, for who goes on asking after
        TryAgain: ``request_id``.
        """
        headers = {"Idempotency-Key": key or new_id(self.moment, secrets.randbits(74))}
        if method in ("PATCH", "DELETE") or match != ANY:
            headers["If-Match"] = match if match == ANY else f'"{match}"'
        if dry_run:
            query["dry_run"] = True
        try:
            return self._asked(method, _target(place, query), body, headers)
        except Problem as refused:
            if key or refused.kind != "outdated" or self._floor <= time.time():
                raise
        headers["Idempotency-Key"] = new_id(self.moment, secrets.randbits(74))  # another request: the first one was not done
        return self._asked(method, _target(place, query), body, headers)

    # -- streams

    def watch(self, node: str, start: str = "", incarnation: str = "") -> Generator[dict[str, Any], None, None]:
        """Give the lines of a node's stream, signs of life too. Ends where the service ends it; raises TryAgain where it is cut off."""
        query = {"node": node, "from": start, "incarnation": incarnation}
        target = _target("watch", {name: value for name, value in query.items() if value})
        connection, response = self._begun(SILENT, "GET", target)
        try:
            if response.status != 200:
                raise _problem(response.status, _body(response))
            for line in _lines(response, connection):
                yield _decoded(line)
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
        connection, response = self._begun(self._seconds, "GET", _target(place, {}))
        try:
            if response.status != 200:
                raise _problem(response.status, _body(response))
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests

    def _asked(self, method: str, target: str, body: Any, headers: dict[str, str]) -> Answer:
        failed: list[NetcommonError] = []
        for attempt in range(max(AGAIN, len(self._places))):
            try:
                if self._connection is None:
                    self._place = self._places.first
                    self._connection = self._place.connection(self._seconds)
                response = self._sent(self._connection, self._place, method, target, body, headers)
                data = _body(response, self._longest)
            except Garbled:
                self.close()
                raise
            except (OSError, http.client.HTTPException) as error:
                self.close()
                self._places.failed(self._place)
                failed.append(self._place.wrong(error))
                if attempt + 1 >= len(self._places) and (isinstance(error, TimeoutError) or not failed[-1].retry):
                    break
                continue  # a connection that was kept may have ended; the id lets a change be done once
            if response.status >= 400:
                problem = _problem(response.status, data)
                if problem.kind == "certificate":
                    self.close()  # another connection shows the certificate that there is by then
                elif response.status == 503:  # it stops, or cannot do it: another one may
                    self.close()
                    self._places.failed(self._place)
                    failed.append(problem)
                    if attempt + 1 < len(self._places):
                        continue
                    break
                if isinstance(floor := problem.document.get("floor"), int):
                    self._floor = floor // 1000 + 1.0
                raise problem
            self._looked_at(response)
            return Answer(_decoded(data) if data else None, response.headers.get("ETag", "").strip('"'))
        try:
            raise _nobody(failed, self._places)
        finally:
            failed.clear()  # an error that its own frame holds, and what that has open, would be left to the collection of garbage

    def _begun(self, seconds: float, method: str, target: str) -> tuple[Connection, http.client.HTTPResponse]:
        """Begin an answer of its own connection, at the first place that gives one."""
        failed: list[NetcommonError] = []
        for _ in range(len(self._places)):
            place = self._places.first
            connection = place.connection(seconds)
            try:
                response = self._sent(connection, place, method, target, None, {})
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._places.failed(place)
                failed.append(place.wrong(error))
                continue
            if response.status != 503:
                self._looked_at(response)
                return connection, response
            failed.append(_problem(503, _rest(response)))
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

    def _sent(
        self, connection: Connection, place: Place, method: str, target: str, body: Any, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        given = {"Netcommon-Role": quote(self._role, safe=":")} if self._role and place.says_role else {}
        data = None
        if body is not None:
            data, given["Content-Type"] = json.dumps(body).encode("ascii"), "application/json"
        if connection.sock is None:
            connection.connect()
        connection.wait()
        connection.request(method, target, data, {**headers, **given})
        return connection.getresponse()


def _nobody(failed: list[NetcommonError], places: Places) -> NetcommonError:
    """Give what is to be said where nobody could do it: what may be done stays so, whatever another one said."""
    told = [each for each in failed if isinstance(each, Problem)]
    if told:
        return next((each for each in told if each.kind == "unsure"), told[-1])
    if len(places) == 1:
        return failed[-1]
    text = f"no registry answers: {'; '.join(dict.fromkeys(str(each) for each in failed))}"
    return TryAgain(text) if any(each.retry for each in failed) else HostRefused(text)


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


def _target(place: str, query: Mapping[str, Any]) -> str:
    """Give the path of a request; ``place`` is encoded but for its slashes."""
    shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items() if value is not None}
    return f"/v1/{quote(place, safe='/:')}".rstrip("/") + (f"?{urlencode(shown)}" if shown else "")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Garbled(f"the registry's answer is no JSON: {escaped(data[:80].decode('latin-1'))}") from None


def _problem(status: int, data: bytes) -> Problem:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return Problem(found if isinstance(found, dict) else {"status": status, "detail": f"refused with status {status}"})
