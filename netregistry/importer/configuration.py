"""Read the configuration of a Ganeti cluster (config.data, as Ganeti 3 writes it: lib/objects.py): its networks and NICs, as fields.

It is read whole or not at all. What Ganeti may write and a registry cannot hold (a multicast MAC, an IPv6 subnet of one address) is left
as it is in the registry, and said: whether it is there is known, so nothing of it counts as gone. Which addresses it has is read all the
same: nobody else is given them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.importer import pool
from netregistry.importer.ganeti_json import Unusable, items, object_of, tags_of, text_of, uuid_of, within
from netregistry.model import kinds
from netregistry.model.codec import Invalid, read, read_fields, write
from netregistry.model.importing import Serial
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from runtime import validate
from runtime.environment import generated_uuid
from runtime.errors import NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Fields = dict[str, Any]

#: Bytes. A cluster of 5,000 instances has some 20 MB.
LONGEST = 64 << 20
#: Versions: CONFIG_MAJOR * 1000000 + CONFIG_MINOR * 10000 + CONFIG_REVISION (lib/_constants of Ganeti).
VERSIONS = {3000000: "3.0", 3010000: "3.1", 3020000: "3.2"}
OWNER = "owner:"  #: a tag of an instance that begins so names its owner
PARAMS = ("mode", "link", "vlan")  #: of a NIC, each by itself or as the cluster has it

#: What is read of a NIC and of a network, by the names of the registry.
NIC = ("instance", "index", "name", "owner", "mac", "network", "ip", "mode", "link", "vlan", "model", "tags")
NETWORK = ("name", "subnet", "subnet6", "gateway", "gateway6", "mac_prefix", "tags", "reserved")


class Configuration(NamedTuple):
    """What one configuration says. Fields are as the registry answers them: JSON in canonical form."""

    cluster: str  #: its name
    uuid: str
    master: str  #: the UUID of the node that is its master
    node: str  #: that node's name
    serial: int
    networks: Mapping[str, Fields] = {}
    nics: Mapping[str, Fields] = {}
    unread: frozenset[str] = frozenset()  #: UUIDs of what is there, and cannot be in a registry
    problems: tuple[str, ...] = ()  #: why not, one line each
    pools: Mapping[str, pool.Pool] = {}  #: of networks, also of those that cannot be in a registry, where it can be read
    guests: Mapping[str, Mapping[str, str]] = {}  #: network -> NIC -> its address; also of what cannot be in a registry


class _Head(NamedTuple):
    cluster: kinds.Imported
    uuid: kinds.Uuid
    master: kinds.Uuid
    node: kinds.Name
    serial: Serial


def parse(data: bytes) -> Configuration:
    """Read the bytes of a configuration. Raises Unusable."""
    if len(data) > LONGEST:
        raise Unusable(f"the configuration has {len(data)} bytes, more than {LONGEST}: it is not read")
    try:
        value = json.loads(data)
    except RecursionError:
        raise Unusable("the configuration is no JSON that Ganeti writes: lists within lists, too deep") from None
    except ValueError as error:
        raise Unusable(f"the configuration is not whole, or no JSON: {escaped(error)}") from None
    head = _head(value)
    guests: dict[str, dict[str, str]] = {}
    networks, raw, unread, problems = _networks(value)
    nics = _nics(value, networks, unread, problems, guests)
    pools: dict[str, pool.Pool] = {}
    for uuid, (fields, texts) in raw.items():
        had = guests.get(uuid, {})
        used = [ip for nic, ip in had.items() if nic in nics] if uuid in networks else had.values()
        try:
            pools[uuid] = pool.read(texts, fields, used, had.values())
        except ValueError as error:
            if uuid in networks:
                raise Unusable(f"the configuration is not as Ganeti 3 writes it: network {uuid} has {error}") from None
        else:
            if uuid in networks:
                networks[uuid]["reserved"] = pools[uuid].ranges
    return Configuration(*head, networks, nics, frozenset(unread), tuple(problems), pools, guests)


def _head(value: Any) -> _Head:
    """Read which configuration it is. Raises Unusable."""
    version = value.get("version") if isinstance(value, dict) else None
    if type(version) is not int or version not in VERSIONS:
        known = ", ".join(VERSIONS.values())
        raise Unusable(f"the configuration is of version {escaped(version)}, and known are those of Ganeti {known}")
    cluster = object_of(value, "cluster", "")
    master = text_of(cluster, "master_node", "cluster")
    nodes = object_of(value, "nodes", "")
    node = nodes.get(master)
    if not isinstance(node, dict):
        raise Unusable(f"the configuration has no node {escaped(master)}, which it says is the master")
    said = {
        "cluster": text_of(cluster, "cluster_name", "cluster"),
        "uuid": text_of(cluster, "uuid", "cluster"),
        "master": master,
        "node": text_of(node, "name", "nodes"),
        "serial": value.get("serial_no"),
    }
    try:
        return read(_Head, said)
    except Invalid as error:
        raise Unusable(f"the configuration is not as Ganeti 3 writes it: {error}") from None


# -- networks


def _networks(value: Any) -> tuple[dict[str, Fields], dict[str, tuple[Fields, list[Any]]], set[str], list[str]]:
    """Read the networks; of each, with its subnet and gateway, the texts of its pool; what cannot be in a registry, and why."""
    found: dict[str, Fields] = {}
    raw: dict[str, tuple[Fields, list[Any]]] = {}
    unread: set[str] = set()
    problems: list[str] = []
    for key, item in items(value, "networks"):
        where = f"networks.{key}"
        uuid = uuid_of(text_of(item, "uuid", where) or key, where)
        said = {
            "name": text_of(item, "name", where),
            "subnet": text_of(item, "network", where),
            "subnet6": text_of(item, "network6", where),
            "gateway": text_of(item, "gateway", where),
            "gateway6": text_of(item, "gateway6", where),
            "mac_prefix": text_of(item, "mac_prefix", where),
            "tags": tags_of(item, where),
        }
        texts = [item.get(name) or "" for name in ("reservations", "ext_reservations")]
        try:
            made = read_fields(Network, said, said)
        except Invalid as error:
            if subnet := _one(Network, "subnet", said["subnet"]):
                raw[uuid] = {"subnet": subnet, "gateway": _one(Network, "gateway", said["gateway"])}, texts
            unread.add(uuid)
            problems.append(f"network {escaped(said['name'])} ({uuid}) is left as it is in the registry: {error}")
        else:
            if uuid in found or any(each["name"] == made["name"] for each in found.values()):
                raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where} has the UUID or the name of another one")
            found[uuid] = {name: write(each) for name, each in made.items()}
            raw[uuid] = found[uuid], texts
    return found, raw, unread, problems


def _one(kind: type[Network | Nic], name: str, text: object) -> str:
    """Read one field by itself, of what cannot be read as a whole; "" where that cannot be read either."""
    try:
        found: str = read_fields(kind, {name: text}, (name,))[name]
    except Invalid:
        return ""
    return found


# -- NICs


def _nics(
    value: Any, networks: Mapping[str, Fields], unread: set[str], problems: list[str], guests: dict[str, dict[str, str]]
) -> dict[str, Fields]:
    """Read the NICs. Adds those that cannot be in a registry to ``unread``, why to ``problems``, and addresses of all to ``guests``."""
    found: dict[str, Fields] = {}
    often = object_of(object_of(value, "cluster", ""), "nicparams", "cluster").get("default", {})
    for key, instance in items(value, "instances"):
        where = f"instances.{key}"
        name, nics = text_of(instance, "name", where), instance.get("nics", [])
        if not isinstance(nics, list):
            raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where}.nics is no list")
        tags, model = tags_of(instance, where), _model(value, instance, where)
        owners = {tag[len(OWNER) :] for tag in tags if tag.startswith(OWNER)}
        owner = owners.pop() if len(owners) == 1 else ""
        if owners:
            problems.append(f"instance {escaped(name)} has several tags {OWNER}...: its NICs have no owner")
        for index, item in enumerate(nics):
            here = f"{where}.nics[{index}]"
            if not isinstance(item, dict):
                raise Unusable(f"the configuration is not as Ganeti 3 writes it: {here} is no object")
            uuid = text_of(item, "uuid", here) or _made(name, index, text_of(item, "mac", here))
            uuid = uuid_of(uuid, here)
            if uuid in found or uuid in unread:
                raise Unusable(f"the configuration is not as Ganeti 3 writes it: {here} has the UUID {uuid}, which another one has")
            # what neither says is none: it may have been said before
            params = {**dict.fromkeys(PARAMS, ""), **_params(often, "cluster.nicparams"), **_params(item.get("nicparams") or {}, here)}
            network = text_of(item, "network", here).lower()
            said = {
                "instance": name,
                "index": index,
                "name": text_of(item, "name", here),
                "owner": owner,
                "mac": text_of(item, "mac", here),
                "network": network,
                "ip": text_of(item, "ip", here),
                **params,
                "model": model,
                "tags": tags,
            }
            try:
                if network and network not in networks:
                    raise Invalid("network", network, "a network that is there, and can be in a registry")
                made = read_fields(Nic, said, said)
            except Invalid as error:
                ip = _one(Nic, "ip", said["ip"])
                unread.add(uuid)
                problems.append(f"NIC {uuid} of {escaped(name)} is left as it is in the registry: {error}")
            else:
                found[uuid] = {field: write(each) for field, each in made.items()}
                ip = made["ip"]
            if network and ip:
                guests.setdefault(network, {})[uuid] = ip
    return found


def _made(instance: str, index: int, mac: str) -> str:
    """Give the UUID by which the nodes know a NIC to which Ganeti has given none; "" where it cannot be told."""
    try:
        return generated_uuid(instance, index, validate.mac(mac))
    except NicInvalid:
        return ""


def _params(item: Any, where: str) -> dict[str, str]:
    if not isinstance(item, dict):
        raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where} has no parameters")
    return {name: text_of(item, name, where) for name in PARAMS if name in item}


def _model(value: Any, instance: Fields, where: str) -> str:
    """Give the model of an instance's NICs, as Ganeti calls it: its own, that of its operating system, or the cluster's."""
    hypervisor, system, cluster = text_of(instance, "hypervisor", where), text_of(instance, "os", where), value["cluster"]
    places: Iterable[Any] = (
        instance.get("hvparams"),
        within(cluster, "os_hvp", system.partition("+")[0], hypervisor),
        within(cluster, "hvparams", hypervisor),
    )
    return next((text_of(each, "nic_type", where) for each in places if isinstance(each, dict) and "nic_type" in each), "")
