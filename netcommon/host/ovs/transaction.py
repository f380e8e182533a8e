"""The change of a port as the operations of one transaction (RFC 7047, section 5.2; ovs-vswitchd.conf.db(5))."""

from __future__ import annotations

from netcommon.host.api.facts import OVS_MARK
from netcommon.host.ovs.rows import POLICED, POLICED_BEFORE, SHAPED, SHAPED_BEFORE, a_map, a_set, number, reference, uuid
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from netcommon.host.api.facts import OvsPort
    from netcommon.host.ovs.rows import Fake, Operation, Row

OURS = "netcommon-"  #: what our keys in external_ids begin with

HEX = "0123456789abcdef"
DIGITS, MOST = 10, 0xFFFFFFFF  #: of a limit in the database

COUNTING = 3  #: how many operations of a Change are for the whole transaction: the count for vswitchd, the comment, its number


class Standing(NamedTuple):
    """The Port row that has the name already (there is one at most, by the schema's index), and QoS rows that we made for it."""

    row: str = ""  #: its UUID
    interface: str = ""  #: the UUID of its one Interface row, where both stay: the port is this NIC's, and on this bridge
    keys: tuple[str, ...] = ()  #: those of ours in its external_ids
    policed: bool = False  #: its policing is as we have set it once
    marked: bool = False  #: we have set a policing once
    shapers: tuple[str, ...] = ()  #: the UUIDs of the QoS rows
    lent: tuple[str, ...] = ()  #: those of them that others' ports use
    limits: tuple[int, int] = (0, 0)  #: rate and burst of its policing now
    limits_before: tuple[int, int] = (0, 0)  #: those that somebody else had set before ours
    qos: str = ""  #: the UUID of the QoS row that it has now
    qos_before: str = ""  #: of the one that somebody else had given it before ours


class Change(NamedTuple):
    """The operations, of which the first ones fail where the bridge, or the standing row, is not what was believed.

    The last tells the number that vswitchd shows when it has taken the change.
    """

    operations: list[Operation]
    of_bridge: int  #: how many say what the bridge is
    of_row: int  #: how many, after those, say what the standing row is


def standing(
    port: OvsPort, ports: Sequence[Row], interfaces: Sequence[Row], bridges: Sequence[Row], shapers: Sequence[Row], users: Sequence[Row]
) -> Standing:
    """What stands in the way of ``port``: the rows of its name and of its bridge's. Raises MalformedError, KeyError.

    ``shapers``: the QoS rows that we made for it; ``users``: all ports that have a QoS.
    """
    made = tuple(sorted(uuid(each["_uuid"]) for each in shapers))
    kept = next((word for each in shapers if (word := dict(a_map(each["external_ids"])).get(SHAPED_BEFORE, ""))), "")
    found = Standing(shapers=made, lent=lent(port.name, made, users))
    if not ports:
        return found
    row = uuid(ports[0]["_uuid"])
    ids = dict(a_map(ports[0]["external_ids"]))
    own = [uuid(each["_uuid"]) for each in interfaces]
    ours = port.owner != "" and ids.get(OVS_MARK) == port.owner
    here = any(uuid(each) == row for bridge in bridges for each in a_set(bridge["ports"]))
    if ours and here and own and [uuid(each) for each in a_set(ports[0]["interfaces"])] == own:
        marks = dict(a_map(interfaces[0]["external_ids"]))
        mark = marks.get(POLICED, "")
        limits = number(interfaces[0]["ingress_policing_rate"]), number(interfaces[0]["ingress_policing_burst"])
        policed = mark == str(limits[0])
        keys = tuple(sorted(key for key in ids if key.startswith(OURS)))
        before = _limits(marks.get(POLICED_BEFORE, "")) if mark else limits
        found = found._replace(row=row, interface=own[0], keys=keys, policed=policed, marked=mark != "", limits=limits)
        return found._replace(limits_before=before, qos=reference(ports[0]["qos"]), qos_before=kept if _is_uuid(kept) else "")
    return found._replace(row=row)


