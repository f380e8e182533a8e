"""Make a running guest another, in every way from one setting to another: at no step does a frame pass that both refuse."""

from __future__ import annotations

import errno
import itertools
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from netcommon.host.api.host import NOT_TRIED, Answer
from netcommon.host.api.requests import FlushPort, Request
from netcommon.lifecycle.context import Call
from netcommon.lifecycle.up import up
from netcommon.log import recording
from netcommon.settings.load import load
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused
from runtime.paths import Paths
from tests.kernel.test_adopt import netcommon
from tests.kernel.test_doors_parallel import environment
from tests.support import frames
from tests.support.forged import ALL_NODES, ALL_NODES_MAC, BROADCAST, OTHER_IP6, UDP, ethernet, ipv4, ipv6, udp
from tests.support.netns import run, sysctl
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.sample import sample
from tests.support.tap import Tap

pytestmark = pytest.mark.sampled(3)

#: The guest's address, another one's to which the node has a route, one to which it has none, and the node's own.
OWN, FOREIGN, NOWHERE, NODE = "10.0.0.1", "10.0.0.9", "203.0.113.9", "10.0.0.254"
IFF_UP = 1
MAC, ANOTHERS = "aa:00:00:00:00:00", "aa:00:00:00:00:99"

OWN6, ANOTHER6 = "2001:db8::5", "2001:db8:2::1"  #: the guest's by an option, and another guest's
GATEWAY_MAC = "fe:00:00:00:00:00"  #: of the host's side of its routed tap

#: What arrived: the names of frames, each with that of who got it.
Arrived = frozenset[tuple[str, str]]


class Settings(NamedTuple):
    """One way in which the NIC may be: its tags."""

    name: str
    tags: str = ""

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        tags = " ".join(f"netcommon:0:{tag}" for tag in self.tags.split())
        return environment(0) | {**base, "TAGS": tags}


BRIDGED = [
    Settings("guarded"),
    Settings("isolated", "isolated"),
    Settings("isolated, unguarded", "isolated spoof_guard:no"),
    Settings("away from the node", "node_access:none"),
    Settings("away from the node, any address", "node_access:none allow_ip_spoofing"),
    Settings("any MAC", "allow_mac_spoofing"),
    Settings("any address", "allow_ip_spoofing"),
    Settings("isolated, any MAC", "isolated allow_mac_spoofing"),
    Settings("isolated, away from the node, any MAC and address", "isolated node_access:none allow_mac_spoofing allow_ip_spoofing"),
    Settings("one service, any address", "node_access:udp/2000 allow_ip_spoofing"),
    Settings("another service", "node_access:udp/2001"),
    Settings("unguarded", "spoof_guard:no"),
    Settings("static", "static_fdb"),
    Settings("static, any MAC", "static_fdb allow_mac_spoofing"),
    Settings("static, unguarded", "static_fdb spoof_guard:no"),
    Settings("static, isolated", "static_fdb isolated allow_ip_spoofing"),
    Settings("asked-for multicast", "mcast_flood:no"),
    Settings("asked-for multicast, unguarded", "mcast_flood:no spoof_guard:no"),
    Settings("a router of multicast, static", "allow_mcast_router static_fdb mcast_flood:no"),
]
ROUTED = [
    Settings("guarded"),
    Settings("any address", "allow_ip_spoofing"),
    Settings("unguarded", "spoof_guard:no"),
    Settings("strict, guarded", "rp_filter:strict"),
    Settings("strict, any address", "rp_filter:strict allow_ip_spoofing"),
    Settings("strict, unguarded", "rp_filter:strict spoof_guard:no"),
    Settings("loose, guarded", "rp_filter:loose"),
    Settings("loose, any address", "rp_filter:loose allow_ip_spoofing"),
    Settings("loose, unguarded", "rp_filter:loose spoof_guard:no"),
    Settings("off, any address and MAC", "rp_filter:off allow_ip_spoofing allow_mac_spoofing"),
    Settings("off, any MAC, no address of the node's", "rp_filter:off allow_mac_spoofing"),
    Settings("of the node's addresses, unguarded", "accept_local spoof_guard:no"),
    Settings("away from the node, any address", "node_access:none allow_ip_spoofing"),
]
#: In a routing table, with one family or two.
TABLE = [
    Settings("guarded"),
    Settings("both families", f"addresses:{OWN6}"),
    Settings("any address", "allow_ip_spoofing"),
    Settings("unguarded", "spoof_guard:no"),
    Settings("both families, unguarded", f"addresses:{OWN6} spoof_guard:no"),
    Settings("any address, away from the node", "allow_ip_spoofing node_access:none"),
    Settings("both families, away from the node", f"addresses:{OWN6} node_access:none"),
    Settings("strict, unguarded", "rp_filter:strict spoof_guard:no"),
]


