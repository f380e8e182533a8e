"""Count how many addresses a guest may begin to use: the node makes a neighbour entry for each, in one table for all NICs."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator

import pytest

from netcommon.host.api.nftables import NETDEV
from netcommon.host.linux.host import LinuxHost
from netcommon.operations.guard.table import table_of
from tests.kernel.test_doors_parallel import environment, good
from tests.kernel.test_guard_verdicts import MAC, OWN4, OWN6, SOURCE, arp, bootp, frame, ip4, nd, udp
from tests.kernel.test_rate import BRIDGED, drift, mend
from tests.support.frames import IPV6
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

NODE4, NODE6, NODE_LOCAL = "10.0.0.1", "2001:db8::fe", "fe80::fe"
PREFIX4, PREFIX6 = "10.7.0.0/16", "2001:db8:7::/64"
#: More than the default allows, and few enough that the kernel's table, which all namespaces share, does not overflow without it.
MANY = 200
ALLOWED = 64
MODES = {"bridged": BRIDGED, "routed": {"MODE": "routed", "LINK": ""}}


class Flooded:
    """A guest, and the node with addresses on the same link."""

    def __init__(self, node: Node, mode: str) -> None:
        self.mode, self.device = mode, "br0" if mode == "bridged" else "tap0"
        node.bridge("br0")
        run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.all.accept_dad=0")
        self.tap = node.tap("tap0")

    def up(self, tags: str = "", **changes: str) -> None:
        tags = f"netcommon:*:spoof_guard {tags or f'netcommon:*:addresses:{OWN6}'}"
        given = {**MODES[self.mode], "IP": OWN4, "MAC": MAC, "TAGS": tags, **changes}
        assert rundoor("kvm-ifup", environment(**given)).status == 0
        for address in (f"{NODE4}/8", f"{NODE6}/32", f"{NODE_LOCAL}/64"):
            flags = () if "." in address else ("nodad",)
            run("ip", "address", "replace", address, "dev", self.device, *flags)
        run("ip", "link", "set", self.device, "up")

    def neighbours(self, family: str = "-6") -> set[str]:
        """The addresses that the node has an entry for on the guest's link, but for those that are its own to ask for."""
        return {each["dst"] for each in json.loads(run("ip", "-j", family, "neighbour", "show", "dev", self.device))}

    def dropped(self) -> int:
        elements = LinuxHost().view().nft_elements(NETDEV, table_of("tap0"))
        return sum(each.packets for each in elements if each.set == "dropped-sources")

    def to_node(self, source: str, body: bytes, following: int = 58) -> bytes:
        head = (6 << 28).to_bytes(4, "big") + len(body).to_bytes(2, "big") + bytes((following, 255))
        head += ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(NODE6).packed
        body = _checksummed(head, body, following)
        mac = json.loads(run("ip", "-j", "link", "show", "dev", self.device))[0]["address"]
        return frame(head + body, IPV6, destination=mac)


