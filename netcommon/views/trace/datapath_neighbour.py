"""Tell who answers an ARP request (arp_process()), or a neighbour solicitation (ndisc_recv_ns()), that the node's stack has got."""

from __future__ import annotations

import ipaddress

from netcommon.host.api.datapath import ANYCAST, BROADCAST, LOCAL, UNICAST, Way
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Link
from netcommon.operations.table import LOCAL as LOCAL_TABLE
from netcommon.views.trace.netfilter import INPUT
from netcommon.views.trace.packet import SOLICITATION
from netcommon.views.trace.trail import FOREIGN, KERNEL, OURS
from netcommon.views.trace.walk import Walk

ETHERNET_IPV4 = b"\0\1\x08\0\6\4"  #: begins an ARP packet of ours: kinds and lengths of its addresses
REQUEST, REPLY = 1, 2
ANYONE, ON_DEVICE, NOBODY = 0, 1, 8  #: values of arp_ignore that are understood (ip-sysctl.rst)


def arp(walk: Walk, link: Link) -> None:
    """Follow an ARP packet that the device has got."""
    packet, trail = walk.packet, walk.trail
    if not walk.hooks.stack(INPUT, link, packet):
        return
    asked, sender = packet.target, packet.source
    if not asked or packet.network[:6] != ETHERNET_IPV4:
        trail.drops("node", "ARP", "it is cut off, or not of Ethernet and IPv4")
        return
    target = ipaddress.IPv4Address(asked)
    if target.is_multicast or (target.is_loopback and not walk.value(link, AF_INET, "route_localnet")):
        trail.drops("node", "ARP", f"{asked} is an address that nobody may ask for")
        return
    if sender == asked and walk.value(link, AF_INET, "drop_gratuitous_arp"):
        trail.drops("node", f"net/ipv4/conf/{link.name}/drop_gratuitous_arp", "it tells of its own sender's address")
        return
    operation = int.from_bytes(packet.network[6:8], "big")
    if operation != REQUEST:
        does = "the node takes note of the answer" if operation == REPLY else "it is neither a question nor an answer"
        trail.taken("node", "ARP", does, link.name)
        return
    _asked(walk, link, target, sender)


def _asked(walk: Walk, link: Link, target: ipaddress.IPv4Address, sender: str) -> None:
    trail, asked = walk.trail, str(target)
    if sender == "0.0.0.0":  # noqa: S104 - a probe (RFC 5227): the lookup is of the address alone
        own = walk.way(AF_INET, asked, "", None)
        way = own if not (own.errno or target.is_unspecified) and own.type == LOCAL else Way(type=BROADCAST)
        silent = "a probe is answered for the node's own addresses alone"
    else:
        way = walk.way(AF_INET, asked, sender, link)
        silent = f"the kernel takes no packet between {sender} and {asked} by {link.name} (a route, or rp_filter)" if way.errno else ""
    if not way.errno and way.type == LOCAL:
        why = _ignored(walk, link, asked, sender)
        if not why:
            trail.answered("node", f"address {asked}", asked, link.name)
            return
        silent = f"it is the node's own, but {why}"
    elif not way.errno and way.type == UNICAST:
        if _proxied(walk, link, asked, sender, way):
            return
        silent = silent or _unproxied(walk, link, way)
    silent = silent or f"a packet to {asked} is not forwarded"
    trail.arrives("node", "ARP", f"{silent}: the node does not answer", f"nobody on the node answers for {asked}")


def _ignored(walk: Walk, link: Link, asked: str, sender: str) -> str:
    """Tell why the node keeps silent about an address of its own; "" where it does not (arp_ignore(), arp_filter())."""
    rule = walk.value(link, AF_INET, "arp_ignore")
    here = any(each.address == asked and each.index == link.index for each in walk.view.addresses())
    if rule == NOBODY or (rule == ON_DEVICE and not here):
        return f"arp_ignore of {link.name} is {rule}"
    if rule not in (ANYONE, ON_DEVICE):
        meets = f"net/ipv4/conf/{link.name}/arp_ignore"
        walk.trail.doubt("node", meets, f"it is {rule}, which looks at networks and scopes too: that is not told here", KERNEL)
    if sender != "0.0.0.0" and walk.value(link, AF_INET, "arp_filter"):  # noqa: S104
        back = walk.way(AF_INET, sender, asked, None)
        if back.errno or back.index != link.index:
            return f"arp_filter of {link.name} is on, and the way back to {sender} leads by another device"
    return ""


