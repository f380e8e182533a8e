"""Let an importer ask a registry of this process, which can be made to fail; and compare what is there with what Ganeti has written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from netregistry.client import Problem
from netregistry.importer.asking import of_view
from netregistry.importer.configuration import parse
from netregistry.importer.difference import Known
from netregistry.importer.importer import Importer, Outcome
from netregistry.model.history import Identity
from netregistry.model.importing import Seen
from netregistry.stores.base import Batch
from runtime.errors import TryAgain
from tests.support.ganeti_configuration import CLUSTER, Cluster
from tests.support.registry import Registry
from tests.support.registry_checker import Checker


class Stored(Protocol):
    """What has a store."""

    def everything(self) -> dict[str, bytes]: ...


IMPORTER = Identity("importer", CLUSTER, "unix")


class Asked:
    """The registry, as an importer asks it. ``fails``: tells before each batch whether it is to fail: "before" it is done, or "after"."""

    def __init__(self, registry: Registry, fails: Callable[[], str] = lambda: "") -> None:
        self.registry, self._fails = registry, fails
        self.listed = self.asked = 0

    def known(self) -> tuple[Known, str]:
        self.listed += 1
        view = self.registry.local.view
        return of_view(view, CLUSTER), view.epoch

    def epoch(self) -> str:
        return self.registry.local.view.epoch

    def batch(self, parts: list[dict[str, Any]]) -> tuple[list[Any], str]:
        self.asked += 1
        fails = self._fails()
        if fails == "before":
            raise TryAgain("the registry has not answered")
        response = self.registry.ask("batch", "", {"parts": json.loads(json.dumps(parts))}, IMPORTER)
        if fails == "after":
            raise TryAgain("the registry has not answered")
        if response.status >= 400:
            raise Problem(response.body)
        return json.loads(json.dumps(response.body)), response.revision.rpartition(":")[0]


class Node:
    """A node with an importer of its own. ``time``: what its monotonic clock says."""

    def __init__(self, registry: Registry, fails: Callable[[], str] = lambda: "") -> None:
        self.asked = Asked(registry, fails)
        self.importer = Importer(self.asked)
        self.seen: tuple[Seen, ...] = ()
        self.time = 1000.0

    def read(self, cluster: Cluster, seconds: float = 0.0) -> Outcome:
        self.time += seconds
        return self.importer.take(parse(cluster.data), self.seen, self.time)

    def sees(self, cluster: Cluster) -> None:
        """Read a configuration with another node for the master."""
        found = parse(cluster.data)
        self.seen = (*(each for each in self.seen if each.master != found.master), Seen(found.master, found.serial))


def checked() -> Registry:
    """Give a registry each commit of which is judged."""
    checker = Checker(3600.0)

    def heard(batch: Batch | None) -> None:
        if batch is not None:
            checker.commit(batch.revision, [(change.key, change.value) for change in batch.changes])

    return Registry(heard=heard)


def stored(registry: Stored, kind: str) -> dict[str, dict[str, Any]]:
    """Give what is stored of one kind, by the rest of its key."""
    return {key.partition("/")[2]: json.loads(value) for key, value in registry.everything().items() if key.startswith(f"{kind}/")}


def differences(registry: Stored, cluster: Cluster) -> list[str]:
    """Say in which the cluster's NICs and networks in the store are not what its configuration says; by no code of the importer's."""
    found: list[str] = []
    networks, nics = stored(registry, "networks"), stored(registry, "nics")
    for uuid, said in cluster.document["networks"].items():
        there = networks.get(uuid)
        if there is None:
            found.append(f"network {uuid} is missing")
            continue
        pairs = {"name": "name", "network": "subnet", "network6": "subnet6", "gateway": "gateway", "mac_prefix": "mac_prefix"}
        found += [f"network {uuid}: {ours}" for theirs, ours in pairs.items() if said.get(theirs, "") != there.get(ours, "")]
        if sorted(said.get("tags", [])) != there.get("tags", []):
            found.append(f"network {uuid}: tags")
    present = set()
    for instance in cluster.document["instances"].values():
        for index, nic in enumerate(instance["nics"]):
            present.add(nic["uuid"])
            there = nics.get(nic["uuid"])
            if there is None:
                found.append(f"NIC {nic['uuid']} is missing")
                continue
            params = {"mode": "bridged", "link": "br0", "vlan": "", **nic["nicparams"]}
            expected = {"instance": instance["name"], "index": index, "mac": nic["mac"], **params, "model": "paravirtual"}
            expected |= {"ip": nic.get("ip", ""), "network": nic.get("network", ""), "name": nic.get("name", "")}
            found += [f"NIC {nic['uuid']}: {name}" for name, value in expected.items() if there.get(name, "") != value]
            if sorted(instance["tags"]) != there.get("tags", []):
                found.append(f"NIC {nic['uuid']}: tags")
    ours = f"ganeti:{CLUSTER}"
    found += [f"NIC {uuid} is left" for uuid, each in nics.items() if each.get("master") == ours and uuid not in present]
    wanted = cluster.document["networks"]
    found += [f"network {uuid} is left" for uuid, each in networks.items() if each.get("master") == ours and uuid not in wanted]
    return found


def of_others(registry: Stored) -> dict[str, dict[str, Any]]:
    """Give what somebody else is the master of: whole NICs and networks, and of this cluster's what the operator says."""
    ours = f"ganeti:{CLUSTER}"
    found: dict[str, dict[str, Any]] = {}
    for kind in ("networks", "nics", "nodes"):
        for uuid, each in stored(registry, kind).items():
            if each.get("master") == ours:
                kept = ("options", "addresses", "primary", "reserved") if kind == "nics" else ("routes", "resolvers", "mtu", "ranges")
                found[f"{kind}/{uuid}"] = {name: each[name] for name in kept if name in each}
            else:
                found[f"{kind}/{uuid}"] = each
    return found
