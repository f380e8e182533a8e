"""netcommon tree: the node at a glance."""

from __future__ import annotations

import locale
import os
import sys

import click

from netcommon.cli.app import App
from netcommon.cli.names import chosen
from netcommon.cli.output import coloured, emit, json_option
from netcommon.cli.progress import steps
from netcommon.views.topology.document import document
from netcommon.views.topology.gather import gather
from netcommon.views.topology.model import NodeView
from netcommon.views.topology.text import ASCII, UNICODE, text


@click.command("tree")
@click.option("--ascii", "as_ascii", is_flag=True, help="Draw with ASCII alone, as where the locale is not UTF-8.")
@click.option(
    "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="auto: on a terminal, unless NO_COLOR is set."
)
@json_option
@click.pass_obj
def tree(app: App, as_ascii: bool, color: str, as_json: bool) -> None:
    """Show the node: its bridges, Open vSwitch bridges and routing tables, and the NICs on each with what has drifted.

    Changes nothing. The exit status is 0 whatever is found: netcommon check has one that tells.
    """
    node = seen(app)
    if as_json:
        emit(document(node))
        return
    on = color == "always" or (color == "auto" and coloured(app.environ))
    style = UNICODE if draws(sys.stdout.encoding or "ascii", locale.getencoding()) and not as_ascii else ASCII
    click.echo(text(node, style._replace(colour=on)), color=on)


def seen(app: App) -> NodeView:
    """The node as it is now, from one snapshot; what is wrong with records is part of it."""
    node = app.node(strict=False, readonly=True)
    problems: list[str] = []
    records = chosen(node.store, (), problems)
    with steps("NICs", len(records)) as step:
        return gather(node, node.host.snapshot(), os.uname().nodename, records, problems, lambda _done: step(""))


def draws(stream: str, of_locale: str) -> bool:
    """Whether lines can be drawn with more than ASCII: both the stream and the locale, which the terminal follows, are UTF-8.

    Python itself writes UTF-8 in the locale C (PEP 540), whatever the terminal makes of it.
    """
    return {name.lower().replace("_", "-") for name in (stream, of_locale)} <= {"utf-8", "utf8"}


COMMANDS = {"tree": tree}
