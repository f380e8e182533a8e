"""netcommon down: takes NICs out of the network."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.names import called, complete, hint, order
from netcommon.cli.output import json_option
from netcommon.cli.progress import each, progress_option
from netcommon.cli.results import Results
from netcommon.lifecycle.context import HOT_REMOVE, MIGRATE, MIGRATE_FAILED, SHUTDOWN
from runtime.environment import DownHint
from runtime.nic import Nic


@click.command("down")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option(
    "--context",
    type=click.Choice([SHUTDOWN, MIGRATE, MIGRATE_FAILED, HOT_REMOVE]),
    default=SHUTDOWN,
    show_default=True,
    help="What is happening to the guest; the site's scripts are told.",
)
@click.option("--force", is_flag=True, help="Also while a process still holds the device: the guest is cut off.")
@click.option("--all", "every", is_flag=True, help="Every NIC on record.")
@progress_option
@json_option
@click.pass_context
def down(ctx: click.Context, names: tuple[str, ...], context: str, force: bool, every: bool, progress: bool, as_json: bool) -> None:
    """Take NICs out of the network, by UUID, device or INSTANCE/INDEX: exactly what was recorded when each came up is undone.

    A NIC that is down already, or was never seen, is no failure. INSTANCE alone is refused, with the names of its NICs. Where a process
    still holds the device the NIC is marked, and undone when the device goes; --force does not wait for that.
    """
    from netcommon.lifecycle.batch import down_all

    app: App = ctx.obj
    if bool(names) == every:
        raise click.UsageError("name NICs, or give --all: one of the two")
    node, results = app.node(strict=False), Results()
    if every:
        records, problems = node.store.all()
        for problem in problems:
            app.log.warning(problem)
        view = node.host.snapshot()
        hints = [(record.nic.label, DownHint(record.uuid, called(view, record))) for record in sorted(records, key=order)]
    else:
        hints = [(name, hint(node.store, app.paths, name, node.host.view())) for name in names]

    nics = [record.nic if record else None for record in (node.store.read(given.uuid) if given.uuid else None for _name, given in hints)]
    of = {id(given): nic for (_name, given), nic in zip(hints, nics, strict=True)}
    left = down_all(node, [given for _name, given in hints], lambda given: app.call(context, of[id(given)], final=force))

    def work(named: tuple[str, Nic | None]) -> None:
        name, nic = named
        with results.of(nic, name):
            results.became(next(left)[1])

    each([(name, nic) for (name, _given), nic in zip(hints, nics, strict=True)], work, "down", progress)
    ctx.exit(results.show(as_json))


COMMANDS = {"down": down}
