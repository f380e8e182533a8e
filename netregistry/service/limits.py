"""Bound what a service takes: sizes, numbers, and how often somebody may ask."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterator

    from netregistry.model.history import Identity

REMEMBERED = 10_000  #: identities
SPARE = 64  #: descriptors for what is no connection


class Limits(NamedTuple):
    """What one service takes."""

    body: int = 1 << 20  #: bytes of one request
    waiting: int = 256  #: requests that are in line
    connections: int = 8192
    streams: int = 4096
    rate: float = 500.0  #: requests a second, of one identity
    burst: float = 2000.0
    each: int = 4  #: requests of one identity that are in line at once: more of them wait until these are done
    beat: float = 3.0  #: seconds from one sign of life on a stream to the next
    sending: float = 30.0  #: seconds for a hearer to take what it is sent
    receiving: float = 30.0  #: seconds for a body to come


def within(limits: Limits) -> Limits:
    """Give the limits that this process has descriptors for; it is given more of them where it may have more (getrlimit(2))."""
    wanted = limits.connections + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < wanted:
        soft = wanted if hard < 0 else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it, and gives as many as are needed
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    connections = limits.connections if soft < 0 else max(min(limits.connections, soft - SPARE), 1)
    return limits._replace(connections=connections, streams=min(limits.streams, -(-connections * 3 // 4)))


def network(address: str) -> str:
    """Give what one machine may have of an address: of an IPv6 one the /64 (RFC 4291, 2.5.1). Whatever is no address is given as it is."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))


class Gate:
    """Let so many at once through of each kind; those behind wait, in their order. For one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._doors: dict[Hashable, list[asyncio.Semaphore]] = {}  # one, as often as somebody is at it

    @contextlib.asynccontextmanager
    async def through(self, kind: Hashable) -> AsyncIterator[None]:
        """Wait to be let through, and be within while the context lasts."""
        there = self._doors.setdefault(kind, [])
        there.append(there[0] if there else asyncio.Semaphore(self._most))
        try:
            async with there[0]:
                yield
        finally:
            there.pop()
            if not there:
                del self._doors[kind]


class Few:
    """Let so many things of each identity be under way at once; those beyond are refused. For one event loop."""

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._there = Counter[tuple[str, str]]()

    @contextlib.contextmanager
    def one(self, who: Identity) -> Iterator[None]:
        """Be one of them while the context lasts. Raises Refused."""
        key = who.role, who.name or network(who.origin)
        if self._there[key] >= self._most:
            raise Refused("too-many", f"{self._most} {self._what} of {key[0]} {key[1]} are under way", retry_after=30)
        self._there[key] += 1
        try:
            yield
        finally:
            self._there[key] -= 1
            if not self._there[key]:
                del self._there[key]


class Rate:
    """How many requests each identity has made lately. ``now``: monotonic seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits, self._now = limits, now
        self._left: dict[tuple[str, str, str], tuple[float, float]] = {}  # -> requests that are left, when; asked longest ago first

    def count(self, who: Identity, serial: str = "") -> None:
        """Count one request, by a certificate of this ``serial``: a revoked one uses up its own. Raises Refused for one too many."""
        now, key = self._now(), (who.role, who.name or network(who.origin), serial)  # of newcomers the address is all that is known
        left, then = self._left.pop(key, (self._limits.burst, now))
        left = min(self._limits.burst, left + (now - then) * self._limits.rate)
        allowed = left >= 1
        self._left[key] = (left - 1 if allowed else left, now)
        if len(self._left) > REMEMBERED:
            del self._left[next(iter(self._left))]
        if not allowed:
            raise Refused("too-many", f"more than {self._limits.rate:g} requests a second", retry_after=1)
