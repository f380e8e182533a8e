"""A frame at a device that is no port: the node's own stack, ARP and neighbour discovery, policy rules, tables and routes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Link, Neighbour, Route, Rule
from netcommon.operations.table import LOCAL, MAIN
from netcommon.views.trace.netfilter import FORWARD, INPUT, POSTROUTING, PREROUTING
from netcommon.views.trace.packet import ARP, IPV4, IPV6
from netcommon.views.trace.trail import FOREIGN, KERNEL, OURS
from netcommon.views.trace.walk import Walk

#: The kernel's own rules: preference, table.
DEFAULT = 253
KERNELS = {(0, LOCAL): "local", (32766, MAIN): "main", (32767, DEFAULT): "default"}
UNICAST, RTN_LOCAL, THROW = 1, 2, 9
REFUSING = {6: "blackhole: silently dropped", 7: "unreachable: refused by ICMP", 8: "prohibit: refused by ICMP"}
TABLES = {LOCAL: "local", MAIN: "main", DEFAULT: "default"}
FAMILIES = {4: AF_INET, 6: AF_INET6}
NET = {AF_INET: "ipv4", AF_INET6: "ipv6"}
ICMPV6, SOLICITATION = 58, b"\x87"


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Found(NamedTuple):
    """What a lookup gave."""

    rule: Rule | None
    route: Route | None
    doubts: tuple[Rule, ...]  #: rules before it of which it cannot be told whether they match


def receive(walk: Walk, link: Link) -> None:
    """The device has received it, and it is nobody's port."""
    packet, trail = walk.packet, walk.trail
    if packet.tag and packet.vid:
        places = {(each.lower, each.vlan): each for each in walk.view.links() if each.kind == "vlan"}
        above = places.get((link.index, packet.vid))
        if above is not None:
            trail.lost(link.name, f"VLAN interface {above.name}", "the frame goes on there, which is not followed", KERNEL)
        else:
            trail.drops(link.name, f"device {link.name}", f"nothing on the node is in VLAN {packet.vid} of it")
        return
    if not packet.to_group and packet.target_mac != link.address:
        why = f"{packet.target_mac} is not the device's MAC ({link.address}): the stack does not take it"
        trail.drops(link.name, f"device {link.name}", why)
        return
    stack(walk, link)


def stack(walk: Walk, link: Link) -> None:
    """The node's own stack gets it from ``link``."""
    packet, trail = walk.packet, walk.trail
    if packet.protocol == ARP:
        _asked(walk, link, AF_INET)
        return
    if packet.protocol not in (IPV4, IPV6):
        does = "programs on the node that listen for its type get it; it is routed nowhere"
        trail.arrives("node", "the node's stack", does, f"the node itself, at {link.name}")
        return
    if not packet.target:
        trail.drops("node", "the node's stack", "its IP header is cut off")
        return
    solicits = packet.protocol == IPV6 and packet.transport is not None and packet.upper == ICMPV6 and packet.transport[:1] == SOLICITATION
    if not walk.hooks.stack(PREROUTING, link, packet):
        return
    target = ipaddress.ip_address(packet.target)
    own = any(each.address == packet.target for each in walk.view.addresses()) if solicits else False
    if solicits and (target.is_multicast or own or _proxied(walk, link, packet.target)):
        _asked(walk, link, AF_INET6)
        return
    _routed(walk, link, target)


# -- who answers


def _asked(walk: Walk, link: Link, family: int) -> None:
    """ARP (arp_process()), or a neighbour solicitation (ndisc_recv_ns())."""
    packet, view, trail = walk.packet, walk.view, walk.trail
    if family == AF_INET:
        if not walk.hooks.stack(INPUT, link, packet):
            return
        if packet.network[6:8] != b"\0\1":
            trail.arrives("node", "ARP", "the node takes note of the answer", f"the node itself, at {link.name}")
            return
        asked = packet.target
    else:
        transport = packet.transport or b""
        asked = str(ipaddress.IPv6Address(transport[8:24])) if len(transport) >= 24 else ""
    what = "ARP" if family == AF_INET else "neighbour discovery"
    if not asked:
        trail.drops("node", what, "it is cut off")
        return
    if any(each.address == asked for each in view.addresses()):
        trail.arrives("node", f"address {asked}", "it is the node's own: the node answers", f"the node answers for {asked}, at {link.name}")
        return
    proxy = next((each for each in view.neighbours(family, link.index) if each.address == asked), None)
    if proxy is not None and (family == AF_INET or _on(walk, link, family, "proxy_ndp")):
        whose = OURS if proxy.protocol == PROTOCOL else FOREIGN
        meets = f"ip neigh proxy {asked} dev {link.name}"
        trail.arrives("node", meets, "the node answers", f"the node answers for {asked}, at {link.name}", whose)
        return
    if family == AF_INET and _on(walk, link, family, "proxy_arp"):
        found = lookup(walk, family, asked, link.name, walk.hooks.mark)
        _doubts(walk, found)
        if found.route is not None and found.route.type == UNICAST and found.route.index != link.index:
            does = f"{asked} is routed elsewhere ({_words(walk, found.route)}): the node answers"
            trail.arrives("node", f"net/ipv4/conf/{link.name}/proxy_arp", does, f"the node answers for {asked}, at {link.name}")
            return
    why = _silent(walk, link, family, proxy)
    trail.arrives("node", what, f"{asked} is not the node's, {why}: it does not answer", f"nobody on the node answers for {asked}")


