"""OVSDB's notation of rows (RFC 7047, section 5.1), and what the rows of ports and bridges say (ovs-vswitchd.conf.db(5))."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from netcommon.host.attributes import MalformedError
from netcommon.host.base import Answer
from netcommon.host.facts import OvsPort

Row = Mapping[str, Any]
Operation = dict[str, Any]


class Fake(NamedTuple):
    """A fake bridge: a VLAN of a bridge that ovs-vsctl shows as one of its own (ovs-vsctl(8), add-br with a parent)."""

    name: str
    parent: str
    tag: int
    row: str  #: the UUID of the Port row that makes it


PORT_COLUMNS = ["_uuid", "name", "tag", "trunks", "vlan_mode", "external_ids", "interfaces", "fake_bridge"]
INTERFACE_COLUMNS = ["_uuid", "name", "external_ids", "error", "ofport"]


def a_set(value: Any) -> list[Any]:
    """The members of a set; a single one may stand for itself. Raises MalformedError."""
    if isinstance(value, list) and len(value) == 2 and value[0] == "set":
        if isinstance(value[1], list):
            return value[1]
        raise MalformedError("a set that is none")
    return [value]


def a_map(value: Any) -> tuple[tuple[str, str], ...]:
    """The sorted pairs of a map of strings. Raises MalformedError."""
    if isinstance(value, list) and len(value) == 2 and value[0] == "map" and isinstance(value[1], list):
        pairs = value[1]
        if all(isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
            return tuple(sorted((pair[0], pair[1]) for pair in pairs))
    raise MalformedError("a map that is none")


def numbers(value: Any) -> tuple[int, ...]:
    """The sorted members of a set of integers. Raises MalformedError."""
    found = a_set(value)
    if not all(type(number) is int for number in found):
        raise MalformedError("a set with other things than numbers")
    return tuple(sorted(found))


def uuid(value: Any) -> str:
    """The UUID that a reference holds. Raises MalformedError."""
    if isinstance(value, list) and len(value) == 2 and value[0] == "uuid" and isinstance(value[1], str):
        return value[1]
    raise MalformedError("a reference that is none")


def word(value: Any) -> str:
    """An optional string, "" where there is none. Raises MalformedError."""
    found = a_set(value)
    if not all(isinstance(part, str) for part in found) or len(found) > 1:
        raise MalformedError("a string that is none")
    return found[0] if found else ""


def a_port(port: Row, interfaces: Mapping[str, Row], bridge: str) -> OvsPort:
    """A Port row with its Interface row (by UUID; a bond has several and shows none). Raises MalformedError, KeyError."""
    members = a_set(port["interfaces"])
    interface = interfaces.get(uuid(members[0])) if len(members) == 1 else None
    tag = numbers(port["tag"])
    ofport = numbers(interface["ofport"]) if interface else ()
    return OvsPort(
        name=word(port["name"]),
        bridge=bridge,
        tag=tag[0] if tag else None,
        trunks=numbers(port["trunks"]),
        vlan_mode=word(port["vlan_mode"]),
        external_ids=a_map(port["external_ids"]),
        interface_ids=a_map(interface["external_ids"]) if interface else (),
        error=word(interface["error"]) if interface else "",
        ofport=ofport[0] if ofport else 0,
        row=uuid(port["_uuid"]),
    )


def fakes(ports: Iterable[Row], bridges: Iterable[Row]) -> list[Fake]:
    """The fake bridges among ``ports``; one without a VLAN is none. Raises MalformedError, KeyError."""
    found = [(uuid(row["_uuid"]), word(row["name"]), numbers(row["tag"])) for row in ports if row["fake_bridge"] is True]
    if not found:
        return []
    parents = {uuid(port): word(row["name"]) for row in bridges for port in a_set(row["ports"])}
    return [Fake(name, parents[row], tag[0], row) for row, name, tag in found if tag and row in parents]


def may_be_inside(port: OvsPort) -> bool:
    """Whether the port's VLAN may be that of a fake bridge.

    A port with vlan_mode is of the real bridge, although ovs-vsctl port-to-br looks at the tag alone: ovs-vsctl add-port sets
    none on a fake bridge, and a NIC of the real bridge with the same VLAN, whose port always has one, stays what it is.
    """
    return port.tag is not None and not port.trunks and not port.vlan_mode


def shown(port: OvsPort, known: Sequence[Fake]) -> OvsPort:
    """The port as ovs-vsctl shows it: of the fake bridge whose VLAN it has, where that is exactly one, without that VLAN."""
    if not may_be_inside(port) or any(fake.row == port.row for fake in known):
        return port
    names = [fake.name for fake in known if (fake.parent, fake.tag) == (port.bridge, port.tag)]
    return port._replace(bridge=names[0], tag=None) if len(names) == 1 else port


def inside(port: OvsPort, known: Sequence[Fake]) -> Fake | Answer:
    """The fake bridge that the port is to be of, or why it cannot be."""
    fake = next((each for each in known if each.name == port.bridge), None)
    if fake is None:
        return Answer(errno.ENOENT, f"there is no OVS bridge {port.bridge}")
    text = f"OVS port {port.name}: {fake.name} is a fake bridge, VLAN {fake.tag} of {fake.parent}"
    if port.tag is not None or port.trunks or port.vlan_mode:
        return Answer(errno.EINVAL, f"{text}: its ports have that VLAN and none of their own (take {fake.parent} for other VLANs)")
    twins = [each.name for each in known if (each.parent, each.tag) == (fake.parent, fake.tag) and each != fake]
    if twins:
        return Answer(errno.EINVAL, f"{text}, and so is {', '.join(twins)}: whose port it would be is not known")
    return fake


def agrees(there: OvsPort, port: OvsPort) -> bool:
    """Whether the port there is as ``port`` says. What others add to its external_ids is theirs."""
    plain = [(each.name, each.bridge, each.tag, sorted(each.trunks), each.vlan_mode) for each in (there, port)]
    ids = set(port.external_ids) <= set(there.external_ids) and set(port.interface_ids) <= set(there.interface_ids)
    return plain[0] == plain[1] and ids


def select(table: str, columns: Sequence[str], *where: list[Any]) -> Operation:
    return {"op": "select", "table": table, "where": list(where), "columns": list(columns)}
