"""Host.execute_each: several lists, each as execute does it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import pytest

from netcommon.host.api.facts import AF_INET, FLOW_MARK, OVS_MARK, OvsPort, Route, Rule
from netcommon.host.api.host import NOT_TRIED
from netcommon.host.api.nftables import NETDEV, NftSet, NftTable, Put
from netcommon.host.api.requests import (
    AddRoute,
    AddRule,
    DeleteFlows,
    DeleteOvsPort,
    DeleteRule,
    NftChange,
    PutFlows,
    PutOvsPort,
    Request,
    SetLink,
    SetSysctl,
)
from netcommon.host.linux.host import LinuxHost
from netcommon.host.ovs.read import OvsReader
from netcommon.host.ovs.rows import agrees
from tests.contract.ovs_by_hand import intent
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


def ports(world: World, count: int, **changes: object) -> list[OvsPort]:
    for number in range(count):
        world.tap(f"tap{number}")
    return [
        OvsPort(f"tap{number}", "ovs0", tag=number + 1, external_ids=((OVS_MARK, f"uuid-{number}"),))._replace(**changes)  # type: ignore[arg-type]
        for number in range(count)
    ]


def put(world: World, wanted: list[OvsPort]) -> list[int]:
    return [said[0].errno for said in world.host.execute_each([[PutOvsPort(port)] for port in wanted], stop=True)]


def test_ports_of_open_vswitch(ovs_world: World) -> None:
    """Each is attached when it is answered, and gone when that is."""
    wanted = ports(ovs_world, 3)
    assert put(ovs_world, wanted) == [0] * 3
    found = {port.name: port for port in view(ovs_world).ovs_ports()}
    assert [intent(found[port.name]) for port in wanted] == wanted and all(port.ofport > 0 for port in found.values())
    gone = [[DeleteOvsPort(port.name, port.owner, wait=number > 0)] for number, port in enumerate(wanted)]
    assert [said[0].errno for said in ovs_world.host.execute_each(gone, stop=False)] == [0] * 3
    assert list(view(ovs_world).ovs_ports()) == []


def test_ports_go_in_few_transactions(monkeypatch: pytest.MonkeyPatch, ovs_world: World) -> None:
    """The first ones, the state before and after included, cost as much as all."""
    if not isinstance(ovs_world.host, LinuxHost):
        return  # a simulated switch has no database
    asked: list[int] = []
    transact = OvsReader._transact

    def counted(self: OvsReader, operations: Sequence[dict[str, Any]], deadline: float) -> tuple[list[Any], int, str]:
        asked.append(len(operations))
        return transact(self, operations, deadline)

    monkeypatch.setattr(OvsReader, "_transact", counted)
    wanted = ports(ovs_world, 40)
    assert put(ovs_world, wanted) == [0] * 40 and len(asked) == 4
    asked.clear()
    gone = [[DeleteOvsPort(port.name, port.owner, wait=True)] for port in wanted]
    assert {said[0].errno for said in ovs_world.host.execute_each(gone, stop=False)} == {0} and len(asked) == 2


def test_a_port_that_is_refused_is_one_lists(ovs_world: World) -> None:
    """A value out of range, no bridge, no device, a row that has the name already, twice the same name: the others are as good."""
    wanted = ports(ovs_world, 6)
    ovs_world.ovs_port("ovs0", "tap3")
    wanted[0] = wanted[0]._replace(tag=5000)
    wanted[1] = wanted[1]._replace(bridge="ovs9")
    wanted[2] = wanted[2]._replace(name="nothing")
    assert put(ovs_world, wanted) == [errno.EINVAL, errno.ENOENT, errno.EIO, 0, 0, 0]
    found = {port.name: port.tag for port in view(ovs_world).ovs_ports() if port.ofport > 0}
    assert found == {"tap3": 4, "tap4": 5, "tap5": 6}
    assert put(ovs_world, [wanted[4], wanted[4]._replace(tag=9)]) == [0, 0]
    again = view(ovs_world).ovs_port("tap4")
    assert again is not None and again.tag == 9


def test_ports_with_limits_and_anothers(ovs_world: World) -> None:
    """What needs more than one step is done alone; what bears another's mark stays."""
    policed = {"policing": 1000, "burst": 100}
    wanted = [port._replace(**(policed if number < 2 else {"shaping": 10**6})) for number, port in enumerate(ports(ovs_world, 4))]
    assert put(ovs_world, wanted) == [0] * 4
    assert all(agrees(view(ovs_world).ovs_port(port.name) or port._replace(bridge=""), port) for port in wanted)
    owners = [wanted[0].owner, "another", wanted[2].owner, wanted[3].owner]
    gone = [[DeleteOvsPort(port.name, owner, wait=True)] for port, owner in zip(wanted, owners, strict=True)]
    assert [said[0].errno for said in ovs_world.host.execute_each(gone, stop=False)] == [0, errno.ENOENT, 0, 0]
    assert [port.name for port in view(ovs_world).ovs_ports()] == ["tap1"] and list(view(ovs_world).ovs_shapers()) == []


def test_flows_of_open_vswitch(ovs_world: World) -> None:
    """Those of all ports are one bundle; where it is refused, each port's are tried by themselves."""
    wanted = ports(ovs_world, 3)
    assert put(ovs_world, wanted) == [0] * 3
    cookies = [FLOW_MARK | number for number in range(3)]
    changes = [
        PutFlows("ovs0", port.name, cookie, (f"priority={cookie & 3} actions=drop",)) for port, cookie in zip(wanted, cookies, strict=True)
    ]

    def flows() -> dict[int, list[str]]:
        return {cookie: [flow.text for flow in view(ovs_world).flows("ovs0", cookie)] for cookie in cookies}

    assert [said[0].ok for said in ovs_world.host.execute_each([[change] for change in changes], stop=True)] == [True] * 3
    assert flows() == {cookie: [f"priority={cookie & 3} actions=drop"] for cookie in cookies}
    again: list[list[Request]] = [[DeleteFlows("ovs0", cookies[0])], [changes[1]._replace(port="tap9")], [changes[2]._replace(flows=())]]
    assert [said[0].ok for said in ovs_world.host.execute_each(again, stop=False)] == [True, False, True]
    assert flows() == {cookies[0]: [], cookies[1]: ["priority=1 actions=drop"], cookies[2]: []}
