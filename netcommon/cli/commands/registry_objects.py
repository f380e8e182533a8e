"""netcommon registry network, nic and node: what is wanted, as an operator changes it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import click

from netcommon.cli import ganeti_pool
from netcommon.cli.app import App
from netcommon.cli.duration import seconds_of
from netcommon.cli.output import json_option
from netcommon.cli.registry_client import (
    DAILY,
    as_root,
    client,
    joined,
    network_of,
    nic_of,
    node_of,
    part_of_place,
    place_is_free,
    served,
    show_change,
    show_list,
    show_one,
    text,
    whole,
)
from runtime import membership, validate
from runtime.errors import HostRefused

F = TypeVar("F", bound=Callable[..., object])
GIVEN = "FIELD=VALUE"
REAP_CONFIRM = 10.0  #: seconds between two looks at what may go

dry_option = click.option("--dry-run", is_flag=True, help="Only say what would change.")
force_option = click.option("--force", is_flag=True, help="Also where its Ganeti cluster is gone for good, or the node is alive.")
given_argument = click.argument("given", nargs=-1, metavar=f"[{GIVEN}]...")
filters_argument = click.argument("filters", nargs=-1, metavar="[FILTER=VALUE]...")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = import_module("netregistry.field_values").pairs(given)
    return found


def body_of(kind: str, given: tuple[str, ...], asked: Any, before: dict[str, Any] | None = None, until: float = 0.0) -> dict[str, Any]:
    """Give the body of a request; a network may be named."""
    named = _pairs(given)
    if kind == "nics" and named.get("network") and not validate.is_uuid(named["network"]):
        named["network"] = network_of(asked, named["network"])["network"]["uuid"]
    found: dict[str, Any] = import_module("netregistry.field_values").body(kind, named, before, until)
    return found


def _filters(asked: Any, given: tuple[str, ...]) -> dict[str, str]:
    """Read filters; a network and a node may be named."""
    found = _pairs(given)
    for name, of in (("network", network_of), ("node", node_of)):
        if found.get(name) and not validate.is_uuid(found[name]):
            found[name] = of(asked, found[name])[name]["uuid"]
    return found


def _listed(app: App, place: str, given: tuple[str, ...], headings: tuple[str, ...], row: Callable[[Any], Any], as_json: bool) -> None:
    with client(app) as asked:
        items, revision = whole(asked, place, **_filters(asked, given))
    show_list(sorted(items, key=row), revision, headings, row, as_json, f"no {place}")


@click.group("network")
def network() -> None:
    """Networks: subnets, ranges, gateways, what guests are told."""


@network.command("add")
@click.argument("name")
@given_argument
@dry_option
@json_option
@click.pass_obj
def network_add(app: App, name: str, given: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Make a network.

    For example netcommon registry network add blue subnet=192.0.2.0/24 gateway=192.0.2.1 ranges=192.0.2.10-192.0.2.99.
    Several values have commas between them; a route is "PREFIX via ADDRESS".
    """
    with client(app) as asked:
        said = asked.change("POST", "networks", {"name": name, **body_of("networks", given, asked)}, dry_run=dry_run)
    show_change(said, f"network {name} made", dry_run, as_json)


