"""Do what an administrator does after something went wrong, and what nodes and registry cannot do by themselves.

Instances that are half made or half deleted are deleted, and those are rebooted of whose NICs a hook has failed. Where the registry was
restored from an older copy, networks, nodes and NICs that it lacks are made anew as they were, and NICs of instances and nodes that are
gone are deleted, as are those nodes: under Ganeti the importer does most of that. An instance whose address somebody else has got meanwhile
is deleted: no node had it when that was given out.
"""

from __future__ import annotations

from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from mockcloud import sysinfo
from mockcloud.hardware import OWN
from mockcloud.in_own import too_many
from mockcloud.instances.tasks import Instances
from mockcloud.networks import ADMINS, CLUSTER, OUI, network_uuid, own_uuid
from mockcloud.sysinfo import paths_of
from netregistry.client import Problem
from netregistry.model.codec import write
from runtime.errors import NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.stored import Interface
    from netregistry.client import Asker

TIMES, APART = 6, 10.0  #: attempts of what has to wait, and seconds between two of them
SET = ("uuid", "master", "imported")  #: of a network: what the registry says itself
#: What a NIC that is made anew is given of what it was.
KEPT = ("uuid", "instance", "index", "name", "mac", "network", "ip", "addresses", "mode", "link", "vlan", "model", "tags", "options")


def mend(cloud: MockCloud, note: Callable[[str], None]) -> None:
    """Do it. ``note`` is told of each thing, and of what could not be done."""
    instances = Instances(cloud)
    if cloud.restored:
        _again(cloud, instances, note)
        cloud.restored = False
        cloud.lost.clear()
        cloud.networks_lost.clear()
    for placed in instances.all()[0]:
        vm = placed.vm
        if vm.state in ("making", "deleting"):
            text = f"{vm.name} is half {'made' if vm.state == 'making' else 'deleted'}: deleted"
            _tried(cloud, text, note, partial(instances.delete, vm.name))
        elif vm.runs and any(each.unset for each in vm.interfaces):
            _tried(cloud, f"a hook of {vm.name} has failed: rebooted", note, partial(instances.reboot, vm.name))


def _again(cloud: MockCloud, instances: Instances, note: Callable[[str], None]) -> None:
    client = cloud.registry.client()
    for uuid, body in _networks(cloud, instances).items():
        _made(cloud, client, "networks", uuid, body, note)
    for one in sysinfo.look(cloud.root).nodes:
        if not list(client.all("nodes", name=one.hostname)):
            joined = partial(cloud.registry.join, one.uuid, one.hostname, paths_of(cloud.root, one.uuid), CLUSTER)
            _tried(cloud, f"node {one.hostname} is not in the registry: joined again", note, joined)
        for name, own in ((OWN, one.admin), *one.external):
            network = next(client.all("networks", name=ADMINS["name"] if name == OWN else name), None)
            if network is not None:
                body = {"belongs": "server", "instance": one.hostname, "network": network["network"]["uuid"], "name": name}
                _made(cloud, client, "nics", own_uuid(one.uuid, name), {**body, "mac": own.mac, "ip": own.address}, note)
    for left in list(too_many(cloud)):
        _tried(cloud, f"{left.label} is no node's: deleted", note, partial(client.change, "DELETE", left.place, force=True))
    has = {each.nic.uuid: each for placed in instances.all()[0] for each in placed.vm.interfaces}
    for item in list(client.all("nics", belongs="instance")):
        uuid = item["nic"]["uuid"]
        if uuid not in has:
            gone = partial(client.change, "DELETE", f"nics/{uuid}", force=True)
            _tried(cloud, f"NIC {uuid} is no instance's: deleted", note, gone)
    known = {item["nic"]["uuid"]: item["nic"] for item in client.all("nics", belongs="instance")}
    deleted = set[str]()  # instances, with all their NICs
    for uuid, each in has.items():
        if each.nic.instance in deleted:
            continue
        if uuid in known:
            wanted = {"index": each.nic.index, **_since(cloud, uuid)}
            if fields := {name: value for name, value in wanted.items() if known[uuid][name] != value}:
                changed = partial(client.change, "PATCH", f"nics/{uuid}", fields)
                _tried(cloud, f"NIC {uuid} is an older one in the registry: {', '.join(fields)} set again", note, changed)
        else:
            made = partial(client.change, "POST", "nics", _body(each) | _since(cloud, uuid))
            if not _tried(cloud, f"NIC {uuid} is not in the registry: made anew", note, made):  # somebody else has its address by now
                _tried(cloud, f"{each.nic.instance} cannot be as it was: deleted", note, partial(instances.delete, each.nic.instance))
                deleted.add(each.nic.instance)


def _networks(cloud: MockCloud, instances: Instances) -> dict[str, dict[str, Any]]:
    """Give the networks in which somebody has a NIC, as files of instances and nodes say them; all as the registry had them, if it did."""
    found: dict[str, dict[str, Any]] = {ADMINS["uuid"]: {**ADMINS}}
    for one in sysinfo.look(cloud.root).nodes:
        for name, own in one.external:
            if name != ADMINS["name"]:  # that of all nodes has an UUID of its own
                subnet = str(ip_network(f"{own.address}/{own.length}", strict=False))
                found[network_uuid(name)] = {"name": name, "mac_prefix": OUI, "subnet": subnet}
    for placed in instances.all()[0]:
        for network in (each.network for each in placed.vm.interfaces if each.network is not None):
            found[network.uuid] = _said(write(network))
    return found | {uuid: _said(each) for uuid, each in cloud.networks_lost.items()}


def _said(network: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in network.items() if value and name not in SET}


def _made(cloud: MockCloud, client: Asker, place: str, uuid: str, body: dict[str, Any], note: Callable[[str], None]) -> None:
    """Make a thing that a registry lacks."""
    try:
        client.get(f"{place}/{uuid}")
    except Problem as refused:
        if refused.kind == "missing":
            kind = place.removesuffix("s").replace("nic", "NIC")
            make = partial(client.change, "POST", place, {**body, "uuid": uuid})
            _tried(cloud, f"{kind} {body['name']} {uuid} is not in the registry: made anew", note, make)


def _body(interface: Interface) -> dict[str, object]:
    said = write(interface.nic)
    return {"cluster": CLUSTER, **{name: said[name] for name in KEPT if said.get(name) or name == "index"}}


def _since(cloud: MockCloud, uuid: str) -> dict[str, object]:
    """Give what an operator has set of a NIC since its guest was started, as the registry had it that was replaced."""
    lost = cloud.lost.get(uuid)
    if lost is None:
        return {}
    options = [each for each in lost["options"] if not each["until"] or each["until"] > cloud.registry.now]
    return {"tags": lost["tags"], "options": options}


def _tried(cloud: MockCloud, text: str, note: Callable[[str], None], work: Callable[[], object]) -> bool:
    """Do something, several times where it has to wait; tell whether it was done."""
    for attempt in range(1, TIMES + 1):
        try:
            work()
        except (TryAgain, Problem) as error:
            if attempt == TIMES:
                note(f"{text}: not done: {error}")
            cloud.scheduler.passes(APART)
        except NetcommonError as error:
            note(f"{text}: not done: {error}")
            return False
        else:
            note(text)
            return True
    return False
