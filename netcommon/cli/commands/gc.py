"""netcommon gc: undoes what no NIC needs any more."""

from __future__ import annotations

import click

from netcommon.cli import signals
from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say, table
from netcommon.cli.progress import progress_option, steps
from netcommon.lifecycle.context import DEVICE_GONE
from runtime.errors import UNAVAILABLE

#: Seconds for all of it; each wait for a lock or a service has a limit of its own.
LIMIT = 600.0


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@progress_option
@json_option
@click.pass_context
def gc(ctx: click.Context, dry_run: bool, progress: bool, as_json: bool) -> None:
    """Undo what no NIC needs any more: of records whose device is gone or whose hook died, and whatever else bears our mark.

    What others made is never touched, but for policy rules that Ganeti's own script has left of devices that are gone. Nothing is
    removed before the whole host was read.
    """
    from netcommon.lifecycle.gc import gc as collect

    app: App = ctx.obj
    node = app.node(strict=False, readonly=dry_run)
    with steps("gc", wanted=progress) as step:

        def told(text: str) -> None:
            signals.between()
            step(text)

        found = collect(node, app.call(DEVICE_GONE, seconds=LIMIT), dry_run, told, signals.passes)
    if as_json:
        answer("gc", found=[thing._asdict() for thing in found])
    elif found:
        say(table(("WHAT", "WHY", "ACTION"), found))
    else:
        say("nothing to collect")
    ctx.exit(UNAVAILABLE if any(thing.action == "failed" for thing in found) else 0)


COMMANDS = {"gc": gc}
