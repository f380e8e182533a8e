"""netcommon explain: why a NIC is as it is."""

from __future__ import annotations

import locale
import sys

import click

from netcommon.cli.app import App
from netcommon.cli.commands.tree import draws
from netcommon.cli.names import complete, defined_only, matching
from netcommon.cli.output import coloured, emit, json_option
from netcommon.lifecycle.changed_options import with_wanted
from netcommon.lifecycle.context import Node
from netcommon.views.explain.model import Explanation, document, explained, foreseen
from netcommon.views.explain.text import text
from netcommon.views.topology.text import ASCII, UNICODE


@click.command("explain")
@click.argument("names", nargs=-1, required=True, metavar="NIC...", shell_complete=complete)
@json_option
@click.pass_obj
def explain(app: App, names: tuple[str, ...], as_json: bool) -> None:
    """Explain NICs: each setting with where it comes from, each thing that was done and whether it holds, and what to do next.

    A NIC is named by its UUID, its device or INSTANCE/INDEX; INSTANCE means all of its NICs. Changes nothing.
    """
    node = app.node(strict=False, readonly=True)
    records, problems = node.store.all()
    for problem in problems:
        app.log.warning(problem)
    view = node.host.snapshot()
    labels = {record.key: record.nic.label for record in records}
    found: dict[str, Explanation] = {}
    for name in names:
        meant = matching(records, name, view=view)
        found |= {record.key: explained(node, view, record, labels) for record in meant}
        if not meant:
            node.store.refuse_newer(name)
            one = _defined(node, app, name)
            found[one.key] = one
    if as_json:
        emit(document(found.values()))
        return
    on = coloured(app.environ)
    style = (UNICODE if draws(sys.stdout.encoding or "ascii", locale.getencoding()) else ASCII)._replace(colour=on)
    click.echo("\n\n".join(text(one, style) for one in found.values()), color=on)


def _defined(node: Node, app: App, name: str) -> Explanation:
    """One that is described beforehand. Raises NicInvalid where there is none of that name."""
    nic = with_wanted(node, defined_only(app.paths, name), app.log)
    return foreseen(nic, app.settings(strict=False))


COMMANDS = {"explain": explain}
