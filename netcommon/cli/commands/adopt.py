"""netcommon adopt: NICs of running Ganeti instances come under management."""

from __future__ import annotations

import click

from netcommon.cli import signals
from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say, table
from netcommon.cli.progress import progress_option, steps
from netcommon.lifecycle.context import Call
from runtime import validate
from runtime.errors import UNAVAILABLE
from runtime.nic import Nic

HEADINGS = ("INSTANCE", "NIC", "UUID", "DEVICE", "ACTION", "WHY")


@click.command("adopt")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@click.option("--all", "every", is_flag=True, help="Every instance that runs here.")
@click.option("--dry-run", is_flag=True, help="Only say what would be adopted.")
@progress_option
@json_option
@click.pass_context
def adopt(ctx: click.Context, instances: tuple[str, ...], every: bool, dry_run: bool, progress: bool, as_json: bool) -> None:
    """Take NICs of running Ganeti instances under management: those that were started before these hooks were installed.

    Which tap is which NIC's is found in QEMU's process, never guessed: a NIC whose tap is not certain is left alone, and it is said
    why. Guests go on undisturbed, and no site's script runs. With --all, policy rules that Ganeti's script has left of devices that
    are gone are removed.
    """
    from netcommon.lifecycle import adopt as lifecycle

    app: App = ctx.obj
    if bool(instances) == every:
        raise click.UsageError("name instances, or give --all")
    names = [validate.instance(name) for name in instances]
    node = app.node(readonly=dry_run)

    def begun(nic: Nic) -> Call:
        signals.between()
        return app.call(nic=nic)

    with steps("adopt", wanted=progress) as step:
        found = lifecycle.adopt(node, begun, names, dry_run, step)
        signals.between()
        found += lifecycle.leftovers(node, app.call(), dry_run) if every else []
    if as_json:
        answer("adopt", nics=[one._asdict() for one in found])
    elif found:
        say(table(HEADINGS, found))
    else:
        say("no instance of Ganeti runs here")
    ctx.exit(UNAVAILABLE if any(one.action == lifecycle.FAILED for one in found) else 0)


COMMANDS = {"adopt": adopt}
