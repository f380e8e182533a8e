"""check, explain and tree on forwarding, gateways and uplinks that fail under NICs that are up: echoes decide whether all is well."""

from __future__ import annotations

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.support.netns import run, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import (
    FAR4,
    FAR6,
    GATEWAY4,
    GATEWAY6,
    NODE4,
    NODE6,
    TABLE,
    Site,
    drift,
    mend,
    options,
    proxies,
    reaches,
)
from tests.support.rundoor import rundoor
from tests.support.verdict import idle, lost, remedied

pytestmark = pytest.mark.sampled(5)

HOST = {4: "192.0.2.5", 6: "2001:db8:f::5"}
FAR = {4: FAR4, 6: FAR6}

#: What is written after the up, the family whose echoes it stops, and what is said of it; "" nothing is.
CASES = {
    "ip_forward": ("net/ipv4/ip_forward", 4, "net.ipv4.ip_forward is 0, and forwarding of up0 is 0"),
    "all 4": ("net/ipv4/conf/all/forwarding", 4, "net.ipv4.ip_forward is 0, and forwarding of up0 is 0"),
    "uplink 4": ("net/ipv4/conf/up0/forwarding", 4, "IPv4 forwarding of up0 is 0"),
    "all 6": ("net/ipv6/conf/all/forwarding", 6, "net.ipv6.conf.all.forwarding is 0"),
    "uplink 6": ("net/ipv6/conf/up0/forwarding", 6, "net.ipv6.conf.up0.forwarding is 0: nobody answers there for 2001:db8:f::5"),
    "another 4": ("net/ipv4/conf/lo/forwarding", 0, ""),
    "another 6": ("net/ipv6/conf/lo/forwarding", 0, ""),
}


def up(site: Site) -> None:
    """Announce nothing: the announcement is repeated seconds later, and would be taken for the node's answer for the guest."""
    site.guest(f"{HOST[4]}/32", f"{HOST[6]}/128")
    site.up(site.nic(IP=HOST[4], TAGS=options("uplink_proxy:both", f"addresses:{HOST[6]}", "rp_filter:off", "announce:off")))


def passing(site: Site) -> set[int]:
    """The families whose echoes pass in both directions, whatever the router knows of the guest."""
    site.router.run("ip", "neighbour", "flush", "all")
    out = reaches(site.guests["tap0"], *FAR.values())
    back = reaches(site.router, *HOST.values())
    return {family for family in HOST if FAR[family] in out and HOST[family] in back}


@pytest.mark.parametrize("table", ["", TABLE], ids=["main", "table"])
@pytest.mark.parametrize("case", CASES)
def test_echoes_decide(node: Node, case: str, table: str) -> None:
    site = Site(node, table)
    up(site)
    assert passing(site) == {4, 6} and lost() == []
    path, family, words = CASES[case]
    sysctl(path, "0")
    mend()  # the NIC's own device has a setting on record, which is repaired: the others are the administrator's
    assert drift() == [] and passing(site) == {4, 6} - {family}
    found = lost()
    assert len(found) == bool(words) and all(words in why for why, _remedy in found)
    for _why, remedy in found:
        remedied(remedy)
    assert passing(site) == {4, 6} and lost() == []


def test_a_router_with_a_route_need_not_ask(node: Node) -> None:
    """What is of no network on the uplink comes by a route: that the kernel answers for nobody there is said, and is no fault."""
    site = Site(node, TABLE)
    guest = site.guest("2001:db8:77::5/128")
    site.up(site.nic(IP="2001:db8:77::5", NETWORK_SUBNET6="2001:db8:77::/64"))
    site.router.run("ip", "route", "add", "2001:db8:77::/64", "via", NODE6)
    sysctl("net/ipv6/conf/up0/forwarding", "0")
    run("ip", "-6", "neighbour", "flush", "all")
    assert reaches(guest, FAR6, source="2001:db8:77::5") == [FAR6] and reaches(site.router, "2001:db8:77::5") == ["2001:db8:77::5"]
    assert lost() == [] and "net.ipv6.conf.up0.forwarding is 0: the kernel does not answer there for others" in idle()


#: arp_ignore of all devices and of the tap, whether the gateway is on the tap as well, and whether the guest has a way out.
IGNORED = {
    "none": (0, 0, False, True),
    "all, 1": (1, 0, False, False),
    "the tap, 1": (0, 1, False, False),
    "all, 2": (2, 0, False, False),
    "all, 8": (8, 0, False, False),
    "on the tap, 1": (1, 0, True, True),
    "on the tap, 8": (0, 8, True, False),
    "scopes": (3, 0, False, True),
    "reserved": (4, 0, False, True),
}


