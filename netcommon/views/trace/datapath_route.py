"""Follow a packet that the node's own stack has got: whether it takes it, where the kernel says it goes, and what it meets."""

from __future__ import annotations

import errno
import ipaddress

from netcommon.host.api.datapath import ANYCAST, BLACKHOLE, BROADCAST, LOCAL, MULTICAST, PROHIBIT, UNICAST, UNREACHABLE, Way
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Link, Rule
from netcommon.operations.table import LOCAL as LOCAL_TABLE
from netcommon.operations.table import MAIN
from netcommon.views.trace.datapath_device import taken
from netcommon.views.trace.datapath_neighbour import arp, solicitation, solicits, unasked
from netcommon.views.trace.headers import malformed4, malformed6
from netcommon.views.trace.inside import spread
from netcommon.views.trace.kinds import swallowed
from netcommon.views.trace.netfilter import FORWARD, INPUT, POSTROUTING, PREROUTING
from netcommon.views.trace.packet import ARP, HOP_BY_HOP, IPV4, IPV6, TO_GROUP, TO_US
from netcommon.views.trace.tracking import copied, routed_on, tracked, transformed
from netcommon.views.trace.trail import FOREIGN, KERNEL, OURS
from netcommon.views.trace.walk import Walk

DEFAULT = 253
KERNELS = {(0, LOCAL_TABLE), (32766, MAIN), (32767, DEFAULT)}  #: preference and table of the kernel's own rules
TABLES = {LOCAL_TABLE: "local", MAIN: "main", DEFAULT: "default"}
DELIVERED = {
    LOCAL: "it is the node's own address: it is delivered",
    BROADCAST: "it is a broadcast address: it is delivered",
    ANYCAST: "it is an anycast address of the node's: it is delivered",
    MULTICAST: "it is a group that the node is a member of: it is delivered",
}
REFUSING = {
    BLACKHOLE: "a blackhole route: silently dropped",
    UNREACHABLE: "an unreachable route: refused by ICMP",
    PROHIBIT: "a prohibit route: refused by ICMP",
}
SMALLEST6, DONT_FRAGMENT, MORE_OR_OFFSET = 1280, 0x4000, 0x3FFF
NEIGHBOUR_MESSAGES = range(133, 138)  #: of ICMPv6 (RFC 4861)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def stack(walk: Walk, link: Link) -> None:
    """Hand it to the node's own stack from ``link``, which is no port, or the bridge itself."""
    packet, trail = walk.packet, walk.trail
    if not taken(walk, link):
        return
    if packet.protocol == ARP:
        arp(walk, link)
    elif packet.protocol == IPV4:
        _ip4(walk, link)
    elif packet.protocol == IPV6:
        _ip6(walk, link)
    else:
        does = "programs on the node that listen for its type get it; it is routed nowhere"
        trail.taken("node", "the node's stack", does, link.name)


# -- IPv4


def _ip4(walk: Walk, link: Link) -> None:
    """Follow IPv4 (ip_rcv_core(), ip_rcv_finish_core())."""
    packet, trail = walk.packet, walk.trail
    why = malformed4(packet.network)
    if why:
        trail.drops("node", "the node's stack", why)
        return
    if packet.network[0] & 15 > 5:
        trail.doubt("node", "options of IPv4", "what they ask of a router is not followed", KERNEL)
    walk.hooks.gathered("node", packet)
    if not walk.hooks.stack(PREROUTING, link, packet):
        return
    tracked(walk)
    copied(walk, link, AF_INET)
    way = walk.way(AF_INET, packet.target, packet.source, link, packet.network[1], whole=True)
    if way.errno:
        trail.drops("node", "the kernel's lookup", _refused(walk, link, way.errno))
        return
    if way.type not in (MULTICAST, BROADCAST) and walk.aim == TO_GROUP and walk.value(link, AF_INET, "drop_unicast_in_l2_multicast"):
        trail.drops("node", f"net/ipv4/conf/{link.name}/drop_unicast_in_l2_multicast", "it came to all, and its address is one node's")
        return
    if way.type == BROADCAST and walk.value(link, AF_INET, "bc_forwarding"):
        trail.doubt("node", f"net/ipv4/conf/{link.name}/bc_forwarding", "whether this broadcast is handed on is not told here", KERNEL)
    if way.type in DELIVERED:
        if int.from_bytes(packet.network[6:8], "big") & MORE_OR_OFFSET:
            trail.doubt("node", "fragments", "it waits for the others, and is delivered with them", KERNEL)
        _delivered(walk, link, way)
    else:
        _forwarded(walk, link, way, AF_INET)


