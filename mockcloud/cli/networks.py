"""mockcloud network and nictags: networks of a cloud, and what its nodes should provide for them."""

from __future__ import annotations

import click

from mockcloud.cli.opened import cloud_option, done, not_empty
from mockcloud.cli.output import answer, warn
from netcommon.cli.output import fields, json_option, say, table

#: Options that are fields of a network in the registry.
FIELDS = ("subnet", "subnet6", "gateway", "gateway6", "tag")


@click.command("network")
@click.argument("name")
@click.option("--subnet", default="", metavar="PREFIX", callback=not_empty, help="Its IPv4 subnet.")
@click.option("--subnet6", default="", metavar="PREFIX", callback=not_empty, help="Its IPv6 subnet.")
@click.option("--gateway", default="", metavar="ADDRESS", callback=not_empty, help="Its gateway for IPv4.")
@click.option("--gateway6", default="", metavar="ADDRESS", callback=not_empty, help="Its gateway for IPv6.")
@click.option("--tag", default="", callback=not_empty, help="The NIC tag that a node must provide for it.")
@click.option("--vlan", default=0, metavar="NUMBER", help="Its VLAN.")
@cloud_option
@json_option
def network(folder: str, name: str, vlan: int, as_json: bool, **given: str) -> None:
    """Let there be a network in the cloud's registry; one that is there already has to be like that."""
    wanted: dict[str, object] = {field: given[field] for field in FIELDS if given[field]}
    found = done(folder, "network", {"name": name, "fields": {**wanted, **({"vlan": vlan} if vlan else {})}})["network"]
    if as_json:
        answer("network", network=found)
        return
    say(fields((field, found[field]) for field in ("uuid", "name", *FIELDS, "vlan", "mac_prefix")))


@click.command("nictags")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--add", multiple=True, metavar="TAG", help="Let them provide this; may be given several times.")
@click.option("--remove", multiple=True, metavar="TAG", help="Let them provide this no more; may be given several times.")
@cloud_option
@json_option
def nictags(nodes: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Say which NIC tags nodes should provide, all of them by default, and which of those they do not.

    A node provides a tag by a bridge, a switch or a table of that name, which its agent reports: mockcloud status.
    """
    found = done(folder, "nictags", {"nodes": list(nodes), "add": list(add), "remove": list(remove)})
    if as_json:
        answer("nictags", **found)
        return
    rows = [(each["hostname"], " ".join(each["provides"]), " ".join(each["missing"])) for each in found["nodes"]]
    say(table(("NODE", "PROVIDES", "MISSING"), rows))
    warn(found["refused"])


COMMANDS = {"network": network, "nictags": nictags}