@network.command("set")
@click.argument("name", metavar="NETWORK")
@given_argument
@dry_option
@json_option
@click.pass_obj
def network_set(app: App, name: str, given: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Change fields of a network.

    An empty value takes away what was said.
    """
    with client(app) as asked:
        item = network_of(asked, name)
        body = body_of("networks", given, asked, item["network"])
        said = asked.change("PATCH", f"networks/{item['network']['uuid']}", body, item["revision"], dry_run)
    show_change(said, f"network {item['network']['name']} changed", dry_run, as_json)


@network.command("delete")
@click.argument("name", metavar="NETWORK")
@force_option
@dry_option
@json_option
@click.pass_obj
def network_delete(app: App, name: str, force: bool, dry_run: bool, as_json: bool) -> None:
    """Delete a network that no NIC is in."""
    with client(app) as asked:
        item = network_of(asked, name)
        said = asked.change("DELETE", f"networks/{item['network']['uuid']}", None, item["revision"], dry_run, force=force)
    show_change(said, f"network {item['network']['name']} deleted", dry_run, as_json)


@network.command("list")
@filters_argument
@json_option
@click.pass_obj
def network_list(app: App, filters: tuple[str, ...], as_json: bool) -> None:
    """List networks.

    Those that fit each FILTER=VALUE: name, cluster, master, tag, owner, address.
    """

    def row(item: Any) -> tuple[Any, ...]:
        one = item["network"]
        return one["name"], one["cluster"], one["subnet"], one["subnet6"], one["gateway"] or one["gateway6"], item["nics"], one["uuid"]

    _listed(app, "networks", filters, ("NAME", "CLUSTER", "SUBNET", "SUBNET6", "GATEWAY", "NICS", "UUID"), row, as_json)


@network.command("show")
@click.argument("name", metavar="NETWORK")
@json_option
@click.pass_obj
def network_show(app: App, name: str, as_json: bool) -> None:
    """Show everything about a network."""
    with client(app) as asked:
        show_one(network_of(asked, name), "network", as_json)


def _claim(asked: Any, name: str, what: str) -> str:
    uuid = network_of(asked, name)["network"]["uuid"]
    part_of_place("ADDRESS|MAC", what, "one address, or a MAC")
    return f"claims/{'macs' if what.count(':') == 5 and '::' not in what else 'addresses'}/{uuid}/{what}"


@network.command("reserve")
@click.argument("name", metavar="NETWORK")
@click.argument("what", metavar="ADDRESS|MAC")
@click.option("--reason", required=True, help="Why it is not to be given out.")
@click.option("--instance", default="", metavar="INSTANCE", help="NICs of this instance may have it.")
@click.option("--cluster", default="", metavar="CLUSTER", help="The instance's cluster.")
@dry_option
@json_option
@click.pass_obj
def network_reserve(app: App, name: str, what: str, reason: str, instance: str, cluster: str, dry_run: bool, as_json: bool) -> None:
    """Keep an address or a MAC from being given out."""
    with client(app) as asked:
        body = {"reason": reason, "instance": instance, "cluster": cluster}
        said = asked.change("PUT", _claim(asked, name, what), body, dry_run=dry_run)
    show_change(said, f"{what} reserved", dry_run, as_json)


@network.command("release")
@click.argument("name", metavar="NETWORK")
@click.argument("what", metavar="ADDRESS|MAC")
@dry_option
@json_option
@click.pass_obj
def network_release(app: App, name: str, what: str, dry_run: bool, as_json: bool) -> None:
    """Let an address or a MAC be given out again.

    That ends its reservation, or else its quarantine. What a guest is reported with stays in quarantine.
    """
    with client(app) as asked:
        said = asked.change("DELETE", _claim(asked, name, what), dry_run=dry_run)
    show_change(said, f"{what} released", dry_run, as_json)


@click.group("nic")
def nic() -> None:
    """NICs as they are wanted, and what is seen of them."""


@nic.command("add")
@given_argument
@dry_option
@json_option
@click.pass_obj
def nic_add(app: App, given: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Make a NIC.

    For example netcommon registry nic add network=blue instance=web1 index=0 allocate=ipv4,ipv6. Without a mac one is given out.
    """
    with client(app) as asked:
        body = body_of("nics", given, asked)
        place_is_free(asked, body)
        said = asked.change("POST", "nics", body, dry_run=dry_run)
        made = said.body["body"] if dry_run else said.body
        ganeti_pool.warn(asked, None, made)
    show_change(said, f"NIC {made['uuid']} made: {' '.join(filter(None, (made['mac'], made['ip'], *made['addresses'])))}", dry_run, as_json)


def _changed(app: App, name: str, make: Callable[[Any, dict[str, Any]], dict[str, Any]], dry_run: bool, as_json: bool) -> None:
    with client(app) as asked:
        item = nic_of(asked, name)
        said = asked.change("PATCH", f"nics/{item['nic']['uuid']}", make(asked, item["nic"]), item["revision"], dry_run)
        ganeti_pool.warn(asked, item["nic"], said.body["body"] if dry_run else said.body)
    show_change(said, f"NIC {item['label']} changed", dry_run, as_json)


@nic.command("set")
@click.argument("name", metavar="NIC")
@given_argument
@click.option(
    "--for", "length", default="", metavar="DURATION", help="Options that are given end after so long, such as 90s, 30m, 2h or 7d."
)
@dry_option
@json_option
@click.pass_obj
def nic_set(app: App, name: str, given: tuple[str, ...], length: str, dry_run: bool, as_json: bool) -> None:
    """Change fields and options of a NIC.

    Options are called options.NAME: netcommon registry nic set web1/0 options.rate_in=8mbit.
    """
    until = app.clock.wall() + seconds_of(length) if length else 0.0
    _changed(app, name, lambda asked, before: body_of("nics", given, asked, before, until), dry_run, as_json)


@nic.command("unset")
@click.argument("name", metavar="NIC")
@click.argument("names", nargs=-1, required=True, metavar="FIELD...")
@dry_option
@json_option
@click.pass_obj
def nic_unset(app: App, name: str, names: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Take away fields, and options as options.NAME, of a NIC."""
    _changed(app, name, lambda _asked, before: import_module("netregistry.field_values").defaults("nics", names, before), dry_run, as_json)


@nic.command("allocate")
@click.argument("name", metavar="NIC")
@click.argument("what", nargs=-1, required=True, type=click.Choice(["ipv4", "ipv6", "mac"]))
@dry_option
@json_option
@click.pass_obj
def nic_allocate(app: App, name: str, what: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Give out addresses, or another MAC, to a NIC."""
    _changed(app, name, lambda _asked, _before: {"allocate": list(what)}, dry_run, as_json)


@nic.command("reserve")
@click.argument("name", metavar="NIC")
@dry_option
@json_option
@click.pass_obj
def nic_reserve(app: App, name: str, dry_run: bool, as_json: bool) -> None:
    """Keep the addresses of a NIC for its instance when it is deleted.

    netcommon registry nic unset NIC reserved takes that back.
    """
    _changed(app, name, lambda _asked, _before: {"reserved": True}, dry_run, as_json)


@nic.command("delete")
@click.argument("name", metavar="NIC")
@force_option
@dry_option
@json_option
@click.pass_obj
def nic_delete(app: App, name: str, force: bool, dry_run: bool, as_json: bool) -> None:
    """Delete a NIC, and free what it has."""
    with client(app) as asked:
        item = nic_of(asked, name)
        said = asked.change("DELETE", f"nics/{item['nic']['uuid']}", None, item["revision"], dry_run, force=force)
    show_change(said, f"NIC {item['label']} deleted", dry_run, as_json)


@nic.command("list")
@filters_argument
@json_option
@click.pass_obj
def nic_list(app: App, filters: tuple[str, ...], as_json: bool) -> None:
    """List NICs.

    Those that fit each FILTER=VALUE: network, node, cluster, instance, owner, mac, address, state, tag and others.
    """

    def row(item: Any) -> tuple[Any, ...]:
        one, shown = item["nic"], item["shown"]
        addresses = " ".join(filter(None, (one["ip"], *one["addresses"])))
        return item["label"], shown["state"], one["mac"], addresses, text(shown["nodes"]), one["master"], one["uuid"]

    _listed(app, "nics", filters, ("NIC", "STATE", "MAC", "ADDRESSES", "NODES", "MASTER", "UUID"), row, as_json)


@nic.command("show")
@click.argument("name", metavar="NIC")
@json_option
@click.pass_obj
def nic_show(app: App, name: str, as_json: bool) -> None:
    """Show everything about a NIC."""
    with client(app) as asked:
        show_one(nic_of(asked, name), "nic", as_json)


@click.group("node")
def node() -> None:
    """Nodes: which have joined, and which are alive."""


@node.command("list")
@filters_argument
@json_option
@click.pass_obj
def node_list(app: App, filters: tuple[str, ...], as_json: bool) -> None:
    """List nodes.

    Those that fit each FILTER=VALUE: name, cluster, kind, alive.
    """

    def row(item: Any) -> tuple[Any, ...]:
        one = item["node"]
        state = "alive" if item["alive"] else "gone"
        return one["name"], one["cluster"], state, item["nics"], item["about"]["version"], text(item["missing"]), one["uuid"]

    _listed(app, "nodes", filters, ("NAME", "CLUSTER", "STATE", "NICS", "VERSION", "MISSING", "UUID"), row, as_json)


@node.command("show")
@click.argument("name", metavar="NODE")
@json_option
@click.pass_obj
def node_show(app: App, name: str, as_json: bool) -> None:
    """Show everything about a node."""
    with client(app) as asked:
        show_one(node_of(asked, name), "node", as_json)


@node.command("join")
@click.argument("name", metavar="NODE")
@given_argument
@dry_option
@json_option
@click.pass_obj
def node_join(app: App, name: str, given: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Let this machine join, by a UUID that it keeps.

    On the registry's machine; another one joins by a token (registry join). For example netcommon registry node join node1 cluster=prod.
    A Ganeti cluster's nodes are of the cluster that gnt-cluster info names: they are told nothing else of it before a guest comes.
    The UUID is in /var/lib/netcommon/node.json, which is not to be copied to another machine. One that has joined already joins again
    under the same UUID, where the registry has forgotten it.
    """
    as_root(app)
    if not served(app) and joined(app, "operator", DAILY) is not None:
        remedy = "netcommon registry token create node, then netcommon registry join URL TOKEN on this machine"
        raise HostRefused("no registry is served on this machine, and from elsewhere a node needs a certificate of its own", remedy)
    there = membership.read(app.paths)
    me = membership.Membership(there.uuid if there is not None else app.new_uuid(), name)
    with client(app) as asked:
        body = {"uuid": me.uuid, "name": name, **body_of("nodes", given, asked)}
        asked.change("POST", "nodes", body, dry_run=True)  # what is refused is refused before anything is kept
        if not dry_run:
            membership.write(app.paths, me)  # first: a node that is cut off here asks again under the same UUID
        said = asked.change("POST", "nodes", body, dry_run=dry_run)
        if not dry_run:
            import_module("netregistry.joining").over(app.paths.lib)  # of a join by a token that was not answered
    show_change(said, f"node {name} joined: {me.uuid}", dry_run, as_json)


@node.command("set")
@click.argument("name", metavar="NODE")
@given_argument
@dry_option
@json_option
@click.pass_obj
def node_set(app: App, name: str, given: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Change what is said of a node.

    Its cluster, and with provides=TAG,TAG the tags of networks that it should provide.
    """
    with client(app) as asked:
        item = node_of(asked, name)
        body = body_of("nodes", given, asked, item["node"])
        said = asked.change("PATCH", f"nodes/{item['node']['uuid']}", body, item["revision"], dry_run)
    show_change(said, f"node {item['node']['name']} changed", dry_run, as_json)


@node.command("fence")
@click.argument("name", metavar="NODE")
@click.option("--force", is_flag=True, help="Also while its last sign of life still counts.")
@dry_option
@json_option
@click.pass_obj
def node_fence(app: App, name: str, force: bool, dry_run: bool, as_json: bool) -> None:
    """Say of a node that is off that no NIC is there any more.

    Turn it off first: the registry takes your word for it. What it has reported goes; when it comes back it reports anew.
    """
    with client(app) as asked:
        item = node_of(asked, name)
        place, gone = f"nodes/{item['node']['uuid']}/fence", 0
        while True:
            said = asked.change("POST", place, None, item["revision"], dry_run, force=force)
            value = said.body["body"] if dry_run else said.body
            gone += len(value["nics"])
            if dry_run or not value["left"]:
                break
    show_change(said, f"node {item['node']['name']} fenced: {gone} NICs are not there any more", dry_run, as_json)


@node.command("reap")
@dry_option
@json_option
@click.pass_obj
def node_reap(app: App, dry_run: bool, as_json: bool) -> None:
    """Remove NICs that this node defines no more.

    The agent does so every hour. They are wanted NICs whose master this node is and that are stopped, with nobody who has them. They are
    looked for twice, ten seconds apart, and go if both looks find them; --dry-run looks once. Nothing goes where what is on the node cannot
    be read as a whole.
    """
    as_root(app)
    me = membership.read(app.paths)
    if me is None:
        raise HostRefused("this node has not joined a registry", "netcommon registry node join lets it join")
    looking: Any = import_module("netagent.sync.gone")
    node = app.node(strict=False, readonly=True)
    with client(app, f"node:{me.uuid}") as asked:
        going = found = looking.gone(node, me.uuid, asked)
        if found.items and not dry_run:
            app.clock.sleep(REAP_CONFIRM)
            going = looking.gone(node, me.uuid, asked)
            going = going._replace(items=looking.still(found, going))
        if going.problem:
            raise HostRefused(f"nothing is removed from the registry: {going.problem}")
        for item in going.items if not dry_run else ():
            asked.change("DELETE", f"nics/{item['nic']['uuid']}", None, item["revision"])
    headings = ("NIC", "WOULD GO" if dry_run else "WENT")
    show_list(going.items, going.revision, headings, lambda item: (item["label"], item["nic"]["uuid"]), as_json, "nothing is gone")


@node.command("forget")
@click.argument("name", metavar="NODE")
@force_option
@dry_option
@json_option
@click.pass_obj
def node_forget(app: App, name: str, force: bool, dry_run: bool, as_json: bool) -> None:
    """Forget a node that will not come back.

    Its reports count no more. NICs whose master it is stay wanted; --json lists them.
    """
    with client(app) as asked:
        item = node_of(asked, name)
        said = asked.change("DELETE", f"nodes/{item['node']['uuid']}", None, item["revision"], dry_run, force=force)
    show_change(said, f"node {item['node']['name']} forgotten", dry_run, as_json)


@click.command("settings")
@given_argument
@dry_option
@json_option
@click.pass_obj
def settings(app: App, given: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Show the settings of the registry, or change them.

    mac_prefix: of MACs that are given out; quarantine: seconds before what was freed is given out again; history_seconds and
    history_entries: how much of the history is kept.
    """
    with client(app) as asked:
        item = asked.get("settings").body
        if not given:
            show_one(item, "settings", as_json)
            return
        said = asked.change("PATCH", "settings", body_of("settings", given, asked), item["revision"], dry_run)
    show_change(said, "settings changed", dry_run, as_json)


COMMANDS = {"network": network, "nic": nic, "node": node, "settings": settings}
