"""The option node_access on the running kernel: what bridged and routed guests reach of the node by real sockets, and a life with drift."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

import pytest

from tests.support.frames import BROADCAST, IPV4, IPV6, checksum, mac_bytes
from tests.support.netns import Namespace, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, MAC, Site, collect, drift, mend, options, reaches
from tests.support.snapshot import diff, snapshot

GUEST4, GUEST6 = "10.0.0.5", "2001:db8:1::5"
BRIDGE4, BRIDGE6 = "10.0.0.254", "2001:db8:1::254"
OTHER4, OTHER6 = "203.0.113.9", "2001:db8:9::9"  #: of another device of the node
LOOP4, LOOP6 = "198.51.100.77", "2001:db8:77::77"  #: of lo
SERVICES = ("udp/53", "udp/69", "udp/1234", "tcp/53", "tcp/80", "tcp/1234")
ALLOWED = ("udp/53", "udp/69", "tcp/80")
WAIT = 0.6  #: seconds after which nothing more comes
FILTERED = "bridged, br_netfilter"  #: bridged frames pass the hooks of inet too, and those of the node only once
MODES = ("bridged", FILTERED, "routed")
LISTS = {
    "": (*SERVICES, "icmp"),
    "all": (*SERVICES, "icmp"),
    "none": (),
    "udp/53 udp/69 tcp/80": ALLOWED,
    "icmp": ("icmp",),
    "icmp tcp/1234": ("tcp/1234", "icmp"),
}


class Place:
    """A node with a guest: as the gateway of its bridge, or of its own device; with addresses on several devices."""

    def __init__(self, node: Node, mode: str) -> None:
        for each in ("arptables", "iptables", "ip6tables"):
            sysctl(f"net/bridge/bridge-nf-call-{each}", str(int(mode == FILTERED)))
        self.node, self.bridged, self.site = node, mode != "routed", Site(node, "")
        node.outside("other0")
        node.address("other0", f"{OTHER4}/32", f"{OTHER6}/128")
        node.address("lo", f"{LOOP4}/32", f"{LOOP6}/128")
        self.guest = self.site.tap("tap0")
        self.device = "br0" if self.bridged else "tap0"
        if self.bridged:
            node.bridge("br0")
            node.address("br0", f"{BRIDGE4}/24", f"{BRIDGE6}/64")
            gateways: tuple[str, ...] = (BRIDGE4, BRIDGE6)
        else:
            gateways = ("192.0.2.1", "fe80::1")
        self.site.guest(GUEST4, GUEST6, gateways=gateways)
        for network, via in (("10.0.0.0/24", "192.0.2.2"), ("2001:db8:1::/64", "2001:db8:f::2")):
            self.site.router.run("ip", "route", "add", network, "via", via)
        for each in self.nic("all"), self.nic("none"):  # the folders are there, and what the kernel makes once
            self.site.up(each)
            self.site.down(each)

    def nic(self, allowed: str, *more: str) -> dict[str, str]:
        words = [f"node_access:{each}" for each in allowed.split()]
        place = {"MODE": "bridged", "LINK": "br0"} if self.bridged else {}
        given = options(*words, f"addresses:{GUEST6}", *(() if self.bridged else ("gateway_link_local",)), *more)
        return self.site.nic(IP=GUEST4, TAGS=given, **place)

    def up(self, allowed: str, *more: str) -> None:
        self.site.up(self.nic(allowed, *more))
        wait_until(lambda: "tentative" not in run("ip", "-6", "address", "show", "dev", self.device))
        # the guest knows its gateway, so that nothing is lost while it asks
        assert reaches(self.guest, FAR4, FAR6) == [FAR4, FAR6]

    @property
    def local(self) -> str:
        """The node's link-local address where the guest is."""
        found = json.loads(run("ip", "-6", "-j", "address", "show", "dev", self.device, "scope", "link"))
        (address,) = [each["local"] for one in found for each in one.get("addr_info", ()) if each.get("local", "fe80::1") != "fe80::1"]
        return f"{address}%eth0"

    @property
    def addresses(self) -> list[str]:
        own = [BRIDGE4, BRIDGE6] if self.bridged else ["192.0.2.2", "2001:db8:f::2"]
        return [*own, OTHER4, OTHER6, LOOP4, LOOP6, self.local]

    def reached(self, addresses: Sequence[str] = ()) -> set[tuple[str, str]]:
        return reached(self.guest, addresses or self.addresses)


