"""Firewall profiles: what reaches the guest by each, with real connections; shared tables come with the first NIC and go with the last."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

import netcommon.templates
from netcommon.lifecycle.context import Call
from netcommon.lifecycle.up import up
from netcommon.log import recording
from runtime.environment import nic_from_environment
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.support.frames import ICMP6, IPV4, IPV6, checksum
from tests.support.netns import Namespace, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, Site, drift, mend, options, ours, reaches
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
PORTS = (22, 80)


def listen(guest: Namespace) -> list[socket.socket]:
    """The guest's services."""
    with guest.entered():
        return [socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) for port in PORTS]


def connects(there: Namespace, address: str, port: int) -> bool:
    """Whether a connection from ``there`` is taken within half a second; a refused one would be an answer too."""
    with there.entered(), contextlib.suppress(TimeoutError):
        socket.create_connection((address, port), timeout=0.5).close()
        return True
    return False


def tables() -> list[str]:
    """Tables of profiles."""
    return [line.split()[-1] for line in run("nft", "list", "tables").splitlines() if "netcommon-fw-" in line]


def what_gets_in(outside: Namespace, guest: Namespace, address: str) -> tuple[bool, ...]:
    """Ping, and each of PORTS, from outside; and a connection of the guest's own, which must always work."""
    services = listen(guest)
    with outside.entered():
        server = socket.create_server(("0.0.0.0", 8080))
    try:
        assert connects(guest, FAR4 if outside_has(outside, FAR4) else GATEWAY4, 8080)
        return (reaches(outside, address) == [address], *(connects(outside, address, port) for port in PORTS))
    finally:
        for each in (*services, server):
            each.close()


def outside_has(outside: Namespace, address: str) -> bool:
    return address in outside.run("ip", "address")


VERDICTS = {"": (True, True, True), "unprotected": (True, True, True), "limited": (True, True, False), "protected": (False, False, False)}


@pytest.mark.parametrize("profile", VERDICTS)
def test_a_routed_nic(node: Node, profile: str) -> None:
    """snf-network's three words."""
    site = Site(node, "")
    guest = site.guest(HOST4)
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=" ".join(["netcommon:*:uplink_proxy:both", *([f"netcommon:0:{profile}"] if profile else [])]))
    site.up(nic)
    assert drift() == []
    assert what_gets_in(site.router, guest, HOST4) == VERDICTS[profile]
    assert len(tables()) == (profile in ("limited", "protected"))
    site.down(nic)
    assert diff(before, snapshot()) == []


HARMS = (
    "flush chain FAMILY TABLE rules",
    "flush chain FAMILY TABLE forward",
    "flush set FAMILY TABLE nics",
    "delete chain FAMILY TABLE made",
    "replace rule FAMILY TABLE rules handle LAST counter accept",
    "replace rule FAMILY TABLE forward handle FIRST oif lo goto rules",
    "insert rule FAMILY TABLE rules accept",
    "add rule FAMILY TABLE rules tcp dport 80 drop",
    "add chain FAMILY TABLE also { type filter hook forward priority 0; }; add rule FAMILY TABLE also drop",
    "delete rule FAMILY TABLE forward handle FIRST; delete chain FAMILY TABLE forward; add chain FAMILY TABLE forward HOOK",
    "delete table FAMILY TABLE",
    "flush ruleset",
)
ON_BRIDGES = ("flush chain FAMILY TABLE output", "delete table inet TABLE-own", "flush chain inet TABLE-own own")


def handles(family: str, table: str, chain: str) -> list[str]:
    listed = json.loads(run("nft", "-j", "list", "chain", family, table, chain))["nftables"]
    return [str(item["rule"]["handle"]) for item in listed if "rule" in item]


