"""NICs defined by hand for plain QEMU: /etc/netcommon/nics.d/<uuid>.toml. They survive a reboot.

    device = "tap0"
    mode = "routed"
    link = "100"
    mac = "52:54:00:12:34:56"
    ip = "10.0.0.5"
    instance = "web1"
    index = 0
    tags = ["role:web"]
    [network]
    subnet = "10.0.0.0/24"

Values are those of the variables a hypervisor passes (runtime.environment), under the names in KEYS. A link by-device/<tap> leads from
the device to its file, so that a hook that is given nothing else reads one file and not all.
"""

from __future__ import annotations

from runtime import validate
from runtime.environment import environment_of, nic_from_environment
from runtime.errors import NicInvalid, RecordUnreadable, escaped
from runtime.folder import Folder
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime.nic import Nic
    from runtime.paths import Paths

LONGEST = 1 << 20
BY_DEVICE = "by-device"

#: Key in the file -> variable. The file's name gives the UUID.
KEYS = {
    "device": "INTERFACE",
    "mode": "MODE",
    "link": "LINK",
    "mac": "MAC",
    "ip": "IP",
    "vlan": "VLAN",
    "instance": "INSTANCE",
    "index": "INTERFACE_INDEX",
    "name": "INTERFACE_NAME",
    "tags": "TAGS",
}
NETWORK_KEYS = {
    "name": "NETWORK_NAME",
    "uuid": "NETWORK_UUID",
    "subnet": "NETWORK_SUBNET",
    "subnet6": "NETWORK_SUBNET6",
    "gateway": "NETWORK_GATEWAY",
    "gateway6": "NETWORK_GATEWAY6",
    "mac_prefix": "NETWORK_MAC_PREFIX",
    "tags": "NETWORK_TAGS",
}
_KINDS: dict[str, type] = {"index": int, "tags": list}


class DefinitionInvalid(NicInvalid):
    """A definition's file is wrong: says where."""

    def __init__(self, path: str, line: int, what: str) -> None:
        self.path, self.line = path, line
        NicInvalid.__init__(self, path, "", what)
        self.args = (f"{path}{f', line {line}' if line else ''}: {what}",)


def parse(data: bytes, uuid: str, path: str) -> Nic:
    """The NIC that a file's contents describe. Raises DefinitionInvalid."""
    import tomllib  # only where there is a definition to read

    try:
        text = data.decode("utf-8")
        stored = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # tomllib's message ends in "(at line 3, column 5)"
        raise DefinitionInvalid(path, 0, f"no TOML: {' '.join(str(error).split())[:200] or type(error).__name__}") from None
    network = stored.pop("network", {})
    if not isinstance(network, dict):
        raise DefinitionInvalid(path, _line(text, "network"), "network: expected a table")
    variables = {"INTERFACE_UUID": uuid, "VLAN": ""}
    lines: dict[str, int] = {}
    for table, keys in ((stored, KEYS), (network, NETWORK_KEYS)):
        for key, value in table.items():
            line = _line(text, key, network=keys is NETWORK_KEYS)
            if key not in keys:
                raise DefinitionInvalid(path, line, f"{escaped(key)} is unknown: expected one of {', '.join(keys)}")
            variables[keys[key]] = _value(key, value, path, line)
            lines[keys[key]] = line
    try:
        nic = nic_from_environment(variables)
    except NicInvalid as error:
        raise DefinitionInvalid(path, lines.get(error.variable, 0), str(error)) from None
    return nic._replace(environment=environment_of(nic))


def _value(key: str, value: object, path: str, line: int) -> str:
    kind = _KINDS.get(key, str)
    if type(value) is not kind or (isinstance(value, list) and not all(isinstance(item, str) and " " not in item for item in value)):
        expected = {int: "a number", list: "a list of words"}.get(kind, "a text in quotes")
        raise DefinitionInvalid(path, line, f"{key}: expected {expected}")
    return " ".join(value) if isinstance(value, list) else str(value)


def _line(text: str, key: str, network: bool = False) -> int:
    """The line on which a key is set, for messages; 0 if it cannot be told."""
    below = False
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("["):
            below = True
            if bare == f"[{key}]":
                return number
        elif below == network and bare.partition("=")[0].strip().strip("\"'") == key:
            return number
    return 0


def render(nic: Nic) -> bytes:
    """The file for ``nic``: parse gives back the same NIC, except for variables in its environment that are not its own."""
    variables = environment_of(nic)
    lines = ["# NIC of plain QEMU, see netcommon define"]
    for heading, keys in (("", KEYS), ("[network]", NETWORK_KEYS)):
        values = [(key, variables[variable]) for key, variable in keys.items() if variables.get(variable)]
        if values and heading:
            lines += ["", heading]
        lines += [f"{key} = {_toml(key, value)}" for key, value in values]
    return ("\n".join(lines) + "\n").encode()


