"""Find what a cloud's registry has of a node that goes, and take away what it has of instances whose file somebody has removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mockcloud import stored, sysinfo
from mockcloud.hardware import OWN
from mockcloud.networks import CLUSTER, own_uuid
from mockcloud.stored import Vm
from netregistry.client import Problem
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mockcloud.cloud import MockCloud
    from netregistry.client import Asker


def of_node(cloud: MockCloud, node: str) -> list[str]:
    """Give the NICs that go with a node: those that it decides on, its own, and those of instances that it alone has. Raises Problem."""
    client = cloud.registry.client()
    decided = [each["nic"]["uuid"] for each in client.all("nics", master=f"node:{node}")]
    return list(dict.fromkeys((*decided, *_own(client, node), *_of_instances(cloud, node))))


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


def _of_instances(cloud: MockCloud, node: str) -> list[str]:
    """Give the NICs of the instances that a node alone has; by the registry, where somebody has edited a file."""
    found, edited = list[str](), set[str]()
    for uuid in stored.named(cloud.root, node):
        if cloud.vms.places().get(uuid, [node]) == [node]:
            try:
                vm = stored.kept(cloud.root, node, uuid)
            except NetcommonError:
                edited.add(uuid)
            else:
                found += [stored.nic_uuid(vm.name, number) for number in range(vm.numbers)] if vm is not None else []
    if edited:
        found += [uuid for uuid, instance in _wanted(cloud) if stored.vm_uuid(instance) in edited]
    return found


def take_nobodys(cloud: MockCloud) -> None:
    """Take away the instances that no node has a file of: somebody has removed it. Raises Problem."""
    there, gone = cloud.vms.places(anew=True), dict[str, list[str]]()
    for uuid, instance in _wanted(cloud):
        if stored.vm_uuid(instance) not in there:
            gone.setdefault(instance, []).append(uuid)
    for instance, nics in gone.items():
        _take(cloud, instance, nics)


def take_left(cloud: MockCloud, name: str, seconds: float) -> list[str]:
    """Take away what is left of an instance that no node has a file of: give the NICs that the registry had of it.

    ``seconds``: until agents of nodes that report them are in step with the registry. Raises HostRefused, TryAgain, Problem.
    """
    client = cloud.registry.client()
    found = (each["nic"] for each in client.all("nics", instance=name))
    nics = [each["uuid"] for each in found if (each["belongs"], each["cluster"]) == ("instance", CLUSTER)]
    said = {each["node"] for nic in nics for each in client.all("reports", nic=nic)}
    cloud.ready([each.uuid for each in sysinfo.look(cloud.root).nodes if each.uuid in said - cloud.off.keys()] if said else (), seconds)
    if nics:
        _take(cloud, name, nics)
    return nics


def _take(cloud: MockCloud, name: str, nics: Iterable[str]) -> None:
    for each in cloud.hypervisors.values():  # one that begins later knows nothing of it
        each.end(Vm(stored.vm_uuid(name), name))
    for nic in nics:
        cloud.gone(f"nics/{nic}")


def _wanted(cloud: MockCloud) -> list[tuple[str, str]]:
    """Give all NICs of instances, each with the name of its instance."""
    found = (each["nic"] for each in cloud.registry.client().all("nics", belongs="instance", cluster=CLUSTER))
    return [(each["uuid"], each["instance"]) for each in found]
