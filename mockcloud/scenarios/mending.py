"""Do what an administrator does after something went wrong, and what nodes and registry cannot do by themselves.

Instances that are half made or half deleted are deleted, and those are rebooted of whose NICs a hook has failed. Where the registry was
restored from an older copy, NICs of instances that it lacks are made anew, and those of instances that are gone are deleted: under Ganeti
the importer does that. An instance whose address somebody else has got meanwhile is deleted: no node had it when that was given out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mockcloud.cloud import CLUSTER
from mockcloud.instances.tasks import Instances
from netregistry.client import Problem
from netregistry.model.codec import write
from runtime.errors import NetcommonError, TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable

    from mockcloud.cloud import MockCloud
    from mockcloud.stored import Interface

TIMES, APART = 6, 10.0  #: attempts of what has to wait, and seconds between two of them
#: What a NIC that is made anew is given of what it was.
KEPT = ("uuid", "instance", "index", "name", "mac", "network", "ip", "addresses", "mode", "link", "vlan", "model", "tags", "options")


def mend(cloud: MockCloud, note: Callable[[str], None]) -> None:
    """Do it. ``note`` is told of each thing, and of what could not be done."""
    instances = Instances(cloud)
    if cloud.restored:
        _again(cloud, instances, note)
    for placed in instances.all()[0]:
        vm = placed.vm
        if vm.state in ("making", "deleting"):
            text = f"{vm.name} is half {'made' if vm.state == 'making' else 'deleted'}: deleted"
            _tried(cloud, text, note, partial(instances.delete, vm.name))
        elif vm.runs and any(each.unset for each in vm.interfaces):
            _tried(cloud, f"a hook of {vm.name} has failed: rebooted", note, partial(instances.reboot, vm.name))


def _again(cloud: MockCloud, instances: Instances, note: Callable[[str], None]) -> None:
    client = cloud.registry.client()
    has = {each.nic.uuid: each for placed in instances.all()[0] for each in placed.vm.interfaces}
    for item in list(client.all("nics", belongs="instance")):
        uuid = item["nic"]["uuid"]
        if uuid not in has:
            gone = partial(client.change, "DELETE", f"nics/{uuid}", force=True)
            _tried(cloud, f"NIC {uuid} is no instance's: deleted", note, gone)
    known = {item["nic"]["uuid"]: item["nic"] for item in client.all("nics", belongs="instance")}
    for uuid, each in has.items():
        if uuid not in known:
            made = partial(client.change, "POST", "nics", _body(each))
            if not _tried(cloud, f"NIC {uuid} is not in the registry: made anew", note, made):  # somebody else has its address by now
                _tried(cloud, f"{each.nic.instance} cannot be as it was: deleted", note, partial(instances.delete, each.nic.instance))


def _body(interface: Interface) -> dict[str, object]:
    said = write(interface.nic)
    return {"cluster": CLUSTER, **{name: said[name] for name in KEPT if said.get(name)}}


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
