"""netcommon registry underlay: a prefix for each node, of the site's, and names that lead to guests' endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Network
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, fields, json_option, say, table
from netcommon.cli.registry_client import client, node_of, part_of_place, show_change, text, whole
from runtime.errors import NicInvalid
from runtime.moment import local_time

RESTING = ("retired", "leaving")  #: states of endpoints that are in quarantine

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

    For example netcommon registry underlay where web1: its endpoints, and what is wrong with them. It is what the registry wants: name
    servers have it as soon as they can be reached.
    """
    with client(app) as asked:
        instances = {name}
        if "." in name:
            instances |= {item["leads"]["instance"] for item in whole(asked, "names", name=name)[0]}
        found, revision = _placed(asked, instances)
        if not found:  # names of the DNS know no capital letters, those of instances do
            items, _revision = whole(asked, "endpoints")
            found, revision = _placed(asked, {each for item in items if (each := item["placement"]["instance"]).lower() == name.lower()})
        leading: dict[str, str] = {}
        for instance in sorted({item["placement"]["instance"] for item in found}):
            leading |= {item["leads"]["address"]: item["name"] for item in whole(asked, "names", instance=instance)[0]}
        nodes = {item["node"]["uuid"]: item["node"]["name"] for item in asked.all("nodes")}
    if not found:
        raise NicInvalid("NAME", name, "the name of an instance, or of an endpoint, that is there")
    if as_json:
        answer("registry", revision=revision, items=found)
        return

    def row(of: Any, each: Any) -> tuple[Any, ...]:
        node, address = nodes.get(each["node"], each["node"]), each["address"]
        return of["instance"], each["kind"], node, address, each["state"], leading.get(address, "")

    rows = [row(item["placement"], each) for item in found for each in item["placement"]["endpoints"]]
    say(table(("INSTANCE", "KIND", "NODE", "ADDRESS", "STATE", "NAME"), rows))
    _warn(problem for item in found for problem in item["problems"])


def _placed(asked: Any, instances: Iterable[str]) -> tuple[list[Any], str]:
    """Give where the endpoints of instances are, and the revision of that; "" where there are none."""
    found, revision = list[Any](), ""
    for instance in sorted(instances):
        items, revision = whole(asked, "endpoints", instance=instance)
        found += items
    return found, revision


@underlay.command("quarantine")
@click.option(
    "--release", default="", metavar="ADDRESS", help="End it for this address, for the /64 that begins with it, or what waits for a zone."
)
@dry_option
@json_option
@click.pass_obj
def quarantine(app: App, release: str, dry_run: bool, as_json: bool) -> None:
    """List what is given to nobody yet, and why.

    Addresses that no name leads to any more, and /64s of forgotten nodes. --release ends it: an address goes from its node now, and a node
    that does not say that one is gone is not waited for any more. Resolvers may remember it for as long as the TTL is. With a zone that was
    the underlay's before, nothing waits any longer until its name servers have no names there.
    """
    with client(app) as asked:
        if release:
            said = asked.change("DELETE", f"underlay/quarantine/{_released(release)}", dry_run=dry_run)
            show_change(said, f"{release} released", dry_run, as_json)
            return
        prefixes, revision = whole(asked, "prefixes")
        placements = [item["placement"] for state in RESTING for item in whole(asked, "endpoints", state=state)[0]]
        nodes = {item["node"]["uuid"]: item["node"]["name"] for item in asked.all("nodes")}
    freed = [item for item in prefixes if item["prefix"]["freed"]]
    found = {each["address"]: (of, each) for of in placements for each in of["endpoints"] if each["state"] in RESTING}
    if as_json:
        items = [{"instance": of["instance"], "cluster": of["cluster"], **each} for of, each in found.values()]
        answer("registry", revision=revision, items=[*items, *freed])
        return
    rows = [_resting(of, each, nodes) for of, each in found.values()]
    rows += [(item["prefix"]["prefix"], item["node"], "", f"until {local_time(item['prefix']['until'])}") for item in freed]
    say(table(("WHAT", "NODE", "OF", "WHY"), rows) if rows else "nothing is in quarantine")


def _released(typed: str) -> str:
    """Give an address, also of one as /128 or of a /64, as they are listed; or a zone. Raises NicInvalid."""
    try:
        found = IPv6Network(typed)
    except ValueError:
        return part_of_place("--release", typed, "an address, a /64 or a zone, as underlay quarantine and underlay show list them")
    if found.prefixlen not in (64, 128):
        raise NicInvalid("--release", typed, "an address, or the /64 of a node")
    return str(found.network_address)


def _resting(of: Any, each: Any, nodes: dict[str, str]) -> tuple[str, ...]:
    if each["state"] == "leaving":
        why = "its node has not said that it is gone"
    elif each["cleared"]:
        why = f"until {local_time(each['until'])}"
    else:
        why = f"until each name server has generation {each['generation']}"
    return each["address"], nodes.get(each["node"], each["node"]), f"{of['instance']} {each['kind']}", why


@underlay.command("fence")
@click.argument("name", metavar="NODE")
@click.option("--yes", is_flag=True, help="Do not ask for the node's name once more.")
@json_option
@click.pass_obj
def fence(app: App, name: str, yes: bool, as_json: bool) -> None:
    """Say of a node that is dead that no name is to lead there.

    Turn it off first: the registry takes your word for it. What the node has reported goes, as by netcommon registry node fence --force;
    names lead to where their guests run, and those of guests that run nowhere go. Its addresses stay in quarantine until it is back and
    says that they are gone, or is forgotten.
    """
    with client(app) as asked:
        item = node_of(asked, name)
        shown = item["node"]["name"]
        if not yes and _typed(f"{shown} is off? Type its name") != shown:
            raise NicInvalid("NODE", name, "the node's name, typed once more, or --yes")
        while True:
            said = asked.change("POST", f"nodes/{item['node']['uuid']}/fence", None, item["revision"], force=True)
            if not said.body["left"]:
                break
    show_change(said, f"node {shown} fenced: in a moment no name leads there", False, as_json)


def _typed(question: str) -> str:
    try:
        return str(click.prompt(question, default="", show_default=False, err=True))
    except click.Abort:
        return ""


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        say(f"netcommon: {problem}", err=True)


COMMANDS = {"underlay": underlay}
