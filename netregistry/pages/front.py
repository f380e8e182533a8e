"""Serve the pages by HTTP: their paths, who may look, what goes with each of them, and the stream by which they stay as the registry is."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web

from netregistry.model import kinds
from netregistry.model.codec import Text
from netregistry.pages import html, live, past, sheets
from netregistry.pages.entries import Link
from netregistry.pages.live import BEAT, EACH, LOST, MOST, PACE, Hearer, Hearers
from netregistry.pages.sheets import ROWS, Sheet, Sheets
from netregistry.refusal import Refused
from netregistry.service import filters
from netregistry.service.filters import Param
from runtime.errors import NetcommonError
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from netregistry.model.certificate import Credential
    from netregistry.service.http import Service

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HTML, EVENTS = "text/html", "text/event-stream"
#: What goes with everything: no page takes a script, a style or anything else but from here, is shown within another site's, or told it.
HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
#: Paths that are never a page's, whatever becomes of them.
PLAIN = ("/v1", "/healthz", "/metrics")


def _topic(text: str) -> str:
    kind, slash, uuid = text.partition("/")
    if text not in live.LISTS and not (kind in ("nics", "nodes", "networks") and slash and is_uuid(uuid)):
        raise ValueError
    return text


def _request(text: str) -> str:
    found = text.lower()
    if not is_uuid(found) or found[14] != "7":
        raise ValueError
    return found


LIVE = (
    Param("about", Annotated[str, Text(_topic, f"one of {', '.join(live.LISTS)}, or nics/UUID, nodes/UUID, networks/UUID")], "what", True),
    Param("at", kinds.NameOrNone, "the revision that is shown"),
)
HISTORY = (Param("before", Annotated[str, Text(_request, "a request's id, a UUID of version 7")], "requests before this one"),)


class Pages:
    """The pages of one service."""

    def __init__(self, service: Service) -> None:
        self._service, self._registry = service, service.registry
        self._sheets, self._hearers = Sheets(service.registry), Hearers()
        self._shares: Counter[tuple[str, str]] = Counter()  # who has how many live pages
        self._ending = asyncio.Event()
        service.registry.add(self._hearers)

    def add_to(self, application: web.Application) -> None:
        """Add the paths of the pages."""
        made = self._sheets
        lists: dict[str, tuple[Callable[..., Sheet], tuple[Param, ...]]] = {
            "/": (lambda _wanted: made.overview(), ()),
            "/nics": (made.nics, sheets.NICS),
            "/nodes": (made.nodes, sheets.NODES),
            "/networks": (made.networks, sheets.NETWORKS),
            "/conflicts": (made.conflicts, sheets.CONFLICTS),
            "/find": (made.find, sheets.FIND),
        }
        handlers: dict[str, Handler] = {path: partial(self._list, *what) for path, what in lists.items()}
        for path, one in (("/nics", made.nic), ("/nodes", made.node), ("/networks", made.network)):
            handlers[f"{path}/{{uuid}}"] = partial(self._one, one)
            handlers[f"{path}/{{uuid}}/history"] = self._history
        handlers |= {"/history": self._history, "/live": self._live, "/static/{name}": self._static}
        for path, handler in handlers.items():
            application.router.add_route("GET", path, handler, name=f"page.{path.strip('/') or 'overview'}".translate(_NAMES))

    def refused(self, request: web.Request, refused: Refused) -> web.Response | None:
        """Give a page that says why there is none; None for who has asked for no page."""
        match = request.match_info
        name = match.route.name if match.http_exception is None else ""
        asked = (name or "").startswith("page") or HTML in request.headers.get("Accept", "")
        if not asked or request.path == "/v1" or request.path.startswith(tuple(f"{path}/" for path in PLAIN)) or request.path in PLAIN:
            return None
        problem = refused.problem()
        sheet = Sheet("error", problem["title"], "", {"status": refused.code, "detail": refused.detail})
        headers = {"Retry-After": str(problem["retry_after"])} if "retry_after" in problem else {}
        return self._shown(sheet, 0.0, "", refused.code, headers)

    def stop(self) -> None:
        """End the streams of open pages."""
        self._ending.set()
        self._hearers.wake()

    # -- pages

    async def _list(self, make: Callable[[Mapping[str, Any]], Sheet], params: tuple[Param, ...], request: web.Request) -> web.Response:
        _who, one = await self._service.let_in(request, "pages")
        wanted = _given(params, request)
        return self._shown(*await self._service.admitted(one, self._made, partial(make, wanted)))

    async def _one(self, make: Callable[[str], Sheet], request: web.Request) -> web.Response:
        _who, one = await self._service.let_in(request, "pages")
        _given((), request)
        return self._shown(*await self._service.admitted(one, self._made, partial(make, request.match_info["uuid"])))

    async def _history(self, request: web.Request) -> web.Response:
        _who, one = await self._service.let_in(request, "pages")
        before, uuid = _given(HISTORY, request).get("before", ""), request.match_info.get("uuid", "")
        if uuid and not is_uuid(uuid):
            raise Refused("missing", f"there is no history of {uuid!a:.80}")

        def begun() -> tuple[Link, float, str, float]:
            age, view = self._registry.catch_up(), self._registry.local.view
            return self._sheets.named(uuid), self._sheets.floor(uuid), f"{view.epoch}:{view.revision}", age

        named, floor, revision, age = await self._service.admitted(one, begun)
        look = partial(self._service.admitted, one, self._registry.reader.history)
        found = await past.looked_back(look, {"target": uuid} if uuid else {}, before, time.time(), floor, ROWS)
        title, topic = (f"History of {named.name}", request.path[1:].removesuffix("/history")) if uuid else ("History", "history")
        entries = await self._service.admitted(one, self._sheets.done, found.entries)
        values = {"entries": entries, "named": named, "uuid": uuid, "path": request.path, "before": before, "further": found.before}
        return self._shown(Sheet("history", title, "" if before else topic, values), age, revision)

    def _made(self, make: Callable[[], Sheet]) -> tuple[Sheet, float, str]:
        """Give what a page says, for how many seconds nobody knows whether it is so, and its revision. In the registry's turn."""
        age, view = self._registry.catch_up(), self._registry.local.view
        return make(), age, f"{view.epoch}:{view.revision}"

    def _shown(self, sheet: Sheet, age: float, revision: str, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
        around = {"sheet": sheet, "age": math.ceil(age), "revision": revision, "version": self._service.version, "now": time.time()}
        body = html.rendered(sheet.template, {**sheet.values, **around, "lost": LOST})
        old = {"Age": str(math.ceil(age))} if age else {}
        more = {"Cache-Control": "no-store", **HEADERS, **old, **(headers or {})}
        return web.Response(status=status, body=body, content_type=HTML, charset="utf-8", headers=more)

    async def _static(self, request: web.Request) -> web.Response:
        await self._service.let_in(request, "pages")
        name = request.match_info["name"]
        found = html.static(name)
        if found is None:
            raise Refused("missing", f"there is no {request.path!a:.200}")
        tag = f'"{hashlib.sha256(found).hexdigest()[:32]}"'
        headers = {"Cache-Control": "no-cache", "ETag": tag, **HEADERS}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=found, content_type=html.TYPES[name], charset="utf-8", headers=headers)

    # -- live

    async def _live(self, request: web.Request) -> web.StreamResponse:
        who, credential = await self._service.let_in(request, "pages")
        wanted = _given(LIVE, request)
        whose = who.role, who.name or who.origin
        if credential is not None and self._shares[whose] >= EACH:
            raise Refused("too-many", f"{EACH} pages of {who.role} {who.name!a:.80} are live already: close some", retry_after=10)
        if len(self._hearers) >= MOST:
            raise Refused("too-many", f"{MOST} pages are told of changes already: close some", retry_after=10)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        hearer = Hearer(wanted["about"], wake)
        self._hearers.add(hearer)
        self._shares[whose] += 1
        try:
            headers = {"Content-Type": EVENTS, "Cache-Control": "no-store", **HEADERS}
            events = self._events(news, wanted.get("at", ""), credential)
            return await self._service.send(request, web.StreamResponse(headers=headers), events)
        finally:
            self._hearers.remove(hearer)
            self._shares -= Counter((whose,))  # what is nothing any more goes

    async def _events(self, news: asyncio.Event, at: str, credential: Credential | None) -> AsyncGenerator[bytes, None]:
        """Give what an open page is told, until its certificate counts no more or the service stops.

        ``at``: the revision that it shows.
        """
        loop = asyncio.get_running_loop()
        beaten = told = float("-inf")
        while not self._ending.is_set():
            if loop.time() >= beaten + BEAT:
                try:
                    age, revision = await self._service.turn(self._beat, credential, own=True)
                except NetcommonError:
                    return
                if beaten < 0 and revision != at:
                    news.set()
                beaten = loop.time()
                yield f"event: beat\ndata: {math.ceil(age)}\n\n".encode("ascii")
            if news.is_set() and loop.time() >= told + PACE:
                news.clear()
                told = loop.time()
                yield b"event: changed\ndata:\n\n"
            waiting = self._ending if news.is_set() else news
            due = min(beaten + BEAT, told + PACE) if news.is_set() else beaten + BEAT
            try:
                async with asyncio.timeout(max(due - loop.time(), 0.01)):
                    await waiting.wait()
            except TimeoutError:
                continue

    def _beat(self, credential: Credential | None) -> tuple[float, str]:
        """Give the age of the view, and its revision. Raises Refused where the certificate counts no more. In the registry's turn."""
        age, view = self._registry.catch_up(), self._registry.local.view
        if credential is not None:
            self._registry.admit(credential)
        return age, f"{view.epoch}:{view.revision}"


#: What the name of a route has no use for.
_NAMES = str.maketrans({"/": ".", "{": None, "}": None})


def _given(params: tuple[Param, ...], request: web.Request) -> dict[str, Any]:
    """Read a query, as a form sends it: a field that is empty says nothing. Raises Invalid."""
    return filters.given(params, ((name, text) for name, text in request.query.items() if text))
