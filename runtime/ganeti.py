"""Readers of what Ganeti's KVM driver keeps in /var/run/ganeti/kvm-hypervisor, and the nic/ files of its design-ifdown.

    conf/<instance>.runtime    JSON: command line, NICs, hypervisor parameters, disks (hv_kvm, _SaveKVMRuntime)
    nic/<instance>/<index>     the tap's name without newline; after hotplug an index may be another NIC's, or nobody's
    nic/<instance>/<uuid>      likewise, by UUID, with <index> a symbolic link to it (doc/design-ifdown.rst)
    pid/<instance>             QEMU's process

None of these functions raises for what a file holds: what cannot be read is named in ``problems``, or left out.
"""

from __future__ import annotations

from runtime import validate
from runtime.environment import generated_uuid
from runtime.errors import HostRefused, NetcommonError, NicInvalid, RecordUnreadable, escaped
from runtime.folder import Folder
from runtime.jsontext import Decoder
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime.nic import Nic
    from runtime.paths import Paths

#: Bytes of a runtime file, and NICs in it: far more than Ganeti makes (constants.MAX_NICS is 8).
LONGEST = 4 << 20
MOST_NICS = 1024
_LONGEST_TAP = 64

#: How often a folder may be removed under us before we give up.
AGAIN = 5

#: The fields of objects.Network that HooksDict passes to scripts, and the variables it gives them.
_NETINFO = {
    "name": "NETWORK_NAME",
    "uuid": "NETWORK_UUID",
    "network": "NETWORK_SUBNET",
    "gateway": "NETWORK_GATEWAY",
    "network6": "NETWORK_SUBNET6",
    "gateway6": "NETWORK_GATEWAY6",
    "mac_prefix": "NETWORK_MAC_PREFIX",
}


class RuntimeNic(NamedTuple):
    """A NIC of a runtime file: nothing validated, "" where the file does not say."""

    position: int  #: in the list: what Ganeti takes for its index
    uuid: str = ""  #: NICs older than Ganeti 2.8 have none
    mac: str = ""
    ip: str = ""
    name: str = ""
    mode: str = ""
    link: str = ""
    vlan: str = ""
    device_id: str = ""  #: QEMU's id of the device; "" in files that still have "pci" instead of hvinfo
    network: tuple[tuple[str, str], ...] = ()  #: NETWORK_* variables

    def identity(self, instance: str) -> str:
        """The UUID under which we know it: its own, or the one that a NIC without gets; "" where that cannot be told."""
        try:
            if self.uuid:
                return validate.uuid(self.uuid)
            return generated_uuid(instance, self.position, validate.mac(self.mac))
        except NicInvalid:
            return ""

    def environment(self, instance: str, tap: str = "") -> dict[str, str]:
        """What Ganeti would give a script for it (hv_base.ConfigureNIC), less the instance's TAGS, which the file lacks."""
        found = {
            "INSTANCE": instance,
            "MAC": self.mac,
            "IP": self.ip,
            "MODE": self.mode,
            "INTERFACE": tap,
            "INTERFACE_INDEX": str(self.position),
            "INTERFACE_UUID": self.uuid,
            "INTERFACE_NAME": self.name,
            "LINK": self.link,
            "BRIDGE": self.link if self.mode == "bridged" else "",
            **dict(self.network),
        }
        return {variable: value for variable, value in found.items() if value} | {"VLAN": self.vlan}


class Runtime(NamedTuple):
    """A runtime file."""

    instance: str
    nics: tuple[RuntimeNic, ...] = ()
    command: tuple[str | int, ...] = ()  #: of QEMU, without its NICs
    problems: tuple[str, ...] = ()  #: one line each

    def uuid_at(self, index: int) -> str:
        """The UUID that Ganeti has at this index now; "" if none."""
        return self.nics[index].identity(self.instance) if 0 <= index < len(self.nics) else ""

    def by_uuid(self, uuid: str) -> RuntimeNic | None:
        return next((nic for nic in self.nics if nic.identity(self.instance) == uuid), None)


