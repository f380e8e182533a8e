"""The spoof guard on Open vSwitch, userspace datapath: frames really sent, for each kind and each switch, and what is counted."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.lifecycle.execute import decode
from netcommon.operations.flows import Flows
from tests.kernel.test_doors_parallel import environment, good
from tests.kernel.test_guard_verdicts import FRAMES, OWN4, OWN6, C, frame, ip4
from tests.kernel.test_guard_verdicts import MAC as BRIDGED_MAC
from tests.kernel.test_guard_verdicts import udp as udp4
from tests.support import frames
from tests.support.forged import ADDRESS, DHCP, IP, IP6, KIND, MAC, OTHER, OTHER_LOCAL, OWN, SWITCHES, Kind, ethernet, ipv4, kinds, udp
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import RUN, OpenVswitch
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

EXAMPLE = Path(__file__).parents[2] / "examples/templates/ovs/no-lan.j2"
KINDS = list(kinds())
NIC = environment(MODE="openvswitch", LINK="ovs0", IP=IP, MAC=OWN)
GUARDED = "netcommon:*:spoof_guard"
GROUP = "01:00:5e:00:00:01"  #: the Ethernet destination of a group
ADDRESSED = f"{GUARDED} netcommon:*:addresses:{IP6}"


class Wire:
    """The guest on tap0, which is ours, and somebody on tap1 who hears everything."""

    def __init__(self, node: Node, ovs: OpenVswitch) -> None:
        self.ovs = ovs
        self.guest, self.other = node.tap("tap0"), node.tap("tap1")
        ovs.bridge("ovs0")
        # so that STP and LLDP are not dropped by the bridge itself
        ovs.vsctl("set", "Bridge", "ovs0", "other_config:forward-bpdu=true")
        run("ip", "link", "set", "tap1", "up")
        ovs.vsctl("add-port", "ovs0", "tap1")
        self._sent = 0

    def up(self, tags: str = ADDRESSED, **changes: str) -> None:
        done = rundoor("kvm-ifup", {**NIC, "TAGS": tags, **changes})
        assert done.status == 0, done.stderr

    def passes(self, frame: bytes, source: Tap | None = None, mark: bytes | None = None) -> bool:
        """Whether a frame of the guest arrives: before one that surely does."""
        self._sent += 1
        last = mark or ethernet(frames.IPV4, ipv4(IP, udp(1, 1, b"mark%d" % self._sent)))
        (source or self.guest).send(frame)
        self.guest.send(last)
        seen = False
        while (got := self.other.receive(seconds=5)) is not None:
            if got == last:
                return seen
            seen = seen or got == frame
        raise AssertionError("the frame that marks the end did not arrive")


@pytest.fixture
def wire(node: Node, ovs: OpenVswitch) -> Wire:
    return Wire(node, ovs)


#: Bytes of a datagram that the guest has the kernel cut into segments of SEGMENT bytes, and its virtio-net headers (virtio 1.2, 5.1.6).
FRAGMENTED, SEGMENT, GSO_UDP, NEEDS_CSUM = 592, 560, 3, 1
UFO = struct.pack("=BBHHHH", 0, GSO_UDP, 42, SEGMENT, 0, 0)
UFO_WITH_CHECKSUM = struct.pack("=BBHHHH", NEEDS_CSUM, GSO_UDP, 42, SEGMENT, 34, 6)


def segments(wire: Wire) -> list[str]:
    """What arrives of a later fragment that the kernel is to segment (UFO) and begins with offset 0: a DHCP server's message, in hex.

    The switch has an entry for later fragments by then: each is waited for, as the first goes through ovs-vswitchd, whose threads let
    a frame that was sent after another overtake it.
    """
    whole = udp(67, 68, bytes(FRAGMENTED - 8))
    fragment = ethernet(frames.IPV4, ipv4(IP, bytes(64), fragment=1))
    for _ in range(3):
        wire.guest.send(fragment)
        assert wire.other.receive(lambda frame: frame == fragment, seconds=20) == fragment
    for header in (UFO, UFO_WITH_CHECKSUM):
        os.write(wire.guest.descriptor, header + ethernet(frames.IPV4, ipv4(IP, whole, fragment=1)))
    arrived = []
    while (frame := wire.other.receive(seconds=1)) is not None:
        arrived.append(frame)
    first = [frame for frame in arrived if frame[12:14] == b"\x08\0" and not int.from_bytes(frame[20:22], "big") & 0x1FFF]
    return [frame.hex() for frame in first if frame[34:38] == whole[:4]]


def counters() -> dict[str, int]:
    with ours() as node:
        (record,) = node.store.all()[0]
        return {name: count for one in decode(record)[0] if isinstance(one, Flows) for name, count in one.counters(node.host.view())}


def verdicts(wire: Wire, switches: frozenset[str] = frozenset()) -> list[str]:
    """The kinds that do not fare as they should."""
    return [kind.name for kind in KINDS if wire.passes(kind.frame) != (not kind.reason or bool(kind.freed & switches))]


def test_without_the_guard_all_of_it_passes(wire: Wire) -> None:
    """So a frame that does not arrive was dropped by the guard. (A tag without a VID is taken off by the switch.)"""
    wire.up("netcommon:*:spoof_guard:false")
    assert [kind.name for kind in KINDS if not wire.passes(kind.frame)] == ["priority tag"]


def test_the_table(wire: Wire) -> None:
    """Each kind has its verdict, and is counted under its reason, once."""
    wire.up()
    assert verdicts(wire) == []
    expected = dict.fromkeys(counters(), 0)
    for kind in KINDS:
        if kind.reason:
            expected[kind.reason] += 1
    wait_until(lambda: counters() == expected, 10, f"the counters {expected}")
    assert good() == ["tap0"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_flips_its_own_rows(wire: Wire, switch: str) -> None:
    wire.up(f"{ADDRESSED} netcommon:*:{switch}")
    assert verdicts(wire, frozenset({switch})) == []


def test_no_address_is_known(wire: Wire) -> None:
    """Then the MAC alone is checked: of the rows those of addresses are free, in both families."""
    wire.up(GUARDED, IP="")
    assert verdicts(wire, frozenset({ADDRESS})) == []


def test_one_family_is_known(wire: Wire) -> None:
    wire.up(GUARDED)
    free = {"IPv6 from a foreign address", "advertisement of a foreign address"}
    wrong = [kind.name for kind in KINDS if wire.passes(kind.frame) != (not kind.reason or kind.name in free)]
    assert wrong == []


def test_link_local_of_the_mac_alone(wire: Wire) -> None:
    wire.up(f"{ADDRESSED} netcommon:*:link_local:eui64")
    assert verdicts(wire) == [kind.name for kind in KINDS if "another link-local" in kind.name]


def test_prefixes(wire: Wire) -> None:
    wire.up(f"{ADDRESSED} netcommon:*:prefixes:192.0.2.0/28")
    assert wire.passes(ethernet(frames.IPV4, ipv4("192.0.2.7", udp(1, 2))))
    assert not wire.passes(ethernet(frames.IPV4, ipv4("192.0.2.17", udp(1, 2))))


def test_vlans_of_the_port(wire: Wire) -> None:
    """The tags that the port may have, under the same checks; no other."""
    wire.up(VLAN=".10:20:24:25:26:27")
    wire.ovs.vsctl("set", "Port", "tap1", "tag=10", "trunks=20,21,24,27,28", "vlan_mode=native-untagged")

    def tagged(vid: int, source: str = IP) -> bytes:
        return ethernet(frames.IPV4, ipv4(source, udp(1, vid)), tags=((frames.VLAN, vid),))

    assert [vid for vid in (10, 20, 21, 24, 27, 28) if wire.passes(tagged(vid))] == [20, 24, 27]
    assert not wire.passes(tagged(20, "10.0.0.9"))


def test_flows_of_the_site_come_after_the_guard(wire: Wire) -> None:
    """What it lets pass meets the bridge's own flows, whatever they are; others' frames never meet the guard's."""
    wire.up()
    run("ovs-ofctl", "add-flow", "ovs0", "priority=100,udp,tp_dst=7,actions=drop")
    assert not wire.passes(ethernet(frames.IPV4, ipv4(IP, udp(1, 7))))
    assert wire.passes(ethernet(frames.IPV4, ipv4(IP, udp(1, 8))))
    assert not wire.passes(ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1, 8))))
    stranger = ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1, 8)), "aa:00:00:00:00:77")
    wire.other.send(stranger)
    assert wire.guest.receive(lambda frame: frame == stranger, seconds=5) == stranger


