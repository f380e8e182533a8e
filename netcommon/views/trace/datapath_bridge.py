"""A frame at a port of a Linux bridge (net/bridge/br_input.c, br_forward.c, br_vlan.c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netcommon.host.api.datapath import BLOCKING, DISABLED, FORWARDING, LEARNING, LISTENING, BridgeState, PortState
from netcommon.host.api.facts import DOT1AD, LOCAL, FdbEntry, Link
from netcommon.views import format as words
from netcommon.views.trace.datapath_device import fits, ingress
from netcommon.views.trace.datapath_route import stack
from netcommon.views.trace.headers import malformed4, malformed6, unsnooped
from netcommon.views.trace.netfilter import FORWARD, INPUT, POSTROUTING, PREROUTING
from netcommon.views.trace.packet import ARP, BROADCAST, HOP_BY_HOP, IPV4, IPV6, SOLICITATION
from netcommon.views.trace.trail import FOREIGN, KERNEL, OURS
from netcommon.views.trace.walk import Walk

#: The groups that IEEE 802.1D keeps to one link: these, and the last octet from 00 to 0f.
LINK_GROUPS = "01:80:c2:00:00:0"
SPANNING_TREE, PAUSE, LLDP = LINK_GROUPS + "0", LINK_GROUPS + "1", LINK_GROUPS + "e"
PROVIDERS = 0xB801  #: those that a bridge of providers (802.1ad) hands on as any other (BR_GROUPFWD_8021AD)
NOBODY = "00:00:00:00:00:00"
STATES = {DISABLED: "disabled", LISTENING: "listening", LEARNING: "learning", BLOCKING: "blocking"}
DONT_FRAGMENT = 0x40  #: of the byte in IPv4's header that has it
ADVERTISEMENT = b"\x88"  #: ICMPv6's (RFC 4861, 4.4)

#: So many devices are named one by one.
NAMED = 6


class Crossing(NamedTuple):
    """A frame within a bridge."""

    port: Link  #: by which it came
    bridge: Link
    vid: int  #: 0: the bridge knows no VLANs
    tagged: bool  #: it came with a tag
    state: int = FORWARDING  #: of the port, or of the VLAN there


def bridge(walk: Walk, port: Link, master: Link) -> None:
    """Follow it from the port (br_handle_frame())."""
    trail, packet, name = walk.trail, walk.packet, f"bridge {master.name}"
    if packet.source_mac == NOBODY or packet.link[6] & 1:
        trail.drops(port.name, name, "its source is no address of a device: a bridge takes it from nobody")
        return
    if packet.target_mac.startswith(LINK_GROUPS) and not _kept(walk, port, master):
        return
    if not master.up:
        trail.drops(port.name, name, "the bridge is switched off")
        return
    if _bridge(walk, master).mst:
        trail.doubt(port.name, name, "with multiple spanning trees (mst_enabled) which ports forward is not told here", KERNEL)
    state = _port(walk, port).state
    if state not in (FORWARDING, LEARNING):
        trail.drops(port.name, f"port {port.name} of {name}", f"the port is {STATES.get(state, state)}")
        return
    walk.aimed(master)
    if not walk.hooks.bridge(PREROUTING, port, packet):
        return
    called = _called(walk, (PREROUTING,), master, bool(packet.tag))
    if called or walk.hooks.bridges_track():
        walk.hooks.gathered(master.name, packet)
    if called:
        why = malformed4(packet.network) if packet.protocol == IPV4 else malformed6(packet.network)
        if why:
            trail.drops(master.name, f"br_netfilter of {name}", why)
            return
        if packet.protocol == IPV6 and packet.network[6] == HOP_BY_HOP:
            trail.doubt(master.name, f"br_netfilter of {name}", "what it makes of options of IPv6 is not followed", KERNEL)
    crossing = _classified(walk, port, master, state)
    if crossing is None or not _admitted(walk, crossing):
        return
    flags = walk.view.port(port.index)
    if (flags is None or flags.learning) and _bridge(walk, master).ageing:
        trail.passes(port.name, name, f"learns that {packet.source_mac} is behind {port.name}")
    if packet.to_group and packet.target_mac != BROADCAST and not _snooped(walk, master):
        return
    if crossing.state == LEARNING:
        trail.drops(port.name, f"port {port.name} of {name}", "the port learns only" if state == LEARNING else "its VLAN learns only")
        return
    _forward(walk, crossing)


def _port(walk: Walk, port: Link) -> PortState:
    return walk.device(port).port or PortState()


def _bridge(walk: Walk, master: Link) -> BridgeState:
    return walk.device(master).bridge or BridgeState()


def _kept(walk: Walk, port: Link, master: Link) -> bool:
    """Groups of one link; whether the bridge may forward it all the same."""
    target, name = walk.packet.target_mac, f"bridge {master.name}"
    if target == PAUSE:
        walk.trail.drops(port.name, name, "a pause frame ends at the port")
        return False
    here, there = _bridge(walk, master), _port(walk, port)
    bit = 1 << int(target[-1], 16)
    of_providers = PROVIDERS if master.protocol == DOT1AD else 0
    if bit & (of_providers | there.group_fwd_mask | (here.group_fwd_mask if target != SPANNING_TREE else 0)):
        return True
    if target == SPANNING_TREE and not here.stp:
        return True
    said = "this group is for one link alone, unless a group_fwd_mask has it"
    if target == SPANNING_TREE:
        said = "the bridge speaks spanning tree itself, and hands this group on to nobody"
    if target not in (SPANNING_TREE, LLDP) and not walk.hooks.bridge(INPUT, port, walk.packet):
        return False
    walk.trail.arrives(port.name, name, said, f"programs on the node that listen at {port.name} get it, and nobody else")
    if walk.packet.protocol in (ARP, IPV4, IPV6):
        stack(walk, port)
    return False


def _called(walk: Walk, hooks: Sequence[int], master: Link, tagged: bool) -> bool:
    """Tell whether br_netfilter is in the way, which has IP's chains see frames of bridges."""
    packet = walk.packet
    own = _bridge(walk, master).nf_call
    if not walk.hooks.calls(packet, tagged, own):
        return False
    walk.hooks.bridged(hooks, master, packet, own)
    return True


