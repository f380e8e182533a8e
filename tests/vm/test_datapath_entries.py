"""Open vSwitch's kernel datapath: an entry that a malformed frame has made takes none of the guest's own good ones.

The kernel makes the key of an entry, ovs-vswitchd reads the frame once more and decides. Where the two read a frame differently the entry
says of all frames with that key what was decided about this one, as long as some of them come.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

import pytest

from tests.support.attacks import SETTINGS
from tests.support.attacks_base import PEER_MAC
from tests.support.frames import checksum
from tests.support.fuzz import pools
from tests.support.fuzz.entries import Entries
from tests.support.fuzz.facts import hardware
from tests.support.fuzz.honest import ALL, ALL6, ELSEWHERE, ICMP6, NODES6, UDP
from tests.support.fuzz.limits import remembered
from tests.support.fuzz.offload import NEEDS_CSUM, UDP_WHOLE, raw
from tests.support.fuzz.oracle import PLAIN, Header
from tests.support.fuzz.place import Place, Sent
from tests.support.fuzz.receivers import TapReceiver
from tests.support.netns import run

pytestmark = pytest.mark.slow  # emulated

ASKED = 5  #: how often a frame is sent: the queue of what the switch is asked about may have been full
FIRST = 0x2000
#: The flows that the guard has where it is made of flows alone.
ALONE = (
    *(f"priority=65040,reg13=0x40000000/0xe0000000,{family},nw_proto=0" for family in ("ip", "ipv6")),
    *(f"priority=65040,reg13=0x40000000/0xe0000000,{protocol},nw_frag=no,tp_src=0,tp_dst=0" for protocol in ("udp", "udp6")),
    "priority=65010,reg13=0xa0000000/0xe0000000,reg14=0",
)
MARK = b"this one is good"


def udp(port: int) -> bytes:
    """A datagram; its ports are no other case's, nor those by which the place knows that all has come."""
    return struct.pack("!HHHH", 3000, port, 72, 0) + MARK * 4


def ip4(body: bytes, size: int = 0, field: int = 0) -> bytes:
    """UDP over IPv4 whose header tells ``size``, or the right one."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, size or 20 + len(body), 7, field, 64, UDP, 0) + pools.OWN4 + pools.PEER4
    return ELSEWHERE + pools.MAC + b"\x08\0" + head[:10] + checksum(head) + head[12:] + body


def ip6(body: bytes, protocol: int = UDP, size: int = 0, hops: int = 64) -> bytes:
    """IPv6 whose header tells ``size``, or the right one."""
    head = struct.pack("!IHBB", 6 << 28, size or len(body), protocol, hops)
    return ALL6 + pools.MAC + b"\x86\xdd" + head + pools.OWN6 + NODES6 + body


def fragment6(body: bytes, field: int, size: int = 0) -> bytes:
    """A fragment of UDP."""
    return ip6(struct.pack("!BBHI", UDP, 0, field, 7) + body, 44, size)


def pieces(size: int, start: int = 34) -> Header:
    """UDP that the kernel is to cut into pieces of so many bytes."""
    return Header(NEEDS_CSUM, UDP_WHOLE, start + 8, size, start, 6)


ARP_REQUEST = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)


class Case(NamedTuple):
    """A frame that the kernel and ovs-vswitchd read differently, and a good one that the kernel has the same key for."""

    name: str
    bad: Sent
    good: Sent
    mark: bytes = MARK


OPTIONS = b"\x01\x01\x0c" + bytes(12)  #: what follows the number of the next header, 16 bytes with it
ECHO = b"\x80\0\0\0\0\1\0\1" + bytes(32)
SOLICITATION = b"\x87" + bytes(7) + pools.PEER6 + b"\1\1" + pools.MAC
NEIGHBOUR = ip6(SOLICITATION, ICMP6, hops=255)
CASES = (
    Case("pieces without ports", (pieces(7), ip4(udp(1))), (PLAIN, ip4(udp(1), field=FIRST))),
    Case("pieces of a byte", (pieces(1), ip4(udp(2))), (pieces(32), ip4(udp(2)))),
    Case("pieces over IPv6", (pieces(7, 54), ip6(udp(3))), (PLAIN, fragment6(udp(3), 1))),
    Case("ports beyond the length", (PLAIN, ip4(udp(4), 24)), (PLAIN, ip4(udp(4)))),
    Case("ports of a fragment beyond the length", (PLAIN, ip4(udp(5), 24, FIRST)), (PLAIN, ip4(udp(5), field=FIRST))),
    Case("a later fragment that is too short", (PLAIN, ip4(bytes(64), 1000, 370)), (PLAIN, ip4(MARK * 4, field=370))),
    Case("ports beyond the length, IPv6", (PLAIN, ip6(udp(6), size=4)), (PLAIN, ip6(udp(6)))),
    Case("headers beyond the length", (PLAIN, ip6(b"\x3a" + OPTIONS + ECHO, 0, 8, 255)), (PLAIN, NEIGHBOUR), SOLICITATION),
    Case("headers beyond the length, UDP", (PLAIN, ip6(b"\x11" + OPTIONS + udp(7), 0, 8)), (PLAIN, ip6(udp(7)))),
    Case("a later fragment of IPv6 too short", (PLAIN, fragment6(bytes(64), 370 << 3, 1000)), (PLAIN, fragment6(MARK * 4, 370 << 3))),
)


def arrives(place: Place, case: Case) -> bool:
    """Tell whether another guest gets the good frame when it is sent once."""
    return any(case.mark in each.frame for each in place.exchange([case.good]) if each.receiver == "tap1")


def another_guest(place: Place, case: Case) -> bool:
    """Tell whether the same arrives when another guest sends it, from its own MAC."""
    (header, frame), other = case.good, place.receivers[0]
    assert isinstance(other, TapReceiver)
    for _ in range(ASKED):
        os.write(other.tap.descriptor, raw(header) + frame[:6] + hardware(PEER_MAC) + frame[12:])
        if any(case.mark in each.frame for each in place.exchange([]) if each.receiver == "tap2+offloads"):
            return True
    return False


def entries(place: Place) -> Entries:
    """List what the kernel remembers of the guest's frames."""
    assert place.entries is not None
    return place.entries


