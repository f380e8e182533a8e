"""Links: what is read of them, what can be changed, and what the kernel refuses."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, Link, Route, Rule
from netcommon.host.api.requests import AddRoute, SetLink, SetSysctl
from tests.contract.worlds import World, do, index, told, view

MAC = "fe:00:00:00:00:01"


def link(world: World, name: str) -> Link:
    found = view(world).link(name)
    assert found is not None, name
    return found


def test_a_tap_is_read(world: World) -> None:
    world.tap("tap0")
    found = link(world, "tap0")
    assert (found.name, found.kind, found.mtu, found.up, found.master, found.alias) == ("tap0", "tun", 1500, False, 0, "")
    assert view(world).link_at(found.index) == found
    assert found in view(world).links()


@pytest.mark.parametrize("name", ["nothing", "", "x" * 16, "ü" * 8, "tap0\0", "tap0\n"])
def test_no_such_link(world: World, name: str) -> None:
    world.tap("tap0")
    assert view(world).link(name) is None


@pytest.mark.parametrize("number", [9999, 0, -1, 1 << 31, 1 << 40])
def test_no_link_at_that_index(world: World, number: int) -> None:
    assert view(world).link_at(number) is None


def test_names_with_dots(world: World) -> None:
    world.tap("gnt.com.0")
    assert link(world, "gnt.com.0").name == "gnt.com.0"


def test_all_at_once(world: World) -> None:
    """What a bridged NIC needs; every one is answered."""
    world.tap("tap0")
    world.bridge("br0")
    tap, bridge = index(world, "tap0"), index(world, "br0")
    parts = [SetLink(tap, address=MAC), SetLink(tap, mtu=1400), SetLink(tap, alias="web1/0")]
    parts += [SetLink(tap, master=bridge), SetLink(tap, up=True)]
    assert do(world, *parts, stop=True) == [0] * 5
    expected = Link(tap, "tap0", "tun", MAC, 1400, True, bridge, "bridge", "web1/0", holders=1)
    assert link(world, "tap0") == expected
    assert view(world).ports(bridge) == [expected]
    assert do(world, SetLink(tap, master=0), SetLink(tap, up=False), SetLink(tap, alias="")) == [0, 0, 0]
    assert link(world, "tap0") == Link(tap, "tap0", "tun", MAC, 1400, holders=1)
    assert view(world).ports(bridge) == []


def test_contradicting_changes_come_in_order(world: World) -> None:
    world.tap("tap0")
    tap = index(world, "tap0")
    assert do(world, SetLink(tap, mtu=1400), SetLink(tap, up=True), SetLink(tap, mtu=1300)) == [0, 0, 0]
    assert (link(world, "tap0").mtu, link(world, "tap0").up) == (1300, True)
    assert do(world, SetLink(tap, up=False), SetLink(tap, alias="x"), SetLink(tap, up=True), SetLink(tap, mtu=1200, up=False)) == [0] * 4
    assert (link(world, "tap0").mtu, link(world, "tap0").up) == (1200, False)
    assert do(world, SetLink(tap, mtu=10), SetLink(tap, mtu=1400)) == [errno.EINVAL, 0]


def test_the_one_that_failed_is_named(world: World) -> None:
    world.tap("tap0")
    tap = index(world, "tap0")
    parts = [SetLink(tap, alias="x"), SetLink(tap, mtu=10), SetLink(tap, up=True)]
    assert do(world, *parts, stop=True) == [0, errno.EINVAL, errno.ECANCELED]
    assert not link(world, "tap0").up
    assert do(world, *parts, stop=False) == [0, errno.EINVAL, 0]
    assert link(world, "tap0").up
    assert told(world, SetLink(tap, mtu=10)).text == "tap0: MTU 10: mtu less than device minimum"


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({"address": "01:00:00:00:00:01"}, errno.EADDRNOTAVAIL),
        ({"address": "00:00:00:00:00:00"}, errno.EADDRNOTAVAIL),
        ({"address": "fe:00"}, errno.EINVAL),
        ({"address": "fe:00:00:00:00:00:00:01"}, errno.EINVAL),
        ({"address": "something"}, errno.EINVAL),
        ({"mtu": 67}, errno.EINVAL),
        ({"mtu": 65522}, errno.EINVAL),
        ({"mtu": -1}, errno.EINVAL),
        ({"alias": "x" * 256}, errno.ERANGE),
        ({"master": 9999}, errno.EINVAL),
    ],
)
def test_refused_changes_leave_it_as_it_was(world: World, change: dict[str, object], number: int) -> None:
    world.tap("tap0")
    before = link(world, "tap0")
    assert told(world, SetLink(before.index)._replace(**change)).errno == number  # type: ignore[arg-type]
    assert link(world, "tap0") == before


@pytest.mark.parametrize(("mtu", "alias"), [(68, ""), (65521, "x" * 255), (1500, "ä" * 127)])
def test_the_utmost(world: World, mtu: int, alias: str) -> None:
    world.tap("tap0")
    assert do(world, SetLink(index(world, "tap0"), mtu=mtu, alias=alias)) == [0]
    assert (link(world, "tap0").mtu, link(world, "tap0").alias) == (mtu, alias)


@pytest.mark.parametrize("number", [9999, 0, -1])
def test_no_such_device(world: World, number: int) -> None:
    assert told(world, SetLink(number, up=True)).errno == (errno.ENODEV if number > 0 else errno.EINVAL)


def test_what_is_no_bridge_takes_no_ports(world: World) -> None:
    world.tap("tap0")
    world.tap("tap1")
    world.bridge("br0")
    world.bridge("br1")
    tap, bridge = index(world, "tap0"), index(world, "br0")
    assert told(world, SetLink(tap, master=index(world, "tap1"))).errno == errno.EOPNOTSUPP
    assert told(world, SetLink(tap, master=tap)).errno == errno.EOPNOTSUPP
    assert told(world, SetLink(index(world, "br1"), master=bridge)).errno == errno.ELOOP
    assert told(world, SetLink(bridge, master=bridge)).errno == errno.ELOOP
    assert told(world, SetLink(1, master=bridge)).errno == errno.EINVAL
    assert view(world).ports(bridge) == []


def test_a_port_moves_to_another_bridge(world: World) -> None:
    world.tap("tap0")
    world.bridge("br0")
    world.bridge("br1")
    tap, first, second = index(world, "tap0"), index(world, "br0"), index(world, "br1")
    assert do(world, SetLink(tap, master=first), SetLink(tap, master=second)) == [0, 0]
    assert [len(view(world).ports(bridge)) for bridge in (first, second)] == [0, 1]


def test_a_full_bridge(world: World) -> None:
    """1023 ports; the next is refused, and what came before in the same message stays."""
    world.bridge("br0")
    world.many_ports("br0", 1023)
    world.tap("tap0")
    tap, bridge = index(world, "tap0"), index(world, "br0")
    answers = world.host.execute([SetLink(tap, address=MAC), SetLink(tap, master=bridge), SetLink(tap, up=True)], stop=True)
    assert [answer.errno for answer in answers] == [0, errno.EXFULL, errno.ECANCELED]
    assert answers[1].text == "tap0: bridge br0: the bridge has no room for another port"
    assert link(world, "tap0").address == MAC
    assert len(view(world).ports(bridge)) == 1023
    assert len(world.host.snapshot().ports(bridge)) == 1023


def test_a_bridge_follows_its_ports(world: World) -> None:
    """MTU and address, until its own are set."""
    for name in ("br0", "br1"):
        world.bridge(name)
    for name in ("tap0", "tap1"):
        world.tap(name)
    first, second = index(world, "tap0"), index(world, "tap1")
    bridge, other = index(world, "br0"), index(world, "br1")
    assert do(world, SetLink(first, address="fe:00:00:00:00:02", mtu=1400, master=bridge)) == [0]
    assert (link(world, "br0").mtu, link(world, "br0").address) == (1400, "fe:00:00:00:00:02")
    assert do(world, SetLink(second, address="02:00:00:00:00:01", mtu=9000, master=bridge)) == [0]
    assert (link(world, "br0").mtu, link(world, "br0").address) == (1400, "02:00:00:00:00:01")
    assert do(world, SetLink(second, mtu=1300), SetLink(second, address="fe:00:00:00:00:03")) == [0, 0]
    assert (link(world, "br0").mtu, link(world, "br0").address) == (1300, "fe:00:00:00:00:02")
    assert do(world, SetLink(first, master=0), SetLink(second, master=0)) == [0, 0]
    assert (link(world, "br0").mtu, link(world, "br0").address) == (1500, "00:00:00:00:00:00")
    assert do(world, SetLink(other, mtu=1450, address="02:00:00:00:00:09"), SetLink(first, master=other)) == [0, 0]
    assert (link(world, "br1").mtu, link(world, "br1").address) == (1450, "02:00:00:00:00:09")


def test_a_tap_goes(world: World) -> None:
    """With its process: the port, and its settings."""
    world.tap("tap0")
    world.bridge("br0")
    tap, bridge = index(world, "tap0"), index(world, "br0")
    assert do(world, SetLink(tap, master=bridge, up=True)) == [0]
    world.let_go("tap0")
    assert view(world).link("tap0") is None
    assert view(world).ports(bridge) == []
    assert view(world).sysctl("net/ipv4/conf/tap0/proxy_arp") is None
    assert told(world, SetLink(tap, up=True)).errno == errno.ENODEV


def test_who_holds_a_tap(world: World) -> None:
    world.tap("tap0", persistent=True)
    assert link(world, "tap0").holders == 1
    assert world.host.holder("tap0", [1, world.holder]) == world.holder
    assert world.host.holder("tap0", [1 << 22, 1]) == 0
    assert world.host.holder("tap", [world.holder]) == 0
    world.let_go("tap0")
    assert link(world, "tap0").holders == 0
    assert world.host.holder("tap0", [world.holder]) == 0
    world.remove("tap0")
    assert view(world).link("tap0") is None


def test_others_have_no_holders(world: World) -> None:
    world.bridge("br0")
    world.veth("veth0", "veth1")
    assert {link(world, name).holders for name in ("lo", "br0", "veth0")} == {-1}


def test_a_bridge_goes(world: World) -> None:
    world.tap("tap0")
    world.bridge("br0")
    assert do(world, SetLink(index(world, "tap0"), master=index(world, "br0"))) == [0]
    world.remove("br0")
    assert (link(world, "tap0").master, link(world, "tap0").port_kind) == (0, "")


def test_a_pair_goes_together(world: World) -> None:
    world.veth("veth0", "veth1")
    assert link(world, "veth0").lower == index(world, "veth1")
    assert link(world, "veth1").lower == index(world, "veth0")
    world.remove("veth0")
    assert view(world).link("veth1") is None


def test_a_device_is_renamed(world: World) -> None:
    """Its settings move, its index and its routes stay."""
    world.tap("tap0")
    tap = index(world, "tap0")
    assert do(world, SetSysctl("net/ipv4/conf/tap0/proxy_arp", "1"), SetLink(tap, up=True)) == [0, 0]
    assert do(world, AddRoute(Route(2, 100, "10.0.0.5/32", tap))) == [0]
    assert do(world, SetLink(tap, up=False)) == [0]
    world.rename("tap0", "tap9")
    assert (view(world).link("tap0"), index(world, "tap9")) == (None, tap)
    assert view(world).sysctl("net/ipv4/conf/tap9/proxy_arp") == "1"
    assert view(world).sysctl("net/ipv4/conf/tap0/proxy_arp") is None


def test_nothing_to_do(world: World) -> None:
    assert world.host.execute([], stop=True) == []
    assert view(world).ports(0) == []


def test_the_ports_of_a_vrf(full_world: World) -> None:
    """Its device tells the table of what comes in by them."""
    before = [view(full_world).rules(family) for family in (AF_INET, AF_INET6)]
    full_world.vrf("blue", 1300), full_world.veth("up0", "peer")
    blue, port = index(full_world, "blue"), index(full_world, "up0")
    assert do(full_world, SetLink(port, master=blue)) == [0]
    for each in (view(full_world), full_world.host.snapshot()):
        assert [(link.name, link.kind, link.table) for link in each.links_of("vrf")] == [("blue", "vrf", 1300)]
        assert [(link.name, link.port_kind, link.table) for link in each.ports(blue)] == [("up0", "vrf", 0)]
        assert each.port(port) is None and each.vlans(port) == []
    full_world.vrf("red", 1301)
    full_world.remove("red"), full_world.remove("blue")
    for family, rules in zip((AF_INET, AF_INET6), before, strict=True):  # the kernel's own rule has come with the first, and stays
        made = Rule(family, 1000, "", 0, 2, plain=False, narrowed=True, more=True)
        for each in (view(full_world), full_world.host.snapshot()):
            assert sorted(each.rules(family)) == sorted([*rules, made])
    left = view(full_world).link_at(port)
    assert left is not None and (left.master, left.port_kind, view(full_world).links_of("vrf")) == (0, "", [])


def test_no_vrfs(world: World) -> None:
    """Also where the kernel knows none, and would list every link."""
    world.bridge("br0"), world.tap("tap0")
    assert view(world).links_of("vrf") == world.host.snapshot().links_of("vrf") == []


@pytest.mark.parametrize("many", [False, True])
def test_the_least_mtu_of_ports(world: World, many: bool) -> None:
    """Of all ports but those that are named, whether the others are few or more."""
    world.bridge("br0")
    others = [f"eth{number}" for number in range(12 if many else 2)]
    for name in ("tap0", *others):
        world.tap(name)
    assert do(world, SetLink(index(world, "eth0"), mtu=4000), SetLink(index(world, "eth1"), mtu=2000)) == [0, 0]
    assert do(world, *(SetLink(index(world, name), mtu=5000) for name in others[2:])) == [0] * len(others[2:])
    bridge = link(world, "br0")
    for names, found in (([], 0), (["tap0"], 0), (others, 2000)):
        assert do(world, *(SetLink(index(world, name), master=bridge.index) for name in names)) == [0] * len(names)
        for seen in (view(world), world.host.snapshot()):
            assert seen.least_mtu(bridge, lambda: ["tap0", "of another node"]) == found
    for seen in (view(world), world.host.snapshot()):
        assert seen.least_mtu(link(world, "tap0"), list) == 0
    assert view(world).least_mtu(bridge, list) == 1500


@pytest.mark.parametrize("many", [False, True])
def test_a_bridge_below_all_of_its_ports(world: World, many: bool) -> None:
    """Somebody has set it: it would have the least of theirs."""
    world.bridge("br0")
    names = [f"eth{number}" for number in range(12 if many else 2)]
    for name in names:
        world.tap(name)
        assert do(world, SetLink(index(world, name), mtu=5000, master=link(world, "br0").index)) == [0]
    assert do(world, SetLink(index(world, "eth1"), mtu=4000)) == [0]

    def found() -> set[int]:
        return {seen.mtu_below(link(world, "br0")) for seen in (view(world), world.host.snapshot())}

    assert (link(world, "br0").mtu, found()) == (4000, {0})
    assert do(world, SetLink(index(world, "br0"), mtu=1500)) == [0] and found() == {4000}
    assert do(world, SetLink(index(world, "eth1"), mtu=1500)) == [0] and found() == {0}
    for name in names:
        world.remove(name)
    assert found() == {0} and view(world).mtu_below(link(world, "br0")._replace(name="gone", index=9999)) == 0


def test_who_gave_an_address(world: World) -> None:
    for name in ("tap0", "tap1"):
        world.tap(name, unassigned=True)
    assert do(world, SetLink(index(world, "tap1"), address=MAC)) == [0]
    for seen in (view(world), world.host.snapshot()):
        assert [seen.assigned(link(world, name)) for name in ("tap0", "tap1")] == [False, True]