def _classified(walk: Walk, port: Link, master: Link, state: int) -> Crossing | None:
    """In which VLAN it is; None where it may be in none (br_allowed_ingress()). ``state``: the port's."""
    trail, packet, name = walk.trail, walk.packet, f"bridge {master.name}"
    if not master.vlan_filtering:
        return Crossing(port, master, 0, bool(packet.tag), state)
    there = {vlan.vid: vlan for vlan in walk.view.vlans(port.index)}
    meets = f"bridge vlan of {port.name}"
    vid = packet.vid
    if packet.tag and int.from_bytes(packet.tag[:2], "big") != master.protocol:
        trail.lost(port.name, name, "its tag is not of the bridge's vlan_protocol, stays in it, and is not followed", KERNEL)
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
    if state == FORWARDING:
        state = walk.view.vlan_states(port.index).get(vid, FORWARDING)
    if state not in (FORWARDING, LEARNING):
        trail.drops(port.name, meets, f"VLAN {vid} of that port is {STATES.get(state, state)}")
        return None
    return Crossing(port, master, vid, bool(packet.vid), state)


def _admitted(walk: Walk, crossing: Crossing) -> bool:
    """Tell whether a locked port lets the source in: only if the forwarding table has it there."""
    port, trail = crossing.port, walk.trail
    if not _port(walk, port).locked:
        return True
    source = walk.packet.source_mac
    entry = walk.view.fdb_entry(crossing.bridge.index, source, crossing.vid)
    if entry is not None and entry.index == port.index and entry.kind != LOCAL and not entry.locked:
        return True
    why = f"{source} has not been let in" if entry is not None and entry.locked else f"{source} is not known to be behind it"
    trail.drops(port.name, f"port {port.name} of bridge {crossing.bridge.name}", f"it is locked, and {why}")
    return False