def lent(name: str, shapers: Sequence[str], users: Sequence[Row]) -> tuple[str, ...]:
    """Those of the QoS rows ``shapers`` of the port ``name`` that others' ports use. Raises MalformedError, KeyError."""
    used = {reference(row["qos"]) for row in users if row["name"] != name}
    return tuple(row for row in shapers if row in used)


def _is_uuid(text: str) -> bool:
    return [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12] and set(text) <= {*HEX, "-"}


def _limits(words: str) -> tuple[int, int]:
    """Rate and burst as POLICED_BEFORE has them; none where it is not as we have written it."""
    found = words.split()
    good = len(found) == 2 and all(each.isascii() and each.isdecimal() and len(each) <= DIGITS for each in found)
    return (int(found[0]), int(found[1])) if good and max(map(int, found)) <= MOST else (0, 0)


def put(port: OvsPort, fake: Fake | None, before: Standing, name: str = "") -> Change:
    """Makes the port of a real bridge; ``fake``: for that VLAN of it. A row of this NIC's on the bridge is kept, another replaced.

    What is kept is everything that others have set: other_config, QoS, and the Interface row with its policing and iface-id. ``name``:
    what tells its new rows from another's of the same transaction.
    """
    places = [_same("Bridge", ["name"], [{"name": port.bridge}], ["name", "==", port.bridge])]
    if fake is not None:
        believed = {"name": fake.name, "tag": fake.tag, "fake_bridge": True}
        places = [_here(port.bridge, fake.row), _same("Port", list(believed), [believed], ["_uuid", "==", ["uuid", fake.row]])]
    qos, shaping = _shaped(port, before, name)
    rows, changes = _updated(port, before, qos) if before.interface else _replaced(port, before, qos, name)
    believed_shapers = [{"_uuid": ["uuid", each]} for each in before.shapers]
    rows.append(_same("QoS", ["_uuid"], believed_shapers, made_for(port.name, port.owner)))
    changes += shaping
    end = counted(f"port {port.name} on {port.bridge}")
    return Change([*places, *rows, *changes, *end], len(places), len(rows))


def counted(words: str) -> list[Operation]:
    """The end of a transaction that vswitchd is waited for: COUNTING operations, the last of which tells what it shows then."""
    return [_counted(), comment(words), _number()]


def comment(words: str) -> Operation:
    """What the database's log says of a transaction."""
    return {"op": "comment", "comment": f"netcommon: {words}"}


def delete(name: str, row: str, shapers: Sequence[str] = (), wait: bool = False) -> list[Operation]:
    """Takes the Port row out of its bridge, "" for none; rows that nothing refers to go by themselves, but QoS rows do not.

    ``wait``: the last is as in put.
    """
    operations = [*_unshaped(row, shapers), *([take_out(row)] if row else [])]
    words = f"port {name} removed"
    return [*operations, *(counted(words) if wait else [comment(words)])]


def take(port: OvsPort, row: Row, owner: str) -> list[Operation]:
    """Puts our mark on the port as it was seen in ``row``. The first fails where it is another by now, or was marked meanwhile."""
    believed = {"_uuid": row["_uuid"], "external_ids": row["external_ids"]}
    this = [["_uuid", "==", row["_uuid"]]]
    return [
        _same("Port", list(believed), [believed], *this),
        {"op": "mutate", "table": "Port", "where": this, "mutations": [["external_ids", "insert", _map(((OVS_MARK, owner),))]]},
        comment(f"port {port.name} taken over"),
    ]


