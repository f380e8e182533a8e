"""netcommon config: the effective settings, and where each comes from."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say, table


@click.command("config")
@json_option
@click.pass_obj
def config(app: App, as_json: bool) -> None:
    """Print the effective settings and where each comes from: a line of the file, or the default."""
    from netcommon.settings.load import explain

    app.settings()  # says what is to be said of them
    found = explain(app.paths)
    if as_json:
        answer("config", settings=[one._asdict() for one in found])
        return
    say(f"# {app.paths.config}")
    say(table(("SETTING", "VALUE", "SOURCE"), [(one.key, _shown(one.value), one.source) for one in found]))


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


COMMANDS = {"config": config}
