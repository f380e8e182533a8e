"""Keep what an instance is on its node: servers/UUID/vms/UUID.json; and which numbers the node has given out already, in host.json."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from mockcloud.hardware import TAP
from mockcloud.sysinfo import SERVERS
from netregistry.model import kinds
from netregistry.model.codec import Between, Invalid, read, write
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from runtime.errors import HostRefused, NetcommonError
from runtime.folder import Folder
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE = uuid.UUID("6d6f636b-766d-4f75-8400-000000000000")  #: of which UUIDs of instances are made
VMS, HOST = "vms", "host.json"
LONGEST = 1 << 20  #: bytes
MOST_NICS = 8  #: of an instance, as Ganeti (constants.MAX_NICS)
Number = Annotated[int, Between(0, 1 << 31)]
#: "making", "rebooting" and "deleting": a call that was killed has begun it, and is to be made again.
State = Literal["making", "stopped", "rebooting", "running", "incoming", "crashed", "deleting"]


class Interface(NamedTuple):
    """One NIC as Ganeti's configuration had it at the start. ``tap``, ``device``: name and index of its device, while it has one."""

    nic: Nic
    network: Network | None = None
    tap: kinds.NameOrNone = ""
    device: Number = 0
    plugged: bool = False  #: after the start: it is not on QEMU's command line
    unset: bool = False  #: its hook has failed when the guest had come already: nothing was set up for it


class Begun(NamedTuple):
    """A NIC that is being plugged or unplugged. ``said``: what was asked for, by which a call that says the same again is known."""

    said: str
    nic: kinds.Uuid


class Vm(NamedTuple):
    """One instance on one node. ``moves``: how often it has changed its node, so of two nodes that name it the later one has it.

    ``numbers``: how many NICs it has ever had; ``boot``: of its node, in which its process was started, 0 where an older mockcloud did
    that; ``migrated``: that was for a guest to come to; ``begun``: what a call that was killed, or whose end nobody has seen, has begun
    to do to one of its NICs.
    """

    uuid: kinds.Uuid
    name: kinds.Instance
    state: State = "stopped"
    moves: Number = 0
    numbers: Number = 0
    pid: Number = 0
    boot: Number = 0
    migrated: bool = False
    interfaces: Annotated[tuple[Interface, ...], kinds.Sixteen] = ()
    begun: Begun | None = None

    @property
    def runs(self) -> bool:
        """Tell whether it has a process, with taps open."""
        return self.state in ("running", "incoming")

    @property
    def nics(self) -> set[str]:
        """Give the UUIDs of its NICs."""
        return {each.nic.uuid for each in self.interfaces}

    def crashed(self) -> Vm:
        """Give it without its process, which has ended however."""
        return self._replace(state="crashed", pid=0, interfaces=tuple(each._replace(tap="", device=0) for each in self.interfaces))


class Counters(NamedTuple):
    """Numbers that a node's kernel gives out once in a boot, the next of each."""

    boot: Number = 1
    device: Number = 100
    pid: Number = 4000


def vm_uuid(name: str) -> str:
    """Give the UUID of the instance of a name."""
    return str(uuid.uuid5(NAMESPACE, name))


def nic_uuid(instance: str, number: int) -> str:
    """Give the UUID of the NIC that an instance got under a number."""
    return str(uuid.uuid5(uuid.UUID(vm_uuid(instance)), str(number)))


def keep(root: str, node: str, vm: Vm) -> None:
    """Write it. Raises HostRefused."""
    with Folder.make(f"{root}/{SERVERS}/{node}/{VMS}") as folder:
        folder.write(f"{vm.uuid}.json", _text(vm), 0o644)


def forget(root: str, node: str, vm: str) -> None:
    """Remove the file of an instance. Raises HostRefused."""
    with Folder.make(f"{root}/{SERVERS}/{node}/{VMS}") as folder:
        folder.remove(f"{vm}.json")


def kept(root: str, node: str, vm: str) -> Vm | None:
    """Read an instance of a node, None where it is not there: one that ran in an earlier boot of the node has crashed with that.

    Raises HostRefused where somebody has written something else.
    """
    folder = Folder.find(f"{root}/{SERVERS}/{node}/{VMS}")
    if folder is None:
        return None
    with folder:
        data = folder.read(f"{vm}.json", LONGEST)
    if data is None:
        return None
    try:
        found = read(Vm, json.loads(data))
        why = f"it is not the one of {found.name}" if not found.uuid == vm == vm_uuid(found.name) else _unlikely(found)
        if not why:
            return found.crashed() if found.state == "running" and found.boot not in (0, counters(root, node).boot) else found
    except (ValueError, RecursionError):
        why = "not JSON"
    except Invalid as error:
        why = str(error)
    text = f"{root}/{SERVERS}/{node}/{VMS}/{vm}.json is not what mockcloud has written ({why})"
    raise HostRefused(text, "put it back; or remove it, and delete the instance")


