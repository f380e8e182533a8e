"""Hold what the registry has of nodes of this cloud, and of their own NICs, against the nodes that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mockcloud import sysinfo
from mockcloud.hardware import OWN
from mockcloud.networks import own_uuid
from mockcloud.nodes import uuid_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mockcloud.cloud import MockCloud


class Left(NamedTuple):
    """A thing of the registry's of which no node is. ``place``: below /v1; ``label``: for people."""

    place: str
    label: str


def too_many(cloud: MockCloud) -> Iterator[Left]:
    """Give what is no node's: first NICs. That of nodes that are refused, or not made or deleted to the end, is nobody's business."""
    client, tree = cloud.registry.client(), sysinfo.look(cloud.root)
    has = {one.uuid: {OWN, *(each.name for each in one.external)} for one in tree.nodes}
    alone = {*tree.unfinished, *tree.refused, ""}
    for nic in [each["nic"] for each in client.all("nics", belongs="server")]:
        node = uuid_of(nic["instance"])
        if node not in alone and nic["uuid"] == own_uuid(node, nic["name"]) and nic["name"] not in has.get(node, ()):
            yield Left(f"nics/{nic['uuid']}", f"NIC {nic['name']} of {nic['instance']}")
    for one in [each["node"] for each in client.all("nodes", kind="virtual")]:
        if one["uuid"] == uuid_of(one["name"]) and one["uuid"] not in {*alone, *has}:
            yield Left(f"nodes/{one['uuid']}", f"node {one['name']}")


def of_own(cloud: MockCloud) -> Iterator[str]:
    """Say what is otherwise."""
    yield from (f"{each.label} is in the registry, and no node's" for each in too_many(cloud))
    nics = {each["nic"]["uuid"]: each["nic"] for each in cloud.registry.client().all("nics", belongs="server")}
    for one in sysinfo.look(cloud.root).nodes:
        for name, own in ((OWN, one.admin), *one.external):
            nic = nics.get(own_uuid(one.uuid, name), {})
            wanted = {nic.get("ip"), *nic.get("addresses", ())}
            if nic.get("mac") != own.mac or own.address not in wanted:
                yield f"NIC {name} of {one.hostname} has {own.mac} and {own.address}, and not so in the registry"
