"""mockcloud create, count, delete, list, status and nics: the nodes of a cloud."""

from __future__ import annotations

import os
from typing import Any

import click

from mockcloud import limits
from mockcloud.cli.opened import cloud_option, done, not_empty, registry_option
from mockcloud.cli.output import answer, warn
from mockcloud.elsewhere import HTTPS
from mockcloud.hardware import PROFILES
from mockcloud.own_service import members_of, named
from mockcloud.parameters import LONGEST
from mockcloud.served.client import served
from mockcloud.sysinfo import DEPTHS, OLD, TREE, VERSIONS, look
from mockcloud.underlay import checked
from netcommon.cli.output import json_option, say, table
from runtime.errors import NicInvalid

SECONDS = 20.0  #: until agents that have just been started are in step with their registry

profile_option = click.option(
    "--profile", type=click.Choice(list(PROFILES)), default="plain", show_default=True, help="Which bridges and tables new nodes have."
)
depth_option = click.option(
    "--depth",
    type=click.Choice(list(DEPTHS)),
    default=TREE,
    show_default=True,
    help="What the kernel of new nodes is: simulated, and its state a tree on disk; or a network namespace of the running one.",
)
ganeti_option = click.option(
    "--ganeti", type=click.Choice(VERSIONS), default=OLD, show_default=True, help="How the hypervisor of new nodes calls the hooks."
)
hook_option = click.option("--ganeti-hook", "hooked", is_flag=True, help="Ganeti's own hook, ganeti-hook, is installed on new nodes.")
seed_option = click.option("--seed", type=int, default=1, show_default=True, help="What chance is drawn from.")
seconds_option = click.option(
    "--seconds", type=float, default=SECONDS, show_default=True, metavar="NUMBER", help="How long agents run, by the virtual clock."
)


@click.command("create")
@click.argument("number", type=int, default=1)
@cloud_option
@profile_option
@depth_option
@ganeti_option
@hook_option
@registry_option
@click.option(
    "--underlay",
    default="",
    metavar="PREFIX",
    callback=not_empty,
    help="Give the cloud's registry an underlay, of which each node gets a /64.",
)
@click.option(
    "--zone", default="", metavar="ZONE", callback=not_empty, help="With --underlay: the zone of its names; without it there are none."
)
@json_option
def create(number: int, folder: str, registry: str, underlay: str, zone: str, as_json: bool, **sort: Any) -> None:
    """Make NUMBER nodes, one by default; the first makes the cloud.

    Each is a folder, servers/UUID, and joins the cloud's registry, which gives out the MAC and the address of its own NIC. More nodes than
    this machine can hold are refused before the first is made. What a call that was killed has left half done, the next one completes.
    """
    _some("NUMBER", number, 1)
    if zone and not underlay:
        raise click.UsageError("--zone says where the names of --underlay are: give both")
    given = {"prefix": underlay, **({"zone": zone} if zone else {})} if underlay else {}
    checked(given)
    _fit(number, folder, registry, sort["depth"])
    more = {"underlay": given} if given else {}
    _nodes(done(folder, "create", {"number": number, **sort, **more}, True, registry=registry), as_json)


@click.command("count")
@click.argument("number", type=int, required=False)
@cloud_option
@profile_option
@depth_option
@ganeti_option
@hook_option
@registry_option
@json_option
def count(number: int | None, folder: str, registry: str, as_json: bool, **sort: Any) -> None:
    """Let there be NUMBER nodes: new ones are made, or those of the highest numbers deleted. Without NUMBER they are counted.

    Where the cloud is served, the agents of new nodes are started.
    """
    if number is not None:
        _some("NUMBER", number, 0)
        _fit(number, folder, registry, sort["depth"])
    given = {} if number is None else {"number": number, **sort}
    found = done(folder, "count", given, bool(number), registry=registry)
    if as_json:
        answer("count", **found)
        return
    say(f"{found['nodes']} nodes, {found['alive']} alive by the registry")
    warn(found["why"])


