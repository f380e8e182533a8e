"""netcommon completion: the script that teaches a shell to complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_NETCOMMON_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell: for bash, eval "$(netcommon completion bash)" in ~/.bashrc."""
    if found := get_completion_class(shell):
        click.echo(found(ctx.find_root().command, {}, "netcommon", VARIABLE).source())


COMMANDS = {"completion": completion}
