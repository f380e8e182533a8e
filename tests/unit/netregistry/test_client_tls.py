"""The client by TLS against a service that is none: what drips, and who shows another's certificate."""

from __future__ import annotations

import gc
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netregistry.authority import x509
from netregistry.client import Client
from netregistry.credentials import trusting
from netregistry.reach import Places, TlsPlace
from runtime.errors import NetcommonError

AUTHORITY = x509.make_authority(time.time())


@contextmanager
def dripping(folder: Path, name: str) -> Iterator[Client]:
    """Answer a byte now and then, with a certificate for ``name``; give a client of it."""
    pem, _until = x509.make_service([name], AUTHORITY.authority, AUTHORITY.key, time.time())
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
        place = TlsPlace("localhost", listener.getsockname()[1], lambda: trusting(text=AUTHORITY.authority.certificate))
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


def test_nothing_is_left_open_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not until the garbage is collected: an error holds nothing that was open."""
    monkeypatch.setattr("netregistry.client.SILENT", 0.5)
    gc.collect()
    gc.disable()
    try:
        with dripping(tmp_path, "localhost") as client:
            with pytest.raises(NetcommonError):
                client.get("nics")
            with pytest.raises(NetcommonError):
                list(client.watch("aaaaaaaa-0000-4000-8000-000000000000"))
        assert [each for each in gc.get_objects() if isinstance(each, http.client.HTTPResponse | NetcommonError)] == []
    finally:
        gc.enable()
