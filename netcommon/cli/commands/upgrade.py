"""netcommon upgrade: what earlier versions left on this node, in today's form."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.output import json_option, say
from netcommon.cli.progress import each, progress_option
from netcommon.cli.results import Results
from netcommon.lifecycle.context import Outcome
from netcommon.lifecycle.record_upgrade import backfill, lacking
from runtime.errors import RecordTooNew
from runtime.record import UP, Record


@click.command("upgrade")
@click.option("--dry-run", is_flag=True, help="Only say which records would be written anew.")
@progress_option
@json_option
@click.pass_context
def upgrade(ctx: click.Context, dry_run: bool, progress: bool, as_json: bool) -> None:
    """Write the records of earlier versions in today's form, after an upgrade. Changes nothing on the host, and may be run at any time.

    After a downgrade, where a record was written by a newer version, exit status 69: then nothing at all is written anew. Renamed
    settings are warned of, as every command does.
    """
    app: App = ctx.obj
    node, results = app.node(strict=False, readonly=dry_run), Results()
    newer = node.store.newer()
    if newer:
        raise RecordTooNew("\n".join([*newer.values(), "nothing was changed: NICs on these records are left alone by this version"]))
    records, problems = node.store.all()
    for problem in problems:
        app.log.warning(problem)
    old = [record for record in records if lacking(record)]

    def work(record: Record) -> None:
        with results.of(record.nic):
            if dry_run or record.state != UP:
                would = "would be written anew" if record.state == UP else f"is {record.state}: read as it is, and ended as it is"
                results.done(Outcome(False, f"{record.nic.label} ({record.key}) {would}"))
                return
            told = backfill(node, record.key, app.call(nic=record.nic))
            what = "; ".join(told) or "its device is gone: netcommon gc ends it"
            results.done(Outcome(bool(told), f"{record.nic.label} ({record.key}): {what}"))

    each(old, work, "upgrade", progress)
    if not (old or as_json):
        say(f"nothing to do: {len(records)} records, all in today's form")
        return
    ctx.exit(results.show(as_json))


COMMANDS = {"upgrade": upgrade}
