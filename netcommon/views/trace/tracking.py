"""Doubt a packet about which connection tracking, IPsec or a routing header decide, besides rules and routes: none is carried out."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from netcommon.host.api.datapath import Connection
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.nftables import BRIDGE
from netcommon.views.trace.packet import IPV4, ROUTING, Packet
from netcommon.views.trace.trail import KERNEL
from netcommon.views.trace.walk import Walk

TRACKING = "net/netfilter/nf_conntrack_max"  #: there where the kernel can track connections
ICMP, ICMP6 = 1, 58
#: Types of errors, which are of the connection that they quote.
QUOTING = {ICMP: frozenset({3, 4, 5, 11, 12}), ICMP6: frozenset({1, 2, 3, 4})}
HEADER4, HEADER6 = 20, 40  #: bytes of a header without options
WITH_PORTS = frozenset({6, 17, 33, 132, 136})  #: TCP, UDP, DCCP, SCTP, UDP-Lite
BY_CT = b"ct\0"  #: an expression of a rule that asks for the connection (NFTA_EXPR_NAME)


def tracked(walk: Walk) -> None:
    """Doubt a fragment, for which connection tracking waits for the others, and a packet whose addresses it changes (nf_nat_packet())."""
    packet, trail = walk.packet, walk.trail
    if walk.view.sysctl(TRACKING) is None:
        return
    if packet.in_fragments:
        does = "where any rule asks for connections, a fragment is kept until the others have come"
        trail.doubt("node", "connection tracking", does, KERNEL)
    elif any(walk.view.translated(each) for each in _connections(packet)):
        does = "its connection has other addresses or ports on the other side (NAT), and goes on with those: conntrack -L"
        trail.doubt("node", "connection tracking", does, KERNEL)


def tracked_in_bridge(walk: Walk, name: str, called: bool) -> None:
    """Doubt a fragment where rules of bridges ask for connections, or br_netfilter calls IP's chains (``called``)."""
    if not walk.packet.in_fragments or walk.view.sysctl(TRACKING) is None:
        return
    tables = [table.name for table in walk.view.nft_tables(BRIDGE)]
    if called or any(BY_CT in rule.expressions for table in tables for rule in walk.view.nft_rules(BRIDGE, table)):
        does = "a rule asks for connections: a fragment is kept until the others have come"
        walk.trail.doubt(name, f"connection tracking of bridge {name}", does, KERNEL)


def _connections(packet: Packet) -> Iterator[Connection]:
    """Yield the packet's own, or that which an error quotes."""
    family = AF_INET if packet.protocol == IPV4 else AF_INET6
    upper, transport = packet.upper or 0, packet.transport or b""
    if upper not in QUOTING or not transport or transport[0] not in QUOTING[upper]:
        yield _connection(family, (packet.source, packet.target), upper, transport)
        return
    inner = transport[8:]
    if family == AF_INET and len(inner) >= HEADER4:
        yield _connection(family, _ends(inner, 12, 4), inner[9], inner[(inner[0] & 15) * 4 :])
    elif family == AF_INET6 and len(inner) >= HEADER6:
        yield _connection(family, _ends(inner, 8, 16), inner[6], inner[HEADER6:])


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


def routed_on(packet: Packet) -> bool:
    """Tell whether a packet that is for the node has a header with further stations (ipv6_rthdr_rcv())."""
    return packet.extension(ROUTING) is not None
