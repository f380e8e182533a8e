"""The option node_access on the running kernel: what bridged and routed guests reach of the node by real sockets, and a life with drift."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.netns import Namespace, run, slowness, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, Site, collect, drift, mend, options, reaches
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

GUEST4, GUEST6 = "10.0.0.5", "2001:db8:1::5"
BRIDGE4, BRIDGE6 = "10.0.0.254", "2001:db8:1::254"
OTHER4, OTHER6 = "203.0.113.9", "2001:db8:9::9"  #: of another device of the node
LOOP4, LOOP6 = "198.51.100.77", "2001:db8:77::77"  #: of lo
SERVICES = ("udp/53", "udp/69", "udp/1234", "tcp/53", "tcp/80", "tcp/1234")
ALLOWED = ("udp/53", "udp/69", "tcp/80")
WAIT = 0.6  #: seconds after which nothing more comes
FILTERED = "bridged, br_netfilter"  #: bridged frames pass the hooks of inet too, and those of the node only once
BRIDGES = Path("/proc/sys/net/bridge")  #: there where the kernel has br_netfilter loaded, which tests do not load
MODES = ("bridged", *((FILTERED,) if BRIDGES.exists() else ()), "routed")
MACHINE = [pytest.mark.vm, pytest.mark.slow]
ON_BOTH = (*MODES, *(pytest.param(mode, marks=MACHINE, id=f"{mode}, machine") for mode in ("bridged", "routed")))
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
            if BRIDGES.exists():
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
        limit = time.monotonic() + WAIT * slowness()
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


@pytest.mark.parametrize("mode", ON_BOTH)
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
            with place.guest.entered(), socket.socket(family, socket.SOCK_DGRAM) as other:
                other.bind((address, 54))
                other.sendto(b"from another port", asker)
            guest.sendto(b"the last", asker)
            assert asking.recv(100) == b"the last"
    assert place.reached() == set()


def test_answers_of_services_are_not_kept(node: Node) -> None:
    """A guest cannot fill the set of whom the node has asked by asking the node."""
    place = Place(node, "routed")
    place.up("udp/53")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as service:
        service.bind((OTHER4, 53))
        service.settimeout(5)
        for _ in range(3):
            with place.guest.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.settimeout(5)
                asking.sendto(b"question", (OTHER4, 53))
                service.sendto(*service.recvfrom(100))
                assert asking.recv(100) == b"question"
    listed = json.loads(run("nft", "-j", "list", "set", "inet", "netcommon-access", "asked4"))["nftables"]
    assert [item["set"].get("elem", []) for item in listed if "set" in item] == [[]]


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
