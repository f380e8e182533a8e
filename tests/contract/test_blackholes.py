"""Routes to nowhere, and routes by a gateway: beside a guest's own route, and apart from it."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Route
from netcommon.host.api.requests import AddRoute, DeleteRoute, SetLink
from tests.contract.worlds import World, do, index, told, view

DESTINATIONS = {2: "10.0.0.5/32", 10: "2001:db8::5/128"}
BEHIND = {2: ("10.1.0.0/28", "10.0.0.5"), 10: ("2001:db8:1::/64", "2001:db8::5")}
BOTH = pytest.mark.parametrize("family", DESTINATIONS)


def guests(world: World, family: int) -> Route:
    scope, metric = (253, 0) if family == 2 else (0, 1024)
    return Route(family, 100, DESTINATIONS[family], index(world, "tap0"), scope=scope, metric=metric)


def blackhole(family: int) -> Route:
    return Route(family, 100, DESTINATIONS[family], 0, scope=0, metric=1025 if family == 10 else 1, type=6)


def shown(family: int) -> Route:
    """In IPv6 the loopback is its device."""
    return blackhole(family)._replace(index=1 if family == 10 else 0)


@pytest.fixture
def tap(world: World) -> World:
    world.tap("tap0")
    assert do(world, SetLink(index(world, "tap0"), up=True)) == [0]
    return world


@BOTH
def test_beside_the_guests_route(tap: World, family: int) -> None:
    """It is there with it, and stays when the device goes."""
    made = guests(tap, family)
    assert do(tap, AddRoute(blackhole(family)), AddRoute(blackhole(family)), AddRoute(made)) == [0, 0, 0]
    assert sorted(view(tap).routes(family, 100, made.destination)) == sorted([made, shown(family)])
    tap.let_go("tap0")
    assert view(tap).routes(family, 100) == [shown(family)]
    assert tap.host.snapshot().routes(family, 100, made.destination) == [shown(family)]
    assert do(tap, DeleteRoute(blackhole(family))) == [0]
    assert view(tap).routes(family, 100) == []
    assert told(tap, DeleteRoute(blackhole(family))).errno == errno.ESRCH


@BOTH
def test_deleting_one_leaves_the_other(tap: World, family: int) -> None:
    made = guests(tap, family)
    assert do(tap, AddRoute(made), AddRoute(blackhole(family)), DeleteRoute(blackhole(family))) == [0, 0, 0]
    assert view(tap).routes(family, 100) == [made]
    assert do(tap, AddRoute(blackhole(family)), DeleteRoute(made)) == [0, 0]
    assert view(tap).routes(family, 100) == [shown(family)]


@BOTH
def test_by_a_gateway(tap: World, family: int) -> None:
    """After the route to the gateway."""
    destination, gateway = BEHIND[family]
    behind = guests(tap, family)._replace(destination=destination, gateway=gateway, scope=0)
    assert do(tap, AddRoute(guests(tap, family)), AddRoute(behind), AddRoute(behind)) == [0, 0, 0]
    assert view(tap).routes(family, 100, destination) == [behind]
    other = "10.0.0.6" if family == 2 else "2001:db8::6"
    assert told(tap, DeleteRoute(behind._replace(gateway=other))).errno == errno.ESRCH
    assert do(tap, DeleteRoute(behind)) == [0]
    assert view(tap).routes(family, 100) == [guests(tap, family)]


@pytest.mark.parametrize("kind", [7, 8], ids=["unreachable", "prohibit"])
@BOTH
def test_other_routes_to_nowhere(world: World, family: int, kind: int) -> None:
    """Behind every other route: the metric is the last that there is."""
    made = blackhole(family)._replace(type=kind, metric=0x7FFFFFFF)
    assert do(world, AddRoute(made, new=True)) == [0]
    assert view(world).routes(family, 100) == [made._replace(index=1 if family == 10 else 0)]
    assert view(world).routes_of(family, 174, kind) == view(world).routes(family, 100)
    assert do(world, DeleteRoute(made)) == [0]
    assert view(world).routes(family, 100) == []
