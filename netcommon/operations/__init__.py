"""Operations: every change to the host, one module per noun. This module knows where each kind lives, and imports it when asked."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from netcommon.operations.base import Operation, UnknownKind, fields_of
from netcommon.operations.stored import wrong

#: kind -> module and class. A kind stays readable for ever: records of older versions name it.
KINDS = {
    "link": ("link", "LinkSetting"),
    "bridge-port": ("bridge", "BridgePort"),
    "bridge-vlans": ("vlan", "PortVlans"),
    "uplink-vlan": ("vlan", "UplinkVlan"),
    "sysctl": ("sysctl", "DeviceSysctl"),
    "rule": ("rule", "PolicyRule"),
    "route": ("route", "GuestRoute"),
    "ovs-port": ("ovs", "Port"),
}


def kind(name: str) -> type[Operation]:
    """The class of a kind of operation. Raises UnknownKind."""
    try:
        module, attribute = KINDS[name]
    except KeyError:
        raise UnknownKind(f"operation of the unknown kind {name!r}") from None
    found: type[Operation] = getattr(import_module("netcommon.operations." + module), attribute)
    return found


def from_json(stored: Mapping[str, object]) -> Operation:
    """The operation a record holds. Raises UnknownKind, also where its fields are not those of its kind."""
    made, values = kind(str(stored.get("kind"))), fields_of(stored)
    field = wrong(made, values)
    if field:
        raise UnknownKind(f"operation of kind {stored.get('kind')!r} whose field {field!r} is not as we know it")
    try:
        return made(**values)
    except TypeError as error:
        raise UnknownKind(f"operation of kind {stored.get('kind')!r} with other fields than ours: {error}") from None
