"""A registry's service in a thread of this process, and plain ways to speak to it that share nothing with its client."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from netregistry.client import Client
from netregistry.pages.front import Pages
from netregistry.service.http import Service
from netregistry.service.limits import Limits
from netregistry.service.serve import NOWHERE, serving
from netregistry.service.tls import Listening
from netregistry.stores.base import Store
from netregistry.stores.sqlite import SqliteStore
from netregistry.zone.publisher import Publisher
from tests.support.registry import NODES

SECONDS = 20.0


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warning(self, text: str) -> None:
        self.lines.append(text)

    def error(self, text: str) -> None:
        self.lines.append(text)


class Said(NamedTuple):
    """An answer as it came."""

    status: int
    body: Any
    headers: dict[str, str]


class Served:
    """A service that runs. ``store``: what it stands on."""

    def __init__(self, path: str, store: Store, service: Service, log: Lines) -> None:
        self.path, self.store, self.service, self.log = path, store, service, log
        self._clients: list[Client] = []

    def client(self, role: str = "") -> Client:
        """Give a client, which is closed at the end."""
        self._clients.append(Client(self.path, role, SECONDS))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def say(self, method: str, target: str, body: Any = None, path: str = "", **headers: str) -> Said:
        """Send one request; ``headers`` with _ for -. A body of bytes is sent as it is. ``path``: to another socket."""
        connection = self.connect(path)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            given = {name.replace("_", "-"): text for name, text in headers.items()}
            if data is not None:
                given.setdefault("Content-Type", "application/json")
            connection.request(method, target, data, given)
            response = connection.getresponse()
            found = response.read()
            shown = json.loads(found) if response.headers.get_content_type().endswith("json") and found else found
            return Said(response.status, shown, dict(response.headers.items()))
        finally:
            connection.close()

    def connect(self, path: str = "") -> http.client.HTTPConnection:
        """Connect to the socket; ``path``: to another one."""
        connection = http.client.HTTPConnection("localhost", timeout=SECONDS)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(SECONDS)
        connection.sock.connect(path or self.path)
        return connection

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, which it must."""
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end, "it does not come to hold"
            time.sleep(0.01)

    def everything(self) -> dict[str, bytes]:
        return {item.key: item.value for item in self.store.list("").items if item.key != "leader"}

    def join(self, number: int, cluster: str = "") -> Client:
        """Let a node join; give its client."""
        client = self.client(f"node:{NODES[number]}")
        client.change("POST", "nodes", {"uuid": NODES[number], "name": f"node{number}"})
        if cluster:
            self.client().change("PATCH", f"nodes/{NODES[number]}", {"cluster": cluster})
        return client


@contextmanager
def served(
    folder: Path, limits: Limits | None = None, store: Store | None = None, others: Listening = NOWHERE, publisher: Publisher | None = None
) -> Iterator[Served]:
    """Serve a registry, in memory if no store is given, on a socket in the folder. By default whoever asks on and on is answered."""
    path, log = str(folder / "socket"), Lines()
    store = store or SqliteStore.create(":memory:", "first")
    ready, ended = threading.Event(), threading.Event()
    made: list[Service] = []
    failed: list[BaseException] = []

    async def run() -> None:
        async with serving(store, path, "1.2", log, limits or Limits(beat=0.2, rate=10_000.0), others, Pages, publisher) as service:
            made.append(service)
            ready.set()
            while not ended.is_set():
                await asyncio.sleep(0.01)

    def body() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=body, name="service")
    thread.start()
    try:
        assert ready.wait(SECONDS)
        if failed:
            raise failed[0]
        found = Served(path, store, made[0], log)
        try:
            yield found
        finally:
            found.close()
    finally:
        ended.set()
        thread.join(SECONDS)
    assert not thread.is_alive() and not failed, failed
