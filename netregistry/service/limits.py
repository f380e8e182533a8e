"""Bound what a service takes: sizes, numbers, and how often somebody may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.history import Identity

REMEMBERED = 10_000  #: identities


class Limits(NamedTuple):
    """What one service takes."""

    body: int = 1 << 20  #: bytes of one request
    waiting: int = 256  #: requests that wait their turn
    streams: int = 4096
    rate: float = 500.0  #: requests a second, of one identity
    burst: float = 2000.0
    beat: float = 3.0  #: seconds from one sign of life on a stream to the next
    sending: float = 30.0  #: seconds for a hearer to take what it is sent


class Rate:
    """How many requests each identity has made lately. ``now``: monotonic seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits, self._now = limits, now
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # -> requests that are left, when; asked longest ago first

    def count(self, who: Identity) -> None:
        """Count one request. Raises Refused where there were too many."""
        now, key = self._now(), (who.role, who.name)
        left, then = self._left.pop(key, (self._limits.burst, now))
        left = min(self._limits.burst, left + (now - then) * self._limits.rate)
        allowed = left >= 1
        self._left[key] = (left - 1 if allowed else left, now)
        if len(self._left) > REMEMBERED:
            del self._left[next(iter(self._left))]
        if not allowed:
            raise Refused("too-many", f"more than {self._limits.rate:g} requests a second", retry_after=1)
