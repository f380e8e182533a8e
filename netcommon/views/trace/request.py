"""Tracing a frame of a NIC, or one for it: which frame where nobody says more, from which device on, and the document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from netcommon.host.api.facts import Link
from netcommon.host.api.host import View
from netcommon.lifecycle.check import Report
from netcommon.views.topology.document import plain
from netcommon.views.topology.model import NicView
from netcommon.views.topology.nics import nic_view
from netcommon.views.topology.segments import segments
from netcommon.views.trace.datapath import enter
from netcommon.views.trace.datapath_ovs import by_open_vswitch
from netcommon.views.trace.frame import FROM_GUEST, Wanted, build, told
from netcommon.views.trace.packet import IPV4, IPV6, Packet
from netcommon.views.trace.trail import Path
from netcommon.views.trace.walk import Walk
from runtime.errors import HostRefused
from runtime.record import Record

SCHEMA, VERSION = "netcommon-trace", 1

#: Who is outside the node: addresses for documentation (RFC 5737, RFC 3849), and a MAC that nobody is given (locally administered).
OUTSIDE4, OUTSIDE6, OUTSIDE_MAC = "198.51.100.1", "2001:db8:ffff::1", "02:00:00:00:00:01"

#: Uplinks of bridges for which the settings name them.
Named_uplinks = Mapping[str, tuple[str, ...]]


class Subject(NamedTuple):
    """The NIC whose frame it is, and the other NICs of the node."""

    record: Record
    seen: NicView
    names: Mapping[str, str]  #: devices of NICs on record, and whose they are
    macs: Mapping[str, str]  #: addresses of NICs on record, and their MACs


def subject(record: Record, records: Iterable[Record]) -> Subject:
    """From the records alone."""
    views = {each.key: nic_view(Report(each, True, (), ())) for each in records}
    names = {each.device: each.label for each in views.values()}
    macs = {address: each.mac for each in views.values() for address in each.addresses if each.mac}
    return Subject(record, nic_view(Report(record, True, (), ())), names, macs)


def frame(view: View, of: Subject, way: str, wanted: Wanted, uplinks: Named_uplinks) -> bytes:
    """What ``wanted`` says, and where it says nothing what is the NIC's own. Raises NicInvalid, HostRefused."""
    return build(_from(view, of, wanted) if way == FROM_GUEST else _to(view, of, wanted, uplinks))


def _from(view: View, of: Subject, wanted: Wanted) -> Wanted:
    seen = of.seen
    link, routed = view.link(seen.device), seen.mode == "routed"
    like = wanted.source or _family(wanted)
    if wanted.arp:
        target, mac = wanted.target or _outside(like or _own(seen, "")), ""
    else:
        target = wanted.target or (_outside(like or _own(seen, "")) if routed else "")
        mac = (link.address if link is not None else "") if routed else of.macs.get(target, "")
    return wanted._replace(
        source=wanted.source or _own(seen, target or like),
        target=target,
        source_mac=wanted.source_mac or seen.mac or OUTSIDE_MAC,
        target_mac=wanted.target_mac or mac,
    )


def _to(view: View, of: Subject, wanted: Wanted, uplinks: Named_uplinks) -> Wanted:
    seen, link = of.seen, _uplink(view, of, uplinks)
    like = wanted.source or _family(wanted)
    target = wanted.target or _own(seen, like)
    vlan = wanted.vlan
    if vlan < 0 and seen.mode == "bridged":
        vlan = _tag(view, link, seen.access)
    mac = "" if wanted.arp else link.address if seen.mode == "routed" else seen.mac
    return wanted._replace(
        source=wanted.source or _outside(target or like),
        target=target,
        source_mac=wanted.source_mac or OUTSIDE_MAC,
        target_mac=wanted.target_mac or mac,
        vlan=vlan,
    )


def _family(wanted: Wanted) -> str:
    """Return the unspecified address of the family that the frame's type asks for; "" where it asks for none."""
    return {IPV4: "0.0.0.0", IPV6: "::"}.get(-1 if wanted.arp else wanted.ethertype, "")  # noqa: S104 - it only tells the family


def _tag(view: View, uplink: Link, access: int | None) -> int:
    """The VLAN with which a frame for the NIC comes by the uplink; -1 for none."""
    return access if access and any(vlan.vid == access and not vlan.untagged for vlan in view.vlans(uplink.index)) else -1


def _own(seen: NicView, like: str) -> str:
    """The NIC's first address, of the family of ``like`` where that is given; "" for none."""
    fits = [each for each in seen.addresses if "/" not in each and (not like or (":" in each) == (":" in like))]
    return fits[0] if fits else ""


def _outside(like: str) -> str:
    return OUTSIDE6 if ":" in like else OUTSIDE4


def _uplink(view: View, of: Subject, uplinks: Named_uplinks) -> Link:
    """By which device what is outside the node comes to where the NIC is. Raises HostRefused."""
    found, _problems = segments(view, [of.seen], dict(uplinks))
    ways = [port.name for segment in found if of.seen in segment.nics for port in segment.uplinks]
    for name in ways:
        link = view.link(name)
        if link is not None:
            return link
    if ways:
        text = f"{of.seen.label} is reached from outside by no device of the kernel, where a trace begins, but by {' and '.join(ways)}"
        raise HostRefused(text, by_open_vswitch(view, ways[0], f"in_port={ways[0]},dl_dst={of.seen.mac}"))
    raise HostRefused(f"{of.seen.label} is on nothing that has an uplink, so no frame comes to it from outside the node")


def trace(view: View, of: Subject, way: str, data: bytes, uplinks: Named_uplinks) -> Path:
    """The way of the frame ``data``. Raises HostRefused where the device is gone, or no uplink is there; TryAgain."""
    packet = Packet(data)
    walk = Walk(view, packet, of.names)
    start = view.link(of.seen.device) if way == FROM_GUEST else _uplink(view, of, uplinks)
    if start is None:
        raise HostRefused(f"the device {of.seen.device} of {of.seen.label} is gone", f"netcommon explain {of.seen.label} says more")
    enter(walk, start)
    trail = walk.trail
    return Path(
        of.seen.label,
        of.seen.device,
        of.seen.mode,
        way,
        told(packet),
        data.hex(),
        tuple(trail.steps),
        tuple(dict.fromkeys(trail.ends)),
        tuple(dict.fromkeys(trail.untold)),
        tuple(dict.fromkeys(trail.arrivals)),
    )


def document(path: Path) -> dict[str, Any]:
    """The path as JSON (docs/seeing.md)."""
    return {"schema": SCHEMA, "version": VERSION, **plain(path)}
