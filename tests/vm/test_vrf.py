"""Routed NICs of a VRF's table: the node answers on its ports, on nothing of another network. The running kernel may lack VRFs."""

from __future__ import annotations

import pytest

from tests.support.agent import agent, seconds_until
from tests.support.netns import Namespace, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import GATEWAY4, GATEWAY6, NODE4, NODE6, TABLE, Site, collect, drift, mend, proxies, reaches, verifies
from tests.support.rundoor import rundoor

pytestmark = pytest.mark.sampled(2)

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
ANSWERED = [(HOST4, "174"), (HOST6, "174")]
TAGS = f"netcommon:0:uplink_proxy:both netcommon:0:addresses:{HOST6}"


class Blue(Site):
    """A site whose uplink is a port of a VRF; main's default routes lead to another network, by ``up1``."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, TABLE)
        for family in ("-4", "-6"):
            run("ip", family, "rule", "del", "iif", "up0", "lookup", TABLE)
            run("ip", family, "route", "flush", "table", TABLE)
        self.other: Namespace = node.outside("up1", "203.0.113.1/24", "2001:db8:e::1/64")
        node.address("up1", "203.0.113.2/24", "2001:db8:e::2/64")
        run("ip", "-4", "route", "add", "default", "via", "203.0.113.1")
        run("ip", "-6", "route", "add", "default", "via", "2001:db8:e::1")
        run("ip", "link", "add", "blue", "type", "vrf", "table", TABLE)
        run("ip", "link", "set", "blue", "up")

    def joins(self) -> None:
        """The uplink becomes a port of the VRF, with its addresses."""
        run("ip", "address", "flush", "dev", "up0", "scope", "global")
        run("ip", "link", "set", "up0", "master", "blue")
        self.node.address("up0", f"{NODE4}/24", f"{NODE6}/64")
        self.prompt("up0")

    def switches(self) -> list[str]:
        """proxy_ndp of the port, of the VRF's device, and of main's uplink."""
        return [sysctl(f"net/ipv6/conf/{device}/proxy_ndp") for device in ("up0", "blue", "up1")]


@pytest.fixture
def site(node: Node) -> Blue:
    return Blue(node)


@pytest.mark.parametrize("default", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_its_ports_answer(site: Blue, default: bool) -> None:
    site.joins()
    if default:
        site.defaults("up0")
    guest = site.guest(HOST4, HOST6)
    nic = site.nic(IP=HOST4, TAGS=TAGS)
    site.up(nic)
    assert (proxies("up0"), proxies("up1"), proxies("blue"), site.switches(), drift()) == (ANSWERED, [], [], ["1", "0", "0"], [])
    assert reaches(site.router, HOST4, HOST6) == [HOST4, HOST6]
    assert reaches(guest, GATEWAY4, GATEWAY6) == [GATEWAY4, GATEWAY6]
    assert verifies(site.router, HOST6)
    site.down(nic)
    assert (proxies("up0"), site.switches(), collect()) == ([], ["0", "0", "0"], [])


@pytest.mark.slow
def test_without_ports(site: Blue) -> None:
    """Nobody answers; a port that joins is found by the agent, and one that is away for a moment keeps its place."""
    site.tap("tap0")
    nic = site.nic(IP=HOST4, TAGS=TAGS)
    assert "and its VRF no port" in rundoor("kvm-ifup", nic).stderr
    assert (proxies("up0"), proxies("up1"), site.switches(), drift()) == ([], [], ["0", "0", "0"], [])
    with agent() as running:
        running.rested(60)
        site.joins()
        took = seconds_until(lambda: (proxies("up0"), site.switches()) == (ANSWERED, ["1", "0", "0"]), 10, running.output)
        print(f"a port joined: answered after {took * 1e3:.0f} ms (emulated)")
        run("ip", "link", "set", "up0", "nomaster")
        site.joins()
        wait_until(lambda: proxies("up0") == ANSWERED and not drift(), 10, running.output)
        assert proxies("up1") == [] and site.switches() == ["1", "0", "0"]


@pytest.mark.slow
def test_mains_default_route_into_a_vrf(site: Blue) -> None:
    """Its ports are the uplinks: no frame comes in by the VRF's own device."""
    site.joins()
    site.table = ""
    for family in ("-4", "-6"):
        run("ip", family, "route", "replace", "default", "dev", "blue")
    site.tap("tap0")
    nic = site.nic(IP=HOST4, TAGS=TAGS)
    site.up(nic)
    assert (proxies("up0"), proxies("up1"), proxies("blue"), site.switches(), drift()) == (ANSWERED, [], [], ["1", "0", "0"], [])
    assert "as it should be" in mend()[0]
    site.down(nic)
    assert (proxies("up0"), site.switches()) == ([], ["0", "0", "0"])