@contextlib.contextmanager
def listening() -> Iterator[dict[socket.socket, str]]:
    """The node's services, on all of its addresses."""
    with contextlib.ExitStack() as stack:
        made = {}
        for service in SERVICES:
            protocol, _, port = service.partition("/")
            kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
            for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                one = stack.enter_context(socket.socket(family, kind))
                made[one] = service
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((address, int(port)))
                if protocol == "tcp":
                    one.listen(64)
                one.setblocking(False)
        yield made


def target(address: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    family, _, _, _, there = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[0]
    return family, there


def reached(guest: Namespace, addresses: Sequence[str]) -> set[tuple[str, str]]:
    """Which services of the node the guest reaches at which addresses, "icmp" for an echo request."""
    found: set[tuple[str, str]] = set()
    with listening() as services, contextlib.ExitStack() as stack:
        with guest.entered():
            started: dict[socket.socket, tuple[str, str]] = {}
            for service in SERVICES:
                protocol, _, port = service.partition("/")
                for address in addresses:
                    family, there = target(address, int(port))
                    one = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM))
                    one.setblocking(False)
                    if protocol == "udp":
                        one.sendto(address.encode(), there)
                    else:
                        started[one] = service, address
                        with contextlib.suppress(BlockingIOError):
                            one.connect(there)
        limit = time.monotonic() + WAIT
        names = {one: service for one, service in services.items() if service.startswith("udp")}
        while (left := limit - time.monotonic()) > 0:
            readable, writable, _ = select.select(list(names), list(started), [], left)
            found |= {(names[one], one.recv(100).decode()) for one in readable}
            for one in writable:
                assert one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                found.add(started.pop(one))
    return found | {("icmp", address) for address in reaches(guest, *addresses)}


def every(services: Iterable[str], addresses: Sequence[str]) -> set[tuple[str, str]]:
    return {(service, address) for service in services for address in addresses}


@pytest.mark.parametrize("allowed", LISTS)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_reached(node: Node, mode: str, allowed: str) -> None:
    """At every address of the node exactly the services of the list; what the node routes for the guest is not touched."""
    place = Place(node, mode)
    place.up(allowed)
    assert place.reached() == every(LISTS[allowed], place.addresses)
    assert reaches(place.guest, FAR4, FAR6) == [FAR4, FAR6]


DRIFTS = (
    "delete element inet netcommon-access services { tap0 . tcp . 80 }",
    "add element inet netcommon-access services { tap0 . tcp . 22 }",
    "flush set inet netcommon-access nics",
    "flush chain inet netcommon-access input",
    "flush chain inet netcommon-access ipv6",
    "delete table inet netcommon-access",
    "flush ruleset",
)
ON_BRIDGES = (
    "flush set bridge netcommon-access-bridge nics",
    "add element bridge netcommon-access-bridge ping { tap0 }",
    "flush chain bridge netcommon-access-bridge input",
    "delete table bridge netcommon-access-bridge",
    "flush chain inet netcommon-access prerouting",
)


@pytest.mark.parametrize("mode", MODES)
def test_a_life(node: Node, mode: str) -> None:
    """Up, drift by hand, repair, another list, none, down: nothing is left."""
    place = Place(node, mode)
    before = snapshot()
    place.up("tcp/80 udp/53")
    assert drift() == [] and collect() == []
    for change in (*DRIFTS, *(ON_BRIDGES if place.bridged else ())):
        run("nft", change)
        assert drift(), change
        mend()
        assert drift() == [], change
    assert place.reached() == every(("tcp/80", "udp/53"), place.addresses)
    for allowed in ("tcp/53 icmp", "none", "udp/1234"):
        place.up(allowed)
        assert place.reached() == every(LISTS.get(allowed, allowed.split()), place.addresses) and drift() == [], allowed
    place.site.up(place.nic("all"))
    assert place.reached() == every(LISTS["all"], place.addresses)
    assert "netcommon-access" not in run("nft", "list", "tables")
    place.up("none")
    place.site.down(place.nic("none"))
    assert diff(before, snapshot()) == []


UDP, FRAGMENT, OPTIONS, HOPS, ROUTING, AUTHENTICATION, NONE = 17, 44, 60, 0, 43, 51, 59
REFUSED, TAKEN = 1234, 53  #: ports


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
        """Whether the service at ``port`` gets ``word`` by these frames."""
        with listening() as services:
            there = [one for one, service in services.items() if service == f"udp/{port}"]
            for each in frames:
                self.socket.send(each)
            return any(word in one.recv(4000) for one in select.select(there, [], [], WAIT / 3)[0])


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