def _forward(walk: Walk, crossing: Crossing) -> None:
    packet, trail = walk.packet, walk.trail
    name = f"forwarding table of {crossing.bridge.name}"
    _answered(walk, crossing)
    if packet.to_group:
        kind = "broadcast" if packet.target_mac == BROADCAST else "multicast"
        trail.passes(crossing.port.name, name, f"{kind}: to the node, and to every port")
        _flood(walk, crossing)
        _local(walk, crossing)
        return
    entry = _entry(walk, crossing)
    _overheard(walk, crossing.bridge)
    if entry is not None and entry.kind == LOCAL:
        trail.passes(crossing.port.name, name, f"{packet.target_mac} is the node itself")
        _local(walk, crossing)
        return
    where = None if entry is None else walk.view.link_at(entry.index)
    if entry is None or where is None:
        trail.passes(crossing.port.name, name, f"it does not know {packet.target_mac}: to every port that floods")
        _flood(walk, crossing)
        return
    trail.passes(crossing.port.name, name, f"{packet.target_mac} is behind {where.name} ({_told(entry)})")
    if _port(walk, where).backup and not (where.up and walk.device(where).carrier):
        meets = f"port {where.name} of bridge {crossing.bridge.name}"
        trail.lost(where.name, meets, "it cannot send, and its backup port takes it, which is not followed", KERNEL)
        return
    why = _not_to(walk, crossing, where, known=True)
    if why:
        trail.drops(where.name, f"port {where.name} of bridge {crossing.bridge.name}", why)
    else:
        _out(walk, crossing, where)


def _overheard(walk: Walk, master: Link) -> None:
    """Doubt a bridge whose own device takes all: a VLAN interface on it with a MAC of its own then gets what is for that."""
    if walk.device(master).promiscuous and walk.packet.target_mac != master.address:
        mine = (each for each in walk.view.links() if each.kind == "vlan" and each.lower == master.index and not each.foreign_lower)
        for each in mine:
            if each.address == walk.packet.target_mac:
                does = f"{master.name} is promiscuous: {each.name} may get it too, which is not followed"
                walk.trail.doubt(master.name, f"VLAN interface {each.name}", does, KERNEL)


def _snooped(walk: Walk, master: Link) -> bool:
    """Tell whether a bridge that looks at multicast hands it on (br_multicast_rcv())."""
    trail, state, meets = walk.trail, _bridge(walk, master), f"multicast of {master.name}"
    if not state.snooping:
        return True
    drops, untold = unsnooped(walk.packet)
    if drops:
        trail.drops(master.name, meets, f"the bridge snoops, and {drops}")
        return False
    if untold:
        trail.doubt(master.name, meets, untold, KERNEL)
    if state.vlan_snooping:
        trail.doubt(master.name, meets, "it snoops by VLAN (mcast_vlan_snooping): which ports have asked is not looked at", KERNEL)
    elif state.querier and walk.packet.protocol in (IPV4, IPV6):
        said = "it snoops, and somebody asks for members: which ports have asked for the group, and alone get it, is not looked at"
        trail.doubt(master.name, meets, said, KERNEL)
    return True


def _entry(walk: Walk, crossing: Crossing) -> FdbEntry | None:
    """Find that of the target; the frame itself has just moved that of its source to the port."""
    packet = walk.packet
    state = _bridge(walk, crossing.bridge)
    entry = walk.view.fdb_entry(crossing.bridge.index, packet.target_mac, crossing.vid)
    if entry is None and state.local_vlan_0:
        everywhere = walk.view.fdb_entry(crossing.bridge.index, packet.target_mac, 0)
        entry = everywhere if everywhere is not None and everywhere.kind == LOCAL else None
    flags = walk.view.port(crossing.port.index)
    learns = (flags is None or flags.learning) and state.ageing
    if packet.source_mac == packet.target_mac and learns and (entry is None or (entry.kind != LOCAL and not entry.sticky)):
        return (entry or FdbEntry(packet.target_mac, 0, kind="learned"))._replace(index=crossing.port.index)
    return entry


def _answered(walk: Walk, crossing: Crossing) -> None:
    """Doubt a bridge that answers for its neighbours, and then keeps the question from some ports (br_do_proxy_suppress_arp()).

    That depends on the node's neighbour table, which is not looked at.
    """
    packet = walk.packet
    kinds = (SOLICITATION[1], ADVERTISEMENT)
    neighbour = packet.protocol == IPV6 and packet.upper == SOLICITATION[0] and (packet.transport or b"")[:1] in kinds
    if packet.protocol != ARP and not neighbour:
        return
    states = [_port(walk, port) for port in walk.view.ports(crossing.bridge.index)]
    answers = any(state.neigh_suppress for state in states)
    if packet.protocol == ARP:
        answers = answers or any(state.proxy_arp_wifi for state in states) or _port(walk, crossing.port).proxy_arp
    if answers:
        does = "it may answer itself (neigh_suppress, proxy_arp), and then hands it to fewer ports: its neighbour table is not looked at"
        walk.trail.doubt(crossing.bridge.name, f"bridge {crossing.bridge.name}", does, KERNEL)


