"""netcommon check and repair: what of a NIC does not hold on the host, and making it hold again."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.names import chosen, complete
from netcommon.cli.output import each, emit, json_option, say
from netcommon.cli.results import Results
from netcommon.lifecycle import steps
from netcommon.lifecycle.check import Report
from netcommon.lifecycle.check import check as examine
from netcommon.lifecycle.node import Node
from runtime.record import UP, Record

DRIFT = 1  #: exit status


@click.command("check")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option("--all", "every", is_flag=True, help="Every NIC on record; the same as naming none.")
@json_option
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Compare NICs with the host. Exit status 0: all is as recorded; 1: something is not. Changes nothing, needs no root."""
    app: App = ctx.obj
    if names and every:
        raise click.UsageError("name NICs, or give --all")
    node = app.node(strict=False, readonly=True)
    reports = _reports(app, node, names, as_json)
    if as_json:
        emit([_document(report) for report in reports])
    else:
        for report in reports:
            say(_text(report))
        if not reports:
            say("no NICs are on record")
    ctx.exit(0 if all(report.good for report in reports) else DRIFT)


def _reports(app: App, node: Node, names: tuple[str, ...], quiet: bool) -> list[Report]:
    problems: list[str] = []
    records = chosen(node.store, names, problems)
    for problem in problems:
        app.log.warning(problem)
    view = node.host.snapshot() if len(records) > 1 else node.host.view()
    reports: list[Report] = []
    known: steps.Known = {}

    def work(record: Record) -> None:
        reports.append(examine(node, view, record, known))

    each(records, work, "check", quiet)
    return reports


def _document(report: Report) -> dict[str, object]:
    nic = report.record.nic
    return {
        "nic": nic.label,
        "uuid": nic.uuid,
        "device": nic.interface,
        "state": report.record.state,
        "alive": report.alive,
        "good": report.good,
        "drift": [{"does": does, "differs": differs} for does, differs in report.drift],
        "unknown": list(report.unknown),
        "owed": list(report.owed),
    }


def _text(report: Report) -> str:
    record = report.record
    head = f"{record.nic.label} on {record.device} ({record.key}): "
    if report.good:
        return "\n".join([head + "good", *(f"  {does}: owed, for its guest is still migrating in" for does in report.owed)])
    if not report.alive:
        return head + f"{record.state}, but the device is gone: netcommon gc cleans up after it"
    lines = [head + ("drifted" if record.state == UP else f"{record.state}, not up")]
    lines += [f"  {does}: {differs}" for does, differs in report.drift]
    lines += [f"  {kind}: an operation that this version does not know" for kind in report.unknown]
    return "\n".join(lines)


@click.command("repair")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option("--all", "every", is_flag=True, help="Every NIC on record.")
@click.option("--dry-run", is_flag=True, help="Only say what would be made again.")
@json_option
@click.pass_context
def repair(ctx: click.Context, names: tuple[str, ...], every: bool, dry_run: bool, as_json: bool) -> None:
    """Make again what of NICs has drifted: what was recorded, whatever the settings say today. What holds is not touched."""
    from netcommon.lifecycle.check import repair as mend

    app: App = ctx.obj
    if bool(names) == every:
        raise click.UsageError("name NICs, or give --all")
    node = app.node(strict=False, readonly=dry_run)
    reports = _reports(app, node, names, as_json)
    if every:  # gc's, not ours
        reports = [report for report in reports if report.alive and report.record.state == UP]
    if dry_run:
        if as_json:
            emit([_document(report) for report in reports])
        else:
            say("\n".join(_would(report) for report in reports) or "no NICs: nothing to repair")
        return
    results = Results()

    def work(report: Report) -> None:
        with results.of(report.record.nic):
            results.done(mend(node, report.record.key, app.call(nic=report.record.nic)))

    each(reports, work, "repair", quiet=as_json)
    ctx.exit(results.show(as_json))


def _would(report: Report) -> str:
    if not report.alive or report.record.state != UP or not report.drift:
        return _text(report)
    head = f"{report.record.nic.label} on {report.record.device}: would repair"
    return "\n".join([head, *(f"  {does}  # {differs}" for does, differs in report.drift)])


COMMANDS = {"check": check, "repair": repair}