def _proxied(walk: Walk, link: Link, target: str) -> bool:
    """Tell whether a packet to ``target`` is shown to its proxy entry, and not only what asks everybody (ip6_forward())."""
    everywhere = walk.view.sysctl("net/ipv6/conf/all/proxy_ndp") == "1"
    return everywhere and any(each.address == target for each in walk.view.neighbours(AF_INET6, link.index))


def _silent(walk: Walk, link: Link, family: int, proxy: Neighbour | None) -> str:
    if proxy is not None:
        return f"and proxy_ndp of {link.name} is off, which a proxy entry needs"
    if family == AF_INET:
        on = _on(walk, link, family, "proxy_arp")
        return "and no route leads to it by another device" if on else f"and proxy_arp of {link.name} is off"
    return f"and {link.name} has no proxy entry for it"


def _on(walk: Walk, link: Link, family: int, name: str) -> bool:
    """A switch that counts if it is on for the device or for all."""
    return any(walk.view.sysctl(f"net/{NET[family]}/conf/{where}/{name}") == "1" for where in (link.name, "all"))


# -- where to


def _routed(walk: Walk, link: Link, target: IpAddress) -> None:
    """ip_route_input_slow(), ip6_route_input()."""
    packet, view, trail, family = walk.packet, walk.view, walk.trail, FAMILIES[target.version]
    if target.is_multicast or str(target) == "255.255.255.255":
        does = "it is for all, or for a group: what listens on the node gets it; a router of multicast is not looked for"
        if walk.hooks.stack(INPUT, link, packet):
            trail.arrives("node", "the node's stack", does, f"the node itself, at {link.name}")
        return
    martian = _martian(ipaddress.ip_address(packet.source), target)
    if martian:
        trail.drops("node", "the node's stack", martian)
        return
    if any(each.address == str(target) for each in view.addresses()):
        if walk.hooks.stack(INPUT, link, packet):
            does = f"{target} is the node's own address: it is delivered"
            trail.arrives("node", "table local", does, f"the node itself, at {link.name}")
        return
    if family == AF_INET and not _plausible(walk, link):
        return
    found = lookup(walk, family, str(target), link.name, walk.hooks.mark)
    _doubts(walk, found)
    if found.rule is None or found.route is None:
        trail.drops("node", "ip rule", f"no rule leads to a table with a route to {target}: refused by ICMP")
        return
    whose = OURS if found.rule.protocol == PROTOCOL else KERNEL if _kernels(found.rule) else FOREIGN
    trail.passes("node", _rule(found.rule), f"looks up table {_table(found.rule.table)}", whose)
    _by(walk, link, found.route)


def _martian(source: IpAddress, target: IpAddress) -> str:
    """Why no router takes a packet between these; "" where it may (RFC 1812, 5.3.7; RFC 4291, 2.5; ip6_forward())."""
    for name, each in (("source", source), ("destination", target)):
        if each.is_multicast or str(each) == "255.255.255.255":
            return f"its {name} {each} is a group's, and no node's"
        if each.is_loopback:
            return f"its {name} {each} is a loopback address, which never comes by a device"
        if each.is_unspecified or (each.version == 4 and int(each) >> 24 == 0):
            return f"its {name} {each} is no address"
        if each.version == 6 and each.is_link_local:
            return f"its {name} {each} is of the link alone: it is not routed on"
    return ""


