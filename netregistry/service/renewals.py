"""Bound how often each holder has a certificate renewed: each is an entry of the history, which is cut by number whoever fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.refusal import Refused
from netregistry.service.limits import Allowances

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.history import Identity

BURST = 20  #: at once: several machines may be one operator, and all come when another authority signs
EVERY = 600.0  #: seconds for one more: 58,000 within the 400 days for which the history is kept, of a million entries


class Renewals:
    """Count the renewals that each holder was given lately. ``now``: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._allowances = Allowances(BURST, 1 / EVERY, now)

    def check(self, who: Identity) -> None:
        """Raise Refused where a holder has had too many."""
        if (left := self._allowances.left((who.role, who.name))) < 1:
            detail = f"the certificate of {who.role} {who.name} was renewed {BURST} times of late: one more is given every {EVERY:.0f} s"
            raise Refused("too-many", detail, retry_after=int((1 - left) * EVERY) + 1)

    def count(self, who: Identity) -> None:
        """Count one that was given."""
        self._allowances.take((who.role, who.name), 1)
