"""A frame at a port of a Linux bridge (net/bridge/br_input.c, br_forward.c, br_vlan.c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netcommon.host.api.facts import LOCAL, FdbEntry, Link
from netcommon.views import format as words
from netcommon.views.trace.datapath_route import stack
from netcommon.views.trace.netfilter import FORWARD, INPUT, POSTROUTING, PREROUTING
from netcommon.views.trace.packet import BROADCAST
from netcommon.views.trace.trail import KERNEL, OURS
from netcommon.views.trace.walk import Walk

#: The groups that IEEE 802.1D keeps to one link: these, and the last octet from 00 to 0f.
LINK_GROUPS = "01:80:c2:00:00:0"
SPANNING_TREE, PAUSE = LINK_GROUPS + "0", LINK_GROUPS + "1"
NOBODY = "00:00:00:00:00:00"

#: So many devices are named one by one.
NAMED = 6


class Crossing(NamedTuple):
    """A frame within a bridge."""

    port: Link  #: by which it came
    bridge: Link
    vid: int  #: 0: the bridge knows no VLANs
    tagged: bool  #: it came with a tag


def bridge(walk: Walk, port: Link, master: Link) -> None:
    """The port has received it."""
    trail, packet, name = walk.trail, walk.packet, f"bridge {master.name}"
    if not master.up:
        trail.drops(port.name, name, "the bridge is switched off")
        return
    if packet.source_mac == NOBODY or packet.link[6] & 1:
        trail.drops(port.name, name, "its source is no address of a device: a bridge takes it from nobody")
        return
    if packet.target_mac.startswith(LINK_GROUPS) and not _kept(walk, port, name):
        return
    crossing = _classified(walk, port, master)
    if crossing is None or not walk.hooks.bridge(PREROUTING, port, packet):
        return
    walk.hooks.bridged((PREROUTING,), master, packet, bool(packet.tag))
    flags = walk.view.port(port.index)
    if flags is None or flags.learning:
        trail.passes(port.name, name, f"learns that {packet.source_mac} is behind {port.name}")
    _forward(walk, crossing)


def _kept(walk: Walk, port: Link, name: str) -> bool:
    """Groups of one link; whether the bridge may forward it all the same."""
    target = walk.packet.target_mac
    if target == PAUSE:
        walk.trail.drops(port.name, name, "a pause frame ends at the port")
        return False
    if target == SPANNING_TREE:
        walk.trail.doubt(port.name, name, "it forwards this group unless it speaks spanning tree itself: ip -d link show dev it", KERNEL)
        return True
    said = "this group is for one link alone, unless the bridge's group_fwd_mask has it"
    walk.trail.arrives(port.name, name, said, f"programs on the node that listen at {port.name} get it, and nobody else")
    return False


def _classified(walk: Walk, port: Link, master: Link) -> Crossing | None:
    """In which VLAN it is; None where it may be in none (br_allowed_ingress())."""
    trail, packet, name = walk.trail, walk.packet, f"bridge {master.name}"
    if not master.vlan_filtering:
        return Crossing(port, master, 0, bool(packet.tag))
    there = {vlan.vid: vlan for vlan in walk.view.vlans(port.index)}
    meets = f"bridge vlan of {port.name}"
    vid = packet.vid
    if packet.tag and packet.tag[:2] != b"\x81\x00":
        trail.lost(port.name, name, "whether its tag counts depends on the bridge's vlan_protocol", KERNEL)
        return None
    if vid and vid not in there:
        trail.drops(port.name, meets, f"the port is not in VLAN {vid}: it has {words.ranges(there) or 'none'}")
        return None
    if not vid:
        untagged = [each for each in there.values() if each.pvid]
        if not untagged:
            trail.drops(port.name, meets, "the port takes no untagged frames: it has no pvid")
            return None
        vid = untagged[0].vid
    trail.passes(port.name, meets, f"it is in VLAN {vid}" + ("" if packet.vid else ", the port's pvid"))
    return Crossing(port, master, vid, bool(packet.vid))


def _forward(walk: Walk, crossing: Crossing) -> None:
    packet, view, trail = walk.packet, walk.view, walk.trail
    name = f"forwarding table of {crossing.bridge.name}"
    if packet.to_group:
        kind = "broadcast" if packet.target_mac == BROADCAST else "multicast"
        more = "" if kind == "broadcast" else "; with snooping only to ports that have asked for the group, which is not looked at"
        trail.passes(crossing.port.name, name, f"{kind}: to the node, and to every port{more}")
        _flood(walk, crossing)
        _local(walk, crossing)
        return
    entry = view.fdb_entry(crossing.bridge.index, packet.target_mac, crossing.vid)
    if packet.target_mac == crossing.bridge.address or (entry is not None and entry.kind == LOCAL):
        trail.passes(crossing.port.name, name, f"{packet.target_mac} is the node itself")
        _local(walk, crossing)
        return
    where = None if entry is None else view.link_at(entry.index)
    if entry is None or where is None:
        trail.passes(crossing.port.name, name, f"it does not know {packet.target_mac}: to every port that floods")
        _flood(walk, crossing)
        return
    trail.passes(crossing.port.name, name, f"{packet.target_mac} is behind {where.name} ({_told(entry)})")
    why = _not_to(walk, crossing, where, known=True)
    if why:
        trail.drops(where.name, f"port {where.name} of bridge {crossing.bridge.name}", why)
    else:
        _out(walk, crossing, where)


def _told(entry: FdbEntry) -> str:
    return f"{entry.kind}{', sticky' if entry.sticky else ''}"


def _not_to(walk: Walk, crossing: Crossing, out: Link, known: bool) -> str:
    """Why the bridge does not hand it to a port; "" where it does (should_deliver())."""
    if out.index == crossing.port.index:
        return "it came by that port"
    if not out.up:
        return "that port is switched off"
    there, here = walk.view.port(out.index), walk.view.port(crossing.port.index)
    if there is not None and here is not None and there.isolated and here.isolated:
        return "both ports are isolated"
    if crossing.vid and crossing.vid not in {vlan.vid for vlan in walk.view.vlans(out.index)}:
        return f"that port is not in VLAN {crossing.vid}"
    if known or there is None:
        return ""
    if walk.packet.to_group:
        return "" if there.mcast_flood or walk.packet.target_mac == BROADCAST else "that port takes no multicast that nobody asked for"
    return "" if there.flood else "that port takes nothing for unknown addresses"


def _flood(walk: Walk, crossing: Crossing) -> None:
    """To every port, told together where they fare alike."""
    ports = walk.view.ports(crossing.bridge.index)
    kept: dict[str, list[str]] = {}
    sent: list[Link] = []
    for out in ports:
        why = _not_to(walk, crossing, out, known=False)
        if not why and not walk.hooks.delivered(crossing.port, out, walk.packet):
            why = "our delivery rule: it is not for that guest's MAC"
        if why:
            kept.setdefault(why, []).append(out.name)
        else:
            sent.append(out)
    for why, names in kept.items():
        if why != "it came by that port":
            whose = OURS if why.startswith("our ") else KERNEL
            walk.trail.passes(crossing.bridge.name, f"port{'s' if len(names) > 1 else ''} {some(names)}", f"not there: {why}", whose)
    if not sent:
        walk.trail.drops(crossing.bridge.name, f"bridge {crossing.bridge.name}", "there is no port that takes it")
    for out in sent[:NAMED]:
        _out(walk, crossing, out)
    if len(sent) > NAMED:
        rest = some([walk.names.get(each.name, each.name) for each in sent[NAMED:]])
        end = f"{len(sent) - NAMED} more ports receive it: {rest}"
        walk.trail.arrives(crossing.bridge.name, f"bridge {crossing.bridge.name}", end, end)


def some(names: Sequence[str]) -> str:
    """A few names."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _out(walk: Walk, crossing: Crossing, out: Link) -> None:
    """The hooks of a frame that is forwarded, then the port's device; an earlier port's end does not count for this one."""
    for hook in (FORWARD, POSTROUTING):
        if not walk.hooks.bridge(hook, crossing.port, walk.packet, out):
            return
    tagged = crossing.tagged
    how = ", tagged" if tagged and not crossing.vid else ""
    if crossing.vid:
        tagged = not any(vlan.untagged for vlan in walk.view.vlans(out.index) if vlan.vid == crossing.vid)
        how = f", {f'tagged VLAN {crossing.vid}' if tagged else 'untagged'}"
    walk.hooks.bridged((FORWARD, POSTROUTING), crossing.bridge, walk.packet, tagged)
    walk.leave(out, how)


def _local(walk: Walk, crossing: Crossing) -> None:
    """The bridge's own device receives it (br_pass_frame_up())."""
    master = crossing.bridge
    if crossing.vid and crossing.vid not in {vlan.vid for vlan in walk.view.vlans(master.index)}:
        why = f"not to the node: the bridge's own device is not in VLAN {crossing.vid}"
        walk.trail.passes(master.name, f"bridge vlan of {master.name}", why)
        if not walk.packet.to_group:
            walk.trail.ends.append(f"dropped at {master.name}: the node itself is not in VLAN {crossing.vid}")
        return
    if not walk.hooks.bridge(INPUT, crossing.port, walk.packet):
        return
    stack(walk, master)
