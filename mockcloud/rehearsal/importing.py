"""Make a copy of a cluster of what is read of it: an export of a registry, or the configuration of a Ganeti cluster (config.data)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mockcloud.rehearsal.copied import GANETI, REGISTRY, Copy, Hardware, Place, from_lines
from netregistry.importer.configuration import parse
from netregistry.importer.ganeti_json import Unusable, text_of
from netregistry.model.codec import Invalid, read
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import About, Node
from netregistry.state import Shown
from runtime.errors import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST = (b'{"kind"', b'{ "kind"')  #: how the first line of an export begins
NODE = "node:"  #: the master of a NIC that is defined on a node
STANDS_STILL = frozenset(("stopped", "provisioning"))  #: states in which a NIC has no guest that runs


def imported(data: bytes) -> Copy:
    """Read an export, or the configuration of a Ganeti cluster. Raises Invalid for the former, Unusable for the latter."""
    if data.lstrip().startswith(FIRST) or not data.strip():
        return _of_registry(data)
    return _of_ganeti(data)


def _of_registry(data: bytes) -> Copy:
    if data and not data.endswith(b"\n"):
        raise Invalid(
            f"line {data.count(10) + 1}", data.splitlines()[-1][:80].decode("latin-1"), "a line that is whole: the export was cut off"
        )
    copy = from_lines(data, REGISTRY)
    names = {node.uuid: node.name for node in copy.nodes} | {node.name: node.name for node in copy.nodes}
    masters = {nic.uuid: nic.master.removeprefix(NODE) for nic in copy.nics if nic.master.startswith(NODE)}
    return copy._replace(places={uuid: Place(names[node]) for uuid, node in masters.items() if node in names})


def _of_ganeti(data: bytes) -> Copy:
    found = parse(data)
    document = json.loads(data)
    master = f"ganeti:{found.cluster}"
    nodes, names = _nodes(document, found.cluster)
    places: dict[str, Place] = {}
    by_instance = {item.get("name"): (f"instances.{key}", item) for key, item in document["instances"].items()}
    networks = {}
    for uuid, fields in found.networks.items():
        networks[uuid] = read(Network, {**fields, "uuid": uuid, "cluster": found.cluster, "master": master}, f"networks.{uuid}")
    nics = []
    for uuid, fields in found.nics.items():
        nics.append(read(Nic, {**fields, "uuid": uuid, "cluster": found.cluster, "master": master}, f"NIC {uuid}"))
        if fields["instance"] not in by_instance:
            raise Unusable("the configuration is not as Ganeti 3 writes it: an instance with NICs has no name")
        where, instance = by_instance[fields["instance"]]
        places[uuid] = Place(names.get(text_of(instance, "primary_node", where), ""), instance.get("admin_state", "up") == "up")
    return Copy(GANETI, "", networks, nodes, tuple(nics), places, problems=found.problems)


def _nodes(document: dict[str, Any], cluster: str) -> tuple[tuple[Node, ...], dict[str, str]]:
    """Give the nodes, and the name of each by its UUID. Raises Unusable."""
    nodes, names = [], {}
    for key, item in document["nodes"].items():
        try:
            node = read(Node, {"uuid": item.get("uuid") or key, "name": item.get("name"), "cluster": cluster})
        except (Invalid, AttributeError) as error:
            raise Unusable(f"the configuration is not as Ganeti 3 writes it: nodes.{escaped(key)}: {error}") from None
        nodes.append(node)
        names[key] = node.name
    return tuple(nodes), names


def with_seen(copy: Copy, documents: Iterable[tuple[str, bytes]]) -> Copy:
    """Add to a copy what ``netcommon registry nic list --json`` and ``node list --json`` have printed: pairs of a file's name and bytes.

    Raises Invalid for anything else.
    """
    names = {node.uuid: node.name for node in copy.nodes}
    places, hardware = dict(copy.places), dict(copy.hardware)
    for file, data in documents:
        for number, item in enumerate(_items(file, data)):
            where = f"{file}: items[{number}]"
            if "nic" in item and "shown" in item:
                nic, shown = read(Nic, item["nic"], f"{where}.nic"), read(Shown, item["shown"], f"{where}.shown")
                node = next((names[each] for each in reversed(shown.nodes) if each in names), "")
                places[nic.uuid] = Place(node, shown.state not in STANDS_STILL)
            elif "node" in item and "about" in item:
                there, about = read(Node, item["node"], f"{where}.node"), read(About, item["about"], f"{where}.about")
                if there.name in copy.names and (about.bridges or about.tables or about.switches):
                    hardware[there.name] = Hardware(about.bridges, about.tables, about.switches)
            else:
                raise Invalid(where, item, "a NIC or a node, as netcommon registry nic list --json, or node list --json, prints it")
    return copy._replace(places=places, hardware=hardware)


def _items(file: str, data: bytes) -> list[dict[str, Any]]:
    expected = "what netcommon registry nic list --json, or node list --json, prints"
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise Invalid(file, data[:80].decode("latin-1"), expected) from None
    items = said.get("items") if isinstance(said, dict) and said.get("schema") == "netcommon-registry" else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Invalid(file, data[:80].decode("latin-1"), expected)
    return items
