"""Do to the nodes and networks of a cloud what the command line and programs ask for, by name and parameters; each gives a document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mockcloud import own_nics, sysinfo
from mockcloud.parameters import FLAG, NODES, SECONDS, TAGS, TEXT, TEXTS, VALUES, Task, checked
from mockcloud.sysinfo import Sort, Sysinfo, node_uuid
from mockcloud.underlay import checked as checked_fields
from mockcloud.underlay import set_up
from runtime.errors import NicInvalid
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mockcloud.cloud import MockCloud

    Document = dict[str, Any]
    Work = Callable[[MockCloud, Mapping[str, Any]], Document]


def perform(cloud: MockCloud, task: str, given: Mapping[str, Any]) -> Document:
    """Do a task; give its document, without the schema's name. Raises NicInvalid for parameters that are none, NetcommonError."""
    found, params = checked(TASKS, task, given)
    return found.work(cloud, params)


def nodes(cloud: MockCloud, only: Collection[str] | None = None) -> Document:
    """Give nodes, all of them or some: the document of the schema mockcloud-nodes."""
    wanted = None if only is None else frozenset(only)
    found = [each for each in cloud.list() if wanted is None or each["uuid"] in wanted]
    return {"nodes": found, "refused": [*sysinfo.look(cloud.root).refused.values(), *cloud.failed.values()]}


def uuids(cloud: MockCloud, names: Sequence[str]) -> list[str]:
    """Give the UUIDs of nodes, named by UUID or hostname, unfinished and refused ones among them. Raises NicInvalid."""
    tree = sysinfo.look(cloud.root)
    known = {*(each.uuid for each in tree.nodes), *tree.unfinished, *tree.refused}
    found = dict.fromkeys(uuid_of(name) for name in names)
    for name, uuid in zip(names, map(uuid_of, names), strict=True):
        if uuid not in known:
            raise NicInvalid("NODE", name, "the UUID or hostname of a node: mockcloud list says which there are")
    return list(found)


def whole(cloud: MockCloud, names: Sequence[str]) -> list[Sysinfo]:
    """Give nodes, named by UUID or hostname, to which something is to be done. Raises NicInvalid; HostRefused where one is not whole."""
    known = {each.uuid: each for each in sysinfo.look(cloud.root).nodes}
    found = list[Sysinfo]()
    for name in dict.fromkeys(uuids(cloud, names)):
        if name not in known:
            sysinfo.whole(cloud.root, name)
        found.append(known[name])
    return found


def uuid_of(name: str) -> str:
    """Give the UUID that a name stands for, "" for what is neither a UUID nor a hostname."""
    if is_uuid(name.lower()):
        return name.lower()
    number = re.fullmatch("mock([1-9][0-9]{0,6})", name, re.ASCII)
    return node_uuid(int(number[1])) if number else ""


def _sort(given: Mapping[str, Any]) -> Document:
    """Give what is said of the sort of new nodes."""
    return {name: given[name] for name in Sort._fields if name in given}


def _create(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    underlay = checked_fields(given["underlay"]) if "underlay" in given else None
    if underlay is not None:
        set_up(cloud, underlay, dry_run=True)
    made = [each.uuid for each in cloud.create(given.get("number", 1), **_sort(given))]
    if underlay is not None:  # when nothing can be refused any more
        set_up(cloud, underlay)
    _begin(cloud, made)
    return nodes(cloud, made)


def _count(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    if "number" in given:
        cloud.count(given["number"], **_sort(given))
        _begin(cloud)
    return {**cloud.counted()._asdict(), "why": [*sysinfo.look(cloud.root).refused.values(), *cloud.failed.values()]}


def _begin(cloud: MockCloud, wanted: Collection[str] | None = None) -> None:
    """Start the agents of new nodes of a cloud that is served."""
    if cloud.live:
        cloud.start(0.0, wanted)


def _delete(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    found = uuids(cloud, given["nodes"])
    gone = [each for each in cloud.list() if each["uuid"] in found]
    cloud.delete(found)
    return {"nodes": gone, "refused": list(sysinfo.look(cloud.root).refused.values())}


def _list(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    return nodes(cloud)


def _status(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    wanted = uuids(cloud, given["nodes"]) if given.get("nodes") else None
    if not cloud.live:  # one that is served runs anyway
        cloud.start(given["seconds"], wanted)
    known = {each["uuid"]: each for each in cloud.list()}
    found = [{**known[each], "agent": cloud.status(each)} for each in cloud.nodes if wanted is None or each in wanted]
    refused = [*sysinfo.look(cloud.root).refused.values(), *cloud.failed.values()]
    return {"now": cloud.registry.now, "nodes": found, "refused": refused}


def _nics(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    network = given["network"]
    changed = own_nics.detach(cloud, network) if given.get("remove") else own_nics.attach(cloud, network, given.get("subnet", ""))
    return nodes(cloud, [each.uuid for each in changed])


def _network(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    return {"network": cloud.network(given["name"], given.get("fields", {}))}


def _nictags(cloud: MockCloud, given: Mapping[str, Any]) -> Document:
    wanted = [each.uuid for each in whole(cloud, given["nodes"])] if given.get("nodes") else None
    found = cloud.tag(wanted, given.get("add", []), given.get("remove", []))
    return {"nodes": found, "refused": list(sysinfo.look(cloud.root).refused.values())}


SORT = {"number": NODES, "profile": TEXT, "depth": TEXT, "ganeti": TEXT, "hooked": FLAG}
TASKS: dict[str, Task[Work]] = {
    "create": Task(SORT | {"underlay": VALUES}, (), _create),
    "count": Task(SORT, (), _count),
    "delete": Task({"nodes": TEXTS}, ("nodes",), _delete),
    "list": Task({}, (), _list),
    "status": Task({"nodes": TEXTS, "seconds": SECONDS}, ("seconds",), _status),
    "nics": Task({"network": TEXT, "subnet": TEXT, "remove": FLAG}, ("network",), _nics),
    "network": Task({"name": TEXT, "fields": VALUES}, ("name",), _network),
    "nictags": Task({"nodes": TEXTS, "add": TAGS, "remove": TAGS}, (), _nictags),
}
