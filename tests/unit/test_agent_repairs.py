"""The policy of kinds, the window in which nobody is fought, and pauses after failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netagent.repairs import ALLOWED, FIRST, LAST, LONGEST, SHORTEST, Repairs
from netcommon.settings import Settings


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(**policy: str) -> tuple[Repairs, Clock]:
    clock = Clock()
    return Repairs(clock, Settings(repair=policy)), clock


def test_policy() -> None:
    repairs, _clock = made(rule="off", route="report", link="on")
    assert [repairs.judge("a", kind, kind).repair for kind in ("rule", "route", "link", "guard")] == [False, False, True, True]
    assert repairs.judge("a", "route", "x").why and not repairs.judge("a", "rule", "x").why
    assert repairs.judge("a", "rule", "x").again == 0


def test_the_policy_of_an_extension_is_that_of_all_its_kinds() -> None:
    extensions = {"storage": {"adds": "mode", "repair": "report"}, "x": {"adds": "mode"}}
    repairs = Repairs(Clock(), Settings(repair={"mtu": "off"}, extensions=extensions))
    kinds = ("storage/mtu", "storage/other", "x/mtu", "gone/mtu", "mtu")
    assert [repairs.policy(kind) for kind in kinds] == ["report", "report", "on", "on", "off"]


def test_a_few_times_in_a_window() -> None:
    repairs, clock = made()
    for number in range(ALLOWED):
        verdict = repairs.judge("a", "rule", "x")
        assert verdict.repair and bool(verdict.why) == (number > 0)
        clock.now += 1
    refused = repairs.judge("a", "rule", "x")
    assert not refused.repair and refused.again == 1000 + SHORTEST and "somebody else" in refused.why
    assert repairs.judge("a", "rule", "y").repair and repairs.judge("b", "rule", "x").repair
    clock.now = refused.again
    assert repairs.judge("a", "rule", "x").repair


def test_windows_grow_while_somebody_fights_and_shrink_when_it_holds() -> None:
    repairs, clock = made()
    lengths = []
    for _ in range(10):
        while (verdict := repairs.judge("a", "rule", "x")).repair:
            pass
        lengths.append(verdict.again - clock.now)
        clock.now = verdict.again
    assert lengths == [min(SHORTEST * 2**turn, LONGEST) for turn in range(10)]
    clock.now += 3 * LONGEST
    for _ in range(ALLOWED):
        assert repairs.judge("a", "rule", "x").repair
    assert repairs.judge("a", "rule", "x").again == clock.now + SHORTEST


@given(st.lists(st.floats(0, 30), max_size=200))
def test_never_more_than_so_many_in_a_window(pauses: list[float]) -> None:
    """Whenever it drifts, and however often: of any SHORTEST seconds no more than two windows' repairs are in one."""
    repairs, clock = made()
    times = []
    for pause in pauses:
        clock.now += pause
        if repairs.judge("a", "rule", "x").repair:
            times.append(clock.now)
    for position, time in enumerate(times):
        assert sum(time <= other < time + SHORTEST for other in times[position:]) <= 2 * ALLOWED


def test_pauses_after_failures() -> None:
    repairs, clock = made()
    assert repairs.not_before("a") == 0
    pauses = [repairs.failed("a") - clock.now for _ in range(20)]
    assert pauses[:4] == [FIRST, FIRST * 2, FIRST * 4, FIRST * 8] and pauses[-1] == LAST
    assert repairs.not_before("a") == clock.now + LAST and repairs.not_before("b") == 0
    repairs.worked("a")
    assert repairs.not_before("a") == 0 and repairs.failed("a", 0.2) == clock.now + 0.2


def test_nothing_is_kept_of_what_is_gone() -> None:
    repairs, clock = made()
    for key in ("a", "b"):
        repairs.judge(key, "rule", "x")
        repairs.failed(key)
    repairs.forget({"b"}.__contains__)
    assert set(repairs._windows) == {("b", "x")} and set(repairs._failures) == {"b"}
    clock.now += 3 * SHORTEST
    repairs.forget({"b"}.__contains__)
    assert repairs._windows == {}