def harmed(family: str, table: str) -> None:
    """Each change by hand is seen, and repaired to what it was."""
    whole = rules_now()
    for harm in (*HARMS, *(ON_BRIDGES if family == "bridge" else ())):
        words = harm.replace("FAMILY", family).replace("TABLE", table).replace("HOOK", "{ type filter hook input priority 9; }")
        for word, chain, place in (("LAST", "rules", -1), ("FIRST", "forward", 0)):
            if word in words:
                words = words.replace(word, handles(family, table, chain)[place])
        run("nft", words)
        assert drift() != [], words
        mend()
        assert drift() == [], words
        if "also" in words:
            run("nft", "delete", "chain", family, table, "also")
            mend()
        assert rules_now() == whole, words
    assert collect() == []


def rules_now() -> list[str]:
    """All rules, in any order of chains, without what they have counted and learned."""
    text = re.sub(r"packets \d+ bytes \d+|elements = \{[^}]*expires[^}]*\}", "", run("nft", "list", "ruleset"))
    return sorted(line for line in text.splitlines() if line.strip())


def test_drift_and_repair(node: Node) -> None:
    site = Site(node, "")
    site.guest(HOST4)
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=options("firewall:limited"))
    site.up(nic)
    (table,) = tables()
    harmed("inet", table)
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_drift_and_repair_on_a_bridge(node: Node) -> None:
    node.tap("tap0")
    node.bridge("br0")
    stateless("limited")
    nic = environment(MODE="bridged", LINK="br0", IP="", TAGS="netcommon:*:limited")
    assert rundoor("kvm-ifup", nic).status == 0
    harmed("bridge", min(tables()))
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert tables() == []


def test_what_was_counted_is_no_drift(node: Node) -> None:
    site = Site(node, "")
    guest = site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=options("firewall:protected", "uplink_proxy:both")))
    assert what_gets_in(site.router, guest, HOST4) == VERDICTS["protected"]
    assert re.search(r"counter packets [1-9]\d* bytes \d+ drop", run("nft", "list", "table", "inet", *tables())) and drift() == []


@pytest.mark.no_agent("about what a hook says of a record that does not parse: an agent puts it in quarantine before")
def test_a_lost_record(node: Node) -> None:
    """What is left in a set of a NIC whose record is lost goes with gc; and it never was about the next guest of that device's name."""
    site = Site(node, "")
    other = "192.0.2.6"
    site.guest(HOST4)
    site.tap("tap1", mac := "aa:00:00:00:00:01")
    site.guest(other, name="tap1")
    lost = site.nic(1, IP=other, TAGS="netcommon:*:protected netcommon:*:uplink_proxy:both")
    for nic in (site.nic(IP=HOST4, TAGS="netcommon:*:protected"), lost):
        site.up(nic)
    (table,) = tables()
    assert reaches(site.router, other) == []
    Path(f"/run/netcommon/nics/{lost['INTERFACE_UUID']}.json").write_text("{")
    run("ip", "link", "delete", "tap1")
    site.tap("tap1", mac)
    site.guest(other, name="tap1")
    after = {**lost, "INTERFACE_UUID": "000000aa-0667-415f-9a43-786dc01cbf24", "TAGS": "netcommon:*:uplink_proxy:both"}
    done = rundoor("kvm-ifup", after)
    assert done.status == 0 and "moved to quarantine" in done.stderr
    assert reaches(site.router, other) == [other]
    assert members(table) == 2
    assert len([line for line in collect() if line.startswith("removed") and table in line]) == 1
    assert members(table) == 1 and drift() == []
    assert reaches(site.router, other) == [other]


def members(table: str) -> int:
    """How many devices are in the set of a table for routed NICs."""
    listed = json.loads(run("nft", "-j", "list", "set", "inet", table, "nics"))["nftables"]
    return sum(len(item["set"].get("elem", ())) for item in listed if "set" in item)


