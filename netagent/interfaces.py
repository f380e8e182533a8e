"""Name what the agent's parts need of netagent.observe.metrics and netagent.observe.history; tests have their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from runtime.record import Record


class Meter(Protocol):
    """Counts by name and labels. For all threads."""

    def count(self, name: str, /, value: float = 1, **labels: object) -> None: ...
    def observe(self, name: str, /, seconds: float, **labels: object) -> None: ...
    def gauge(self, name: str, /, value: float, **labels: object) -> None: ...


class Chronicle(Protocol):
    """Is told what is done to NICs. For all threads."""

    def drifted(self, record: Record, texts: Iterable[str]) -> None:
        """What of the record does not hold now; nothing: all of it holds."""
        ...

    def repaired(self, record: Record, text: str) -> None: ...
    def stuck(self, record: Record, text: str) -> None:
        """It was to be repaired, and could not be."""
        ...

    def undone(self, record: Record, text: str) -> None:
        """Nobody called a down for it."""
        ...


class Nobody:
    """Who is told takes no notice."""

    def drifted(self, record: Record, texts: Iterable[str]) -> None:
        """See Chronicle."""

    def repaired(self, record: Record, text: str) -> None:
        """See Chronicle."""

    def stuck(self, record: Record, text: str) -> None:
        """See Chronicle."""

    def undone(self, record: Record, text: str) -> None:
        """See Chronicle."""


NOBODY = Nobody()
