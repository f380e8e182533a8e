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
    from collections.abc import Callable, Mapping

    from netregistry.service.metrics import Figures
    from netregistry.service.registry import Log

PROBLEM = "application/problem+json"
SHOWN = 200  #: characters of what was wrong
#: What is nobody's fault but that of who asks: the connection is gone, or a body is not what its headers say.
THEIRS = (ConnectionError, web.RequestPayloadError, web.PayloadAccessError)


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
    """

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, figures: Figures, log: Log, looks: bool = False) -> None:
        super().__init__(server, loop=loop, access_log=None)  # type: ignore[arg-type]  # None for no such log
        self._figures, self._lines = figures, log
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
        """Take in what has come. What aiohttp's own parser lets its URLs raise (3.8, Debian 12's) is answered as all that is no HTTP."""
        try:
            super().data_received(data)
        except ValueError as error:
            self._figures.answered("none", 400)
            if isinstance(self.transport, asyncio.WriteTransport):
                self.transport.write(refusal(Refused("invalid", f"that is no request of HTTP: {escaped(error, SHOWN)}")))
                self.transport.close()

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
