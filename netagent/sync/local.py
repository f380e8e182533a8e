"""Tell what NICs there are on the node, as a registry is told: from records and definitions, never from memory.

A NIC of which nobody can tell for the moment (a hook is at work; its record is gone, and its tap is there; it is up in another network
namespace) is left open: that is neither running nor gone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from netagent.sync.bare import bare, is_bare, serves
from netagent.sync.messages import Local, Looked, Surveyed
from netagent.sync.reading import TRANSIENT
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL
from netcommon.lifecycle import changed_options, execute
from netcommon.lifecycle.change import settings_then
from netcommon.lifecycle.context import alive
from netcommon.lifecycle.guest_device import may_have_guest
from netcommon.lifecycle.migration import awaited
from netcommon.operations.link import down_mark, marked
from netcommon.options.addresses import addresses_of
from netcommon.options.schema import OPTIONS
from netcommon.options.shown import tag_text
from netcommon.options.sources import options_of, strongest
from netregistry.model.nic import Option, Report
from runtime import definitions
from runtime.errors import NetcommonError, NicInvalid
from runtime.record import APPLYING, REVERTING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from netagent.sync.bare import Bare
    from netagent.sync.sent import Sent
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netregistry.model.node import About
    from runtime.nic import Nic
    from runtime.record import Record

    Applied = Callable[[Record], str]

MOST = 100  #: addresses, options and kinds of drift of one report
LONGEST = 1024  #: characters of an option's value


class Unclear(Exception):
    """Nobody can tell for the moment how a NIC is."""


def looked(node: Node, uuids: Iterable[str], about: About | None, applied: Applied, devices: Mapping[str, Sent]) -> Looked:
    """Look at some NICs. ``applied`` gives EPOCH:REVISION of what is in force of a record's NIC. Raises NetcommonError.

    ``devices``: on which NICs are up, and where, as the registry has it (reaping.told_devices).
    """
    view = node.host.view()
    found: dict[str, Local] = {}
    unclear: set[str] = set()
    marks: Mapping[str, str] | None = None
    for uuid in uuids:
        try:
            record, (nic, broken) = _record(node, uuid), _defined(node, uuid)
            if record is not None and not _is_left(node, view, record):
                found[uuid] = _local(node, view, record, nic, applied, broken)
                continue
            if record is None:
                marks = _marks(view) if marks is None else marks
                told = devices.get(uuid)
                held = _is_held(node, view, nic, told) or (broken and _may_be_up(node, view, told, devices.values()))
                if uuid in marks or node.store.elsewhere(uuid) or held:
                    unclear.add(uuid)  # its record may be lost, or another namespace of this node has it
                    continue
            if nic is not None or broken:
                found[uuid] = Local(Report(uuid, "stopped"), {}, unread=True) if nic is None else _stopped(nic)
        except (Unclear, NetcommonError):
            unclear.add(uuid)
    return Looked(found, frozenset(unclear), about, node.clock.wall())


def surveyed(node: Node, applied: Applied) -> Surveyed:
    """Take an inventory. Where anything of it cannot be read the answer says why it is not whole."""
    found: dict[str, Local] = {}
    problems: list[str] = []
    defined: dict[str, Nic] = {}
    kept: set[str] = set()
    unknown: list[Bare] = []
    bridges = frozenset[str]()
    try:
        view = node.host.snapshot()
        if not view.links():
            problems.append("the kernel lists no network device, not even the loopback")
        nics, wrong = definitions.all_of(node.paths)
        defined = {nic.uuid: nic for nic in nics}
        kept.update(defined)
        problems += wrong
        recorded: set[str] = set()
        devices: set[int] = set()
        for record in node.store.each(problems):
            devices.add(record.ifindex)
            left = _ours(node, record) and _is_left(node, view, record)
            recorded.update([] if left else [record.uuid])
            kept.update([record.uuid] if _ours(node, record) and not left else [])
            if record.moved or left or not _ours(node, record):
                continue
            try:
                nic, broken = (defined.get(record.uuid), False) if record.uuid in defined or not wrong else _defined(node, record.uuid)
                found[record.uuid] = _local(node, view, record, nic, applied, broken)
            except Unclear as error:
                problems.append(str(error))
        lost = {uuid: device for uuid, device in _marks(view).items() if uuid not in recorded}
        unknown = [bare(view, link) for link in view.links() if link.index not in devices and is_bare(view, link)]
        bridges = frozenset(link.name for link in view.links() if link.kind == "bridge")
        there, held = found.keys() | recorded | lost.keys(), {each.device for each in unknown}
        for uuid, nic in defined.items():
            link = view.link(nic.interface) if nic.interface in held else None
            bare_tap = link is not None and serves(node, view, link, nic.mode)
            if not (uuid in there or bare_tap or node.store.elsewhere(uuid)):
                found[uuid] = _stopped(nic)
        if aside := node.store.quarantined():
            problems.append(f"in quarantine: {', '.join(aside[:5])}")
        if lost:
            named = ", ".join(sorted(lost.values())[:5])
            problems.append(f"on no record, and there: {named}: adopt them (netcommon adopt), or restart or stop their guests")
    except NetcommonError as error:
        problems.append(str(error))
    return Surveyed(found, "; ".join(problems[:5]), len(defined), tuple(unknown), frozenset(kept), bridges)


def _record(node: Node, uuid: str) -> Record | None:
    record = node.store.read(uuid)
    return record if record is not None and _ours(node, record) else None


def _defined(node: Node, uuid: str) -> tuple[Nic | None, bool]:
    """Give the definition of a NIC, None where there is none, and whether there is one that says nothing. Raises HostRefused."""
    try:
        return definitions.read(node.paths, uuid), False
    except NicInvalid:
        return None, True


def _ours(node: Node, record: Record) -> bool:
    return record.boot == node.identity.boot and record.netns == node.identity.netns


def _is_left(node: Node, view: View, record: Record) -> bool:
    """Tell whether a NIC has gone with its device, and its record tells only what of it could not be undone yet."""
    return record.state == REVERTING and not alive(node, view, record)


def _marks(view: View) -> dict[str, str]:
    """Give the NICs of which a device bears the mark, whatever it is called by now; not those without a guest, or taken down."""
    there = ((link.alias.partition(" ")[0], link) for link in view.links() if marked(link) and may_have_guest(view, link))
    return {uuid: link.name for uuid, link in there if link.alias != down_mark(uuid)}


def _is_held(node: Node, view: View, nic: Nic | None, told: Sent | None) -> bool:
    """Tell whether the device of a NIC that is on no record is in use, and says of nobody's that it is its. Raises NetcommonError.

    ``nic``: as it is defined, None where it is not. ``told``: as the registry has it: its device is known by name, wherever it is by now.
    """
    mode = nic.mode if nic is not None else told.mode if told is not None else ""
    names = {nic.interface if nic is not None else "", told.device if told is not None else ""} - {""}
    return any(serves(node, view, link, mode) for link in map(view.link, sorted(names)) if link is not None)


def _may_be_up(node: Node, view: View, told: Sent | None, others: Iterable[Sent]) -> bool:
    """Tell whether a NIC whose definition says nothing may be up: a device in use is on no record, without a mark. Raises NetcommonError.

    ``told``: as the registry has it; None where that is not known: it may be any. Where its device is not there by its name, it may be one
    that is where the NIC was, and that none of the ``others`` has.
    """
    if told is not None and (not told.device or view.link(told.device) is not None):
        return False
    found = [link for link in view.links() if is_bare(view, link) and node.store.by_device(link.name) is None]
    if told is None:
        return bool(found)
    taken = {each.device for each in others}
    return any(link.up and link.name not in taken and _is_where(view, link, told) for link in found)


def _is_where(view: View, link: Link, told: Sent) -> bool:
    """Tell whether a device is where a NIC was when it was up: a port of that bridge, or what a route of ours leads to.

    A port of Open vSwitch keeps the name that its device had.
    """
    if told.mode == "routed":
        return any(route.index == link.index for family in (AF_INET, AF_INET6) for route in view.routes_of(family, PROTOCOL))
    place = bare(view, link)
    if told.mode == "openvswitch":
        return not place.bridge and view.ovs_held(told.device) is not None
    return told.mode == "bridged" and place.bridge == told.link


def _stopped(defined: Nic) -> Local:
    return Local(Report(defined.uuid, "stopped"), {**_fields(defined), TRANSIENT: False})


def _local(node: Node, view: View, record: Record, defined: Nic | None, applied: Applied, broken: bool = False) -> Local:
    """Give a NIC as it is. ``broken``: its definition says nothing that can be read. Raises Unclear, NetcommonError."""
    if record.state in (APPLYING, REVERTING):
        raise Unclear(f"a hook is at work on {record.nic.label}, or has died at it ({record.state})")
    standing = record.before or record
    nic = standing.nic
    report = Report(
        nic=record.uuid,
        state="incoming" if record.incoming or awaited(node, standing) else "running",
        tap=record.device,
        mac=nic.mac,
        ip=_host(nic.ip),
        addresses=_addresses(node, nic),
        prefixes=_prefixes(node, nic),
        mode=_mode(nic),
        link=nic.link,
        vlan=str(nic.vlan),
        options=_options(node, standing),
        applied=applied(record),
        drift=_drift(node, view, standing),
        since=record.created,
        pending=_pending(node, nic),
    )
    told = nic.told
    ganeti = standing.ganeti and defined is None and not broken and os.path.isdir(node.paths.ganeti_run)
    network = nic.network.uuid or ("" if told is None else told.uuid)
    # that there is no definition is told when the NIC is added alone: later it may only be away
    fields = {} if broken else _fields(defined or nic) | ({TRANSIENT: False} if defined is not None else {})
    return Local(report, fields, ganeti, network, "" if told is None else told.revision, broken, _endpoints(node, nic))


def _options(node: Node, standing: Record) -> tuple[Option, ...]:
    """Give the options that are in force of a NIC, whichever place has given them: in the words of a change, or as a tag would say them."""
    changed = {each.option: Option(each.option, _cut(each.value), each.until) for each in standing.nic.wanted}
    try:
        given = strongest(standing.nic, settings_then(standing, node.settings))
    except NetcommonError:  # by today's settings its tags mean nothing any more
        given = {}
    had = (option.name for option in OPTIONS if option.name in given and not option.void(standing.nic))
    others = [Option(name, _cut(tag_text(given[name].value))) for name in had if name not in changed]
    return (*changed.values(), *others)[:MOST]


def _cut(text: str) -> str:
    """Cut a value that is longer than what a report may hold."""
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _drift(node: Node, view: View, record: Record) -> tuple[str, ...]:
    """List the kinds of operations that do not hold; nothing where that cannot be told."""
    if not alive(node, view, record):
        return ()
    try:
        return tuple(sorted({operation.KIND for operation, _text in execute.drift(view, execute.decode(record)[0])}))[:MOST]
    except NetcommonError:
        return ()


def _pending(node: Node, nic: Nic) -> tuple[str, ...]:
    """Name what the registry has told that a NIC which is up has only after its next start; nothing where that cannot be told."""
    try:
        kept = changed_options.read(node, nic.uuid, [], look=True)
    except NetcommonError:
        return ()
    told, named = nic.told, nic.network.uuid
    waits = {
        "tags": (kept.tags is not None and {*kept.tags} != {*nic.tags})
        or bool(named and told is not None and told.tags is not None and {*told.tags} != {*nic.network.tags}),
        "index": kept.position not in (None, nic.index),
        "network": not named and told is not None and kept.network != told.uuid,
    }
    return tuple(name for name, waiting in waits.items() if waiting)


def _addresses(node: Node, nic: Nic) -> tuple[str, ...]:
    try:
        more = options_of(nic, node.settings).addresses
    except NetcommonError:
        more = ()
    return tuple(dict.fromkeys(each for each in (_host(nic.ip), *more) if each))[:MOST]


def _endpoints(node: Node, nic: Nic) -> tuple[str, ...]:
    """Give the kinds of endpoints that the guest has by the options of one of its NICs."""
    try:
        return options_of(nic, node.settings).endpoints
    except NetcommonError:
        return ()


def _prefixes(node: Node, nic: Nic) -> tuple[str, ...]:
    """Give the prefixes that a guest has as a whole: routed to it, and let through by its guard."""
    try:
        known = addresses_of(nic, options_of(nic, node.settings))
    except NetcommonError:
        return ()
    return (*known.prefixes4, *known.prefixes6)[:MOST]


def _fields(nic: Nic) -> dict[str, Any]:
    """Give what a node says of a NIC whose master it is, as JSON has it."""
    found: dict[str, Any] = {
        "instance": nic.instance,
        "index": nic.index,
        "name": nic.name,
        "mac": nic.mac,
        "ip": _host(nic.ip),
        "mode": _mode(nic),
        "link": nic.link,
        "vlan": str(nic.vlan),
        "tags": list(dict.fromkeys(nic.tags))[:MOST],
    }
    if nic.network.uuid:
        found["network"] = nic.network.uuid
    return found


def _host(address: str) -> str:
    return address.partition("/")[0]


def _mode(nic: Nic) -> Any:
    return nic.mode