def _refused(walk: Walk, link: Link, number: int) -> str:
    """Tell why the kernel takes the packet nowhere, as far as its errno says."""
    source, target = walk.packet.source, walk.packet.target
    if number == errno.EXDEV:
        return f"rp_filter of {link.name}: no way leads back to {source} by it"
    if number == errno.EACCES:
        return REFUSING[PROHIBIT]
    if number == errno.ENETUNREACH:
        return f"no rule leads to a table with a route to {target}: refused by ICMP"
    if number == errno.EHOSTUNREACH:
        off = walk.packet.protocol == IPV4 and not walk.value(link, AF_INET, "forwarding", all_too=False)
        return f"forwarding of {link.name} is 0: it is not for the node, and not routed on" if off else REFUSING[UNREACHABLE]
    if number == errno.EINVAL:
        why = _martian(ipaddress.ip_address(source), ipaddress.ip_address(target))
        filtered = walk.value(link, AF_INET, "rp_filter") if walk.packet.protocol == IPV4 and not why else 0
        more = f", or rp_filter of {link.name} is {filtered}, and no way that counts leads back to {source}" if filtered else ""
        return why or f"{REFUSING[BLACKHOLE]}, or its source {source} is the node's own, or no host's{more}"
    return f"no packet is taken between {source} and {target} ({errno.errorcode.get(number, number)})"


def _martian(source: IpAddress, target: IpAddress) -> str:
    """Tell why no router takes a packet between these (RFC 1812, 5.3.7); "" where it may be something else."""
    for name, each in (("source", source), ("destination", target)):
        if each.is_multicast or str(each) == "255.255.255.255":
            return f"its {name} {each} is a group's, and nobody here is in it"
        if each.is_loopback:
            return f"its {name} {each} is a loopback address, which never comes by a device"
        if each.is_unspecified or (each.version == 4 and int(each) >> 24 == 0):
            return f"its {name} {each} is no address"
    return ""


# -- IPv6


def _ip6(walk: Walk, link: Link) -> None:
    """Follow IPv6 (ip6_rcv_core(), ip6_mc_input())."""
    packet, trail = walk.packet, walk.trail
    why = _malformed6(walk, link)
    if why:
        trail.drops("node", "the node's stack", why)
        return
    if packet.network[6] == HOP_BY_HOP:
        trail.doubt("node", "options of IPv6", "what they ask of each hop is not followed", KERNEL)
    walk.hooks.gathered("node", packet)
    if not walk.hooks.stack(PREROUTING, link, packet):
        return
    tracked(walk)
    copied(walk, link, AF_INET6)
    target = ipaddress.IPv6Address(packet.target)
    tos = int.from_bytes(packet.network[:2], "big") >> 4 & 0xFF
    way = walk.way(AF_INET6, packet.target, packet.source, link, tos, whole=True)
    if target.is_multicast and way.errno == errno.EMSGSIZE:  # a kernel without routing of multicast has found the route, and cannot show it
        way = Way(type=MULTICAST)
    if way.errno or way.type in REFUSING:
        trail.drops("node", "the kernel's lookup", _refused(walk, link, way.errno) if way.errno else REFUSING[way.type])
    elif target.is_multicast:
        if str(target) not in walk.view.groups(link.index):
            does = f"{target} is a group that {link.name} is no member of; a router of multicast is not looked for"
            if solicits(walk):
                unasked(walk, link)
            else:
                trail.drops("node", "the node's stack", does)
        else:
            _delivered(walk, link, way._replace(type=MULTICAST))
    elif way.type in DELIVERED:
        _delivered(walk, link, way)
    else:
        _forwarded(walk, link, way, AF_INET6)


def _malformed6(walk: Walk, link: Link) -> str:
    packet = walk.packet
    if link.mtu < SMALLEST6:
        return f"the MTU of {link.name} is {link.mtu}: below {SMALLEST6} there is no IPv6 on a device"
    why = malformed6(packet.network)
    if why:
        return why
    if walk.value(link, AF_INET6, "disable_ipv6", all_too=False):
        return f"IPv6 is off on {link.name} (disable_ipv6)"
    source, target = ipaddress.IPv6Address(packet.source), ipaddress.IPv6Address(packet.target)
    for name, each in (("source", source), ("destination", target)):
        if each.is_loopback:
            return f"its {name} {each} is a loopback address, which never comes by a device"
    if source.is_multicast:
        return f"its source {source} is a group's, and no node's"
    if target.is_multicast and target.packed[1] & 15 < 2:
        return f"its destination {target} is a group within one node, which never comes by a device"
    if not target.is_multicast and walk.aim == TO_GROUP and walk.value(link, AF_INET6, "drop_unicast_in_l2_multicast", all_too=False):
        return "it came to all, and its address is one node's (drop_unicast_in_l2_multicast)"
    return ""


