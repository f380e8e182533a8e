"""Default routes and rules of a guests' table that come and go: the agent follows what leads somewhere, and leaves what is gone for now."""

from __future__ import annotations

import pytest

from tests.support.agent import agent, seconds_until, watched
from tests.support.netns import run, sysctl
from tests.support.node import Node
from tests.support.routed import GATEWAY4, GATEWAY6, TABLE, Site, options, proxies

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
BOTH = [(HOST4, "174"), (HOST6, "174")]
TAGS = options(f"addresses:{HOST6}", "uplink_proxy:both")


@pytest.fixture
def site(node: Node) -> Site:
    """Table main leads to another network, by ``up1``."""
    made = Site(node, TABLE)
    for family in ("-4", "-6"):
        run("ip", family, "rule", "del", "iif", "up0", "lookup", TABLE)
    node.outside("up1", "203.0.113.1/24", "2001:db8:e::1/64")
    node.address("up1", "203.0.113.2/24", "2001:db8:e::2/64")
    run("ip", "-4", "route", "add", "default", "via", "203.0.113.1")
    run("ip", "-6", "route", "add", "default", "via", "2001:db8:e::1")
    made.tap("tap0")
    return made


def without_defaults() -> None:
    run("ip", "-4", "route", "delete", "default", "table", TABLE)
    run("ip", "-6", "route", "delete", "default", "table", TABLE)


def test_a_default_route_that_flaps(site: Site) -> None:
    """Nothing is repaired, since nothing is broken; nothing is ever on table main's uplink."""
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    with agent() as running:
        for _ in range(5):
            for change in (without_defaults, lambda: site.defaults("up0")):
                running.rested()
                looks = running.looks() + running.surveys()
                change()
                seconds_until(lambda looks=looks: running.looks() + running.surveys() > looks, 5, running.output)  # type: ignore[misc]
                running.rested()
                assert (proxies("up0"), proxies("up1"), sysctl("net/ipv6/conf/up1/proxy_ndp")) == (BOTH, [], "0")
        assert ": repaired " not in running.output


def test_a_rule_into_the_table(site: Site) -> None:
    """It tells more than table main's default routes; gone for a moment, it is waited for."""
    without_defaults()
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    assert (proxies("up0"), proxies("up1")) == ([], BOTH)
    with agent() as running, watched() as seen:
        running.rested()
        for verb in ("add", "del", "add"):
            for family in ("-4", "-6"):
                run("ip", family, "rule", verb, "iif", "up0", "lookup", TABLE, "preference", "400")
            seconds_until(lambda: (proxies("up0"), proxies("up1")) == (BOTH, []) and not seen.drift(), 5, running.output)
        assert running.rested().output.count(": repaired ") in (1, 2)  # one rule comes after the other


def test_a_nexthop_that_moves(site: Site) -> None:
    """The routes that name it are as before, and nothing is told of them."""
    sysctl("net/ipv4/nexthop_compat_mode", "0")
    without_defaults()
    for family, number, gateway in (("-4", "4", GATEWAY4), ("-6", "6", GATEWAY6)):
        run("ip", "nexthop", "add", "id", number, "via", gateway, "dev", "up0")
        run("ip", family, "route", "add", "default", "nhid", number, "table", TABLE)
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    assert (proxies("up0"), proxies("up1")) == (BOTH, [])
    with agent() as running:
        running.rested()
        for number, gateway in (("4", "203.0.113.1"), ("6", "2001:db8:e::1")):
            run("ip", "nexthop", "replace", "id", number, "via", gateway, "dev", "up1")
        seconds_until(lambda: (proxies("up0"), proxies("up1")) == ([], BOTH), 5, running.output)
