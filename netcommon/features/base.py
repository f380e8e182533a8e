"""What a feature adds to a NIC's plan."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.effects.base import Effect
    from netcommon.operations.base import Operation


class Part(NamedTuple):
    """A feature's share of a plan."""

    before: tuple[Operation, ...] = ()  #: applied before the mode's own operations: while the device is down yet
    after: tuple[Operation, ...] = ()  #: applied after them
    effects: tuple[Effect, ...] = ()  #: what is told at the NIC's arrival, in this order
