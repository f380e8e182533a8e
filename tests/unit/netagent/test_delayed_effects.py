"""What effects do again in the agent: together, each at its time, and no longer than it says; and the records that threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from netagent.delayed_effects import STEP, DelayedEffects
from netagent.loop import Loop
from netagent.record_cache import RecordCache
from runtime.errors import RecordUnreadable
from runtime.record import to_json
from tests.support.nics import record


class Resident:
    """An agent without threads: ``work`` does what a worker was given."""

    def __init__(self) -> None:
        self.now = 10.0
        self.errors: list[Exception] = []
        self.loop = Loop(lambda: self.now, self.errors.append)
        self.jobs: list[Callable[[Any], None]] = []
        self.repeats = DelayedEffects(self.loop, lambda: self.now, self.jobs.append, self.errors.append)
        self.views = 0
        self.worker: Any = SimpleNamespace(node=SimpleNamespace(host=self), log="the worker's log")

    def view(self) -> Any:
        self.views += 1
        return SimpleNamespace(link_at=lambda index: (self.views, index))

    def later(self, delays: tuple[float, ...], action: Callable[..., bool]) -> None:
        self.repeats.later(delays, action, None, None)  # type: ignore[arg-type]

    def at(self, when: float) -> int:
        """What happens at a time; how many pieces of work a worker was given for it."""
        self.now = when
        for _ in range(3):
            self.loop.turn(0)
        jobs, self.jobs[:] = list(self.jobs), []
        for job in jobs:
            job(self.worker)
        self.loop.turn(0)
        return len(jobs)


@pytest.fixture
def agent() -> Iterator[Resident]:
    made = Resident()
    yield made
    made.loop.close()


def test_each_at_its_times_as_long_as_it_says_so(agent: Resident) -> None:
    seen: list[tuple[str, float]] = []

    def twice(node: Any, log: Any, view: Any) -> bool:
        seen.append(("twice", agent.now))
        return len(seen) < 2

    def always(node: Any, log: Any, view: Any) -> bool:
        seen.append(("always", agent.now))
        return True

    agent.later((1.0, 2.0, 3.0), twice)
    assert agent.at(10.99) == 0
    assert agent.at(11.0 + STEP) == 1
    agent.later((1.0, 2.0), always)
    for when in (12.0 + STEP, 13.0 + 2 * STEP, 20.0):
        agent.at(when)
    assert seen == [("twice", 11.0 + STEP), ("twice", 12.0 + STEP), ("always", 12.0 + STEP), ("always", 13.0 + 2 * STEP)]
    assert agent.errors == []


def test_what_is_due_together_is_one_piece_of_work_with_one_view(agent: Resident) -> None:
    seen: list[Any] = []

    def look(node: Any, log: Any, view: Any) -> bool:
        seen.append((node is agent.worker.node, log, view.link_at(7)))
        return False

    for number in range(50):
        agent.later((1.0 + number * STEP / 100, 5.0), look)
    assert agent.at(11.0 + STEP) == 1
    assert seen == [(True, "the worker's log", (1, 7))] * 50
    assert agent.at(15.0 + 2 * STEP) == 0  # none of them wanted to be asked again


def test_what_becomes_due_meanwhile_is_another_piece_of_work(agent: Resident) -> None:
    seen: list[Any] = []

    def busy(node: Any, log: Any, view: Any) -> bool:
        seen.append(view.link_at(7))
        if len(seen) == 1:
            agent.later((0.0,), busy)
            agent.now += 1
            agent.loop.turn(0)
            agent.loop.turn(0)
            agent.now += STEP
            agent.loop.turn(0)
        return False

    agent.later((1.0,), busy)
    assert agent.at(11.0 + STEP) == 1 and seen == [(1, 7)]
    assert agent.at(agent.now) == 1 and seen == [(1, 7), (2, 7)]


def test_one_that_comes_earlier_does_not_wait_for_the_others(agent: Resident) -> None:
    seen: list[str] = []
    agent.later((1.0,), lambda *_: seen.append("late") is not None)
    agent.at(10.01)
    agent.later((0.0,), lambda *_: seen.append("soon") is not None)
    turns = agent.loop.turns
    agent.at(10.01 + STEP)
    assert seen == ["soon"]
    agent.at(11.0 + STEP)
    assert seen == ["soon", "late"]
    agent.at(30.0)
    assert agent.loop.turns - turns < 20 and agent.jobs == []  # no timer was left that wakes for nothing


def test_one_that_fails_keeps_no_other_from_its_turn(agent: Resident) -> None:
    seen: list[str] = []

    def fails(*_: Any) -> bool:
        raise RuntimeError("no")

    agent.later((1.0, 2.0), fails)
    agent.later((1.0, 2.0), lambda *_: seen.append("done") is None)
    agent.at(11.0 + STEP)
    agent.at(12.0 + STEP)
    assert seen == ["done", "done"] and [str(error) for error in agent.errors] == ["no"]


class TestParsed:
    def test_the_same_bytes_are_taken_apart_once(self) -> None:
        parsed, data = RecordCache(), to_json(record())
        assert parsed(data) == record() and parsed(bytes(bytearray(data))) is parsed(data)

    def test_other_bytes_are_another_record(self) -> None:
        parsed = RecordCache()
        first, second = parsed(to_json(record(ifindex=7))), parsed(to_json(record(ifindex=8)))
        assert (first.ifindex, second.ifindex) == (7, 8)

    def test_no_more_are_kept_than_it_may(self) -> None:
        parsed = RecordCache(most=2)
        data = [to_json(record(ifindex=number)) for number in (1, 2, 3)]
        first = parsed(data[0])
        parsed(data[1])
        last = parsed(data[2])
        assert parsed(data[2]) is last and parsed(data[0]) is not first and parsed(data[0]) == first

    def test_what_is_no_record_is_none_each_time(self) -> None:
        parsed = RecordCache()
        for _ in range(2):
            with pytest.raises(RecordUnreadable):
                parsed(b"{}")