def test_two_nics_share_a_table_and_the_last_takes_it_along(node: Node) -> None:
    for name in ("tap0", "tap1"):
        node.tap(name)
    nics = [environment(number, TAGS="netcommon:*:protected") for number in (0, 1)]
    for nic in nics:
        assert rundoor("kvm-ifup", nic).status == rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove").status == 0
    before = snapshot()
    for nic in nics:
        assert rundoor("kvm-ifup", nic).status == 0
    (table,) = tables()
    assert [f'"{name}"' in run("nft", "list", "set", "inet", table, "nics") for name in ("tap0", "tap1")] == [True, True]
    assert rundoor("kvm-ifdown", nics[0], "tap0", "hot-remove").status == 0
    assert [f'"{name}"' in run("nft", "list", "set", "inet", table, "nics") for name in ("tap0", "tap1")] == [False, True]
    assert good() == ["tap1"]
    assert rundoor("kvm-ifdown", nics[1], "tap1", "hot-remove").status == 0
    assert tables() == []
    assert diff(before, snapshot()) == []


def test_a_changed_template_is_for_those_who_come_after(node: Node) -> None:
    """Those before keep what they have until their next up, and nobody's check shows drift."""
    for name in ("tap0", "tap1"):
        node.tap(name)
    nics = [environment(number, TAGS="netcommon:*:limited") for number in (0, 1)]
    assert rundoor("kvm-ifup", nics[0]).status == 0
    site = Path("/etc/netcommon/templates/firewall/limited.j2")
    site.parent.mkdir(parents=True)
    site.write_text("tcp dport 443 accept\ncounter drop\n")
    site.chmod(0o644)
    before = tables()
    assert all("as it should be" in line for line in mend()) and tables() == before  # repaired is what was loaded
    run("nft", "flush", "ruleset")
    assert mend() and tables() == before
    assert rundoor("kvm-ifup", nics[1]).status == 0
    assert len(tables()) == 2 and good() == ["tap0", "tap1"]
    assert rundoor("kvm-ifup", nics[0]).status == 0
    assert len(tables()) == 1 and "443" in run("nft", "list", "table", "inet", *tables()) and good() == ["tap0", "tap1"]
    for nic in nics:
        assert rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove").status == 0
    assert tables() == []


WRONG = ("accept; flush ruleset", "} table ip x {", "tcp dport 99999 accept", 'include "/etc/passwd"', "flush ruleset")


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_template_is_refused_and_nothing_is_left(node: Node, line: str) -> None:
    node.tap("tap0")
    site = Path("/etc/netcommon/templates/firewall/limited.j2")
    site.parent.mkdir(parents=True)
    site.write_text(line + "\n")
    before = snapshot()
    outcome = rundoor("kvm-ifup", environment(TAGS="netcommon:*:limited"))
    assert outcome.status in (69, 78) and outcome.stderr.count("\n") == 1, outcome
    assert diff(before, {**snapshot(), "files": before["files"]}) == []


def test_open_vswitch_has_none(node: Node) -> None:
    node.tap("tap0")
    outcome = rundoor("kvm-ifup", environment(MODE="openvswitch", LINK="ovs0", IP="", TAGS="netcommon:*:protected"))
    assert outcome.status == 64 and "firewall profile protected" in outcome.stderr


STATELESS = """ether type arp accept
ip protocol icmp accept
meta l4proto ipv6-icmp accept
tcp flags & (syn | ack) != syn accept
tcp dport 22 accept
drop
"""


def stateless(profile: str, rules: str = STATELESS) -> None:
    """A site's own rules, without connection tracking, which the running kernel does not do on bridges."""
    site = Path(f"/etc/netcommon/templates/firewall/{profile}.j2")
    site.parent.mkdir(parents=True, exist_ok=True)
    site.write_text(rules)
    site.chmod(0o644)


