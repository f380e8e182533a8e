"""check, explain and tree on forwarding that was switched off under NICs that are up: echoes decide whether they may be content."""

from __future__ import annotations

import pytest

from tests.support.netns import run, sysctl
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, NODE6, TABLE, Site, drift, mend, options, reaches
from tests.support.verdict import idle, lost, remedied

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
    site.guest(f"{HOST[4]}/32", f"{HOST[6]}/128")
    site.up(site.nic(IP=HOST[4], TAGS=options("uplink_proxy:both", f"addresses:{HOST[6]}", "rp_filter:off")))


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
