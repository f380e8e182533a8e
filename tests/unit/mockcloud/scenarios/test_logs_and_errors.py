"""The log of a run is its seed's, wherever and however it is written; an error that nobody foresaw is found, and ends no search."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from mockcloud.explore.exploring import explore
from mockcloud.scenarios.file import Scenario, Step
from mockcloud.scenarios.log import Log
from mockcloud.scenarios.running import Result, play
from mockcloud.scenarios.writing import text
from netregistry.service.registry import Registry
from tests.support.mockcloud import Mockcloud

PAIR = [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}]
WEB1 = Step("create", given={"name": "web1", "node": "mock1", "nics": PAIR, "start": True})
WEB2 = Step("create", at=6.0, given={"name": "web2", "node": "mock2", "nics": PAIR, "start": True})
STOP = Step("stop", at=8.0, given={"name": "web1"})


def scenario(*steps: Step) -> Scenario:
    return Scenario(2, settle=10.0, networks={"blue": {"subnet": "192.0.2.0/24"}}, steps=(WEB1, *steps))


DISK = scenario(Step("disk", at=5.0, lasts=10.0), WEB2, STOP)


@pytest.mark.slow
def test_a_full_disk_and_a_file_for_the_log_change_nothing(tmp_path: Path) -> None:
    """Check that what nodes say of a disk that is full names files of the cloud's folder."""
    found = [play(DISK, str(tmp_path / "a" / "cloud"), 7)]
    for folder in ("b", "another", "it's", "x" * 30, "x" * 60, "x" * 100, "x" * 150):  # where texts are cut is another place in each
        with open(tmp_path / f"{folder}.log", "w", encoding="utf-8") as file:
            found.append(play(DISK, str(tmp_path / folder / "cloud"), 7, file))
        data = (tmp_path / f"{folder}.log").read_bytes()
        assert hashlib.sha256(data).hexdigest() == found[-1].sha256 and data.count(b"\n") >= found[-1].lines
        assert b"cannot write 'CLOUD/...': File too large" in data and str(tmp_path).encode() not in data and b"characters)" not in data
    assert len({(each.sha256, each.lines, each.actions, each.seconds) for each in found}) == 1


def test_a_path_of_another_folder_stays_as_it_is(tmp_path: Path) -> None:
    lines = [
        "'/var/tmp/yours/a'",
        "'/var/tmp/other'... (130 characters)",
        r"of /var/tmp/mine/a: it's '/var/tmp/mine/a\'s'... (9 characters) b",
    ]
    with open(tmp_path / "log", "w", encoding="utf-8") as file:
        log = Log(file, "/var/tmp/mine")
        for line in lines:
            log.add(line)
        log.flush()
    assert (tmp_path / "log").read_text().splitlines() == [*lines[:2], "of CLOUD/a: it's 'CLOUD/...' b"]


def test_a_log_that_cannot_be_written_ends_the_command_with_its_status(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text(scenario()))
    assert "cannot write '/dev/full': No space left" in Mockcloud(tmp_path)(
        "run", str(tmp_path / "a.toml"), "--log", "/dev/full", status=74
    )


def errors(result: Result) -> list[str]:
    return [each.text for each in result.violations if each.when == "error"]


@pytest.mark.parametrize("what", ["answer", "tick", "heartbeat"])
def test_an_error_of_the_registry_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Its service says it in its log, answers what it can, and goes on: so does the one that runs here."""
    work, count = getattr(Registry, what), [0]

    def broken(self: Registry, *given: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == 8 or (what == "answer" and given[0].action == "report" and count[0] % 2):
            raise KeyError("planted")
        return work(self, *given, **named)

    monkeypatch.setattr(Registry, what, broken)
    asks = Step("older", at=2.0, given={"lacks": "watch"}, lasts=300.0)  # such a node says that it is alive
    found = play(scenario(asks, STOP), str(tmp_path / "cloud"), 1)
    assert count[0] > 8 and any("KeyError: 'planted' (test_logs_and_errors.py:" in each for each in errors(found)), found
    assert "stop web1" in "".join(each.text for each in found.outcomes)


def test_an_error_of_the_mock_clouds_own_is_found_and_the_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_cloud: object) -> list[str]:
        raise ValueError("planted")

    monkeypatch.setattr("mockcloud.scenarios.running.unquiet", broken)
    found = list(explore([3, 4], str(tmp_path)))
    assert [seed for seed, _one in found] == [3, 4]
    for _seed, one in found:
        assert one is not None and one.scenario.steps == ()
        assert "the run has ended: ValueError: planted (test_logs_and_errors.py:" in one.last.violations[0].text


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("netcommon.features.announce.Announce.perform", "warning: .*announce .*: KeyError: 'planted'"),
        ("netcommon.operations.rule.PolicyRule.revert", "error: .*could not be undone: .*: KeyError: 'planted'"),
        ("netcommon.lifecycle.inventory.look", "error: alarm inventory: .*: KeyError: 'planted'"),
    ],
)
def test_an_error_that_the_product_catches_itself_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, says: str) -> None:
    """Its lines say the error, and no place."""

    def broken(*_given: Any, **_named: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(place, broken)
    found = errors(play(scenario(STOP)._replace(settings="[agent]\nreap_interval = 3\nstart_delay = 2\n"), str(tmp_path / "cloud"), 1))
    assert any(re.search(says, text) for text in found), found