def bridged(node: Node, profile: str) -> None:
    """A guest's IP stack on a bridge whose other port leads to an outside host."""
    outside = node.outside("up0", f"{GATEWAY4}/24", f"{FAR4}/32")
    node.bridge("br0", "up0")
    guest = node.namespaced()
    run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", "aa:00:00:00:00:00", "netns", guest.path)
    guest.run("ip", "address", "add", f"{HOST4}/24", "dev", "eth0")
    guest.run("ip", "link", "set", "eth0", "up")
    guest.run("ip", "route", "add", "default", "via", GATEWAY4)
    nic = environment(MODE="bridged", LINK="br0", IP="", TAGS=f"netcommon:*:{profile}")
    assert rundoor("kvm-ifup", nic).status == rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    before = snapshot()
    assert rundoor("kvm-ifup", nic).status == 0
    assert good() == ["tap0"]
    wait_until(lambda: reaches(guest, GATEWAY4) == [GATEWAY4], 10, "the bridge forwards")
    assert what_gets_in(outside, guest, HOST4) == VERDICTS[profile]
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.vm
@pytest.mark.parametrize("profile", [pytest.param("limited", marks=pytest.mark.slow), "protected"])
def test_a_bridged_nic(node: Node, profile: str) -> None:
    """In the machine: the running kernel tracks no connections on bridges."""
    bridged(node, profile)


def test_a_bridged_nic_without_connection_tracking(node: Node) -> None:
    """A site's own rules do without; ours are refused, with the remedy."""
    node.tap("tap1")
    node.bridge("br1")
    outcome = rundoor("kvm-ifup", environment(1, MODE="bridged", LINK="br1", IP="", TAGS="netcommon:*:limited"))
    assert (outcome.status, "modprobe nf_conntrack_bridge" in outcome.stderr) == (69, True) or outcome.status == 0, outcome
    stateless("limited")
    bridged(node, "limited")


def behind(node: Node, profile: str, translated: bool) -> None:
    """A guest on a bridge into which the node routes: the node reaches all of it, and the world what the profile lets in."""
    far = node.outside("up0", f"{FAR4}/24", f"{FAR6}/64")
    node.address("up0", "198.51.100.254/24", "2001:db8:aaaa::fe/64")
    node.bridge("br0")
    node.address("br0", f"{GATEWAY4}/24", f"{GATEWAY6}/64")
    node.forwarding(ipv6=True)
    far.run("ip", "route", "add", "default", "via", "198.51.100.254")
    far.run("ip", "route", "add", "default", "via", "2001:db8:aaaa::fe")
    guest = node.namespaced()
    run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", "aa:00:00:00:00:00", "netns", guest.path)
    guest.run("ip", "address", "add", f"{HOST4}/24", "dev", "eth0")
    guest.run("ip", "link", "set", "eth0", "up")
    guest.run("ip", "address", "add", f"{HOST6}/64", "dev", "eth0", "nodad")
    for gateway in (GATEWAY4, GATEWAY6):
        guest.run("ip", "route", "add", "default", "via", gateway)
    if translated:
        run("nft", "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }")
        run("nft", "add rule ip nat post oif br0 masquerade")
    nic = environment(MODE="bridged", LINK="br0", IP="", TAGS=f"netcommon:*:{profile}")
    assert rundoor("kvm-ifup", nic).status == 0
    assert good() == ["tap0"]
    wait_until(lambda: reaches(guest, GATEWAY4) == [GATEWAY4], 10, "the bridge forwards")
    assert what_gets_in(far, guest, HOST4) == VERDICTS[profile]
    services = listen(guest)
    with guest.entered():
        group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        group.bind(("", 5353))
        group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("224.0.0.251") + socket.inet_aton(HOST4))
        group.settimeout(0.1)
    assert [connects(node.namespace, address, port) for address in (HOST4, HOST6) for port in PORTS] == [True] * 4
    assert reaches(far, HOST6) == ([] if profile == "protected" else [HOST6])
    assert tuple(connects(far, HOST6, port) for port in PORTS) == VERDICTS[profile][1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, group:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(GATEWAY4))
        wait_until(lambda: heard(sender, group), 10, "the node's multicast comes through")
    for each in services:
        each.close()
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert tables() == []


