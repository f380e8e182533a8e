"""Where the guard's verdict is another than the specification's, and why. The documentation has each: a test looks for the phrase."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.attacks import ENDS, GROUPS, Setting
from tests.support.attacks_base import Kind, raw

ALL = tuple(to.name for to in (*GROUPS, *ENDS))
NFTABLES, OPENVSWITCH = ("bridged", "routed"), ("openvswitch",)
FLOWS, GUARD = "docs/openvswitch.md", "docs/spoof-guard.md"


class Limit(NamedTuple):
    """Frames of ``kinds`` (names of attacks.KINDS) to ``ends`` are judged as if they broke the rules ``broken`` and no others."""

    modes: tuple[str, ...]
    kinds: tuple[str, ...]
    broken: tuple[str, ...]
    document: str
    phrase: str
    ends: tuple[str, ...] = ALL


LIMITS = (
    Limit(
        NFTABLES,
        (
            "NA, foreign target, behind options",
            "NA, foreign target, behind hop-by-hop",
            "NA, foreign target, behind a routing header",
            "RA, behind hop-by-hop",
            "RA, behind options",
            "RA, behind both, twice",
            "RA, behind a routing header",
            "RA, behind 1 KiB of options",
        ),
        ("never",),
        GUARD,
        "no extension header before it",
    ),
    # nf_tables takes an authentication header for the last one.
    Limit(
        NFTABLES,
        (
            "IPv6, own address, authentication",
            "RA, behind authentication",
            "NA, foreign target, behind authentication",
            "DHCPv6 server, behind authentication",
        ),
        ("never",),
        GUARD,
        "authentication, mobility, HIP and shim6 header of IPv6",
    ),
    # No match has chaddr.
    Limit(
        OPENVSWITCH,
        (
            "DHCP client, foreign chaddr",
            "DHCP client's message through a relay agent, from a client's port",
            "DHCP client, foreign chaddr, IPv4 options",
            "DHCP client, foreign chaddr, other source port",
            "DHCP client, address of another kind",
        ),
        (),
        FLOWS,
        "What a DHCP message says",
    ),
    # No match tells an IGMP query from a report; one for all groups has an address of its own.
    Limit(OPENVSWITCH, ("IGMP query of a group",), (), FLOWS, "Queries for members of groups"),
    # No flow compares the address that a probe asks for.
    Limit(
        OPENVSWITCH,
        ("ARP probe for a foreign address", "NS, duplicate address detection of a foreign address"),
        (),
        FLOWS,
        "Probes for another guest's address",
    ),
    # A fragment header without fragments is as good as none.
    Limit(OPENVSWITCH, ("NA, foreign target, in one fragment",), ("ip6",), FLOWS, "Extension headers before ICMPv6"),
    Limit(
        OPENVSWITCH,
        ("RA, in one fragment", "RA, behind two headers of one fragment"),
        ("dhcp",),
        FLOWS,
        "Extension headers before ICMPv6",
    ),
    # nd_sll is a match of neighbour solicitations alone.
    Limit(OPENVSWITCH, ("RS, foreign source MAC option",), (), FLOWS, "Options of a router solicitation"),
    # With two of them the message makes no sense, and shows neither target nor option.
    Limit(OPENVSWITCH, ("NA, foreign target MAC option after own",), ("mac", "ip6"), FLOWS, "the same option twice"),
    # It is read if its length is that of a MAC; who gets it discards it as well.
    Limit(
        OPENVSWITCH,
        ("NA, foreign target MAC option of twice the length", "NS, foreign source MAC option after one without length"),
        (),
        FLOWS,
        "options of wrong lengths",
    ),
    Limit(OPENVSWITCH, ("service tag of the allowed VLAN",), (), FLOWS, "The kind of a tag"),
    # The type in a SNAP header is the frame's type.
    Limit(OPENVSWITCH, ("IPv4 in SNAP",), (), FLOWS, "SNAP"),
    Limit(OPENVSWITCH, ("IPv4 in SNAP, foreign address", "ARP in SNAP, foreign address"), ("ip4",), FLOWS, "SNAP"),
)


def claims(frame: bytes) -> frozenset[str]:
    """The rule that is broken by a guest without an address of the frame's family: whatever it speaks for is not its own."""
    packet = frame[14:]
    if frame[12:14] == b"\x08\x06" or (frame[12:14] == b"\x08\x00" and any(packet[12:16])):
        return frozenset({"ip4"})
    said = [packet[8:24]] if frame[12:14] == b"\x86\xdd" else []
    if said and packet[6] == 58 and (packet[40] == 136 or (packet[40] == 135 and not any(packet[8:24]))):
        said.append(packet[48:64])
    return frozenset({"ip6"} if any(any(each) and (each[0], each[1] & 0xC0) != (0xFE, 0x80) for each in said) else ())


def allowed(mode: str, kind: Kind, end: str, setting: Setting) -> bool:
    """The verdict of ``mode`` on a frame to ``end``: the specification's but for LIMITS."""
    if mode == "routed" and setting.unknown & claims(raw(kind, ENDS[0]._replace(number=1))):
        return False
    for limit in LIMITS:
        if mode in limit.modes and kind.name in limit.kinds and end in limit.ends:
            return setting.off_in(mode) >= frozenset(limit.broken)
    return kind.broken <= setting.off_in(mode)
