"""Every site of examples/sites as its README puts it up: guests talk as it says, its scripts run, and the node is as before at the end."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import collect
from tests.support import frames, xenstore
from tests.support.dhcp import lease
from tests.support.forged import ipv4
from tests.support.guest import Guest
from tests.support.netns import Namespace, run, sysctl
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import BASE, execute, rundoor
from tests.support.sites import FOLDER, Site, placed
from tests.support.snapshot import Snapshot, diff, snapshot

TCP = 6
#: Of a switch in user space, which the tests of a kernel without Open vSwitch have.
UNLIMITED = "rate_out is not enforced: the datapath of ovs0 is in user space"

WORLD4, WORLD6 = "198.51.100.1", "2001:db8:aaaa::1"  #: beyond the router


def up(site: Site) -> None:
    for name, nic in site.nics().items():
        done = rundoor("kvm-ifup", nic)
        said = [line for line in done.stderr.splitlines() if UNLIMITED not in line]
        assert (done.status, said) == (0, []), (name, done)


def down(site: Site) -> None:
    for name, nic in reversed(site.nics().items()):
        done = rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove")
        assert (done.status, done.stderr) == (0, ""), (name, done)


def rest(site: Site) -> None:
    """A device has its queue from its first time up on; one that had limits, from its next (docs/openvswitch.md)."""
    for nic in site.nics().values():
        for state in ("up", "down"):
            run("ip", "link", "set", nic["INTERFACE"], state)


def once(site: Site) -> Snapshot:
    """The node when all NICs have been up and down: of files alone something is made once and stays."""
    rest(site)
    before = snapshot()
    up(site)
    down(site)
    rest(site)
    after = snapshot()
    assert [line for line in diff(before, after) if not line.startswith("+ files: /run/netcommon")] == []
    return after


@contextlib.contextmanager
def working(site: Site) -> Iterator[None]:
    """All NICs are up, as the README shows; then down, and the node is as before."""
    before = once(site)
    up(site)
    site.shell("netcommon check")
    site.look()
    yield
    assert collect() == []
    down(site)
    rest(site)
    assert diff(before, snapshot()) == []


def guests(site: Site, node: Node, stack: contextlib.ExitStack, gateways: tuple[str, ...] = ()) -> list[Guest]:
    """A guest for each NIC, with the addresses of its IP, behind a tap as QEMU holds it."""
    made = []
    for nic in site.nics().values():
        guest = Guest(node.tap(nic["INTERFACE"]), nic["MAC"], nic["IP"], gateways=gateways)
        made.append(stack.enter_context(guest))
    return made


def answers(start: Namespace, *addresses: str) -> list[str]:
    """Those that answer an echo request."""
    return [each for each in addresses if "1 received" in start.run("ping", "-c1", "-W2", each, check=False)]


def tcp(port: int) -> bytes:
    """The packet by which a connection begins, but for its checksum, which nobody on the way looks at (RFC 9293)."""
    return struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 5 << 4, 2, 65535, 0, 0)


def connect(start: Namespace, source: str, destination: str, port: int) -> None:
    """Sends what begins a connection, from one of the namespace's addresses. Nobody answers."""
    words = "import socket, sys; s = socket.socket(socket.AF_INET6); s.bind((sys.argv[1], 0)); s.setblocking(False)"
    start.run(sys.executable, "-c", f"{words}; s.connect_ex((sys.argv[2], int(sys.argv[3])))", source, destination, str(port))


def connection(packet: bytes) -> tuple[str, int] | None:
    """Source and port of a TCP packet over IPv6."""
    if len(packet) < 60 or packet[0] >> 4 != 6 or packet[6] != TCP:
        return None
    return str(ipaddress.IPv6Address(packet[8:24])), int.from_bytes(packet[42:44], "big")


def test_every_site_is_here() -> None:
    """Each folder has a test below, a README with what to do and to look at, and NICs."""
    for folder in sorted(path.name for path in FOLDER.iterdir() if path.is_dir()):
        site = Site(folder)
        assert f'placed("{folder}"' in Path(__file__).read_text(), f"{folder} has no test"
        assert site.fences("sh node") and site.shown()


