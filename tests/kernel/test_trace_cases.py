"""netcommon trace beside the kernel on nodes with one thing each that trace was wrong about: what it says, and where the frames arrive."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import pytest

from netcommon.host.rtnetlink.attributes import NLM_F_ACK, attribute, message
from netcommon.host.rtnetlink.decode import INFO_SLAVE_KIND
from netcommon.host.rtnetlink.encode import IFLA_LINKINFO, RTM_NEWLINK
from netcommon.host.rtnetlink.encode_port import INFO_SLAVE_DATA
from tests.support.datapath import places as at
from tests.support.datapath.changes import Change
from tests.support.datapath.compare import comparable, outcomes, predicted, steps
from tests.support.datapath.frames import FROM_GUEST, ICMP6, TO_GUEST, UDP, Shot, ip4, ip6, packed, summed, upper
from tests.support.datapath.places import BRIDGED, ROUTED
from tests.support.datapath.stage import Scene
from tests.support.frames import ARP, IPV4, IPV6, checksum, mac_bytes, solicited_node
from tests.support.netns import run

pytestmark = pytest.mark.no_agent("the nodes are made by hand, and trace asks no agent")

MAB_FLAG = 40
TOLD, UNTOLD = False, True  #: whether trace answers with a reservation
GROUP4, GROUP6, MAC4, MAC6 = "239.1.1.1", "ff02::1:2", "01:00:5e:01:01:01", "33:33:00:01:00:02"
ROUTER_ALERT, HOP_BY_HOP_OPTION = b"\x94\x04\0\0", b"\x05\x02\0\0\x01\0"


class Case(NamedTuple):
    """A change of a node, frames, and whether trace tells where they end."""

    words: str
    mode: str
    change: Change
    frames: tuple[Shot, ...]
    reserved: bool = TOLD
    tc: tuple[str, ...] = ()  #: lines of tc
    arrives: frozenset[str] | None = None  #: where all of them arrive, for who reads this


def frame(kind: int, packet: bytes, target: str, words: str, source: str = at.GUEST_MAC, asks: str = "", way: str = FROM_GUEST) -> Shot:
    data = mac_bytes(target) + mac_bytes(source) + kind.to_bytes(2, "big") + packet
    return Shot(way, words, data if len(data) >= 60 else data.ljust(60, b"\0"), packet[-8:], asks)


def token(number: int) -> bytes:
    return b"nC" + number.to_bytes(6, "big")


def asks4(asked: str, sender: str = at.GUEST4, number: int = 0, source: str = at.GUEST_MAC) -> Shot:
    """An ARP request."""
    head = struct.pack("!HHBBH6s4s6s4s", 1, IPV4, 6, 4, 1, mac_bytes(source), packed(sender), bytes(6), packed(asked))
    return frame(ARP, head + bytes(10) + token(number), at.BROADCAST, f"ARP {sender} > {asked}", source, asked)


def asks6(asked: str, sender: str = at.GUEST6, number: int = 0, unicast: str = "", options: bytes | None = None) -> Shot:
    """A neighbour solicitation, to the group, or to ``unicast``, a MAC."""
    group, target = solicited_node(asked)
    group, target = (asked, unicast) if unicast else (group, target)
    told = b"\x01\x01" + mac_bytes(at.GUEST_MAC) if sender != "::" else b""
    more = (told if options is None else options) + b"\xfd\x02" + bytes(6) + token(number)
    body = summed(b"\x87\0\0\0" + bytes(4) + packed(asked) + more, sender, group, ICMP6, 2)
    return frame(IPV6, ip6(sender, group, ICMP6, body, 255), target, f"{sender} > {group} solicits {asked}", asks=asked)


def sent4(target: str, mac: str, number: int = 0, source: str = at.GUEST4, size: int = 0) -> Shot:
    body = upper(UDP, source, target, bytes(size) + token(number), 9)
    return frame(IPV4, ip4(source, target, UDP, body), mac, f"{source} > {target}")


def sent6(target: str, mac: str, number: int = 0) -> Shot:
    body = upper(UDP, at.GUEST6, target, token(number), 9)
    return frame(IPV6, ip6(at.GUEST6, target, UDP, body), mac, f"{at.GUEST6} > {target}")


def to_guest(shot: Shot) -> Shot:
    """The same from outside for the guest."""
    data = mac_bytes(at.GUEST_MAC) + mac_bytes(at.OUT_MAC) + shot.data[12:]
    return shot._replace(way=TO_GUEST, data=data, words="from outside: " + shot.words)


def group(message: bytes, number: int, broken: bool = False) -> Shot:
    """A message of IGMP with its checksum, or with another, and a router's option."""
    right = message[:2] + checksum(message) + message[4:]
    message = message if broken else right
    size = 24 + len(message)
    head = struct.pack("!BBHHHBBH4s4s", 0x46, 0, size, 7, 0, 1, 2, 0, packed(at.GUEST4), packed(GROUP4)) + ROUTER_ALERT
    packet = head[:10] + checksum(head) + head[12:] + message
    return frame(IPV4, packet + bytes(4) + token(number), MAC4, f"IGMP {message.hex()}")


