"""Host.execute_each: several lists, each as execute does it."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.base import NOT_TRIED
from netcommon.host.facts import AF_INET, Route, Rule
from netcommon.host.nftables import NETDEV, NftSet, NftTable, Put
from netcommon.host.requests import AddRoute, AddRule, DeleteRule, NftChange, Request, SetLink, SetSysctl
from tests.contract.worlds import World, index, view

TAPS = ("tap0", "tap1", "tap2")


def routed(world: World, tap: str, number: int) -> list[Request]:
    place = index(world, tap)
    return [
        SetLink(place, alias=f"alias of {tap}"),
        SetLink(place, up=True),
        SetSysctl(f"net/ipv4/conf/{tap}/proxy_arp", "1", place),
        AddRule(Rule(AF_INET, 500, tap, 100)),
        AddRoute(Route(AF_INET, 100, f"10.0.0.{number}/32", place)),
    ]


def test_each_has_its_answers_and_its_order(world: World) -> None:
    """A route needs its device up before: in each list the earlier has been done when the later is."""
    for tap in TAPS:
        world.tap(tap)
    lists = [routed(world, tap, number) for number, tap in enumerate(TAPS, 1)]
    answers = world.host.execute_each(lists, stop=True)
    assert [[answer.errno for answer in each] for each in answers] == [[0] * 5] * 3
    for number, tap in enumerate(TAPS, 1):
        found = view(world).link(tap)
        assert found and found.up and found.alias == f"alias of {tap}"
        assert view(world).sysctl(f"net/ipv4/conf/{tap}/proxy_arp") == "1"
        assert [rule.table for rule in view(world).rules(AF_INET, tap)] == [100]
        assert [route.index for route in view(world).routes(AF_INET, 100, f"10.0.0.{number}/32")] == [found.index]


@pytest.mark.parametrize("stop", [True, False])
def test_a_failure_is_one_lists(world: World, stop: bool) -> None:
    for tap in TAPS:
        world.tap(tap)
    lists = [routed(world, tap, number) for number, tap in enumerate(TAPS, 1)]
    lists[1][2] = SetSysctl("net/ipv4/conf/nothing/proxy_arp", "1")
    answers = world.host.execute_each(lists, stop)
    assert [answer.errno for answer in answers[0]] == [answer.errno for answer in answers[2]] == [0] * 5
    assert [answer.errno for answer in answers[1][:3]] == [0, 0, errno.ENOENT]
    assert answers[1][3:] == [NOT_TRIED] * 2 if stop else [answer.errno for answer in answers[1][3:]] == [0, 0]
    assert len(view(world).routes(AF_INET, 100)) == (2 if stop else 3)


def test_lists_of_different_lengths(world: World) -> None:
    world.tap("tap0")
    rule = AddRule(Rule(AF_INET, 500, "tap0", 100))
    answers = world.host.execute_each(
        [[], [rule], [DeleteRule(Rule(AF_INET, 500, "other", 100)), SetLink(index(world, "tap0"), up=True)]], stop=False
    )
    assert [len(each) for each in answers] == [0, 1, 2]
    assert answers[1][0].ok and answers[2][0].errno in rule.gone | {errno.ENOENT, errno.ESRCH} and answers[2][1].ok
    assert world.host.execute_each([], stop=True) == []


def test_a_refused_transaction_is_one_lists(world: World) -> None:
    """Though those of all lists are tried as one."""

    def change(name: str, *more: Put) -> list[Request]:
        return [NftChange(f"table {name}", (Put(NftTable(NETDEV, name, "netcommon test")), *more))]

    bad = Put(NftSet(NETDEV, "nowhere", "set", ((4, 4),)))
    answers = world.host.execute_each([change("one"), change("two", bad), change("three")], stop=True)
    assert [each[0].ok for each in answers] == [True, False, True]
    assert sorted(table.name for table in view(world).nft_tables(NETDEV)) == ["one", "three"]
