"""One identity has its share, by however many certificates, and waits for nobody for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from netregistry.credentials import Credentials
from netregistry.model.certificate import Credential
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.service import bodies, http, tls
from netregistry.service.http import Service
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry as ServedRegistry
from netregistry.service.streams import OF_ONE, Channel, Streams
from tests.support.registry import NODES, Registry
from tests.support.service import SECONDS, Lines, served
from tests.support.tls import secured

AGENT = "cccccccc-1111-4111-8111-111111111111"


def channel(name: str, serial: str = "1", incarnation: str = "") -> Channel:
    credential = Credential("node" if incarnation else "reader", NODES[0] if incarnation else name, serial, "a", 0.0)
    return Channel(NODES[0], incarnation, lambda: None, credential)


def test_a_reader_has_few_streams_by_however_many_certificates(registry: Registry) -> None:
    view = registry.local.view
    streams = Streams(view, 100)
    for number in range(OF_ONE):
        streams.open(view, channel("mallory", str(number)), "")
    with pytest.raises(Refused) as refused:
        streams.open(view, channel("mallory", "z"), "")
    assert refused.value.kind == "too-many" and "reader mallory" in refused.value.detail
    streams.open(view, channel("ann"), "")


def test_a_nodes_sign_of_life_goes_before_who_only_looks(registry: Registry) -> None:
    view = registry.local.view
    streams = Streams(view, 4)
    looking = [channel(name) for name in ("mallory", "mallory", "ann", "mallory")]
    for each in looking:
        streams.open(view, each, "")
    with pytest.raises(Refused):
        streams.open(view, channel("bob"), "")
    own = channel("", incarnation=AGENT)
    with pytest.raises(Refused, match="epoch"):
        streams.open(view, own, "another:1")
    assert not any(each.ended for each in looking), "nobody makes room for a stream that is refused"
    streams.open(view, own, "")
    assert streams.count == 4 and streams.nodes() == {NODES[0]: AGENT}
    assert [bool(each.ended) for each in looking] == [True, False, False, False], "of who has the most, the longest there"


def test_half_a_body_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with served(tmp_path, Limits(receiving=0.5)) as service, socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(SECONDS)
        plain.connect(service.path)
        plain.sendall(b"POST /v1/nics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{")
        assert plain.recv(100).startswith(b"HTTP/1.1 503"), "within half a second, and not for ever"


def test_bodies_of_one_identity_come_by_few_and_others_need_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    coming: list[str] = []

    async def received(request: Any, _most: int) -> bytes:
        coming.append(request)
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(bodies, "_received", received)

    async def asked() -> None:
        found = bodies.Bodies(1 << 20, 60.0)
        names = [NODES[0]] * (bodies.AT_ONCE + 5) + [NODES[1]]
        asking = [asyncio.ensure_future(found.read(name, Identity("node", name))) for name in names]  # type: ignore[arg-type]
        while len(coming) < bodies.AT_ONCE + 1:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert coming == [NODES[0]] * bodies.AT_ONCE + [NODES[1]]
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        found.close()

    asyncio.run(asked())


def test_what_one_identity_asks_for_is_not_all_that_may_be_in_line(registry: Registry) -> None:
    """It waits for its own four places: by many connections it had all others refused, root on the registry's own machine too."""
    made = Service(ServedRegistry(registry.store, "1", Lines(), Limits()), "1", Limits(waiting=http.KEPT + 5))
    held, began = threading.Event(), []

    def work(name: str) -> str:
        began.append(name)
        assert held.wait(SECONDS)
        return name

    async def asked(name: str, elsewhere: bool) -> str:
        http._ASKING.set(("node" if elsewhere else "operator", name, elsewhere))
        return await made.turn(work, name)

    async def all_of_them() -> None:
        asking = [asyncio.create_task(asked("mallory", True)) for _ in range(100)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert made.waiting == Limits().each
        asking += [asyncio.create_task(asked(name, True)) for name in ("ann", "bob")] + [asyncio.create_task(asked("root", False))]
        for _ in range(20):
            await asyncio.sleep(0)
        assert made.waiting == Limits().each + 2, "bob's was one too many, for the last places are this machine's own"
        held.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert found[:101] == ["mallory"] * 100 + ["ann"] and found[102] == "root"
        assert isinstance(found[101], Refused) and found[101].kind == "too-many"
        assert began.index("ann") <= Limits().each and began.index("root") <= Limits().each + 1

    asyncio.run(all_of_them())
    made.close()


def test_the_document_of_the_endpoints_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = http.document
    monkeypatch.setattr(http, "document", lambda version: made.append(version) or real(version))
    with served(tmp_path) as service:
        one, other = (service.say("GET", "/v1/openapi.json") for _ in range(2))
    assert one.status == 200 and one.body == other.body and one.body["openapi"] == "3.1.0" and len(made) == 1


def test_all_certificates_of_one_identity_have_one_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that of connections the longest there is ended, and that requests are as many as by one certificate."""
    monkeypatch.setattr(tls, "OF_HOLDER", 2)
    with secured(tmp_path, Limits(rate=0.001, burst=10.0)) as registry, contextlib.ExitStack() as stack:
        certificates = [registry.join("reader", "ann") for _ in range(2)]
        other = registry.join("reader", "bob")

        def opened(one: Credentials) -> socket.socket:
            plain = socket.create_connection(("localhost", registry.port))
            found = stack.enter_context(registry.shown(one).context().wrap_socket(plain, server_hostname="localhost"))
            found.settimeout(SECONDS)
            return found

        def asked(each: socket.socket) -> bytes:
            each.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = each.recv(1 << 16)
            while said and not said.endswith(b"}"):  # the head may come by itself
                said += each.recv(1 << 16)
            return said[9:12]

        there = [opened(certificates[number]) for number in (0, 1, 0)]
        assert [asked(each) for each in there] == [b"200"] * 3
        with contextlib.suppress(ConnectionError):
            assert not there[0].recv(1), "the third one has ended the first"
        assert [asked(there[1]) for _ in range(8)] == [b"200"] * 7 + [b"429"], "ten of all together: by its own certificate it is the ninth"
        assert asked(opened(other)) == b"200"
