"""Policy rules: added once, found by their interface, deleted exactly."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Rule
from netcommon.host.api.requests import AddRule, DeleteRule
from tests.contract.worlds import World, do, told, view

BOTH = pytest.mark.parametrize("family", [2, 10])


def ours(family: int, **changes: object) -> Rule:
    return Rule(family, 500, "tap0", 100)._replace(**changes)  # type: ignore[arg-type]


@BOTH
def test_add_and_delete(world: World, family: int) -> None:
    """The interface need not be there, and when it comes and goes the rule stays."""
    rule = ours(family)
    assert do(world, AddRule(rule)) == [0]
    assert view(world).rules(family, "tap0") == [rule]
    world.tap("tap0")
    world.let_go("tap0")
    assert view(world).rules(family, "tap0") == [rule]
    assert do(world, DeleteRule(rule)) == [0]
    assert view(world).rules(family, "tap0") == []


@BOTH
def test_no_duplicates(world: World, family: int) -> None:
    rule = ours(family)
    assert do(world, AddRule(rule)) == [0]
    assert told(world, AddRule(rule)).errno == errno.EEXIST
    assert told(world, AddRule(rule)).text == "rule 500 iif tap0 lookup 100: there is one already"
    assert view(world).rules(family, "tap0") == [rule]


@BOTH
def test_rules_that_differ_stand_beside_each_other(world: World, family: int) -> None:
    rules = [ours(family), ours(family, protocol=4), ours(family, table=101), ours(family, preference=501), ours(family, iif="tap1")]
    rules.append(ours(family, table=70000))
    assert do(world, *(AddRule(rule) for rule in rules)) == [0] * 6
    assert sorted(view(world).rules(family, "tap0")) == sorted(rule for rule in rules if rule.iif == "tap0")
    assert set(rules) <= set(view(world).rules(family))
    assert view(world).rules(12 - family, "tap0") == []


@BOTH
@pytest.mark.parametrize("changes", [{"protocol": 4}, {"table": 101}, {"preference": 501}, {"iif": "tap1"}, {"iif": "tap"}])
def test_only_the_same_one_is_deleted(world: World, family: int, changes: dict[str, object]) -> None:
    rule = ours(family)
    assert do(world, AddRule(rule)) == [0]
    assert told(world, DeleteRule(ours(family, **changes))).errno == errno.ENOENT
    assert view(world).rules(family, "tap0") == [rule]


@BOTH
def test_one_of_two_is_deleted(world: World, family: int) -> None:
    """The administrator's rule, with another protocol, stays, whichever came first."""
    for first, second in ((174, 4), (4, 174)):
        assert do(world, AddRule(ours(family, protocol=first)), AddRule(ours(family, protocol=second))) == [0, 0]
        assert do(world, DeleteRule(ours(family))) == [0]
        assert view(world).rules(family, "tap0") == [ours(family, protocol=4)]
        assert do(world, DeleteRule(ours(family, protocol=4))) == [0]


@pytest.mark.parametrize(("family", "source"), [(2, "192.0.2.1/32"), (10, "2001:db8::1/128")])
def test_more_selectors_are_not_plain(world: World, family: int, source: str) -> None:
    rule = ours(family, preference=400, protocol=4)
    world.rule_with_source(rule, source)
    assert view(world).rules(family, "tap0") == [rule._replace(plain=False, narrowed=True, source=source)]


def test_the_kernels_own_rules(world: World) -> None:
    """They select by no interface, and so are none that we could have made."""
    assert [(rule.preference, rule.table, rule.iif, rule.plain) for rule in view(world).rules(2)] == [
        (0, 255, "", False),
        (32766, 254, "", False),
        (32767, 253, "", False),
    ]
    assert [(rule.preference, rule.table) for rule in view(world).rules(10)] == [(0, 255), (32766, 254)]
    before = view(world).rules(2)
    assert do(world, AddRule(ours(2))) == [0]
    assert view(world).rules(2, "") == before
    assert world.host.snapshot().rules(2, "") == before


@pytest.mark.parametrize(("changes", "number"), [({"iif": "x" * 16}, errno.ERANGE), ({"table": 1 << 32}, errno.EINVAL)])
def test_refused(world: World, changes: dict[str, object], number: int) -> None:
    assert told(world, AddRule(ours(2, **changes))).errno == number


def test_stop_and_go_on(world: World) -> None:
    rule, other = ours(2), ours(2, preference=501)
    assert do(world, AddRule(rule), AddRule(rule), AddRule(other), stop=True) == [0, errno.EEXIST, errno.ECANCELED]
    assert view(world).rules(2, "tap0") == [rule]
    assert do(world, AddRule(rule), AddRule(other), stop=False) == [errno.EEXIST, 0]
    assert view(world).rules(2, "tap0") == [rule, other]


def test_very_many_at_once(world: World) -> None:
    """More than one send holds; each is answered, and those that are there already are told apart."""
    rules = [ours(2, iif=f"tap{number}") for number in range(700)]
    assert do(world, *(AddRule(rule) for rule in rules[::2])) == [0] * 350
    assert do(world, *(AddRule(rule) for rule in rules)) == [errno.EEXIST, 0] * 350
    assert view(world).rules(2, "tap699") == [rules[699]]
    assert len(view(world).rules(2)) == 703
    assert world.host.snapshot().rules(2, "tap699") == [rules[699]]
    assert do(world, *(DeleteRule(rule) for rule in rules)) == [0] * 700
    assert len(view(world).rules(2)) == 3