def release(made: OvsPort, found: OvsPort, before: Standing) -> list[Operation]:
    """Gives the port ``made``, which stands in ``before``, back as it was ``found``. The first ones fail where it is another by now."""
    this, its = ([["_uuid", "==", ["uuid", row]]] for row in (before.row, before.interface))
    believed = {"_uuid": ["uuid", before.row], "interfaces": ["uuid", before.interface]}
    keys, interface_keys = {key for key, _ in made.external_ids}, {key for key, _ in made.interface_ids}
    ids = tuple(pair for pair in found.external_ids if pair[0] in keys and not pair[0].startswith(OURS))
    interface_ids = tuple(pair for pair in found.interface_ids if pair[0] in interface_keys)
    marks = (POLICED, POLICED_BEFORE) if before.marked else ()
    rows = [_same("Port", list(believed), [believed], ["name", "==", made.name], owned_by(made.owner)), *_still(before, shaped=False)]
    changes: list[Operation] = [
        {"op": "update", "table": "Port", "where": this, "row": _vlans(found)},
        {"op": "mutate", "table": "Port", "where": this, "mutations": _merged(ids, (*before.keys, *sorted(keys)))},
        {"op": "mutate", "table": "Interface", "where": its, "mutations": _merged(interface_ids, (*marks, *sorted(interface_keys)))},
    ]
    if limits := _policing(made._replace(policing=0), before):
        changes.append({"op": "update", "table": "Interface", "where": its, "row": limits})
    shapers = [row for row in before.shapers if row not in before.lent]
    return [*rows, *changes, *_unshaped(before.row, shapers, before.qos_before), *counted(f"port {made.name} given back")]


def unlimited(row: str, interface: str, shapers: Sequence[str]) -> list[Operation]:
    """Takes our limits from a port that is about to be deleted, ``interface``: of policing too. The last is as in put.

    vswitchd leaves on the device what it has put there for a port's limits when the port goes, but not when the limits do.
    """
    operations = _unshaped(row, shapers)
    if interface:
        limits = {"ingress_policing_rate": 0, "ingress_policing_burst": 0}
        operations.append({"op": "update", "table": "Interface", "where": [["_uuid", "==", ["uuid", interface]]], "row": limits})
    return [*operations, _counted(), _number()]


def owned_by(owner: str) -> list[Any]:
    """The condition that a row bears our mark with this UUID."""
    return ["external_ids", "includes", ["map", [[OVS_MARK, owner]]]]


def made_for(name: str, owner: str) -> list[Any]:
    """The condition that a QoS row is the one that we made for this NIC's port."""
    return ["external_ids", "includes", _map(((OVS_MARK, owner), (SHAPED, name)))]


def _shaped(port: OvsPort, before: Standing, name: str) -> tuple[dict[str, Any], list[Operation]]:
    """The Port row's column qos, where it is to be set, and the changes of QoS rows."""
    if not port.shaping:
        gone = [row for row in before.shapers if row not in before.lent]
        return {}, _unshaped(before.row, gone, before.qos_before)
    theirs = _others_qos(before)
    row = {
        "type": "linux-htb",
        "other_config": _map((("max-rate", str(port.shaping)),)),
        "external_ids": _map(((OVS_MARK, port.owner), (SHAPED, port.name), *(((SHAPED_BEFORE, theirs),) if theirs else ()))),
    }
    if before.shapers:
        there = ["uuid", before.shapers[0]]
        return {"qos": there}, [{"op": "update", "table": "QoS", "where": [["_uuid", "==", there]], "row": row}]
    made = f"made_qos{name}"
    return {"qos": ["named-uuid", made]}, [{"op": "insert", "table": "QoS", "row": row, "uuid-name": made}]


def _others_qos(before: Standing) -> str:
    """The UUID of the QoS row that somebody else has given the port; "" for none, and for a port that is made anew."""
    if not before.interface:
        return ""
    return before.qos if before.qos and before.qos not in before.shapers else before.qos_before


def _still(before: Standing, shaped: bool) -> list[Operation]:
    """Fail where somebody else has given the port another QoS meanwhile, ``shaped``, or the one that it is to have again is gone."""
    if shaped:
        qos = ["uuid", before.qos] if before.qos else ["set", []]
        return [_same("Port", ["qos"], [{"qos": qos}], ["_uuid", "==", ["uuid", before.row]])]
    again = ["uuid", before.qos_before]
    return [_same("QoS", ["_uuid"], [{"_uuid": again}], ["_uuid", "==", again])] if before.qos_before and before.shapers else []


def _unshaped(row: str, shapers: Sequence[str], again: str = "") -> list[Operation]:
    """Gives the Port row the QoS ``again`` ("": none) where it has one of ``shapers``, and deletes these."""
    operations: list[Operation] = []
    for each in shapers:
        shaper = ["uuid", each]
        if row:
            where = [["_uuid", "==", ["uuid", row]], ["qos", "includes", shaper]]
            operations.append({"op": "update", "table": "Port", "where": where, "row": {"qos": ["uuid", again] if again else ["set", []]}})
        operations.append({"op": "delete", "table": "QoS", "where": [["_uuid", "==", shaper]]})
    return operations