#: Where the verdict is another than for bridged and routed NICs, and why (docs/openvswitch.md).
ALWAYS = frozenset({"", *SWITCHES})
LIMITS: dict[str, frozenset[str]] = {  # kind: the switches with which it passes, "" for none of them
    # no match looks into a DHCP message
    **dict.fromkeys((f"DHCP client{which}" for which in (", foreign chaddr", " through a relay agent", ", cut off")), ALWAYS),
    "DHCPv6 to a server, the type in padding": ALWAYS,
    **dict.fromkeys(("DHCP server to a relay", "DHCPv6 server to a relay"), ALWAYS),  # likewise: only the ports are seen
    # what the kernel makes of it behind a flow is not matched; docs/openvswitch.md, "Where the kernel forwards"
    **dict.fromkeys(("DHCP server, later fragment", "DHCP server, later fragment from another port"), ALWAYS),
    **dict.fromkeys(("DHCP client, later fragment", "later fragment of UDP with options"), ALWAYS),
    # nor is what a later fragment of IGMP begins with, which the snooping of a Linux bridge alone takes for a message
    **dict.fromkeys(("IGMP query, later fragment", "IGMP report, later fragment"), ALWAYS),
    # the switch looks behind an authentication header, and at none of the other two
    **dict.fromkeys(("router advertisement, authenticated", "DHCPv6 server, authenticated"), frozenset({DHCP})),
    "options, authenticated": frozenset({DHCP}),
    "advertisement, authenticated": frozenset({ADDRESS, DHCP}),
    **dict.fromkeys(("mobility", "HIP"), frozenset[str]()),
    "hop by hop, then a first fragment": ALWAYS,  # its ports are found all the same
    "options in one fragment": ALWAYS,  # likewise
    "DHCP server, later fragment without a length": frozenset(),  # the switch takes it for no IPv4 at all
    "IGMP query": ALWAYS,  # to another address than 224.0.0.1: no match has the type
    # nor the address that a probe asks for
    **dict.fromkeys(("ARP probe for another's address", "solicitation, DAD of another's address"), ALWAYS),
    "router solicitation, foreign MAC": ALWAYS,  # its options are not matched
    "service tag": ALWAYS,  # a tag is a tag: which kind it is of is not matched; the VLAN is
    "router advertisement, hop by hop": frozenset({DHCP}),  # what is before ICMPv6 is not matched
    "router advertisement, not fragmented really": frozenset({DHCP}),
    "echo, fragmented": frozenset(),  # with a hop limit of 255, as no echo has
}