# -- where to


def _delivered(walk: Walk, link: Link, way: Way) -> None:
    """Deliver it to the node (ip_local_deliver(), ip6_input())."""
    if not walk.hooks.stack(INPUT, link, walk.packet):
        return
    transformed(walk, "in")
    if routed_on(walk.packet):
        does = "it names further stations: whether the node sends the packet on to the next is not told here"
        walk.trail.doubt("node", "routing header of IPv6", does, KERNEL)
    if walk.packet.protocol == IPV6 and solicits(walk):
        solicitation(walk, link)
        return
    table = TABLES.get(way.table, str(way.table)) if way.table else "local"
    whose = OURS if way.protocol == PROTOCOL else KERNEL
    walk.trail.taken("node", f"table {table}", f"{walk.packet.target}: {DELIVERED[way.type]}", link.name, whose)


def _forwarded(walk: Walk, link: Link, way: Way, family: int) -> None:
    """Forward it (ip_forward(), ip6_forward()): where the kernel's lookup leads out of the node."""
    trail, view, packet = walk.trail, walk.view, walk.packet
    if way.type != UNICAST:
        trail.drops("node", "the kernel's lookup", f"a route of type {way.type} leads nowhere")
        return
    if way.wrapped:
        _looked_up(walk, link, way, family)
        does = "it puts the packet into another one, or hands it to a program (encap): where that goes is not followed"
        trail.lost("node", f"route {way.destination}".rstrip(), does, KERNEL)
        return
    if walk.aim != TO_US:
        trail.drops("node", "the node's stack", "what came to all, or to a group, is not routed on")
        return
    if family == AF_INET6 and not _forwards6(walk, link):
        return
    _looked_up(walk, link, way, family)
    out = view.link_at(way.index)
    if out is None:
        trail.lost("node", "the kernel's lookup", "the device of its route is gone", FOREIGN)
        return
    if packet.network[8 if family == AF_INET else 7] <= 1:
        trail.drops("node", "the node's stack", "its time to live is over")
        return
    if family == AF_INET6 and _proxied(walk, link):
        return
    why = _origin6(walk, link, out) if family == AF_INET6 else ""
    why = why or _too_long(walk, out, way, family)
    if why:
        trail.drops("node", "the node's stack", why)
        return
    policy = walk.view.sysctl("net/ipv4/fib_multipath_hash_policy") or "0"
    why = spread(packet, int(policy) if policy.isdigit() else 0, family) if len(way.paths) > 1 else ""
    if why:
        trail.doubt("node", f"route {way.destination}" if way.destination else f"nexthop {way.nexthop}", why, KERNEL)
    transformed(walk, "fwd", "out")
    if walk.hooks.stack(FORWARD, link, packet, out) and walk.hooks.stack(POSTROUTING, link, packet, out):
        _asked_in_vain(walk, out, way, family)
        walk.leave(out, f" to {way.gateway}" if way.gateway else "")


def _asked_in_vain(walk: Walk, out: Link, way: Way, family: int) -> None:
    """Doubt a next hop that does not say its MAC address: the kernel keeps what is for it, and drops that if no answer comes.

    One that nobody has asked for is taken for one that answers.
    """
    if out.address and not walk.device(out).arp and not swallowed(out):
        does = "nobody is asked for a MAC there (arp off): it goes to the device's own where no entry tells another"
        walk.trail.doubt(out.name, f"device {out.name}", does, KERNEL)
    network = walk.packet.network
    hop = way.gateway or str(ipaddress.ip_address(network[24:40] if family == AF_INET6 else network[16:20]))
    if walk.view.unanswered(AF_INET6 if ":" in hop else AF_INET, out.index, hop):
        does = f"{hop} was asked for, and does not answer: the packet waits for its answer, and is dropped without one"
        walk.trail.doubt(out.name, f"neighbour {hop} on {out.name}", does, KERNEL)


