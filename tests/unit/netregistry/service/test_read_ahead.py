"""Take little ahead on a connection: no body is inflated, and what is sent behind a request waits until that is answered."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from netregistry.service.connection import Connection
from netregistry.service.metrics import Figures
from netregistry.service.turned_away import TurnedAway
from tests.support.service import Lines

GET = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /%d HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n"
LONGEST = 1 << 20
CHUNKED = b"POST /0 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
#: What begins a message, and what may follow without end that belongs to no body.
HEADS = {
    "long fields": (b"GET /0 HTTP/1.1\r\nHost: localhost\r\n", b"a: %s\r\n" % (b"b" * 4000)),
    "many fields": (b"GET /0 HTTP/1.1\r\nHost: localhost\r\n", b"a: b\r\n"),
    "one field": (b"GET /0 HTTP/1.1\r\nHost: localhost\r\na: ", b"b"),
    "target": (b"GET /0", b"0"),
    "blank lines": (b"", b"\r\n"),
}
BODIES = {
    "long trailers": (CHUNKED + b"2\r\nxx\r\n0\r\n", b"a: %s\r\n" % (b"b" * 4000)),
    "many trailers": (CHUNKED + b"2\r\nxx\r\n0\r\n", b"a: b\r\n"),
    "chunk's extension": (CHUNKED + b"2", b";a=b"),
    "small chunks": (CHUNKED, b"1\r\nx\r\n"),
}
ENOUGH = 24 << 10  #: bytes of them


class Wire(asyncio.Transport):
    """Note what is written, and whether anything is read; ``pauses``: how often it was told to read nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.pauses, self.written, self.closed = True, 0, bytearray(), False

    def pause_reading(self) -> None:
        self.reads, self.pauses = False, self.pauses + 1

    def resume_reading(self) -> None:
        self.reads = True

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def write(self, data: Any) -> None:
        self.written += data


class Speaking:
    """A connection whose requests are noted, with their bodies, and answered when ``free`` is set."""

    def __init__(self) -> None:
        self.wire, self.free = Wire(), asyncio.Event()
        self.begun: list[str] = []
        self.bodies: list[bytes] = []
        lines = Lines()
        server = web.Server(self._answer)
        self.connection = Connection(server, asyncio.get_running_loop(), Figures(TurnedAway(time.monotonic, lines)), lines)
        self.connection.connection_made(self.wire)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.begun.append(request.path)
        await self.free.wait()
        found = b""
        async for piece in request.content.iter_any():
            found += piece
        self.bodies.append(found)
        return web.Response()

    async def sent(self, data: bytes, piece: int = 1 << 16) -> int:
        """Send as much as is read, as a transport does; give how much that was."""
        place = 0
        while place < len(data) and self.wire.is_reading():
            self.connection.data_received(data[place : place + piece])
            place += piece
            await asyncio.sleep(0)
        return min(place, len(data))

    async def all_of(self, data: bytes, piece: int = 1 << 16) -> None:
        while data and not self.wire.closed:
            await self.until(lambda: self.wire.is_reading() or self.wire.closed)
            data = data[await self.sent(data, piece) :]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0)


def speaking(talk: Callable[[Speaking], Awaitable[None]]) -> None:
    async def whole() -> None:
        one = Speaking()
        await talk(one)
        one.connection.connection_lost(None)

    asyncio.run(whole())


def test_what_is_sent_behind_a_request_waits_and_nothing_more_is_read() -> None:
    async def talk(one: Speaking) -> None:
        await one.sent(GET % 0)
        await one.until(lambda: one.begun == ["/0"])
        assert one.wire.is_reading(), "whoever leaves is seen"
        await one.sent(GET % 1)
        assert not one.wire.is_reading()
        one.free.set()
        await one.until(lambda: one.begun == ["/0", "/1"] and one.wire.is_reading())
        await one.sent(GET % 2)
        await one.until(lambda: len(one.bodies) == 3)

    speaking(talk)


def test_however_many_come_at_once_few_are_parsed_and_all_are_answered_in_order() -> None:
    data = b"".join(GET % number for number in range(5000))

    async def talk(one: Speaking) -> None:
        taken = await one.sent(data)
        assert taken <= 1 << 17 and not one.wire.is_reading()
        assert len(one.connection._messages) < 64
        one.free.set()
        await one.all_of(data[taken:])
        await one.until(lambda: len(one.bodies) == 5000)
        assert one.begun == [f"/{number}" for number in range(5000)]
        assert one.wire.written.count(b"HTTP/1.1 200") == 5000

    speaking(talk)