@click.command("delete")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@cloud_option
@json_option
def delete(nodes: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Delete nodes, each named by hostname or UUID: their folders and instances, and what the registry has of them.

    MACs and addresses that they had stay in the registry's quarantine for a while, as any node's.
    """
    found = done(folder, "delete", {"nodes": list(nodes)})
    if as_json:
        answer("nodes", **found)
        return
    say(f"deleted {len(dict.fromkeys(nodes))} nodes")


@click.command("list")
@cloud_option
@json_option
def list_(folder: str, as_json: bool) -> None:
    """List the nodes, as their folders and the registry have them. No agent is started: status does that."""
    _nodes(done(folder, "list", {}), as_json)


@click.command("status")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@cloud_option
@seconds_option
@seed_option
@json_option
def status(nodes: tuple[str, ...], folder: str, seconds: float, seed: int, as_json: bool) -> None:
    """Run the agents of nodes, all of them by default, for a while by the virtual clock, and say how each stands.

    Those of a cloud that is served run anyway, and it is said how they stand now. With --json, all that `netcommon agent status` would
    say of each.
    """
    if not 0.0 < seconds <= LONGEST:
        raise NicInvalid("--seconds", f"{seconds:g}", f"more than 0, at most {LONGEST:g}")
    found = done(folder, "status", {"nodes": list(nodes), "seconds": seconds}, seed=seed)
    if as_json:
        answer("status", **found)
        return
    rows = [
        (each["hostname"], "yes" if each["alive"] else "no", _nics(each["agent"]), each["agent"]["registry"]) for each in found["nodes"]
    ]
    say(table(("NODE", "ALIVE", "NICS", "REGISTRY"), rows))
    warn(found["refused"])


@click.command("nics")
@click.argument("network")
@click.option(
    "--subnet",
    default="",
    metavar="PREFIX",
    callback=not_empty,
    help="Make the network with this IPv4 subnet, where there is none of the name.",
)
@click.option("--remove", is_flag=True, help="Take these NICs away again.")
@cloud_option
@json_option
def nics(network: str, subnet: str, remove: bool, folder: str, as_json: bool) -> None:
    """Give every node, and every node made later, a NIC of its own in NETWORK, such as the external one.

    Its device has the network's name. MAC and address come from the registry.
    """
    if remove and subnet:
        raise click.UsageError("--remove takes NICs away, and --subnet makes a network: give one of them")
    _nodes(done(folder, "nics", {"network": network, "subnet": subnet, "remove": remove}), as_json)


def _nodes(found: dict[str, Any], as_json: bool) -> None:
    """Print nodes."""
    if as_json:
        answer("nodes", **found)
        return
    nodes = found["nodes"]
    said = ("hostname", "uuid", "profile", "depth", "mac", "address")
    rows = [(*(each[name] for name in said), _external(each), _yes(each)) for each in nodes]
    say(table(("NODE", "UUID", "PROFILE", "DEPTH", "MAC", "ADDRESS", "EXTERNAL", "ALIVE"), rows))
    warn(found["refused"])


def _fit(number: int, folder: str, registry: str, depth: str) -> None:
    """Refuse more nodes than fit before a cloud is begun; who serves one refuses them itself. Raises HostRefused, NicInvalid."""
    sockets, tls = limits.SOCKETS if registry and named(registry) else 0, registry.startswith(HTTPS)
    if not served(folder):
        members = 0 if os.path.lexists(f"{folder}/etcd") else members_of(registry)
        limits.check_members(members, folder)
        there = len(look(folder).nodes)
        limits.check(number, limits.room(folder, sockets=sockets, depth=depth, there=there, tls=tls, members=members))


def _external(node: dict[str, Any]) -> str:
    return " ".join(f"{each['name']}={each['address']}" for each in node["external"])


def _yes(node: dict[str, Any]) -> str:
    return "yes" if node["alive"] else "no"


def _nics(agent: dict[str, Any]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(agent["nics"].items())) or "0"


def _some(variable: str, value: int, least: int) -> None:
    if value < least:
        raise NicInvalid(variable, value, f"a number from {least} on")


COMMANDS = {"create": create, "count": count, "delete": delete, "list": list_, "status": status, "nics": nics}
