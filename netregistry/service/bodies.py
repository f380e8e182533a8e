"""Read the bodies of requests: JSON of anybody's, looked over before anything is built of it.

What one side sends must not keep the others waiting. Somebody without a certificate may send no more than a join has; how deep a body is,
and of how much it is made, is counted on its bytes, for to build a million lists takes seconds; and what is long is read in a thread, one
at a time, while the event loop serves on.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from netregistry.model.codec import Invalid
from netregistry.refusal import Refused
from netregistry.roles import NEWCOMER
from netregistry.service.limits import Gate, network

if TYPE_CHECKING:
    from aiohttp import web

    from netregistry.model.history import Identity
    from netregistry.service.routes import Route

DEEPEST = 40  #: how deep a body's lists and objects may lie in each other
MOST = 20_000  #: lists and objects of a body
TEXTS = 50_000  #: texts, the names of fields among them
OF_NEWCOMERS = 20 << 10  #: bytes; a request for a certificate has 16 KiB at most (netregistry.authority.x509)
SHORT = 4 << 10  #: bytes that are read in a millisecond at most
AT_ONCE = 8  #: bodies of one identity that are on their way: more of them wait until these are here
BRACKETS = b"[]{}"
OTHERS = bytes(set(range(256)).difference(BRACKETS))


class Bodies:
    """Read bodies of requests. ``most``: bytes of one; ``seconds``: for one to come. For one event loop."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds, self._coming = most, seconds, Gate(AT_ONCE)
        self._pool = ThreadPoolExecutor(1, "bodies")

    def close(self) -> None:
        """Wait for what is being read; nothing more is."""
        self._pool.shutdown()

    async def read(self, request: web.Request, who: Identity, route: Route | None = None) -> Any:
        """Read a body of JSON; nothing where the endpoint takes none. Raises Refused, Invalid."""
        most = OF_NEWCOMERS if who.role == NEWCOMER else self._most
        async with self._coming.through((who.role, who.name or network(who.origin))):
            try:
                async with asyncio.timeout(self._seconds):
                    data = await _received(request, most)
            except TimeoutError:
                raise Refused("busy", f"the body has not come within {self._seconds:g} seconds: send it at once", retry_after=1) from None
        if route is not None and route.body is None:
            if data:
                raise Invalid("body", len(data), f"no body for {route.method} {route.path}")
            return None
        if request.content_type != "application/json":
            raise Refused("media", f"the body is {request.content_type!a:.80}: send application/json")
        if len(data) <= SHORT:
            return parsed(data)
        return await asyncio.get_running_loop().run_in_executor(self._pool, parsed, data)


async def _received(request: web.Request, most: int) -> bytes:
    found = bytearray()
    if (request.content_length or 0) <= most:
        async for piece in request.content.iter_any():
            found += piece
            if len(found) > most:
                break
        else:
            return bytes(found)
    raise Refused("too-large", f"a request has at most {most} bytes here")


def parsed(data: bytes) -> Any:
    """Parse JSON. Raises Invalid."""
    look_over(data)
    try:
        return json.loads(data.decode(), parse_constant=_no_number, object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Invalid("body", data[:80].decode("latin-1"), f"JSON: {str(error) or 'too deep'}"[:200]) from None


def look_over(data: bytes) -> None:
    """Raise Invalid where JSON has too many lists, objects or texts, or too deep in each other."""
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * TEXTS:
        raise Invalid("body", "texts", f"at most {TEXTS}")
    brackets = b"".join(plain.split(b'"')[::2]).translate(None, OTHERS)  # those that stand between the texts
    if brackets.count(b"[") + brackets.count(b"{") > MOST:
        raise Invalid("body", "lists and objects", f"at most {MOST}")
    deep = 0
    for each in brackets:
        deep += 1 if each in b"[{" else -1
        if deep > DEEPEST:
            raise Invalid("body", "lists and objects", f"at most {DEEPEST} in each other")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field twice")
    return found