class Place:
    """A guest that may send anything, and all who could get it."""

    def __init__(self, node: Node, base: Mapping[str, str], to: Sequence[tuple[str, str, str]], others: Mapping[str, Tap]) -> None:
        """``to``: names, addresses and MACs that the guest sends to; ``others``: the taps of other guests."""
        self.base, self.others = base, others
        self.guest = node.tap("tap0")
        self.lost = 0  #: the probes of the last change in which the guest's device was up, and a frame for it did not arrive
        self.listener = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)  # of both families (ipv6(7))
        self.listener.bind(("::", 2000))
        self.listener.setblocking(False)
        self.frames = {
            name: ethernet(frames.IPV4, ipv4(source, udp(1000, 2000, name.encode().ljust(48, b".")), destination=address), mac, gateway)
            for kind, source in (("own", OWN), ("foreign", FOREIGN), ("unreachable", NOWHERE), ("the node's", NODE))
            for whose, mac in (("own", MAC), ("foreign", ANOTHERS))
            for whom, address, gateway in to
            for name in [f"from {kind} address and {whose} MAC to {whom}"]
        }
        for name, source, destination, mac in (
            ("of IPv6 to the node", OTHER_IP6, ALL_NODES, ALL_NODES_MAC),
            ("of IPv6 to another guest", OTHER_IP6, ANOTHER6, GATEWAY_MAC),
            ("from own IPv6 address to another guest", OWN6, ANOTHER6, GATEWAY_MAC),
        ):
            self.frames[name] = ethernet(frames.IPV6, udp6(source, destination, name.encode().ljust(48, b".")), MAC, mac)

    def probe(self) -> Arrived:
        """Send a frame of each kind; give what has arrived since the last probe."""
        for frame in self.frames.values():
            try:
                self.guest.send(frame)
            except OSError:
                pass  # its device is down
        return self._named(self._received())

    def verdict(self) -> Arrived:
        """Give what arrives of the frames now: what two probes in a row agree on.

        A frame may come late, or with the next probe: the kernel leaves it on a device's queue while another processor, which has sent
        something of its own by that device, is kept from going on.
        """
        last, found = None, self.probe()
        while found != last:
            last, found = found, self.probe()
        return found

    def _named(self, received: Sequence[tuple[str, bytes]]) -> Arrived:
        return frozenset((frame, who) for frame in self.frames for who, data in received if frame.encode().ljust(48, b".") in data)

    def _received(self) -> list[tuple[str, bytes]]:
        found = [(name, data) for name, tap in self.others.items() for data in tap.drain()]
        while True:
            try:
                found.append(("the node", self.listener.recv(2048)))
            except BlockingIOError:
                return found

    def becomes(self, settings: Settings, probing: bool = True, refused: int = 0) -> Arrived:
        """Make the NIC so, and give what has arrived meanwhile, with a probe after each request.

        ``refused``: the number of a request, from 1, that the host refuses; raises HostRefused where that is on the way, and not of the way
        back. ``self.requests``: how many there were; ``self.meanwhile``: what has arrived, where it raises too.
        """
        found: set[tuple[str, str]] = set()
        self.requests, self.meanwhile = 0, found
        with ours(load(Paths())) as node:
            real = node.host.execute

            def execute(requests: Sequence[Request], stop: bool) -> list[Answer]:
                answers: list[Answer] = []
                for request in requests:
                    self.requests += not isinstance(request, FlushPort)  # an effect: it fails nothing
                    if stop and any(not answer.ok for answer in answers):
                        answers.append(NOT_TRIED)
                    elif self.requests == refused:
                        answers.append(Answer(errno.EPERM, "Operation not permitted"))
                    else:
                        answers += real([request], stop)
                    found.update(self.probe())
                return answers

            self.lost = 0
            if probing:
                node.host.execute = execute  # type: ignore[method-assign]
            up(node, nic_from_environment(settings.environment(self.base)), Call(recording()[0], node.clock.now() + 60))
        return frozenset(found)


