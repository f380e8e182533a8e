"""Tell who answers an ARP request (arp_process()), or a neighbour solicitation (ndisc_recv_ns()), that the node's stack has got."""

from __future__ import annotations

import ipaddress

from netcommon.host.api.datapath import ANYCAST, BROADCAST, LOCAL, UNICAST, Way
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Link
from netcommon.operations.table import LOCAL as LOCAL_TABLE
from netcommon.views.trace.frame import IP6, SMALLEST, SOLICITED
from netcommon.views.trace.netfilter import INPUT, OUTPUT, POSTROUTING
from netcommon.views.trace.packet import ARP, IPV6, SOLICITATION, Packet
from netcommon.views.trace.trail import FOREIGN, KERNEL, OURS
from netcommon.views.trace.walk import Walk

ETHERNET_IPV4 = b"\0\1\x08\0\6\4"  #: begins an ARP packet of ours: kinds and lengths of its addresses
REQUEST, REPLY = 1, 2
SMALLEST4 = 68  #: bytes of the least MTU with which a device has IPv4 (RFC 791)
SOURCE_ADDRESS = 1  #: the option of discovery with the sender's MAC (RFC 4861, 4.6.1)
ALL_NODES, GROUP_MAC = ipaddress.IPv6Address("ff02::1").packed, bytes.fromhex("333300000001")
ADVERTISED = b"\x88\0\0\0\x60\0\0\0"  #: begins a neighbour advertisement, solicited and overriding (RFC 4861, 4.4)
ANYONE, ON_DEVICE, NOBODY = 0, 1, 8  #: values of arp_ignore that are understood (ip-sysctl.rst)


def arp(walk: Walk, link: Link) -> None:
    """Follow an ARP packet that the device has got."""
    packet, trail = walk.packet, walk.trail
    if not walk.device(link).arp:
        trail.drops("node", f"device {link.name}", f"no ARP is taken there (ip link set dev {link.name} arp on)")
        return
    if link.mtu < SMALLEST4:
        trail.drops("node", f"device {link.name}", f"its MTU is {link.mtu}: below {SMALLEST4} there is no IPv4 on a device")
        return
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
        way = Way(type=LOCAL if _own(walk, target) else BROADCAST)
        silent = "a probe is answered for the node's own addresses alone"
    else:
        way = walk.way(AF_INET, asked, sender, link)
        silent = f"the kernel takes no packet between {sender} and {asked} by {link.name} (a route, or rp_filter)" if way.errno else ""
    if not way.errno and way.type == LOCAL:
        why = _ignored(walk, link, asked, sender)
        if not why:
            _answers(walk, link, f"address {asked}", asked)
            return
        silent = f"it is the node's own, but {why}"
    elif not way.errno and way.type == UNICAST:
        if _proxied(walk, link, asked, sender, way):
            return
        silent = silent or _unproxied(walk, link, way)
    silent = silent or f"a packet to {asked} is not forwarded"
    trail.arrives("node", "ARP", f"{silent}: the node does not answer", f"nobody on the node answers for {asked}")


def _own(walk: Walk, target: ipaddress.IPv4Address) -> bool:
    """Tell whether table local has the address for the node's own, whatever rules there are (inet_addr_type_dev_table())."""
    networks = ((ipaddress.ip_network(each.destination), each.type) for each in walk.view.routes(AF_INET, LOCAL_TABLE))
    fitting = [(network.prefixlen, kind) for network, kind in networks if target in network]
    return bool(fitting) and max(fitting)[1] == LOCAL


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
        _answers(walk, link, f"ip neigh proxy {asked} dev {link.name}", asked, whose)
        return True
    if elsewhere and walk.value(link, AF_INET, "proxy_arp"):
        if walk.value(link, AF_INET, "medium_id", all_too=False):
            trail.doubt("node", f"net/ipv4/conf/{link.name}/medium_id", "it decides for which other devices proxy_arp counts", KERNEL)
        _answers(walk, link, f"net/ipv4/conf/{link.name}/proxy_arp", asked)
        return True
    if not elsewhere and sender != asked and walk.value(link, AF_INET, "proxy_arp_pvlan", all_too=False):
        _answers(walk, link, f"net/ipv4/conf/{link.name}/proxy_arp_pvlan", asked)
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
    target = ipaddress.IPv6Address(transport[8:24])
    why = _unsolicited(walk, target)
    if why:
        trail.drops("node", "neighbour discovery", why)
        return
    asked = str(target)
    if any(each.address == asked and each.index == link.index for each in view.addresses()):
        if asked in view.tentative(link.index):
            silent = f"{asked} is tentative: it is no address of the node yet, or another has it"
            trail.arrives("node", "neighbour discovery", f"{silent}: the node does not answer", f"nobody on the node answers for {asked}")
            return
        _answers(walk, link, f"address {asked}", asked)
        return
    anycast = view.routes(AF_INET6, LOCAL_TABLE, f"{asked}/128")
    if any(each.type == ANYCAST and each.index == link.index for each in anycast):
        _answers(walk, link, f"anycast address {asked}", asked)
        return
    proxy = next((each for each in view.neighbours(AF_INET6, link.index) if each.address == asked), None)
    on = walk.value(link, AF_INET6, "proxy_ndp")
    router = walk.value(link, AF_INET6, "forwarding", all_too=False)
    if proxy is not None and on and router:
        whose = OURS if proxy.protocol == PROTOCOL else FOREIGN
        _answers(walk, link, f"ip neigh proxy {asked} dev {link.name}", asked, whose)
        return
    why = f"{asked} is not an address of {link.name}, which has no proxy entry for it"
    if proxy is not None:
        name = "forwarding" if on else "proxy_ndp"
        why = f"{asked} is not an address of {link.name}, and {name} of {link.name} is off, which a proxy entry needs"
    trail.arrives("node", "neighbour discovery", f"{why}: the node does not answer", f"nobody on the node answers for {asked}")


