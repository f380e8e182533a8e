"""The option node_access on the running kernel: the guest's own frames, in every form that the kernel takes for the node's."""

from __future__ import annotations

import ipaddress
import itertools
import json
import select
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import pytest

from netcommon.views.trace.request import subject, trace
from tests.kernel.test_node_access import GUEST4, GUEST6, MODES, ON_BOTH, OTHER4, OTHER6, WAIT, Place, listening
from tests.support.frames import BROADCAST, IPV4, IPV6, checksum, mac_bytes
from tests.support.netns import run, slowness
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, MAC, ours, reaches

pytestmark = pytest.mark.sampled(3)

UDP, FRAGMENT, OPTIONS, HOPS = 17, 44, 60, 0
REFUSED, TAKEN = 1234, 53  #: ports


def reassembled() -> tuple[int, int]:
    """Count how many fragments of IPv4 and IPv6 the node has kept, to put them together."""
    four, six = (Path(f"/proc/thread-self/net/{name}").read_text().splitlines() for name in ("snmp", "snmp6"))
    names, values = (line.split() for line in four if line.startswith("Ip: "))
    found = dict(zip(names, values, strict=True)) | dict(line.split() for line in six)
    return int(found["ReasmReqds"]), int(found["Ip6ReasmReqds"])


class Wire:
    """The guest's frames as it likes, and whether they came to the node's services: each bears a word of its own."""

    def __init__(self, place: Place) -> None:
        self.place, self.mac = place, json.loads(run("ip", "-j", "link", "show", "dev", place.device))[0]["address"]
        with place.guest.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self.socket.bind(("eth0", 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.socket.close()

    def frame(self, packet: bytes, destination: str = "", tags: bytes = b"") -> bytes:
        kind = IPV6 if packet[0] >> 4 == 6 else IPV4
        return mac_bytes(destination or self.mac) + mac_bytes(MAC) + tags + struct.pack("!H", kind) + packet

    def came(self, frames: Iterable[bytes], word: bytes, port: int) -> bool:
        """Tell whether the service at ``port`` gets ``word`` by these frames."""
        with listening() as services:
            there = [one for one, service in services.items() if service == f"udp/{port}"]
            for each in frames:
                self.socket.send(each)
            return any(word in one.recv(4000) for one in select.select(there, [], [], WAIT / 3 * slowness())[0])


def udp(source: str, destination: str, port: int, word: bytes, sport: int = 4000) -> bytes:
    ends = b"".join(ipaddress.ip_address(each).packed for each in (source, destination))
    body = struct.pack("!HHHH", sport, port, 8 + len(word), 0) + word
    return body[:6] + (checksum(ends + struct.pack("!II", len(body), UDP) + body)) + body[8:]


def ip4(destination: str, body: bytes, place: int = 0, more: bool = False, options: bytes = b"", protocol: int = UDP) -> bytes:
    flags, total = place // 8 | more << 13, 20 + len(options) + len(body)
    head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, total, 7, flags, 64, protocol, 0)
    head += ipaddress.ip_address(GUEST4).packed + ipaddress.ip_address(destination).packed + options
    return head[:10] + checksum(head) + head[12:] + body


def ip6(destination: str, body: bytes, following: int = UDP, source: str = GUEST6) -> bytes:
    ends = b"".join(ipaddress.ip_address(each).packed for each in (source, destination))
    return struct.pack("!IHBB", 6 << 28, len(body), following, 64) + ends + body


def fragment(body: bytes, place: int, more: bool, following: int = UDP, number: int = 7) -> bytes:
    return struct.pack("!BBHI", following, 0, place | more, number) + body


#: For each datagram its own: of one whose first part is dropped, the node keeps the others for a minute, and would put them to the next.
NUMBERS = itertools.count(8)


PAD = bytes((UDP, 0, 1, 4, 0, 0, 0, 0))  #: an extension header of eight bytes, with nothing in it, before UDP
WORD = b"a word that is long enough for three fragments"


def shapes(own4: str, own6: str, port: int) -> dict[str, list[tuple[bytes, str]]]:
    """The same datagram in many forms: packets, and the MAC that they are for ("": the node's)."""
    four, six = udp(GUEST4, own4, port, WORD), udp(GUEST6, own6, port, WORD)
    one, first, last, hidden = (next(NUMBERS) for _datagram in range(4))
    group6, groups6 = udp(GUEST6, "ff02::1", port, WORD), "33:33:00:00:00:01"
    tail = [ip4(own4, four[8:24], 8, True), ip4(own4, four[24:], 24)]
    return {
        "IPv4": [(ip4(own4, four), "")],
        "IPv4 with options": [(ip4(own4, four, options=b"\x01" * 8), "")],
        "IPv4 in fragments": [(ip4(own4, four[:8], more=True), ""), *((each, "") for each in tail)],
        "IPv4 in fragments, the last first": [*((each, "") for each in reversed(tail)), (ip4(own4, four[:8], more=True), "")],
        "IPv4 to everybody's MAC": [(ip4(own4, four), BROADCAST)],
        "IPv4 to a group's MAC": [(ip4(own4, four), "01:00:5e:00:00:01")],
        "IPv4 to a link-local group's MAC": [(ip4(own4, four), "01:80:c2:00:00:0e")],
        "IPv4 to the spanning tree's MAC": [(ip4(own4, four), "01:80:c2:00:00:00")],
        "IPv4 broadcast": [(ip4("255.255.255.255", udp(GUEST4, "255.255.255.255", port, WORD)), BROADCAST)],
        "IPv4 multicast": [(ip4("224.0.0.1", udp(GUEST4, "224.0.0.1", port, WORD)), "01:00:5e:00:00:01")],
        "IPv6": [(ip6(own6, six), "")],
        "IPv6 with hop-by-hop options": [(ip6(own6, PAD + six, HOPS), "")],
        "IPv6 with destination options": [(ip6(own6, PAD + six, OPTIONS), "")],
        "IPv6 with many headers": [(ip6(own6, bytes((OPTIONS,)) + PAD[1:] + PAD + six, HOPS), "")],
        "IPv6, one fragment": [(ip6(own6, fragment(six, 0, False, number=one), FRAGMENT), "")],
        "IPv6 in fragments": [
            (ip6(own6, fragment(six[:24], 0, True, number=first), FRAGMENT), ""),
            (ip6(own6, fragment(six[24:], 24, False, number=first), FRAGMENT), ""),
        ],
        "IPv6 in fragments, the last first": [
            (ip6(own6, fragment(six[24:], 24, False, number=last), FRAGMENT), ""),
            (ip6(own6, fragment(six[:24], 0, True, number=last), FRAGMENT), ""),
        ],
        "IPv6 in fragments, of destination options": [
            (ip6(own6, fragment(PAD + six[:16], 0, True, OPTIONS, hidden), FRAGMENT), ""),
            (ip6(own6, fragment(six[16:], 24, False, OPTIONS, hidden), FRAGMENT), ""),
        ],
        "IPv6 to everybody's MAC": [(ip6(own6, six), BROADCAST)],
        "IPv6 to a link-local group's MAC": [(ip6(own6, six), "01:80:c2:00:00:0e")],
        "IPv6 multicast": [(ip6("ff02::1", group6), groups6)],
    }


def tracked() -> bool:
    """Tell whether this namespace tracks connections, which puts fragments together before anything reads them.

    It does where somebody's rules ask for it, and on kernels such as Debian 12's wherever the module openvswitch is loaded
    (nf_conncount_init); then what has passed by now is counted.
    """
    counted = Path("/proc/sys/net/netfilter/nf_conntrack_count")
    return counted.exists() and int(counted.read_text()) > 0


#: What comes in no form: not whole, and read before it is put together. IPv4 for a routed guest's node is put together before.
IN_PARTS = {name for name in shapes(OTHER4, OTHER6, 1) if "fragment" in name}


#: What the spoof guard drops by itself (docs/spoof-guard.md): a first fragment that does not show its last header.
GUARDED = {"IPv6 in fragments, of destination options"}


@pytest.mark.parametrize("guard", ["guarded", pytest.param("unguarded", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ON_BOTH)
def test_whatever_it_looks_like(node: Node, mode: str, guard: str) -> None:
    """No form of a packet gets to a service that is not allowed, of those that get there without the option."""
    place = Place(node, mode)
    more = ("spoof_guard:no",) if guard == "unguarded" else ()

    def got(port: int) -> set[str]:
        with Wire(place) as wire:
            made = {
                name: [wire.frame(packet, there) for packet, there in packets] for name, packets in shapes(OTHER4, OTHER6, port).items()
            }
            return {name for name, frames in made.items() if wire.came(frames, WORD, port)}

    place.up("all", *more)
    usual = set(shapes(OTHER4, OTHER6, REFUSED)) - (set() if more else GUARDED)
    assert got(REFUSED) == usual
    place.up("none", *more)
    assert got(REFUSED) == set()
    place.up("udp/53", *more)
    before = reassembled()
    assert got(REFUSED) == set()
    whole_here = set() if place.bridged else {each for each in IN_PARTS if "IPv4" in each or tracked()}
    assert usual - got(TAKEN) == usual & (IN_PARTS - whole_here)
    first = 0 if mode == "bridged" else 1  # of IPv4 what else comes to input is put together before
    assert reassembled()[first:] == before[first:]


def until(place: Place, raw: socket.socket, packets: Iterable[bytes], last: Callable[[bytes], bool]) -> list[bytes]:
    """What of ``packets`` comes to a raw socket of the node, up to the last one, which does come."""
    found: list[bytes] = []
    with raw, Wire(place) as wire:
        for each in packets:
            wire.socket.send(wire.frame(each))
        while not found or not last(found[-1]):
            assert select.select([raw], [], [], 5)[0], "the last one did not come"
            found.append(raw.recv(4000))
    return found


def icmp6(kind: int) -> bytes:
    ends, body = b"".join(ipaddress.ip_address(each).packed for each in (GUEST6, OTHER6)), bytes((kind, 0, 0, 0)) + bytes(24)
    return ip6(OTHER6, body[:2] + checksum(ends + struct.pack("!II", len(body), 58) + body) + body[4:], 58)


NEEDED4, NEEDED6 = {0, 3, 11, 12}, {1, 2, 3, 4, 129, 130, 131, 132, 133, 135, 136, 143}
ACK, RESET = 0x10, 0x04


@pytest.mark.parametrize("allowed", ["none", "icmp"])
@pytest.mark.parametrize("mode", MODES)
def test_what_a_mode_needs(node: Node, mode: str, allowed: str) -> None:
    """Of all types of ICMP and ICMPv6 those of errors, answers, discovery and groups; of TCP what begins no connection; IGMP."""
    place = Place(node, mode)
    place.up(allowed, "spoof_guard:no")
    pings4, pings6 = ({8}, {128}) if allowed == "icmp" else (set(), set())
    # the last packet of each kind is one that always comes
    body = struct.pack("!BBHI", 0, 0, 0, 0)
    four = [ip4(OTHER4, (now := bytes((kind,)) + body[1:])[:2] + checksum(now) + now[4:], protocol=1) for kind in (*range(1, 256), 0)]
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    assert {each[20] for each in until(place, raw, four, lambda one: one[20] == 0)} == NEEDED4 | pings4
    raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    six = [icmp6(kind) for kind in (*range(129), *range(130, 256), 129)]
    assert {each[0] for each in until(place, raw, six, lambda one: one[0] == 129)} == NEEDED6 | pings6
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    flags = [ip4(OTHER4, struct.pack("!HHIIBBHHH", 4000, 80, 1, 1, 0x50, each, 1, 0, 0), protocol=6) for each in range(256)]
    came = {each[33] for each in until(place, raw, flags, lambda one: one[33] == 255)}
    assert came == {each for each in range(256) if each & (ACK | RESET)}


@pytest.mark.parametrize("mode", MODES)
def test_other_protocols(node: Node, mode: str) -> None:
    """Tunnels, SCTP and all else do not get to the node, IGMP does."""
    place = Place(node, mode)
    place.up("tcp/80 udp/53 icmp")
    for protocol in (4, 41, 47, 50, 89, 112, 132, 136, 255):
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as raw, Wire(place) as wire:
            wire.socket.send(wire.frame(ip4(OTHER4, bytes(16), protocol=protocol)))
            igmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
            assert until(place, igmp, [ip4(OTHER4, b"\x16" + bytes(7), protocol=2)], lambda one: one[9] == 2)
            assert not select.select([raw], [], [], 0)[0], protocol


def reader(kind: int) -> socket.socket:
    """What reads frames of a type off the bridge."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
    made.bind(("br0", kind))
    return made


@pytest.mark.parametrize("mode", MODES[:-1])
def test_dhcp(node: Node, mode: str) -> None:
    """A broadcast gets neither to a server's socket nor to one that reads packets off the bridge, as several servers do, but if allowed."""
    place = Place(node, mode)
    hardware = bytes.fromhex(MAC.replace(":", ""))
    discover = struct.pack("!BBBBIHH16s6s10x", 1, 1, 6, 0, 7, 0, 0, bytes(16), hardware) + bytes(192) + bytes.fromhex("6382536335010100ff")
    packet = ip4("255.255.255.255", udp("0.0.0.0", "255.255.255.255", 67, discover, 68))
    packet = packet[:10] + checksum(packet[:10] + bytes(6) + packet[16:20]) + bytes(4) + packet[16:]

    def served() -> tuple[bool, bool]:
        with Wire(place) as wire, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain, reader(IPV4) as reading:
            plain.bind(("", 67))
            wire.socket.send(wire.frame(packet, BROADCAST))
            wire.socket.send(wire.frame(ip4(OTHER4, udp(GUEST4, OTHER4, 9, b"the last"))))  # packet sockets get it
            seen, heard = [b""], bool(select.select([plain], [], [], WAIT / 3 * slowness())[0])
            while b"the last" not in seen[-1]:
                assert select.select([reading], [], [], 5)[0]
                seen.append(reading.recv(4000))
            return heard, any(discover in each for each in seen)

    for allowed, verdict in (("all", True), ("none", False), ("udp/53 tcp/67", False), ("udp/67", True)):
        place.up(allowed)
        assert served() == (verdict, verdict), allowed


def test_other_frames(node: Node) -> None:
    """A service that reads frames off the bridge gets none from the guest that are neither IP nor ARP."""
    place = Place(node, "bridged")
    for allowed, came in (("all", True), ("none", False)):
        place.up(allowed, "allow_restricted_traffic")
        with Wire(place) as wire, reader(0x88A2) as reading:
            for there in (wire.mac, BROADCAST):
                wire.socket.send(mac_bytes(there) + mac_bytes(MAC) + b"\x88\xa2" + bytes(50))
                assert bool(select.select([reading], [], [], WAIT / 3 * slowness())[0]) is came, there
                if came:
                    reading.recv(100)


RULES_OF_OTHERS = """
table inet theirs {
  chain prerouting { type filter hook prerouting priority -150; meta mark set ct mark or 5; }
  chain forward { type filter hook forward priority -150; meta mark & 0x40000000 != 0 counter; }
  chain postrouting { type filter hook postrouting priority -150; meta mark & 0x40000000 != 0 counter; }
}
"""


@pytest.mark.vm
@pytest.mark.slow
def test_devices_on_the_bridge(node: Node) -> None:
    """What leaves the bridge by a VLAN's device on it, with one tag or two, is known by its tap; behind two tags nothing is allowed."""
    place = Place(node, "bridged")
    place.up("all", "spoof_guard:no")  # a bridge without a port has no MAC for what is on it
    for name, under, vid, address in (("br0.10", "br0", "10", "10.10.0.254/24"), ("br0.10.20", "br0.10", "20", "10.20.0.254/24")):
        run("ip", "link", "add", "link", under, "name", name, "type", "vlan", "id", vid)
        run("ip", "link", "set", name, "up")
        node.address(name, address)
    one, two = b"\x81\0\0\x0a", b"\x81\0\0\x0a\x81\0\0\x14"

    def got(port: int) -> list[bool]:
        with Wire(place) as wire:
            found = []
            for address, tags in (("10.10.0.254", one), (OTHER4, one), ("10.20.0.254", two)):
                frame = wire.frame(ip4(address, udp(GUEST4, address, port, WORD)), tags=tags)
                found.append(wire.came([frame], WORD, port))
            return found

    for allowed, verdict in (("all", [True] * 3), ("none", [False] * 3), ("udp/53", [True, True, False])):
        place.up(allowed, "spoof_guard:no")
        assert got(TAKEN) == verdict, allowed
        assert got(REFUSED) == [allowed == "all"] * 3, allowed


@pytest.mark.parametrize("mode", MODES)
def test_marks_of_others(node: Node, mode: str) -> None:
    """Rules that overwrite marks open nothing, and what is forwarded leaves without our bit."""
    place = Place(node, mode)
    run("nft", "-f", "-", stdin=RULES_OF_OTHERS.replace("meta mark set ct mark or 5;", ""))
    place.up("none")
    assert place.reached() == set() and reaches(place.guest, FAR4, FAR6) == [FAR4, FAR6]
    assert run("nft", "list", "table", "inet", "theirs").count("counter packets 0 bytes 0") == 2
    run("nft", "-f", "-", stdin="delete table inet theirs" + RULES_OF_OTHERS)
    assert place.reached() == set() and reaches(place.guest, FAR4, FAR6) == [FAR4, FAR6]


@pytest.mark.parametrize("mode", MODES)
def test_trace_says_it(node: Node, mode: str) -> None:
    """netcommon trace follows the rules: what is for the node and not allowed is dropped, what is allowed or forwarded is not."""
    place = Place(node, mode)
    place.up("udp/53")
    with Wire(place) as wire, ours() as mine:
        view, (record,) = mine.host.snapshot(), mine.store.all()[0]
        found = []
        for address, port in ((OTHER4, REFUSED), (OTHER4, TAKEN), (FAR4, REFUSED)):
            frame = wire.frame(ip4(address, udp(GUEST4, address, port, WORD)))
            found.append(any("node_access" in end for end in trace(view, subject(record, [record]), "from", frame, {}).ends))
    assert found == [True, False, False]
