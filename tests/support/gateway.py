"""Stand between a registry and an etcd, and harm what that answers: a proxy that has a page of its own, a cable that is cut."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

HOST = "127.0.0.1"


class Answer(NamedTuple):
    """An answer, or with ``line`` one line of a stream. ``cut``: so many bytes of it come, and the connection ends."""

    status: int
    kind: str
    data: bytes
    cut: int = -1


Harm = Callable[[str, Answer], Answer]


class Gateway:
    """A gateway before one member, whose client port is ``to``. ``harm``: makes of path and answer what is answered; None: as it is."""

    def __init__(self, to: int) -> None:
        self.harm: Harm | None = None
        self.asked: list[str] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                gateway.answer(self, to)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def answer(self, handler: BaseHTTPRequestHandler, to: int) -> None:
        """Pass one request on, and its answer back."""
        self.asked.append(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        names = ("Content-Type", "Authorization", "Grpc-Metadata-hasleader")
        headers = {name: handler.headers[name] for name in names if name in handler.headers}
        with contextlib.closing(http.client.HTTPConnection(HOST, to, timeout=30)) as behind, contextlib.suppress(OSError):
            behind.request("POST", handler.path, body, headers)
            response = behind.getresponse()
            kind = response.headers.get("Content-Type", "")
            if handler.path == "/v3/watch":
                self._streamed(handler, response, kind)
            else:
                self._whole(handler, Answer(response.status, kind, response.read()))

    def _whole(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        answer = self.harm(handler.path, answer) if self.harm else answer
        handler.send_response(answer.status)
        handler.send_header("Content-Type", answer.kind)
        handler.send_header("Content-Length", str(len(answer.data)))
        handler.end_headers()
        handler.wfile.write(answer.data if answer.cut < 0 else answer.data[: answer.cut])
        if answer.cut >= 0:
            ended(handler)

    def _streamed(self, handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse, kind: str) -> None:
        handler.close_connection = True
        begun = False
        while line := response.readline():
            answer = Answer(response.status, kind, line)
            answer = self.harm(handler.path, answer) if self.harm else answer
            if not begun:
                handler.send_response(answer.status)
                handler.send_header("Content-Type", answer.kind)
                handler.end_headers()
                begun = True
            handler.wfile.write(answer.data if answer.cut < 0 else answer.data[: answer.cut])
            handler.wfile.flush()
            if answer.cut >= 0:
                break
        ended(handler)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def ended(handler: BaseHTTPRequestHandler) -> None:
    """End a connection where it is."""
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def gateway(to: int) -> Iterator[Gateway]:
    made = Gateway(to)
    try:
        yield made
    finally:
        made.close()