def _forwards6(walk: Walk, link: Link) -> bool:
    """Tell whether the node is a router for IPv6; since Linux 6.17 a device may be one alone (force_forwarding)."""
    path = "net/ipv6/conf/all/forwarding"
    value = walk.view.sysctl(path)
    if value is None:
        walk.trail.doubt("node", path, "it cannot be read, and decides whether the node forwards", KERNEL)
    elif value == "0" and not walk.value(link, AF_INET6, "force_forwarding", all_too=False):
        walk.trail.drops("node", path, "it is 0: the node forwards nothing that comes by this device")
        return False
    return True


def _proxied(walk: Walk, link: Link) -> bool:
    """Tell whether an entry of a proxy takes the packet from the way (ip6_forward_proxy_check()); it says what becomes of it."""
    packet = walk.packet
    there = any(each.address == packet.target for each in walk.view.neighbours(AF_INET6, link.index))
    if not there or walk.view.sysctl("net/ipv6/conf/all/proxy_ndp") != "1":
        return False
    if packet.upper == 58 and packet.transport and packet.transport[0] in NEIGHBOUR_MESSAGES:
        _delivered(walk, link, Way(type=LOCAL))
        return True
    return False


def _origin6(walk: Walk, link: Link, out: Link) -> str:
    """Tell why a packet from this source does not go on (ip6_forward()); "" where it does."""
    source = ipaddress.IPv6Address(walk.packet.source)
    if link.index != out.index and (source.is_unspecified or source.is_link_local):
        return f"its source {source} is of the link alone: it is not routed on"
    return ""


def _too_long(walk: Walk, out: Link, way: Way, family: int) -> str:
    """Tell why it does not fit the way out; "" where it does, or may be cut (ip_exceeds_mtu(), ip6_pkt_too_big())."""
    network = walk.packet.network
    if family == AF_INET:
        length, mtu = int.from_bytes(network[2:4], "big"), way.mtu or out.mtu
        if length > mtu and int.from_bytes(network[6:8], "big") & DONT_FRAGMENT:
            return f"its {length} bytes are more than the MTU of {mtu} on its way, and it may not be cut (DF)"
        return ""
    own = walk.value(out, AF_INET6, "mtu", all_too=False) or out.mtu
    length, mtu = 40 + int.from_bytes(network[4:6], "big"), max(min(own, way.mtu or own), SMALLEST6)
    return f"its {length} bytes are more than the MTU of {mtu} on its way" if length > mtu else ""


def _looked_up(walk: Walk, link: Link, way: Way, family: int) -> None:
    """Name the rule and the route that the kernel has chosen."""
    trail = walk.trail
    table = TABLES.get(way.table, str(way.table))
    rule = _rule(walk, link, way, family) if not way.nexthop else None
    if rule is not None:
        whose = OURS if rule.protocol == PROTOCOL else KERNEL if (rule.preference, rule.table) in KERNELS and not rule.iif else FOREIGN
        trail.passes("node", _words(rule), f"looks up table {table}", whose)
    out = walk.view.link_at(way.index)
    meets = f"route {way.destination} in table {table}" if way.destination else f"table {table}"
    if way.nexthop:
        meets = f"a route by nexthop {way.nexthop} (which of those that share it the kernel does not tell)"
    by = out.name if out is not None else str(way.index)
    one = ", one of several ways" if len(way.paths) > 1 else ""
    does = f"leads {f'to {way.gateway} ' if way.gateway else ''}by {by}{one}"
    trail.passes("node", meets, does, OURS if way.protocol == PROTOCOL else FOREIGN)


def _rule(walk: Walk, link: Link, way: Way, family: int) -> Rule | None:
    """Find the first rule that can have led to the table of the kernel's answer; None where none is understood."""
    for rule in sorted(walk.view.rules(family), key=lambda each: each.preference):
        fits = rule.table == way.table and rule.iif in ("", link.name)
        marked = not rule.mask or (walk.hooks.mark & rule.mask) == rule.mark
        if fits and marked and (rule.plain or ((rule.preference, rule.table) in KERNELS and not rule.iif)):
            return rule
    return None


def _words(rule: Rule) -> str:
    iif = f" iif {rule.iif}" if rule.iif else ""
    mark = f" fwmark {rule.mark:#x}/{rule.mask:#x}" if rule.mask else ""
    return f"ip rule {rule.preference}:{iif}{mark} lookup {TABLES.get(rule.table, rule.table)}"
