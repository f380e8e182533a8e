"""Provide the command line ``mockcloud``. Subcommands are imported when they are called, so that help is quick."""

from __future__ import annotations

from netcommon.cli import begin


def main() -> None:
    """Run the console script."""
    begin("mockcloud.cli.group", "mockcloud")
