"""Ask a host what trace asks: where a packet goes, which groups a device is in, how a device takes frames and hands them on."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.datapath import BLACKHOLE, LOCAL, UNICAST, Connection, DeviceState, PortState, Question
from netcommon.host.api.facts import LOCAL as LOCAL_ENTRY
from netcommon.host.api.facts import Address, Neighbour, Route, Rule
from netcommon.host.api.requests import AddAddress, AddNeighbour, AddRoute, AddRule, SetLink, SetSysctl
from tests.contract.worlds import World, do, index, view

GUEST, FAR, OWN = "10.0.0.5", "198.51.100.1", "10.0.0.1"


@pytest.fixture
def router(world: World) -> World:
    """Two taps, up, without addresses of their own: the kernel gives link-local ones some time after a device has come up, not at once."""
    for name in ("tap0", "tap1"):
        world.tap(name)
        assert do(world, SetSysctl(f"net/ipv6/conf/{name}/addr_gen_mode", "1"), SetLink(index(world, name), up=True)) == [0, 0]
        for setting, value in (("forwarding", "1"), ("rp_filter", "0")):
            assert do(world, SetSysctl(f"net/ipv4/conf/{name}/{setting}", value)) == [0]
    assert do(world, SetSysctl("net/ipv4/conf/all/rp_filter", "0")) == [0]
    return world


def ask(world: World, target: str, source: str = GUEST, mark: int = 0) -> tuple[int, int, int]:
    found = view(world).way(Question(2, target, source, index(world, "tap0"), mark))
    assert found == world.host.snapshot().way(Question(2, target, source, index(world, "tap0"), mark))
    return found.errno, found.type, found.index


def test_no_way(router: World) -> None:
    assert ask(router, FAR)[0] == errno.ENETUNREACH


def test_a_route_of_a_table(router: World) -> None:
    out = index(router, "tap1")
    made = Route(2, 100, "198.51.100.0/24", out)
    assert do(router, AddRoute(made), AddRule(Rule(2, 500, "tap0", 100))) == [0, 0]
    assert ask(router, FAR) == (0, UNICAST, out)
    found = view(router).way(Question(2, FAR, GUEST, index(router, "tap0")))
    assert (found.table, found.destination, found.protocol) == (100, "198.51.100.0/24", 174)
    assert do(router, SetSysctl("net/ipv4/conf/tap0/forwarding", "0")) == [0]
    assert ask(router, FAR)[0] == errno.EHOSTUNREACH


def test_a_mark(router: World) -> None:
    out = index(router, "tap1")
    rule = Rule(2, 500, "", 100, mark=0x50000, mask=0xFF0000)
    assert do(router, AddRoute(Route(2, 100, "198.51.100.0/24", out)), AddRule(rule)) == [0, 0]
    assert ask(router, FAR)[0] == errno.ENETUNREACH
    assert ask(router, FAR, mark=0x50000) == (0, UNICAST, out)


def test_a_blackhole(router: World) -> None:
    made = Route(2, 254, "198.51.100.0/24", 0, scope=0, type=BLACKHOLE)
    assert do(router, AddRoute(made)) == [0]
    assert ask(router, FAR)[0] == errno.EINVAL


def test_the_way_back(router: World) -> None:
    """rp_filter: 1 wants it by the same device, 2 by any; but of a device without an address by the same, too."""
    back, on = (index(router, name) for name in ("tap1", "tap0"))
    assert do(router, AddRoute(Route(2, 254, "198.51.100.0/24", back)), AddRoute(Route(2, 254, f"{GUEST}/32", on))) == [0, 0]
    refused = {errno.EXDEV, errno.EINVAL}  # since Linux 6.14 EINVAL is all that is told

    def asked(value: str) -> int:
        assert do(router, SetSysctl("net/ipv4/conf/tap0/rp_filter", value)) == [0]
        return ask(router, GUEST, source=FAR)[0]

    assert asked("0") == 0 and asked("1") in refused and asked("2") in refused
    assert do(router, AddAddress(Address(2, OWN, 32, on))) == [0]
    assert asked("0") == 0 and asked("1") in refused and asked("2") == 0


@pytest.mark.parametrize(("source", "target"), [("127.0.0.1", FAR), ("224.0.0.1", FAR), (GUEST, "127.0.0.1")])
def test_between_whom_nothing_goes(router: World, source: str, target: str) -> None:
    assert do(router, AddRoute(Route(2, 254, "198.51.100.0/24", index(router, "tap1")))) == [0]
    assert ask(router, target, source)[0] == errno.EINVAL


def test_the_nodes_own_address(router: World) -> None:
    assert do(router, AddAddress(Address(2, OWN, 32, index(router, "tap0")))) == [0]
    assert ask(router, OWN)[:2] == (0, LOCAL)
    assert view(router).way(Question(2, OWN)).type == LOCAL


def test_a_device_and_a_port(world: World) -> None:
    world.tap("tap0")
    tap = index(world, "tap0")
    assert do(world, SetLink(tap, up=True)) == [0]
    assert view(world).device_state(tap) == world.host.snapshot().device_state(tap) == DeviceState()
    world.bridge("br0")
    assert do(world, SetLink(index(world, "br0"), up=True), SetLink(tap, master=index(world, "br0"))) == [0, 0]
    found = view(world).device_state(index(world, "br0"))
    assert found is not None and found.bridge is not None and not found.bridge.stp and found.bridge.nf_call == (False, False, False)
    port = view(world).device_state(tap)
    assert port is not None and port.port is not None and port.port._replace(state=3) == PortState()
    assert view(world).device_state(99) is None


def test_the_bridges_own_address(world: World) -> None:
    """Its forwarding table has it; no state of a VLAN is another than forwarding."""
    world.bridge("br0")
    bridge = view(world).link("br0")
    assert bridge is not None
    found = view(world).fdb_entry(bridge.index, bridge.address, 0)
    assert found is not None and (found.kind, found.index, found.locked) == (LOCAL_ENTRY, bridge.index, False)
    assert view(world).vlan_states(bridge.index) == world.host.snapshot().vlan_states(bridge.index) == {}


def test_table_local(router: World) -> None:
    """It has each address, whatever rules there are."""
    tap = index(router, "tap0")
    assert do(router, AddAddress(Address(2, OWN, 32, tap))) == [0]
    found = [route for route in view(router).routes(2, 255) if route.destination == f"{OWN}/32"]
    assert [(route.type, route.index) for route in found] == [(LOCAL, tap)]


def test_groups(router: World) -> None:
    """All nodes; and where proxy entries are asked for."""
    tap = index(router, "tap0")
    assert "ff02::1" in view(router).groups(tap)
    assert do(router, AddNeighbour(Neighbour(10, "2001:db8::77", tap))) == [0]
    assert "ff02::1:ff00:77" in view(router).groups(tap)
    assert view(router).groups(99) == []


def test_what_decides_beside_routes(router: World) -> None:
    """Nothing lies upon a new device, nor sees its frames, nor is any connection tracked, any policy of IPsec there."""
    tap = index(router, "tap0")
    assert do(router, AddAddress(Address(2, OWN, 32, tap))) == [0]
    connection = Connection(2, GUEST, FAR, 17, (9, 53))
    for each in (view(router), router.host.snapshot()):
        assert not each.uppers(tap) and each.addresses_taken(tap) == frozenset() == each.tentative(tap)
        assert [each.programs(tap, egress) for egress in (False, True)] == [0, 0]
        assert not each.translated(connection) and not each.transforms()
        assert each.addresses_taken(99) == frozenset() == each.tentative(99) and each.programs(99, egress=False) == 0
