"""The group of all subcommands: knows their names and help, and imports each one only to run it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import IO, Any, cast

import click

from netcommon import __version__
from runtime.errors import UNAVAILABLE, NetcommonError

#: Heading of help -> name -> module below netcommon.cli.commands, which has a command of that name; and its help. In the order of use.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "NICs": {
        "define": ("define", "Describe a NIC of plain QEMU beforehand, or change or remove its description."),
        "plan": ("plan", "Show what would be done for a NIC, and undone, without touching anything."),
        "up": ("up", "Join NICs to the network."),
        "down": ("down", "Take NICs out of the network."),
        "change": ("change", "Change options of NICs that are up, at once and from then on."),
        "adopt": ("adopt", "Take NICs of running Ganeti instances under management."),
    },
    "Looking": {
        "list": ("listing", "List the NICs on record and those defined."),
        "show": ("show", "Show everything about a NIC."),
        "explain": ("explain", "Say why a NIC is as it is, and what to do where it is not right."),
        "check": ("check", "Compare NICs with the host; exit status 1 if something has drifted."),
        "tree": ("tree", "Show the node: bridges and tables, the NICs on each, and what has drifted."),
        "graph": ("graph", "Draw the node as a picture."),
        "top": ("top", "Show what the NICs send and receive, live, and how the agent and its hooks do."),
        "trace": ("trace", "Tell what happens to a frame of a NIC on its way through the node."),
        "events": ("events", "Show what happens to NICs, as it happens."),
    },
    "Repairing": {
        "repair": ("check", "Make again what of a NIC has drifted."),
        "gc": ("gc", "Undo what no NIC needs any more."),
        "doctor": ("doctor", "Examine this host; each finding comes with its remedy."),
    },
    "The node": {
        "install": ("install", "Put the hooks where a hypervisor expects them, or take them out."),
        "config": ("config", "Print the effective settings and where each comes from."),
        "agent": ("agent", "Run the node's agent, or show how it is."),
        "upgrade": ("upgrade", "Write the records of earlier versions in today's form."),
        "dns": ("dns", "Show and update the records of Ganeti's instances in the DNS."),
        "registry": ("registry", "Serve and ask the registry of a cluster: networks, NICs, addresses, nodes."),
        "completion": ("completion", "Print the shell's completion script."),
    },
}

COMMANDS = {name: row for group in GROUPS.values() for name, row in group.items()}

AS_ROOT = "run it as root"


class Failed(click.ClickException):
    """An error of ours, said in one line on stderr, with its exit status. ``program``: who says it."""

    def __init__(self, error: NetcommonError, program: str = "netcommon") -> None:
        super().__init__(str(error))
        self.status, self.advice, self.program = error.status, error.advice, program

    def show(self, file: IO[Any] | None = None) -> None:
        from netcommon.log import printable  # help needs none of it

        for line in self.message.split("\n"):  # what others have said may be in it: a terminal obeys no control character of theirs
            click.echo(f"{self.program}: {printable(line)}", file=file, err=file is None)
        if self.message.endswith(AS_ROOT):
            return  # it says so itself
        if self.status == UNAVAILABLE and os.geteuid() != 0:
            click.echo(f"{self.program}: this was not run by root, which may be the reason: {AS_ROOT}", file=file, err=file is None)
        elif self.advice:
            click.echo(f"{self.program}: next: {printable(self.advice)}", file=file, err=file is None)


class LazyGroup(click.Group):
    """Commands by ``groups``, which is as GROUPS, of modules below ``package``; turns the errors of this project into exit statuses."""

    groups = GROUPS
    package = "netcommon.cli.commands"

    @property
    def rows(self) -> dict[str, tuple[str, str]]:
        """Give module and help of each command, by its name."""
        return {name: row for group in self.groups.values() for name, row in group.items()}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--json" in args:  # what is no command line is not parsed as far as the option itself
            from netcommon.cli.output import JSON

            ctx.meta[JSON] = True
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _answer(ctx, error)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self.rows.get(cmd_name)
        if row is None:
            return None
        module = import_module(f"{self.package}.{row[0]}")
        return cast(click.Command, module.COMMANDS[cmd_name])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.rows, ctx=ctx) from None  # with the names that are near

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.rows))  # one column of help below all headings
        for heading, commands in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_module, text) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _answer(ctx, error)
            raise
        except NetcommonError as error:
            failed = Failed(error, self.name or "netcommon")
            _answer(ctx, failed)
            failed.show()
            ctx.exit(failed.status)


def _answer(ctx: click.Context, error: click.UsageError | Failed) -> None:
    """Say in JSON too why the command ends as a whole, where that was asked for."""
    from netcommon.cli.output import JSON, answer

    if ctx.meta.get(JSON):
        status, advice = (error.status, error.advice) if isinstance(error, Failed) else (error.exit_code, "")
        answer("error", error=error.format_message(), status=status, advice=advice)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--root", default="", hidden=True, help="Every path below this folder: for tests and simulated nodes.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr each step as it is done.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def netcommon(ctx: click.Context, root: str, verbose: bool) -> None:
    """Networking of virtual machines' NICs: what is done for each, what of it holds, and taking all of it down again.

    A NIC is named by its UUID, its device, or INSTANCE/INDEX.

    Exit status: 0 done; 1 check found drift, doctor an error, or the agent has an alarm; 2 wrong usage; 64 the NIC's description is wrong;
    69 the host refused; 74 the output cannot be written; 75 try again; 78 the settings are wrong.
    """
    from netcommon.cli.app import App
    from runtime.paths import Paths

    if ctx.obj is None:
        root = os.path.abspath(root) if root else ""
        ctx.obj = App(Paths.under(root) if root else Paths(), root=root or "/")
    ctx.obj.verbose = verbose
    ctx.call_on_close(ctx.obj.finish)