@pytest.mark.parametrize("case", IGNORED)
def test_a_gateway_that_is_the_nodes_own(node: Node, case: str) -> None:
    """The guest asks for it by ARP: whoever looks is told where the kernel does not answer."""
    site = Site(node, "")
    everywhere, own, there, passes = IGNORED[case]
    run("ip", "address", "add", "203.0.113.1/32", "dev", "lo")
    guest = site.guest("203.0.113.5/32", gateways=("203.0.113.1",))
    site.router.run("ip", "route", "add", "203.0.113.0/24", "via", NODE4)
    site.up(
        site.nic(IP="203.0.113.5", NETWORK_GATEWAY="203.0.113.1", NETWORK_GATEWAY6="", NETWORK_SUBNET6="", TAGS=options("rp_filter:off"))
    )
    if there:
        run("ip", "address", "add", "203.0.113.1/32", "dev", "tap0")
    assert reaches(guest, FAR4) == [FAR4] and lost() == []
    sysctl("net/ipv4/conf/all/arp_ignore", str(everywhere))
    sysctl("net/ipv4/conf/tap0/arp_ignore", str(own))
    guest.run("ip", "neighbour", "flush", "all")
    assert bool(reaches(guest, FAR4)) == passes
    found, told = lost(), [each for each in findings(Paths()) if each.topic == "gateways"]
    assert bool(found) == bool(told) == (not passes) and drift() == []
    for why, remedy in found:
        assert "does not answer the guest for its gateway 203.0.113.1" in why and why in told[0].text
        remedied(remedy)
    guest.run("ip", "neighbour", "flush", "all")  # the one that got no answer
    assert reaches(guest, FAR4) == [FAR4] and lost() == []


def test_a_gateway_by_proxy_is_answered_for(node: Node) -> None:
    """What is not the node's own it answers for whatever arp_ignore says."""
    site = Site(node, "")
    up(site)
    sysctl("net/ipv4/conf/all/arp_ignore", "8")
    site.guests["tap0"].run("ip", "neighbour", "flush", "all")
    assert reaches(site.guests["tap0"], FAR4) == [FAR4] and lost() == []


def test_a_table_without_an_uplink(node: Node) -> None:
    """The up warns, and whoever looks later is told too; it may be meant so, and is no fault."""
    site = Site(node, TABLE)
    for family in ("-4", "-6"):
        run("ip", family, "route", "del", "default", "table", TABLE)
        run("ip", family, "rule", "del", "preference", "400")
    site.guest(f"{HOST[4]}/32", f"{HOST[6]}/128")
    done = rundoor("kvm-ifup", site.nic(IP=HOST[4], TAGS=options("uplink_proxy:both", f"addresses:{HOST[6]}", "rp_filter:off")))
    words = [f"tables 100 and main have no IPv{family} default route" for family in HOST]
    assert done.status == 0 and all(each in done.stderr for each in words)
    assert passing(site) == set() and lost() == []
    told = [each.text for each in findings(Paths()) if each.topic == "uplinks"]
    assert all(any(each in line for line in idle()) and any(each in line for line in told) for each in words)
    site.defaults("up0")
    mend()
    for family in ("-4", "-6"):
        run("ip", family, "rule", "add", "iif", "up0", "lookup", TABLE, "preference", "400")
    assert passing(site) == {4, 6} and idle() == [] and lost() == []
    assert not [each for each in findings(Paths()) if each.topic == "uplinks" and "no IPv" in each.text]


@pytest.mark.parametrize("table", ["", TABLE], ids=["main", "table"])
def test_two_halves_are_a_default_route(node: Node, table: str) -> None:
    """The node answers on the device by which both lead; of one alone that is not told."""
    site = Site(node, table)
    for family, halves, gateway in (("-4", ("0.0.0.0/1", "128.0.0.0/1"), GATEWAY4), ("-6", ("::/1", "8000::/1"), GATEWAY6)):
        where = ("table", table or "main")
        run("ip", family, "route", "del", "default", *where)
        for half in halves:
            run("ip", family, "route", "add", half, "via", gateway, "dev", "up0", *where)
        if table:
            run("ip", family, "rule", "del", "preference", "400")
            run(
                "ip",
                family,
                "rule",
                "add",
                "to",
                f"{HOST[4]}/32" if family == "-4" else f"{HOST[6]}/128",
                "lookup",
                table,
                "preference",
                "400",
            )
    up(site)
    assert proxies("up0") == sorted((each, "174") for each in HOST.values())
    assert passing(site) == {4, 6} and lost() == [] and idle() == [] and drift() == []
    run("ip", "-4", "route", "del", "0.0.0.0/1", "table", table or "main")
    run("ip", "-6", "route", "del", "::/1", "table", table or "main")
    assert drift() == []  # it stays on the uplink that it was found by
    assert any("no uplink of table" in line for line in idle())