@pytest.mark.parametrize("switch", ["", *SWITCHES])
def test_the_verdicts_are_those_of_bridged_nics(wire: Wire, switch: str) -> None:
    """All kinds of that guard's own test: they differ only where the table above says so."""
    tags = f"{GUARDED} netcommon:*:addresses:{OWN6} netcommon:*:prefixes:10.1.0.0/28 netcommon:*:prefixes:2001:db8:1::/64"
    wire.up(tags + f" netcommon:*:{switch}" * bool(switch), IP=OWN4, MAC=BRIDGED_MAC, VLAN=".9:7")
    wire.ovs.vsctl("set", "Port", "tap1", "tag=9", "trunks=7", "vlan_mode=native-untagged")
    differing = []
    for number, (kind, (sent, reason, free)) in enumerate(FRAMES.items()):
        mark = frame(ip4(OWN4, udp4(1, 1000 + number))[14:], frames.IPV4).ljust(60, b"\0")
        wanted = switch in LIMITS[kind] if kind in LIMITS else not reason or switch in {C[name] for name in free}
        if wire.passes(sent.ljust(60, b"\0"), mark=mark) != wanted:
            differing.append(kind)
    assert differing == [] and set(LIMITS) <= set(FRAMES)


def test_no_router_of_groups(wire: Wire) -> None:
    """With multicast snooping a query makes a port one that gets every group, unless it is dropped; that of a single IGMP group passes."""
    wire.ovs.vsctl("set", "Bridge", "ovs0", "mcast_snooping_enable=true")
    queries = [by_name(name).frame for name in ("IGMP query", "MLD query")]
    single = ethernet(frames.IPV4, ipv4(IP, b"\x11\x64\x0d\x99\xe0\1\1\1", 2, destination="224.1.1.1"), destination=GROUP)

    def router(frame: bytes) -> bool:
        wire.passes(frame)
        found = "querier" in run("ovs-appctl", "--target", f"{RUN}/vswitchd.ctl", "mdb/show", "ovs0")
        run("ovs-appctl", "--target", f"{RUN}/vswitchd.ctl", "mdb/flush", "ovs0")
        return found

    to_group = [bytes.fromhex(GROUP.replace(":", "")) + frame[6:] for frame in queries]
    wire.up("netcommon:*:spoof_guard:false")
    assert [router(frame) for frame in (*to_group, single)] == [True, True, True]
    wire.up()
    assert [router(frame) for frame in (*to_group, single)] == [False, False, True]


