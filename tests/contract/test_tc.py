"""Traffic control: a token bucket as the root qdisc, clsact, and a policer in it."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Filter, Qdisc
from netcommon.host.api.requests import AddClsact, DeleteClsact, DeletePolicer, DeleteTbf, SetPolicer, SetTbf
from netcommon.host.rtnetlink.encode_tc import HANDLE, PREFERENCE, ticks
from tests.contract.worlds import World, do, index, told, view

FAST = 40_000_000_000


@pytest.mark.parametrize("rate", [8000, 10_000_000, FAST])
def test_a_token_bucket(tapped: World, rate: int) -> None:
    tap = index(tapped, "tap0")
    assert view(tapped).root_qdisc(tap) is None
    assert do(tapped, SetTbf(tap, rate, 65536, 200_000)) == [0]
    found = view(tapped).root_qdisc(tap)
    assert found is not None and found._replace(buffer=0) == Qdisc(tap, "tbf", HANDLE, rate, 0, 200_000)
    assert abs(found.buffer - ticks(65536, rate)) <= 1 + ticks(65536, rate) // 100
    assert tapped.host.snapshot().root_qdisc(tap) == found
    assert do(tapped, SetTbf(tap, 2 * rate, 65536, 200_000)) == [0]
    again = view(tapped).root_qdisc(tap)
    assert again is not None and again.rate == 2 * rate
    assert do(tapped, DeleteTbf(tap)) == [0]
    assert view(tapped).root_qdisc(tap) is None
    assert told(tapped, DeleteTbf(tap)).errno in DeleteTbf(tap).gone


def test_what_a_queue_has_dropped(tapped: World) -> None:
    tap = index(tapped, "tap0")
    assert do(tapped, SetTbf(tap, 8000, 65536, 200_000)) == [0]
    assert view(tapped).queue_drops().get(tap, 0) == tapped.host.snapshot().queue_drops().get(tap, 0) == 0


def test_clsact(tapped: World) -> None:
    tap = index(tapped, "tap0")
    assert view(tapped).clsact(tap) is None and list(view(tapped).filters(tap)) == []
    assert do(tapped, AddClsact(tap)) == [0]
    assert told(tapped, AddClsact(tap)).errno == errno.EEXIST
    found = view(tapped).clsact(tap)
    assert found is not None and found.kind == "clsact"
    assert do(tapped, DeleteClsact(tap)) == [0]
    assert view(tapped).clsact(tap) is None
    assert told(tapped, DeleteClsact(tap)).errno in DeleteClsact(tap).gone


def test_a_device_that_is_not_there(tapped: World) -> None:
    for request in (SetTbf(99, 8000, 16384, 16384), AddClsact(99), SetPolicer(99, 8000, 16384)):
        assert told(tapped, request).errno == errno.ENODEV
    for undone in (DeleteTbf(99), DeleteClsact(99), DeletePolicer(99)):
        assert told(tapped, undone).errno in undone.gone
    assert view(tapped).root_qdisc(99) is None and view(tapped).clsact(99) is None and list(view(tapped).filters(99)) == []


@pytest.mark.vm
@pytest.mark.parametrize("rate", [8000, 10_000_000, FAST])
def test_a_policer(tapped: World, rate: int) -> None:
    tap = index(tapped, "tap0")
    assert told(tapped, SetPolicer(tap, rate, 131072)).errno == errno.EINVAL
    assert do(tapped, AddClsact(tap), SetPolicer(tap, rate, 131072)) == [0, 0]
    (found,) = view(tapped).filters(tap)
    assert found._replace(burst=0) == Filter(tap, PREFERENCE, False, rate)
    assert abs(found.burst - ticks(131072, rate)) <= 1 + ticks(131072, rate) // 100
    assert told(tapped, SetPolicer(tap, 2 * rate, 131072)).errno == errno.EEXIST  # a matchall filter cannot be changed
    assert do(tapped, DeletePolicer(tap), SetPolicer(tap, 2 * rate, 131072)) == [0, 0]
    assert [each.rate for each in view(tapped).filters(tap)] == [2 * rate]
    assert do(tapped, DeletePolicer(tap)) == [0]
    assert list(view(tapped).filters(tap)) == []
    assert told(tapped, DeletePolicer(tap)).errno in DeletePolicer(tap).gone


def test_it_goes_with_the_device(tapped: World) -> None:
    tap = index(tapped, "tap0")
    assert do(tapped, SetTbf(tap, 8000, 16384, 16384), AddClsact(tap)) == [0, 0]
    tapped.let_go("tap0")
    tapped.tap("tap0")
    new = index(tapped, "tap0")
    assert view(tapped).root_qdisc(new) is None and view(tapped).clsact(new) is None
