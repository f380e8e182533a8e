"""The way of a packet that comes in by a device: by rules and tables, and whether the reverse path filter lets it."""

from __future__ import annotations

import pytest

from netcommon.host.api.datapath import Question
from netcommon.host.api.facts import AF_INET, Route, Rule
from netcommon.host.api.requests import AddRoute, AddRule, SetLink, SetSysctl
from tests.contract.worlds import World, do, index, view

GUEST, FAR, GATEWAY = "10.0.0.5", "198.51.100.1", "10.9.9.1"


@pytest.fixture
def routed(world: World) -> World:
    """A guest's table with its address on tap0 and a default route by tap1, which the world outside is behind."""
    for name in ("tap0", "tap1"):
        world.tap(name)
    inner, outer = index(world, "tap0"), index(world, "tap1")
    changes = [SetLink(each, up=True) for each in (inner, outer)]
    changes += [SetSysctl(f"net/ipv4/conf/{name}/{setting}", value) for name in ("tap0", "tap1") for setting, value in SETTINGS]
    changes += [AddRoute(Route(AF_INET, 100, f"{GUEST}/32", inner)), AddRoute(Route(AF_INET, 100, "0.0.0.0/0", outer))]
    assert not any(do(world, *changes, AddRule(Rule(AF_INET, 400, "tap0", 100))))
    return world


SETTINGS = (("forwarding", "1"), ("rp_filter", "0"))


@pytest.mark.parametrize("value", ["0", "1", "2"])
@pytest.mark.parametrize("ruled", [False, True])
def test_the_way_back_is_looked_up_from_the_way_out(routed: World, value: str, ruled: bool) -> None:
    inner, outer = index(routed, "tap0"), index(routed, "tap1")
    if ruled:
        assert do(routed, AddRule(Rule(AF_INET, 401, "tap1", 100))) == [0]
    assert do(routed, SetSysctl("net/ipv4/conf/tap0/rp_filter", value)) == [0]
    for seen in (view(routed), routed.host.snapshot()):
        found, back = seen.way(Question(AF_INET, FAR, GUEST, inner)), seen.way(Question(AF_INET, GUEST, FAR, outer))
        assert found.index == (outer if ruled or value == "0" else 0)
        assert back.index == (inner if ruled else 0)


def test_by_mark(routed: World) -> None:
    inner, outer = index(routed, "tap0"), index(routed, "tap1")
    made = [AddRoute(Route(AF_INET, 101, f"{FAR}/32", inner)), AddRule(Rule(AF_INET, 300, "", 101, mark=7, mask=0xFF))]
    assert not any(do(routed, *made))
    found = [view(routed).way(Question(AF_INET, FAR, GUEST, inner, mark)) for mark in (0, 7, 8)]
    assert [way.index for way in found] == [outer, inner, outer]
