"""Define a source of events: a subscription, which has been made, is read whenever its descriptor says so, and is closed."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from netagent.events import Event


class Source(Protocol):
    """A subscription. Making one raises HostRefused where there is nobody to subscribe to."""

    @property
    def descriptor(self) -> int:
        """Give what netagent.loop.Scheduler.watch takes: that of a file, or whatever else that scheduler knows."""
        ...

    def read(self) -> list[Event]:
        """Give what has happened since it was last read, a part of it where it is much; never waits."""
        ...

    def close(self) -> None: ...


class Sources(Protocol):
    """Makes the subscriptions of an agent to what its host tells, but for Open vSwitch. Raises HostRefused.

    ``own``: the numbers of the sockets to nftables whose changes are left out (netcommon.host.api.host.Host.nftables_port). ``warn`` is
    told what cannot be listened to.
    """

    def __call__(self, own: Container[int], warn: Warn) -> list[Source]: ...


class Warn(Protocol):
    """Is told something for the log."""

    def __call__(self, text: str, /) -> None: ...