def _checksummed(head: bytes, body: bytes, following: int) -> bytes:
    """ICMPv6 with its checksum (RFC 4443, 2.3)."""
    whole = head[8:40] + len(body).to_bytes(4, "big") + bytes((0, 0, 0, following)) + body
    total = sum(int.from_bytes(whole[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(whole), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return body[:2] + (~total & 0xFFFF).to_bytes(2, "big") + body[4:]


@pytest.fixture(params=MODES)
def flooded(node: Node, request: pytest.FixtureRequest) -> Iterator[Flooded]:
    return Flooded(node, request.param)


def solicitation(flooded: Flooded, source: str) -> bytes:
    return flooded.to_node(source, nd(135, NODE6, SOURCE))


def settled(flooded: Flooded, source: str, tap: Tap) -> None:
    """A frame that always passes was looked at after all the others."""
    flooded.tap.send(solicitation(flooded, source))
    wait_until(lambda: source in flooded.neighbours())


KNOWN = f"netcommon:*:addresses:{OWN6}"
KINDS = {"link-local": ("fe80::1:0", KNOWN), "prefix": ("2001:db8:7::1:0", f"{KNOWN} netcommon:*:prefixes:{PREFIX6}")}


@pytest.mark.parametrize("kind", KINDS)
def test_solicitations(flooded: Flooded, kind: str) -> None:
    """From an address of its own each: the node makes entries for as many as are allowed. The guest's own address goes on working."""
    start, tags = KINDS[kind]
    flooded.up(tags)
    for number in range(MANY):
        flooded.tap.send(solicitation(flooded, str(ipaddress.IPv6Address(start) + number)))
    settled(flooded, OWN6, flooded.tap)
    first = int(ipaddress.IPv6Address(start))
    made = [each for each in flooded.neighbours() if first <= int(ipaddress.IPv6Address(each)) < first + MANY]
    assert ALLOWED <= len(made) <= ALLOWED + 5
    assert MANY - ALLOWED - 5 <= flooded.dropped() <= MANY - ALLOWED
    assert good() == ["tap0"]


def test_what_makes_the_node_ask(node: Node) -> None:
    """Echo requests from its prefix: the node has to find out where each source is. A routed guest's prefix is behind one address."""
    flooded = Flooded(node, "bridged")
    flooded.up(f"{KNOWN} netcommon:*:prefixes:{PREFIX6}")
    start = ipaddress.IPv6Address("2001:db8:7::2:0")
    for number in range(MANY):
        flooded.tap.send(flooded.to_node(str(start + number), bytes((128, 0, 0, 0, 0, 1, 0, 1))))
    settled(flooded, OWN6, flooded.tap)
    assert sum(each.startswith("2001:db8:7::2:") for each in flooded.neighbours()) <= ALLOWED + 5


def test_arp(flooded: Flooded) -> None:
    """Of an IPv4 prefix, and where no address is known at all."""
    for prefix, ip in (("10.7.", OWN4), ("10.8.", "")):
        flooded.up(f"{KNOWN} netcommon:*:prefixes:{PREFIX4}" if ip else KNOWN, IP=ip)
        for number in range(MANY):
            flooded.tap.send(arp(MAC, f"{prefix}{number // 250}.{number % 250 + 1}"))
        flooded.tap.send(arp(MAC, OWN4))
        settled(flooded, OWN6, flooded.tap)
        assert sum(each.startswith(prefix) for each in flooded.neighbours("-4")) <= ALLOWED + 5
        assert rundoor("kvm-ifdown", environment(**MODES[flooded.mode]), "tap0", "hot-remove").status == 0


def test_who_is_known_stays_known(flooded: Flooded) -> None:
    """After a flood the addresses that came first still work, and as many new ones as the option says."""
    flooded.up(f"{KNOWN} netcommon:*:new_sources:2")
    for number in range(1, 10):
        flooded.tap.send(solicitation(flooded, f"fe80::{number}"))
    settled(flooded, OWN6, flooded.tap)
    assert {f"fe80::{number}" for number in range(1, 10)} & flooded.neighbours() == {"fe80::1", "fe80::2"}
    run("ip", "neighbour", "flush", "dev", flooded.device)
    for number in range(1, 10):
        flooded.tap.send(solicitation(flooded, f"fe80::{number}"))
    settled(flooded, OWN6, flooded.tap)
    assert {"fe80::1", "fe80::2"} <= flooded.neighbours()
    flooded.up(f"{KNOWN} netcommon:*:new_sources:5")  # another value takes effect at once
    for number in range(10, 20):
        flooded.tap.send(solicitation(flooded, f"fe80::{number:x}"))
    settled(flooded, OWN6, flooded.tap)
    assert len(flooded.neighbours() & {f"fe80::{number:x}" for number in range(10, 20)}) == 5


@pytest.mark.parametrize("tag", ["new_sources:0", "allow_ip_spoofing"])
def test_no_limit(flooded: Flooded, tag: str) -> None:
    """Nothing is counted, and nothing is in the table for it."""
    flooded.up(f"{KNOWN} netcommon:*:{tag}")
    for number in range(MANY):
        flooded.tap.send(solicitation(flooded, f"fe80::3:{number:x}"))
    wait_until(lambda: sum(each.startswith("fe80::3:") for each in flooded.neighbours()) == MANY)
    assert "new-sources" not in {each.set for each in LinuxHost().view().nft_elements(NETDEV, table_of("tap0"))}


def test_what_is_no_new_source(node: Node) -> None:
    """A guest that routes for others, and whose addresses are not known, sends from any: only ARP and neighbour discovery count."""
    flooded = Flooded(node, "bridged")
    flooded.up("netcommon:*:eui64:false", IP="")
    for number in range(MANY):
        flooded.tap.send(ip4(f"10.9.0.{number + 1}", udp(1, 2)))
        flooded.tap.send(flooded.to_node(f"2001:db8:9::{number + 1:x}", udp(1, 2), 17))
    flooded.tap.send(ip4("0.0.0.0", udp(68, 67, bootp(1))))
    assert flooded.dropped() == 0


OTHERS = ("9/minute burst 9", "64/second burst 64", "over 64/minute burst 64", "64/minute burst 65")


def test_drift(flooded: Flooded) -> None:
    """A limit that somebody has taken away or changed, in whatever way, is put back."""
    flooded.up()
    place = f"element netdev {table_of('tap0')} new-sources"
    taken = f"delete {place} {{ tap0 }}"
    for other in ("", *OTHERS):
        run("nft", taken)
        if other:
            run("nft", f'add {place} {{ "tap0" limit rate {other} packets }}')
        assert [line for line in drift() if "new-sources" in line]
        mend()
        assert good() == ["tap0"]