def lost(place: Place) -> list[str]:
    """The cases whose good frame does not pass after the bad one."""
    found = []
    for case in CASES:
        entries(place).forget()
        place.exchange([case.bad])
        if not any(arrives(place, case) for _ in range(ASKED)):
            assert another_guest(place, case), case.name
            found.append(case.name)
            print(case.name, *entries(place).drops(), sep="\n  ")
    return found


def test_good_frames_of_the_same_key_pass(switched: Place) -> None:
    switched.up(SETTINGS[0])
    assert lost(switched) == []


def test_they_would_not_with_the_flows_that_stand_alone(switched: Place) -> None:
    """Each case is one: what drops frames that are cut off where nobody else does takes the good ones along, but no other port's."""
    switched.up(SETTINGS[0])
    port = run("ovs-vsctl", "get", "Interface", "tap0", "ofport").strip()
    for flow in ALONE:
        run("ovs-ofctl", "-O", "OpenFlow14", "add-flow", "ovs0", f"in_port={port},{flow},actions=drop")
    assert lost(switched) == [case.name for case in CASES]


def test_a_checksum_that_is_written_over_what_the_switch_reads(switched: Place) -> None:
    """The limit: ovs-vswitchd gets the frame with it, the kernel's key is without. It takes the guest's own good frames, until it goes."""
    switched.up(SETTINGS[0])
    request = ALL + pools.MAC + b"\x08\x06" + ARP_REQUEST + pools.MAC + pools.OWN4 + bytes(6) + pools.PEER4 + MARK
    case = Case("ARP", (Header(NEEDS_CSUM, csum_start=14, csum_offset=6), request), (PLAIN, request))
    assert another_guest(switched, case), "the switch knows where it is"  # else it learns that later, and looks at all entries again
    entries(switched).forget()
    switched.exchange([case.bad])
    assert not any(arrives(switched, case) for _ in range(ASKED))
    (entry,) = entries(switched).drops()
    assert entries(switched).passes(request)
    assert another_guest(switched, case)
    assert entry in entries(switched).drops()
    arrived = remembered(switched, case.good)
    assert arrived is not None
    assert {each.receiver for each in arrived if MARK in each.frame} == {each.name for each in switched.receivers}