def _proxied(walk: Walk, link: Link, asked: str, sender: str, way: Way) -> bool:
    """Tell whether the node answers for an address that it forwards to."""
    trail, elsewhere = walk.trail, way.index != link.index
    entry = next((each for each in walk.view.neighbours(AF_INET, link.index) if each.address == asked), None)
    if entry is not None and elsewhere:
        whose = OURS if entry.protocol == PROTOCOL else FOREIGN
        trail.answered("node", f"ip neigh proxy {asked} dev {link.name}", asked, link.name, whose)
        return True
    if elsewhere and walk.value(link, AF_INET, "proxy_arp"):
        if walk.value(link, AF_INET, "medium_id", all_too=False):
            trail.doubt("node", f"net/ipv4/conf/{link.name}/medium_id", "it decides for which other devices proxy_arp counts", KERNEL)
        trail.answered("node", f"net/ipv4/conf/{link.name}/proxy_arp", asked, link.name)
        return True
    if not elsewhere and sender != asked and walk.value(link, AF_INET, "proxy_arp_pvlan", all_too=False):
        trail.answered("node", f"net/ipv4/conf/{link.name}/proxy_arp_pvlan", asked, link.name)
        return True
    return False


def _unproxied(walk: Walk, link: Link, way: Way) -> str:
    if way.index == link.index:
        return f"it is not the node's, and no route leads to it by another device than {link.name}"
    return f"it is not the node's, and proxy_arp of {link.name} is off"


# -- IPv6


def solicits(walk: Walk) -> bool:
    """Tell whether it is a neighbour solicitation, for which the node's stack has taken it."""
    packet = walk.packet
    return packet.upper == SOLICITATION[0] and packet.transport is not None and packet.transport[:1] == SOLICITATION[1]


def unasked(walk: Walk, link: Link) -> None:
    """End a solicitation to a group that the device is no member of: none of its addresses, and no proxy entry, is asked for there."""
    asked = str(ipaddress.IPv6Address((walk.packet.transport or b"")[8:24].ljust(16, b"\0")))
    said = f"{asked} is not an address of {link.name}, which has no proxy entry for it: the node does not answer"
    walk.trail.arrives("node", "neighbour discovery", said, f"nobody on the node answers for {asked}")


def solicitation(walk: Walk, link: Link) -> None:
    """Follow a neighbour solicitation that the device has got, which is for the node."""
    packet, view, trail = walk.packet, walk.view, walk.trail
    transport = packet.transport or b""
    if len(transport) < 24 or transport[1] or packet.network[7] != 255:
        trail.drops("node", "neighbour discovery", "it is cut off, or comes from another link")
        return
    asked = str(ipaddress.IPv6Address(transport[8:24]))
    if any(each.address == asked and each.index == link.index for each in view.addresses()):
        trail.answered("node", f"address {asked}", asked, link.name)
        return
    anycast = view.routes(AF_INET6, LOCAL_TABLE, f"{asked}/128")
    if any(each.type == ANYCAST and each.index == link.index for each in anycast):
        trail.answered("node", f"anycast address {asked}", asked, link.name)
        return
    proxy = next((each for each in view.neighbours(AF_INET6, link.index) if each.address == asked), None)
    on = walk.value(link, AF_INET6, "proxy_ndp")
    router = walk.value(link, AF_INET6, "forwarding", all_too=False)
    if proxy is not None and on and router:
        whose = OURS if proxy.protocol == PROTOCOL else FOREIGN
        trail.answered("node", f"ip neigh proxy {asked} dev {link.name}", asked, link.name, whose)
        return
    why = f"{asked} is not an address of {link.name}, which has no proxy entry for it"
    if proxy is not None:
        name = "forwarding" if on else "proxy_ndp"
        why = f"{asked} is not an address of {link.name}, and {name} of {link.name} is off, which a proxy entry needs"
    trail.arrives("node", "neighbour discovery", f"{why}: the node does not answer", f"nobody on the node answers for {asked}")