def test_a_later_fragment_that_the_kernel_could_segment(wire: Wire) -> None:
    """This datapath hands on what it reads, as it is."""
    wire.up()
    assert segments(wire) == []


def test_put_again_without_a_gap(wire: Wire) -> None:
    """A stream of 1000 frames a second loses none while the flows are put 100 times and more; of forged ones, mixed in, none passes."""
    wire.up()
    good_ones, forged, heard = [], [], []
    over = threading.Event()

    def send() -> None:
        number = 0
        while not over.is_set():
            number += 1
            good_ones.append(ethernet(frames.IPV4, ipv4(IP, udp(1000 + number % 50000, 1, b"%d" % number))))
            forged.append(ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1000 + number % 50000, 1, b"%d" % number))))
            wire.guest.send(forged[-1])
            wire.guest.send(good_ones[-1])
            time.sleep(0.001)

    def hear() -> None:
        while (frame := wire.other.receive(seconds=0.1 if over.is_set() else 2)) is not None:
            heard.append(frame)

    threads = [threading.Thread(target=hear), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    with ours() as node:
        (record,) = node.store.all()[0]
        requests = [request for one in decode(record)[0] if isinstance(one, Flows) for request in one.apply()]
        answers: list[Answer] = []
        while len(answers) < 100 or len(good_ones) <= 300:
            answers += node.host.execute(requests, stop=True)
    over.set()
    for thread in reversed(threads):
        thread.join()
    assert [answer for answer in answers if not answer.ok] == []
    assert set(good_ones) - set(heard) == set() == set(forged) & set(heard)


def test_the_example(wire: Wire) -> None:
    """examples/templates/ovs/no-lan.j2, as a site would use it beside the guard."""
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    shutil.copy(EXAMPLE, folder)
    wire.up(f"{GUARDED} netcommon:0:flows:no-lan")

    def passes(destination: str, protocol: int = 17, port: int = 80) -> bool:
        payload = udp(1, port) + bytes(12)  # a TCP header begins with the same two ports
        return wire.passes(ethernet(frames.IPV4, ipv4(IP, payload, protocol, destination=destination)))

    assert passes("192.0.2.1") and passes(IP) and passes("192.0.2.1", 6)
    assert not passes("192.168.7.7") and not passes("10.9.9.9") and not passes("192.0.2.1", 6, 25)
    assert not wire.passes(ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1, 2), destination="192.0.2.1")))
    names = ("no-lan.lan", "no-lan.mail", "ip")
    wait_until(lambda: [counters()[name] for name in names] == [2, 1, 1], 10, "the counters")
    assert good() == ["tap0"]
    argv = [sys.executable, "-m", "netcommon.cli", "show", "tap0"]
    shown = subprocess.run(argv, capture_output=True, text=True, cwd=EXAMPLE.parents[3], check=True).stdout
    assert "ip 1" in shown and "no-lan.lan 2, no-lan.mail 1" in shown


