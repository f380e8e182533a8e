"""What an effect is: what the rest of the world is told when a NIC comes, or when something of it was made or undone.

An announcement, a daemon's reload: it cannot be undone and is on no record, so it is no operation. It is best effort: one that fails
is a warning in the log and on stderr, and fails neither an up (the guest would not start for want of an announcement) nor a down.

Effects come from two places. What belongs to an operation (the reload of the daemon that reads a file) is told by that operation,
``Operation.effects()``: so it is the recorded one, whatever today's settings say, and up, down, repair and gc perform it. What belongs
to the NIC's arrival as such (the announcement of its addresses) is told by a feature, ``Part.effects``: performed after an up that
changed something, at the end of a migration, and after a repair.
"""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netcommon.host.api.host import Host, View
    from netcommon.log import Log
    from runtime.paths import Paths

    #: Calls the action after each of the delays (seconds from now, rising) until it answers False, without holding the caller.
    #: In a hook it runs in another process; in a resident one it is scheduled, and runs with the host and log of whoever is free then.
    Later = Callable[[Sequence[float], Callable[["Scene"], bool]], None]


class Scene(NamedTuple):
    """Where an effect is performed."""

    host: Host
    paths: Paths
    log: Log
    later: Later
    current: Callable[[], bool]  #: whether the NIC is, now, still up on this device, as the call left it
    view: View | None = None  #: the host as it is, where many effects are performed at once
    seen: View | None = None  #: the host as it was just before the NIC came up: what is in it need not be asked for again


class Effect(Protocol):
    """One effect: a NamedTuple of plain values. Equal ones of one call are performed once."""

    def exclusive(self) -> bool:
        """Whether it may be true on one node only: not performed while the guest is still migrating in. Not by default."""
        return False

    def perform(self, scene: Scene) -> None:
        """Does it, in milliseconds. Raises NetcommonError or OSError for what the administrator should know."""
        ...

    def describe(self) -> str:
        """What it does, in words."""
        ...
