"""Say what is wanted of a NIC: by the registry, by what its guest was started with, and by the node's settings as they are written.

Which of them counts netcommon.options says.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.stored import Interface
from mockcloud.variables import variables
from netcommon.options.addresses import Addresses, addresses_of
from netcommon.options.model import Options
from netcommon.options.sources import options_of
from netcommon.options.tags import KINDS, PROFILES
from netcommon.settings import parse
from netcommon.settings.model import Settings
from netregistry.model.codec import read
from runtime.environment import nic_from_environment
from runtime.errors import NetcommonError
from runtime.nic import REGISTRY, Changed
from runtime.registry_wanted import wanted_of
from runtime.vlan import Vlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.node import MockNode

OF_ADDRESSES = frozenset({"addresses", "prefixes", "eui64"})  #: options that give a guest addresses besides its IP
#: Options that say what a guest may send.
OF_GUARD = OF_ADDRESSES | {"spoof_guard", *(name for name in Options._fields if name.startswith("allow_"))}

FIREWALL_BIT, ACCESS_BIT = 0x80000000, 0x40000000  #: of packets' marks, which such NICs need for themselves (docs/routed.md)
FIELDS = ("gateway", "gateway6", "resolvers", "search", "routes", "mtu")  #: of a network, which guests are told


class Told(NamedTuple):
    """Hold what is said of a NIC's network: what its guests are told, and whom the node plays. ``by_somebody``: beside its hypervisor.

    ``shifted``: the hypervisor said something else when the guest was started than the registry does now, so guests are told either.
    """

    name: str = ""
    uuid: str = ""
    gateway: str = ""
    gateway6: str = ""
    resolvers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()  #: prefix, and the address of the router to it
    mtu: int = 0
    by_somebody: bool = False
    shifted: bool = False


class Wanted(NamedTuple):
    """Hold what is wanted of a NIC that runs. ``unsure``: options of which a value may be in force, or may not be yet, or no more.
    ``refused``: how that begins which a node says that cannot do it; then what was wanted before is in force.
    """

    options: Options
    addresses: Addresses
    unsure: frozenset[str]
    vlan: Vlan = Vlan()
    refused: str = ""


def settings_of(node: MockNode) -> Settings:
    """Give the settings of a node as they are written; where they cannot be used those that its agent has."""
    with suppress(NetcommonError, FileNotFoundError):
        return parse.read(os.open(node.paths.config, os.O_RDONLY | os.O_CLOEXEC), node.paths.config).settings
    return node.state.settings if os.path.exists(node.paths.config) else Settings()


def wanted_by(item: Mapping[str, Any], interface: Mapping[str, Any], settings: Settings) -> Wanted:
    """Give what is wanted of a NIC. ``item``: what the registry wants of it; ``interface``: as its guest was started."""
    said, had = wanted_of("", item["nic"]).options, read(Interface, interface)
    made = nic_from_environment(variables(had.nic, had.network, had.tap))
    made = made._replace(wanted=tuple(Changed(each.name, each.value, REGISTRY) for each in said))
    unsure = _pending(item["nic"], interface["nic"], settings) - {each.name for each in said}
    unsure |= {each.name for each in said if each.until}
    try:
        options = options_of(made, settings)
        wanted = Wanted(options, addresses_of(made, options), unsure, made.vlan)
    except NetcommonError as error:
        return Wanted(Options(), Addresses(), unsure, refused=str(error))
    return wanted._replace(refused=_impossible(wanted, interface["nic"], settings))


def _impossible(wanted: Wanted, nic: Mapping[str, Any], settings: Settings) -> str:
    """Say how a node's refusal begins of what no node can do, "" where each can (docs/options.md): the variable, or the setting."""
    options, mode = wanted.options, nic["mode"]
    walled = {FIREWALL_BIT: options.firewall != "unprotected", ACCESS_BIT: options.node_access != ("all",)}
    if mode == "openvswitch" and any(walled.values()):
        return f"MODE={mode!r}"
    if mode == "routed" and not wanted.addresses.families:
        return "IP="
    if any(needed and settings.rule_mark & bit for bit, needed in walled.items()):
        return "[rules] mark"
    known_by_mac = options.dhcp != "none" or (mode == "bridged" and options.static_fdb)
    if (known_by_mac and not nic["mac"]) or (mode == "routed" and options.tap_mac and options.tap_mac == nic["mac"]):
        return "MAC="
    return ""


def told_of(interface: Mapping[str, Any], networks: Mapping[str, Mapping[str, Any]], settings: Settings) -> Told:
    """Give what is said of the network of a NIC. ``networks``: those of the registry by UUID; they are stronger than settings.

    A gateway that the hypervisor has given is the strongest (docs/dhcp.md).
    """
    given, uuid = interface["network"] or {}, interface["nic"]["network"]
    name = given.get("name", "")
    tables = [key for key in settings.network_fields if key == name] + [key for key in settings.network_fields if key.lower() == uuid]
    fields: dict[str, Any] = {}
    for key in filter(None, tables):
        fields |= settings.network_fields[key]
    fields = {field: tuple(value.items()) if field == "routes" else value for field, value in fields.items()}
    said = networks.get(uuid, {})
    fields |= {field: _plain(said[field]) for field in FIELDS if said.get(field)}
    shifted = {field: given.get(field, "") for field in ("gateway", "gateway6")} != {
        field: fields.get(field, "") for field in ("gateway", "gateway6")
    }
    fields |= {field: given[field] for field in ("gateway", "gateway6") if given.get(field)}
    return Told(name or said.get("name", ""), uuid, **fields, by_somebody=bool(said) or any(tables), shifted=shifted)


def _plain(value: Any) -> Any:
    """Give a field of the registry's JSON as Told has it."""
    return tuple((each["prefix"], each["via"]) if isinstance(each, dict) else each for each in value) if isinstance(value, list) else value


def _pending(now: Mapping[str, Any], then: Mapping[str, Any], settings: Settings) -> frozenset[str]:
    """Give the options of which tags speak that a NIC has otherwise than its guest was started with, or by its position, which shifts."""
    start = f"{settings.tag_prefix}:"
    by_position = {tag for tag in (*now["tags"], *then["tags"]) if tag.removeprefix(start).partition(":")[0].isdecimal()}
    words = {word for tag in {*now["tags"]} ^ {*then["tags"]} | by_position if tag.startswith(start) for word in tag.split(":")}
    return frozenset(words & KINDS.keys()) | ({"firewall"} if words & PROFILES else frozenset[str]())
