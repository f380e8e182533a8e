"""The option node_access on the running kernel: what bridged and routed guests reach of the node by real sockets, and a life with drift."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence

import pytest

from tests.support.netns import Namespace, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, MAC, Site, collect, drift, mend, options, reaches
from tests.support.snapshot import diff, snapshot

GUEST4, GUEST6 = "10.0.0.5", "2001:db8:1::5"
BRIDGE4, BRIDGE6 = "10.0.0.254", "2001:db8:1::254"
OTHER4, OTHER6 = "203.0.113.9", "2001:db8:9::9"  #: of another device of the node
LOOP4, LOOP6 = "198.51.100.77", "2001:db8:77::77"  #: of lo
SERVICES = ("udp/53", "udp/67", "udp/1234", "tcp/53", "tcp/80", "tcp/1234")
ALLOWED = ("udp/53", "udp/67", "tcp/80")
WAIT = 0.6  #: seconds after which nothing more comes
MODES = ("bridged", "routed")
LISTS = {
    "": (*SERVICES, "icmp"),
    "all": (*SERVICES, "icmp"),
    "none": (),
    "udp/53 udp/67 tcp/80": ALLOWED,
    "icmp": ("icmp",),
    "icmp tcp/1234": ("tcp/1234", "icmp"),
}


class Place:
    """A node with a guest: as the gateway of its bridge, or of its own device; with addresses on several devices."""

    def __init__(self, node: Node, mode: str) -> None:
        self.node, self.mode, self.site = node, mode, Site(node, "")
        node.outside("other0")
        node.address("other0", f"{OTHER4}/32", f"{OTHER6}/128")
        node.address("lo", f"{LOOP4}/32", f"{LOOP6}/128")
        self.guest = self.site.tap("tap0")
        self.device = "br0" if mode == "bridged" else "tap0"
        if mode == "bridged":
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
        place = {"MODE": "bridged", "LINK": "br0"} if self.mode == "bridged" else {}
        given = options(*words, f"addresses:{GUEST6}", *(() if self.mode == "bridged" else ("gateway_link_local",)), *more)
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
        own = [BRIDGE4, BRIDGE6] if self.mode == "bridged" else ["192.0.2.2", "2001:db8:f::2"]
        return [*own, OTHER4, OTHER6, LOOP4, LOOP6, self.local]

    def reached(self, addresses: Sequence[str] = ()) -> set[tuple[str, str]]:
        return reached(self.guest, addresses or self.addresses)


@contextlib.contextmanager
def listening() -> Iterator[dict[str, socket.socket]]:
    """The node's services, on all of its addresses."""
    with contextlib.ExitStack() as stack:
        made = {}
        for service in SERVICES:
            protocol, _, port = service.partition("/")
            kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
            one = made[service] = stack.enter_context(socket.socket(socket.AF_INET6, kind))
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("::", int(port)))
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
        names = {one: service for service, one in services.items() if service.startswith("udp")}
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
    "flush chain inet netcommon-access ip6",
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
    for change in (*DRIFTS, *(ON_BRIDGES if mode == "bridged" else ())):
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
