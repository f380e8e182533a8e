"""Whoever speaks no HTTP, leaves in the middle or takes nothing is no fault of the service, and keeps nobody waiting."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from netregistry.service import serve
from netregistry.service.http import WHOLE
from netregistry.service.limits import Limits
from netregistry.service.streams import Channel
from netregistry.stores.sqlite import SqliteStore
from tests.support.netns import wait_until
from tests.support.registry import NODES
from tests.support.service import SECONDS, Served, served

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/networks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MALFORMED = {
    "version": b"GET /v1 HTTP/9.9\r\n" + HOST + b"\r\n",
    "header": b"GET /v1 HTTP/1.1\r\nHost x\r\n\r\n",
    "long line": b"GET /v1/" + b"a" * 20000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "address": b"GET http://[::1/v1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no HTTP": b"\x16\x03\x01\x00\xa5\r\n\r\n",
}


def opened(service: Served, data: bytes) -> socket.socket:
    """Connect as somebody who takes little at once, and send something."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(SECONDS)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(service.path)
    made.sendall(data)
    return made


def all_of(connection: socket.socket) -> bytes:
    """Read until the other side ends it."""
    found = b""
    try:
        while data := connection.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def ended(connection: socket.socket) -> bool:
    """Tell whether the other side has ended a connection of which nothing is read."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def nothing_is_said(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Look whether the service says of itself that it has a fault: in its log, its figures, or in that of its library."""
    assert service.say("GET", "/v1").status == 200
    assert service.service.figures.faults == 0 and not [line for line in service.log.lines if "Error" in line]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_http_is_a_problem_as_any_other(service: Served, what: str, caplog: pytest.LogCaptureFixture) -> None:
    with opened(service, MALFORMED[what]) as asking:
        head, _, body = all_of(asking).partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0] and b"Content-Type: application/problem+json" in head, head
    problem = json.loads(body)
    assert problem["status"] == 400 and problem["type"] == "/v1/problems/invalid" and len(problem["detail"]) < 400
    nothing_is_said(service, caplog)


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate, gzip", b"identity", b"x" * 200])
@pytest.mark.parametrize("target", [b"networks", b"nothing"])
def test_a_compressed_body_is_refused_before_any_of_it_has_come(
    service: Served, target: bytes, encoding: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A small one may be of any size, and is refused to those who may ask nothing too."""
    asked = POST.replace(b"networks", target) + b"Content-Encoding: " + encoding + b"\r\nContent-Length: 500\r\n\r\n"
    with opened(service, asked) as asking:
        head = b""
        while b"\r\n\r\n" not in head:
            head += asking.recv(1 << 16)
        asking.shutdown(socket.SHUT_WR)
        body = head.partition(b"\r\n\r\n")[2] + all_of(asking)
    assert b" 415 " in head.splitlines()[0] and b"Accept-Encoding: identity" in head and b"Connection: close" in head, head
    problem = json.loads(body)
    assert problem["type"] == "/v1/problems/media" and "Content-Encoding" in problem["detail"] and len(problem["detail"]) < 200
    nothing_is_said(service, caplog)


def test_who_leaves_in_the_middle_of_a_request_is_no_fault(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    before = service.everything()
    for data in (POST + b'Content-Length: 100\r\n\r\n{"name":"a"}', POST + b"Transfer-Encoding: chunked\r\n\r\n4\r\n", POST):
        opened(service, data).close()
    wait_until(lambda: service.say("GET", "/v1").status == 200, 10, "an answer")
    nothing_is_said(service, caplog)
    assert service.everything() == before


@pytest.mark.parametrize("target", ["backup", "export"])
def test_who_takes_nothing_is_cut_off(tmp_path: Path, target: str, caplog: pytest.LogCaptureFixture) -> None:
    with served(tmp_path, Limits(sending=0.2), SqliteStore.create(str(tmp_path / "registry.sqlite"), "first")) as service:
        many_nics(service)
        with opened(service, f"GET /v1/{target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) as asking:
            wait_until(lambda: ended(asking), 10, "the end of the connection")
            assert not all_of(asking).endswith(b"\r\n0\r\n\r\n"), "who was cut off sees it"
        nothing_is_said(service, caplog)


def many_nics(service: Served, role: str = "") -> None:
    """Make NICs of a megabyte, more than goes out to who reads nothing."""
    tags = [f"{number}{'x' * 100}" for number in range(100)]
    parts = [{"action": "nic.add", "body": {"instance": "web", "index": index, "tags": tags}} for index in range(30)]
    for _ in range(4):
        service.client(role).change("POST", "batch", {"parts": parts})


def waits(channel: Channel) -> Callable[[], bool]:
    """Give what tells whether a stream waits for who hears it: nothing of it went out in the latest looks, though there is more."""
    seen = deque[int](maxlen=20)

    def holds() -> bool:
        seen.append(channel.waiting)
        return len(seen) == 20 and len(set(seen)) == 1 and seen[0] > 0

    return holds


def test_a_stream_that_is_superseded_is_ended_at_once_though_nobody_reads_it(tmp_path: Path) -> None:
    """It was in no bound any more, and all that waited for it was kept, and went out, as slowly as it was taken."""
    with served(tmp_path, Limits(sending=1000.0)) as service:
        service.join(0)
        many_nics(service, f"node:{NODES[0]}")
        streams = service.service.registry.streams
        asked = (
            f"GET /v1/watch?node={NODES[0]}&incarnation={NODES[3]} HTTP/1.1\r\nHost: localhost\r\nNetcommon-Role: node:{NODES[0]}\r\n\r\n"
        )
        with opened(service, asked.encode()) as first:
            wait_until(lambda: streams.count == 1, 10, "a stream")
            (channel,) = streams.all()
            wait_until(waits(channel), 10, "that no more goes out")
            with opened(service, asked.encode()):
                wait_until(lambda: ended(first), 10, "the end of the first one")
                wait_until(
                    lambda: (streams.count, streams.nodes(), channel.waiting) == (1, {NODES[0]: NODES[3]}, 0), 10, "the second alone"
                )
            assert not all_of(first).endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("target", ["backup", "export"])
def test_one_identity_has_few_copies_of_the_whole_under_way(tmp_path: Path, target: str) -> None:
    """Each is in memory, or on the disk, as it was begun, for as long as who asked for it takes a little of it now and then."""
    with served(tmp_path, Limits(), SqliteStore.create(str(tmp_path / "registry.sqlite"), "first")) as service:
        many_nics(service)
        asking = f"GET /v1/{target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        with contextlib.ExitStack() as there:
            for _ in range(WHOLE):
                latest = there.enter_context(opened(service, asking))
                assert status(latest) == 200
            with opened(service, asking) as beyond:
                assert status(beyond) == 429
            others = asking.replace(b"\r\n\r\n", b"\r\nNetcommon-Role: operator:bob\r\n\r\n")
            assert status(there.enter_context(opened(service, others))) == 200
            latest.close()
            wait_until(lambda: status(there.enter_context(opened(service, asking))) == 200, 10, "room for another one")


def status(connection: socket.socket) -> int:
    """Read the status of an answer, and no more."""
    return int(connection.recv(12).partition(b" ")[2])


def test_nobody_keeps_the_service_from_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systemd would kill it after 30 seconds."""
    monkeypatch.setattr(serve, "ENDING", 0.3)
    with served(tmp_path) as service:
        half = opened(service, POST + b"Content-Length: 100\r\n\r\n{")
        wait_until(lambda: service.say("GET", "/v1").status == 200, 10, "an answer")
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    with half:
        assert all_of(half) == b""