def parse_runtime(data: bytes, instance: str) -> Runtime:
    """Reads the contents of a runtime file, from Ganeti 2.0 on."""
    try:
        stored = Decoder().whole(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        return Runtime(instance, problems=(f"runtime file of {escaped(instance)}: not JSON: {escaped(str(error))}",))
    if not isinstance(stored, list) or len(stored) < 2 or not isinstance(stored[1], list):
        return Runtime(instance, problems=(f"runtime file of {escaped(instance)}: not a list of command, NICs, ...",))
    if len(stored[1]) > MOST_NICS:
        return Runtime(instance, problems=(f"runtime file of {escaped(instance)}: {len(stored[1])} NICs, more than {MOST_NICS}",))
    command = stored[0] if isinstance(stored[0], list) else []
    nics: list[RuntimeNic] = []
    problems: list[str] = []
    for position, item in enumerate(stored[1]):
        if not isinstance(item, dict):
            problems.append(f"runtime file of {escaped(instance)}: NIC {position} is no object")
        # one that cannot be read keeps its place: positions are Ganeti's indices
        nics.append(_nic(position, item if isinstance(item, dict) else {}))
    return Runtime(instance, tuple(nics), tuple(part for part in command if isinstance(part, (str, int))), tuple(problems))


def _nic(position: int, item: Mapping[str, Any]) -> RuntimeNic:
    params = _mapping(item, "nicparams")
    netinfo = _mapping(item, "netinfo")
    network = {variable: _text(netinfo, field) for field, variable in _NETINFO.items()}
    tags = netinfo.get("tags")
    network["NETWORK_TAGS"] = " ".join(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ""
    return RuntimeNic(
        position=position,
        uuid=_text(item, "uuid"),
        mac=_text(item, "mac"),
        ip=_text(item, "ip"),
        name=_text(item, "name"),
        mode=_text(params, "mode"),
        link=_text(params, "link"),
        vlan=_text(params, "vlan"),
        device_id=_text(_mapping(item, "hvinfo"), "id"),
        network=tuple((variable, value) for variable, value in network.items() if value),
    )


def _mapping(item: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = item.get(field)
    return value if isinstance(value, dict) else {}


def _text(item: Mapping[str, Any], field: str) -> str:
    value = item.get(field)
    return value if isinstance(value, str) else ""


def read_runtime(paths: Paths, instance: str) -> Runtime | None:
    """The runtime file of ``instance`` (a validated name); None where there is none: it does not run here, or not yet."""
    folder = _folder(paths, "conf")
    if folder is None:
        return None
    try:
        with folder:
            data = folder.read(f"{instance}.runtime", LONGEST)
    except NetcommonError as error:
        return Runtime(instance, problems=(str(error),))
    return parse_runtime(data, instance) if data is not None else None


def has_runtime(paths: Paths, instance: str) -> bool | None:
    """Whether ``instance`` (a validated name) has a runtime file; None where Ganeti's KVM driver has never been at work."""
    folder = _folder(paths, "conf")
    if folder is None:
        return None
    with folder:
        return folder.exists(f"{instance}.runtime")


def instances(paths: Paths) -> list[str]:
    """The instances that have a runtime file here."""
    folder = _folder(paths, "conf")
    if folder is None:
        return []
    with folder:
        return [name.removesuffix(".runtime") for name in folder.names() if name.endswith(".runtime") and _is_instance(name[:-8])]


def processes(paths: Paths) -> list[str]:
    """Give the instances that have a process id file here."""
    folder = _folder(paths, "pid")
    if folder is None:
        return []
    with folder:
        return [name for name in folder.names() if _is_instance(name)]


def nic_files(paths: Paths, instance: str) -> dict[str, str]:
    """What nic/<instance>/ says: index or UUID -> tap. Symbolic links are followed within the folder only."""
    folder = _nic_folder(paths, instance)
    if folder is None:
        return {}
    found: dict[str, str] = {}
    with folder:
        for name in folder.names():
            if not _is_nic_file(name):
                continue
            target = folder.target(name)
            tap = _tap(folder, target if _is_nic_file(target) else name)
            if tap:
                found[name] = tap
    return found


def _tap(folder: Folder, name: str) -> str:
    try:
        data = folder.read(name, _LONGEST_TAP)
        return validate.interface((data or b"").decode("utf-8", "surrogateescape").removesuffix("\n"))
    except (HostRefused, RecordUnreadable, NicInvalid):
        return ""


def _is_nic_file(name: str) -> bool:
    try:
        if name.isascii() and name.isdigit():
            validate.index(name)
        else:
            validate.uuid(name)
    except NicInvalid:
        return False
    return True


def write_nic_file(paths: Paths, nic: Nic) -> bool:
    """Write nic/<instance>/<uuid>, with <index> a link to it; remove the link of an index that the NIC had before.

    Return False where Ganeti is not here or the NIC has no instance.

    Ganeti's own later write of <index> replaces the link with a file that says the same. Raises HostRefused.
    """
    nics = _folder(paths, "nic") if nic.instance else None
    if nics is None:
        return False
    with nics:
        for attempt in range(AGAIN):
            with nics.make_sub(nic.instance) as folder:
                try:
                    folder.write(nic.uuid, nic.interface.encode())
                    if nic.index is not None and folder.target(str(nic.index)) != nic.uuid:
                        folder.link(str(nic.index), nic.uuid)
                        _unlink(folder, nic.uuid, but=str(nic.index))
                    break
                except HostRefused:  # the down of another NIC of the instance has removed its folder, which was empty just then
                    if attempt == AGAIN - 1 or not folder.removed():
                        raise
    return True


def remove_nic_file(paths: Paths, nic: Nic) -> bool:
    """Removes what write_nic_file wrote, if it still names this NIC's tap; Ganeti's own files stay. Raises HostRefused."""
    folder = _nic_folder(paths, nic.instance) if nic.instance else None
    if folder is None:
        return False
    with folder:
        if _tap(folder, nic.uuid) != nic.interface:
            return False
        _unlink(folder, nic.uuid)
        folder.remove(nic.uuid)
    nics = _folder(paths, "nic")
    if nics is not None:
        with nics:
            nics.remove_empty(nic.instance)
    return True


def _unlink(folder: Folder, uuid: str, but: str = "") -> None:
    """Remove every index that is a link to the NIC, except ``but``: Ganeti makes none."""
    for name in folder.names():
        if name.isdigit() and name != but:
            folder.unlink_if(name, uuid)


def instance_pid(paths: Paths, instance: str) -> int:
    """The process in pid/<instance>; 0 if there is none. Whether it lives, and is QEMU, is not looked at."""
    folder = _folder(paths, "pid")
    if folder is None or not _is_instance(instance):
        return 0
    with folder:
        try:
            text = (folder.read(instance, 64) or b"").decode("ascii", "replace").strip()
        except (HostRefused, RecordUnreadable):
            return 0
    return int(text) if text.isascii() and text.isdigit() and 1 < int(text) < 1 << 31 else 0


def instances_with_tap(paths: Paths, tap: str) -> list[str]:
    """The instances whose nic/ files name this tap. Reads them all: not for a hook's usual path."""
    nics = _folder(paths, "nic")
    if nics is None:
        return []
    with nics:
        names = nics.names()
    return [name for name in names if _is_instance(name) and tap in nic_files(paths, name).values()]


def _folder(paths: Paths, name: str) -> Folder | None:
    return Folder.find(f"{paths.kvm_run}/{name}", ours=False)


def _nic_folder(paths: Paths, instance: str) -> Folder | None:
    nics = _folder(paths, "nic")
    if nics is None or not _is_instance(instance):
        return None
    with nics:
        return nics.sub(instance)


def _is_instance(name: str) -> bool:
    try:
        validate.instance(name)
    except NicInvalid:
        return False
    return True