def heard(sender: socket.socket, group: socket.socket) -> bool:
    """Whether one of the node's datagrams to the group comes."""
    sender.sendto(b"mdns", ("224.0.0.251", 5353))
    with contextlib.suppress(TimeoutError):
        return group.recv(10) == b"mdns"
    return False


def test_behind_the_node(node: Node) -> None:
    """What the node routes into a bridge passes its output hook alone."""
    stateless("limited")
    behind(node, "limited", translated=False)


@pytest.mark.vm
@pytest.mark.parametrize("translated", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["routed", "masqueraded"])
@pytest.mark.parametrize("profile", [pytest.param("limited", marks=pytest.mark.slow), "protected"])
def test_behind_the_node_with_connection_tracking(node: Node, profile: str, translated: bool) -> None:
    """Masqueraded, it has the node's own address, and is not the node's all the same."""
    behind(node, profile, translated)


def multicast4(protocol: int, payload: bytes) -> bytes:
    """A frame for all systems, with the router alert option where it is IGMP's (RFC 2236)."""
    alert = bytes((0x94, 4, 0, 0)) if protocol == IGMP else b""
    head = struct.pack("!BBHHHBBH", 0x45 + len(alert) // 4, 0, 20 + len(alert) + len(payload), 1, 0, 1, protocol, 0)
    head += socket.inet_aton(GATEWAY4) + socket.inet_aton("224.0.0.1") + alert
    packet = head[:10] + checksum(head) + head[12:] + payload
    return bytes.fromhex("01005e000001aa0000000099") + struct.pack("!H", IPV4) + packet


def multicast6(kind: int) -> bytes:
    """A message of multicast listener discovery for all nodes (RFC 2710, 3810)."""
    source, destination = (socket.inet_pton(socket.AF_INET6, each) for each in ("fe80::99", "ff02::1"))
    message = struct.pack("!BBHHH", kind, 0, 0, 1000, 0) + bytes(16)
    sum_of = checksum(source + destination + struct.pack("!IHBB", len(message), 0, 0, ICMP6) + message)
    message = message[:2] + sum_of + message[4:]
    alert = bytes((ICMP6, 0, 5, 2, 0, 0, 1, 0))
    packet = struct.pack("!IHBB", 6 << 28, len(alert) + len(message), 0, 1) + source + destination + alert + message
    return bytes.fromhex("333300000001aa0000000099") + struct.pack("!H", IPV6) + packet


IGMP, UDP = 2, 17
GROUPS = {
    "IGMP query": multicast4(IGMP, bytes.fromhex("1164ee9b00000000")),
    "MLD query": multicast6(130),
    "MLD report": multicast6(131),
    "MLD done": multicast6(132),
    "MLD report, version 2": multicast6(143),
}
OTHER = multicast4(UDP, struct.pack("!HHHH", 5353, 5353, 16, 0) + b"nobodys.")


def groups(node: Node) -> None:
    """What keeps groups alive reaches the guest, and other multicast does not."""
    outside = node.outside("up0")
    node.bridge("br0", "up0")
    run("ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "0")
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", environment(MODE="bridged", LINK="br0", IP="", TAGS="netcommon:*:protected")).status == 0
    with outside.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("eth0", 0))
        for name, frame in GROUPS.items():
            wire.send(OTHER)
            wire.send(frame)
            first = tap.receive(lambda got: got[6:12] == frame[6:12], 5)  # noqa: B023
            assert first is not None and first[: len(frame)] == frame, name


def test_groups_without_connection_tracking(node: Node) -> None:
    """Our own rules, less the one that the running kernel cannot do."""
    shipped = Path(netcommon.templates.__file__).parent / "firewall/protected.j2"
    stateless("protected", "".join(line for line in shipped.read_text().splitlines(True) if not line.startswith("ct state")))
    groups(node)


@pytest.mark.vm
def test_groups(node: Node) -> None:
    groups(node)


CHANGES = 50


class Stream(threading.Thread):
    """An outsider that sends datagrams, which no profile lets in, as fast as it can."""

    def __init__(self, sender: socket.socket, address: str) -> None:
        super().__init__()
        self.sender, self.address, self.sent, self.stopped = sender, address, 0, threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            with contextlib.suppress(OSError):  # its queue is full
                self.sender.sendto(b"stream", (self.address, 9))
                self.sent += 1
            time.sleep(0.0001)


def changed(variables: dict[str, str], stream: Stream, arrived: socket.socket) -> None:
    """The NIC changes its profile time and again while the outsider sends; it has been up, and what arrived before is read."""
    stream.start()
    with ours() as node:
        for number in range(CHANGES):
            tags = variables["TAGS"].replace("limited", "protected") if number % 2 == 0 else variables["TAGS"]
            made = nic_from_environment({**variables, "TAGS": tags})
            assert up(node, made, Call(recording()[0], node.clock.now() + 60), run_scripts=False).changed
    stream.stopped.set()
    stream.join()
    assert stream.sent > CHANGES
    assert drift() == []
    with pytest.raises(BlockingIOError):
        arrived.recv(100)


def receiver(guest: Namespace) -> socket.socket:
    with guest.entered():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        made.bind(("", 9))
    return made


def test_never_open_while_it_changes(node: Node) -> None:
    site = Site(node, "")
    guest = site.guest(HOST4)
    variables = site.nic(IP=HOST4, TAGS="netcommon:0:limited netcommon:*:uplink_proxy:both")
    site.up(variables)
    assert reaches(site.router, HOST4) == [HOST4]
    with site.router.entered():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver(guest) as arrived:
        changed(variables, Stream(sender, HOST4), arrived)


def test_never_open_while_it_changes_on_a_bridge(node: Node) -> None:
    for profile in ("limited", "protected"):
        stateless(profile, STATELESS if profile == "limited" else STATELESS.replace("22", "80"))
    outside = node.outside("up0", f"{GATEWAY4}/24")
    node.bridge("br0", "up0")
    guest = node.namespaced()
    run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", "aa:00:00:00:00:00", "netns", guest.path)
    guest.run("ip", "address", "add", f"{HOST4}/24", "dev", "eth0")
    guest.run("ip", "link", "set", "eth0", "up")
    variables = environment(MODE="bridged", LINK="br0", IP="", TAGS="netcommon:*:limited")
    assert rundoor("kvm-ifup", variables).status == 0
    wait_until(lambda: reaches(outside, HOST4) == [HOST4], 10, "the bridge forwards")
    with outside.entered():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver(guest) as arrived:
        changed(variables, Stream(sender, HOST4), arrived)


FLOWS = 2000


def tracked() -> int:
    """Count how many connections the node tracks."""
    return int(sysctl("net/netfilter/nf_conntrack_count"))


def flows(sender: Namespace, address: str) -> None:
    """As many flows as there are source ports: what a guest does that fills the node's table."""
    with sender.entered():
        for port in range(10000, 10000 + FLOWS):
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.bind(("", port))
                one.sendto(b"flow", (address, 9))


def three(node: Node) -> list[Namespace]:
    """Routed guests at 10.0.0.1, .2 and .3: the first is protected. The third has an IPv6 address, as the second."""
    guests = [node.namespaced() for _ in range(3)]
    node.forwarding(ipv6=True)
    for number, guest in enumerate(guests):
        run("ip", "link", "add", f"tap{number}", "type", "veth", "peer", "name", "eth0", "netns", guest.path)
        guest.run("ip", "link", "set", "eth0", "address", f"aa:00:00:00:00:{number:02x}", "up")
        guest.run("ip", "address", "add", f"10.0.0.{number + 1}/32", "dev", "eth0")
        guest.run("ip", "address", "add", f"2001:db8::{number + 1}/128", "dev", "eth0", "nodad")
        for family, gateway in (("-4", "192.0.2.254"), ("-6", "fe80::1")):
            guest.run("ip", family, "route", "add", "default", "via", gateway, "dev", "eth0", "onlink")
    node.address("lo", "192.0.2.254/32")
    for number in range(3):
        profile = "netcommon:*:protected" if not number else ""
        tags = f"{profile} netcommon:*:gateway_link_local netcommon:*:addresses:2001:db8::{number + 1}"
        assert rundoor("kvm-ifup", environment(number, LINK="", TAGS=tags)).status == 0
    return guests


def only_what_is_needed(guests: list[Namespace], addresses: list[str], node: Node, services: str) -> None:
    """Others' flows leave no trace, and the protected one gets its answers and nothing else."""
    protected, second, third = guests
    wait_until(lambda: connects_back(protected, third, addresses[2]), 10, "answers to the protected one")
    an_hour_later()
    assert connects_back(protected, third, addresses[2])
    before = tracked()
    flows(second, addresses[2])
    flows(second, services)
    flows(node.namespace, addresses[2])
    assert tracked() < before + FLOWS / 20
    assert not any(connects_to(each, protected, addresses[0]) for each in (second, third))
    assert connects_back(protected, third, addresses[2]) and connects_back(protected, second, addresses[1])
    assert reaches(second, addresses[0]) == [] and reaches(protected, addresses[2]) == [addresses[2]]


def an_hour_later() -> None:
    """What a new table begins with has expired."""
    for item in json.loads(run("nft", "-j", "list", "sets"))["nftables"]:
        if "set" in item and item["set"]["name"] in ("full", "full-bridged"):
            run("nft", "flush", "set", item["set"]["family"], item["set"]["table"], item["set"]["name"])


def test_a_new_table_drops_no_answers(node: Node) -> None:
    """What the guest began before a second up with another profile, or before somebody flushed the ruleset, is answered after it."""
    protected, _second, third = three(node)
    with protected.entered():
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asking.bind(("", 4000))
    with third.entered():
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        there.bind(("", 7))
    with asking, there:
        for each in (asking, there):
            each.settimeout(5)
        wait_until(lambda: connects_back(protected, third, "10.0.0.3"), 10, "answers to the protected one")
        asking.sendto(b"began", ("10.0.0.3", 7))
        assert there.recv(100) == b"began"
        tags = "netcommon:*:limited netcommon:*:gateway_link_local netcommon:*:addresses:2001:db8::1"
        for changed in (lambda: None, lambda: run("nft", "flush", "ruleset")):
            changed()
            assert rundoor("kvm-ifup", environment(0, LINK="", TAGS=tags)).status == 0
            there.sendto(b"answer", ("10.0.0.1", 4000))
            assert asking.recv(100) == b"answer"


def connects_back(guest: Namespace, there: Namespace, address: str) -> bool:
    with there.entered(), socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True):
        return connects(guest, address, 8080)


