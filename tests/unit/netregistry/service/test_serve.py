"""The process of a service."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from netregistry.pages.front import Pages
from netregistry.service.limits import Limits
from netregistry.service.registry import LEADING
from netregistry.service.serve import serving
from netregistry.service.tls import Listening, listened
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused, TryAgain
from tests.support.bootstrap import ROOT
from tests.support.netns import wait_until
from tests.support.registry import Registry
from tests.support.registry_process import Registry as RegistryProcess
from tests.support.service import Lines

LOOKED_AT = """
import gc, os, signal, sys
from netcommon.process.notify import Notifier
from netregistry.service import serve

class Log:
    info = warning = error = print

def ready(notifier):
    print(len(gc.get_objects()), flush=True)  # those that a collection looks at: frozen ones are not among them
    os.kill(os.getpid(), signal.SIGTERM)

Notifier.ready = ready
serve.run(sys.argv[1], sys.argv[2], "1", {}, Log())
"""


def looked_at(folder: Path, nics: int) -> int:
    """Start a service; give how many objects each whole collection of garbage looks at while nobody else is answered."""
    folder.mkdir()
    with SqliteStore.create(str(folder / "registry.sqlite"), "first") as store:
        registry = Registry(store)
        for number in range(nics):
            registry.do("nic.add", "", {"cluster": "c", "instance": f"vm{number}"})
    argv = [sys.executable, "-c", LOOKED_AT, str(folder / "registry.sqlite"), str(folder / "socket")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return int(next(line for line in done.stdout.splitlines() if line.isdecimal()))


def test_a_collection_of_garbage_does_not_look_at_the_registry(tmp_path: Path) -> None:
    """With 100,000 NICs it takes most of a second each time, in which nobody is answered."""
    assert looked_at(tmp_path / "large", 1000) - looked_at(tmp_path / "small", 0) < 1000


def test_a_service_that_was_killed_is_followed_at_once(tmp_path: Path) -> None:
    """One process alone has the file, so the one that led is gone: nobody waits for the end of its lease, and names are published."""
    registry = RegistryProcess(tmp_path)

    def leads() -> bool:
        with registry.client() as asked:
            return bool(asked.get("status").body["leader"])

    try:
        for _ in range(2):
            registry.start()
            wait_until(leads, LEADING / 2, "it leads")
            registry.kill()
    finally:
        registry.kill()


def test_nobody_is_let_in_where_an_address_cannot_be_listened_on(tmp_path: Path) -> None:
    """Close what was bound, and nothing goes on with it: each try said that a connection was not let in."""
    log = Lines()

    async def serve() -> None:
        with SqliteStore.create(":memory:", "first") as store:
            async with serving(store, str(tmp_path / "socket"), "1", log, Limits(), Listening((("192.0.2.77", 8443),)), Pages):
                pass

    with pytest.raises(TryAgain, match="this machine has no such address now"):
        asyncio.run(serve())
    assert log.lines == [] and list(tmp_path.iterdir()) == []


def test_a_port_that_the_service_may_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in its unit, without capabilities; of a higher port it is not said."""

    class Bare(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(socket, "socket", Bare)
    with pytest.raises(HostRefused, match="port 443: Permission denied") as caught:
        listened(Listening((("127.0.0.1", 443),)))
    assert "names a port above 1023" in str(caught.value) + caught.value.advice
    with pytest.raises(HostRefused, match="that nobody else has"):
        listened(Listening((("127.0.0.1", 8443),)))


def test_an_address_that_is_not_there_may_come() -> None:
    """As at a boot, or where it goes from machine to machine: that ended the service for good. A port that somebody has does so still."""
    with pytest.raises(TryAgain, match="this machine has no such address now"):
        listened(Listening((("192.0.2.77", 8443),)))
    (held,) = listened(Listening((("127.0.0.1", 0),)))
    with held:
        held.listen()
        with pytest.raises(HostRefused, match="cannot listen on"):
            listened(Listening((("127.0.0.1", held.getsockname()[1]),)))
