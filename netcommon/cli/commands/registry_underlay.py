"""netcommon registry underlay: a prefix for each node, of the site's."""

from __future__ import annotations

from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, fields, json_option, say, table
from netcommon.cli.registry_client import client, show_change, text, whole
from runtime.moment import local_time

dry_option = click.option("--dry-run", is_flag=True, help="Only say what would change.")


@click.group("underlay")
def underlay() -> None:
    """The underlay: a /64 of the site's prefix for each node."""


@underlay.command("init")
@click.argument("prefix")
@click.option("--zone", default=None, metavar="ZONE", help="The zone of endpoints' names; an empty one: they have none.")
@click.option("--ttl", type=int, default=None, metavar="SECONDS", help="For which resolvers keep a name; 60 at first.")
@click.option("--minimum-age", type=float, default=None, metavar="SECONDS", help="Before what was given back is used again; 3600 at first.")
@dry_option
@json_option
@click.pass_obj
def init(app: App, prefix: str, zone: str | None, ttl: int | None, minimum_age: float | None, dry_run: bool, as_json: bool) -> None:
    """Give each node a /64 of PREFIX, a /48 to /60.

    Nodes that join later are given theirs then. The same again changes nothing, or what an option says.
    """
    body = {"prefix": prefix, "zone": zone, "ttl": ttl, "minimum_age": minimum_age}
    with client(app) as asked:
        said = asked.change("PUT", "underlay", {name: value for name, value in body.items() if value is not None}, dry_run=dry_run)
    value = said.body["body"] if dry_run else said.body
    show_change(said, f"the underlay is {value['prefix']}{', its zone ' if value['zone'] else ''}{value['zone']}", dry_run, as_json)


@underlay.command("show")
@json_option
@click.pass_obj
def show(app: App, as_json: bool) -> None:
    """Show the underlay, and which node has which prefix."""
    with client(app) as asked:
        item = asked.get("underlay").body
        items, _revision = whole(asked, "prefixes")
    if as_json:
        answer("registry", revision=item["revision"], items=[{**item, "prefixes": items}])
        return
    lines = [(name, str(value)) for name, value in item["underlay"].items()]
    lines += [("given", str(item["given"])), ("left", str(item["left"])), ("without", text(item["without"]))]
    say(fields((name, value) for name, value in lines if value))

    def row(one: Any) -> tuple[Any, ...]:
        until = one["prefix"]["until"]
        return one["name"] or one["node"], one["prefix"]["prefix"], one["address"], f"quarantine until {local_time(until)}" if until else ""

    if items:
        say("\n" + table(("NODE", "PREFIX", "ADDRESS", ""), [row(one) for one in items]))


COMMANDS = {"underlay": underlay}