def _toml(key: str, value: str) -> str:
    kind = _KINDS.get(key, str)
    if kind is int:
        return value
    if kind is list:
        return "[" + ", ".join(_quoted(word) for word in value.split(" ")) + "]"
    return _quoted(value)


def _quoted(text: str) -> str:
    # validated texts are printable, so these two are all that TOML's basic strings need escaped
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(paths: Paths, nic: Nic) -> str:
    """Writes the definition, surviving a crash of the machine; returns its path.

    Raises NicInvalid where another definition has the same device, or the same instance and index, HostRefused where the folder cannot be
    written to.
    """
    with Folder.make(paths.definitions, sync=True) as folder:
        for name in _uuids(folder):
            earlier = _read(folder, name, lenient=True)
            if earlier is None:
                continue
            if name != nic.uuid and earlier.interface == nic.interface:
                raise NicInvalid("device", nic.interface, f"a device that no other definition has; {name} has it")
            if name != nic.uuid and nic.instance and nic.index is not None and earlier.label == nic.label:
                raise NicInvalid("NIC", nic.label, f"an INSTANCE/INDEX that no other definition has; {name} on {earlier.interface} has it")
            if name == nic.uuid and earlier.interface != nic.interface:
                _unlink(folder, earlier)
        folder.write(f"{nic.uuid}.toml", render(nic), 0o644, sync=True)
        with folder.make_sub(BY_DEVICE) as links:
            links.link(nic.interface, f"../{nic.uuid}.toml")
        return f"{folder.path}/{nic.uuid}.toml"


def read(paths: Paths, uuid: str) -> Nic | None:
    """The definition of this UUID, None where there is none. Raises DefinitionInvalid and HostRefused."""
    folder = Folder.find(paths.definitions)
    if folder is None:
        return None
    with folder:
        return _read(folder, uuid)


def find(paths: Paths, device: str) -> Nic | None:
    """The definition of this device, None where there is none. Raises DefinitionInvalid (its own file's), NicInvalid and HostRefused."""
    validate.interface(device)
    folder = Folder.find(paths.definitions)
    if folder is None:
        return None
    with folder:
        links = folder.sub(BY_DEVICE)
        if links is not None:
            with links:
                target = links.target(device)
            nic = _read(folder, target[3:-5]) if target.startswith("../") and target.endswith(".toml") else None
            if nic is not None and nic.interface == device:
                return nic
        # a file written by hand has no link
        for name in _uuids(folder):
            if device.encode() in (_bytes(folder, name) or b""):
                nic = _read(folder, name)
                if nic is not None and nic.interface == device:
                    return nic
    return None


def all_of(paths: Paths) -> tuple[list[Nic], list[str]]:
    """Every definition, and what is wrong with the others, one line each. Raises HostRefused."""
    found: list[Nic] = []
    problems: list[str] = []
    folder = Folder.find(paths.definitions)
    if folder is None:
        return found, problems
    with folder:
        for name in _uuids(folder):
            try:
                nic = _read(folder, name)
            except NicInvalid as error:
                problems.append(str(error))
                continue
            if nic is not None:
                found.append(nic)
    return found, problems


def remove(paths: Paths, uuid: str) -> bool:
    """Removes the definition, for good also if the machine crashes; False where there was none. Raises HostRefused."""
    validate.uuid(uuid)
    folder = Folder.find(paths.definitions)
    if folder is None:
        return False
    with folder:
        nic = _read(folder, uuid, lenient=True)
        if nic is not None:
            _unlink(folder, nic)
        removed = folder.remove(f"{uuid}.toml")
        folder.flush()
        return removed


def _unlink(folder: Folder, nic: Nic) -> None:
    links = folder.sub(BY_DEVICE)
    if links is not None:
        with links:
            links.unlink_if(nic.interface, f"../{nic.uuid}.toml")


def _uuids(folder: Folder) -> list[str]:
    return [name[:-5] for name in folder.names() if name.endswith(".toml") and validate.is_uuid(name[:-5])]


def _bytes(folder: Folder, uuid: str) -> bytes | None:
    try:
        return folder.read(f"{uuid}.toml", LONGEST)
    except RecordUnreadable as error:
        raise DefinitionInvalid(f"{folder.path}/{uuid}.toml", 0, str(error)) from None


def _read(folder: Folder, uuid: str, lenient: bool = False) -> Nic | None:
    if not validate.is_uuid(uuid):
        return None
    try:
        data = _bytes(folder, uuid)
        return parse(data, uuid, f"{folder.path}/{uuid}.toml") if data is not None else None
    except DefinitionInvalid:
        if lenient:
            return None
        raise


def as_mapping(nic: Nic) -> Mapping[str, Any]:
    """The definition's keys and values, for showing it as JSON."""
    import tomllib

    return tomllib.loads(render(nic).decode())