@pytest.mark.no_agent("an agent repairs by itself")
def test_repair_leaves_a_flow_of_somebody_elses(wire: Wire) -> None:
    """One that has taken the place of a template's; the switch is asked what it has."""
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    (folder / "site.j2").write_text("priority=7,udp,tp_dst=7,actions=drop\n")
    wire.up(f"{GUARDED} netcommon:0:flows:site")
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x7,priority=7,in_port=tap0,udp,tp_dst=7,actions=NORMAL")
    assert "cookie=0x7" in run("ovs-ofctl", "dump-flows", "ovs0", "in_port=tap0")
    argv = [sys.executable, "-m", "netcommon.cli", "repair", "tap0"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=EXAMPLE.parents[3], check=False)
    assert done.returncode == 69 and "a flow of somebody else's with the match and priority" in done.stderr
    assert "cookie=0x7" in run("ovs-ofctl", "dump-flows", "ovs0", "in_port=tap0")
    assert wire.passes(ethernet(frames.IPV4, ipv4(IP, udp(1, 7))))


@pytest.mark.no_agent("an agent repairs by itself")
def test_repair_puts_the_guard_back_beside_a_flow_of_somebody_elses(wire: Wire) -> None:
    """Flows of the guard are gone too: frames decide that it stands again, and the switch has the other's flow as it was."""
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    (folder / "site.j2").write_text("priority=7,udp,tp_dst=7,actions=drop\n")
    wire.up(f"{GUARDED} netcommon:0:flows:site")
    run("ovs-ofctl", "--strict", "del-flows", "ovs0", "in_port=tap0,priority=65000,reg13=0x20000000/0xe0000000")  # of another MAC
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x7,priority=7,in_port=tap0,udp,tp_dst=7,actions=NORMAL")
    forged, fine = (ethernet(frames.IPV4, ipv4(IP, udp(1, 7)), source=source) for source in (OTHER, OWN))
    argv = [sys.executable, "-m", "netcommon.cli", "repair", "tap0"]
    assert wire.passes(fine) and wire.passes(forged)
    for _ in range(2):
        done = subprocess.run(argv, capture_output=True, text=True, cwd=EXAMPLE.parents[3], check=False)
        assert done.returncode == 69 and "a flow of somebody else's with the match and priority" in done.stderr
        assert "cookie=0x7" in run("ovs-ofctl", "dump-flows", "ovs0", "in_port=tap0")
        assert wire.passes(fine) and not wire.passes(forged)
    (remedy,) = re.findall(r'ovs-ofctl --strict del-flows ovs0 "[^"]*"', done.stderr)
    run(*shlex.split(remedy))
    assert subprocess.run(argv, capture_output=True, cwd=EXAMPLE.parents[3], check=False).returncode == 0
    assert not wire.passes(fine) and not wire.passes(forged)


def test_the_guard_of_the_site(wire: Wire) -> None:
    """A template of the same name takes the place of ours."""
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    (folder / "spoof-guard.j2").write_text("all: priority=65000,udp,tp_dst=7,actions=drop\n")
    wire.up()
    assert not wire.passes(ethernet(frames.IPV4, ipv4(IP, udp(1, 7))))
    assert wire.passes(ethernet(frames.IPV4, ipv4("10.0.0.9", udp(1, 8)), OTHER))


def test_a_template_that_is_wrong(wire: Wire) -> None:
    """The NIC is refused with the template's name, and nothing is done."""
    before = snapshot()
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    for text, said in (("priority=7,foo=1,actions=drop", "unknown keyword foo"), ("nw_src=10.0.0.1,actions=drop", "without ip")):
        (folder / "bad.j2").write_text(text)
        done = rundoor("kvm-ifup", {**NIC, "TAGS": "netcommon:0:flows:bad"})
        assert done.status == 78 and "template ovs/bad.j2" in done.stderr and said in done.stderr
    shutil.rmtree("/etc/netcommon/templates")
    assert [line for line in diff(before, snapshot()) if not line.startswith("+ files: /run/netcommon")] == []


def by_name(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def test_the_switches_are_named_as_options() -> None:
    assert {switch for kind in KINDS for switch in kind.freed} == set(SWITCHES)
    assert by_name("STP").freed == {KIND} and by_name("ARP of a foreign MAC").freed == {MAC} and OTHER_LOCAL.startswith("fe80")
