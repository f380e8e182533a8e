"""doctor on what the node forwards and answers for: the settings of devices that count in the kernel, by echoes that pass or do not."""

from __future__ import annotations

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.support.netns import run, sysctl
from tests.support.node import Node
from tests.support.routed import FAR4, GATEWAY4, TABLE, Site, options, reaches

pytestmark = pytest.mark.sampled(3)

HOST4 = "192.0.2.5"


def found(topic: str) -> list[str]:
    return [f"{each.text}: {each.remedy}" for each in findings(Paths()) if each.topic == topic and each.level in ("error", "warning")]


@pytest.mark.parametrize("table", ["", TABLE], ids=["main", "table"])
@pytest.mark.parametrize("off", ["", "up0", "tap0"])
@pytest.mark.parametrize("everywhere", ["0", "1"])
def test_forwarding(node: Node, everywhere: str, off: str, table: str) -> None:
    """ip_forward says nothing itself: each device has its own (ip -4 netconf)."""
    site = Site(node, table)
    guest = site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=options("uplink_proxy:both", "rp_filter:off")))
    sysctl("net/ipv4/ip_forward", everywhere)
    for device in ("up0", "tap0"):
        sysctl(f"net/ipv4/conf/{device}/forwarding", "0" if device == off else "1")
        assert f"forwarding {'off' if device == off else 'on'}" in run("ip", "-4", "netconf", "show", "dev", device)
    passes = reaches(guest, FAR4, source=HOST4) == [FAR4]
    lines = found("forwarding")
    assert passes == (not off) == (not lines)
    assert all(off in line for line in lines)
    if lines:
        run(*lines[0].rpartition(": ")[2].partition(",")[0].split())  # what it says helps
        guest.run("ip", "neighbour", "flush", "all")  # the one that got no answer
        assert reaches(guest, FAR4, source=HOST4) and not found("forwarding")


@pytest.mark.parametrize("where", ["up0", "all", ""])
def test_proxy_arp(node: Node, where: str) -> None:
    """That of all devices counts for each."""
    site = Site(node, "")
    site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=options("rp_filter:off", "announce:false")))
    if where:
        sysctl(f"net/ipv4/conf/{where}/proxy_arp", "1")
    answered = reaches(site.router, HOST4, source=GATEWAY4) == [HOST4]
    assert answered == bool(where) == (not found("uplinks"))
