"""Bound how many bytes each node and reader makes the store write, and how many entries of the history it makes.

What is overwritten is kept an hour, and nobody must fill the store; the history is cut by number whoever fills it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.refusal import Refused
from netregistry.service.limits import Allowances

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.history import Identity

BURST = 16 << 20  #: bytes: four thousand NICs are reported anew by some of them
RATE = 32 << 10  #: bytes a second: 115 MiB within the hour for which they are kept
ENTRIES = 16_000  #: at once: a node is the master of 4096 NICs at most
EVERY = 2.0  #: seconds for one more: it takes one of them three weeks to push out a million entries of others
BOUNDED = ("node", "reader")  #: roles: operators and importers may fill it, for they decide what there is


class Written:
    """Count the bytes that each node and reader has had written lately, as commits have them, and changes. ``now``: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._bytes, self._entries = Allowances(BURST, RATE, now), Allowances(ENTRIES, 1 / EVERY, now)

    def check(self, who: Identity, kept: bool) -> None:
        """Raise Refused where somebody has had too much written: a commit that has begun may go over, and is to be waited for.

        ``kept``: the history has an entry of what is asked, as it has none of reports.
        """
        if who.role not in BOUNDED:
            return
        if (left := self._bytes.left((who.role, who.name))) <= 0:
            wait = int(-left / RATE) + 1
            raise Refused("too-many", f"this {who.role} has had more than {RATE >> 10} KiB a second written, for long", retry_after=wait)
        if kept and (left := self._entries.left((who.role, who.name))) < 1:
            detail = f"this {who.role} has changed something {ENTRIES} times of late: one change more is taken every {EVERY:.0f} s"
            raise Refused("too-many", detail, retry_after=int((1 - left) * EVERY) + 1)

    def charge(self, who: Identity, size: int, kept: bool) -> None:
        """Count bytes of somebody's commits."""
        if who.role in BOUNDED and size:
            self._bytes.take((who.role, who.name), size)
            if kept:
                self._entries.take((who.role, who.name), 1)
