"""Ask a registry for an importer: over its socket, or as a rehearsal on a copy of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.client import Asker, Client
from netregistry.importer.difference import Known
from netregistry.model import keys
from netregistry.model.codec import write
from netregistry.model.importing import Reading
from netregistry.state import all_conflicts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.importer.configuration import Configuration
    from netregistry.rehearsal import Rehearsal
    from netregistry.view import View


KINDS = ("nics", "networks", "nodes")  #: of what has a cluster's name


class Asking:
    """A registry over its socket. ``client``: one whose role is the importer of ``cluster``."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client, self._cluster = client, cluster

    def known(self) -> tuple[Known, str]:
        """As netregistry.importer.importer.Registry says; so do the others."""
        master, found = f"ganeti:{self._cluster}", dict[str, dict[str, Any]]()
        epoch, having = "", set[str]()
        for place, kind in (("networks", "network"), ("nics", "nic")):
            pages = list(self._client.pages(place, cluster=self._cluster))
            epoch = str(pages[0]["revision"]).rpartition(":")[0]
            items = [item[kind] for page in pages for item in page["items"]]
            found[place] = {item["uuid"]: item for item in items if item["master"] == master}
            having |= {uuid for page in pages for item in page["items"] if item[kind]["master"] == master for uuid in _nodes(item)}
        imports = {item["cluster"]: item["imported"] for item in self._client.all("imports")}
        nodes = [item["node"] for item in self._client.all("nodes")] if having else []
        apart = tuple(sorted(node["name"] for node in nodes if node["uuid"] in having and node["cluster"] != self._cluster))
        return Known(found["networks"], found["nics"], imports.get(self._cluster, {}), apart), epoch

    def epoch(self) -> str:
        return str(self._client.get("").body["epoch"])

    def batch(self, parts: list[dict[str, Any]]) -> tuple[list[Any], str]:
        said = self._client.change("POST", "batch", {"parts": parts})
        return said.body, said.revision.rpartition(":")[0]


def _nodes(item: dict[str, Any]) -> Iterable[str]:
    """Give the UUIDs of the nodes on which what is listed is, if it is a NIC."""
    found: Iterable[str] = item.get("shown", {}).get("nodes", ())
    return found


class Rehearsing:
    """A copy of the registry, that nothing of what is asked for leaves."""

    def __init__(self, copy: Rehearsal, cluster: str) -> None:
        self._copy, self._cluster = copy, cluster

    def known(self) -> tuple[Known, str]:
        return of_view(self._copy.view, self._cluster), self._copy.view.epoch

    def epoch(self) -> str:
        return self._copy.view.epoch

    def batch(self, parts: list[dict[str, Any]]) -> tuple[list[Any], str]:
        return self._copy.batch(f"importer:{self._cluster}", parts), self._copy.view.epoch


def of_view(view: View, cluster: str) -> Known:
    """Give what a registry has of a cluster whose importer is the master of it."""
    kinds = {
        kind: {value.uuid: write(value) for value in view.all(kind).values() if value.master == f"ganeti:{cluster}"}
        for kind in ("networks", "nics")
    }
    there = view.get(keys.imported(cluster))
    having = {key.split("/")[1] for key, report in view.all("seen").items() if report.nic in kinds["nics"]}
    apart = tuple(sorted(node.name for node in map(view.node, having) if node is not None and node.cluster != cluster))
    return Known(kinds["networks"], kinds["nics"], write(there) if there is not None else {}, apart)


class Renamed(NamedTuple):
    """Say by which name a cluster was imported before, and how many things of it had that one."""

    before: str
    nics: int
    networks: int
    nodes: int


def take_over(asked: Asker | Rehearsal, found: Configuration) -> list[Renamed]:
    """Say as the operator that a configuration is the one to be imported; give what it is not called any more. Raises as the registry does.

    Of a cluster that was renamed the registry renames a part of what it has with each request.
    """
    reading = write(Reading(found.uuid, found.master, found.node, found.serial))
    renamed, left = _renamed(asked, found), 1
    while left:
        if isinstance(asked, Asker):
            body = asked.change("PUT", f"imports/{found.cluster}", reading).body
        else:
            (body,) = asked.batch("", [{"action": "importer.hold", "target": found.cluster, "body": reading}])
        left = body.get("left", 0)
    return renamed


def _renamed(asked: Asker | Rehearsal, found: Configuration) -> list[Renamed]:
    """Look which other names a cluster is imported by, and what has them: several where a rename was not done to its end."""
    if isinstance(asked, Asker):
        uuids = {item["cluster"]: item["imported"]["uuid"] for item in asked.all("imports")}
    else:
        uuids = {key.partition("/")[2]: there.uuid for key, there in asked.view.all("imports").items()}
    return [_counted(asked, name) for name, uuid in sorted(uuids.items()) if uuid == found.uuid and name != found.cluster]


def _counted(asked: Asker | Rehearsal, name: str) -> Renamed:
    if isinstance(asked, Asker):
        return Renamed(name, **{kind: sum(1 for _ in asked.all(kind, cluster=name)) for kind in KINDS})
    has = [keys.kind(key) for key in asked.view.members("cluster", name)]
    return Renamed(name, **{kind: has.count(kind) for kind in KINDS})


def contended(asked: Asker | Rehearsal, cluster: str) -> list[str]:
    """Give the MACs and addresses that more than one NIC wants or has in a cluster, in no network of it."""
    if isinstance(asked, Asker):
        claims = [item["conflict"]["claim"] for item in asked.all("conflicts")]
    else:
        nics = [key for key in asked.view.members("cluster", cluster) if keys.kind(key) == "nics"]
        claims = [each.claim for each in all_conflicts(asked.view, nics)]
    return [what for _kind, scope, what in (claim.split("/", 2) for claim in claims) if scope == cluster]
