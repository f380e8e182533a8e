"""What a guest says in its frames' virtio-net headers (virtio 1.2, 5.1.6): the kernel cuts such a frame up after the guard has seen it."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.kernel.test_guard_verdicts import MAC, OWN4, OWN6, UDP, bootp, fragment6, ip4, ip6, length0, nd, udp
from tests.kernel.test_rate import BRIDGED
from tests.support.frames import mac_bytes
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor

VICTIM = "aa:00:00:00:00:02"
NONE, TCP4, UFO, TCP6, USO, ECN = 0, 1, 3, 4, 5, 0x80
TYPES = {"none": NONE, "TCPv4": TCP4, "UDP": UFO, "UDP ECN": UFO | ECN, "TCPv6": TCP6, "UDP_L4": USO, "unknown": 77}
CHECKSUM = 1  #: VIRTIO_NET_HDR_F_NEEDS_CSUM
OFFER = udp(67, 68, bootp(2, VICTIM) + bytes(76))
FOREIGN = udp(68, 67, bootp(1, VICTIM) + bytes(76))


class Arrived(NamedTuple):
    """A frame of UDP over IPv4 or IPv6 at the other end."""

    offset: int  #: of its fragment, in bytes
    body: bytes  #: what follows the IP headers

    @property
    def ports(self) -> tuple[int, int]:
        """Those of a receiver that takes a first fragment for a whole datagram, as DHCP clients do; (0, 0) of a later fragment."""
        source, destination = struct.unpack("!HH", self.body[:4]) if not self.offset and len(self.body) > 3 else (0, 0)
        return source, destination


def header(kind: int, size: int, flags: int = 0, start: int = 34) -> bytes:
    """A struct virtio_net_hdr, little-endian as the tap has it by default on this machine's kind; ``size``: gso_size."""
    return struct.pack("=BBHHHH", flags, kind, 42, size, start if flags else 0, 6 if flags else 0)


def arrived(frame: bytes) -> Arrived | None:
    """The frame as UDP, None where it is none."""
    kind, packet = frame[12:14], frame[14:]
    if kind == b"\x08\x00" and packet[9] == UDP:
        return Arrived(8 * (int.from_bytes(packet[6:8], "big") & 0x1FFF), packet[4 * (packet[0] & 15) :])
    if kind == b"\x86\xdd" and packet[6] == UDP:
        return Arrived(0, packet[40:])
    if kind == b"\x86\xdd" and packet[6] == 44 and packet[40] == UDP:
        return Arrived(int.from_bytes(packet[42:44], "big") & 0xFFF8, packet[48:])
    return None


class Wire:
    """A guarded guest, and another one on the same bridge, which takes no offload: the kernel cuts up what is for it."""

    def __init__(self, node: Node) -> None:
        node.bridge("br0")
        self.guest, self.victim = node.tap("tap0"), node.tap("tap1")
        run("ip", "link", "set", "tap1", "master", "br0", "up")

    def up(self, tags: str = "") -> None:
        tags = f"netcommon:*:spoof_guard netcommon:*:addresses:{OWN6} {tags}"
        assert rundoor("kvm-ifup", environment(**{**BRIDGED, "IP": OWN4, "MAC": MAC, "TAGS": tags})).status == 0

    def sent(self, vnet: bytes, frame: bytes) -> list[Arrived]:
        """What comes of a frame at the victim; a frame that nothing is wrong with, sent after it, shows that no more comes."""
        try:
            os.write(self.guest.descriptor, vnet + frame)
        except OSError:
            pass  # the kernel takes no such header from anybody
        last = ip4(OWN4, udp(1, 2, os.urandom(16)))
        self.guest.send(last)
        found: list[Arrived | None] = []

        def is_last(seen: bytes) -> bool:
            found.append(arrived(seen))
            return seen[14:] == last[14:]

        assert self.victim.receive(is_last) is not None
        return [each for each in found[:-1] if each is not None]


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    return Wire(node)


def attacks() -> Iterator[tuple[str, bytes]]:
    """Frames of which each is harmless as it stands, or dropped without any header."""
    for name, body in (("offer", OFFER), ("foreign chaddr", FOREIGN)):
        for offset in (1, 2, 185, 0x1FFF):
            for more in (0, 0x2000):
                yield f"{name}, later fragment {offset} {more:#x}", ip4(OWN4, body, fragment=offset | more)
        yield f"{name}, later fragment without a length", length0(ip4(OWN4, body, fragment=1))
        yield f"{name}, later fragment with IP options", ip4(OWN4, body, fragment=1, options=b"\1\1\1\0")
        yield f"{name}, first fragment", ip4(OWN4, body, fragment=0x2000)
        yield f"{name}, reserved bit", ip4(OWN4, body, fragment=0x8001)
        yield f"{name}, IPv6 later fragment", ip6(OWN6, fragment6(body, 1, 0, UDP), 44)
        yield f"{name}, IPv6 later fragment, more", ip6(OWN6, fragment6(body, 1, 1, UDP), 44)
    yield "DHCPv6 server, later fragment", ip6(OWN6, fragment6(udp(547, 546, b"\2abc" + bytes(300)), 1, 0, UDP), 44)