def connects_to(guest: Namespace, there: Namespace, address: str) -> bool:
    with there.entered(), socket.create_server(("::", 8081), family=socket.AF_INET6, dualstack_ipv6=True):
        return connects(guest, address, 8081)


def test_flows_of_others_are_not_tracked(node: Node) -> None:
    """One guest with a profile, and two others fill no table."""
    guests = three(node)
    only_what_is_needed(guests, [f"10.0.0.{number}" for number in (1, 2, 3)], node, "192.0.2.254")
    only_what_is_needed(guests, [f"2001:db8::{number}" for number in (1, 2, 3)], node, "2001:db8::1")
    assert good() == ["tap0", "tap1", "tap2"]


def three_bridged(node: Node) -> list[Namespace]:
    """As ``three``, on a bridge with an address of the node's."""
    node.bridge("br0")
    node.address("br0", "10.0.0.254/24", "2001:db8::fe/64")
    guests = [node.namespaced() for _ in range(3)]
    for number, guest in enumerate(guests):
        run("ip", "link", "add", f"tap{number}", "type", "veth", "peer", "name", "eth0", "netns", guest.path)
        guest.run("ip", "link", "set", "eth0", "address", f"aa:00:00:00:00:{number:02x}", "up")
        guest.run("ip", "address", "add", f"10.0.0.{number + 1}/24", "dev", "eth0")
        guest.run("ip", "address", "add", f"2001:db8::{number + 1}/64", "dev", "eth0", "nodad")
        tags = f"{'' if number else 'netcommon:*:protected'} netcommon:*:addresses:2001:db8::{number + 1}"
        assert rundoor("kvm-ifup", environment(number, MODE="bridged", LINK="br0", TAGS=tags)).status == 0
    return guests


