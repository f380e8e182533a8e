"""Host routes: added, replaced, deleted exactly, and gone with their device."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Route
from netcommon.host.api.requests import AddRoute, DeleteRoute, SetLink, SetSysctl
from netcommon.host.linux.memo_view import MemoView
from tests.contract.worlds import World, do, index, told, view

DESTINATIONS = {2: "10.0.0.5/32", 10: "2001:db8::5/128"}
BOTH = pytest.mark.parametrize("family", DESTINATIONS)


def route(world: World, family: int, **changes: object) -> Route:
    """As the kernel shows it: IPv6 knows no scope, and has a metric of its own."""
    scope, metric = (253, 0) if family == 2 else (0, 1024)
    made = Route(family, 100, DESTINATIONS[family], index(world, "tap0"), scope=scope, metric=metric)
    return made._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def taps(world: World) -> World:
    """Two taps, up."""
    for name in ("tap0", "tap1"):
        world.tap(name)
    assert do(world, *(SetLink(index(world, name), up=True) for name in ("tap0", "tap1"))) == [0, 0]
    return world


@BOTH
def test_add_and_delete(taps: World, family: int) -> None:
    made = route(taps, family)
    assert do(taps, AddRoute(made)) == [0]
    for found in (
        view(taps).routes(family, 100),
        view(taps).routes(family, 100, made.destination),
        view(taps).routes(family, None, made.destination),
    ):
        assert found == [made]
    assert made in view(taps).routes(family)
    assert do(taps, DeleteRoute(made)) == [0]
    assert view(taps).routes(family, 100) == []
    assert told(taps, DeleteRoute(made)).errno == errno.ESRCH


@BOTH
def test_defaults_of_the_family(taps: World, family: int) -> None:
    """Scope link and no metric, as asked for, come out as the kernel shows them, and are deleted so too."""
    asked = route(taps, family, scope=253, metric=0)
    assert do(taps, AddRoute(asked)) == [0]
    assert view(taps).routes(family, 100) == [route(taps, family)]
    assert do(taps, DeleteRoute(asked)) == [0]


@BOTH
def test_add_replaces(taps: World, family: int) -> None:
    assert do(taps, AddRoute(route(taps, family, protocol=4))) == [0]
    made = route(taps, family, index=index(taps, "tap1"))
    assert do(taps, AddRoute(made), AddRoute(made)) == [0, 0]
    assert view(taps).routes(family, 100) == [made]


@BOTH
def test_a_new_one_replaces_ours_alone(taps: World, family: int) -> None:
    """Whatever came since it was looked for stays; so does what is of another TOS or metric, which the new one stands beside."""
    away, made = route(taps, family, index=index(taps, "tap1")), route(taps, family)
    for protocol in (4, 186):
        theirs = away._replace(protocol=protocol)
        assert do(taps, AddRoute(theirs)) == [0]
        assert told(taps, AddRoute(made, new=True)).errno == errno.EEXIST
        assert do(taps, AddRoute(made, new=True), SetLink(made.index, up=True), stop=False) == [errno.EEXIST, 0]
        assert view(taps).routes(family, 100) == [theirs]
        assert do(taps, DeleteRoute(theirs)) == [0]
    for before in ((), (made,), (away,)):
        assert do(taps, *(AddRoute(each, new=True) for each in before)) == [0] * len(before)
        assert do(taps, AddRoute(made, new=True), AddRoute(made, new=True)) == [0, 0]
        assert view(taps).routes(family, 100) == [made]
    other = away._replace(protocol=4, metric=7)
    assert do(taps, AddRoute(other), DeleteRoute(made), AddRoute(made, new=True)) == [0, 0, 0]
    assert sorted(view(taps).routes(family, 100)) == sorted([other, made])


@BOTH
def test_another_metric_is_another_route(taps: World, family: int) -> None:
    first, second = route(taps, family), route(taps, family, metric=7)
    assert do(taps, AddRoute(first), AddRoute(second)) == [0, 0]
    assert sorted(view(taps).routes(family, 100)) == sorted([first, second])
    assert do(taps, DeleteRoute(second)) == [0]
    assert view(taps).routes(family, 100) == [first]


@BOTH
@pytest.mark.parametrize("table", [254, 255, 256, 70000])
def test_tables(taps: World, family: int, table: int) -> None:
    made = route(taps, family, table=table)
    assert do(taps, AddRoute(made)) == [0]
    assert view(taps).routes(family, table, made.destination) == [made]
    assert view(taps).routes(family, 99, made.destination) == []
    assert taps.host.snapshot().routes(family, 99, made.destination) == []
    assert taps.host.snapshot().routes(family, None, made.destination) == [made]
    assert do(taps, DeleteRoute(made)) == [0]


@BOTH
@pytest.mark.parametrize("changes", [{"protocol": 4}, {"table": 101}, {"table": 3333}, {"other": True}, {"metric": 7}, {"longer": True}])
def test_only_the_same_one_is_deleted(taps: World, family: int, changes: dict[str, object]) -> None:
    made = route(taps, family)
    assert do(taps, AddRoute(made)) == [0]
    if changes == {"other": True}:
        changes = {"index": index(taps, "tap1")}
    if changes == {"longer": True}:
        changes = {"destination": "10.0.0.4/31" if family == 2 else "2001:db8::4/127"}
    assert told(taps, DeleteRoute(made._replace(**changes))).errno == errno.ESRCH  # type: ignore[arg-type]
    assert view(taps).routes(family, 100) == [made]


def test_scope_of_ipv4(taps: World) -> None:
    made = route(taps, 2, scope=0)
    assert do(taps, AddRoute(made)) == [0]
    assert told(taps, DeleteRoute(made._replace(scope=253))).errno == errno.ESRCH
    assert do(taps, DeleteRoute(made)) == [0]


@BOTH
def test_the_exact_destination_alone(taps: World, family: int) -> None:
    """Not a longer one, nor a shorter one that covers it, nor the default route."""
    wide = "10.0.0.0/8" if family == 2 else "2001:db8::/32"
    near = "10.0.0.50/32" if family == 2 else "2001:db8::50/128"
    everything = "0.0.0.0/0" if family == 2 else "::/0"
    made = [route(taps, family, destination=each) for each in (wide, near, everything, DESTINATIONS[family])]
    assert do(taps, *(AddRoute(each) for each in made)) == [0] * 4
    for seen in (view(taps), taps.host.snapshot(), MemoView(view(taps))):
        for each in made:
            assert seen.routes(family, 100, each.destination) == [each]
            assert seen.route_list(family, 100).to(each.destination) == [each]
        assert seen.routes(family, 100, "192.0.2.0/24" if family == 2 else "2001:db9::/32") == []
        assert seen.routes(family, 100, "nonsense") == []
    assert sorted(MemoView(view(taps)).routes(family, 100)) == sorted(made)


def test_no_metric_stands_for_any(taps: World) -> None:
    """So whoever deletes a route of IPv4 looks first whether it is the one."""
    made = route(taps, 2, metric=50)
    assert do(taps, AddRoute(made)) == [0]
    assert told(taps, DeleteRoute(made._replace(metric=7))).errno == errno.ESRCH
    assert do(taps, DeleteRoute(made._replace(metric=0))) == [0]
    assert view(taps).routes(2, 100) == []


@BOTH
def test_no_such_table(world: World, family: int) -> None:
    assert view(world).routes(family, 4242) == []


@BOTH
def test_device_is_down(world: World, family: int) -> None:
    world.tap("tap0")
    answer = told(world, AddRoute(route(world, family)))
    assert answer.errno == errno.ENETDOWN
    assert "tap0" in answer.text


@BOTH
def test_no_device(taps: World, family: int) -> None:
    assert told(taps, AddRoute(route(taps, family, index=9999))).errno == errno.ENODEV
    assert told(taps, AddRoute(route(taps, family, index=0))).errno == errno.ENODEV


@BOTH
@pytest.mark.parametrize("destination", ["", "nonsense", "10.0.0.5/33", "2001:db8::/129", "10.0.0.5/x", "2001:db8::5/-1"])
def test_no_destination(taps: World, family: int, destination: str) -> None:
    assert told(taps, AddRoute(route(taps, family, destination=destination))).errno == errno.EINVAL


def test_bits_beyond_the_prefix(taps: World) -> None:
    """IPv4 refuses them, IPv6 drops them."""
    assert told(taps, AddRoute(route(taps, 2, destination="10.0.0.5/24"))).errno == errno.EINVAL
    assert do(taps, AddRoute(route(taps, 10, destination="2001:db8::5/64"))) == [0]
    assert view(taps).routes(10, 100) == [route(taps, 10, destination="2001:db8::/64")]


def test_ipv6_is_off_on_the_device(taps: World) -> None:
    assert do(taps, SetSysctl("net/ipv6/conf/tap0/disable_ipv6", "1")) == [0]
    assert told(taps, AddRoute(route(taps, 10))).errno == errno.EACCES
    assert do(taps, AddRoute(route(taps, 2))) == [0]


@BOTH
def test_they_go_with_their_device(taps: World, family: int) -> None:
    other = route(taps, family, index=index(taps, "tap1"), table=101)
    assert do(taps, AddRoute(route(taps, family)), AddRoute(other)) == [0, 0]
    taps.let_go("tap0")
    assert view(taps).routes(family, 100) == []
    assert do(taps, SetLink(other.index, up=False)) == [0]
    assert view(taps).routes(family, 101) == []
    assert do(taps, SetLink(other.index, up=True)) == [0]
    assert view(taps).routes(family, 101) == []


def test_a_nic_in_one_go(world: World) -> None:
    """The device comes up before its route: the order is kept."""
    world.tap("tap0")
    made = route(world, 2)
    requests = [SetLink(made.index, mtu=1400), SetLink(made.index, up=True), AddRoute(made), SetLink(made.index, alias="x"), AddRoute(made)]
    assert do(world, *requests, stop=True) == [0] * 5
    assert do(world, SetLink(made.index, up=False), AddRoute(made), stop=False) == [0, errno.ENETDOWN]


@BOTH
def test_default_routes_are_all_told(taps: World, family: int) -> None:
    everything = "0.0.0.0/0" if family == 2 else "::/0"
    made = [route(taps, family, destination=everything, metric=metric, protocol=4) for metric in (100, 200)]
    assert do(taps, *(AddRoute(each) for each in made)) == [0, 0]
    for seen in (view(taps), taps.host.snapshot(), MemoView(view(taps))):
        assert sorted(seen.routes(family, 100, everything)) == sorted(made)


@BOTH
def test_those_of_a_sort(taps: World, family: int) -> None:
    """By protocol, type, output interface and table, or any of each."""
    other = index(taps, "tap1")
    ours = route(taps, family)
    blackhole = route(taps, family, protocol=4, metric=1500, type=6, index=0, scope=0)
    theirs = route(taps, family, protocol=4, index=other, table=101)
    assert do(taps, *(AddRoute(each) for each in (ours, blackhole, theirs))) == [0] * 3
    for seen in (view(taps), taps.host.snapshot(), MemoView(view(taps))):
        assert seen.routes_of(family, 174) == [ours]
        assert seen.routes_of(family, 0, 0, other, 101) == seen.routes_of(family, 4, 1, 0, 101) == [theirs]
        assert [(each.destination, each.type, each.metric) for each in seen.routes_of(family, 0, 6)] == [(ours.destination, 6, 1500)]
        assert len(seen.routes_of(family, 4)) == 2
        assert seen.routes_of(family, 174, 6) == seen.routes_of(family, 0, 0, 9999) == seen.routes_of(family, 174, 0, 0, 4242) == []