class Port(Place):
    """A guest behind a port of a bridge, with others behind its other ports who send to it; all that the bridge learns counts too."""

    def __init__(self, node: Node, base: Mapping[str, str], to: Sequence[tuple[str, str, str]], others: Mapping[str, Tap]) -> None:
        super().__init__(node, base, to, others)
        self.sent = {
            name: (
                tap,
                ethernet(frames.IPV4, ipv4("10.0.0.77", udp(1000, 2000, name.encode().ljust(48, b".")), destination=address), *macs),
            )
            for number, (who, tap) in enumerate(others.items(), 1)
            for what, address, mac in (
                ("its own address", OWN, MAC),
                ("an unknown address", "10.0.0.88", "aa:00:00:00:00:88"),
                ("a group that nobody asked for", "239.1.2.3", "01:00:5e:01:02:03"),
            )
            for macs in [(f"aa:00:00:00:77:0{number}", mac)]
            for name in [f"from {who} to {what}"]
        }

    def probe(self) -> Arrived:
        """Send to the guest, which has sent nothing yet that the bridge remembers; have it send; see what the bridge has learnt."""
        up = bool(int(Path("/sys/class/net/tap0/flags").read_text(), 16) & IFF_UP)
        for tap, frame in self.sent.values():
            tap.send(frame)
        received = self.guest.drain()
        due = b"from the wire to its own address"
        if up and not any(due in frame for frame in received):
            late = self.guest.receive(lambda frame: due in frame, 0.2)
            self.lost += late is None
            received += self.guest.drain() + ([late] if late else [])
        to_guest = {(name, "the guest") for name in self.sent for frame in received if name.encode().ljust(48, b".") in frame}
        found = super().probe()
        learnt = {(f"the MAC {mac}", "the bridge") for mac in _learnt("br0", "tap0") - {MAC}}
        Path("/sys/class/net/br0/bridge/flush").write_text("1")
        return found | to_guest | learnt


def _learnt(bridge: str, port: str) -> set[str]:
    """Give the addresses that the bridge has found behind a port (struct __fdb_entry of linux/if_bridge.h)."""
    path = Path(f"/sys/class/net/{port}/brport/port_no")
    number = int(path.read_text(), 16) if path.exists() else -1
    entries = struct.iter_unpack("=6sBBIBBH", Path(f"/sys/class/net/{bridge}/brforward").read_bytes())
    return {mac.hex(":") for mac, low, local, _ageing, high, _pad, _unused in entries if not local and low | high << 8 == number}


def udp6(source: str, destination: str, payload: bytes) -> bytes:
    """A datagram of IPv6, which has a checksum (RFC 8200)."""
    datagram = udp(1000, 2000, payload)
    ends = b"".join(socket.inet_pton(socket.AF_INET6, each) for each in (source, destination))
    found = frames.checksum(ends + struct.pack("!II", len(datagram), UDP) + datagram)
    return ipv6(source, datagram[:6] + found + datagram[8:], UDP, destination)


def no_frame_that_both_refuse(place: Place, all_settings: Sequence[Settings], count: int) -> None:
    """Go from each of them to each other one (``count`` of these in an ordinary run)."""
    verdicts: dict[str, Arrived] = {}
    for settings in all_settings:
        place.becomes(settings, probing=False)
        verdicts[settings.name] = place.verdict()
    assert len(set(verdicts.values())) > len(all_settings) // 3, "many of them differ in what they let through"
    wrong, lost = {}, {}
    for before, after in sample(list(itertools.permutations(all_settings, 2)), count):
        place.becomes(before, probing=False)
        place.verdict()
        passed = place.becomes(after)
        if place.lost:
            lost[before.name, after.name] = place.lost
        if more := passed - verdicts[before.name] - verdicts[after.name]:
            wrong[before.name, after.name] = sorted(more)
        assert place.verdict() == verdicts[after.name]
    assert (wrong, lost) == ({}, {})


def no_frame_on_the_way_back(place: Place, all_settings: Sequence[Settings], count: int) -> None:
    """Refuse one request on the way from each to each other one: the NIC is as before (``count`` of these in an ordinary run)."""
    verdicts: dict[str, Arrived] = {}
    steps: list[tuple[Settings, Settings, int]] = []
    for settings in all_settings:
        place.becomes(settings, probing=False)
        verdicts[settings.name] = place.verdict()
    for before, after in sample(list(itertools.permutations(all_settings, 2)), count):
        place.becomes(before, probing=False)
        place.becomes(after)
        steps += [(before, after, number) for number in range(1, place.requests + 1)]
    assert len(steps) > count
    wrong, lost = {}, {}
    for before, after, number in sample(steps, count):
        place.becomes(before, probing=False)
        place.verdict()
        with pytest.raises(HostRefused):
            place.becomes(after, refused=number)
        if place.lost:
            lost[before.name, after.name, number] = place.lost
        if more := place.meanwhile - verdicts[before.name] - verdicts[after.name]:
            wrong[before.name, after.name, number] = sorted(more)
        assert place.verdict() == verdicts[before.name], (before.name, after.name, number)
    assert (wrong, lost) == ({}, {})