@pytest.mark.vm
@pytest.mark.slow
def test_flows_of_others_are_not_tracked_on_a_bridge(node: Node) -> None:
    guests = three_bridged(node)
    only_what_is_needed(guests, [f"10.0.0.{number}" for number in (1, 2, 3)], node, "10.0.0.254")
    only_what_is_needed(guests, [f"2001:db8::{number}" for number in (1, 2, 3)], node, "2001:db8::fe")
    assert good() == ["tap0", "tap1", "tap2"]


STATEFUL = """add table inet site
add chain inet site forward { type filter hook forward priority 0; policy drop; }
add rule inet site forward ct state established,related accept
add rule inet site forward iifname "tap1" ct state new accept
add rule inet site forward iifname "tap0" ct state new accept
"""


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_the_sites_own_rules_may_look_at_connections(node: Node, first: bool) -> None:
    """What they track stays tracked; those that come after the profile are seen by check, and have it from the repair on."""
    if first:
        run("nft", "-f", "-", stdin=STATEFUL)
    protected, second, third = three(node)
    if not first:
        assert good() == ["tap0", "tap1", "tap2"]
        run("nft", "-f", "-", stdin=STATEFUL)
        assert [line for line in drift() if "keeps connections from being tracked that table inet site may look at" in line]
        mend()
    assert drift() == [] and good() == ["tap0", "tap1", "tap2"]
    wait_until(lambda: connects_back(second, third, "10.0.0.3"), 10, "answers through the site's rules")
    assert not connects_back(third, second, "10.0.0.2")
    assert connects_back(protected, third, "10.0.0.3") and not connects_to(second, protected, "10.0.0.1")