@pytest.mark.parametrize("kind", TYPES)
def test_no_header_makes_a_dhcp_message(wire: Wire, kind: str) -> None:
    """Whatever the header says, nothing arrives that a DHCP client or server would take for a message of its protocol."""
    wire.up()
    bad = []
    for name, frame in attacks():
        for size in (8, 16, 256, 320, 1000):
            for flags in (0, CHECKSUM):
                for each in wire.sent(header(TYPES[kind], size, flags), frame):
                    if each.ports[0] in (67, 547) or each.ports[1] in (67, 68, 546, 547):
                        bad.append((name, size, flags, each.ports))
    assert bad == []


def test_the_kernel_makes_a_first_fragment_of_a_later_one(wire: Wire) -> None:
    """Without the guard the attack works: else the test above says nothing."""
    wire.up("netcommon:*:allow_dhcp_spoofing")
    found = wire.sent(header(UFO, 256), ip4(OWN4, OFFER, fragment=1))
    assert (67, 68) in [each.ports for each in found]


def test_what_is_no_attack_arrives(wire: Wire) -> None:
    """A datagram that the guest has the kernel cut into fragments, and fragments of its own."""
    wire.up()
    body = bytes(range(256)) * 10
    found = wire.sent(header(UFO, 1472), ip4(OWN4, udp(5000, 6000, body)))
    assert b"".join(each.body for each in found)[8:] == body and found[0].ports == (5000, 6000)
    for offset in (185, 370):
        assert [each.offset for each in wire.sent(header(NONE, 0), ip4(OWN4, body[:1400], fragment=offset))] == [8 * offset]
    found = wire.sent(header(USO, 1000, CHECKSUM), ip4(OWN4, udp(5000, 6000, body)))
    assert not found or b"".join(each.body[8:] for each in found) == body  # Linux knows this kind from 6.2 on


def test_a_datagram_to_several_ports(wire: Wire, node: Node) -> None:
    """Each port gets it as it is, whatever the kernel does to it for another one: none sees bytes of it as an Ethernet header."""
    wire.up()
    third = node.tap("tap2")
    run("ip", "link", "set", "tap2", "master", "br0", "up")
    body = bytes(range(256)) * 8
    own = {mac_bytes(each["address"]) for each in json.loads(run("ip", "-j", "link"))}  # the node reports its groups meanwhile
    for start in (54, 62):
        frame = ip6(OWN6, udp(5000, 6000, body), UDP)
        os.write(wire.guest.descriptor, header(UFO, 1000, CHECKSUM, start) + frame)
        last = ip4(OWN4, udp(1, 2, os.urandom(16)))
        wire.guest.send(last)
        for tap in (wire.victim, third):
            seen: list[bytes] = []

            def is_last(one: bytes, to: list[bytes] = seen, last: bytes = last) -> bool:
                to.append(one)
                return one[14:] == last[14:]

            assert tap.receive(is_last) is not None
            strange = [one[:14].hex() for one in seen if one[6:12] not in own and one[:14] not in (frame[:14], last[:14])]
            assert strange == []
            assert start != 54 or sum(len(one) for one in seen) > len(body)


HIDDEN = {
    "router advertisement": nd(134) + bytes(4100),
    "advertisement": nd(136, "2001:db8::6") + bytes(4100),
    "behind options": bytes((58, 0, 1, 4, 0, 0, 0, 0)) + nd(134) + bytes(4100),
}


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("length", [14, 20, 40, 53, 54, 0])
def test_a_long_frame_of_which_little_is_in_one_piece(wire: Wire, node: Node, kind: str, length: int) -> None:
    """The guest says how much of a frame the kernel puts into the first piece (hdr_len), where it looks for headers."""
    for name in ("br0", "tap0", "tap1"):
        run("ip", "link", "set", name, "mtu", "9000")
    wire.up()
    following = 60 if kind == "behind options" else 58
    for _ in range(20):
        os.write(wire.guest.descriptor, struct.pack("=BBHHHH", 0, 0, length, 0, 0, 0) + ip6(OWN6, HIDDEN[kind], following))
    last = ip4(OWN4, udp(1, 2, os.urandom(16)))
    wire.guest.send(last)
    found: list[bytes] = []

    def is_last(seen: bytes) -> bool:
        found.append(seen)
        return seen[14:] == last[14:]

    assert wire.victim.receive(is_last) is not None
    assert [each[:64].hex() for each in found[:-1] if len(each) > 4000] == []
