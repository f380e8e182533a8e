"""netcommon doctor: what on this host would make NICs fail, what was left behind, and the remedies."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say

ILL = 1  #: exit status


@click.command("doctor")
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Examine this host; each finding comes with its remedy. Changes nothing. Exit status 1 if NICs will fail as it is."""
    from netcommon.doctor import findings

    app: App = ctx.obj
    found = findings(app.paths, app.host(strict=False), app.root, try_kernel=app.try_kernel)
    if as_json:
        answer("doctor", findings=[one._asdict() for one in found])
    else:
        for one in found:
            say(f"{one.level.upper():8}{one.topic}: {one.text}" + (f"\n        remedy: {one.remedy}" if one.remedy else ""))
    ctx.exit(ILL if any(one.level == "error" for one in found) else 0)


COMMANDS = {"doctor": doctor}
