"""Open vSwitch's kernel datapath: an entry that a malformed frame has made takes none of the guest's own good ones.

The kernel makes the key of an entry, ovs-vswitchd reads the frame once more and decides. Where the two read a frame differently the entry
says of all frames with that key what was decided about this one, as long as some of them come.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from tests.support.attacks import SETTINGS
from tests.support.frames import checksum
from tests.support.fuzz import place as places
from tests.support.fuzz import pools
from tests.support.fuzz.honest import ALL, ALL6, NODES6, UDP, Grammar, Honest
from tests.support.fuzz.offload import NEEDS_CSUM, UDP_WHOLE
from tests.support.fuzz.oracle import PLAIN, Header
from tests.support.fuzz.place import Place, Sent
from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch

UDP_HEADER = struct.pack("!HHHH", 1000, 2000, 72, 0)
ASKED = 5  #: how often a frame is sent: the queue of what the switch is asked about may have been full
CONTROL = "/var/run/openvswitch/vswitchd.ctl"


def ip4(body: bytes, size: int, field: int = 0) -> bytes:
    """UDP over IPv4 whose header tells ``size``."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, size, 7, field, 64, UDP, 0) + pools.OWN4 + b"\xff" * 4
    return ALL + pools.MAC + b"\x08\0" + head[:10] + checksum(head) + head[12:] + body


def ip6(body: bytes, size: int, protocol: int) -> bytes:
    """IPv6 whose header tells ``size``."""
    return ALL6 + pools.MAC + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, size, protocol, 64) + pools.OWN6 + NODES6 + body


class Case(NamedTuple):
    """A frame that the kernel and ovs-vswitchd read differently, and a good one of the same key: a method of the grammar, and its name."""

    name: str
    sent: Sent
    method: str
    good: str


def pieces(size: int) -> Header:
    """UDP over IPv4 that the kernel is to cut into pieces of so many bytes."""
    return Header(NEEDS_CSUM, UDP_WHOLE, 42, size, 34, 6)


#: The flows that the guard has where it is made of flows alone.
ALONE = (
    *(f"priority=65040,reg13=0x40000000/0xe0000000,{family},nw_proto=0" for family in ("ip", "ipv6")),
    *(f"priority=65040,reg13=0x40000000/0xe0000000,{protocol},nw_frag=no,tp_src=0,tp_dst=0" for protocol in ("udp", "udp6")),
    "priority=65010,reg13=0xa0000000/0xe0000000,reg14=0",
)
ECHO = b"\x80\0\0\0\0\1\0\1" + bytes(32)
OPTIONS = b"\x01\x0c" + bytes(12)
LATER = struct.pack("!BBHI", UDP, 0, 370 << 3, 7)
DATAGRAM = UDP_HEADER + bytes(64)
CASES = (
    Case("pieces without ports", (pieces(7), ip4(DATAGRAM, 92)), "fragments", "IPv4 fragment 0"),
    Case("pieces of a byte", (pieces(1), ip4(DATAGRAM, 92)), "large", "UFO"),
    Case("pieces of IPv6", (pieces(7)._replace(hdr_len=62, csum_start=54), ip6(DATAGRAM, 72, UDP)), "fragment6", "IPv6 fragment 0"),
    Case("ports beyond the length", (PLAIN, ip4(DATAGRAM, 24)), "datagram", "UDP"),
    Case("ports of a fragment beyond the length", (PLAIN, ip4(DATAGRAM, 24, 0x2000)), "fragments", "IPv4 fragment 0"),
    Case("a later fragment that is too short", (PLAIN, ip4(bytes(64), 1000, 370)), "fragments", "IPv4 fragment 2"),
    Case("ports beyond the length, IPv6", (PLAIN, ip6(DATAGRAM, 4, UDP)), "datagram6", "UDP over IPv6"),
    Case("headers beyond the length", (PLAIN, ip6(b"\x3a\x01" + OPTIONS + ECHO, 8, 0)), "solicitation", "NS"),
    Case("headers beyond the length, UDP", (PLAIN, ip6(b"\x11\x01" + OPTIONS + DATAGRAM, 8, 0)), "datagram6", "UDP over IPv6"),
    Case("a later fragment of IPv6 that is too short", (PLAIN, ip6(LATER + bytes(64), 1000, 44)), "fragment6", "IPv6 fragment 2"),
)


@pytest.fixture
def place(node: Node) -> Iterator[Place]:
    with OpenVswitch.started("system") as ovs:
        found = places.openvswitch(node, ovs)
        yield found
        found.close()


def good(place: Place, case: Case, rng: Random) -> Honest:
    """A good frame for the case, without options in its IP header."""
    grammar = Grammar(place.mode, place.facts, uso=False)
    while True:
        made: Honest = getattr(grammar, case.method)(rng)
        if made.name == case.good and len(made.sent[1]) <= place.longest and b"\x94\4" not in made.sent[1]:
            return made


def entries() -> list[str]:
    """What the kernel remembers to drop."""
    return [line for line in run("ovs-appctl", "-t", CONTROL, "dpctl/dump-flows").splitlines() if line.endswith("actions:drop")]


def arrives(place: Place, made: Honest) -> bool:
    """Tell whether another guest gets it when it is sent once."""
    heard = b"".join(each.frame for each in place.exchange([made.sent]) if each.receiver == "tap1")
    return all(mark in heard for mark in made.marks)


def lost(place: Place) -> dict[str, list[str]]:
    """The cases whose good frame does not pass, and what the kernel remembers then."""
    rng, found = Random(1), dict[str, list[str]]()
    for case in CASES:
        run("ovs-appctl", "-t", CONTROL, "dpctl/del-flows")
        came = place.exchange([case.sent])
        made = good(place, case, rng)
        if not any(arrives(place, made) for _ in range(ASKED)):
            found[case.name] = entries()
        print(f"{case.name}: {[(x.receiver, len(x.frame)) for x in came]} {found.get(case.name)} {entries()}", flush=True)
    return found


def test_good_frames_of_the_same_key_pass(place: Place) -> None:
    place.up(SETTINGS[0])
    assert lost(place) == {}


def test_they_would_not_with_the_flows_that_stand_alone(place: Place) -> None:
    """Each case is one: what drops frames that are cut off where nobody else does takes the good ones along."""
    place.up(SETTINGS[0])
    port = run("ovs-vsctl", "get", "Interface", "tap0", "ofport").strip()
    for flow in ALONE:
        run("ovs-ofctl", "-O", "OpenFlow14", "add-flow", "ovs0", f"in_port={port},{flow},actions=drop")
    assert sorted(lost(place)) == sorted(case.name for case in CASES)
