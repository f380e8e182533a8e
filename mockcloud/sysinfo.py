"""Keep what a simulated node is: servers/UUID/sysinfo.json, written last and removed first, so that a node is whole or is none."""

from __future__ import annotations

import json
import os
import uuid as uuids
from socket import AF_INET
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.hardware import ADMIN, OWN, PROFILES, Admin, External, taken
from runtime import validate
from runtime.errors import HostRefused, NetcommonError, NicInvalid
from runtime.folder import Folder
from runtime.paths import Paths
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Folders of a node, with those that lead to them.
FOLDERS = ("etc/netcommon", "run/netcommon", "var/lib/netcommon", "var/run/ganeti/kvm-hypervisor", "proc/self/ns", "vms", "logs")
UUIDS = uuids.UUID("6d6f636b-636c-4f75-8400-000000000000")  #: of which those of nodes are made
SERVERS, NAME = "servers", "sysinfo.json"
VIRTUAL = "Virtual"
OLD, NEW = "ganeti-3.0", "ganeti-3.2"
#: 3.0 and 3.1 call kvm-ifup alone. 3.2 calls kvm-nic-setup: also before QEMU ends and after it, and on the source of a migration.
VERSIONS = OLD, NEW
TREE, NAMESPACE = "tree", "namespace"
ANOTHER = "delete it, and make another one"  #: the remedy for a node that has lost what it has joined with
DEPTHS = TREE, NAMESPACE  #: its kernel is simulated; or a network namespace of the running one
LONGEST = 1 << 16  #: bytes


def node_uuid(number: int) -> str:
    """Give the UUID of the node of a number."""
    return str(uuids.uuid5(UUIDS, f"node {number}"))


def hostname_of(number: int) -> str:
    """Give the hostname of the node of a number."""
    return f"mock{number}"


def paths_of(root: str, node: str) -> Paths:
    """Give the paths of a node of the cloud below ``root``."""
    return Paths.under(f"{root}/{SERVERS}/{node}")


class Sort(NamedTuple):
    """Say what nodes that are made are; see Sysinfo."""

    profile: str = "plain"
    depth: str = TREE
    ganeti: str = OLD
    hooked: bool = False


class Sysinfo(NamedTuple):
    """One node. ``number``: which of the cloud's, from 1; ``profile``: one of mockcloud.hardware.PROFILES; ``depth``: one of DEPTHS;
    ``ganeti``: one of VERSIONS; ``hooked``: Ganeti's own hook is installed there.
    """

    uuid: str
    number: int
    hostname: str
    profile: str
    admin: Admin
    external: tuple[External, ...] = ()
    depth: str = TREE
    ganeti: str = OLD
    hooked: bool = False

    def document(self) -> dict[str, Any]:
        """Give what the file says; ``System Type`` tells everybody that nothing can really run there."""
        profile = PROFILES[self.profile]
        interfaces = {uplink: {"Link Status": "up", "Bridge": bridge} for bridge, uplink in profile.bridges.items()}
        own = {ADMIN: _own(self.admin, OWN), **{each.name: _own(each.own, each.name) for each in self.external}}
        return {
            "System Type": VIRTUAL,
            "UUID": self.uuid,
            "Number": self.number,
            "Hostname": self.hostname,
            "Profile": self.profile,
            "Depth": self.depth,
            "Ganeti": self.ganeti,
            "Ganeti Hook": self.hooked,
            "Network Interfaces": {**own, **interfaces},
            "Bridges": list(profile.bridges),
            "Switches": list(profile.switches),
            "Tables": dict(profile.tables),
        }

    def shown(self, running: bool, alive: bool) -> dict[str, Any]:
        """Give what commands list of it. ``running``: its agent is; ``alive``: it is so by the registry."""
        said = {"number": self.number, "uuid": self.uuid, "hostname": self.hostname, "profile": self.profile, "depth": self.depth}
        said |= {"ganeti": self.ganeti, "ganeti_hook": self.hooked}
        own = [{"name": nic.name, "mac": nic.own.mac, "address": nic.own.address} for nic in self.external]
        at = {"mac": self.admin.mac, "address": self.admin.address, "external": own, "running": running, "alive": alive}
        return {**said, **at, "system_type": VIRTUAL}


def _own(own: Admin, name: str) -> dict[str, Any]:
    return {"MAC Address": own.mac, "ip4addr": own.address, "Prefix": own.length, "NIC Names": [name]}


