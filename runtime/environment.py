"""A NIC from the environment and arguments of the calling conventions, and back."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6

from runtime import validate
from runtime.errors import NicInvalid, escaped
from runtime.nic import MODES, Network, Nic
from runtime.typed import TYPE_CHECKING, NamedTuple
from runtime.vlan import parse_vlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    T = TypeVar("T")

#: Longest value, in characters, of a variable that we validate. Lists get what they may need: 4094 VIDs, Ganeti's 4096 tags
#: (one variable holds at most 128 KiB: MAX_ARG_STRLEN, execve(2)).
LONGEST = 4096
LONGEST_OF = {"VLAN": 32768, "TAGS": 131072, "NETWORK_TAGS": 131072}

#: The namespace (RFC 4122, 4.3) of the UUIDs that we give to NICs that came without one.
NAMESPACE = bytes.fromhex("146b516ce7fd4bfd865a342c49ef7703")


#: The variables that describe a NIC, and how others of them begin: where a NIC is described by a file, only the file counts.
DESCRIBE = frozenset({"MODE", "LINK", "BRIDGE", "MAC", "IP", "VLAN", "INSTANCE", "TAGS", "INTERFACE"})
DESCRIBE_BEGIN = ("INTERFACE_", "NETWORK_")

#: What a hypervisor says besides INTERFACE, one of them at least: only with it is INTERFACE a description and no stray variable.
IDENTIFY = ("INSTANCE", "INTERFACE_UUID", "MAC")


class DownHint(NamedTuple):
    """What a down call says of its NIC; "" or None where it says nothing, or nothing valid."""

    uuid: str = ""
    device: str = ""
    instance: str = ""
    index: int | None = None  # type: ignore[assignment]
    mac: str = ""
    complaints: tuple[str, ...] = ()  #: why values were not used, one line each
    contradiction: str = ""  #: why the call cannot mean any NIC: it then says nothing else, and nothing may be done on it

    @property
    def generated(self) -> str:
        """The UUID that a NIC of this instance, index and MAC got at its up if it came without one; "" if that cannot be told."""
        return "" if self.uuid or not self.mac else generated_uuid(self.instance, self.index, self.mac)


def device_argument(text: str) -> str:
    """The device named by the first argument. Ganeti 3.0 passes the Python repr of bytes: ``b'tap0'``."""
    if len(text) > 2 and text[0] == "b" and text[1] in "'\"" and text[-1] == text[1]:
        text = text[2:-1]
    return validate.interface(text)


def undescribed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that describe a NIC."""
    return {name: value for name, value in environ.items() if name not in DESCRIBE and not name.startswith(DESCRIBE_BEGIN)}


def identified(environ: Mapping[str, str]) -> bool:
    """Whether the variables say which NIC is meant, rightly or wrongly, as every hypervisor's do."""
    return any(environ.get(name) for name in IDENTIFY)


def emulated_uuid(instance: str, index: int | None, uuid: str) -> str:
    """Give the UUID of the emulated twin of the NIC ``uuid`` of an HVM guest."""
    return generated_uuid(instance, index, f"{uuid} emulated")


def is_twin(nic: Nic) -> bool:
    """Tell whether it is the emulated twin of a NIC of Xen, which alone there has no index."""
    return nic.index is None and "XENBUS_PATH" in nic.environment


def described_uuid(nic: Nic) -> str:
    """Give the UUID that the variables of an emulated twin tell, which is its NIC's; "" where they are damaged."""
    try:
        return nic_from_environment(nic.environment).uuid
    except NicInvalid:
        return ""


