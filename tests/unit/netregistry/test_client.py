"""What a client makes of a service that ends in the middle of an answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netregistry import client as module
from netregistry.client import Client, Garbled
from runtime.errors import TryAgain

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000)
LINE = b'{"event":"ready"}\n'
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(LINE), LINE)
ASKED: dict[str, Callable[[Client], Any]] = {
    "backup": lambda client: client.backup(),
    "export": lambda client: client.export(),
    "watch": lambda client: client.watch("aaaaaaaa-0000-4000-8000-000000000000"),
}


def heard(folder: Path, what: str, answer: bytes) -> list[Any]:
    """Ask somebody who answers just this, and hangs up."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen(1)

        def serve() -> None:
            connection, _address = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return list(ASKED[what](Client(str(folder / "socket"))))
        finally:
            thread.join()


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("left", [5, 6, 9, 12, 24])
def test_a_service_that_ends_in_the_middle_has_not_given_all(tmp_path: Path, what: str, left: int) -> None:
    """A part of a copy is no copy: it was taken for one."""
    whole = WHOLE if what == "backup" else CHUNKS
    assert heard(tmp_path, what, whole)
    (tmp_path / "socket").unlink()
    with pytest.raises(TryAgain, match="cut off"):
        heard(tmp_path, what, whole[:-left])


HEADS = [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 500 no\r\n\r\n"]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def drip(folder: Path, head: bytes, drop: bytes) -> Iterator[str]:
    """Answer everybody with the head, and then with drop after drop, none of which is late, until the end."""
    over = threading.Event()
    path = str(folder / "socket")

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(head)
                while not over.wait(0.05):
                    connection.sendall(drop)
            except OSError:
                pass  # who asked has gone

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(8)
        listening.settimeout(0.1)
        serving = [threading.Thread(target=lambda: accepting(listening, serve, over))]
        serving[0].start()
        try:
            yield path
        finally:
            over.set()
            serving[0].join()


def accepting(listening: socket.socket, serve: Callable[[socket.socket], None], over: threading.Event) -> None:
    threads = []
    while not over.is_set():
        try:
            connection, _address = listening.accept()
        except TimeoutError:
            continue
        threads.append(threading.Thread(target=serve, args=(connection,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("head", HEADS, ids=["nothing", "no length", "length", "problem"])
def test_an_answer_that_drips_is_waited_for_no_longer_than_another(tmp_path: Path, head: bytes) -> None:
    with drip(tmp_path, head, b"x") as path:
        begun = time.monotonic()
        with pytest.raises(TryAgain, match="has not answered"):
            Client(path, seconds=0.5).get("nodes")
        assert time.monotonic() - begun < 3


@pytest.mark.parametrize("head", [*HEADS, CHUNKED], ids=["nothing", "no length", "length", "problem", "chunks"])
def test_a_stream_that_drips_is_over(tmp_path: Path, head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has to be whole some time, such as the sign of life."""
    monkeypatch.setattr(module, "SILENT", 0.5)
    with drip(tmp_path, head, b"1\r\n{\r\n") as path:
        begun = time.monotonic()
        with pytest.raises(TryAgain):
            list(Client(path, seconds=0.5).watch("aaaaaaaa-0000-4000-8000-000000000000"))
        assert time.monotonic() - begun < 3


def test_a_stream_that_goes_on_is_not_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT", 0.5)
    with drip(tmp_path, CHUNKED, b"12\r\n%s\r\n" % LINE) as path:
        lines = Client(path).watch("aaaaaaaa-0000-4000-8000-000000000000")
        assert [next(lines) for _ in range(30)] == [{"event": "ready"}] * 30, "one and a half seconds"
        lines.close()


@pytest.mark.parametrize("head", [HEADS[1], HEADS[1][:-2] + b"Content-Length: 9000000000\r\n\r\n", CHUNKED + b"fffffffff\r\n"])
def test_an_answer_without_end_is_none(tmp_path: Path, head: bytes) -> None:
    with drip(tmp_path, head, b" " * (1 << 18)) as path, pytest.raises(Garbled, match="more than"):
        Client(path, longest=1 << 20).get("nodes")