#: What is done beside an uplink up0, which has the default route, and a network behind back0, 10.8.0.0/24; whose forwarding is off then,
#: which of FAR4 and 10.8.0.1 answer, what check says, and of which device doctor has a remark where check says nothing.
BACKUP = "ip route add default via 10.8.0.1 dev back0 metric 500"
BOTH = ["ip route del default", f"ip route add default nexthop via {GATEWAY4} dev up0 nexthop via 10.8.0.1 dev back0"]
HALVES = [f"ip route add {half} via 10.8.0.1 dev back0" for half in ("0.0.0.0/1", "128.0.0.0/1")]
UPLINKS = {
    "the used one": ([BACKUP], ["up0"], {"10.8.0.1"}, "IPv4 forwarding of up0 is 0", ""),
    "the one that stands by": ([BACKUP], ["back0"], {FAR4}, "", ""),
    "both": ([BACKUP], ["up0", "back0"], set(), "IPv4 forwarding of up0 is 0", ""),
    "management's, and a network for guests": ([], ["up0"], {"10.8.0.1"}, "", "up0"),
    "management's, and one that is shut too": ([], ["up0", "back0"], set(), "IPv4 forwarding of up0 is 0", ""),
    "one of two paths": (BOTH, ["up0"], {"10.8.0.1"}, "", ""),
    "both of two paths": (BOTH, ["up0", "back0"], set(), "IPv4 forwarding of up0 and back0 is 0", ""),
    "beside two halves": (HALVES, ["up0"], {"10.8.0.1"}, "", ""),
    "two halves": (HALVES, ["back0"], set(), "IPv4 forwarding of back0 is 0", ""),
}


@pytest.mark.parametrize("table", ["", TABLE], ids=["main", "table"])
@pytest.mark.parametrize("case", UPLINKS)
def test_the_uplinks_that_are_used(node: Node, case: str, table: str) -> None:
    """Those of the lowest metric, and nothing is lost for certain where another network is reached by a device that forwards."""
    site = Site(node, table)
    up(site)
    back = node.outside("back0", "10.8.0.1/24")
    node.address("back0", "10.8.0.2/24")
    back.run("ip", "route", "add", HOST[4], "via", "10.8.0.2")
    commands, off, answering, words, remark = UPLINKS[case]
    if table:
        run("ip", "rule", "add", "iif", "back0", "lookup", table, "preference", "401")
        run("ip", "route", "add", "10.8.0.0/24", "dev", "back0", "table", table)
    for command in commands:
        words_of = command.split()
        run(*words_of[:3], "table", table or "main", *words_of[3:])
    for device in off:
        sysctl(f"net/ipv4/conf/{device}/forwarding", "0")
    assert set(reaches(site.guests["tap0"], FAR4, "10.8.0.1")) == answering
    found = lost()
    assert [words in why for why, _remedy in found] == [True] * bool(words)
    told = [each for each in findings(Paths()) if each.topic == "forwarding" and "IPv4" in each.text]
    assert [each.level for each in told] == (["error"] if words else ["info"] if remark else [])
    assert all(each in told[0].text for each in [remark, *(off[:1] if words else [])] if told)
    for _why, remedy in found:
        remedied(remedy)
    assert lost() == []


def test_an_uplink_of_ipv6_that_forwards_by_itself(node: Node) -> None:
    """One that stands by need not."""
    site = Site(node, "")
    up(site)
    node.outside("back0", "2001:db8:8::1/64")
    node.address("back0", "2001:db8:8::2/64")
    run("ip", "-6", "route", "add", "default", "via", "2001:db8:8::1", "dev", "back0", "metric", "4096")
    sysctl("net/ipv6/conf/all/forwarding", "0")
    assert passing(site) == {4} and len(lost()) == 1
    for device in ("tap0", "up0"):
        sysctl(f"net/ipv6/conf/{device}/forwarding", "1")
        sysctl(f"net/ipv6/conf/{device}/force_forwarding", "1")
    # who was asked in vain is asked again after a while (RFC 4861, 7.2.2)
    wait_until(lambda: passing(site) == {4, 6}, 10, "what was lost before passes")
    assert lost() == []


def test_a_second_uplink_that_must_not_route(node: Node) -> None:
    """A default route of a higher metric, such as a management network's: packets go by the other, and its setting is the site's."""
    site = Site(node, "")
    up(site)
    run("ip", "link", "add", "mgmt0", "type", "veth", "peer", "name", "far0")
    for device in ("mgmt0", "far0"):
        run("ip", "link", "set", device, "up")
    run("ip", "address", "add", "172.16.0.2/24", "dev", "mgmt0")
    run("ip", "route", "add", "default", "via", "172.16.0.1", "dev", "mgmt0", "metric", "1000")
    sysctl("net/ipv4/conf/mgmt0/forwarding", "0")
    assert passing(site) == {4, 6} and lost() == []
    assert [each for each in findings(Paths()) if "mgmt0" in each.text] == []