def fragment(body: bytes, place: int, more: bool, following: int = UDP) -> bytes:
    return struct.pack("!BBHI", following, 0, place | more, 7) + body


PAD = bytes((UDP, 0, 1, 4, 0, 0, 0, 0))  #: an extension header of eight bytes, with nothing in it, before UDP
WORD = b"a word that is long enough for three fragments"


def shapes(own4: str, own6: str, port: int) -> dict[str, list[tuple[bytes, str]]]:
    """The same datagram in many forms: packets, and the MAC that they are for ("": the node's)."""
    four, six = udp(GUEST4, own4, port, WORD), udp(GUEST6, own6, port, WORD)
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
        "IPv6, one fragment": [(ip6(own6, fragment(six, 0, False), FRAGMENT), "")],
        "IPv6 in fragments": [(ip6(own6, fragment(six[:24], 0, True), FRAGMENT), ""), (ip6(own6, fragment(six[24:], 24, False), FRAGMENT), "")],
        "IPv6 in fragments, the last first": [
            (ip6(own6, fragment(six[24:], 24, False), FRAGMENT), ""),
            (ip6(own6, fragment(six[:24], 0, True), FRAGMENT), ""),
        ],
        "IPv6 in fragments, of destination options": [
            (ip6(own6, fragment(PAD + six[:16], 0, True, OPTIONS), FRAGMENT), ""),
            (ip6(own6, fragment(six[16:], 24, False, OPTIONS), FRAGMENT), ""),
        ],
        "IPv6 to everybody's MAC": [(ip6(own6, six), BROADCAST)],
        "IPv6 to a link-local group's MAC": [(ip6(own6, six), "01:80:c2:00:00:0e")],
        "IPv6 multicast": [(ip6("ff02::1", group6), groups6)],
    }


#: What comes in no form: not whole, and read before it is put together. IPv4 for a routed guest's node is put together before.
IN_PARTS = {name for name in shapes(OTHER4, OTHER6, 1) if "fragment" in name}


@pytest.mark.parametrize("guard", ["guarded", "unguarded"])
@pytest.mark.parametrize("mode", MODES)
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
    usual = set(shapes(OTHER4, OTHER6, REFUSED))
    assert got(REFUSED) == usual
    place.up("none", *more)
    assert got(REFUSED) == set()
    place.up("udp/53", *more)
    assert got(REFUSED) == set()
    assert usual - got(TAKEN) == (IN_PARTS if place.bridged else {each for each in IN_PARTS if "IPv6" in each})


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
    assert {each[33] for each in until(place, raw, flags, lambda one: one[33] == 255)} == {each for each in range(256) if each & (ACK | RESET)}


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


@pytest.mark.parametrize("mode", MODES)
def test_what_the_node_opened(node: Node, mode: str) -> None:
    """The guest answers the node's pings, connections and datagrams; to ports that the node asked nobody from it sends in vain."""
    place = Place(node, mode)
    place.up("none")
    run("ip", "neighbour", "flush", "all")
    place.guest.run("ip", "neighbour", "flush", "all")
    assert reaches(node.namespace, GUEST4, GUEST6) == [GUEST4, GUEST6]
    for address in (GUEST4, GUEST6):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with place.guest.entered():
            tcp = socket.create_server((address, 80), family=family)
            guest = socket.socket(family, socket.SOCK_DGRAM)
            guest.bind((address, 53))
        with tcp, guest, socket.create_connection((address, 80), 5) as opened, socket.socket(family, socket.SOCK_DGRAM) as asking:
            there, _ = tcp.accept()
            with there:
                there.sendall(b"banner")
                assert opened.recv(100) == b"banner"
            asking.bind(("", 0))
            asking.settimeout(5)
            asking.sendto(b"question", (address, 53))
            _, asker = guest.recvfrom(100)
            guest.sendto(b"answer", asker)
            assert asking.recv(100) == b"answer"
            with place.guest.entered(), socket.socket(family, socket.SOCK_DGRAM) as other, socket.socket(family, socket.SOCK_DGRAM) as silent:
                silent.setblocking(False)
                other.bind((address, 54))
                other.sendto(b"from another port", asker)
                guest.sendto(b"to another port", (asker[0], REFUSED))
            guest.sendto(b"the last", asker)
            assert asking.recv(100) == b"the last"
    assert place.reached() == set()


