"""The policy of kinds, the window in which nobody is fought, what counts for it, and pauses after failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netagent.reconcile.repair_policy import ALLOWED, FIRST, LAST, LONGEST, SHORTEST, Repairs, Verdict
from netcommon.settings.model import Settings


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(**policy: str) -> tuple[Repairs, Clock]:
    clock = Clock()
    return Repairs(clock, Settings(repair=policy)), clock


def repaired(repairs: Repairs, key: str = "a", operation: str = "x") -> Verdict:
    """It is undone by somebody; where it may be repaired, that is done, and holds."""
    verdict = repairs.judge(key, "rule", operation)
    if verdict.repair:
        repairs.held(key, [operation])
    return verdict


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
        verdict = repaired(repairs)
        assert verdict.repair and bool(verdict.why) == (number > 0)
        clock.now += 1
    refused = repaired(repairs)
    assert not refused.repair and refused.again == 1000 + SHORTEST and "somebody else" in refused.why
    assert repaired(repairs, operation="y").repair and repaired(repairs, "b").repair
    clock.now = refused.again
    assert repaired(repairs).repair


def test_what_failed_or_was_not_tried_counts_for_nothing() -> None:
    repairs, clock = made()
    for _ in range(10 * ALLOWED):
        verdict = repairs.judge("a", "rule", "x")
        assert verdict.repair and not verdict.why
        clock.now = repairs.failed("a", ["x"])
    assert [repaired(repairs).repair for _ in range(ALLOWED + 1)] == [True] * ALLOWED + [False]


def test_who_flushes_a_whole_table_fights_nobody() -> None:
    repairs, _clock = made()
    for _ in range(10 * ALLOWED):
        repairs.flushed("a")
        assert repaired(repairs) == (True, 0.0, "")
    repairs.failed("a", ["y"])
    repairs.flushed("a")
    assert not repairs.judge("a", "rule", "y").repair  # our own repair of a table flushes chains too: it must not end pauses


def test_what_comes_ends_pauses_and_windows() -> None:
    """Leave alone what failed, of its own record; what has failed often is tried often again."""
    repairs, clock = made()
    for key in ("a", "b"):
        while repaired(repairs, key).repair:
            pass
        for _ in range(10):
            repairs.failed(key, ["y"])
            repairs.failed(key)
    repairs.came("a")
    assert repaired(repairs).repair and repairs.judge("a", "rule", "y").repair and repairs.not_before("a") == 0
    assert repairs.failed("a", ["y"]) == clock.now + FIRST
    assert not repairs.judge("b", "rule", "x").repair and not repairs.judge("b", "rule", "y").repair and repairs.not_before("b") > 0


def test_what_fails_is_left_alone_for_a_while_and_nothing_else() -> None:
    repairs, clock = made()
    when = repairs.failed("a", ["x"])
    assert repairs.judge("a", "rule", "x") == (False, when, "") and repairs.judge("a", "rule", "y").repair
    assert repairs.not_before("a") == 0
    clock.now = when
    assert repairs.judge("a", "rule", "x").repair


def test_the_log_says_a_reason_once() -> None:
    repairs, _clock = made()
    assert [repairs.news("a", why) for why in ("no", "no", "other", "no")] == [True, False, True, False]
    repairs.worked("a")
    assert repairs.news("a", "no") and repairs.news("b", "no")


def test_windows_grow_while_somebody_fights_and_shrink_when_it_holds() -> None:
    repairs, clock = made()
    lengths = []
    for _ in range(10):
        while (verdict := repaired(repairs)).repair:
            pass
        lengths.append(verdict.again - clock.now)
        clock.now = verdict.again
    assert lengths == [min(SHORTEST * 2**turn, LONGEST) for turn in range(10)]
    clock.now += 3 * LONGEST
    for _ in range(ALLOWED):
        assert repaired(repairs).repair
    assert repaired(repairs).again == clock.now + SHORTEST


@given(st.lists(st.floats(0, 30), max_size=200))
def test_never_more_than_so_many_in_a_window(pauses: list[float]) -> None:
    """Whenever it drifts, and however often: of any SHORTEST seconds no more than two windows' repairs are in one."""
    repairs, clock = made()
    times = []
    for pause in pauses:
        clock.now += pause
        if repaired(repairs).repair:
            times.append(clock.now)
    for position, time in enumerate(times):
        assert sum(time <= other < time + SHORTEST for other in times[position:]) <= 2 * ALLOWED


def test_pauses_after_failures() -> None:
    repairs, clock = made()
    assert repairs.not_before("a") == 0
    pauses = [repairs.failed("a") - clock.now for _ in range(20)]
    assert [round(pause / FIRST) for pause in pauses[:4]] == [1, 2, 4, 8] and round(pauses[-1]) == LAST
    assert round(repairs.not_before("a") - clock.now) == LAST and repairs.not_before("b") == 0
    repairs.worked("a")
    assert repairs.not_before("a") == 0 and repairs.failed("a", longest=FIRST / 2) - clock.now <= FIRST


def test_nothing_is_kept_of_what_is_gone() -> None:
    repairs, clock = made()
    for key in ("a", "b"):
        repaired(repairs, key)
        repairs.failed(key)
        repairs.news(key, "no")
    repairs.forget({"b"}.__contains__)
    assert set(repairs._windows) == set(repairs._pauses) == set(repairs._said) == {"b"}
    clock.now += 3 * SHORTEST
    repairs.forget({"b"}.__contains__)
    assert repairs._windows == {}
