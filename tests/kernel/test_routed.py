"""Routed NICs between a router and a guest's own IP stack: real packets both ways after up, none after down, and the node as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.options.addresses import eui64
from tests.support.netns import ask, run, sysctl
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, MAC, NODE4, NODE6, TABLE, Site, drift, mend, options, proxies, reaches
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
SEVERAL = [HOST4, "192.0.2.6", HOST6, "2001:db8:f::6"]
ARP = "uplink_proxy:both"


@pytest.fixture(params=["", TABLE], ids=["main", "table"])
def site(node: Node, request: pytest.FixtureRequest) -> Site:
    return Site(node, request.param)


@pytest.fixture
def tabled(node: Node) -> Site:
    return Site(node, TABLE)


@pytest.mark.parametrize(
    ("addresses", "nic"),
    [
        ([HOST4], {"IP": HOST4, "TAGS": options(ARP)}),
        ([HOST6], {"IP": HOST6}),
        ([HOST4, HOST6], {"IP": HOST4, "TAGS": options(ARP, f"addresses:{HOST6}")}),
        ([HOST6], {"TAGS": options(f"addresses:{HOST6}")}),
        ([eui64("2001:db8:f::/64", MAC)], {"TAGS": options("eui64")}),
        (SEVERAL, {"IP": HOST4, "TAGS": options(ARP, *(f"addresses:{each}" for each in SEVERAL[1:]))}),
    ],
    ids=["IPv4", "IPv6", "both", "IPv6 alone, by option", "EUI-64", "several"],
)
def test_reached_both_ways(site: Site, addresses: list[str], nic: dict[str, str]) -> None:
    """From the uplink's own network and from beyond; by an on-link gateway that is the router's own address."""
    guest = site.guest(*addresses)
    before = site.before()
    variables = site.nic(**nic)
    site.up(variables)
    assert drift() == []
    assert reaches(site.router, *addresses) == addresses
    for address in addresses:
        far, gateway = (FAR6, GATEWAY6) if ":" in address else (FAR4, GATEWAY4)
        assert reaches(site.router, address, source=far) == [address]
        assert reaches(guest, far, gateway, source=address) == [far, gateway]
    assert [each for each, protocol in proxies("up0")] == sorted(addresses)
    whole = snapshot()
    site.up(variables)
    assert diff(whole, snapshot()) == []
    site.down(variables)
    assert diff(before, snapshot()) == []
    site.router.run("ip", "neighbour", "flush", "all")
    assert reaches(site.router, *addresses) == []


def test_prefixes_behind_the_guest(site: Site) -> None:
    """They go by the guest's own address, and the router sends them to the node: no proxy answers for them."""
    inside = ["10.1.0.1", "10.1.0.14", "2001:db8:1::1", "2001:db8:1::ffff"]
    guest = site.guest(HOST4, HOST6)
    for address in inside:
        guest.run("ip", "address", "add", address, "dev", "lo")
    site.router.run("ip", "route", "add", "10.1.0.0/28", "via", NODE4)
    site.router.run("ip", "-6", "route", "add", "2001:db8:1::/64", "via", NODE6)
    before = site.before()
    wanted = ("prefixes:10.1.0.0/28", "prefixes:2001:db8:1::/64")
    nic = site.nic(IP=HOST4, TAGS=options(ARP, f"addresses:{HOST6}", *wanted))
    site.up(nic)
    assert drift() == []
    assert reaches(site.router, *inside, source="") == inside
    assert [reaches(guest, FAR6 if ":" in each else FAR4, source=each) != [] for each in inside] == [True] * 4
    assert [address for address, _ in proxies("up0")] == [HOST4, HOST6]
    asked = guest.run("ip", "neighbour", "show")
    assert "10.1.0" not in asked  # nobody asked the guest for an address behind it, nor did it ask
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_a_prefix_alone_is_on_the_tap(tabled: Site) -> None:
    """As IP with a prefix always was: the guest answers ARP for each address of it."""
    guest = tabled.guest("10.9.0.5/24", gateways=[])
    guest.run("ip", "route", "add", "default", "via", GATEWAY4, "dev", "eth0", "onlink")
    tabled.router.run("ip", "route", "add", "10.9.0.0/24", "via", NODE4)
    nic = tabled.nic(IP="10.9.0.0/24")
    tabled.up(nic)
    assert reaches(tabled.router, "10.9.0.5") == ["10.9.0.5"]
    tabled.down(nic)
    assert reaches(tabled.router, "10.9.0.5") == []


