"""The change of a port as the operations of one transaction (RFC 7047, section 5.2; ovs-vswitchd.conf.db(5))."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from netcommon.host.facts import OVS_MARK, OvsPort
from netcommon.host.ovsrows import Fake, Operation, Row, a_map, a_set, uuid

OURS = "netcommon-"  #: what our keys in external_ids begin with


class Standing(NamedTuple):
    """The Port row that has the name already (there is one at most, by the schema's index)."""

    row: str = ""  #: its UUID
    interface: str = ""  #: the UUID of its one Interface row, where both stay: the port is this NIC's, and on this bridge
    keys: tuple[str, ...] = ()  #: those of ours in its external_ids


class Change(NamedTuple):
    """The operations, of which the first ones fail where the bridge, or the standing row, is not what was believed.

    The last tells the number that vswitchd shows when it has taken the change.
    """

    operations: list[Operation]
    of_bridge: int  #: how many say what the bridge is
    of_row: int  #: how many, after those, say what the standing row is


def standing(port: OvsPort, ports: Sequence[Row], interfaces: Sequence[Row], bridges: Sequence[Row]) -> Standing:
    """What stands in the way of ``port``: the rows of its name and of its bridge's. Raises MalformedError, KeyError."""
    if not ports:
        return Standing()
    row = uuid(ports[0]["_uuid"])
    ids = dict(a_map(ports[0]["external_ids"]))
    own = [uuid(each["_uuid"]) for each in interfaces]
    ours = port.owner != "" and ids.get(OVS_MARK) == port.owner
    here = any(uuid(each) == row for bridge in bridges for each in a_set(bridge["ports"]))
    if ours and here and own and [uuid(each) for each in a_set(ports[0]["interfaces"])] == own:
        return Standing(row, own[0], tuple(sorted(key for key in ids if key.startswith(OURS))))
    return Standing(row)


def put(port: OvsPort, fake: Fake | None, before: Standing) -> Change:
    """Makes the port of a real bridge; ``fake``: for that VLAN of it. A row of this NIC's on the bridge is kept, another replaced.

    What is kept is everything that others have set: other_config, QoS, and the Interface row with its policing and iface-id.
    """
    places = [_same("Bridge", ["name"], [{"name": port.bridge}], ["name", "==", port.bridge])]
    if fake is not None:
        believed = {"name": fake.name, "tag": fake.tag, "fake_bridge": True}
        places = [_here(port.bridge, fake.row), _same("Port", list(believed), [believed], ["_uuid", "==", ["uuid", fake.row]])]
    rows, changes = _updated(port, before) if before.interface else _replaced(port, before)
    end = [_counted(), {"op": "comment", "comment": f"netcommon: port {port.name} on {port.bridge}"}, _number()]
    return Change([*places, *rows, *changes, *end], len(places), len(rows))


def delete(name: str, row: str, wait: bool = False) -> list[Operation]:
    """Takes the Port row out of its bridge; rows that nothing refers to go by themselves. ``wait``: the last is as in put."""
    operations = [_take_out(row), {"op": "comment", "comment": f"netcommon: port {name} removed"}]
    return [*operations, _counted(), _number()] if wait else operations


def owned_by(owner: str) -> list[Any]:
    """The condition that a row bears our mark with this UUID."""
    return ["external_ids", "includes", ["map", [[OVS_MARK, owner]]]]


def _replaced(port: OvsPort, before: Standing) -> tuple[list[Operation], list[Operation]]:
    stale = [{"_uuid": ["uuid", before.row]}] if before.row else []
    made = {"name": port.name, "interfaces": ["named-uuid", "made_interface"], "external_ids": _map(port.external_ids), **_vlans(port)}
    interface = {"name": port.name, "external_ids": _map(port.interface_ids)}
    changes: list[Operation] = [_take_out(before.row)] if stale else []
    changes += [
        {"op": "insert", "table": "Interface", "row": interface, "uuid-name": "made_interface"},
        {"op": "insert", "table": "Port", "row": made, "uuid-name": "made_port"},
        {
            "op": "mutate",
            "table": "Bridge",
            "where": [["name", "==", port.bridge]],
            "mutations": [["ports", "insert", ["set", [["named-uuid", "made_port"]]]]],
        },
    ]
    return [_same("Port", ["_uuid"], stale, ["name", "==", port.name])], changes


def _updated(port: OvsPort, before: Standing) -> tuple[list[Operation], list[Operation]]:
    believed = {"_uuid": ["uuid", before.row], "interfaces": ["uuid", before.interface]}
    rows = [
        _same("Port", list(believed), [believed], ["name", "==", port.name], owned_by(port.owner)),
        _here(port.bridge, before.row),
    ]
    this = [["_uuid", "==", ["uuid", before.row]]]
    changes: list[Operation] = [
        {"op": "update", "table": "Port", "where": this, "row": _vlans(port)},
        {"op": "mutate", "table": "Port", "where": this, "mutations": _merged(port.external_ids, before.keys)},
    ]
    if port.interface_ids:
        its = [["_uuid", "==", ["uuid", before.interface]]]
        changes.append({"op": "mutate", "table": "Interface", "where": its, "mutations": _merged(port.interface_ids)})
    return rows, changes


def _vlans(port: OvsPort) -> dict[str, Any]:
    return {
        "tag": ["set", []] if port.tag is None else port.tag,
        "trunks": ["set", sorted(port.trunks)],
        "vlan_mode": port.vlan_mode or ["set", []],
    }


def _merged(pairs: Sequence[tuple[str, str]], keys: Sequence[str] = ()) -> list[list[Any]]:
    """Sets the pairs and takes other ``keys`` away. (Inserting leaves a key as it is that is there.)"""
    gone = sorted({*keys, *(key for key, _ in pairs)})
    return [["external_ids", "delete", ["set", gone]], ["external_ids", "insert", _map(pairs)]]


def _same(table: str, columns: Sequence[str], rows: Sequence[Row], *where: list[Any]) -> Operation:
    """Fails the transaction unless the selected rows are these."""
    return {
        "op": "wait",
        "table": table,
        "where": list(where),
        "columns": list(columns),
        "until": "==",
        "rows": list(rows),
        "timeout": 0,
    }


def _here(bridge: str, row: str) -> Operation:
    """Fails the transaction unless the Port row is one of the bridge."""
    return _same("Bridge", ["name"], [{"name": bridge}], ["name", "==", bridge], ["ports", "includes", ["uuid", row]])


def _counted() -> Operation:
    return {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}


def _number() -> Operation:
    return {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]}


def _take_out(row: str) -> Operation:
    return {
        "op": "mutate",
        "table": "Bridge",
        "where": [["ports", "includes", ["uuid", row]]],
        "mutations": [["ports", "delete", ["set", [["uuid", row]]]]],
    }


def _map(pairs: Sequence[tuple[str, str]]) -> list[Any]:
    return ["map", [list(pair) for pair in pairs]]
