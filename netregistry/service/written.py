"""Bound how many bytes each node and reader makes the store write: what is overwritten is kept an hour, and nobody must fill it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.refusal import Refused
from netregistry.service.limits import Allowances

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.history import Identity

BURST = 16 << 20  #: bytes: four thousand NICs are reported anew by some of them
RATE = 32 << 10  #: bytes a second: 115 MiB within the hour for which they are kept
BOUNDED = ("node", "reader")  #: roles: operators and importers may fill it, for they decide what there is


class Written:
    """Count the bytes that each node and reader has had written lately, as commits have them. ``now``: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._allowances = Allowances(BURST, RATE, now)

    def check(self, who: Identity) -> None:
        """Raise Refused where somebody has had too much written: a commit that has begun may go over, and is to be waited for."""
        if who.role in BOUNDED and (left := self._allowances.left((who.role, who.name))) <= 0:
            wait = int(-left / RATE) + 1
            raise Refused("too-many", f"this {who.role} has had more than {RATE >> 10} KiB a second written, for long", retry_after=wait)

    def charge(self, who: Identity, size: int) -> None:
        """Count bytes of somebody's commits."""
        if who.role in BOUNDED and size:
            self._allowances.take((who.role, who.name), size)
