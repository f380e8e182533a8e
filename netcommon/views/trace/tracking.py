"""Doubt a packet about which NAT, IPsec, a router of multicast or a routing header decide, besides rules and routes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from netcommon.host.api.datapath import Connection
from netcommon.host.api.facts import AF_INET, AF_INET6, Link
from netcommon.views.trace.packet import IPV4, ROUTING, Packet
from netcommon.views.trace.trail import KERNEL
from netcommon.views.trace.walk import NET, Walk

ICMP, ICMP6 = 1, 58
#: Types of errors, which are of the connection that they quote.
QUOTING = {ICMP: frozenset({3, 4, 5, 11, 12}), ICMP6: frozenset({1, 2, 3, 4})}
ANSWERS = {8: 0, 0: 8, 13: 14, 14: 13, 128: 129, 129: 128}  #: types of questions and of their answers
HEADER4, HEADER6 = 20, 40  #: bytes of a header without options
WITH_PORTS = frozenset({6, 17, 33, 132, 136})  #: TCP, UDP, DCCP, SCTP, UDP-Lite


def tracked(walk: Walk) -> None:
    """Doubt a packet whose addresses or ports connection tracking changes (nf_nat_packet()); of fragments the whole has ports alone."""
    if walk.packet.whole and any(walk.view.translated(each) for each in _connections(walk.packet)):
        does = "its connection has other addresses or ports on the other side (NAT), and it goes on with those: conntrack -L"
        walk.trail.doubt("node", "connection tracking", does, KERNEL)


def _connections(packet: Packet) -> Iterator[Connection]:
    """Yield the packet's own, or that which an error quotes."""
    family = AF_INET if packet.protocol == IPV4 else AF_INET6
    upper, transport = packet.upper or 0, packet.transport or b""
    if upper not in QUOTING or not transport or transport[0] not in QUOTING[upper]:
        yield _connection(family, (packet.source, packet.target), upper, transport)
        return
    inner = transport[8:]
    size, upper_at, ends_at, length = (HEADER4, 9, 12, 4) if packet.protocol == IPV4 else (HEADER6, 6, 8, 16)
    if len(inner) >= size:
        behind = (inner[0] & 15) * 4 if packet.protocol == IPV4 else HEADER6
        yield _back(_connection(family, _ends(inner, ends_at, length), inner[upper_at], inner[behind:]))


def _back(of: Connection) -> Connection:
    """Turn a connection round: an error comes the other way than the packet that it quotes."""
    ports = of.ports[1], of.ports[0]
    return of._replace(source=of.target, target=of.source, ports=ports, kind=ANSWERS.get(of.kind, of.kind))


def _ends(header: bytes, place: int, size: int) -> tuple[str, str]:
    source, target = (ipaddress.ip_address(header[at : at + size]) for at in (place, place + size))
    return str(source), str(target)


def _connection(family: int, ends: tuple[str, str], upper: int, transport: bytes) -> Connection:
    head = transport[:8].ljust(8, b"\0")
    if upper in QUOTING:
        return Connection(family, *ends, upper, identifier=int.from_bytes(head[4:6], "big"), kind=head[0], code=head[1])
    ports = (int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big")) if upper in WITH_PORTS else (0, 0)
    return Connection(family, *ends, upper, ports)


def transformed(walk: Walk, *directions: str) -> None:
    """Doubt a packet for which IPsec has a policy (xfrm_policy_check(), xfrm_route_forward())."""
    packet, mark = walk.packet, walk.hooks.mark
    family = AF_INET if packet.protocol == IPV4 else AF_INET6
    for each in walk.view.transforms():
        fits = each.family == family and each.direction in directions and each.protocol in (0, packet.upper or 0)
        if fits and (mark & each.mask) == each.mark and _within(packet.source, each.source) and _within(packet.target, each.target):
            does = "it drops the packet, puts it into another one, or lets it pass, which is not told here: ip xfrm policy"
            walk.trail.doubt("node", f"policy of IPsec, {each.direction}", does, KERNEL)
            return


def _within(address: str, network: str) -> bool:
    return not network or ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)


def copied(walk: Walk, link: Link, family: int) -> None:
    """Doubt a packet to a group that comes by a device of a router of multicast (ip_mr_input(), ip6_mr_input())."""
    target = ipaddress.ip_address(walk.packet.target)
    if target.is_multicast and walk.value(link, family, "mc_forwarding", all_too=False):
        does = f"the node routes multicast that comes by {link.name}: by which devices it goes on is not told here (ip mroute)"
        walk.trail.doubt("node", f"net/{NET[family]}/conf/{link.name}/mc_forwarding", does, KERNEL)


def routed_on(packet: Packet) -> bool:
    """Tell whether a packet that is for the node has a header with further stations (ipv6_rthdr_rcv())."""
    return packet.extension(ROUTING) is not None
