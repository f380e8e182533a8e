"""mockcloud create, count, delete, list, status and nics: the nodes of a cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mockcloud import limits, sysinfo
from mockcloud.cli.opened import cloud_option, opened, uuids
from mockcloud.cli.output import answer
from mockcloud.hardware import PROFILES
from mockcloud.sysinfo import DEPTHS, OLD, TREE, VERSIONS
from netcommon.cli.output import json_option, say, table
from runtime.errors import NicInvalid

if TYPE_CHECKING:
    from collections.abc import Collection

    from mockcloud.cloud import MockCloud

SECONDS = 20.0  #: until agents that have just been started are in step with their registry
LONGEST = 86400.0

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
@json_option
def create(number: int, folder: str, as_json: bool, **made: Any) -> None:
    """Make NUMBER nodes, one by default; the first makes the cloud.

    Each is a folder, servers/UUID, and joins the cloud's registry, which gives out the MAC and the address of its own NIC. More nodes than
    this machine can hold are refused before the first is made. What a call that was killed has left half done, the next one completes.
    """
    _some("NUMBER", number, 1)
    limits.check(number, 0, limits.room(folder, depth=made["depth"]))  # before a cloud is begun
    with opened(folder, new=True, **made) as cloud:
        cloud.sweep()
        _nodes(cloud, as_json, [each.uuid for each in cloud.create(number)])


@click.command("count")
@click.argument("number", type=int, required=False)
@cloud_option
@profile_option
@depth_option
@ganeti_option
@hook_option
@json_option
def count(number: int | None, folder: str, as_json: bool, **made: Any) -> None:
    """Let there be NUMBER nodes: new ones are made, or those of the highest numbers deleted. Without NUMBER they are counted."""
    if number is not None:
        _some("NUMBER", number, 0)
    with opened(folder, new=bool(number), **made) as cloud:
        counted = cloud.counted() if number is None else cloud.count(number)
        refused = sysinfo.look(cloud.root).refused
        if as_json:
            answer("count", **counted._asdict(), why=list(refused.values()))
            return
        say(f"{counted.nodes} nodes, {counted.alive} alive by the registry")
        _warn(refused.values())


@click.command("delete")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@cloud_option
@json_option
def delete(nodes: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Delete nodes, each named by hostname or UUID: their folders and instances, and what the registry has of them.

    MACs and addresses that they had stay in the registry's quarantine for a while, as any node's.
    """
    with opened(folder) as cloud:
        found = uuids(cloud, nodes)
        gone = [each for each in cloud.list() if each["uuid"] in found]
        cloud.delete(found)
        if as_json:
            answer("nodes", nodes=gone, refused=list(sysinfo.look(cloud.root).refused.values()))
            return
        say(f"deleted {len(found)} nodes")


@click.command("list")
@cloud_option
@json_option
def list_(folder: str, as_json: bool) -> None:
    """List the nodes, as their folders and the registry have them. No agent is started: status does that."""
    with opened(folder) as cloud:
        _nodes(cloud, as_json)


@click.command("status")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@cloud_option
@seconds_option
@seed_option
@json_option
def status(nodes: tuple[str, ...], folder: str, seconds: float, seed: int, as_json: bool) -> None:
    """Run the agents of nodes, all of them by default, for a while by the virtual clock, and say how each stands.

    With --json, all that `netcommon agent status` would say of each.
    """
    if not 0.0 < seconds <= LONGEST:
        raise NicInvalid("--seconds", f"{seconds:g}", f"more than 0, at most {LONGEST:g}")
    with opened(folder, seed=seed) as cloud:
        wanted = uuids(cloud, nodes) if nodes else None
        cloud.start(seconds, wanted)
        known = {each["uuid"]: each for each in cloud.list()}
        found = [{**known[each], "agent": cloud.status(each)} for each in cloud.nodes]
        refused = [*sysinfo.look(cloud.root).refused.values(), *cloud.failed.values()]
        if as_json:
            answer("status", now=cloud.registry.now, nodes=found, refused=refused)
            return
        rows = [(each["hostname"], "yes" if each["alive"] else "no", _nics(each["agent"]), each["agent"]["registry"]) for each in found]
        say(table(("NODE", "ALIVE", "NICS", "REGISTRY"), rows))
        _warn(refused)


@click.command("nics")
@click.argument("network")
@click.option("--subnet", default="", metavar="PREFIX", help="Make the network with this IPv4 subnet, where there is none of the name.")
@click.option("--remove", is_flag=True, help="Take these NICs away again.")
@cloud_option
@json_option
def nics(network: str, subnet: str, remove: bool, folder: str, as_json: bool) -> None:
    """Give every node, and every node made later, a NIC of its own in NETWORK, such as the external one.

    Its device has the network's name. MAC and address come from the registry.
    """
    if remove and subnet:
        raise click.UsageError("--remove takes NICs away, and --subnet makes a network: give one of them")
    with opened(folder) as cloud:
        found = [each.uuid for each in (cloud.detach(network) if remove else cloud.attach(network, subnet))]
        _nodes(cloud, as_json, found)


def _nodes(cloud: MockCloud, as_json: bool, only: Collection[str] | None = None) -> None:
    """Print nodes, all of them or some."""
    wanted = None if only is None else frozenset(only)
    found = [each for each in cloud.list() if wanted is None or each["uuid"] in wanted]
    refused = list(sysinfo.look(cloud.root).refused.values())
    if as_json:
        answer("nodes", nodes=found, refused=refused)
        return
    rows = [
        (each["hostname"], each["uuid"], each["profile"], each["depth"], each["mac"], each["address"], _external(each), _yes(each))
        for each in found
    ]
    say(table(("NODE", "UUID", "PROFILE", "DEPTH", "MAC", "ADDRESS", "EXTERNAL", "ALIVE"), rows))
    _warn(refused)


def _external(node: dict[str, Any]) -> str:
    return " ".join(f"{each['name']}={each['address']}" for each in node["external"])


def _yes(node: dict[str, Any]) -> str:
    return "yes" if node["alive"] else "no"


def _nics(agent: dict[str, Any]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(agent["nics"].items())) or "0"


def _warn(refused: Collection[str]) -> None:
    for each in refused:
        say(f"mockcloud: {each}", err=True)


def _some(variable: str, value: int, least: int) -> None:
    if value < least:
        raise NicInvalid(variable, value, f"a number from {least} on")


COMMANDS = {"create": create, "count": count, "delete": delete, "list": list_, "status": status, "nics": nics}