def quick(shot: Shot, cut: int) -> Shot:
    """The frame without its last bytes but for the token: what its header says is more than there is."""
    return shot._replace(data=shot.data[: -8 - cut] + shot.token, words=f"cut by {cut}: {shot.words}")


def summed_wrong(shot: Shot) -> Shot:
    """IPv4 with another checksum of its header."""
    return shot._replace(data=shot.data[:24] + b"\1\1" + shot.data[26:], words=f"summed wrong: {shot.words}")


def fragment(shot: Shot) -> Shot:
    """The same as a later fragment of another packet."""
    head = shot.data[14:20] + b"\x01\x00" + shot.data[22:24] + bytes(2) + shot.data[26:34]
    return shot._replace(data=shot.data[:14] + head[:10] + checksum(head) + head[12:] + shot.data[34:], words=f"fragment: {shot.words}")


def headless(target: str, number: int, first: bytes) -> Shot:
    """IPv6 that is no such: another version, or shorter than a header."""
    return Shot(
        FROM_GUEST,
        f"no IPv6 {first.hex()}",
        mac_bytes(target) + mac_bytes(at.GUEST_MAC) + b"\x86\xdd" + first + token(number),
        token(number),
    )


def authenticated_by_mac(port: str) -> None:
    """Have a locked port note who asks to be let in (IFLA_BRPORT_MAB, which Debian's iproute2 does not know)."""
    flags = attribute(INFO_SLAVE_KIND, b"bridge\0") + attribute(INFO_SLAVE_DATA, attribute(MAB_FLAG, b"\1"))
    body = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex(port), 0, 0) + attribute(IFLA_LINKINFO, flags)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(message(RTM_NEWLINK, NLM_F_ACK, body, 1))
        assert struct.unpack_from("=i", netlink.recv(4096), 16)[0] == 0


def drops(family: str, hook: str) -> Change:
    return Change(f"{family} {hook}", nft=f"table {family} theirs {{ chain c {{ type filter hook {hook} priority 0; policy drop; }}\n}}")


LOCAL_LAST = (
    "rule add preference 32000 lookup local",
    "rule del preference 0",
    "rule add preference 100 iif lo lookup 77",
    "route add default via 203.0.113.1 table 77",
)
LONG4 = upper(UDP, at.GUEST4, at.PEER4, bytes(400) + token(1), 9)
NOWHERE: frozenset[str] = frozenset()
PEER, FLOODED = frozenset({"tap1"}), frozenset({"tap1", "up0"})
CALLS = tuple((f"net/bridge/bridge-nf-call-{name}tables", "1") for name in ("ip", "ip6"))
UNCALLED = tuple((path, "0") for path, _on in CALLS)
NOTHING = Change("")
TRACKED = Change(
    "", sysctl=CALLS, nft='table inet t { chain c { type filter hook ingress device "up1" priority 0; ct state new accept; }\n}'
)
MAB = Change("", bridge=("link set dev tap0 locked on",))
FAR = sent4(at.FAR4[0], at.BRIDGE_MAC, 1)