def _unlikely(vm: Vm) -> str:
    """Say what of an instance cannot be; "" for nothing."""
    if len(vm.nics) != len(vm.interfaces):
        return "two NICs have one UUID"
    if not vm.runs:
        return "it does not run, and has a process or a tap" if vm.pid or any(each.tap or each.device for each in vm.interfaces) else ""
    if not vm.pid:
        return "it runs, and has no process"
    if not all(TAP.fullmatch(each.tap) and each.device for each in vm.interfaces):
        return "it runs, and not each of its NICs has a tap"
    taps, devices = {each.tap for each in vm.interfaces}, {each.device for each in vm.interfaces}
    return "" if len(taps) == len(devices) == len(vm.interfaces) else "two NICs have one tap"


def of_node(root: str, node: str) -> tuple[list[Vm], list[str]]:
    """Give the instances of a node by name, and why files are left alone."""
    found, refused = list[Vm](), list[str]()
    for each in named(root, node):
        try:
            vm = kept(root, node, each)
        except NetcommonError as error:
            refused.append(str(error))
        else:
            found += [vm] if vm is not None else []
    return sorted(found, key=lambda vm: vm.name), refused


def named(root: str, node: str) -> list[str]:
    """Give the UUIDs of the instances that a node has files of, whatever is in them."""
    names = _names(f"{root}/{SERVERS}/{node}/{VMS}")
    return [name[:-5] for name in names if name.endswith(".json") and is_uuid(name[:-5])]


def counters(root: str, node: str) -> Counters:
    """Read them. Raises HostRefused."""
    with Folder.make(f"{root}/{SERVERS}/{node}") as folder:
        data = folder.read(HOST, LONGEST)
    if data is None:
        return Counters()
    try:
        return read(Counters, json.loads(data))
    except (ValueError, RecursionError, Invalid):
        raise HostRefused(f"{root}/{SERVERS}/{node}/{HOST} is not what mockcloud has written", "put it back, or delete the node") from None


def count(root: str, node: str, now: Counters) -> None:
    """Write them, before one of the numbers is given out. Raises HostRefused."""
    with Folder.make(f"{root}/{SERVERS}/{node}") as folder:
        folder.write(HOST, _text(now), 0o644)


def _text(value: Vm | Counters) -> bytes:
    return json.dumps(write(value), indent=1).encode("ascii") + b"\n"


def everywhere(root: str) -> dict[str, list[str]]:
    """Give the nodes that have a file of an instance, by its UUID: one, but after a move that was cut off."""
    found: dict[str, list[str]] = {}
    for node in _names(f"{root}/{SERVERS}"):
        for vm in named(root, node) if is_uuid(node) else ():
            found.setdefault(vm, []).append(node)
    return found


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


class Places:
    """Know where instances have files: folders are looked at once, since nobody else changes them. ``root``: the cloud's folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, list[str]] | None = None

    def places(self, anew: bool = False) -> dict[str, list[str]]:
        """Give the nodes that have a file of an instance, by its UUID. ``anew``: folders are looked at again."""
        if self._known is None or anew:
            self._known = everywhere(self._root)
        return self._known

    def keep(self, node: str, vm: Vm) -> None:
        """Write an instance of a node. Raises HostRefused."""
        keep(self._root, node, vm)
        nodes = self.places().setdefault(vm.uuid, [])
        if node not in nodes:
            nodes.append(node)

    def forget(self, node: str, vm: str) -> None:
        """Remove the file of an instance of a node. Raises HostRefused."""
        forget(self._root, node, vm)
        self._without(node, [vm])

    def gone(self, node: str) -> None:
        """Note that a node's folder is gone, and all in it."""
        self._without(node, list(self.places()))

    def _without(self, node: str, vms: Iterable[str]) -> None:
        known = self.places()
        for vm in vms:
            known[vm] = [each for each in known.get(vm, []) if each != node]
            if not known[vm]:
                del known[vm]
