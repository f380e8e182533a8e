"""Ask an etcd by its JSON gateway: over TLS, as a user, one member after the other until one answers.

**Time.** A request goes on to the next member where one is away, stands still or has no leader, and waits for an election, four seconds in
all. Whoever asks after that is told at once that there is no majority; once a second somebody finds out whether there is one again. So no
queue of requests waits for four seconds each. An answer that drips is none: its whole has a limit (netregistry.stores.etcd_pace).

**No answer.** What was sent and not answered may be done. It is asked again only where that does no harm (``again``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from netregistry.stores import etcd_answers as answers
from netregistry.stores.base import Unavailable, Unknown
from netregistry.stores.etcd_answers import Garbled, Refusal
from netregistry.stores.etcd_pace import Paced
from netregistry.stores.etcd_place import context_of, password_of
from netregistry.stores.etcd_stream import Stream
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.stores.etcd_answers import Document
    from netregistry.stores.etcd_place import Endpoint, Place

T = TypeVar("T")
TOLD = 4.0  #: seconds after which whoever asks is told that nobody answers
EACH = 1.5  #: seconds for one member
LOOK, BETWEEN = 0.5, 1.0  #: seconds for a look whether somebody answers again, or for a last attempt; from the end of a look to the next
PAUSE = 0.1  #: seconds before all members are asked again
LARGEST = 64 << 20  #: bytes of one answer
KEPT = 8  #: connections without work
HAS_LEADER = "Grpc-Metadata-hasleader"  #: a member without a leader refuses at once, and ends streams (etcd's client/v3 WithRequireLeader)

#: Refusals of a member that has done nothing, where another one may do it (etcd's api/v3rpc/rpctypes/error.go).
ELSEWHERE = (
    "etcdserver: no leader",
    "etcdserver: not capable",
    "etcdserver: too many requests",
    "etcdserver: unhealthy cluster",
    "etcdserver: rpc not supported for learner",
)
#: Codes of gRPC after which a request may be done: canceled, unknown, deadline, aborted, internal, away.
PASSING = frozenset((1, 2, 4, 10, 13, 14))
EXHAUSTED, FORBIDDEN, UNAUTHENTICATED, LOST_DATA = 8, 7, 16, 15
NO_SPACE = "etcdserver: mvcc: database space exceeded"
NOT_KNOWN = ("etcdserver: invalid auth token", "etcdserver: user name is empty", "etcdserver: revision of auth store is old")
WRONG_PASSWORD = "etcdserver: authentication failed"  # noqa: S105


class TooLarge(Exception):
    """Say that an answer has more than LARGEST bytes."""


class Foreign(Garbled):
    """Say that a member of another etcd has answered: it counts for nothing, and ours has done nothing."""


class _Failed(Exception):
    """Say why one member has not answered; ``sent``: it may have done what was asked."""

    def __init__(self, why: str, sent: bool) -> None:
        self.sent = sent
        super().__init__(why)


class _Answer(NamedTuple):
    status: int
    kind: str
    data: bytes


class Client:
    """A client of one etcd, for several threads. ``each``, ``told``: seconds for one member, and for all; ``now``: monotonic seconds."""

    def __init__(self, place: Place, each: float = EACH, told: float = TOLD, now: Callable[[], float] = time.monotonic) -> None:
        """Read the files that the address names. Raises HostRefused."""
        self.place, self._each, self._told, self._now = place, each, told, now
        self._files = self._seen()
        self._context = context_of(place)
        if place.user:
            password_of(place)  # it is read again for each login: it may be changed
        self._lock = threading.Lock()
        self._idle: dict[Endpoint, list[http.client.HTTPConnection]] = {}
        self._at = 0  # the member that is asked first
        self._silent: float | None = None  # since when nobody has answered
        self._looked = float("-inf")
        self._look = LOOK  # seconds for the next look
        self._failed: dict[Endpoint, str] = {}  # why each has not answered, since one has
        self._why = ""
        self._token = ""
        self._cluster = 0
        self._closed = False
        self.silent = ""  #: why members have not answered when it was found out of which etcd they are

    # -- asking

    def ask(self, path: str, body: Document, read: Callable[[Document], T], again: bool = True) -> T:
        """Ask, and read the answer. ``read``: raises Garbled; ``again``: asked twice it does no harm.

        Raises Unavailable, Unknown (unless ``again``), HostRefused, Refusal for what etcd refuses by itself, TooLarge.
        """
        data = json.dumps(body).encode("ascii")

        def one(endpoint: Endpoint, seconds: float) -> T:
            document = self._known(lambda: self._document(endpoint, path, data, seconds))
            try:
                return read(self.own(document))
            except Garbled as error:
                raise _Failed(str(error), not isinstance(error, Foreign)) from None

        return self._anywhere(one, again)

    def stream(self, path: str, body: Document) -> Stream:
        """Begin a stream; its first line is still to come. Raises Unavailable, HostRefused, Refusal."""
        data = json.dumps(body).encode("ascii")

        def one(endpoint: Endpoint, seconds: float) -> Stream:
            made = self._known(lambda: self._streamed(endpoint, path, data, seconds))
            made.where = str(endpoint)
            return made

        return self._anywhere(one, True)

    @property
    def settled(self) -> bool:
        """Tell whether it is known which etcd is meant."""
        return self._cluster != 0

    def survey(self, path: str, body: Document, read: Callable[[Document], T]) -> tuple[dict[Endpoint, tuple[int, T]], dict[Endpoint, str]]:
        """Ask each member once; give the cluster and the answer of each that has one, and why others have none.

        ``read``: raises Garbled. Where one member alone is named, nobody is asked.
        """
        data = json.dumps(body).encode("ascii")
        found: dict[Endpoint, tuple[int, T]] = {}
        silent: dict[Endpoint, str] = {}
        for endpoint in self.place.endpoints if len(self.place.endpoints) > 1 else ():
            try:
                document = self._known(partial(self._document, endpoint, path, data, self._each))
                found[endpoint] = answers.header(document).cluster, read(document)
            except Refusal as refused:
                silent[endpoint] = escaped(refused.message)
            except (_Failed, Unavailable, HostRefused) as error:
                silent[endpoint] = str(error)
        self.forget_token()  # it may be of another etcd
        return found, silent

    def settle(self, cluster: int, first: Endpoint) -> None:
        """Take the answers of one etcd alone from now on; ask this member of it first."""
        with self._lock:
            self._cluster, self._at = cluster, self.place.endpoints.index(first)

    def own(self, document: Document) -> Document:
        """Give back what was answered, or a stream has told, if it is of the cluster that was asked before. Raises Foreign, Garbled."""
        cluster = answers.header(document).cluster
        with self._lock:
            self._cluster = self._cluster or cluster
            if cluster != self._cluster:
                raise Foreign(f"it answers for the cluster {cluster:x}, others for {self._cluster:x}: name the members of one etcd")
        return document

    def forget_token(self) -> None:
        """Log in anew before the next request: a stream does not say whether its token has ended."""
        self._token = ""

    def next_member(self, where: str) -> None:
        """Ask another member from now on than ``where``, which is away or stands still."""
        with self._lock:
            if str(self.place.endpoints[self._at]) == where:
                self._at = (self._at + 1) % len(self.place.endpoints)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connection in (each for some in idle.values() for each in some):
            connection.close()

    # -- one member after the other

    def _anywhere(self, one: Callable[[Endpoint, float], T], again: bool) -> T:
        until, members = self._until(), len(self.place.endpoints)
        tried = refused = 0
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable(f"{self.place} was closed")
                endpoint = self.place.endpoints[self._at]
            begun = self._now()
            try:
                found = one(endpoint, max(min(self._each, until - begun), LOOK))
            except _Failed as error:
                self._note(begun, endpoint, str(error))
                if error.sent and not again:
                    with self._lock:
                        self._looked = self._now()
                    raise Unknown(f"{self.place}: it may be done or not: {error}") from None
            except HostRefused as error:
                refused += 1
                if refused == members:
                    raise
                self._note(begun, endpoint, str(error))  # it may be of another etcd
            except (Refusal, TooLarge):
                self._heard()
                raise
            else:
                self._heard()
                return found
            tried += 1
            if self._now() >= until:
                with self._lock:
                    self._looked = self._now()
                raise Unavailable(self._why)
            if tried % members == 0:
                refused = 0
                time.sleep(PAUSE)

    def _until(self) -> float:
        """Give the time up to which is asked. Raises Unavailable at once where nobody has answered for long, but for one look a second."""
        with self._lock:
            now = self._now()
            if self._silent is None:
                return now + self._told
            if now < self._silent + self._told:
                return self._silent + self._told
            if now < self._looked + BETWEEN:
                raise Unavailable(self._why)
            self._looked = now  # others need not look, too
            until = now + self._look
            self._look = min(2 * self._look, self._each)  # an etcd that is slow, but answers, is waited for as it was before
            return until

    def _note(self, begun: float, endpoint: Endpoint, why: str) -> None:
        with self._lock:
            if self._silent is None:
                self._silent = begun
            self._failed[endpoint] = f"{endpoint}: {why}"
            self._why = f"etcd has not answered for {self._now() - self._silent:.1f} s: {'; '.join(self._failed.values())}"
        self.next_member(str(endpoint))

    def _heard(self) -> None:
        with self._lock:
            self._silent, self._look = None, LOOK
            self._failed.clear()

    # -- one member

    def _known(self, act: Callable[[], T]) -> T:
        """Do something as the user, and log in where that is due. Raises _Failed, HostRefused, Refusal."""
        for attempt in (1, 2):
            try:
                return act()
            except Refusal as refused:
                code, said = refused.code, refused.message
                if said.startswith(NOT_KNOWN) or code == UNAUTHENTICATED:
                    if attempt == 1 and self.place.user:
                        self._token = ""
                        continue
                    raise HostRefused(
                        f"{self.place} lets nobody in without a user: {escaped(said)}", "add user=NAME&password=FILE"
                    ) from None
                if code == FORBIDDEN:
                    remedy = "etcdctl role grant-permission ROLE readwrite '' --prefix, and etcdctl user grant-role"
                    raise HostRefused(f"{self.place}: {escaped(self.place.user)} may not do that: {escaped(said)}", remedy) from None
                if said == NO_SPACE:
                    remedy = "netcommon registry compact, etcdctl defrag for each member, then etcdctl alarm disarm"
                    raise Unavailable(f"{self.place} is full, and takes no more: {remedy}") from None
                if code == LOST_DATA:
                    raise HostRefused(f"{self.place} says that its data is damaged: {escaped(said)}") from None
                if said.startswith(ELSEWHERE) or (code == EXHAUSTED and "larger than max" not in said):
                    raise _Failed(said, False) from None
                if code in PASSING:
                    raise _Failed(escaped(said), True) from None
                raise
        raise AssertionError

    def _document(self, endpoint: Endpoint, path: str, data: bytes, seconds: float) -> Document:
        answer = self._answered(endpoint, path, data, seconds, self._logged_in(endpoint, seconds))
        try:
            found = answers.document(answer.data, answer.kind)
            if answer.status != 200 or "error" in found:
                raise answers.refusal(found)
            return answers.mapping(found, "result") if "result" in found else found  # a stream of one answer
        except Garbled as error:
            raise _Failed(f"status {answer.status}: {error}", True) from None

    def _logged_in(self, endpoint: Endpoint, seconds: float) -> str:
        """Give the token, a new one where there is none. Raises _Failed, HostRefused, Refusal."""
        if not self.place.user or self._token:
            return self._token
        body = json.dumps({"name": self.place.user, "password": password_of(self.place)}).encode()
        answer = self._answered(endpoint, "/v3/auth/authenticate", body, seconds, "")
        try:
            found = answers.document(answer.data, answer.kind)
            if answer.status != 200:
                refused = answers.refusal(found)
                if refused.message.startswith(WRONG_PASSWORD) or refused.message == "etcdserver: authentication is not enabled":
                    remedy = f"the password is what {escaped(self.place.password)} holds, which is read again each time"
                    raise HostRefused(f"{self.place} does not let {escaped(self.place.user)} in: {escaped(refused.message)}", remedy)
                raise refused
            token = found.get("token")
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
                raise Garbled(f"its answer has no token: {escaped(repr(token), 40)}")
        except Garbled as error:
            raise _Failed(str(error), False) from None
        self._token = token
        return token

    def _answered(self, endpoint: Endpoint, path: str, data: bytes, seconds: float, token: str) -> _Answer:
        """Send a request over a connection that is kept, and give what comes. Raises _Failed, TooLarge."""
        connection = self._connected(endpoint, seconds)
        try:
            connection.request("POST", path, data, self._headers(token))
            response = connection.getresponse()
            found = response.read(LARGEST + 1)
            if len(found) > LARGEST:
                raise TooLarge
            if response.length:
                raise http.client.IncompleteRead(found, response.length)
        except TooLarge:
            connection.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Failed(_words(error), True) from None
        except BaseException:
            connection.close()
            raise
        self._keep(endpoint, connection)
        return _Answer(response.status, response.headers.get("Content-Type", ""), found)

    def _streamed(self, endpoint: Endpoint, path: str, data: bytes, seconds: float) -> Stream:
        token = self._logged_in(endpoint, seconds)
        connection = self._made(endpoint, seconds)
        stream = Stream(connection.sock)
        try:
            status, kind, rest = stream.begin(str(endpoint), path, data, self._headers(token), seconds)
            if status != 200:
                raise answers.refusal(answers.document(rest, kind))
            if kind.partition(";")[0].strip().lower() != "application/json":
                answers.document(rest, kind)
        except Garbled as error:
            stream.close()
            raise _Failed(str(error), True) from None
        except OSError as error:
            stream.close()
            raise _Failed(_words(error), True) from None
        except BaseException:
            stream.close()
            raise
        return stream

    @staticmethod
    def _headers(token: str) -> dict[str, str]:
        found = {"Content-Type": "application/json", HAS_LEADER: "true"}
        return found | {"Authorization": token} if token else found

    # -- connections

    def _connected(self, endpoint: Endpoint, seconds: float) -> http.client.HTTPConnection:
        """Give a connection to a member: one that was kept, if it has not ended. Raises _Failed."""
        while True:
            with self._lock:
                idle = self._idle.get(endpoint)
                connection = idle.pop() if idle else None
            if connection is None:
                connection = self._made(endpoint, seconds)
                connection.sock = cast("socket.socket", Paced(connection.sock, seconds))
                return connection
            if not _has_come(connection.sock):  # its end, or what nobody has asked for
                cast("Paced", connection.sock).allow(seconds)
                return connection
            connection.close()

    def _made(self, endpoint: Endpoint, seconds: float) -> http.client.HTTPConnection:
        made: http.client.HTTPConnection
        self._renewed()
        if self._context is None:
            made = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)
        else:
            made = http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=seconds, context=self._context)
        try:
            made.connect()
            made.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except (OSError, http.client.HTTPException) as error:
            made.close()
            raise _Failed(_words(error), False) from None
        return made

    def _seen(self) -> list[tuple[int, int, int]]:
        """Give what tells that the files of TLS are others than they were; of one that is not there, nothing."""
        found = []
        for name in filter(None, (self.place.ca, self.place.cert, self.place.key)):
            with contextlib.suppress(OSError):
                there = os.stat(name)
                found.append((there.st_dev, there.st_ino, there.st_mtime_ns))
        return found

    def _renewed(self) -> None:
        """Use certificates that were made anew; while they cannot be used, as in between, those of before."""
        seen = self._seen()
        if seen != self._files:
            with contextlib.suppress(HostRefused):
                self._context, self._files = context_of(self.place), seen

    def _keep(self, endpoint: Endpoint, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            if connection.sock is not None and len(idle) < KEPT and not self._closed:
                idle.append(connection)
                return
        with contextlib.suppress(OSError):
            connection.close()


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails, and it may be that it does not accept our certificate: {error.reason or error.strerror}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _has_come(connection: socket.socket) -> bool:
    """Tell whether something can be read. A service has thousands of descriptors: select(2) takes none above 1023."""
    found = select.poll()
    found.register(connection, select.POLLIN)
    return bool(found.poll(0))
