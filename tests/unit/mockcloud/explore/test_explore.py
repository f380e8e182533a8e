"""The search for faults: what it draws, how it shrinks, that it finds what is planted, and that it finds nothing where nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mockcloud.explore.drawing import BY_SETTINGS, OPTIONS, WRONG, draw
from mockcloud.explore.exploring import explore
from mockcloud.explore.shrinking import shrunk
from mockcloud.scenarios.file import parsed
from mockcloud.scenarios.running import play
from mockcloud.scenarios.writing import text
from tests.support.mockcloud import Mockcloud
from tests.support.planted import PLANTS, SEEDS, search
from tests.support.sample import FULL, drawn

MOST_STEPS = 12  #: of a planted bug's scenario


# -- drawing


def test_each_seed_has_three_nodes_a_migration_and_a_fault() -> None:
    for seed in range(200):
        scenario = draw(seed)
        kinds = [step.what for step in scenario.steps]
        assert scenario.nodes >= 3 and "migrate" in kinds and set(kinds) & set(WRONG), seed
        assert parsed(text(scenario)) == scenario == draw(seed), seed
    assert draw(1) != draw(2)


def test_all_tasks_and_faults_are_drawn() -> None:
    kinds = {step.what for seed in range(300) for step in draw(seed).steps}
    assert {
        *WRONG,
        "create",
        "start",
        "stop",
        "reboot",
        "crash",
        "delete",
        "migrate",
        "failover",
        "plug",
        "unplug",
        "update",
        "change",
    } <= kinds


def test_all_options_modes_and_profiles_are_drawn() -> None:
    drawn_ones = [draw(seed) for seed in range(600)]
    given = [step.given for each in drawn_ones for step in each.steps]
    assert {name for each in given for name in each.get("options", {})} == {*OPTIONS, "rate_in", "rate_out"}
    assert {nic.get("mode", "bridged") for each in given for nic in each.get("nics", [])} == {"bridged", "routed", "openvswitch"}
    assert {each.profile for each in drawn_ones} == {"plain", "switched"} and any("six" in each.networks for each in drawn_ones)
    assert all(any(f"\n{name} = " in each.settings for each in drawn_ones) for name in BY_SETTINGS)


# -- shrinking


@pytest.mark.parametrize(
    ("number", "needed"),
    [(1, {0}), (2, {1}), (8, {0, 7}), (20, {3, 4, 11}), (33, {32}), (16, set(range(16))), (7, set())],
    ids=str,
)
def test_what_is_needed_is_left(number: int, needed: set[int]) -> None:
    tried = list[tuple[int, ...]]()

    def fails(parts: tuple[int, ...]) -> bool:
        tried.append(parts)
        return needed <= set(parts)

    assert shrunk(range(number), fails) == tuple(sorted(needed))
    assert len(tried) == len(set(tried)), "nothing is tried twice"


def test_none_of_what_is_left_can_be_left_out() -> None:
    """Include a bug for which one of several is enough, and parts that hide each other."""
    for fails in (
        lambda parts: 3 in parts or 9 in parts,
        lambda parts: len(parts) >= 4,
        lambda parts: (2 in parts) != (5 in parts) or {1, 2, 5} <= set(parts),
    ):
        left = shrunk(range(12), fails)
        assert fails(left) and not any(fails(left[:place] + left[place + 1 :]) for place in range(len(left)))


# -- planted bugs


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found_and_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plant, first = PLANTS[name]
    found = search(plant, [first, *range(1, SEEDS + 1)], str(tmp_path))
    assert found is not None, "no seed finds it"
    assert len(found.scenario.steps) <= MOST_STEPS, text(found.scenario)
    assert found.last.violations, "what is left does it too"
    again = parsed(text(found.scenario))
    assert play(again, str(tmp_path / "without"), found.seed, hasty=True).violations == (), "without the bug nothing is violated"
    plant(monkeypatch)
    assert play(again, str(tmp_path / "with"), found.seed, hasty=True).violations == found.last.violations, "the file does it again"


# -- what is there


@pytest.mark.slow
def test_nothing_is_violated(tmp_path: Path) -> None:
    found = [one for _seed, one in explore(range(1, 1 + drawn(12, 60, 3000)), str(tmp_path)) if one is not None]
    assert found == [], "\n".join(f"seed {one.seed}: {one.last.violations or one.result.violations}\n{text(one.scenario)}" for one in found)


# -- the commands


@pytest.fixture
def run(tmp_path: Path) -> Mockcloud:
    return Mockcloud(tmp_path / "cloud")


PLANTED = "claim is freed before the NIC"


def test_the_command_prints_what_it_has_found(run: Mockcloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, first = PLANTS[PLANTED]
    assert run("explore", "--seeds", "1", "--from", str(first)) == f"1 seeds from {first} on, 0 of them with violations\n"
    assert run.json("explore", "--seeds", "1", "--from", str(first))["found"] == []
    plant(monkeypatch)
    run("explore", "--seeds", "1", "--from", str(first), "--save", str(tmp_path / "found"), status=1)
    (file,) = (tmp_path / "found").iterdir()
    said = file.read_text()
    assert said.startswith(f"# --seed {first}: commit, at ") and len(parsed(said).steps) <= MOST_STEPS
    run("run", str(file), "--seed", str(first), status=1)


def test_time_ends_a_search_and_a_seed_is_shown(run: Mockcloud) -> None:
    assert run("explore", "--minutes", "0") == "0 seeds from 1 on, 0 of them with violations\n"
    assert parsed(run("explore", "--draw", "--from", "5")) == draw(5)
    assert "'0': expected a number from 1 to" in run("explore", "--seeds", "0", status=64)


def test_a_scenario_is_run_by_the_command(run: Mockcloud, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('settle = 5\n[[steps]]\nfault = "clock"\nnodes = "mock2"\nfor = 3\n')
    said = run.json("run", str(file), "--seed", "3", "--log", str(tmp_path / "log"), "--keep", str(run.folder))
    assert (said["seed"], said["violations"]) == (3, []) and [each["text"] for each in said["outcomes"]][1:] == ["clock of mock2 is over"]
    assert len((tmp_path / "log").read_text().splitlines()) == said["lines"]
    assert "there is a mock cloud in" in run("run", str(file), "--keep", str(run.folder), status=69)
    assert len(json.loads(run("list", "--json"))["nodes"]) == 3
    file.write_text("nodes = 0\n")
    assert "a.toml:1: nodes = '0': expected a whole number from 1 to 1000" in run("run", str(file), status=64)


def test_each_fault_is_a_command(run: Mockcloud) -> None:
    run("create", "2")
    words: list[tuple[str, ...]] = [
        ("partition", "mock1", "--way", "answers", "--for", "3"),
        ("backup",),
        ("slow", "--seconds", "2", "--for", "3"),
    ]
    for each in words if not FULL else [*words, ("node", "mock2", "--for", "3"), ("agent", "--point", "ask", "--for", "3")]:
        said = run.json("fault", *each, "--settle", "5")
        assert said["violations"] == [] and said["outcomes"][0]["text"].startswith(f"{each[0]} of ")
    assert "NODE='mars'" in run("fault", "node", "mars", status=64)
    assert "expected a number from 0 to 1" in run("fault", "copies", "--share", "2", status=2)
    assert "--for='-1'" in run("fault", "disk", "--for", "-1", status=64)


def test_a_violation_ends_the_command_with_1(run: Mockcloud, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "1")
    said: Callable[[Any], list[str]] = lambda cloud: ["something is wrong"]  # noqa: E731 - one line
    monkeypatch.setattr("mockcloud.scenarios.running.always", said)
    run("fault", "clock", "--for", "1", "--settle", "1", status=1)


def test_a_folder_that_cannot_be_written_is_refused_before_the_search(
    run: Mockcloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused when the first violation was found, and that was lost."""
    monkeypatch.setattr("mockcloud.cli.explore.explore", lambda *_given: pytest.fail("it searches"))
    (tmp_path / "file").touch()
    for folder in ("/dev/null/x", str(tmp_path / "file"), "/proc/self"):
        assert "cannot write into " in run("explore", "--seeds", "1", "--save", folder, status=69)