def test_bridged(node: Node) -> None:
    outside = node.outside("eth1", "203.0.113.1/24")
    with contextlib.ExitStack() as stack:
        site = Site("bridged")
        web, mail = sorted(guests(site, node, stack), key=lambda guest: guest.addresses)
        with placed("bridged", node), working(site):
            metrics = Path("/var/lib/prometheus/node-exporter")
            assert sorted(path.name for path in metrics.iterdir()) == ["netcommon-tap0.prom", "netcommon-tap1.prom"]
            assert answers(outside, "203.0.113.11", "203.0.113.12") == ["203.0.113.11", "203.0.113.12"]
            assert web.ping("203.0.113.1") and not web.ping("203.0.113.12", 0.5)
            web.addresses = ("203.0.113.77",)
            assert not web.ping("203.0.113.1", 0.5)
        assert mail.seen


def test_routed(node: Node) -> None:
    router = node.outside("eth1", "192.0.2.1/24", "2001:db8:f::1/64")
    for address in (WORLD4, WORLD6):
        router.run("ip", "address", "add", address, "dev", "lo")
    router.run("ip", "-6", "route", "add", "2001:db8:6::/64", "via", "2001:db8:f::2")
    six, web = "2001:db8:6:0:a800:ff:fe06:1", "2001:db8:f:0:a800:ff:fe06:2"
    with placed("routed", node) as site, contextlib.ExitStack() as stack:
        first, second = node.tap("tap0"), node.tap("tap1")
        for tap, family in itertools.product(("tap0", "tap1"), ("ipv4", "ipv6")):
            sysctl(f"net/{family}/neigh/{tap}/proxy_delay", "0")  # "default", which the site sets, is the machine's alone
        guests = [
            Guest(first, "aa:00:00:06:00:02", "192.0.2.11", web, gateways=("192.0.2.1", "fe80::1")),
            Guest(second, "aa:00:00:06:00:01", six, gateways=("fe80::1",)),
        ]
        for guest in guests:
            stack.enter_context(guest)
        with working(site):
            router.run("ip", "neighbour", "flush", "all")  # what it was told by the announcement
            assert answers(router, "192.0.2.11", web, six) == ["192.0.2.11", web, six]
            assert [guests[0].ping(each) for each in ("192.0.2.1", WORLD4, WORLD6, six)] == [True] * 4
            assert guests[1].ping(WORLD6)
            for start, port in itertools.product((WORLD6, "2001:db8:f::1"), (22, 25, 80, 443)):
                connect(router, start, six, port)
            assert answers(router, six) == [six]  # all that came before has arrived
            opened = {(tcp6[0], tcp6[1]) for frame in guests[1].seen if (tcp6 := connection(frame.payload))}
            assert opened == {(WORLD6, 80), (WORLD6, 443), *(("2001:db8:f::1", port) for port in (22, 80, 443))}
            assert (guests[0].resolve("192.0.2.1"), guests[1].resolve("fe80::1")) == ("fe:00:00:00:00:01",) * 2
            guests[0].addresses = ("192.0.2.12", web)
            assert not guests[0].ping(WORLD4, 0.5)
        lines = Path("/var/log/netcommon-traffic.log").read_text().splitlines()
        assert [line.split()[1] for line in lines] == ["web1/0", "six1/0"] * 2
        assert all(int(word) > 500 for line in lines[2:] for word in line.split()[4:7:2])


def test_the_uplinks_files_say_what_the_commands_do() -> None:
    """Of the routed site: ifupdown's commands are the README's, and networkd's values are theirs."""
    site = Site("routed")
    (commands,) = site.fences("sh node")
    etc = site.folder / "etc"
    for line in (etc / "network/interfaces.d/eth1").read_text().splitlines():
        word, _, rest = line.strip().partition(" ")
        assert word not in ("up", "address") or f"{rest}\n" in commands or f"{rest} dev eth1\n" in commands, line
    assert (etc / "iproute2/rt_tables.d/guests.conf").read_text() == "100 guests\n"
    for line in (etc / "systemd/network/50-eth1.network").read_text().splitlines():
        key, _, value = line.partition("=")
        if key in ("Address", "Gateway", "Priority", "IncomingInterface", "Name"):
            assert f" {value} " in commands.replace("\n", " "), line
        assert key != "Table" or value == "100"


