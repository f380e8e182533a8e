"""A member that answers, but not as etcd does: a byte now and then, or to a password that is not the one of before."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netregistry.stores import etcd_pace
from netregistry.stores.base import Unavailable, Unknown
from netregistry.stores.etcd_client import Client
from netregistry.stores.etcd_place import Endpoint, Place
from runtime.errors import HostRefused

HOST = "127.0.0.1"
EACH = 0.5  #: seconds for the member
PROMPT = 5.0  #: seconds in which it is told at the latest, on a machine that is busy
HEADER = {"header": {"cluster_id": "1", "member_id": "1", "revision": "1"}}

Answer = Callable[[socket.socket, str, Any, threading.Event], None]


@contextlib.contextmanager
def member(answer: Answer) -> Iterator[Place]:
    """Listen as a member does; ``answer``: answers one request (connection, path, body, the test's end)."""
    ended = threading.Event()
    with socket.create_server((HOST, 0)) as server:

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
                while first := lines.readline():
                    length = 0
                    while (line := lines.readline()) != b"\r\n":
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    answer(connection, first.split()[1].decode(), json.loads(lines.read(length)), ended)

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        try:
            yield Place((Endpoint(HOST, server.getsockname()[1]),))
        finally:
            ended.set()
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def whole(document: dict[str, Any], status: int = 200) -> bytes:
    data = json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data)


@pytest.mark.parametrize("where", ["head", "body"])
@pytest.mark.parametrize("again", [True, False])
def test_an_answer_that_drips_is_none(where: str, again: bool) -> None:
    """Each byte came in time: whoever had asked waited as long as there was one more."""

    def drips(connection: socket.socket, _path: str, _body: Any, ended: threading.Event) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
        connection.sendall(head + (b"\r\n" if where == "body" else b"X: "))
        for _ in range(200):
            if ended.wait(0.1):
                break
            connection.sendall(b" ")

    with member(drips) as place, contextlib.closing(Client(place, EACH, EACH)) as client:
        begun = time.monotonic()
        with pytest.raises(Unavailable if again else Unknown, match="no answer in time"):
            client.ask("/v3/kv/range", {}, lambda found: found, again)
        assert time.monotonic() - begun < PROMPT


def test_an_answer_that_is_long_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than a member is given, and comes on all the while."""
    monkeypatch.setattr(etcd_pace, "RATE", 1000)
    document = {**HEADER, "text": "x" * 5000}

    def long(connection: socket.socket, _path: str, _body: Any, ended: threading.Event) -> None:
        data = whole(document)
        for at in range(0, len(data), 500):
            ended.wait(0.1)
            connection.sendall(data[at : at + 500])

    with member(long) as place, contextlib.closing(Client(place, EACH, EACH)) as client:
        begun = time.monotonic()
        assert client.ask("/v3/kv/range", {}, lambda found: found) == document
        assert time.monotonic() - begun > EACH


def test_a_password_that_was_changed_is_read_again(tmp_path: Path) -> None:
    """The file is written anew while the client has a token, and etcd takes that no more."""
    now = ["first"]

    def knows(connection: socket.socket, path: str, body: Any, _ended: threading.Event) -> None:
        refused = {"code": 3, "message": "etcdserver: authentication failed, invalid user ID or password"}
        if path == "/v3/auth/authenticate":
            right = body == {"name": "root", "password": now[0]}
            connection.sendall(whole({**HEADER, "token": now[0]}) if right else whole(refused, 400))
        else:
            connection.sendall(whole({**HEADER, "asked": path}))

    file = tmp_path / "password"
    file.write_text("first\n")
    file.chmod(0o600)
    with member(knows) as place:
        known = place._replace(user="root", password=str(file))
        with contextlib.closing(Client(known, EACH, EACH)) as client:
            assert client.ask("/v3/a", {}, lambda found: found)["asked"] == "/v3/a"
            now[0] = "second"
            client.forget_token()
            with pytest.raises(HostRefused, match=f"does not let 'root' in.*{file}"):
                client.ask("/v3/a", {}, lambda found: found)
            file.write_text("second\n")
            assert client.ask("/v3/a", {}, lambda found: found)["asked"] == "/v3/a"
            now[0] = "third"
            client.forget_token()
            file.unlink()
            with pytest.raises(HostRefused, match="cannot read the password"):
                client.ask("/v3/a", {}, lambda found: found)