def _told(entry: FdbEntry) -> str:
    return f"{entry.kind}{', sticky' if entry.sticky else ''}"


def _not_to(walk: Walk, crossing: Crossing, out: Link, known: bool) -> str:
    """Why the bridge does not hand it to a port; "" where it does (should_deliver())."""
    state = _port(walk, out)
    if out.index == crossing.port.index and not state.hairpin:
        return "it came by that port"
    if not out.up:
        return "that port is switched off"
    if state.state != FORWARDING:
        return f"that port is {STATES.get(state.state, state.state)}"
    there, here = walk.view.port(out.index), walk.view.port(crossing.port.index)
    if there is not None and here is not None and there.isolated and here.isolated:
        return "both ports are isolated"
    if crossing.vid and crossing.vid not in {vlan.vid for vlan in walk.view.vlans(out.index)}:
        return f"that port is not in VLAN {crossing.vid}"
    blocked = walk.view.vlan_states(out.index).get(crossing.vid) if crossing.vid else None
    if blocked is not None:
        return f"VLAN {crossing.vid} of that port is {STATES.get(blocked, blocked)}"
    if known or there is None:
        return ""
    if state.proxy_arp:
        return "that port has proxy_arp, and nothing is flooded to it"
    if walk.packet.target_mac == BROADCAST:
        return "" if state.bcast_flood else "that port takes no broadcasts"
    if walk.packet.to_group:
        return "" if there.mcast_flood else "that port takes no multicast that nobody asked for"
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
        walk.trail.arrivals += [walk.arrival(each) for each in sent[NAMED:]]


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
    why = _too_long(walk, out, _called(walk, (FORWARD, POSTROUTING), crossing.bridge, tagged))
    if why:
        walk.trail.drops(out.name, f"device {out.name}", why)
    else:
        walk.leave(out, how)


def _too_long(walk: Walk, out: Link, called: bool) -> str:
    """Tell why it does not fit the port; "" where it does, or br_netfilter cuts it as a router would (br_nf_dev_queue_xmit())."""
    network = walk.packet.network
    if not called:
        return "" if fits(walk, out) else f"the frame is longer than its MTU of {out.mtu} bytes, and a bridge cuts nothing"
    length, cut = int.from_bytes(network[2:4], "big"), not network[6] & DONT_FRAGMENT
    if walk.packet.protocol == IPV6:
        length, cut = 40 + int.from_bytes(network[4:6], "big"), False
    return "" if length <= out.mtu or cut else f"its {length} bytes are more than its MTU of {out.mtu}, and br_netfilter may not cut it"


def _local(walk: Walk, crossing: Crossing) -> None:
    """The bridge's own device receives it (br_pass_frame_up())."""
    master, vid, meets = crossing.bridge, crossing.vid, f"bridge vlan of {crossing.bridge.name}"
    if vid:
        vlan = next((each for each in walk.view.vlans(master.index) if each.vid == vid), None)
        blocked = walk.view.vlan_states(master.index).get(vid)
        why = f"the bridge's own device is not in VLAN {vid}" if vlan is None else ""
        why = why or ("" if blocked is None else f"VLAN {vid} of the bridge's own device is {STATES.get(blocked, blocked)}")
        if why and not walk.device(master).promiscuous:
            walk.trail.passes(master.name, meets, f"not to the node: {why}")
            if not walk.packet.to_group:
                walk.trail.ends.append(f"dropped at {master.name}: {why}")
            return
        untagged = vlan is not None and vlan.untagged
        walk.tag = (0, 0) if untagged else (master.protocol, vid)
        walk.trail.passes(master.name, meets, f"the bridge's own device gets it {'untagged' if untagged else f'tagged VLAN {vid}'}")
    if not walk.hooks.bridge(INPUT, crossing.port, walk.packet) or not ingress(walk, master):
        return
    above = walk.view.link_at(master.master) if master.master else None
    if above is not None:
        walk.trail.lost(master.name, f"{above.kind or 'device'} {above.name}", "what it does with a frame is not known here", FOREIGN)
        return
    stack(walk, master)
