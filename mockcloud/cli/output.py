"""Print the JSON documents of mockcloud's commands, and what they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netcommon.cli.output import emit, say

if TYPE_CHECKING:
    from collections.abc import Iterable


def answer(name: str, **fields: object) -> None:
    """Print the JSON document of the schema mockcloud-``name`` (docs/schemas)."""
    emit({"schema": f"mockcloud-{name}", "version": 1, **fields})


def warn(refused: Iterable[str]) -> None:
    """Say on standard error why folders of nodes, or files of instances, are left alone."""
    for each in refused:
        say(f"mockcloud: {each}", err=True)
