"""``python -m mockcloud.rehearsal``: import and rehearse by themselves."""

from __future__ import annotations

import click

from mockcloud.rehearsal.command import COMMANDS
from netcommon.cli.group import LazyGroup


class Rehearsal(LazyGroup):
    """The two commands; errors end them as they end netcommon's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return COMMANDS.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group.format_commands(self, ctx, formatter)


def main() -> None:
    """Run the command that the arguments name."""
    Rehearsal("mockcloud", help="Rehearse a change of settings or tags on a copy of a cluster.").main(prog_name="mockcloud")


if __name__ == "__main__":
    main()