def test_link_local_gateway(site: Site) -> None:
    """fe80::1 is an address of the tap, whatever the node; the network needs to name no gateway."""
    guest = site.guest(HOST6, gateways=["fe80::1"])
    before = site.before()
    nic = site.nic(IP=HOST6, TAGS=options("gateway_link_local"), NETWORK_GATEWAY6="")
    site.up(nic)
    assert drift() == []
    assert reaches(guest, FAR6, GATEWAY6) == [FAR6, GATEWAY6]
    assert reaches(site.router, HOST6) == [HOST6]
    (address,) = [one for one in ask("ip", "-j", "address", "show", "dev", "tap0")[0]["addr_info"] if one["local"] == "fe80::1"]
    assert (address["prefixlen"], address.get("nodad"), address.get("noprefixroute")) == (64, True, True)
    site.down(nic)
    assert "fe80::1/" not in run("ip", "address", "show", "dev", "tap0")
    assert diff(before, snapshot()) == []


def test_an_ipv4_guest_and_the_node_speak_by_link_local_addresses(tabled: Site) -> None:
    """IPv6 is not forwarded for it, and what neighbours say to each other needs no address."""
    guest = tabled.guest(HOST4)
    nic = tabled.nic(IP=HOST4)
    tabled.up(nic)
    assert drift() == []
    (own,) = [each["local"] for each in ask("ip", "-j", "-6", "address", "show", "dev", "tap0")[0]["addr_info"]]
    guest.run("ip", "address", "add", HOST6, "dev", "eth0", "nodad")
    assert reaches(guest, f"{own}%eth0") == [f"{own}%eth0"]
    assert reaches(guest, FAR6, source=HOST6) == []
    tabled.down(nic)


def test_a_networks_link_local_gateway_is_the_taps(tabled: Site) -> None:
    guest = tabled.guest(HOST6, gateways=["fe80::dead"])
    nic = tabled.nic(IP=HOST6, NETWORK_GATEWAY6="fe80::dead")
    tabled.up(nic)
    assert reaches(guest, FAR6) == [FAR6]
    tabled.down(nic)
    assert "fe80::dead" not in run("ip", "address", "show", "dev", "tap0")


def test_unnumbered_gateway(site: Site) -> None:
    """The gateway is an address of the node's own, on its loopback: IPv4 answers for it by itself, IPv6 by our entry."""
    site.node.address("lo", "10.255.0.1/32", "2001:db8:ff::1/128")
    guest = site.guest(HOST4, HOST6, gateways=["10.255.0.1", "2001:db8:ff::1"])
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=options(ARP, f"addresses:{HOST6}"), NETWORK_GATEWAY="10.255.0.1", NETWORK_GATEWAY6="2001:db8:ff::1")
    site.up(nic)
    assert reaches(guest, FAR4, FAR6) == [FAR4, FAR6]
    own = ["10.255.0.1", "2001:db8:ff::1"]
    assert reaches(guest, *own) == ([] if site.table else own)  # what the node itself sends is looked up in main
    assert proxies("tap0") == [("2001:db8:ff::1", "174")]
    assert "router" in run("ip", "-6", "neighbour", "show", "proxy", "dev", "tap0")
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_an_on_link_gateway_needs_a_way_to_it(tabled: Site) -> None:
    """proxy_arp answers for what the guest's table, or main, leads to elsewhere; with no such route nobody does."""
    guest = tabled.guest(HOST4, gateways=["203.0.113.1"])
    nic = tabled.nic(IP=HOST4, TAGS=options(ARP), NETWORK_GATEWAY="203.0.113.1")
    tabled.up(nic)
    assert reaches(guest, FAR4) == [FAR4]  # the table's default route leads to it
    run("ip", "route", "delete", "default", "table", TABLE)
    guest.run("ip", "neighbour", "flush", "all")
    assert reaches(guest, GATEWAY4) == []
    tabled.down(nic)


