"""Let the other side of the socket say anything, or nothing: each of it is one event, and no thread is left.

The same holds for an agent's own session, in threads, and for that of a mock cloud's nodes, in the one thread of all of them.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mockcloud.replaced.scheduler import RealTime
from mockcloud.replaced.transport.session import Session as OneThread
from mockcloud.replaced.transport.sockets import Sockets
from netagent.sync.driver import Speaks
from netagent.sync.messages import Answered, Ended, Event, Failed, Hello, Line, List
from netagent.sync.session import Session
from tests.support.registry import NODES

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


@contextmanager
def saying(path: str, said: bytes, then: Callable[[socket.socket], None] = lambda _end: None) -> Iterator[None]:
    """Answer whoever comes with these bytes, and end."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(8)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                end, _who = listener.accept()
                with end:
                    if over.is_set():
                        return
                    end.recv(65536)
                    try:
                        end.sendall(said)
                        then(end)
                    except OSError:
                        pass  # whoever asked has gone

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(path)
            thread.join(10)
    assert not thread.is_alive()


THREADS, ONE = "threads", "one thread"


@pytest.fixture(params=[THREADS, ONE], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``session`` be by threads, and without them."""
    monkeypatch.setitem(HOW, "is", request.param)


HOW = {"is": ""}


@contextmanager
def session(path: str, crowded: Callable[[], bool] = lambda: False) -> Iterator[tuple[Speaks, Callable[[], Event]]]:
    heard: queue.Queue[tuple[Event, int]] = queue.Queue()
    given = path, NODES[0], NODES[1], lambda event, stream: heard.put((event, stream)), crowded
    if HOW["is"] == THREADS:
        one: Speaks = Session(*given)
        try:
            yield one, lambda: heard.get(timeout=20)[0]
        finally:
            one.close(10)
        return
    scheduler = RealTime(1)

    def next_event() -> Event:
        end = time.monotonic() + 20
        while heard.empty():
            assert time.monotonic() < end
            scheduler.passes(0.01)
        return heard.get()[0]

    before = threading.active_count()
    one = OneThread(Sockets(scheduler, path), scheduler.loop(), lambda _point: None, *given)
    try:
        yield one, next_event
        assert threading.active_count() == before
    finally:
        one.close(10)
        scheduler.close()


@pytest.mark.parametrize(
    ("said", "kind", "lie"),
    [
        (b"", "", False),
        (b"SSH-2.0-OpenSSH\r\n", "", False),
        (whole(b"<html>"), "", True),
        (whole(b"[" * 100_000), "", True),
        (whole(b"{}")[:-1], "", False),
        (whole(b'{"type": "/v1/problems/busy", "detail": "x"}', b"503 no"), "busy", False),
        (whole(b"no JSON", b"404 no"), "fault", False),
        (whole(b'{"type": 5}', b"400 no"), "5", False),
    ],
)
def test_an_answer(tmp_path: Path, said: bytes, kind: str, lie: bool) -> None:
    with saying(str(tmp_path / "s"), said), session(str(tmp_path / "s")) as (one, heard):
        one.ask(Hello())
        event = heard()
        assert isinstance(event, Failed) and (event.failure.kind, event.failure.lie) == (kind, lie), event


@pytest.mark.parametrize("page", [{}, {"items": 5, "next": "", "revision": "e:1"}, [], {"items": [], "next": 5}])
def test_a_list_that_is_none(tmp_path: Path, page: object) -> None:
    with saying(str(tmp_path / "s"), whole(json.dumps(page).encode())), session(str(tmp_path / "s")) as (one, heard):
        one.ask(List("reports"))
        event = heard()
        assert isinstance(event, Failed) and event.failure.lie


def test_a_list_without_end(tmp_path: Path) -> None:
    page = json.dumps({"items": ["x" * (1 << 20)], "next": "more", "revision": "e:1"}).encode()
    with saying(str(tmp_path / "s"), whole(page)), session(str(tmp_path / "s")) as (one, heard):
        one.ask(List("nics"))
        event = heard()
        assert isinstance(event, Failed) and event.failure.lie and "more than" in event.failure.text


@pytest.mark.parametrize(
    ("said", "lines", "lie"),
    [
        (chunk(b'{"event":"ready"}\n') + chunk(b'{"event":"en'), 1, False),
        (chunk(b'{"event":"ready"}\n') + b"0\r\n\r\n", 1, False),
        (chunk(b"nonsense\n"), 0, True),
        (chunk(b"x" * (5 << 20)), 0, False),
        (b"zz\r\n", 0, False),
    ],
    ids=["cut off in a line", "ended", "nonsense", "a line of 5 MB", "no chunks"],
)
def test_a_stream(tmp_path: Path, said: bytes, lines: int, lie: bool) -> None:
    """Tell what was whole; then that it is over."""
    with saying(str(tmp_path / "s"), CHUNKED + said), session(str(tmp_path / "s")) as (one, heard):
        one.watch("")
        for _ in range(lines):
            assert isinstance(heard(), Line)
        event = heard()
        assert isinstance(event, Ended) and event.failure.lie == lie, event


def test_who_has_too_much_to_do_is_told_no_more_until_then(tmp_path: Path) -> None:
    free = threading.Event()
    said = CHUNKED + chunk(b'{"event":"ready"}\n' * 3) + b"0\r\n\r\n"
    with saying(str(tmp_path / "s"), said), session(str(tmp_path / "s"), lambda: not free.is_set()) as (one, heard):
        one.watch("")
        free.set()
        assert [type(heard()) for _ in range(4)] == [Line, Line, Line, Ended]


def test_nobody_there(tmp_path: Path) -> None:
    with session(str(tmp_path / "s")) as (one, heard):
        one.ask(Hello())
        assert isinstance(heard(), Failed)
        one.watch("")
        assert isinstance(heard(), Ended)


def test_an_answer_that_is_one(tmp_path: Path) -> None:
    with saying(str(tmp_path / "s"), whole(b'{"epoch": "e"}')), session(str(tmp_path / "s")) as (one, heard):
        one.ask(Hello())
        assert heard() == Answered({"epoch": "e"}, "")
