"""Answers of HTTP come in any pieces, and give the same; what is none is refused."""

from __future__ import annotations

import http.client
import random

import pytest

from mockcloud.replaced.transport.received import LONGEST_HEAD, Received

WHOLE = b'HTTP/1.1 200 OK\r\nETag: "e:7"\r\nContent-Length: 5\r\n\r\nabcde'
EMPTY = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc\n\n\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [(WHOLE, 200, b"abcde"), (EMPTY, 204, b""), (CHUNKS, 200, b"abc\n\n0123456789")],
    ids=["whole", "empty", "chunks"],
)
def test_any_pieces_give_the_same(said: bytes, status: int, body: bytes) -> None:
    chance = random.Random(7)
    for most in (1, 2, 3, 7, len(said)):
        for _ in range(20):
            received, found, rest = Received(), b"", said
            while rest:
                size = chance.randint(1, most)
                assert not received.whole
                found += received.feed(rest[:size])
                rest = rest[size:]
            assert (received.status, received.whole, found) == (status, True, body)


def test_headers_are_found_whatever_their_case() -> None:
    received = Received()
    received.feed(WHOLE)
    assert received.headers == {"etag": '"e:7"', "content-length": "5"}


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: ٣\r\n\r\n".encode(),
        WHOLE + b"x",
        b"x" * (LONGEST_HEAD + 1),
        CHUNKS[: CHUNKS.index(b"5\r\n")] + b"xyz\r\n",
        CHUNKS[: CHUNKS.index(b"5\r\n")] + b"-5\r\nabcde\r\n",
        CHUNKS[: CHUNKS.index(b"5\r\n")] + b"1" * (LONGEST_HEAD + 1),
    ],
    ids=repr,
)
def test_what_is_none_is_refused(said: bytes) -> None:
    with pytest.raises(http.client.HTTPException):
        Received().feed(said)
