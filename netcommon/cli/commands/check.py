"""netcommon check and repair: what of a NIC does not hold on the host, and making it hold again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from netcommon.cli import signals
from netcommon.cli.app import App
from netcommon.cli.names import chosen, complete
from netcommon.cli.output import answer, json_option, say
from netcommon.cli.progress import each, progress_option
from netcommon.cli.results import Results
from netcommon.lifecycle import execute
from netcommon.lifecycle.check import Forecast, Report, foretell
from netcommon.lifecycle.context import Node, Outcome
from netcommon.lifecycle.unguarded import UNGUARDED
from netcommon.views.topology.gather import examine
from netcommon.views.topology.model import Drift
from runtime.errors import TEMPORARY, HostRefused, NetcommonError
from runtime.record import CHANGING, CLOSING, UP, Record

DRIFT = 1  #: exit status
PASSES_NOT = "not all of its traffic passes"

#: What was found of one NIC, and of what it cannot be told whether it holds, with why.
Found = tuple[Report, tuple[Drift, ...]]


@click.command("check")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option("--all", "every", is_flag=True, help="Every NIC on record; the same as naming none.")
@progress_option
@json_option
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], every: bool, progress: bool, as_json: bool) -> None:
    """Compare NICs with the host. Changes nothing.

    Exit status 0: all is as recorded; 1: something is not; 75: of something that cannot be told, since a service does not answer.
    """
    app: App = ctx.obj
    if names and every:
        raise click.UsageError("name NICs, or give --all: one of the two")
    node = app.node(strict=False, readonly=True)
    reports = _reports(app, node, names, progress)
    if as_json:
        answer("check", nics=[_document(*found) for found in reports])
    else:
        for found in reports:
            say(_text(*found))
        if not reports:
            say("no NICs are on record")
    if any(not report.good for report, _untold in reports):
        ctx.exit(DRIFT)
    ctx.exit(TEMPORARY if any(untold for _report, untold in reports) else 0)


def _reports(app: App, node: Node, names: tuple[str, ...], progress: bool) -> list[Found]:
    problems: list[str] = []
    records = chosen(node.store, names, problems, node.host.view())
    for problem in problems:
        app.log.warning(problem)
    view = node.host.snapshot() if len(records) > 1 else node.host.view()
    reports: list[Found] = []
    known: execute.Known = {}

    def work(record: Record) -> None:
        found = examine(node, view, record, known)
        while not found[0].good and (now := node.store.read(record.key)) != record:  # another call was at work meanwhile
            if now is None:
                return
            record, found = now, examine(node, node.host.view(), now)
        reports.append(found)

    each(records, work, "check", progress)
    return reports


def _document(report: Report, untold: tuple[Drift, ...]) -> dict[str, object]:
    nic = report.record.nic
    return {
        "nic": nic.label,
        "uuid": nic.uuid,
        "device": nic.interface,
        "state": report.record.state,
        "alive": report.alive,
        "good": report.good and not untold,
        "drift": [{"does": does, "differs": differs} for does, differs in report.drift],
        "unknown": list(report.unknown),
        "untold": [{"does": does, "why": why} for does, why in untold],
        "owed": list(report.owed),
        "idle": [{"does": does, "why": why} for does, why in report.idle],
        "unguarded": report.unguarded,
        "dropped": [{"why": why, "remedy": remedy} for why, remedy in report.dropped],
    }


def _text(report: Report, untold: tuple[Drift, ...]) -> str:
    record = report.record
    head = f"{record.nic.label} on {record.device} ({record.key}): "
    idle = [f"  {does}: without effect: {why}" for does, why in report.idle]
    if report.good and not untold:
        owed = [f"  {does}: owed, for its guest is still migrating in" for does in report.owed]
        return "\n".join([head + (f"good, but {UNGUARDED}" if report.unguarded else "good"), *owed, *idle])
    if not report.alive:
        return head + f"{record.state}, but {report.taken_down or 'the device is gone'}: netcommon gc cleans up after it"
    state = "drifted" if report.drift or report.unknown else "not all of it can be told"
    if report.dropped and state != "drifted":
        state = f"all of it holds, but {PASSES_NOT}"
    lines = [head + (state if record.state == UP else f"{record.state}, not up")]
    lines += [f"  {does}: {differs}" for does, differs in report.drift]
    lines += [f"  {kind}: {_unknown(kind)}" for kind in report.unknown]
    lines += [f"  {does}: cannot be told: {why}" for does, why in untold]
    lines += [f"  {why}: {remedy}" for why, remedy in report.dropped]
    lines += idle
    return "\n".join(lines)


def _lost(report: Report) -> str:
    """Say of a NIC of which repair changes nothing why its traffic does not pass all the same, and what helps; "" where it does."""
    found = "; ".join(f"{why}: {remedy}" for why, remedy in report.dropped)
    return f", but {PASSES_NOT}, which repair does not mend: {found}" if found else ""


def _unknown(kind: str) -> str:
    extension, slash, _own = kind.partition("/")
    if not slash:
        return "an operation that this version does not know: the version that made it can undo it (docs/upgrade.md)"
    return f"an operation of the extension {extension}, which cannot be used: put it and [extensions.{extension}] back (docs/extending.md)"


@click.command("repair")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option("--all", "every", is_flag=True, help="Every NIC on record.")
@click.option("--dry-run", is_flag=True, help="Only say what would be made again.")
@progress_option
@json_option
@click.pass_context
def repair(ctx: click.Context, names: tuple[str, ...], every: bool, dry_run: bool, progress: bool, as_json: bool) -> None:
    """Make again what of NICs has drifted: what was recorded, whatever the settings say today. What holds is not touched."""
    from netcommon.lifecycle.batch import repair_all
    from netcommon.lifecycle.ends import OVER, UNKEPT, OthersKept, end_due

    app: App = ctx.obj
    if bool(names) == every:
        raise click.UsageError("name NICs, or give --all: one of the two")
    node = app.node(strict=False, readonly=dry_run)
    ended = dict(end_due(node, app.call(), signals.passes))
    reports = _reports(app, node, names, progress)
    if every:  # gc's, not ours
        reports = [found for found in reports if found[0].alive and found[0].record.state in (UP, CLOSING, CHANGING)]
    before = {
        uuid: (became.text.partition(": ")[2], UNKEPT if isinstance(became, OthersKept) else OVER)
        for uuid, became in ended.items()
        if isinstance(became, Outcome) and became.changed
    }
    if dry_run:
        ctx.exit(_foretell(app, node, reports, before, as_json))
    results = Results()
    mended = repair_all(node, [report.record.key for report, _untold in reports], lambda record: app.call(nic=record.nic))

    def work(found: Found) -> None:
        record = found[0].record
        with results.of(record.nic):
            became = next(mended)[1]
            if isinstance(became, Outcome) and not became.changed:
                became = became._replace(text=became.text + _lost(found[0]))
            results.became(became)
            unended = ended.get(record.uuid)
            if isinstance(unended, NetcommonError):
                raise unended
            if record.uuid in before and isinstance(became, Outcome):
                what, why = before[record.uuid]
                more = f"; {became.text}" if became.changed else _lost(found[0])
                results.done(Outcome(True, f"{record.nic.label} on {record.device}: {what} ({why}){more}"))

    each(reports, work, "repair", progress)
    ctx.exit(results.show(as_json))


def _foretell(app: App, node: Node, reports: Sequence[Found], before: Mapping[str, tuple[str, str]], as_json: bool) -> int:
    """Say what repair would do, and what the host would refuse; return the exit status that it would have.

    ``before``: what becomes of options of NICs before that, and why, by UUID.
    """
    view = node.host.snapshot() if len(reports) > 1 else execute.once(node)
    results, found = Results(), list[Forecast | None]()
    for report, _untold in reports:
        found.append(None)
        with results.of(report.record.nic):
            steps = [before[report.record.uuid]] if report.record.uuid in before else []
            forecast = found[-1] = foretell(node, view, report.record.key, app.call(nic=report.record.nic).log, steps)
            if forecast.refused:
                raise HostRefused(forecast.refused)
    if as_json:
        rows = zip(reports, found, results.rows, strict=True)
        answer("check", nics=[_document(*report) | _of(told) | {"error": row["error"]} for report, told, row in rows])
        return results.status
    for (report, _untold), told in zip(reports, found, strict=True):
        if told is not None and (told.steps or not told.refused):
            text = told.text if told.steps else told.text + _lost(report)
            say("\n".join([text, *(f"  {does}  # {differs}" for does, differs in told.steps)]))
    results.rows = [row for row in results.rows if row["error"]]
    if results.rows:
        return results.show(as_json)
    if not reports:
        say("no NICs: nothing to repair")
    return results.status


def _of(forecast: Forecast | None) -> dict[str, object]:
    return {"would": [{"does": does, "differs": differs} for does, differs in (forecast.steps if forecast else ())]}


COMMANDS = {"check": check, "repair": repair}
