"""How long Open vSwitch may keep a hook waiting: once, not once for each thing that is asked of it."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: The part of the limit that is left for each further wait after one that was in vain; but not less than LEAST seconds of it.
AFTERWARDS = 0.05
LEAST = 0.25


class Patience:
    """``limit`` seconds for a request; after one that was not answered, only a little for each, until that is ``limit`` seconds ago.

    An up whose port ovs-vswitchd has not taken in must undo it, and the same ovs-vswitchd is to be waited for again.
    """

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._until = clock() - 1

    @property
    def seconds(self) -> float:
        """How long the next request may take."""
        return min(self._limit, max(self._limit * AFTERWARDS, LEAST)) if self._clock() < self._until else self._limit

    @property
    def spent(self) -> bool:
        """Tell whether a wait was in vain a short while ago."""
        return self._clock() < self._until

    def lost(self) -> None:
        """A wait was in vain."""
        self._until = self._clock() + self._limit