@contextmanager
def bridged(node: Node) -> Iterator[Place]:
    run("ip", "link", "set", "lo", "up")
    node.bridge("br0")
    run("ip", "link", "set", "br0", "address", "aa:00:00:00:0f:00")
    run("ip", "address", "add", f"{NODE}/24", "dev", "br0")
    other = node.tap("tap1")
    base = {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0", "IP": OWN}
    variables = environment(1) | base | {"IP": "10.0.0.2", "TAGS": "netcommon:*:isolated netcommon:*:spoof_guard:no"}
    wire = node.tap("tap2")  # a port that is no guest's, as an uplink is
    run("ip", "link", "set", "tap2", "master", "br0", "up")
    to = [("the node", NODE, "aa:00:00:00:0f:00"), ("all", "10.0.0.77", BROADCAST)]
    place = Port(node, base, to, {"another": other, "the wire": wire})
    with place.listener:
        assert rundoor("kvm-ifup", variables).status == 0
        yield place


def test_bridged(node: Node) -> None:
    """Change what its guest may send, whether it is isolated, and what it reaches of the node, in nftables and in the bridge."""
    with bridged(node) as place:
        no_frame_that_both_refuse(place, BRIDGED, 40)


def test_bridged_refused(node: Node) -> None:
    """The same, with a request refused: what is put back lets no frame pass either."""
    with bridged(node) as place:
        no_frame_on_the_way_back(place, BRIDGED, 12)


#: A machine behind the wire, whose MAC the guest takes while it may.
VICTIM = "aa:00:00:00:00:42"

MAY = [Settings("any MAC", "allow_mac_spoofing"), Settings("open", "spoof_guard:no"), Settings("isolated, open", "isolated spoof_guard:no")]
MAY_NOT = [
    Settings("guarded"),
    Settings("static, open", "static_fdb spoof_guard:no"),
    Settings("static, any MAC", "static_fdb allow_mac_spoofing"),
    Settings("static", "static_fdb"),
    Settings("isolated", "isolated"),
]


def named(name: bytes, source: str, destination: str) -> bytes:
    return ethernet(frames.IPV4, ipv4(OWN, udp(1000, 2000, name.ljust(48, b".")), destination="10.0.0.42"), source, destination)


def stolen(place: Place) -> None:
    """The victim speaks, and then the guest with its MAC, which the bridge learns."""
    place.others["the wire"].send(named(b"victim", VICTIM, BROADCAST))
    place.guest.send(named(b"theft", VICTIM, BROADCAST))
    assert place.others["the wire"].receive(lambda frame: b"theft" in frame) and VICTIM in _learnt("br0", "tap0")


def who_gets_it(place: Place) -> set[str]:
    """Tell who gets a frame for the victim: the one to whom the bridge brings it, or all."""
    place.guest.drain()
    place.others["another"].send(named(b"for the victim", "aa:00:00:00:00:01", VICTIM))
    wire = place.others["the wire"].receive(lambda frame: b"for the victim" in frame, 0.5)
    guest = place.guest.receive(lambda frame: b"for the victim" in frame, 0.1)
    return {name for name, frame in (("the wire", wire), ("the guest", guest)) if frame}


@pytest.mark.parametrize("before", MAY, ids=lambda one: one.name)
@pytest.mark.parametrize("after", MAY_NOT, ids=lambda one: one.name)
def test_what_the_bridge_has_learnt_goes(node: Node, before: Settings, after: Settings) -> None:
    """A MAC that the guest may send from no more is its owner's again at once, though that is silent; the guest's own is learnt anew."""
    with bridged(node) as place:
        place.becomes(before, probing=False)
        stolen(place)
        place.becomes(after, probing=False)
        assert VICTIM not in _learnt("br0", "tap0")
        assert "the wire" in who_gets_it(place)
        place.guest.send(named(b"own", MAC, BROADCAST))
        assert place.others["the wire"].receive(lambda frame: b"own" in frame)
        assert MAC in _learnt("br0", "tap0")


def test_what_the_bridge_has_learnt_while_the_guard_was_gone(node: Node) -> None:
    """A repair forgets it too; one that finds the guard as it is leaves alone what the bridge knows of the guest."""
    with bridged(node) as place:
        place.becomes(BRIDGED[0], probing=False)
        run("nft", "flush", "ruleset")
        stolen(place)
        netcommon("repair", "tap0")
        assert VICTIM not in _learnt("br0", "tap0") and "the wire" in who_gets_it(place)
        place.guest.send(named(b"own", MAC, BROADCAST))
        assert place.others["the wire"].receive(lambda frame: b"own" in frame)
        for settings in (BRIDGED[0], Settings("any address", "allow_ip_spoofing"), Settings("asked-for multicast", "mcast_flood:no")):
            place.becomes(settings, probing=False)
            assert MAC in _learnt("br0", "tap0"), "it could send from no other MAC before"


@contextmanager
def routed(node: Node, table: str = "main") -> Iterator[Place]:
    """A guest, another one in table main, to which it may send from there alone, and the network beyond the uplink."""
    node.outside("up0")
    node.address("up0", f"{NODE}/24")
    node.forwarding(ipv6=True)
    other = node.tap("tap1")
    base = {"MODE": "routed", "LINK": table, "IP": OWN}
    tags = f"netcommon:*:spoof_guard:no netcommon:*:addresses:{ANOTHER6}"
    variables = environment(1) | base | {"LINK": "main", "IP": "10.0.0.2", "TAGS": tags}
    assert rundoor("kvm-ifup", variables).status == 0
    for address in ("10.0.0.2", ANOTHER6):
        run("ip", "neighbour", "replace", address, "lladdr", "aa:00:00:00:00:01", "dev", "tap1")
    to = [("the node", NODE, GATEWAY_MAC), ("another guest", "10.0.0.2", GATEWAY_MAC)]
    place = Place(node, base, to, {"another": other})
    with place.listener:
        yield place


#: rp_filter of all devices, the larger of which and of a device's own counts, that of devices that are made, and an address that the
#: administrator has given to the guest's device: on one without any the kernel filters as strictly where it is to do so loosely.
FILTERS = [
    ("0", "0", ""),
    ("0", "1", ""),
    ("0", "2", "192.0.2.9/32"),
    ("1", "0", "192.0.2.9/32"),
    ("1", "2", "192.0.2.9/32"),
    ("2", "0", ""),
]


@pytest.mark.parametrize(("every", "default", "address"), FILTERS)
def test_routed(node: Node, every: str, default: str, address: str) -> None:
    """Change what its guest may send, and what the kernel filters by the way back: in nftables and in the settings of its device."""
    sysctl("net/ipv4/conf/all/rp_filter", every)
    sysctl("net/ipv4/conf/default/rp_filter", default)
    with routed(node) as place:
        if address:
            run("ip", "address", "add", address, "dev", "tap0")
        no_frame_that_both_refuse(place, ROUTED, 20)


@pytest.mark.parametrize(("every", "default", "address"), [("0", "0", ""), ("1", "2", "192.0.2.9/32")])
def test_routed_refused(node: Node, every: str, default: str, address: str) -> None:
    """The same, with a request refused."""
    sysctl("net/ipv4/conf/all/rp_filter", every)
    sysctl("net/ipv4/conf/default/rp_filter", default)
    with routed(node) as place:
        if address:
            run("ip", "address", "add", address, "dev", "tap0")
        no_frame_on_the_way_back(place, ROUTED, 12)


@pytest.fixture
def by(request: pytest.FixtureRequest, node: Node) -> None:
    """Settings by which packets are looked up in their table by a rule for each tap, or by a mark that all have."""
    if request.param == "mark":
        Path("/etc/netcommon").mkdir(exist_ok=True)
        Path("/etc/netcommon/config.toml").write_text("[rules]\nmark = 0xfff0000\n")


def unreachable() -> None:
    for family in ("-4", "-6"):
        run("ip", family, "route", "add", "unreachable", "default", "table", "100")
    sysctl("net/ipv4/conf/all/rp_filter", "0")
    sysctl("net/ipv4/conf/default/rp_filter", "0")


@pytest.mark.parametrize("by", ["rule", "mark"], indirect=True)
def test_routed_table(node: Node, by: None) -> None:
    """Add and take a family: no packet of it is looked up in table main."""
    unreachable()
    with routed(node, "100") as place:
        no_frame_that_both_refuse(place, TABLE, 20)


@pytest.mark.parametrize("by", ["rule", "mark"], indirect=True)
def test_routed_table_refused(node: Node, by: None) -> None:
    """The same, with a request refused."""
    unreachable()
    with routed(node, "100") as place:
        no_frame_on_the_way_back(place, TABLE, 12)
