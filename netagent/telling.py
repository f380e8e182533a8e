"""What the agent's parts need of metrics: netagent.metrics has them, tests count for themselves."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Counts by name and labels. For all threads."""

    def count(self, name: str, /, value: float = 1, **labels: object) -> None: ...
    def observe(self, name: str, /, seconds: float, **labels: object) -> None: ...
    def gauge(self, name: str, /, value: float, **labels: object) -> None: ...
