"""Bound how many bytes each node and reader makes the store write: what is overwritten is kept an hour, and nobody must fill it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.history import Identity

BURST = 16 << 20  #: bytes: four thousand NICs are reported anew by some of them
RATE = 32 << 10  #: bytes a second: 115 MiB within the hour for which they are kept
REMEMBERED = 10_000  #: nodes and readers
BOUNDED = ("node", "reader")  #: roles: operators and importers may fill it, for they decide what there is


class Written:
    """Count the bytes that each node and reader has had written lately, as commits have them. ``now``: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # who -> bytes that are left, when; those that asked longest ago first

    def check(self, who: Identity) -> None:
        """Raise Refused where somebody has had too much written: a commit that has begun may go over, and is to be waited for."""
        if who.role in BOUNDED and (left := self._of((who.role, who.name))) <= 0:
            wait = int(-left / RATE) + 1
            raise Refused("too-many", f"this {who.role} has had more than {RATE >> 10} KiB a second written, for long", retry_after=wait)

    def charge(self, who: Identity, size: int) -> None:
        """Count bytes of somebody's commits."""
        if who.role in BOUNDED and size:
            key = who.role, who.name
            left = self._of(key) - size
            self._left.pop(key, None)
            self._left[key] = left, self._now()
            if len(self._left) > REMEMBERED:
                del self._left[next(iter(self._left))]

    def _of(self, key: tuple[str, str]) -> float:
        left, then = self._left.get(key, (float(BURST), self._now()))
        return min(float(BURST), left + (self._now() - then) * RATE)
