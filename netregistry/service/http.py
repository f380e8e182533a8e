"""Speak HTTP: requests of aiohttp's read and checked by the table of endpoints, answers and problems written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import secrets
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import unquote

from aiohttp import web

from netregistry import exchange
from netregistry.model.codec import Invalid, write
from netregistry.model.history import Identity
from netregistry.refusal import KINDS, Refused
from netregistry.request import Call, new_id
from netregistry.roles import check
from netregistry.service import cross_site, filters
from netregistry.service.bodies import Bodies
from netregistry.service.connection import PROBLEM
from netregistry.service.identity import credential, identity, newcomer, peer
from netregistry.service.limits import Few, Gate, Rate, network
from netregistry.service.metrics import Figures, rendered
from netregistry.service.openapi import document
from netregistry.service.routes import BINARY, LINES, ROUTES, TEXT, Route
from netregistry.service.turned_away import REASONS, TurnedAway
from runtime.errors import NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from netregistry.model.certificate import Credential
    from netregistry.request import Response
    from netregistry.service.connection import Connection
    from netregistry.service.issuing import Ask
    from netregistry.service.limits import Limits
    from netregistry.service.registry import Registry
    from netregistry.service.streams import Channel

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Pieces = AsyncGenerator[bytes, None]

T = TypeVar("T")
CHUNK = 1 << 16  #: bytes of a file at once
LINES_AT_ONCE = 200
WHOLE = 4  #: exports, or backups, of one identity at once: each is as it was begun, in memory or on the disk, until it is sent
KEPT = 16  #: of the requests that may be in line, those that others than this machine's own do not get
_ASKING: ContextVar[tuple[str, str, bool]] = ContextVar("asking", default=("", "", False))  # whose request a task does; over TLS: True
ONCE = ("Netcommon-Role", "Idempotency-Key", "If-Match")  #: headers of which two would say two things


class Front(Protocol):
    """Serve beside the API, for people with browsers."""

    def add_to(self, application: web.Application) -> None:
        """Add its routes, whose names begin with "page"."""

    def refused(self, request: web.Request, refused: Refused) -> web.Response | None:
        """Give what is shown instead of a problem document; None where that is what is wanted."""

    def stop(self) -> None:
        """End what would be open for long."""


class Service:
    """One registry over HTTP. What touches the registry runs in one thread, by turns; the connections in the event loop."""

    def __init__(self, registry: Registry, version: str, limits: Limits) -> None:
        self.registry, self.version, self._limits = registry, version, limits
        self._pool = ThreadPoolExecutor(1, "registry")
        self._document = _encoded(document(version))  # it takes milliseconds to make
        self._bodies = Bodies(limits.body, limits.receiving)
        self._copying = asyncio.Lock()
        self.waiting = 0  #: requests that are in line
        self._rate, self._gate = Rate(limits, time.monotonic), Gate(limits.each)
        self._exports, self._backups = Few(WHOLE, "exports"), Few(WHOLE, "backups")
        self.figures = Figures(TurnedAway(time.monotonic, registry.log))
        self.stopping = False
        self._front: Front | None = None

    def application(self, front: Front | None = None) -> web.Application:
        """Give what aiohttp serves. ``front``: beside the API."""
        found = web.Application(middlewares=[self._guarded], client_max_size=self._limits.body)
        for route in ROUTES:
            found.router.add_route(route.method, route.path, partial(self._handle, route), name=route.name)
        if front is not None:
            self._front = front
            front.add_to(found)
        return found

    # -- turns

    async def turn(self, work: Callable[..., T], *given: Any, own: bool = False) -> T:
        """Do something with the registry when it is its turn. ``own``: the service's own work, however many wait. Raises Refused.

        What one identity asks for comes by few at once: however much that is, it takes little of the others' time, nor of the line: what
        waits for its own identity's place is not in that yet.
        """
        asking = _ASKING.get()
        most = self._limits.waiting - (KEPT if asking[2] else 0)
        async with contextlib.nullcontext() if own else self._gate.through(asking):
            if self.waiting >= most and not own:
                raise Refused("too-many", f"{self.waiting} requests are waiting: try again in a moment", retry_after=1)
            self.waiting += 1
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._timed, work, given)
            finally:
                self.waiting -= 1

    async def admitted(self, one: Credential | None, work: Callable[..., T], *given: Any) -> T:
        """Do something for who asks by a certificate when it is his turn (``turn``). Raises Refused where that counts no more by then.

        Between his being let in and his turn there may be a body that does not come, and all who are before him.
        """
        return await self.turn(self._still, one, work, given)

    def _still(self, one: Credential | None, work: Callable[..., T], given: tuple[Any, ...]) -> T:
        if one is not None:
            self.registry.admit(one)
        return work(*given)

    def _timed(self, work: Callable[..., T], given: tuple[Any, ...]) -> T:
        begun = time.monotonic()
        try:
            return work(*given)
        finally:
            self.figures.seconds += time.monotonic() - begun

    def stop(self) -> None:
        """Let nobody in any more."""
        self.stopping = True
        if self._front is not None:
            self._front.stop()

    def close(self) -> None:
        """Wait for what is being worked on; nothing more is."""
        self._bodies.close()
        self._pool.shutdown()

    # -- requests

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may, and turn every refusal and error into a problem."""
        headers: dict[str, str] = {}
        stranger = True
        try:
            transport = request.transport
            if transport is None:
                raise Refused("unavailable", "the connection is gone")
            route, secured = _route(request), _of(request).secured
            page = route.startswith("page")
            if not secured:
                peer(transport.get_extra_info("socket"))
            cross_site.check(cross_site.Asked(request.method, request.headers, secured, page))
            if route and not page and _of(request).looks:
                raise Refused("forbidden", "there are pages here, and nothing else: the API is on the socket beside")
            if self.stopping:
                raise Refused("unavailable", "the service stops: try again", retry_after=2)
            for name in ONCE:
                if len(request.headers.getall(name, ())) > 1:
                    raise Refused("invalid", f"{name} comes more than once", field=name)
            if "Content-Encoding" in request.headers:  # a small one may be of any size; nobody of ours sends such
                headers["Accept-Encoding"] = "identity"  # RFC 9110, 12.5.3
                raise Refused(
                    "media", f"the body is {request.headers['Content-Encoding']!a:.80}: send it as it is, without Content-Encoding"
                )
            stranger = False
            response = await handler(request)
        except Refused as error:
            refused = error
        except Invalid as error:
            refused = Refused("invalid", str(error), field=error.field, expected=error.expected)
        except web.HTTPRequestEntityTooLarge:
            refused = Refused("too-large", f"a request has at most {self._limits.body} bytes")
        except web.HTTPMethodNotAllowed as error:
            refused = Refused(
                "method", f"{request.method} is not done to {request.path!a:.200}; there are {', '.join(error.allowed_methods)}"
            )
            headers["Allow"] = ",".join(sorted(error.allowed_methods))
        except web.HTTPNotFound:
            refused = Refused("missing", f"there is no endpoint {request.path!a:.200}: GET /v1/openapi.json lists them")
        except web.HTTPException as error:
            refused = Refused("invalid", error.reason)
        except web.RequestPayloadError:
            refused = Refused("invalid", "the body is not what its headers say", field="body")
        except TryAgain as error:
            refused = Refused("unavailable", str(error), retry_after=1)
        except NetcommonError as error:
            refused = Refused("unavailable", str(error))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            self.figures.faults += 1
            self.registry.log.error(f"{request.method} {request.path}: {error!r} {' '.join(traceback.format_tb(error.__traceback__)[-3:])}")
            refused = Refused("fault", f"the service has a fault, and its log says which: {type(error).__name__}")
        else:
            self._counted(request, response.status)
            return response
        if (reason := refused.more.get("reason", "")) in REASONS:
            self.figures.away.note(reason, request.remote or "", refused.detail)
        self._counted(request, refused.code)
        shown = self._front.refused(request, refused) if self._front is not None else None
        if shown is None:
            shown = _problem(refused.problem(), headers)
        else:
            shown.headers.update(headers)
        if stranger or refused.kind == "certificate":
            shown.force_close()  # nothing that comes on this connection will be done: it makes room for others
        return shown

    def _counted(self, request: web.Request, status: int) -> None:
        self.figures.answered(_route(request) or "none", status)

    async def let_in(self, request: web.Request, what: str) -> tuple[Identity, Credential | None]:
        """Tell who asks, and by which certificate. Raises Refused where he may not ask this: an endpoint of the table of roles."""
        who, one = self._whose(request)
        self._rate.count(who, one.serial if one is not None else "")
        _ASKING.set((who.role, who.name or network(who.origin), _of(request).secured))
        if one is not None and not (connection := _of(request)).recognised:
            await self.turn(self.registry.recognise, one, connection.encoded)
            if not connection.recognised:
                connection.recognised = True
                connection.known()
        elif one is not None:
            await self.turn(self.registry.admit, one)
        if one is not None:
            self._rate.count(who)  # of all his certificates, now that this one counts: he may renew it as often as he likes
        check(what, who.role)
        return who, one

    async def _handle(self, route: Route, request: web.Request) -> web.StreamResponse:
        who, one = await self.let_in(request, route.name)
        wanted = filters.given(route.query, request.query.items())
        if route.action:
            return await self._change(route, request, who, one, wanted)
        special: dict[str, Callable[[web.Request, Identity, Credential | None, dict[str, Any]], Awaitable[web.StreamResponse]]] = {
            "watch": self._watch,
            "backup": self._backup,
            "export": self._export,
            "compact": self._compact,
            "heartbeat": self._heartbeat,
            "metrics": self._metrics,
            "healthz": self._healthz,
        }
        if route.name in special:
            return await special[route.name](request, who, one, wanted)
        if route.name == "openapi":
            return web.Response(status=200, body=self._document, content_type="application/json")
        if route.name == "problem":
            return _json(200, _kind(request.match_info["kind"]))
        body, revision, age = await self.admitted(one, self._look, who, route, dict(request.match_info), wanted)
        return web.Response(status=200, body=body, content_type="application/json", headers=_etag(revision) | _age(age))

    def _whose(self, request: web.Request) -> tuple[Identity, Credential | None]:
        """Tell who asks; by a certificate that may count no more. Raises Refused."""
        said, connection = unquote(request.headers.get("Netcommon-Role", "")), _of(request)
        if connection.looks:
            return identity("reader"), None
        if not connection.secured:
            return identity(said), None
        if not connection.certificate:
            return newcomer(request.remote or ""), None
        one = credential(connection.certificate)
        if said not in ("", f"{one.role}:{one.name}"):
            detail = f"the certificate is of {one.role} {one.name}, not of {said!a:.80}: netcommon registry join URL TOKEN gets another one"
            raise Refused("forbidden", detail, master=one.role, reason="another")
        return Identity(one.role, one.name, request.remote or ""), one

    def _look(self, who: Identity, route: Route, place: dict[str, str], wanted: dict[str, Any]) -> tuple[bytes, str, float]:
        """Give the JSON of what is looked at, its revision, and for how many seconds nobody knows whether it is so.

        In the registry's turn.
        """
        found, age = self.registry.look(route.name, place.get("uuid", ""), wanted, who)
        return _encoded(found.body), found.revision, age

    # -- changes

    async def _change(
        self, route: Route, request: web.Request, who: Identity, one: Credential | None, wanted: dict[str, Any]
    ) -> web.StreamResponse:
        place = request.match_info
        body = await self._bodies.read(request, who, route)
        if wanted.get("force"):
            body = {"force": True}
        target = place.get("uuid") or place.get("cluster") or place.get("label", "")
        if route.action.startswith("claim."):
            target = f"{place['kind']}/{place['scope']}/{place['what']}"
        elif route.action == "report" and target != who.name and who.role == "node":
            await self.turn(self.registry.misplace, target)
        given = request.headers.get("Idempotency-Key", "").strip('"')
        call = Call(
            given or new_id(self.registry.local.core.moment, secrets.randbits(74)),
            route.action,
            "" if route.action == "report" else target,
            body,
            _match(request),
            wanted.get("dry_run", False),
        )
        issuer = self.registry.issuer
        signed: dict[str, Callable[[Ask], Response]] = {
            "certificate.join": partial(issuer.join, call),
            "authority.add": partial(issuer.add, call),
            "certificate.renew": partial(issuer.renew, call, one, _of(request).encoded),
        }
        response = await self.turn(self.registry.answer, call, who, one, signed.get(route.action))
        if response.status >= 400 and (reason := response.body.get("reason", "")) in REASONS:
            self.figures.away.note(reason, request.remote or "", response.body["detail"])
        headers = {"Idempotency-Key": call.id} if response.status < 400 or not given else {}
        if response.status >= 400:
            shown = _problem(response.body, headers)
            if response.body["type"].endswith("/certificate"):
                shown.force_close()  # as in _guarded
            return shown
        return _json(response.status, response.body, _etag(response.revision) | headers)

    # -- nodes

    async def _heartbeat(self, request: web.Request, who: Identity, one: Credential | None, _wanted: dict[str, Any]) -> web.StreamResponse:
        body = await self._bodies.read(request, who)
        seconds = await self.admitted(one, self.registry.heartbeat, who, request.match_info["uuid"], body)
        return _json(200, {"seconds": seconds})

    async def _watch(self, request: web.Request, who: Identity, one: Credential | None, wanted: dict[str, Any]) -> web.StreamResponse:
        loop, news, blocked = asyncio.get_running_loop(), asyncio.Event(), False
        there: list[Channel] = []

        def woken() -> None:
            news.set()
            if blocked and there and there[0].dropped and request.transport is not None:
                request.transport.abort()  # it does not take what was sent, and is to have no more

        def wake() -> None:
            loop.call_soon_threadsafe(woken)

        silent = _of(request).silent
        channel = await self.turn(self.registry.watch, who, wanted, wake, one, silent)
        there.append(channel)

        async def lines() -> Pieces:
            nonlocal blocked
            while True:
                news.clear()
                ended, data = channel.ended, channel.take()
                if data:
                    blocked = True  # until the next line runs, which it does at once unless who hears it does not read
                    yield data
                    blocked = False
                elif ended:
                    break
                else:
                    await news.wait()

        try:
            response = web.StreamResponse(headers={"Content-Type": LINES, "Cache-Control": "no-store"})
            return await self.send(request, response, lines())  # who is cut off goes on where it was, with another connection
        finally:
            there.clear()
            await asyncio.shield(self.turn(self.registry.streams.close, channel, "over", own=True))

    async def send(self, request: web.Request, response: web.StreamResponse, pieces: Pieces) -> web.StreamResponse:
        """Send an answer piece by piece. Who does not take one in time is cut off, and sees that it has not all."""
        try:
            async with contextlib.aclosing(pieces):
                await response.prepare(request)
                async for data in pieces:
                    async with asyncio.timeout(self._limits.sending):
                        await response.write(data)
                async with asyncio.timeout(self._limits.sending):
                    await response.write_eof()
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        return response

    # -- the whole

    async def _backup(self, request: web.Request, who: Identity, one: Credential | None, _wanted: dict[str, Any]) -> web.StreamResponse:
        with self._backups.one(who):
            async with self._copying:  # one after the other: each takes as much of the disk as the registry
                await self.admitted(one, lambda: None)
                file = await asyncio.get_running_loop().run_in_executor(None, self.registry.backup)
            with file:
                response = web.StreamResponse(headers={"Content-Type": BINARY})
                response.content_length = os.fstat(file.fileno()).st_size
                return await self.send(request, response, _pieces(iter(partial(file.read, CHUNK), b"")))

    async def _export(self, request: web.Request, who: Identity, one: Credential | None, _wanted: dict[str, Any]) -> web.StreamResponse:
        with self._exports.one(who):
            # what is begun is sent as it was: objects never change
            age, lines = await self.admitted(one, lambda: (self.registry.catch_up(), exchange.lines(self.registry.local.view)))
            parts = (lines[place : place + LINES_AT_ONCE] for place in range(0, len(lines), LINES_AT_ONCE))
            pieces = _pieces(b"".join(map(exchange.encoded, part)) for part in parts)
            return await self.send(request, web.StreamResponse(headers={"Content-Type": LINES, **_age(age)}), pieces)

    async def _compact(self, request: web.Request, who: Identity, one: Credential | None, _wanted: dict[str, Any]) -> web.StreamResponse:
        if await request.read():
            raise Invalid("body", "something", "no body for POST /v1/compact")
        return _json(200, write(await self.admitted(one, self.registry.compact)))

    async def _metrics(self, request: web.Request, who: Identity, one: Credential | None, _wanted: dict[str, Any]) -> web.StreamResponse:
        text = await self.admitted(one, rendered, self.figures, self.registry, self.waiting)
        return web.Response(text=text, content_type=TEXT)

    async def _healthz(self, request: web.Request, who: Identity, one: Credential | None, _wanted: dict[str, Any]) -> web.StreamResponse:
        await self.admitted(one, self.registry.store.get, "ledger")
        return web.Response(text="ok\n", content_type=TEXT)


