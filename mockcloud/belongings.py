"""Find what a cloud's registry has of a node that goes, and of instances whose file somebody has removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mockcloud import stored
from mockcloud.hardware import OWN
from mockcloud.networks import CLUSTER, own_uuid
from netregistry.client import Problem
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from mockcloud.stored import Places
    from netregistry.client import Asker


def of_node(client: Asker, root: str, places: Places, node: str) -> list[str]:
    """Give the NICs that go with a node: those that it decides on, its own, and those of instances that it alone has. Raises Problem."""
    decided = [each["nic"]["uuid"] for each in client.all("nics", master=f"node:{node}")]
    return list(dict.fromkeys((*decided, *_own(client, node), *_of_instances(client, root, places, node))))


def _own(client: Asker, node: str) -> list[str]:
    """Give a node's own NICs, by what the registry has: networks and sysinfo.json may be others by now."""
    try:
        hostname = {"instance": client.get(f"nodes/{node}").body["node"]["name"]}
    except Problem as refused:
        if refused.kind != "missing":
            raise
        hostname = {}  # an earlier call was cut off: all nodes' are looked through
    servers = (each["nic"] for each in client.all("nics", belongs="server", **hostname))
    return [own_uuid(node, OWN), *(each["uuid"] for each in servers if each["uuid"] == own_uuid(node, each["name"]))]


def _of_instances(client: Asker, root: str, places: Places, node: str) -> list[str]:
    """Give the NICs of the instances that a node alone has; by the registry, where somebody has edited a file."""
    found, edited = list[str](), set[str]()
    for uuid in stored.named(root, node):
        if places.places().get(uuid, [node]) == [node]:
            try:
                vm = stored.kept(root, node, uuid)
            except NetcommonError:
                edited.add(uuid)
            else:
                found += [stored.nic_uuid(vm.name, number) for number in range(vm.numbers)] if vm is not None else []
    if edited:
        found += [uuid for uuid, instance in _wanted(client) if stored.vm_uuid(instance) in edited]
    return found


def nobodys(client: Asker, places: Places) -> dict[str, list[str]]:
    """Give the NICs of instances that no node has a file of, for somebody has removed it; by the instance's name. Raises Problem."""
    there, found = places.places(anew=True), dict[str, list[str]]()
    for uuid, instance in _wanted(client):
        if stored.vm_uuid(instance) not in there:
            found.setdefault(instance, []).append(uuid)
    return found


def of_instance(client: Asker, name: str) -> list[str]:
    """Give the NICs of an instance. Raises Problem."""
    found = (each["nic"] for each in client.all("nics", instance=name))
    return [each["uuid"] for each in found if (each["belongs"], each["cluster"]) == ("instance", CLUSTER)]


def _wanted(client: Asker) -> list[tuple[str, str]]:
    """Give all NICs of instances, each with the name of its instance."""
    found = (each["nic"] for each in client.all("nics", belongs="instance", cluster=CLUSTER))
    return [(each["uuid"], each["instance"]) for each in found]
