"""Bound how often each holder has a certificate renewed: each is an entry of the history, which is cut by number whoever fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.history import Identity

BURST = 20  #: at once: several machines may be one operator, and all come when another authority signs
EVERY = 600.0  #: seconds for one more: 58,000 within the 400 days for which the history is kept, of a million entries
REMEMBERED = 10_000  #: holders


class Renewals:
    """Count the renewals that each holder was given lately. ``now``: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # holder -> renewals that are left, when; asked longest ago first

    def check(self, who: Identity) -> None:
        """Raise Refused where a holder has had too many."""
        if (left := self._of((who.role, who.name))) < 1:
            detail = f"the certificate of {who.role} {who.name} was renewed {BURST} times of late: one more is given every {EVERY:.0f} s"
            raise Refused("too-many", detail, retry_after=int((1 - left) * EVERY) + 1)

    def count(self, who: Identity) -> None:
        """Count one that was given."""
        key = who.role, who.name
        left = self._of(key) - 1
        self._left.pop(key, None)
        self._left[key] = left, self._now()
        if len(self._left) > REMEMBERED:
            del self._left[next(iter(self._left))]

    def _of(self, key: tuple[str, str]) -> float:
        left, then = self._left.get(key, (float(BURST), self._now()))
        return min(float(BURST), left + (self._now() - then) / EVERY)
