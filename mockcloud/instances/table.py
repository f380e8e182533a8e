"""The tasks by name, with the parameters that each takes: what the command line and programs (mockcloud/served) ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mockcloud.instances.running import logged
from mockcloud.instances.tasks import OUTSIDE, Instances
from mockcloud.parameters import FIELDS, FLAG, NUMBER, SEVERAL, TAGS, TEXT, Task, checked
from runtime import validate
from runtime.errors import HostRefused, NicInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.instances.tasks import Placed

    Work = Callable[[Instances, Mapping[str, Any]], Placed | None]

LONGEST_NAME = 63  #: characters of an instance's name, and so of a log's


def _created(instances: Instances, given: Mapping[str, Any]) -> Placed:
    placed = instances.create(given["name"], instances.node(given["node"]), given.get("nics", []), given.get("tags", []))
    return instances.start(given["name"]) if given.get("start") else placed


def _deleted(instances: Instances, given: Mapping[str, Any]) -> None:
    instances.delete(given["name"])


def _updated(instances: Instances, given: Mapping[str, Any]) -> Placed:
    if given.get("fields") and "nic" not in given:
        raise NicInvalid("nic", "", "the index of the NIC whose fields are to be changed: it is missing")
    tags = given.get("add", []), given.get("remove", [])
    return instances.update(given["name"], given.get("nic"), given.get("fields", {}), *tags)


def _task(takes: Mapping[str, str], work: Work) -> Task[Work]:
    """Make a task, which needs those of its parameters that say what is meant."""
    return Task(takes, tuple(name for name in takes if name in ("name", "node", "index", "options")), work)


TASKS: dict[str, Task[Work]] = {
    "create": _task({"name": TEXT, "node": TEXT, "nics": SEVERAL, "tags": TAGS, "start": FLAG}, _created),
    "start": _task({"name": TEXT}, lambda instances, given: instances.start(given["name"])),
    "stop": _task({"name": TEXT, "ifdown": FLAG}, lambda instances, given: instances.stop(given["name"], given.get("ifdown", False))),
    "reboot": _task({"name": TEXT}, lambda instances, given: instances.reboot(given["name"])),
    "crash": _task({"name": TEXT}, lambda instances, given: instances.crash(given["name"])),
    "delete": _task({"name": TEXT}, _deleted),
    "migrate": _task(
        {"name": TEXT, "node": TEXT, "fail": FLAG, "blind": FLAG},
        lambda instances, given: instances.migrate(
            given["name"], instances.node(given["node"]), given.get("fail", False), given.get("blind", False)
        ),
    ),
    "failover": _task(
        {"name": TEXT, "node": TEXT, "blind": FLAG},
        lambda instances, given: instances.failover(given["name"], instances.node(given["node"]), given.get("blind", False)),
    ),
    "plug": _task({"name": TEXT, "fields": FIELDS}, lambda instances, given: instances.plug(given["name"], given.get("fields", {}))),
    "unplug": _task(
        {"name": TEXT, "index": NUMBER, "ifdown": FLAG},
        lambda instances, given: instances.unplug(given["name"], given["index"], given.get("ifdown", False)),
    ),
    "update": _task({"name": TEXT, "nic": NUMBER, "fields": FIELDS, "add": TAGS, "remove": TAGS}, _updated),
    "change": _task(
        {"name": TEXT, "index": NUMBER, "options": FIELDS},
        lambda instances, given: instances.change(given["name"], given["index"], given["options"]),
    ),
}


def perform(cloud: MockCloud, task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Do a task; give the document of the schema mockcloud-instances. Raises NicInvalid for parameters that are none, NetcommonError."""
    if task in OUTSIDE:
        raise outside(task)
    found, params = checked(TASKS, task, given)
    validate.instance(params["name"], "INSTANCE")  # a log is named by it
    instances = Instances(cloud)
    placed = logged(cloud, f"{task}-{params['name'][:LONGEST_NAME]}", lambda: found.work(instances, params))
    return {"instances": [instances.shown(placed)] if placed is not None else [], "refused": []}


def outside(what: str) -> HostRefused:
    """Refuse what is out of scope, by name."""
    return HostRefused(f"a mock cloud has no {what}", "its instances are NICs, processes and files of Ganeti, and have no disks")


def listed(cloud: MockCloud) -> dict[str, Any]:
    """Give all instances, as the same document."""
    instances = Instances(cloud)
    found, refused = instances.all()
    return {"instances": list(map(instances.shown, found)), "refused": refused}