def _read(said: Mapping[str, Any]) -> Admin:
    """Read a NIC of the node's own. Raises NicInvalid, ValueError, KeyError."""
    mac, address, length = said["MAC Address"], said["ip4addr"], said["Prefix"]
    if type(length) is not int or not 0 < length <= 32:
        raise ValueError(length)
    return Admin(validate.mac(mac, "MAC Address"), validate.address(address, "ip4addr", AF_INET, length=False), length)


def write(root: str, one: Sysinfo) -> None:
    """Write it. Raises HostRefused."""
    with Folder.make(f"{root}/{SERVERS}/{one.uuid}") as folder:
        folder.write(NAME, json.dumps(one.document(), indent=2).encode("ascii") + b"\n", 0o644)


def there(root: str, uuid: str) -> bool:
    """Tell whether there is such a file, whatever is in it."""
    return os.path.isfile(f"{root}/{SERVERS}/{uuid}/{NAME}")


def read(root: str, uuid: str) -> Sysinfo | None:
    """Read the node of a folder; None for one that is not whole. Raises HostRefused where somebody has written something else."""
    path = f"{root}/{SERVERS}/{uuid}/{NAME}"
    with Folder.make(f"{root}/{SERVERS}/{uuid}") as folder:
        data = folder.read(NAME, LONGEST)
    if data is None:
        return None
    try:
        said = json.loads(data)
        interfaces, number = said["Network Interfaces"], said["Number"]
        own = {validate.interface(name): _read(each) for name, each in interfaces.items() if "NIC Names" in each}
        external = tuple(External(name, each) for name, each in own.items() if name != ADMIN)
        found = Sysinfo(said["UUID"], number, said["Hostname"], said["Profile"], own[ADMIN], external)
        found = found._replace(depth=said["Depth"], ganeti=said["Ganeti"], hooked=said["Ganeti Hook"])
        if (
            type(number) is int
            and found.uuid == uuid == node_uuid(number)
            and found.hostname == hostname_of(number)
            and found.profile in PROFILES
            and found.depth in DEPTHS
            and found.ganeti in VERSIONS
            and not any(taken(each.name) for each in external)
            and found.document() == said
        ):
            return found
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, NicInvalid):
        pass
    raise HostRefused(f"{path} is not what mockcloud has written", "put it back, or delete the node")


def whole(root: str, uuid: str) -> None:
    """Raise HostRefused where there is no whole node in a folder, with why."""
    if read(root, uuid) is None:
        raise HostRefused(f"node {uuid} was not made or not deleted to the end", "mockcloud create or mockcloud count sweeps it")


def inside(root: str, uuid: str) -> None:
    """Raise HostRefused where a folder of a node leads elsewhere: what is done to the node would be done there."""
    whole = f"{root}/{SERVERS}/{uuid}"
    for each in FOLDERS:
        path = whole
        for name in each.split("/"):
            path = f"{path}/{name}"
            if os.path.islink(path):
                raise HostRefused(f"{path} is a symbolic link", "a folder of the node's own, or nothing")


class Tree(NamedTuple):
    """All nodes' folders: those that are whole, by number; those that are not; and why others are left alone."""

    nodes: tuple[Sysinfo, ...]
    unfinished: tuple[str, ...]
    refused: dict[str, str]


def look(root: str) -> Tree:
    """Look at all folders of nodes; other names are nobody's, and are left alone."""
    nodes, unfinished, refused = list[Sysinfo](), list[str](), dict[str, str]()
    try:
        names = sorted(os.listdir(f"{root}/{SERVERS}"))
    except FileNotFoundError:
        names = []
    for name in filter(is_uuid, names):
        try:
            found = read(root, name)
        except NetcommonError as error:
            refused[name] = str(error)
            continue
        if found is None:
            unfinished.append(name)
        else:
            nodes.append(found)
    return Tree(tuple(sorted(nodes, key=lambda each: each.number)), tuple(unfinished), refused)


def known(sort: Sort) -> Sort:
    """Give a sort of nodes that there is. Raises HostRefused."""
    words = ("hardware profile", sort.profile, PROFILES), ("depth", sort.depth, DEPTHS), ("version of Ganeti", sort.ganeti, VERSIONS)
    for what, given, there in words:
        if given not in there:
            raise HostRefused(f"there is no {what} {given!a:.80}", f"one of {', '.join(there)}")
    if sort.depth != TREE and PROFILES[sort.profile].switches:
        text = f"nodes of depth {sort.depth} have no Open vSwitch, and those of the profile {sort.profile} do"
        raise HostRefused(text, "another of the two")
    return sort
