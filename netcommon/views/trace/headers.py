"""Tell which headers the kernel takes: as its stack reads them, as br_netfilter does, and as a bridge that snoops multicast does."""

from __future__ import annotations

from netcommon.views.trace.frame import checksum
from netcommon.views.trace.packet import HOP_BY_HOP, IPV4, IPV6, Packet

SMALLEST4, SMALLEST6 = 20, 40  #: bytes of a header
CUT = "its IP header is cut off, or no header of"
SHORT = "it is shorter than its IP header says"
IGMP = 2
#: IGMP's messages (RFC 2236, RFC 3376) whose rest a bridge looks at too: queries, and the reports of version 3.
LONGER = (0x11, 0x22)
IGMP_SIZE = 8


def malformed4(network: bytes) -> str:
    """Tell why the kernel takes no such header (ip_rcv_core(), br_validate_ipv4()); "" where it does."""
    length = _length4(network)
    if not length:
        return f"{CUT} IPv4"
    if checksum(network[:length]):
        return "the checksum of its IP header is wrong"
    return "" if length <= int.from_bytes(network[2:4], "big") <= len(network) else SHORT


def malformed6(network: bytes) -> str:
    """Tell why the kernel takes no such header (ip6_rcv_core(), br_validate_ipv6()); "" where it does."""
    if len(network) < SMALLEST6 or network[0] >> 4 != 6:
        return f"{CUT} IPv6"
    return SHORT if len(network) < SMALLEST6 + int.from_bytes(network[4:6], "big") else ""


def unsnooped(packet: Packet) -> tuple[str, str]:
    """Tell why a bridge that snoops takes no such multicast frame, or why that is not told here; "" for each that is not so.

    It reads what may be a message about groups before all else (br_multicast_rcv(), ip_mc_check_igmp(), ipv6_mc_check_mld()).
    """
    network = packet.network
    if packet.protocol == IPV4:
        why = malformed4(network)
        return (why, "") if why or network[9] != IGMP else _igmp(network[_length4(network) : int.from_bytes(network[2:4], "big")])
    if packet.protocol == IPV6:
        why = malformed6(network) or ("there is nothing behind its IP header" if not any(network[4:6]) else "")
        told = "" if why or network[6] != HOP_BY_HOP else "it may be a message of MLD, and a bridge drops one that is malformed"
        return why, told
    return "", ""


def _igmp(message: bytes) -> tuple[str, str]:
    if len(message) < IGMP_SIZE:
        return "its message of IGMP is cut off", ""
    if checksum(message + bytes(len(message) % 2)):
        return "the checksum of its message of IGMP is wrong", ""
    return "", "it is a message of IGMP, and a bridge drops one that is malformed" if message[0] in LONGER else ""


def _length4(network: bytes) -> int:
    """Return how long the header is; 0 where there is no whole one."""
    length = (network[0] & 15) * 4 if network else 0
    return length if len(network) >= max(SMALLEST4, length) and network[0] >> 4 == 4 and length >= SMALLEST4 else 0
