"""The lane that runs the tests of the hooks with an agent: what is in it, who is left out and why, and what it says at its end."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import conftest
from tests.support import bootstrap, lanes, warm
from tests.support.bootstrap import ROOT
from tests.support.sources import nodes, sources

MARK = "no_agent"


def uses() -> Iterator[tuple[str, ast.Call | None]]:
    """Where in the tests somebody writes ``pytest.mark.no_agent``, and its call; None where it is not called."""
    for source in sources("tests"):
        calls = {id(node.func): node for node in nodes(source) if isinstance(node, ast.Call)}
        for node in nodes(source):
            if isinstance(node, ast.Attribute) and node.attr == MARK:
                yield f"{source.place}:{node.lineno}", calls.get(id(node))


def test_every_use_has_a_reason() -> None:
    found = list(uses())
    assert len(found) > 20
    for place, call in found:
        assert call is not None and len(call.args) == 1 and not call.keywords, place
        (given,) = call.args
        assert isinstance(given, ast.Constant) and isinstance(given.value, str) and len(given.value.split()) > 2, place


@pytest.mark.parametrize(("given", "named"), [((), {}), ((" ",), {}), ((1,), {}), (("it is", "so"), {}), ((), {"why": "it is so"})])
def test_no_reason_is_refused(given: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(pytest.UsageError, match="one reason"):
        warm.reason(getattr(pytest.mark, MARK).with_args(*given, **named).mark)


class Item:
    """A test, as pytest has collected it."""

    def __init__(self, place: str, *marks: pytest.Mark) -> None:
        self.path, self.marks = ROOT / place, list(marks)

    def add_marker(self, marker: str | pytest.MarkDecorator) -> None:
        self.marks.append((getattr(pytest.mark, marker) if isinstance(marker, str) else marker).mark)

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]


def collected(place: str, *marks: pytest.Mark) -> list[str]:
    """The reasons that a test of that file has not to have an agent."""
    item = Item(place, *marks)
    conftest.mark([item])  # type: ignore[list-item] # it has what is asked of it
    return [warm.reason(mark) for mark in item.iter_markers(MARK)]


def test_of_whole_folders_it_is_said_in_one_place() -> None:
    for folder in conftest.OF_AGENTS:
        assert list((ROOT / "tests" / folder).glob("test_*.py"))
        assert collected(f"tests/{folder}/test_it.py") == ["starts agents of its own"]
    assert collected("tests/kernel/test_it.py") == collected("tests/fault/test_it.py") == []


def test_without_a_reason_nothing_is_run() -> None:
    """In any lane."""
    with pytest.raises(pytest.UsageError):
        collected("tests/kernel/test_it.py", getattr(pytest.mark, MARK).mark)


class Ran:
    """What the lanes would have run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options, self.paths = lanes.Options(False, ()), list[str]()
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(lanes, "pytest", self._pytest)
        monkeypatch.delenv("NETCOMMON_TESTS_WARM", raising=False)

    def _pytest(self, options: lanes.Options, name: str, paths: list[str], marks: str, *_rest: object) -> lanes.Result:
        assert "not slow" in marks and "not vm" in marks
        self.options, self.paths = options, [*self.paths, *paths]  # several at once, each with its share
        return lanes.Result(1, 0)


def files(paths: list[str]) -> list[Path]:
    """The files of tests that these paths mean, each as often as it is meant."""
    found = [each for path in paths for each in ((ROOT / path).rglob("test_*.py") if (ROOT / path).is_dir() else [ROOT / path])]
    return sorted(found)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    return Ran(monkeypatch)


@pytest.mark.parametrize("full", [False, True])
def test_by_name_all_that_kernel_and_fault_have(ran: Ran, full: bool) -> None:
    """With agents, and sampled."""
    assert lanes.LANES["warm"](lanes.Options(full, (), named=True)) == (1, 0)
    warmed, ran.paths = ran.paths, []
    assert (ran.options.environment["NETCOMMON_TESTS_WARM"], ran.options.environment["NETCOMMON_TESTS_FULL"]) == ("1", "0")
    assert {"tests/kernel", "tests/contract", "tests/fault"} <= set(warmed)
    for lane in ("kernel", "fault"):
        lanes.LANES[lane](lanes.Options(False, ()))
        assert "NETCOMMON_TESTS_WARM" not in ran.options.environment
    assert files(warmed) == files(ran.paths)


@pytest.mark.parametrize("full", [False, True])
def test_else_a_part_of_them(ran: Ran, full: bool) -> None:
    lanes.LANES["warm"](lanes.Options(full, ()))
    assert ran.paths == list(lanes.WARM)
    assert all((ROOT / path.partition("::")[0]).is_file() for path in ran.paths)
    assert {path.split("/")[1] for path in ran.paths} == {"kernel", "fault"}
    assert (ran.options.environment["NETCOMMON_TESTS_WARM"], ran.options.environment["NETCOMMON_TESTS_FULL"]) == ("1", "0")


@pytest.mark.parametrize(
    ("arguments", "named"), [([], False), (["--full"], False), (["--lane", "warm"], True), (["--lane", "warm", "--unnamed"], False)]
)
def test_named_is_what_was_named(monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: bool) -> None:
    seen: list[lanes.Options] = []

    def one(options: lanes.Options) -> lanes.Result:
        seen.append(options)
        return lanes.Result(1, 0)

    monkeypatch.setattr(lanes, "LANES", {"warm": one})
    monkeypatch.setattr(bootstrap, "setup", lambda purposes: None)
    monkeypatch.setattr(lanes, "footprint", dict)
    assert lanes.main(arguments) == 0
    assert [options.named for options in seen] == [named]


def test_what_it_says_at_its_end() -> None:
    tally = warm.Tally()
    assert tally.lines() == [
        "0 tests had an agent on their node; 0 of them ran hooks",
        "0 calls of hooks were handed over: 0 served, 0 handed back",
        "0 tests had a node without one",
    ]
    tally.agents = 3
    tally.add(5, Counter({"scripts": 2, "settings": 1}))
    tally.add(0, Counter(scripts=1))
    tally.add(0, Counter())
    tally.untold = 1
    tally.without.update(["kills the hook", "starts agents of its own", "starts agents of its own"])
    assert tally.lines() == [
        "3 tests had an agent on their node; 2 of them ran hooks",
        "9 calls of hooks were handed over: 5 served, 4 handed back (3 scripts, 1 settings)",
        "of 1 tests they are not counted: they took the agent's socket away",
        "3 tests had a node without one:",
        "     2  starts agents of its own",
        "     1  kills the hook",
    ]


@pytest.mark.parametrize(("told", "counted"), [(0, {}), ("1 busy", {"busy": 1}), ("1 busy, 20 scripts", {"busy": 1, "scripts": 20})])
def test_what_the_status_says_is_read(told: object, counted: dict[str, int]) -> None:
    assert warm._counted(told) == Counter(counted)
