"""netcommon registry underlay: a prefix for each node, of the site's, and names that lead to guests' endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, fields, json_option, say, table
from netcommon.cli.registry_client import client, show_change, text, whole
from runtime.errors import NicInvalid
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
    lines += [(name, text(item[name])) for name in ("given", "left", "without", "endpoints", "names")]
    lines += [("generation", text(item["zone"]))]
    say(fields((name, value) for name, value in lines if value))

    def row(one: Any) -> tuple[Any, ...]:
        until = one["prefix"]["until"]
        return one["name"] or one["node"], one["prefix"]["prefix"], one["address"], f"quarantine until {local_time(until)}" if until else ""

    if items:
        say("\n" + table(("NODE", "PREFIX", "ADDRESS", ""), [row(one) for one in items]))
    _warn(item["problems"])


@underlay.command("where")
@click.argument("name")
@json_option
@click.pass_obj
def where(app: App, name: str, as_json: bool) -> None:
    """Say where a name of an endpoint leads, or those of an instance.

    For example netcommon registry underlay where web1: its endpoints, and what is wrong with them. Where a name leads is what the registry wants: the
    name servers have it as soon as they can be reached.
    """
    with client(app) as asked:
        instances = {name}
        if "." in name:
            instances |= {item["leads"]["instance"] for item in whole(asked, "names", name=name)[0]}
        found, revision, leading = [], "", {}
        for instance in sorted(instances):
            items, revision = whole(asked, "endpoints", instance=instance)
            found += items
            leading |= {item["leads"]["address"]: item["name"] for item in whole(asked, "names", instance=instance)[0]}
        nodes = {item["node"]["uuid"]: item["node"]["name"] for item in asked.all("nodes")}
    if not found:
        raise NicInvalid("NAME", name, "the name of an instance, or of an endpoint, that is there")
    if as_json:
        answer("registry", revision=revision, items=found)
        return
    rows = [
        (of["instance"], each["kind"], nodes.get(each["node"], each["node"]), each["address"], each["state"], leading.get(each["address"], ""))
        for of in (item["placement"] for item in found)
        for each in of["endpoints"]
    ]
    say(table(("INSTANCE", "KIND", "NODE", "ADDRESS", "STATE", "NAME"), rows))
    _warn(problem for item in found for problem in item["problems"])


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        say(f"netcommon: {problem}", err=True)


COMMANDS = {"underlay": underlay}