def _policing(port: OvsPort, before: Standing) -> dict[str, Any]:
    """The Interface row's columns of policing, where they are to be set: with the end of ours, those that others had set before."""
    if port.policing or before.policed:
        rate, burst = (port.policing, port.burst) if port.policing else before.limits_before
        return {"ingress_policing_rate": rate, "ingress_policing_burst": burst}
    return {}


def _interface_ids(port: OvsPort, before: Standing) -> tuple[tuple[str, str], ...]:
    if not port.policing:
        return port.interface_ids
    theirs = ((POLICED_BEFORE, "{} {}".format(*before.limits_before)),) if any(before.limits_before) else ()
    return (*port.interface_ids, (POLICED, str(port.policing)), *theirs)


def _replaced(port: OvsPort, before: Standing, qos: dict[str, Any], name: str) -> tuple[list[Operation], list[Operation]]:
    stale = [{"_uuid": ["uuid", before.row]}] if before.row else []
    ids = _map(port.external_ids)
    made = {"name": port.name, "interfaces": ["named-uuid", f"made_interface{name}"], "external_ids": ids, **_vlans(port), **qos}
    interface = {"name": port.name, "external_ids": _map(_interface_ids(port, Standing())), **_policing(port, before)}
    changes: list[Operation] = [take_out(before.row)] if stale else []
    changes += [
        {"op": "insert", "table": "Interface", "row": interface, "uuid-name": f"made_interface{name}"},
        {"op": "insert", "table": "Port", "row": made, "uuid-name": f"made_port{name}"},
        {
            "op": "mutate",
            "table": "Bridge",
            "where": [["name", "==", port.bridge]],
            "mutations": [["ports", "insert", ["set", [["named-uuid", f"made_port{name}"]]]]],
        },
    ]
    return [_same("Port", ["_uuid"], stale, ["name", "==", port.name])], changes


def _updated(port: OvsPort, before: Standing, qos: dict[str, Any]) -> tuple[list[Operation], list[Operation]]:
    believed = {"_uuid": ["uuid", before.row], "interfaces": ["uuid", before.interface]}
    rows = [
        _same("Port", list(believed), [believed], ["name", "==", port.name], owned_by(port.owner)),
        _here(port.bridge, before.row),
        *_still(before, shaped=port.shaping > 0),
    ]
    if port.policing and not before.marked:  # what others have set is kept, and must be what was read
        limits = dict(zip(("ingress_policing_rate", "ingress_policing_burst"), before.limits, strict=True))
        rows.append(_same("Interface", list(limits), [limits], ["_uuid", "==", ["uuid", before.interface]]))
    this = [["_uuid", "==", ["uuid", before.row]]]
    changes: list[Operation] = [
        {"op": "update", "table": "Port", "where": this, "row": {**_vlans(port), **qos}},
        {"op": "mutate", "table": "Port", "where": this, "mutations": _merged(port.external_ids, before.keys)},
    ]
    its = [["_uuid", "==", ["uuid", before.interface]]]
    if port.interface_ids or port.policing or before.marked:
        ids = _merged(_interface_ids(port, before), (POLICED, POLICED_BEFORE) if before.marked else ())
        changes.append({"op": "mutate", "table": "Interface", "where": its, "mutations": ids})
    if changed := _policing(port, before):
        changes.append({"op": "update", "table": "Interface", "where": its, "row": changed})
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


def take_out(row: str) -> Operation:
    """The Port row leaves its bridge, and so goes."""
    return {
        "op": "mutate",
        "table": "Bridge",
        "where": [["ports", "includes", ["uuid", row]]],
        "mutations": [["ports", "delete", ["set", [["uuid", row]]]]],
    }


def _map(pairs: Sequence[tuple[str, str]]) -> list[Any]:
    return ["map", [list(pair) for pair in pairs]]
