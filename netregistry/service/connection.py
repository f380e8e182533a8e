"""Answer what cannot be read as HTTP as everything else is answered: by a problem, and without a traceback in the log."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from netregistry.model.certificate import URN
from netregistry.refusal import Refused
from netregistry.service import cut_off
from runtime.errors import escaped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import StreamReader

    from netregistry.service.metrics import Figures
    from netregistry.service.registry import Log

PROBLEM = "application/problem+json"
SHOWN = 200  #: characters of what was wrong
PIECE = 2 << 10  #: bytes that are parsed at once: what a request takes that waits is some fifty times what it was sent as
#: Bytes of a message beside its body: head, sizes of chunks, trailers. aiohttp 3.8 keeps some forty times as much, and has no bound.
BESIDE = 16 << 10
#: What is nobody's fault but that of who asks: the connection is gone, or a body is not what its headers say.
THEIRS = (ConnectionError, web.RequestPayloadError, web.PayloadAccessError, Refused)


def refusal(refused: Refused) -> bytes:
    """Give a whole answer for a connection that is ended, whatever is, or would be, asked on it."""
    problem = refused.problem()
    body = json.dumps(problem, separators=(",", ":")).encode("ascii")
    fields = {"Content-Type": PROBLEM, "Content-Length": len(body), "Connection": "close"}
    if "retry_after" in problem:
        fields["Retry-After"] = problem["retry_after"]
    lines = [f"HTTP/1.1 {refused.code} {problem['title']}", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("ascii") + body


class Connection(web.RequestHandler):
    """One connection of a service's. ``gone``: called when it has ended; ``known``: when its certificate was found to count.

    ``looks``: nothing but pages is asked for on it, by somebody who looks alone.

    ``secured``: it is by TLS, for as long as it lasts, whatever becomes of its transport; ``certificate``: of the client, as
    ssl.SSLSocket.getpeercert gives it, and ``encoded``: DER. Both are empty where it shows none. ``recognised``: it is known to be
    signed by the authority that it names.

    No body is inflated, and what is sent behind a request is parsed when that is answered; until then little of it is taken from the
    socket. What a message has beside its body is bounded (BESIDE). aiohttp 3.8 (Debian 12's) has no such bounds of its own: it inflates
    without end, parses request upon request, and keeps any number of header fields and trailers.
    """

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, figures: Figures, log: Log, looks: bool = False) -> None:
        super().__init__(server, loop=loop, access_log=None, auto_decompress=False)  # type: ignore[arg-type]  # None for no such log
        self._figures, self._lines, self._ahead, self._held = figures, log, bytearray(), False
        self._parsed, self._over = 0, False  # bytes since the latest head was complete; nothing more is parsed
        self._body: StreamReader | None = None  # of the message with that head
        self.gone: Callable[[], object] = lambda: None
        self.known: Callable[[], object] = lambda: None
        self.looks, self.secured, self.recognised, self.encoded = looks, False, False, b""
        self.certificate: Mapping[str, Any] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note who is at the other end."""
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.secured, self.certificate, self.encoded = True, tls.getpeercert() or {}, tls.getpeercert(binary_form=True) or b""
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take in what has come."""
        if not data:
            self._parse(data)  # aiohttp's own: it goes on with what it has itself
        if not self._over:
            self._ahead += data
        self._go_on()

    def _go_on(self) -> None:
        """Parse what belongs to the present request, or begins the next one; the rest waits, and nothing more is read meanwhile."""
        while self._ahead and not self._answering:
            piece = bytes(self._ahead[:PIECE])
            del self._ahead[:PIECE]
            self._parse(piece)
        transport = self.transport
        if transport is None or transport.is_closing():
            self._ahead.clear()
        elif self._ahead:
            transport.pause_reading()
            self._held = True
        elif self._held:
            self._held = False
            if not self._reading_paused and not getattr(self, "_buffer_paused", False):  # aiohttp's own reasons; the second is new
                transport.resume_reading()

    @property
    def _answering(self) -> bool:
        """Tell whether a request waits that is parsed, or one is answered that has come whole."""
        present = self._current_request
        return bool(self._messages) or (present is not None and present.content.is_eof())

    def _parse(self, data: bytes) -> None:
        """Parse, and end the connection of who sends too much that is no body.

        What aiohttp's own parser lets its URLs raise (3.8, Debian 12's) is answered as all that is no HTTP.
        """
        try:
            super().data_received(data)
        except ValueError as error:
            self._refuse(Refused("invalid", f"that is no request of HTTP: {escaped(error, SHOWN)}"))
            return
        if self._messages:
            before, self._parsed, self._body = self._body, 0, self._messages[-1][1]
            if before is not None and before is not self._body and not before.is_eof():
                before.set_exception(web.RequestPayloadError())  # an error behind its head, of which its reader would not be told
            return
        self._parsed += len(data)
        grown = self._body.total_bytes if self._body is not None else 0
        # while nobody takes a body, later versions of aiohttp keep some of it that they have not parsed
        if self._parsed - grown > BESIDE and not self._reading_paused:
            what = "its head" if self._body is None or self._body.is_eof() else "the sizes of its chunks, and trailers,"
            self._refuse(Refused("invalid", f"a request has at most {BESIDE} bytes beside its body: more of {what} has come"))

    def _refuse(self, refused: Refused) -> None:
        """Refuse what is being received, and take no more: whoever reads its body is told so, and else the other side at once."""
        self._over = True
        self._ahead.clear()
        if self._body is not None and not self._body.is_eof():  # it may be answered already, and is ended behind that
            self._body.set_exception(refused)
            return
        self._figures.answered("none", refused.code)
        if isinstance(self.transport, asyncio.WriteTransport) and not self.transport.is_closing():
            self.transport.write(refusal(refused))
            self.transport.close()

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        self._go_on()  # its body may be among what waits
        return await super()._handle_request(request, start_time, request_handler)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send what is left of an answer; the next request comes then. The result is aiohttp's own, and of another type in 3.8."""
        found = await super().finish_response(request, resp, start_time)
        self._go_on()
        return found

    @property
    def whose(self) -> tuple[str, str]:
        """Give who shows the certificate ("" where none of our names says it), and its serial number. No look at whether it counts."""
        names = (text for kind, text in self.certificate.get("subjectAltName", ()) if kind == "URI" and text.startswith(URN))
        return next(names, ""), str(self.certificate.get("serialNumber", ""))

    def silent(self) -> bool:
        """Tell whether the other side's machine answers nothing that it is sent. For any thread."""
        transport = self.transport
        return transport is None or (self.secured and cut_off.silent(transport.get_extra_info("socket")))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note that the connection has ended."""
        super().connection_lost(exc)
        self._ahead.clear()
        self.gone()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a request that cannot be read, and end the connection; so where a handler has failed. Raises ConnectionError."""
        if isinstance(exc, THEIRS):
            raise ConnectionError("the connection is gone, or nothing of it can be read") from exc
        if status >= 500:
            self.log_exception("no answer", exc_info=exc)
            refused = Refused("fault", "the service has a fault, and its log says which")
        else:
            what = (message or "").partition("\n")[0].rstrip(":")
            refused = Refused("invalid", f"that is no request of HTTP: {escaped(what[:SHOWN])}")
        self._figures.answered("none", refused.code)
        response = web.Response(status=refused.code, body=json.dumps(refused.problem()).encode("ascii"), content_type=PROBLEM)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a fault of the service in one line; what the other side has done is none."""
        error = kw.get("exc_info")
        if not isinstance(error, THEIRS):
            self._figures.faults += 1
            self._lines.error(f"{args[0]}: {error!r}")