def filtered() -> int:
    """Packets that the reverse path filter has dropped (TcpExt IPReversePathFilter)."""
    names, values = (line.split() for line in Path("/proc/net/netstat").read_text().splitlines()[:2])
    return int(values[names.index("IPReversePathFilter")])


@pytest.mark.parametrize(("word", "value", "drops"), [("off", "0", False), ("strict", "1", True), ("loose", "2", True)])
def test_reverse_path(site: Site, word: str, value: str, drops: bool) -> None:
    """Strict asks whether the uplink's side would send to this tap, so it works with tables too where the uplink's rule leads there.

    On a device without an IPv4 address of its own, as a tap is, the kernel takes loose for strict.
    """
    guest = site.guest(HOST4)
    guest.run("ip", "address", "add", "203.0.113.77/32", "dev", "lo")
    nic = site.nic(IP=HOST4, TAGS=options(ARP, f"rp_filter:{word}", "spoof_guard:false"))  # it would drop them before
    site.up(nic)
    assert (sysctl("net/ipv4/conf/tap0/rp_filter"), filtered()) == (value, 0)
    assert reaches(guest, FAR4) == [FAR4]
    reaches(guest, FAR4, source="203.0.113.77")
    assert (filtered() > 0) == drops
    site.down(nic)
    assert sysctl("net/ipv4/conf/tap0/rp_filter") == "0"


def test_the_taps_own_settings(tabled: Site) -> None:
    """A constant MAC, accept_local, and both back again."""
    guest = tabled.guest(HOST4)
    before = tabled.before()
    mac = "fe:00:00:00:00:01"
    nic = tabled.nic(IP=HOST4, TAGS=options(ARP, f"tap_mac:{mac}", "accept_local"))
    tabled.up(nic)
    assert reaches(guest, FAR4) == [FAR4]
    assert guest.run("ip", "neighbour", "show", GATEWAY4).split()[4] == mac
    assert (sysctl("net/ipv4/conf/tap0/accept_local"), drift()) == ("1", [])
    run("ip", "link", "set", "tap0", "address", "fe:00:00:00:00:02")
    assert [line for line in drift() if mac in line]
    mend()
    assert drift() == []
    tabled.down(nic)
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("right", [True, False])
def test_settings_that_cannot_be_written(tabled: Site, right: bool) -> None:
    """As /proc/sys is in a container: what has its value already needs no writing; what has another one is refused, by its name."""
    tabled.guest(HOST4, HOST6)
    for name in ("ipv4/conf/tap0/proxy_arp", "ipv4/conf/tap0/forwarding", "ipv6/conf/tap0/proxy_ndp", "ipv6/conf/up0/proxy_ndp"):
        sysctl(f"net/{name}", "1")
    sysctl("net/ipv6/conf/tap0/forwarding", "1" if right else "0")
    nic = tabled.nic(IP=HOST4, TAGS=options(f"addresses:{HOST6}"))
    run("mount", "--bind", "/proc/sys", "/proc/sys")
    try:
        run("mount", "-o", "remount,ro,bind", "/proc/sys")
        done = rundoor("kvm-ifup", nic)
    finally:
        run("umount", "/proc/sys")
    if right:
        assert (done.status, done.stderr, drift()) == (0, "", []), done
        tabled.down(nic)
    else:
        assert done.status == 69 and "net/ipv6/conf/tap0/forwarding: Read-only file system" in done.stderr, done


def test_who_goes_gives_the_address_back(site: Site) -> None:
    """The guest that had it before is reached again when the other one's down has ended, without a repair."""
    guest = site.guest(HOST4, HOST6)
    site.guest(HOST4, HOST6, name="tap1")
    both = {"IP": HOST4, "TAGS": f"{options(ARP, f'addresses:{HOST6}')} {options(ARP, f'addresses:{HOST6}').replace(':0:', ':1:')}"}
    first, second = site.nic(**both), site.nic(1, **both)
    site.up(first)
    assert rundoor("kvm-ifup", second).status == 0
    assert len(drift()) == 2 and reaches(guest, FAR4, source=HOST4) == []
    assert rundoor("kvm-ifdown", second, "tap1", "hot-remove").status == 0
    assert drift() == [] and reaches(guest, FAR4, source=HOST4) == [FAR4] and reaches(guest, FAR6, source=HOST6) == [FAR6]
