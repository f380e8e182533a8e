"""netcommon graph: the picture of the node that an operator would draw."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.commands.tree import seen
from netcommon.cli.output import emit, json_option
from netcommon.views.topology.document import document
from runtime.errors import HostRefused


@click.command("graph")
@click.option("--format", "kind", type=click.Choice(("svg", "dot")), default="svg", show_default=True, help="What is written.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), default="-", help="The file that is written; - is stdout.")
@json_option
@click.pass_obj
def graph(app: App, kind: str, output: str, as_json: bool) -> None:
    """Draw the node: its uplinks, bridges, VLANs, taps and guests, with what has drifted.

    svg is finished: a browser shows it. dot is for Graphviz. --json prints the document that netcommon tree --json prints. Changes nothing.
    """
    node = seen(app)
    if as_json:
        emit(document(node))
        return
    from netcommon.views.topology.dot import dot
    from netcommon.views.topology.svg import svg

    text = {"svg": svg, "dot": dot}[kind](node)
    data = text.encode("utf-8")  # always: what a picture is written in is not the terminal's affair
    if output == "-":
        click.echo(data, nl=False)
        return
    try:
        with click.open_file(output, "wb") as file:
            file.write(data)
    except OSError as error:
        raise HostRefused(f"{output} cannot be written: {error.strerror}", "name another file") from None


COMMANDS = {"graph": graph}