#: nft(8), SETS: a rule only adds to it; what is counted is said by the set.
COUNTING = """table inet site {
 set busy { type ipv4_addr; size 1000; flags dynamic; ct count over 2; }
 chain forward { type filter hook forward priority 0; add @busy { ip saddr } drop; }
}
"""


def test_a_set_may_count_connections(node: Node) -> None:
    three(node)
    assert good() == ["tap0", "tap1", "tap2"]
    run("nft", "-f", "-", stdin=COUNTING)
    assert [line for line in drift() if "table inet site may look at" in line]
    mend()
    assert "notrack" not in run("nft", "list", "ruleset") and good() == ["tap0", "tap1", "tap2"]


def test_nics_of_an_earlier_version_keep_their_answers(node: Node) -> None:
    """Their table does not say what it needs tracked: a new one of another profile does it for them."""
    protected, _second, third = three(node)
    (table,) = tables()
    for chain in ("needed", "needed-own", "untracked", "untracked-own"):
        run("nft", f"flush chain inet {table} {chain}; delete chain inet {table} {chain}")
    tags = "netcommon:*:limited netcommon:*:gateway_link_local netcommon:*:addresses:2001:db8::2"
    assert rundoor("kvm-ifup", environment(1, LINK="", TAGS=tags)).status == 0
    (new,) = set(tables()) - {table}
    assert '"tap0"' in run("nft", "list", "set", "inet", new, "older")
    assert "notrack" in run("nft", "list", "table", "inet", new)
    wait_until(lambda: connects_back(protected, third, "10.0.0.3"), 10, "answers to the older one")
