"""mockcloud instance: what an administrator has Ganeti do to instances, on simulated nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mockcloud.cli.opened import cloud_option, opened
from mockcloud.cli.output import answer, warn
from mockcloud.instances.table import listed, outside, perform
from mockcloud.instances.tasks import OUTSIDE
from mockcloud.served.client import ask, connection
from netcommon.cli.output import json_option, say, table
from runtime import validate
from runtime.errors import NicInvalid, TryAgain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ifdown_option = click.option("--ifdown", is_flag=True, help="Call kvm-ifdown (doc/design-ifdown.rst of Ganeti; 3.0 and 3.1 call nothing).")
blind_option = click.option("--blind", is_flag=True, help="Go on, as Ganeti does, though the registry does not show what was done.")


class Group(click.Group):
    """Commands of instances; those of other clouds that are out of scope are refused by name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return _outside(cmd_name) if found is None and cmd_name in OUTSIDE else found


def _outside(name: str) -> click.Command:
    def refuse(rest: Sequence[str]) -> None:
        raise outside(name)

    rest = click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)
    return click.Command(name, params=[rest], callback=refuse, hidden=True, context_settings={"ignore_unknown_options": True})


@click.group("instance", cls=Group)
def instance() -> None:
    """Create, run, move and delete instances, which are guests without a system in them.

    What Ganeti and QEMU do to a node is done to a simulated one: Ganeti's files, processes, taps, and the calls of its hooks; the hooks,
    the lifecycle and the agent are the real ones. A command returns when the registry shows what was done, within five seconds of virtual
    time, or says what is missing. Each leaves a log in servers/UUID/logs of its nodes. One that was killed is completed by the same again.
    """


@instance.command("create")
@click.argument("name")
@click.option("--node", required=True, help="Where it is to be, a hostname or UUID.")
@click.option("--nic", "nics", multiple=True, metavar="FIELD=VALUE,...", help="A NIC, such as network=blue,mode=bridged,link=br0.")
@click.option("--tag", "tags", multiple=True, help="A tag of the instance; may be given several times.")
@click.option("--start", "start", is_flag=True, help="Start it too.")
@cloud_option
@json_option
def create(name: str, node: str, nics: tuple[str, ...], tags: tuple[str, ...], start: bool, folder: str, as_json: bool) -> None:
    """Create an instance, which is stopped.

    Of a NIC may be said network, mode, link, vlan, ip, mac, name and model; it is bridged to br0 where nothing else is said. The registry
    gives out its MAC and, in a network, its address, where they are not given.
    """
    given = [_pairs("--nic", each.split(",")) for each in nics]
    params = {"node": node, "nics": given, "tags": list(_tags("--tag", tags)), "start": start}
    _do("create", [name], folder, as_json, **params)