def _unsolicited(walk: Walk, target: ipaddress.IPv6Address) -> str:
    """Tell why the kernel takes no such solicitation (RFC 4861, 7.1.1; ndisc_recv_ns()); "" where it does."""
    network, transport = walk.packet.network, walk.packet.transport or b""
    if target.is_multicast:
        return f"it asks for {target}, a group"
    end = len(transport) - (len(network) - 40 - int.from_bytes(network[4:6], "big"))
    options, place = [], 24
    while place < end:
        size = transport[place + 1] * 8 if place + 1 < end else 0
        if not 0 < size <= end - place:
            return "its options are cut off"
        options.append((transport[place], size))
        place += size
    sizes = [size for kind, size in options if kind == SOURCE_ADDRESS]
    if walk.packet.source == "::":
        if not ipaddress.IPv6Address(walk.packet.target).packed.startswith(SOLICITED):
            return "from :: it must go to the group of who may have the address (RFC 4861, 7.1.1)"
        return "from :: it must not tell a MAC address (RFC 4861, 7.1.1)" if sizes else ""
    return "the MAC address that it tells is of another length" if sizes and sizes[0] != 8 else ""


# -- what is answered


def _answers(walk: Walk, link: Link, meets: str, asked: str, whose: str = KERNEL) -> None:
    """Follow the node's answer out: the hooks of what the node sends, the device's own, and those of the port of a bridge."""
    trail, answer = walk.trail, Packet(_answer(walk, link, asked))
    six = answer.protocol == IPV6
    hooks = (OUTPUT, POSTROUTING) if six else (OUTPUT,)
    if not all(walk.hooks.stack(hook, link, answer, link) for hook in hooks) or not walk.sends(link, answer):
        return
    if not _by_port(walk, link, answer):
        return
    if six and not walk.device(link).arp:
        does = "it sends to its own MAC where it knows no other (arp off)"
        trail.doubt(link.name, f"device {link.name}", does, KERNEL)
    trail.answered("node", meets, asked, link.name, whose)


def _by_port(walk: Walk, link: Link, answer: Packet) -> bool:
    """Tell whether a bridge sends the answer back by the port by which the question has come."""
    port = walk.way_in
    if link.kind != "bridge" or port is None:
        return True
    if link.vlan_filtering:
        vid = next((each.vid for each in walk.view.vlans(link.index) if each.pvid), 0)
        if not vid or vid not in {each.vid for each in walk.view.vlans(port.index)}:
            does = f"it sends into VLAN {vid}, its pvid, in which {port.name} is not" if vid else "it has no pvid: it sends into no VLAN"
            walk.trail.doubt(link.name, f"bridge vlan of {link.name}", does, KERNEL)
    return all(walk.hooks.bridge(hook, link, answer, port) for hook in (OUTPUT, POSTROUTING)) and walk.sends(port, answer)


def _answer(walk: Walk, link: Link, asked: str) -> bytes:
    """Make the answer as the kernel does: an ARP reply, or a neighbour advertisement."""
    packet = walk.packet
    mine, to = bytes.fromhex(link.address.replace(":", "")).ljust(6, b"\0"), packet.link[6:12]
    address = ipaddress.ip_address(asked).packed
    if packet.protocol == ARP:
        body = ETHERNET_IPV4 + REPLY.to_bytes(2, "big") + mine + address + packet.network[8:18]
        return (to + mine + ARP.to_bytes(2, "big") + body).ljust(SMALLEST, b"\0")
    sender = ipaddress.IPv6Address(packet.source)
    target = ALL_NODES if sender.is_unspecified else sender.packed
    message = ADVERTISED + address + b"\x02\x01" + mine
    head = IP6.pack(6 << 28, len(message), SOLICITATION[0], 255, address, target)
    return (GROUP_MAC if sender.is_unspecified else to) + mine + IPV6.to_bytes(2, "big") + head + message
