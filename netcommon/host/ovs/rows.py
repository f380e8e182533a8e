"""OVSDB's notation of rows (RFC 7047, section 5.1), and what the rows of ports and bridges say (ovs-vswitchd.conf.db(5))."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import OVS_MARK, OvsMember, OvsPort
from netcommon.host.api.host import DONE, Answer
from netcommon.host.rtnetlink.attributes import MalformedError
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]
    Operation = dict[str, Any]


class Fake(NamedTuple):
    """A fake bridge: a VLAN of a bridge that ovs-vsctl shows as one of its own (ovs-vsctl(8), add-br with a parent)."""

    name: str
    parent: str
    tag: int
    row: str  #: the UUID of the Port row that makes it


PORT_COLUMNS = ["_uuid", "name", "tag", "trunks", "vlan_mode", "external_ids", "interfaces", "fake_bridge", "qos", "protected"]
INTERFACE_COLUMNS = ["_uuid", "name", "external_ids", "error", "ofport", "type", "ingress_policing_rate", "ingress_policing_burst"]
OPTIONS = "options"  #: of an Interface row: what a tunnel or a patch port leads to; hooks do not ask for it
QOS_COLUMNS = ["_uuid", "external_ids", "other_config"]

#: Our keys: of the port that a QoS row was made for, and of the policing that we have set on an Interface row.
SHAPED, POLICED = "netcommon-port", "netcommon-policing"

#: Our keys of what somebody else had set before, which comes back with the end of our limits: in a QoS row of ours the UUID of the one that
#: the port had, in the Interface row rate and burst of its policing.
SHAPED_BEFORE, POLICED_BEFORE = "netcommon-qos-before", "netcommon-policing-before"

#: The condition that a port has a QoS.
SHAPED_PORTS = ["qos", "!=", ["set", []]]


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


def restoring(column: Any) -> bool:
    """Tell whether ovs-vswitchd is to wait until its flows are restored, by other_config of its only row. Raises MalformedError."""
    return dict(a_map(column)).get("flow-restore-wait") == "true"


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


def reference(value: Any) -> str:
    """The UUID that an optional reference holds, "" where there is none. Raises MalformedError."""
    found = a_set(value) if not (isinstance(value, list) and value[:1] == ["uuid"]) else [value]
    return uuid(found[0]) if found else ""


def by_uuid(rows: Iterable[Row]) -> dict[str, Row]:
    """The rows by their UUID. Raises MalformedError, KeyError."""
    return {uuid(row["_uuid"]): row for row in rows}


def number(value: Any) -> int:
    """An integer. Raises MalformedError."""
    if type(value) is not int:
        raise MalformedError("a number that is none")
    return value


def word(value: Any) -> str:
    """An optional string, "" where there is none. Raises MalformedError."""
    found = a_set(value)
    if not all(isinstance(part, str) for part in found) or len(found) > 1:
        raise MalformedError("a string that is none")
    return found[0] if found else ""


def a_port(port: Row, interfaces: Mapping[str, Row], bridge: str, shapers: Mapping[str, Row]) -> OvsPort:
    """A Port row with its Interface row and its QoS row (by UUID; a bond has several interfaces, and shows none).

    Raises MalformedError, KeyError.
    """
    members = a_set(port["interfaces"])
    there = [row for each in members if (row := interfaces.get(uuid(each))) is not None]
    interface = there[0] if there and len(members) == 1 else None
    tag = numbers(port["tag"])
    ofport = numbers(interface["ofport"]) if interface else ()
    ids = a_map(interface["external_ids"]) if interface else ()
    limited = interface is not None and any(key == POLICED for key, _ in ids)
    return OvsPort(
        name=word(port["name"]),
        bridge=bridge,
        tag=tag[0] if tag else None,
        trunks=numbers(port["trunks"]),
        vlan_mode=word(port["vlan_mode"]),
        external_ids=a_map(port["external_ids"]),
        interface_ids=tuple(pair for pair in ids if pair[0] not in (POLICED, POLICED_BEFORE)),
        error=word(interface["error"]) if interface else "",
        ofport=ofport[0] if ofport else 0,
        row=uuid(port["_uuid"]),
        policing=number(interface["ingress_policing_rate"]) if interface and limited else 0,
        burst=number(interface["ingress_policing_burst"]) if interface and limited else 0,
        shaping=_shaping(port, shapers),
        protected=port.get("protected") is True,
        kind=word(interface.get("type", "")) if interface else "",
        members=tuple(sorted(_member(row) for row in there)) if len(members) > 1 else (),
        peer=dict(a_map(interface[OPTIONS])).get("peer", "")
        if interface and interface.get("type") == "patch" and OPTIONS in interface
        else "",
    )


def _member(interface: Row) -> OvsMember:
    """An Interface row of a bond. Raises MalformedError, KeyError."""
    ofport = numbers(interface["ofport"])
    return OvsMember(word(interface["name"]), ofport[0] if ofport else 0, word(interface.get("type", "")))


def _shaping(port: Row, shapers: Mapping[str, Row]) -> int:
    """See OvsPort."""
    named = reference(port["qos"])
    if not named:
        return 0
    mark = dict(a_map(port["external_ids"])).get(OVS_MARK)
    shaper = shapers.get(named)
    if shaper is None or not mark or dict(a_map(shaper["external_ids"])).get(OVS_MARK) != mark:
        return 0
    rate = dict(a_map(shaper["other_config"])).get("max-rate", "")
    return int(rate) if rate.isascii() and rate.isdecimal() else 0


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
    limits = all(not wanted or now == wanted for now, wanted in zip(_limits(there), _limits(port), strict=True))
    return plain[0] == plain[1] and ids and limits


def said_of(there: OvsPort | None, port: OvsPort) -> Answer | None:
    """What vswitchd says of ``port``, by the rows that are there; None where it says nothing yet."""
    if there is None or not agrees(there, port):
        return Answer(errno.EAGAIN, f"OVS port {port.name}: somebody else has changed it meanwhile")
    if there.error or there.ofport < 0:
        return Answer(errno.EIO, f"OVS port {port.name}: {there.error or 'ovs-vswitchd could not open it'}")
    return DONE if there.ofport else None


def _limits(port: OvsPort) -> tuple[int, ...]:
    return port.policing, port.burst, port.shaping


def select(table: str, columns: Sequence[str], *where: list[Any]) -> Operation:
    return {"op": "select", "table": table, "where": list(where), "columns": list(columns)}
