"""Provide the command line ``netcommon``, the door for people. Subcommands are imported when they are called, so that help is quick."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    from netcommon.cli.group import netcommon

    netcommon.main(prog_name="netcommon")
