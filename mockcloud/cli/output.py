"""Print the JSON documents of mockcloud's commands."""

from __future__ import annotations

from netcommon.cli.output import emit


def answer(name: str, **fields: object) -> None:
    """Print the JSON document of the schema mockcloud-``name`` (docs/schemas)."""
    emit({"schema": f"mockcloud-{name}", "version": 1, **fields})
