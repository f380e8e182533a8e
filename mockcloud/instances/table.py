"""The tasks by name, with the parameters that each takes: what the command line and programs (mockcloud/served) ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.instances.running import logged
from mockcloud.instances.tasks import OUTSIDE, Instances
from runtime import validate
from runtime.errors import HostRefused, NicInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.instances.tasks import Placed

TEXT, NUMBER, FLAG, TAGS, FIELDS, SEVERAL = "text", "a number", "true or false", "a list of tags", "an object of texts", "a list of them"
LONGEST_NAME = 63  #: characters of an instance's name, and so of a log's
NEEDED = ("name", "node", "index", "options")  #: parameters without which a task that takes them is none


class Task(NamedTuple):
    """One task: what sort each of its parameters is of, and what does it."""

    takes: Mapping[str, str]
    work: Callable[[Instances, Mapping[str, Any]], Placed | None]


def _created(instances: Instances, given: Mapping[str, Any]) -> Placed:
    placed = instances.create(given["name"], instances.node(given["node"]), given.get("nics", []), given.get("tags", []))
    return instances.start(given["name"]) if given.get("start") else placed


def _deleted(instances: Instances, given: Mapping[str, Any]) -> None:
    instances.delete(given["name"])


def _updated(instances: Instances, given: Mapping[str, Any]) -> Placed:
    tags = given.get("add", []), given.get("remove", [])
    return instances.update(given["name"], given.get("nic"), given.get("fields", {}), *tags)


TASKS: dict[str, Task] = {
    "create": Task({"name": TEXT, "node": TEXT, "nics": SEVERAL, "tags": TAGS, "start": FLAG}, _created),
    "start": Task({"name": TEXT}, lambda instances, given: instances.start(given["name"])),
    "stop": Task({"name": TEXT, "ifdown": FLAG}, lambda instances, given: instances.stop(given["name"], given.get("ifdown", False))),
    "reboot": Task({"name": TEXT}, lambda instances, given: instances.reboot(given["name"])),
    "crash": Task({"name": TEXT}, lambda instances, given: instances.crash(given["name"])),
    "delete": Task({"name": TEXT}, _deleted),
    "migrate": Task(
        {"name": TEXT, "node": TEXT, "fail": FLAG, "blind": FLAG},
        lambda instances, given: instances.migrate(
            given["name"], instances.node(given["node"]), given.get("fail", False), given.get("blind", False)
        ),
    ),
    "failover": Task(
        {"name": TEXT, "node": TEXT, "blind": FLAG},
        lambda instances, given: instances.failover(given["name"], instances.node(given["node"]), given.get("blind", False)),
    ),
    "plug": Task({"name": TEXT, "fields": FIELDS}, lambda instances, given: instances.plug(given["name"], given.get("fields", {}))),
    "unplug": Task(
        {"name": TEXT, "index": NUMBER, "ifdown": FLAG},
        lambda instances, given: instances.unplug(given["name"], given["index"], given.get("ifdown", False)),
    ),
    "update": Task({"name": TEXT, "nic": NUMBER, "fields": FIELDS, "add": TAGS, "remove": TAGS}, _updated),
    "change": Task(
        {"name": TEXT, "index": NUMBER, "options": FIELDS},
        lambda instances, given: instances.change(given["name"], given["index"], given["options"]),
    ),
}


def perform(cloud: MockCloud, task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Do a task; give the document of the schema mockcloud-instances. Raises NicInvalid for parameters that are none, NetcommonError."""
    if task in OUTSIDE:
        raise outside(task)
    if task not in TASKS:
        raise NicInvalid("task", task, f"one of {', '.join(TASKS)}")
    found = TASKS[task]
    params = _params(found, given)
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


def _params(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check parameters. Raises NicInvalid."""
    for name in given:
        if name not in task.takes:
            raise NicInvalid(name, given[name], f"no such parameter; there are {', '.join(task.takes)}")
    for name in task.takes:
        if name in NEEDED and name not in given:
            raise NicInvalid(name, "", "a value: it is missing")
    found: dict[str, Any] = {}
    for name, value in given.items():
        sort = task.takes[name]
        if not fits(sort, value):
            raise NicInvalid(name, value, sort)
        found[name] = [tag for each in value for tag in validate.tags(each, name)] if sort == TAGS else value
    validate.instance(found["name"], "INSTANCE")  # a log is named by it
    return found


def fits(sort: str, value: Any) -> bool:
    """Tell whether a value is of a sort (TEXT and so on)."""
    match sort:
        case "text":
            return isinstance(value, str) and value.isprintable()
        case "a number":
            return type(value) is int and 0 <= value < 1 << 16
        case "true or false":
            return isinstance(value, bool)
        case "a list of tags":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case "an object of texts":
            return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return isinstance(value, list) and all(fits(FIELDS, each) for each in value)