def test_openvswitch(node: Node, ovs: OpenVswitch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's switch is a tap that speaks tagged: the running kernel has no VLAN interfaces."""
    monkeypatch.setenv("DATAPATH", "netdev")
    gateway, web, mail = "10.10.0.1", "10.10.0.11", "10.10.0.25"
    taps = {name: node.tap(name) for name in ("eth1", "tap0", "tap1", "tap2")}
    with placed("openvswitch", node) as site, contextlib.ExitStack() as stack:
        outside = stack.enter_context(Guest(taps["eth1"], "02:00:00:00:00:01", gateway, vlan=10))
        first = stack.enter_context(Guest(taps["tap0"], "aa:00:00:b1:00:11", web))
        second = stack.enter_context(Guest(taps["tap1"], "aa:00:00:b1:00:25", mail))
        router = stack.enter_context(Guest(taps["tap2"], "aa:00:00:b1:00:01", "10.10.0.2", vlan=10))
        with working(site):
            assert [guest.ping(gateway) for guest in (first, second, router)] == [True] * 3
            assert outside.ping(web) and router.ping(web) and not first.ping(mail, 0.5)
            for guest in (first, second):
                for port in (25, 80):
                    guest.send(outside.mac, frames.IPV4, ipv4(guest.addresses[0], tcp(port), TCP))
                assert guest.ping(gateway)  # so that all that came before has arrived
            seen = {(frame.payload[15], frame.payload[23]) for frame in outside.seen if frame.payload[9:10] == b"\x06"}
            assert seen == {(11, 80), (25, 80), (25, 25)}


def test_ext(node: Node) -> None:
    """The outside is the second node, and a guest there."""
    peer = node.outside("eth1", "192.0.2.3/24")
    tunnel = ("id", "42", "local", "192.0.2.3", "remote", "192.0.2.2", "dstport", "4789", "dev", "eth0")
    peer.run("ip", "link", "add", "vx42", "type", "vxlan", *tunnel)
    peer.run("ip", "address", "add", "10.42.0.12/24", "dev", "vx42")
    peer.run("ip", "link", "set", "vx42", "up")
    with placed("ext", node) as site, contextlib.ExitStack() as stack:
        first, second = guests(site, node, stack)
        with working(site):
            assert first.ping("10.42.0.12") and second.ping("10.42.0.12") and first.ping("10.42.0.21")
            assert answers(peer, "10.42.0.11") == ["10.42.0.11"]
            assert peer.run("ping", "-c1", "-W2", "-s1400", "-Mdo", "10.42.0.11")
        wrong = rundoor("kvm-ifup", {**site.nics()["web1-0"], "LINK": "vxlan:4x2"})
        assert wrong.status == 69 and "LINK=vxlan:4x2: expected vxlan:NUMBER" in wrong.stderr


def test_communication(node: Node) -> None:
    taps = {name: node.tap(name) for name in ("gnt.com.0", "gnt.com.1")}
    with placed("communication", node) as site, contextlib.ExitStack() as stack:
        web = stack.enter_context(Guest(taps["gnt.com.0"], "52:54:00:66:ff:b0", "169.254.0.1"))
        database = stack.enter_context(Guest(taps["gnt.com.1"], "52:54:00:66:ff:b1", "169.254.0.2"))
        with working(site):
            for guest in (web, database):
                given = lease(guest)
                assert given is not None and (given.address, given.mask) == (guest.addresses[0], "255.255.0.0")
                assert guest.ping("169.254.169.254")
            assert not web.ping("169.254.0.2", 0.5)
            web.addresses = ("169.254.0.2",)
            assert not web.ping("169.254.169.254", 0.5)


@pytest.mark.vm
@pytest.mark.slow
def test_bridged_vlan(node: Node) -> None:
    """In the machine: this needs VLAN filtering and classifiers. The provider's switch is a tap that speaks tagged."""
    taps = {name: node.tap(name) for name in ("eth1", "tap0", "tap1", "tap2")}
    with placed("bridged-vlan", node) as site, contextlib.ExitStack() as stack:
        customers = stack.enter_context(Guest(taps["eth1"], "02:00:00:00:00:01", "10.10.0.1", vlan=10))
        first = stack.enter_context(Guest(taps["tap0"], "aa:00:00:c1:00:11", "10.10.0.11"))
        second = stack.enter_context(Guest(taps["tap1"], "aa:00:00:c1:00:12", "10.10.0.12"))
        office = stack.enter_context(Guest(taps["tap2"], "aa:00:00:c2:00:11", "10.20.0.11"))
        with working(site):
            assert first.ping("10.10.0.1") and second.ping("10.10.0.1") and customers.ping("10.10.0.11")
            assert not first.ping("10.10.0.12", 0.5) and not office.ping("10.10.0.1", 0.5)
            office.announce("10.20.0.11")
            office.vlan = 30
            office.announce("10.20.0.11")
            office.vlan = 10  # not its own
            office.announce("10.20.0.11")
            office.vlan = 0
            assert first.ping("10.10.0.1")
            assert {frame.vlan for frame in customers.seen if frame.source == office.mac} == {20, 30}
        before = snapshot()
        wrong = rundoor("kvm-ifup", {**site.nics()["web1-0"], "VLAN": ".99"})
        assert wrong.status == 69 and "VLAN 99 is not a guests' VLAN" in wrong.stderr
        assert diff(before, snapshot()) == []
        assert "99" in run("bridge", "vlan", "show", "dev", "eth1")


def test_xen(node: Node, tmp_path: Path) -> None:
    """libxl's calls for an HVM guest, and xenstore's commands, are stand-ins; the paravirtual device is a veth."""
    inside = node.namespaced()
    outside = node.outside("eth1", "10.50.0.1/24")
    run("ip", "link", "add", "vif5.0", "type", "veth", "peer", "name", "eth0", "address", "aa:00:00:d1:00:11", "netns", inside.path)
    for words in ("address add 10.50.0.11/24 dev eth0", "link set eth0 up"):
        inside.run("ip", *words.split())
    store = xenstore.Store(tmp_path)
    store.domain(5, "web1", "aa:00:00:d1:00:11")
    scripts = Path("/etc/xen/scripts")
    scripts.mkdir(parents=True)
    with placed("xen", node) as site, Guest(node.tap("vif5.0-emu"), "aa:00:00:d1:00:11", "10.50.0.11") as emulated:
        shutil.copytree(site.folder / "nics", "/var/run/ganeti/xen-hypervisor/nic")

        def call(*actions: str) -> None:
            """As libxl calls them (docs/xen.md)."""
            for action in actions:
                kind = "tap" if action in ("add", "remove") else "vif"
                environ = {**BASE, "PATH": f"{store.programs}:{BASE['PATH']}", "XENBUS_PATH": "backend/vif/5/0", "vif": "vif5.0"}
                done = execute([str(scripts / "vif-ganeti"), action, f"type_if={kind}"], {**environ, "INTERFACE": "vif5.0-emu"})
                assert (done.status, done.stderr) == (0, ""), (action, done)

        call("online", "add", "remove", "offline")
        before = snapshot()
        store.calls()
        call("online", "add")
        assert store.written() == ["backend/vif/5/0/hotplug-status connected"]
        site.look()
        assert emulated.ping("10.50.0.1")
        call("remove")
        assert answers(inside, "10.50.0.1") == ["10.50.0.1"] and answers(outside, "10.50.0.11") == ["10.50.0.11"]
        call("offline")
        assert diff(before, snapshot()) == [] and collect() == []
    shutil.rmtree("/etc/xen")