def generated_uuid(instance: str, index: int | None, mac: str) -> str:
    """uuid5 (RFC 4122, 4.3) of instance, index and MAC: the identity of a NIC that came without a UUID."""
    import hashlib  # only NICs of instances older than Ganeti 2.8, and hand-made ones, pay for it

    seed = f"{instance}/{'' if index is None else index}/{mac}"
    digest = bytearray(hashlib.sha1(NAMESPACE + seed.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def nic_from_environment(environ: Mapping[str, str], argv: Sequence[str] = ()) -> Nic:
    """The NIC that the variables describe. ``argv``: the arguments without the script's name; the first names the device.

    Raises NicInvalid, naming the first variable that is wrong. Every variable is kept in ``Nic.environment`` as given.
    """
    given = _Given(environ)
    mode = given.text("MODE")
    if mode not in MODES:
        raise NicInvalid("MODE", mode, "one of " + ", ".join(MODES))
    device = _device(given, argv)
    link = _link(given, mode)
    mac = given.check("MAC", validate.mac)
    ip = given.check("IP", validate.address)
    vlan = parse_vlan(given.text("VLAN"))
    instance = given.check("INSTANCE", validate.instance)
    index_text = given.text("INTERFACE_INDEX")
    index = validate.index(index_text) if index_text else None
    uuid = given.check("INTERFACE_UUID", validate.uuid)
    if not uuid:
        if not mac:
            variable = "MAC" if instance or index is not None else "INTERFACE_UUID"
            raise NicInvalid(variable, "", "a value: a NIC is known by its INTERFACE_UUID, or by INSTANCE, INTERFACE_INDEX and MAC")
        uuid = generated_uuid(instance, index, mac)
    return Nic(
        uuid=uuid,
        interface=device,
        mode=mode,
        link=link,
        mac=mac,
        ip=ip,
        vlan=vlan,
        instance=instance,
        index=index,
        name=given.check("INTERFACE_NAME", validate.name),
        tags=validate.tags(given.text("TAGS")),
        network=_network(given),
        environment=dict(environ),
    )


def environment_of(nic: Nic) -> dict[str, str]:
    """The variables, in canonical form, by which a hypervisor would describe ``nic``: nic_from_environment reads them back."""
    network = nic.network
    found = {
        "INTERFACE": nic.interface,
        "MODE": nic.mode,
        "LINK": nic.link,
        "BRIDGE": nic.link if nic.mode == "bridged" else "",
        "MAC": nic.mac,
        "IP": nic.ip,
        "VLAN": str(nic.vlan),
        "INSTANCE": nic.instance,
        "INTERFACE_INDEX": "" if nic.index is None else str(nic.index),
        "INTERFACE_UUID": nic.uuid,
        "INTERFACE_NAME": nic.name,
        "TAGS": " ".join(nic.tags),
        "NETWORK_NAME": network.name,
        "NETWORK_UUID": network.uuid,
        "NETWORK_SUBNET": network.subnet,
        "NETWORK_SUBNET6": network.subnet6,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
        "NETWORK_TAGS": " ".join(network.tags),
    }
    # like Ganeti: VLAN is always there, the others only where they say something
    return {variable: value for variable, value in found.items() if value or variable == "VLAN"}


def down_hint(environ: Mapping[str, str], argv: Sequence[str] = ()) -> DownHint:
    """What is usable of a down call, whatever else is wrong with it.

    QEMU's downscript gets the device as its argument and whatever environment QEMU was started in: INTERFACE without any of IDENTIFY
    is no hypervisor's, and the argument alone counts. A hypervisor that names two devices and no UUID contradicts itself.
    Raises NicInvalid, naming INTERFACE, only where neither device nor UUID nor instance and index can be told.
    """
    given = _Given(environ)
    complaints: list[str] = []

    def attempt(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except NicInvalid as error:
            complaints.append(str(error))
            return otherwise

    def index() -> int | None:
        text = given.text("INTERFACE_INDEX")
        return validate.index(text) if text else None

    uuid = attempt(lambda: given.check("INTERFACE_UUID", validate.uuid), "")
    device = attempt(lambda: given.check("INTERFACE", validate.interface), "")
    named = bool(argv and argv[0])
    argument = attempt(lambda: device_argument(argv[0]), "") if named else ""
    if named and device != argument:
        differ = f"the argument {escaped(argv[0])} is not INTERFACE={escaped(device)}"
        if device and not identified(environ):
            complaints.append(f"{differ}; the argument counts")
            device = ""
        elif device and argument and not uuid:
            return DownHint(complaints=tuple(complaints), contradiction=f"{differ}, and no INTERFACE_UUID tells which NIC is meant")
        elif device and argument:
            complaints.append(f"{differ}; the latter counts")
    hint = DownHint(
        uuid,
        device or argument,
        attempt(lambda: given.check("INSTANCE", validate.instance), ""),
        attempt(index, None),
        attempt(lambda: given.check("MAC", validate.mac), ""),
        tuple(complaints),
    )
    if not hint.uuid and not hint.device and not (hint.instance and hint.index is not None):
        value = argv[0] if named and not identified(environ) else environ.get("INTERFACE") or (argv[0] if argv else "")
        raise NicInvalid("INTERFACE", value, "the name of the NIC's device, or INTERFACE_UUID, or INSTANCE and INTERFACE_INDEX")
    return hint


class _Given:
    """The caller's variables, read with the limit on their length."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    def text(self, variable: str) -> str:
        value = self.environ.get(variable, "")
        limit = LONGEST_OF.get(variable, LONGEST)
        if len(value) > limit:
            raise NicInvalid(variable, value, f"at most {limit} characters")
        return value

    def check(self, variable: str, rule: Callable[[str, str], str]) -> str:
        """The value after ``rule``; "" where there is none."""
        value = self.text(variable)
        return rule(value, variable) if value else ""


def _device(given: _Given, argv: Sequence[str]) -> str:
    device = given.check("INTERFACE", validate.interface)
    argument = device_argument(argv[0]) if argv and argv[0] else ""
    if device and argument and device != argument:
        raise NicInvalid("INTERFACE", device, f"the device of the first argument, {escaped(argument)}")
    if not device and not argument:
        raise NicInvalid("INTERFACE", "", "the name of the NIC's device, here or as the first argument")
    return device or argument


def _link(given: _Given, mode: str) -> str:
    link = given.text("LINK")
    if mode == "bridged":
        bridge = given.check("BRIDGE", validate.interface)
        if link and bridge and link != bridge:
            raise NicInvalid("BRIDGE", bridge, f"the same as LINK, {escaped(link)}")
        link = link or bridge
    return validate.link(link, mode)


def _network(given: _Given) -> Network:
    def gateway(family: int) -> Callable[[str, str], str]:
        return lambda text, variable: validate.address(text, variable, family, length=False)

    def subnet(family: int) -> Callable[[str, str], str]:
        return lambda text, variable: validate.prefix(text, variable, family)

    return Network(
        name=given.check("NETWORK_NAME", validate.name),
        uuid=given.check("NETWORK_UUID", validate.uuid),
        subnet=given.check("NETWORK_SUBNET", subnet(AF_INET)),
        subnet6=given.check("NETWORK_SUBNET6", subnet(AF_INET6)),
        gateway=given.check("NETWORK_GATEWAY", gateway(AF_INET)),
        gateway6=given.check("NETWORK_GATEWAY6", gateway(AF_INET6)),
        mac_prefix=given.check("NETWORK_MAC_PREFIX", validate.mac_prefix),
        tags=validate.tags(given.text("NETWORK_TAGS"), "NETWORK_TAGS"),
    )
