"""Simulate a DNS server that has zones: whole updates under a condition, transfers, and what goes wrong with servers.

It takes what the publisher of a registry's zone sends (netregistry.zone.publisher.Speaker), without its wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.zone.plan import Entry, There
from runtime.errors import TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.zone.mark import Mark
    from netregistry.zone.plan import Message


class MockNameServer:
    """Have zones: each name of theirs, and a mark for each zone. ``seen``: called after each update, with what it has by then.

    ``away``: nobody reaches it. ``lost``: so many next answers are lost, though what was asked for is done.
    """

    def __init__(self, name: str, seen: Callable[[MockNameServer], None] | None = None) -> None:
        self.name, self._seen = name, seen
        self.marks: dict[str, Mark | None] = {}
        self.entries: dict[str, Entry] = {}
        self.cuts: tuple[str, ...] = ()
        self.away, self.lost = False, 0
        self.read_whole, self.asked, self.updates, self.unmet = 0, 0, 0, 0  #: how often

    @property
    def names(self) -> dict[str, str]:
        """Give what it answers: the address of each name."""
        return {name: entry.address for name, entry in self.entries.items()}

    def read(self, zone: str) -> There:
        """Read the zone whole. Raises TryAgain."""
        self._reached()
        self.read_whole += 1
        return There(self.marks.get(zone), {name: entry for name, entry in self.entries.items() if name.endswith(f".{zone}")}, self.cuts)

    def marked(self, zone: str) -> Mark | None:
        """Give the zone's mark. Raises TryAgain."""
        self._reached()
        self.asked += 1
        return self.marks.get(zone)

    def send(self, zone: str, message: Message) -> bool:
        """Do an update, or nothing of it where the mark is another one (False). Raises TryAgain."""
        self._reached()
        met = self.marks.get(zone) == message.before
        if met:
            for name, address, _types in message.changes:
                self.entries.pop(name, None)
                if address:
                    self.entries[name] = Entry(address, message.ttl)
            self.marks[zone] = message.after
            self.updates += 1
            if self._seen is not None:
                self._seen(self)
        else:
            self.unmet += 1
        if self.lost:
            self.lost -= 1
            raise TryAgain(f"no DNS server answers: {self.name}: no answer in time")
        return met

    def close(self) -> None:
        """End the conversation."""

    def _reached(self) -> None:
        if self.away:
            raise TryAgain(f"no DNS server answers: {self.name}: Connection refused")
