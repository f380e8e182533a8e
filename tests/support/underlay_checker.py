"""Judge an underlay by the commits of its registry alone, as a mock cloud does (mockcloud.underlay_commits)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mockcloud.underlay_commits import UnderlayCommits


class Checker:
    """Raise AssertionError at the first commit that breaks a rule. ``now``: seconds by the registry's clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._commits = UnderlayCommits(lambda: self.now)

    @property
    def state(self) -> dict[str, Any]:
        return self._commits.state

    @property
    def steps(self) -> int:
        return self._commits.steps

    def commit(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        found = self._commits.commit(changes)
        assert not found, "; ".join(found)