CASES = (
    # devices without ARP, or without IPv6
    Case(
        "bridge without ARP",
        BRIDGED,
        Change("", ("link set br0 arp off",)),
        (asks4(at.BRIDGE4), asks4(at.BRIDGE4, "0.0.0.0", 1)),
        TOLD,
        (),
        FLOODED,
    ),
    Case("bridge without ARP, discovery", BRIDGED, Change("", ("link set br0 arp off",)), (asks6(at.BRIDGE6),), UNTOLD),
    Case(
        "tap without ARP", ROUTED, Change("", ("link set tap0 arp off",)), (asks4(at.UP4), asks4(at.FAR4[0], number=1)), TOLD, (), NOWHERE
    ),
    Case("way out without ARP", ROUTED, Change("", ("link set up0 arp off",)), (FAR,), UNTOLD),
    Case(
        "bridge of 1279 bytes",
        BRIDGED,
        Change("", ("link set br0 mtu 1279",)),
        (sent6(at.BRIDGE6, at.BRIDGE_MAC), asks6(at.BRIDGE6, number=1)),
        TOLD,
        (),
    ),
    Case("bridge of 1280 bytes", BRIDGED, Change("", ("link set br0 mtu 1280",)), (sent4(at.BRIDGE4, at.BRIDGE_MAC),), TOLD),
    Case(
        "tap of 1279 bytes",
        ROUTED,
        Change("", ("link set tap0 mtu 1279",)),
        (sent6(at.FAR6[0], at.BRIDGE_MAC), asks6("fe80::1", number=1)),
        TOLD,
        (),
        NOWHERE,
    ),
    # answers
    Case("answers meet arp", BRIDGED, drops("arp", "output"), (asks4(at.BRIDGE4), asks4(at.BRIDGE4, "0.0.0.0", 1)), UNTOLD, (), FLOODED),
    Case("answers meet ip6", BRIDGED, drops("ip6", "output"), (asks6(at.BRIDGE6),), UNTOLD, (), FLOODED),
    Case("answers meet inet", BRIDGED, drops("inet", "postrouting"), (asks6(at.BRIDGE6),), UNTOLD),
    Case(
        "answers meet egress",
        BRIDGED,
        Change("", nft="table netdev t { chain c { type filter hook egress device br0 priority 0; policy drop; }\n}"),
        (asks4(at.BRIDGE4),),
        UNTOLD,
        (),
        FLOODED,
    ),
    Case(
        "answers meet the port's egress",
        BRIDGED,
        Change("", nft="table netdev t { chain c { type filter hook egress device tap0 priority 0; policy drop; }\n}"),
        (asks4(at.BRIDGE4),),
        UNTOLD,
    ),
    Case("answers meet bridge", BRIDGED, drops("bridge", "output"), (asks4(at.BRIDGE4),), UNTOLD),
    Case("answers meet a queue", ROUTED, NOTHING, (asks4(at.UP4),), TOLD, ("qdisc replace dev tap0 root blackhole",), NOWHERE),
    # queues
    Case("blackhole", ROUTED, NOTHING, (FAR, sent4(at.PEER4, at.BRIDGE_MAC, 2)), TOLD, ("qdisc replace dev up0 root blackhole",)),
    Case(
        "blackhole of a port", BRIDGED, NOTHING, (sent4(at.PEER4, at.PEER_MAC),), TOLD, ("qdisc replace dev tap1 root blackhole",), NOWHERE
    ),
    Case("no packets", ROUTED, NOTHING, (FAR,), TOLD, ("qdisc replace dev up0 root pfifo limit 0",), NOWHERE),
    Case("packets", ROUTED, NOTHING, (FAR,), TOLD, ("qdisc replace dev up0 root pfifo limit 1",), frozenset({"up0"})),
    Case(
        "bytes",
        ROUTED,
        NOTHING,
        (FAR, sent4(at.FAR4[0], at.BRIDGE_MAC, 2, size=1000)),
        TOLD,
        ("qdisc replace dev up0 root bfifo limit 500",),
    ),
    Case(
        "token bucket",
        ROUTED,
        NOTHING,
        (sent4(at.FAR4[0], at.BRIDGE_MAC, 2, size=1400),),
        UNTOLD,
        ("qdisc replace dev up0 root tbf rate 1mbit burst 1000 limit 4000",),
        NOWHERE,
    ),
    Case(
        "within a token bucket",
        ROUTED,
        NOTHING,
        (FAR,),
        UNTOLD,
        ("qdisc replace dev up0 root handle 1: tbf rate 1mbit burst 4000 limit 4000", "qdisc replace dev up0 parent 1: blackhole"),
        NOWHERE,
    ),
    Case(
        "classes",
        ROUTED,
        NOTHING,
        (FAR,),
        UNTOLD,
        (
            "qdisc replace dev up0 root handle 1: htb default 1",
            "class add dev up0 parent 1: classid 1:1 htb rate 1mbit",
            "qdisc add dev up0 parent 1:1 blackhole",
        ),
        NOWHERE,
    ),
    # bridges
    Case("locked with mab", BRIDGED, MAB, (sent4(at.PEER4, at.PEER_MAC), sent4(at.PEER4, at.PEER_MAC, 1)), TOLD, (), NOWHERE),
    Case("an own MAC", BRIDGED, NOTHING, (sent4(at.PEER4, at.GUEST_MAC),), TOLD, (), NOWHERE),
    Case(
        "an own MAC, ageing 0",
        BRIDGED,
        Change("", ("link set br0 type bridge ageing_time 0",)),
        (sent4(at.PEER4, at.GUEST_MAC),),
        TOLD,
        (),
        FLOODED,
    ),
    Case(
        "no IPv6 for br_netfilter",
        BRIDGED,
        Change("", sysctl=CALLS),
        (headless(at.PEER_MAC, 0, b"\x40" + bytes(60)), headless(at.PEER_MAC, 1, b"\x60"), quick(sent6(at.PEER6, at.PEER_MAC, 2), 4)),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "no IPv6 without br_netfilter",
        BRIDGED,
        Change("", sysctl=UNCALLED),
        (headless(at.PEER_MAC, 0, b"\x40" + bytes(60)), headless(at.PEER_MAC, 1, b"\x60"), quick(sent6(at.PEER6, at.PEER_MAC, 2), 4)),
        TOLD,
        (),
        PEER,
    ),
    Case(
        "options of IPv6",
        BRIDGED,
        Change("", sysctl=CALLS),
        (frame(IPV6, ip6(at.GUEST6, at.PEER6, 0, b"\x3b\0\x05\x02\0\0\x01\0" + token(0)), at.PEER_MAC, "hop by hop"),),
        UNTOLD,
    ),
    Case(
        "multicast that is cut off",
        BRIDGED,
        Change("", sysctl=UNCALLED),
        (
            headless(MAC6, 0, b"\x40" + bytes(60)),
            headless(MAC6, 1, b"\x60"),
            quick(sent4(GROUP4, MAC4, 2, size=100), 4),
            summed_wrong(sent4(GROUP4, MAC4, 4)),
            quick(sent6(GROUP6, MAC6, 3), 4),
        ),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "the same unsnooped",
        BRIDGED,
        Change("", ("link set br0 type bridge mcast_snooping 0",), sysctl=UNCALLED),
        (headless(MAC6, 0, b"\x40" + bytes(60)), quick(sent4(GROUP4, MAC4, 2), 4)),
        TOLD,
        (),
        FLOODED,
    ),
    Case(
        "IGMP",
        BRIDGED,
        Change("", sysctl=UNCALLED),
        (group(b"\x16\0\0\0" + packed(GROUP4), 0), group(b"\x17\0\0\0" + packed(GROUP4), 1), group(b"\x99\0\0\0" + packed(GROUP4), 2)),
        UNTOLD,
        (),
        FLOODED,
    ),
    Case(
        "IGMP that is malformed",
        BRIDGED,
        Change("", sysctl=UNCALLED),
        (group(b"\x16\0\1\1" + packed(GROUP4), 0, True), group(b"\x16\0\0\0", 1), group(b"\x99\0\0\1" + packed(GROUP4), 2, True)),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "IGMP that is longer",
        BRIDGED,
        Change("", sysctl=UNCALLED),
        (group(b"\x11\0\0\0" + bytes(4), 0), group(b"\x22\0\0\0\0\0\0\1", 1)),
        UNTOLD,
        (),
        NOWHERE,
    ),
    Case("a fragment where connections are tracked", BRIDGED, TRACKED, (fragment(sent4(at.PEER4, at.PEER_MAC)),), UNTOLD, (), NOWHERE),
    Case("a whole packet there", BRIDGED, TRACKED, (sent4(at.PEER4, at.PEER_MAC),), TOLD, (), PEER),
    # probes
    Case(
        "a probe behind rules",
        ROUTED,
        Change("", LOCAL_LAST),
        (asks4(at.UP4, "0.0.0.0"), asks4(at.UP14, "0.0.0.0", 1)),
        TOLD,
        (),
        frozenset({"answer"}),
    ),
    Case(
        "a probe for another's address",
        ROUTED,
        Change("", (*LOCAL_LAST, "route add local 198.51.100.1 dev lo table 77")),
        (asks4(at.FAR4[0], "0.0.0.0"),),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "a probe within a local network",
        ROUTED,
        Change("", ("route add local 198.51.100.0/24 dev lo table local",)),
        (asks4(at.FAR4[0], "0.0.0.0"),),
        TOLD,
        (),
        frozenset({"answer"}),
    ),
    Case("discovery from nobody", BRIDGED, NOTHING, (asks6(at.BRIDGE6, "::"),), TOLD, (), FLOODED | {"answer"}),
    Case(
        "discovery from nobody to one",
        BRIDGED,
        NOTHING,
        (asks6(at.BRIDGE6, "::", 0, at.BRIDGE_MAC), asks6(at.BRIDGE6, "::", 1, options=b"\x01\x01" + mac_bytes(at.GUEST_MAC))),
    ),
    Case(
        "discovery with options cut off",
        BRIDGED,
        NOTHING,
        (
            asks6(at.BRIDGE6, options=b"\x01\x00" + mac_bytes(at.GUEST_MAC)),
            asks6(at.BRIDGE6, number=1, options=b"\x01\x02" + bytes(14)),
            asks6(at.BRIDGE6, number=2, options=b"\x01\x09" + bytes(6)),
        ),
        TOLD,
        (),
        FLOODED,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words.replace(" ", "-"))
def test_where_they_arrive(case: Case) -> None:
    hold(case)


def hold(case: Case) -> None:
    """Hold that frames arrive where trace says, or that it says so with a reservation, as the case has it."""
    scene = Scene(case.words, at.place(case.mode), False, (case.change,), case.frames)

    def prepare() -> None:
        for line in case.tc:
            run("tc", *line.split())
        if case.change is MAB:
            authenticated_by_mac("tap0")

    wrong = []
    for shot, path, seen in outcomes(scene, prepare):
        said = comparable(predicted(path), shot)
        right = seen == case.arrives if case.arrives is not None else True
        if bool(path.untold) != case.reserved or (not case.reserved and said != seen) or not right:
            wrong.append(f"{shot.words}: says {sorted(said)}, arrived {sorted(seen)}, untold {path.untold}\n{steps(path)}")
    assert not wrong, "\n".join(wrong)