# -- pieces and headers


async def _pieces(source: Iterable[bytes]) -> Pieces:
    """Give pieces that are there, one after the other."""
    for piece in source:
        yield piece


def _age(seconds: float) -> dict[str, str]:
    """Give the header that says since when the store cannot say whether it is so still; none for 0 (RFC 9111, 5.1)."""
    return {"Age": str(math.ceil(seconds))} if seconds else {}


def _of(request: web.Request) -> Connection:
    """Give the connection of a request."""
    return cast("Connection", request.protocol)


def _route(request: web.Request) -> str:
    """Give the name of the route that a request has taken; "" for none."""
    return request.match_info.route.name or "" if request.match_info.http_exception is None else ""


def _match(request: web.Request) -> str:
    """Give what If-Match says, without the quotes of an entity tag."""
    text = request.headers.get("If-Match", "").strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _etag(revision: str) -> dict[str, str]:
    return {"ETag": f'"{revision}"'} if revision else {}


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _json(status: int, value: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=_encoded(value), content_type="application/json", headers=headers)


def _problem(problem: dict[str, Any], headers: dict[str, str]) -> web.Response:
    kind = str(problem["type"]).rpartition("/")[2]
    if "retry_after" in problem:
        headers["Retry-After"] = str(problem["retry_after"])
    elif kind in ("busy", "waiting", "unsure"):
        headers["Retry-After"] = "1"
    return web.Response(status=problem["status"], body=_encoded(problem), content_type=PROBLEM, headers=headers)


def _kind(kind: str) -> dict[str, Any]:
    if kind not in KINDS:
        raise Refused("missing", f"there is no such problem; there are {', '.join(KINDS)}")
    return {**Refused(kind, KINDS[kind][1]).problem()}