@instance.command("start")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cloud_option
@json_option
def start(names: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Start instances, with NICs as the registry wants them now."""
    _do("start", names, folder, as_json)


@instance.command("stop")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@ifdown_option
@cloud_option
@json_option
def stop(names: tuple[str, ...], ifdown: bool, folder: str, as_json: bool) -> None:
    """Stop instances, and remove Ganeti's files of them."""
    _do("stop", names, folder, as_json, ifdown=ifdown)


@instance.command("reboot")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cloud_option
@json_option
def reboot(names: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Start running instances again as they were, without what the registry wants since."""
    _do("reboot", names, folder, as_json)


@instance.command("crash")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cloud_option
@json_option
def crash(names: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Kill the QEMUs of instances: their taps go, Ganeti's files stay, and nobody calls a hook."""
    _do("crash", names, folder, as_json)


@instance.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@cloud_option
@json_option
def delete(names: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Delete instances, which are stopped first, and their NICs in the registry."""

    _do("delete", names, folder, as_json)


@instance.command("migrate")
@click.argument("name")
@click.argument("node")
@click.option("--fail", is_flag=True, help="Let it fail when the target is ready: the guest stays where it is.")
@blind_option
@cloud_option
@json_option
def migrate(name: str, node: str, fail: bool, blind: bool, folder: str, as_json: bool) -> None:
    """Migrate a running instance to another node, as Ganeti 3.0 does."""
    _do("migrate", [name], folder, as_json, node=node, fail=fail, blind=blind)


@instance.command("failover")
@click.argument("name")
@click.argument("node")
@blind_option
@cloud_option
@json_option
def failover(name: str, node: str, blind: bool, folder: str, as_json: bool) -> None:
    """Start an instance on another node, after it was stopped where it was."""
    _do("failover", [name], folder, as_json, node=node, blind=blind)


@instance.command("plug")
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="FIELD=VALUE...")
@cloud_option
@json_option
def plug(name: str, fields: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Add a NIC to an instance, at once where it runs. Fields are as for create."""
    given = _pairs("FIELD=VALUE", fields)
    _do("plug", [name], folder, as_json, fields=given)


@instance.command("unplug")
@click.argument("name")
@click.argument("index", type=int)
@ifdown_option
@cloud_option
@json_option
def unplug(name: str, index: int, ifdown: bool, folder: str, as_json: bool) -> None:
    """Remove the NIC with an index, at once where the instance runs. Those behind it get the index before theirs."""
    _do("unplug", [name], folder, as_json, index=index, ifdown=ifdown)


@instance.command("update")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[INDEX FIELD=VALUE...]")
@click.option("--tag", "add", multiple=True, help="A tag that its NICs get; may be given several times.")
@click.option("--untag", "remove", multiple=True, help="A tag that they lose; may be given several times.")
@cloud_option
@json_option
def update(name: str, words: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Change what is wanted of the NIC with an index, or the tags of all NICs of an instance.

    What of it a running guest cannot get is pending until its next start.
    """
    if not (words or add or remove):
        raise click.UsageError("name what is to change: INDEX FIELD=VALUE, --tag or --untag")
    index = _index(words[0]) if words else None
    given = _pairs("FIELD=VALUE", words[1:])
    if words and not given:
        raise click.UsageError("name a field behind INDEX: FIELD=VALUE")
    params = {"fields": given, "add": list(_tags("--tag", add)), "remove": list(_tags("--untag", remove))}
    _do("update", [name], folder, as_json, **params, **({} if index is None else {"nic": index}))


@instance.command("change")
@click.argument("name")
@click.argument("index", type=int)
@click.argument("options", nargs=-1, required=True, metavar="OPTION=VALUE...")
@cloud_option
@json_option
def change(name: str, index: int, options: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Change options of the NIC with an index by the registry, at once where it runs. OPTION= takes one away."""
    given = _pairs("OPTION=VALUE", options)
    _do("change", [name], folder, as_json, index=index, options=given)


@instance.command("list")
@cloud_option
@json_option
def list_(folder: str, as_json: bool) -> None:
    """List the instances, as their files and the registry have them. No agent is started."""
    connected = connection(folder)
    if connected is not None:
        found = ask(connected, "GET", "/instances")
    else:
        with opened(folder) as cloud:
            found = listed(cloud)
    _print(found["instances"], found["refused"], as_json)


def _do(task: str, names: Sequence[str], folder: str, as_json: bool, **params: object) -> None:
    """Do a task to each instance, here or by the process that serves the cloud, and print what became of them."""
    found: list[dict[str, Any]] = []
    names = list(dict.fromkeys(names))
    connected = connection(folder)
    if connected is None:
        with opened(folder) as cloud:
            for name in names:
                found += perform(cloud, task, {"name": name, **params})["instances"]
    else:
        connected.close()
        for name in names:
            if (connected := connection(folder)) is None:
                raise TryAgain("the process that serves the mock cloud has ended")
            found += ask(connected, "POST", "/tasks", {"task": task, "params": {"name": name, **params}})["instances"]
    if task == "delete" and not as_json:
        say(f"deleted {len(names)} instances")
        return
    _print(found, [], as_json)


def _print(found: Sequence[dict[str, Any]], refused: Sequence[str], as_json: bool) -> None:
    if as_json:
        answer("instances", instances=found, refused=list(refused))
        return
    rows = []
    for each in found:
        head = (each["name"], each["node"], each["state"])
        for nic in each["nics"]:
            rows.append((*head, nic["index"], nic["mac"], nic["ip"], f"{nic['mode']} {nic['link']}", nic["tap"], nic["shown"]))
        rows += [] if each["nics"] else [(*head, "", "", "", "", "", "")]
    say(table(("INSTANCE", "NODE", "STATE", "NIC", "MAC", "ADDRESS", "LINK", "TAP", "SHOWN"), rows))
    warn(refused)


def _pairs(variable: str, words: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE, each name once. Raises NicInvalid."""
    found: dict[str, str] = {}
    for word in filter(None, words):
        name, mark, value = word.partition("=")
        if not mark or not name or name in found:
            raise NicInvalid(variable, word, "NAME=VALUE, each name once")
        found[name] = value
    return found


def _index(text: str) -> int:
    return validate.index(text, "INDEX")


def _tags(variable: str, given: Sequence[str]) -> tuple[str, ...]:
    return tuple(tag for each in given for tag in validate.tags(each, variable))


COMMANDS = {"instance": instance}