def test_a_protocol_that_is_asked_for_is_read_ahead_no_more() -> None:
    """Behind an "Upgrade" aiohttp keeps what comes as it is, 3.8 without bound."""

    async def talk(one: Speaking) -> None:
        await one.sent(b"GET /0 HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        await one.until(lambda: one.begun == ["/0"])
        assert await one.sent(b"x" * LONGEST) <= 1 << 16 and not one.wire.is_reading()

    speaking(talk)


def test_bodies_come_whole_wherever_they_are_cut() -> None:
    bodies = [bytes([65 + number]) * length for number, length in enumerate((0, 1, 2047, 2048, 5000, 70000, LONGEST, 3))]
    data = b"".join(POST % (number, b"", len(body)) + body for number, body in enumerate(bodies))

    for piece in (700, 2048, 1 << 16, 1 << 18, len(data)):

        async def talk(one: Speaking, piece: int = piece) -> None:
            one.free.set()
            await one.all_of(data, piece)
            await one.until(lambda: len(one.bodies) == len(bodies))
            assert one.bodies == bodies

        speaking(talk)


def test_a_body_that_nobody_reads_yet_is_not_taken_whole() -> None:
    body = b"x" * (4 * LONGEST)

    async def talk(one: Speaking) -> None:
        taken = await one.sent(POST % (0, b"", len(body)) + body)
        assert taken < LONGEST and not one.wire.is_reading()
        one.free.set()
        await one.all_of((POST % (0, b"", len(body)) + body)[taken:])
        await one.until(lambda: one.bodies == [body])

    speaking(talk)


def test_no_body_is_inflated() -> None:
    small = gzip.compress(b" " * LONGEST)

    async def talk(one: Speaking) -> None:
        one.free.set()
        await one.all_of(POST % (0, b"Content-Encoding: gzip\r\n", len(small)) + small)
        await one.until(lambda: one.bodies == [small])

    speaking(talk)


def test_a_request_and_its_body_are_read_without_a_pause() -> None:
    async def talk(one: Speaking) -> None:
        one.free.set()
        for number in range(3):
            await one.sent(POST % (number, b"", 300) + b"x" * 300)
            await one.until(lambda number=number: len(one.bodies) == number + 1)  # type: ignore[misc]
        assert one.wire.pauses == 0

    speaking(talk)


@pytest.mark.parametrize("case", HEADS)
def test_a_head_without_an_end_is_refused(case: str) -> None:
    begun, more = HEADS[case]

    async def talk(one: Speaking) -> None:
        one.free.set()
        await one.sent((begun + more * ENOUGH)[:ENOUGH], 700)
        await one.until(lambda: one.wire.closed)
        said = bytes(one.wire.written)
        assert said.split()[1] == b"400" and said.count(b"HTTP/1.") == 1
        assert not one.bodies
        one.wire.closed = False
        await one.sent(b"\r\n" + GET % 1)
        assert not one.bodies and bytes(one.wire.written) == said, "nothing more is taken"

    speaking(talk)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("case", BODIES)
def test_what_goes_on_beside_a_body_is_refused(case: str, behind: bool) -> None:
    """Also where another request is answered before it, and the refusal comes behind that."""
    begun, more = BODIES[case]

    async def talk(one: Speaking) -> None:
        one.free.set()
        await one.all_of((GET % 7 if behind else b"") + (begun + more * ENOUGH)[:ENOUGH], 700)
        await one.until(lambda: one.wire.closed)
        assert one.begun == ["/7"] * behind + ["/0"] and one.bodies == [b""] * behind and bytes(one.wire.written).count(b" 200 ") == behind
        assert one.connection._figures.faults == 0

    speaking(talk)


def test_who_takes_no_body_keeps_little_beside_it() -> None:
    """A handler that waits for something else, and reads what was sent later, sees the refusal then."""
    begun, more = BODIES["many trailers"]

    async def talk(one: Speaking) -> None:
        await one.all_of((begun + more * LONGEST)[:LONGEST])
        assert not one.bodies and len(one.connection._ahead) <= 1 << 16
        one.free.set()
        await one.until(lambda: one.wire.closed)
        assert not one.bodies and one.connection._figures.faults == 0

    speaking(talk)


def test_a_large_head_and_many_chunks_of_a_usual_size_are_taken() -> None:
    body = b"x" * LONGEST
    chunks = b"".join(b"400\r\n%s\r\n" % body[place : place + 1024] for place in range(0, LONGEST, 1024)) + b"0\r\na: b\r\n\r\n"
    field = b"a: %s\r\n" % (b"b" * 7000)

    async def talk(one: Speaking) -> None:
        one.free.set()
        for number in range(3):
            await one.all_of(CHUNKED[:-2] + field + b"\r\n" + chunks)
            await one.until(lambda number=number: len(one.bodies) == number + 1)  # type: ignore[misc]
        assert one.bodies == [body] * 3 and not one.wire.closed

    speaking(talk)
