"""Wait as a client of the process that serves a cloud: for an answer, and for room in its queue."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mockcloud.served import client
from runtime.errors import TryAgain
from tests.support.mockcloud import Mockcloud


def test_an_answer_is_waited_for_as_long_as_the_task_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as long as the task takes: who gave up had it done all the same, or twice; one whose server ends is told."""
    monkeypatch.setattr(client, "SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / client.SOCKET))
        listening.listen()
        connected = client.connection(str(tmp_path))
        assert connected is not None and connected.gettimeout() is None
        asking, found = listening.accept()[0], list[object]()

        def ask() -> None:
            try:
                found.append(client.ask(connected, "GET", "/"))
            except TryAgain as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(0.5)
        assert found == [] and asking.recv(1 << 16).startswith(b"GET / ")
        asking.close()
        thread.join()
    assert "has not answered" in str(found)


@contextmanager
def crowded(folder: Path) -> Iterator[socket.socket]:
    """Listen as a server that is at work does: one waits, and there is room for no more."""
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(folder / client.SOCKET))
        listening.listen(0)
        first.connect(str(folder / client.SOCKET))
        yield listening


def test_who_finds_no_room_waits_until_there_is(tmp_path: Path) -> None:
    """Wait for room in the server's queue of clients: the queue may be full while the server does one long task after the other."""
    found = list[object]()
    with crowded(tmp_path) as listening:
        thread = threading.Thread(target=lambda: found.append(client.connection(str(tmp_path))))
        thread.start()
        thread.join(0.3)
        assert found == []
        listening.accept()[0].close()
        thread.join(30.0)
    (connected,) = found
    assert isinstance(connected, socket.socket) and connected.gettimeout() is None
    assert not any(connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)), "what is sent may take as long as it takes"
    connected.close()


@pytest.mark.parametrize("words", ["list", "count", "count 1", "instance list", "instance stop x", "fault node"])
def test_a_server_that_has_no_room_for_long_is_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.1)
    with crowded(tmp_path):
        assert "has had no room for 0.1 s for one more who waits" in Mockcloud(tmp_path)(*words.split(), status=75)
