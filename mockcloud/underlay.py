"""Set up an underlay in a cloud's registry, and do to its nodes what an operator does: fence them, forget them, have others in their place.

A cloud whose registry is in this process has name servers of its own, in memory. A registry in another process publishes nothing of a mock
node's at all (netregistry.underlay.published).
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from mockcloud import sysinfo
from mockcloud.lost import lose
from mockcloud.networks import CLUSTER
from mockcloud.registry import once
from mockcloud.sysinfo import UUIDS, paths_of
from netregistry.client import Problem
from netregistry.model.codec import read_fields
from netregistry.model.underlay import Underlay
from runtime.errors import HostRefused, NetcommonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.cloud import MockCloud

OF_REGISTRY = ("prefix", "zone", "minimum_age", "ttl")  #: fields of an underlay that the registry has
MOST_SERVERS, MOST_OTHERS = 4, 1000
AGAIN = 2.0  #: seconds from one attempt to join to the next


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Give fields of OF_REGISTRY as the registry takes them. Raises Invalid."""
    return read_fields(Underlay, dict(given), OF_REGISTRY)


def set_up(cloud: MockCloud, given: Mapping[str, Any], dry_run: bool = False) -> dict[str, Any]:
    """Let the registry have an underlay; give it. The same once more changes nothing. Raises Problem, NicInvalid.

    ``given``: fields of OF_REGISTRY; ``servers``: how many name servers have its zone, where the registry is in this process; ``others``:
    so many nodes have joined that are nowhere, so that few prefixes are free. ``dry_run``: what is wrong is raised, and nothing changed.
    """
    fields = {name: given[name] for name in OF_REGISTRY if name in given}
    if dry_run:
        rehearsed: dict[str, Any] = cloud.registry.client().change("PUT", "underlay", fields, dry_run=True).body
        return rehearsed
    if "servers" in given and not cloud.service:
        cloud.publish(given["servers"])
    found: dict[str, Any] = cloud.registry.client().change("PUT", "underlay", fields).body
    if not cloud.service:
        cloud.own.publish()
    for number in range(1, given.get("others", 0) + 1):
        made = str(uuid.uuid5(UUIDS, f"other {number}"))
        with cloud.registry.client("node", made) as client:
            once(client, "nodes", {"uuid": made, "name": f"other{number}", "kind": "virtual", "cluster": CLUSTER})
    return found


def led(cloud: MockCloud, address: str) -> float:
    """Give until when a name server of the cloud's own has led to an address, as NameService.led."""
    names = cloud.own.names if not cloud.service else None
    return names.led(address) if names is not None else 0.0


def fenced(cloud: MockCloud, node: str) -> None:
    """Let a node lose its power, and the operator say so. Raises HostRefused."""
    cloud.crash(node)
    try:
        _let_go(cloud, node)
        client, left = cloud.registry.client(), 1
        while left:
            at = client.get(f"nodes/{node}").body["revision"]
            left = client.change("POST", f"nodes/{node}/fence", None, at, force=True).body["left"]
    except NetcommonError as error:
        raise Struck(f"it is not fenced: {error}") from None


def forgotten(cloud: MockCloud, node: str) -> None:
    """Let a node be lost for good, and the operator forget it. Raises HostRefused."""
    cloud.crash(node)
    lose(cloud.root, node)
    cloud.forgotten.add(node)
    try:
        _let_go(cloud, node)
        cloud.registry.client().change("DELETE", f"nodes/{node}", force=True)
    except NetcommonError as error:
        raise Struck(f"it is not forgotten: {error}") from None


class Struck(HostRefused):
    """Say that a fault has begun, though not all of it could be done."""


def _let_go(cloud: MockCloud, node: str) -> None:
    cloud.let_go |= {each["report"]["nic"] for each in cloud.registry.client().all("reports") if each["node"] == node}


def replaced(cloud: MockCloud, node: str) -> None:
    """Let another machine be in the place of one that was forgotten: it joins, as soon as the registry lets it, and is switched on."""
    one = sysinfo.read(cloud.root, node)
    if one is None or node not in cloud.off:
        cloud.forgotten.discard(node)
        return
    try:
        cloud.registry.join(node, one.hostname, paths_of(cloud.root, node), CLUSTER)
    except NetcommonError as error:
        if not isinstance(error, Problem) or error.kind != "exists":
            cloud.scheduler.loop().after(AGAIN, partial(replaced, cloud, node))
            return
        cloud.registry.remember(node, one.hostname, paths_of(cloud.root, node))
    cloud.forgotten.discard(node)
    cloud.boot(node)
