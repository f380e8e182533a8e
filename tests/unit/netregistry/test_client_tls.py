"""The client against a service that is none, or cannot do it: what drips, who shows another's certificate, and several addresses."""

from __future__ import annotations

import gc
import http.client
import http.server
import json
import socket
import socketserver
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from netregistry.authority import x509
from netregistry.client import Client, Problem
from netregistry.credentials import trusting
from netregistry.reach import Places, TlsPlace, UnixPlace
from runtime.errors import NetcommonError

AUTHORITY = x509.make_authority(time.time())


@contextmanager
def dripping(folder: Path, name: str, authority: x509.Made = AUTHORITY, now: float = 0.0) -> Iterator[Client]:
    """Answer a byte now and then, with a certificate for ``name`` that is made ``now``; give a client of it."""
    pem, _until = x509.make_service([name], authority.authority, authority.key, now or time.time())
    path = folder / "service.pem"
    path.write_text(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    over = threading.Event()

    def serve(end: socket.socket) -> None:
        with end:
            try:
                with context.wrap_socket(end, server_side=True) as made:
                    made.recv(65536)
                    while not over.wait(0.05):
                        made.sendall(b"H")
            except OSError:
                pass  # whoever asked has gone

    def accept(listener: socket.socket) -> None:
        while not over.is_set():
            serve(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,), daemon=True)
        thread.start()
        place = TlsPlace("localhost", listener.getsockname()[1], lambda: trusting(text=authority.authority.certificate))
        try:
            with Client(Places([place]), seconds=1.0) as client:
                yield client
        finally:
            over.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join(10)


def test_an_answer_that_drips_is_waited_for_no_longer_than_another(tmp_path: Path) -> None:
    with dripping(tmp_path, "localhost") as client:
        begun = time.monotonic()
        with pytest.raises(NetcommonError, match=r"too slowly|timed out"):
            client.get("nics")
        assert 0.9 < time.monotonic() - begun < 5


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    with dripping(tmp_path, "other.example.com") as client, pytest.raises(NetcommonError, match=r"for other names: \[registry\] names"):
        client.get("nics")


def test_an_authority_that_was_made_while_the_clock_was_fast_is_made_anew(tmp_path: Path) -> None:
    """No clock that is right helps."""
    then = time.time() + 3e8
    with dripping(tmp_path, "localhost", x509.make_authority(then), then) as client, pytest.raises(NetcommonError) as caught:
        client.get("nics")
    assert "begins later" in str(caught.value) and "netcommon registry authority rotate" in str(caught.value)


def test_nothing_is_left_open_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not until the garbage is collected: an error holds nothing that was open."""
    monkeypatch.setattr("netregistry.client.SILENT", 0.5)

    def left() -> list[Any]:
        return [each for each in gc.get_objects() if isinstance(each, http.client.HTTPResponse | NetcommonError)]

    gc.collect()
    before = left()  # other tests keep errors that they raise
    gc.disable()
    try:
        with dripping(tmp_path, "localhost") as client:
            with pytest.raises(NetcommonError):
                client.get("nics")
            with pytest.raises(NetcommonError):
                list(client.watch("aaaaaaaa-0000-4000-8000-000000000000"))
        assert [each for each in left() if not any(each is other for other in before)] == []
    finally:
        gc.enable()


@contextmanager
def unable(kind: str) -> Iterator[tuple[UnixPlace, list[str]]]:
    """Be a service that answers everything with 503; give where it is, and what it was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            self.rfile.read(length)
            asked.append(self.headers.get("Idempotency-Key", ""))
            body = json.dumps({"type": f"/v1/problems/{kind}", "status": 503, "detail": kind} if kind else {}).encode()
            self.send_response(503 if kind else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def address_string(self) -> str:
            return ""

    with tempfile.TemporaryDirectory() as folder, socketserver.ThreadingUnixStreamServer(f"{folder}/socket", Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield UnixPlace(f"{folder}/socket"), asked
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (("unavailable", ""), ""),
        (("unavailable", "unavailable", ""), ""),
        (("unsure", "unavailable"), "unsure"),
        (("unavailable", "unsure"), "unsure"),
        (("unavailable", "waiting"), "waiting"),
        (("unavailable",), "unavailable"),
    ],
)
def test_what_one_service_cannot_do_another_one_is_asked_for(kinds: tuple[str, ...], told: str) -> None:
    """Once each, with the same id; who was of use is asked first from then on, and what may be done is told as that."""
    with ExitStack() as stack:
        made = [stack.enter_context(unable(kind)) for kind in kinds]
        client = stack.enter_context(Client(Places(place for place, _asked in made), seconds=5.0))
        if told:
            with pytest.raises(Problem) as refused:
                client.change("POST", "networks", {})
            assert refused.value.kind == told
            with pytest.raises(Problem):
                list(client.export())
        else:
            client.change("POST", "networks", {})
            client.get("nics")
        every = [asked for _place, asked in made]
        assert len({asked[0] for asked in every}) == 1 and every[0][0], "the id lets it be done once"
        assert [len(asked) for asked in every] == ([1] * (len(kinds) - 1) + [2] if not told else [2] * len(kinds))