def _by(walk: Walk, link: Link, route: Route) -> None:
    trail, view, packet = walk.trail, walk.view, walk.packet
    meets = f"route {route.destination} in table {_table(route.table)}"
    whose = OURS if route.protocol == PROTOCOL else FOREIGN
    if route.type == RTN_LOCAL:
        trail.arrives("node", meets, "it is the node's own", f"the node itself, at {link.name}", whose)
        return
    if route.type != UNICAST:
        trail.drops("node", meets, REFUSING.get(route.type, f"a route of type {route.type} leads nowhere"), whose)
        return
    if packet.to_group:
        trail.drops("node", "the node's stack", "what came to all, or to a group, is not routed on")
        return
    if not _forwards(walk, link):
        return
    if route.paths or not route.index:
        trail.lost("node", meets, f"by one of several ways: {_words(walk, route)}", whose)
        return
    out = view.link_at(route.index)
    if out is None:
        trail.lost("node", meets, "its device is gone", whose)
        return
    trail.passes("node", meets, _words(walk, route), whose)
    if packet.network[8 if packet.protocol == IPV4 else 7] <= 1:
        trail.drops("node", "the node's stack", "its time to live is over")
        return
    if not walk.hooks.stack(FORWARD, link, packet, out) or not walk.hooks.stack(POSTROUTING, link, packet, out):
        return
    if out.kind == "bridge":
        trail.lost(out.name, f"bridge {out.name}", "the node sends it into the bridge, which is not followed further", KERNEL)
        return
    walk.leave(out, f" to {route.gateway}" if route.gateway else "")


def _forwards(walk: Walk, link: Link) -> bool:
    """Whether the node is a router for what comes by the device."""
    path = f"net/ipv4/conf/{link.name}/forwarding" if walk.packet.protocol == IPV4 else "net/ipv6/conf/all/forwarding"
    value = walk.view.sysctl(path)
    if value == "0":
        walk.trail.drops("node", path, "it is 0: the node forwards nothing that comes by this device")
    elif value is None:
        walk.trail.doubt("node", path, "it cannot be read, and decides whether the node forwards", KERNEL)
    return value != "0"


def _plausible(walk: Walk, link: Link) -> bool:
    """rp_filter: whether the source may come by this device (RFC 3704; ip-sysctl.rst)."""
    values = {where: walk.view.sysctl(f"net/ipv4/conf/{where}/rp_filter") or "0" for where in ("all", link.name)}
    value, source = max(values.values()), walk.packet.source
    if value not in ("1", "2") or source == "0.0.0.0":  # noqa: S104
        return True
    meets = f"net/ipv4/conf/{link.name}/rp_filter"
    found = lookup(walk, AF_INET, source, "lo")
    if found.doubts:
        walk.trail.doubt("node", meets, f"it is {value}, and which way leads to {source} depends on rules that are not understood", KERNEL)
        return True
    there = found.route is not None and found.route.type == UNICAST
    if there and (value == "2" or (found.route is not None and link.index in (found.route.index, *found.route.paths))):
        walk.trail.passes("node", meets, f"it is {value}: a way leads back to {source}")
        return True
    walk.trail.drops("node", meets, f"it is {value}: {'another way' if there else 'no way'} leads back to {source}")
    return False


def lookup(walk: Walk, family: int, target: str, iif: str, mark: int = 0) -> Found:
    """By the rules in their order, each table by the longest prefix and then the lowest metric. ``mark``: the packet's."""
    address, doubts = ipaddress.ip_address(target), []
    for rule in sorted(walk.view.rules(family), key=lambda each: each.preference):
        if rule.iif not in ("", iif):
            continue
        if not (rule.plain or _kernels(rule)):
            doubts.append(rule)
            continue
        if rule.mask and (mark & rule.mask) != rule.mark:
            continue
        route = _best(walk.view.routes(family, rule.table), address)
        if route is not None and route.type != THROW:
            return Found(rule, route, tuple(doubts))
    return Found(None, None, tuple(doubts))


def _best(routes: Iterable[Route], address: IpAddress) -> Route | None:
    best: tuple[int, int] | None = None
    chosen = None
    for route in routes:
        network = ipaddress.ip_network(route.destination, strict=False)
        if address in network and (best is None or (-network.prefixlen, route.metric) < best):
            best, chosen = (-network.prefixlen, route.metric), route
    return chosen


def _kernels(rule: Rule) -> bool:
    return (rule.preference, rule.table) in KERNELS and not rule.iif


def _doubts(walk: Walk, found: Found) -> None:
    for rule in found.doubts:
        does = "it selects by more than the device that a packet comes by, or its mark, which is not told here: ip rule list"
        walk.trail.doubt("node", _rule(rule), does)


def _rule(rule: Rule) -> str:
    iif = f" iif {rule.iif}" if rule.iif else ""
    mark = f" fwmark {rule.mark:#x}/{rule.mask:#x}" if rule.mask else ""
    return f"ip rule {rule.preference}:{iif}{mark} lookup {_table(rule.table)}"


def _table(number: int) -> str:
    return TABLES.get(number, str(number))


def _words(walk: Walk, route: Route) -> str:
    names = [link.name if (link := walk.view.link_at(index)) else str(index) for index in route.paths or (route.index,)]
    return f"leads {f'to {route.gateway} ' if route.gateway else ''}by {', '.join(names)}"