def test_answers_of_services_are_not_kept(node: Node) -> None:
    """A guest cannot fill the set of whom the node has asked by asking the node."""
    place = Place(node, "routed")
    place.up("udp/53")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as service:
        service.bind(("", 53))
        service.settimeout(5)
        for _ in range(3):
            with place.guest.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.settimeout(5)
                asking.sendto(b"question", (OTHER4, 53))
                service.sendto(*service.recvfrom(100))
                # it comes from the node's address on the way to the guest
                asking.recv(100)
    listed = json.loads(run("nft", "-j", "list", "set", "inet", "netcommon-access", "asked4"))["nftables"]
    assert [item["set"].get("elem", []) for item in listed if "set" in item] == [[]]


@pytest.mark.parametrize("mode", MODES[:2])
def test_dhcp(node: Node, mode: str) -> None:
    """A broadcast gets neither to a server's socket nor to one that reads packets off the bridge, as several servers do, but if allowed."""
    place = Place(node, mode)
    hardware = bytes.fromhex(MAC.replace(":", ""))
    discover = struct.pack("!BBBBIHH16s6s10x", 1, 1, 6, 0, 7, 0, 0, bytes(16), hardware) + bytes(192) + bytes.fromhex("6382536335010100ff")
    packet = ip4("255.255.255.255", udp("0.0.0.0", "255.255.255.255", 67, discover, 68))
    packet = packet[:10] + bytes(2) + bytes(4) + packet[16:]
    packet = packet[:10] + checksum(packet[:20]) + packet[12:]

    def served() -> tuple[bool, bool]:
        with Wire(place) as wire, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(IPV4)) as reading:
                plain.bind(("", 67))
                reading.bind(("br0", IPV4))
                wire.socket.send(wire.frame(packet, BROADCAST))
                wire.socket.send(wire.frame(ip4(OTHER4, udp(GUEST4, OTHER4, 9, b"the last"))))  # packet sockets get it
                seen, heard = [], bool(select.select([plain], [], [], WAIT / 3)[0])
                while not seen or b"the last" not in seen[-1]:
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
        with Wire(place) as wire, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88A2)) as reading:
            reading.bind(("br0", 0x88A2))
            for there in (wire.mac, BROADCAST):
                wire.socket.send(mac_bytes(there) + mac_bytes(MAC) + b"\x88\xa2" + bytes(50))
                assert bool(select.select([reading], [], [], WAIT / 3)[0]) is came, there
                if came:
                    reading.recv(100)


RULES_OF_OTHERS = """
table inet theirs {
  chain prerouting { type filter hook prerouting priority -150; meta mark set ct mark or 5; }
  chain forward { type filter hook forward priority -150; meta mark & 0x40000000 != 0 counter; }
  chain postrouting { type filter hook postrouting priority -150; meta mark & 0x40000000 != 0 counter; }
}
"""


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
def test_beside_another(node: Node, mode: str) -> None:
    """A second NIC without the option reaches all, and each other's guests at any port, if they are on one bridge; gc sees no leftover."""
    place = Place(node, mode)
    mac, address = "aa:00:00:00:00:01", "10.0.0.6"
    other = place.site.tap("tap1", mac)
    place.site.guest(address, name="tap1", gateways=(BRIDGE4 if place.bridged else "192.0.2.1",))
    for guest in (place.guest, other) if place.bridged else ():
        guest.run("ip", "route", "add", "10.0.0.0/24", "dev", "eth0")
    second = {"MODE": "bridged", "LINK": "br0"} if place.bridged else {}
    nic = place.site.nic(1, IP=address, INSTANCE="web2", TAGS="", **second)
    place.up("none")
    place.site.up(nic)
    assert reaches(other, FAR4) == [FAR4] and reaches(other, GUEST4) == [GUEST4] and reaches(place.guest, address) == [address]
    assert reached(other, (OTHER4,)) == every(LISTS["all"], (OTHER4,)) and place.reached() == set()
    given = options("node_access:none").replace(":0:", ":1:")
    place.site.up({**nic, "TAGS": given})
    assert reached(other, (OTHER4,)) == set() and drift() == []
    place.site.down(place.nic("none"))
    assert reached(other, (OTHER4,)) == set() and drift() == [] and collect() == []
    place.site.down(nic)
    assert "netcommon-access" not in run("nft", "list", "tables")
