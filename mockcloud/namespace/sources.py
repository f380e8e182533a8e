"""Let a mock node in a namespace hear the running kernel: the subscriptions of a real node, read in the loop of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mockcloud.replaced.sources import Told
from netagent.events import LockClosed
from netagent.sources.switches import Dial
from netagent.surroundings import of_kernel

if TYPE_CHECKING:
    from collections.abc import Container

    from mockcloud.replaced.scheduler import NodeLoop
    from netagent.sources.base import Source, Warn


class KernelSources:
    """All that one node's agent hears. Open vSwitch does not run there."""

    def __init__(self, loop: NodeLoop) -> None:
        self._closed = Told(loop)
        self.dial = Dial()

    def lock_closed(self, number: int) -> None:
        """Tell that the lock of a NIC was let go."""
        self._closed.tell(LockClosed(number))

    def __call__(self, own: Container[int], warn: Warn) -> list[Source]:
        """Subscribe; see netagent.sources.base.Sources."""
        return [*of_kernel(own, warn), self._closed]
