"""The frames that tell the neighbours on a link where an address is now: gratuitous ARP, and unsolicited neighbour advertisements."""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.rtnetlink.attributes import pack_address

ETHERNET = Struct("!6s6sH")  #: destination, source, type
ARP = Struct("!HHBBH6s4s6s4s")  #: hardware, protocol, their address lengths, operation, sender's two addresses, target's two
IPV6 = Struct("!IHBB16s16s")  #: version and flow, length of the payload, next header, hop limit, source, destination
PSEUDO = Struct("!16s16sII")  #: source, destination, length, next header (RFC 8200, 8.1)
ADVERTISEMENT = Struct("!BBHI16sBB6s")  #: type, code, checksum, flags, target, option: type, length in 8 bytes, link-layer address

ETH_P_IP, ETH_P_ARP, ETH_P_IPV6 = 0x0800, 0x0806, 0x86DD
ARPHRD_ETHER, REQUEST, REPLY = 1, 1, 2
ICMPV6, NEIGHBOR_ADVERTISEMENT, TARGET_LINK_LAYER_ADDRESS = 58, 136, 2
ROUTER, OVERRIDE = 1 << 31, 1 << 29
HOP_LIMIT = 255  #: any other is not believed: it may have crossed a router (RFC 4861, 7.1.2)

BROADCAST = b"\xff" * 6
ALL_NODES = "ff02::1"
ALL_NODES_MAC = b"\x33\x33\x00\x00\x00\x01"  #: RFC 2464, section 7


def gratuitous_arp(mac: str, address: str) -> tuple[bytes, bytes]:
    """IPv4 ``address`` is at ``mac``, in both forms: as the announcement of RFC 5227 (a request), and as a reply.

    There are switches and hosts that learn from the one only, and others from the other only, so keepalived's and OpenStack's users
    have found; in the reply the target's hardware address is the sender's, without which Linux does not take it for gratuitous.
    """
    own, packed = bytes.fromhex(mac.replace(":", "")), pack_address(AF_INET, address)
    head = ETHERNET.pack(BROADCAST, own, ETH_P_ARP)
    request = ARP.pack(ARPHRD_ETHER, ETH_P_IP, 6, 4, REQUEST, own, packed, bytes(6), packed)
    reply = ARP.pack(ARPHRD_ETHER, ETH_P_IP, 6, 4, REPLY, own, packed, own, packed)
    return head + request, head + reply


def unsolicited_advertisement(mac: str, source: str, target: str, router: bool = False) -> bytes:
    """IPv6 ``target`` is at ``mac``, told to all nodes from the address ``source`` of the interface (RFC 4861, 4.4 and 7.2.6).

    The override flag is set, although a proxy's should not be (7.2.8): that rule leaves the better claim to the owner, but a routed
    guest never speaks on this link itself, and what has to give way is the claim of the node that it has left. Without the flag a
    neighbour that holds that one reachable keeps sending there until it has noticed by itself, some 8 seconds later (7.2.5, 7.3.3).
    The router flag is not set for a guest's address: it would speak for the guest, and nobody takes the guest for a default router by its
    routed addresses. Of a ``router`` it must be set: without it the guest would strike its gateway off its default routers (7.2.5).
    """
    own = bytes.fromhex(mac.replace(":", ""))
    ends = pack_address(AF_INET6, source), pack_address(AF_INET6, ALL_NODES)
    fields = (OVERRIDE | (ROUTER if router else 0), pack_address(AF_INET6, target), TARGET_LINK_LAYER_ADDRESS, 1, own)
    blank = ADVERTISEMENT.pack(NEIGHBOR_ADVERTISEMENT, 0, 0, *fields)
    total = checksum(PSEUDO.pack(*ends, len(blank), ICMPV6) + blank)
    message = ADVERTISEMENT.pack(NEIGHBOR_ADVERTISEMENT, 0, total, *fields)
    return ETHERNET.pack(ALL_NODES_MAC, own, ETH_P_IPV6) + IPV6.pack(6 << 28, len(message), ICMPV6, HOP_LIMIT, *ends) + message


def checksum(data: bytes) -> int:
    """The Internet checksum of an even number of bytes (RFC 1071)."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
