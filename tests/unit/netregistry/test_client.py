"""What a client makes of a service that ends in the middle of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netregistry.client import Client
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
