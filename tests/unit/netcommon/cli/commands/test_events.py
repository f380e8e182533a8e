"""The command events, with an agent's socket, without one, and from one to the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from netagent.observe.control import Control
from netagent.observe.event_stream import AGAIN, Follower, OfAgent, OfRecords
from netagent.observe.history import Journal
from netcommon.doors.agent_report import folder
from netcommon.views.live.events import Event, about, line, moment
from netcommon.views.topology.text import ASCII, UNICODE
from runtime.errors import HostRefused, NicInvalid
from runtime.folder import Folder
from runtime.store import Store
from tests.support.cli import UUIDS, Cli, equipped, with_two

NOW = 1.7e9


@pytest.fixture
def journal(two: Cli) -> Iterator[Journal]:
    """That of an agent which answers."""
    made = Journal(lambda: NOW - 60)
    within = Folder.make(folder(two.paths.state, two.host.identity().netns))
    control = Control(within, dict, {"events": made.asked})
    control.start()
    yield made
    control.close()
    within.close()


def test_what_the_agent_has(two: Cli, journal: Journal) -> None:
    journal.begin()
    journal.note("drift", "web1/0", "tap0", UUIDS[0], "it is a port of no bridge")
    journal.note("up", "db1/0", "tap7", "u")
    said = two("events")
    assert [each.split("  ", 1)[1].strip() for each in said.stdout.splitlines()] == [
        "agent started",
        "drift         web1/0 on tap0: it is a port of no bridge",
        "up            db1/0 on tap7",
    ]
    assert said.stderr == ""
    for name in ("web1", "tap0", "web1/0", UUIDS[0]):
        assert len(two("events", name).stdout.splitlines()) == 1
    assert two("events", "--since", "30s").stdout == "" and len(two("events", "--since", "2m").stdout.splitlines()) == 3


def test_json_lines(two: Cli, journal: Journal) -> None:
    journal.note("up", "web1/0", "tap0", "u", "x\ny")
    journal.note("down", "web1/0", "tap0", "u")
    found = [json.loads(each) for each in two("events", "--json").stdout.splitlines()]
    assert [(each["schema"], each["version"], each["kind"], each["when"]) for each in found] == [
        ("netcommon-event", 1, "up", NOW - 60),
        ("netcommon-event", 1, "down", NOW - 60),
    ]
    assert list(found[0]) == ["schema", "version", *Event._fields]


def test_without_an_agent_the_records_tell(two: Cli) -> None:
    said = two("events")
    assert [each.split("  ", 1)[1] for each in said.stdout.splitlines()] == [
        "up            web1/0 on tap0: by its record",
        "up            web1/1 on tap1: by its record",
    ]
    assert "no agent runs in this network namespace: only ups and downs are seen" in said.stderr


def test_an_agent_that_tells_no_events(two: Cli) -> None:
    within = Folder.make(folder(two.paths.state, two.host.identity().netns))
    control = Control(within, dict)
    control.start()
    try:
        assert "no such question" in two("events").stderr
    finally:
        control.close()
        within.close()


def test_ctrl_c_is_a_good_end(two: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    journal = Journal(lambda: NOW)
    within = Folder.make(folder(two.paths.state, two.host.identity().netns))
    control = Control(within, dict, {"events": journal.asked})
    control.start()
    monkeypatch.setattr(two, "sleep", interrupted)
    try:
        assert two("events", "--follow").stdout == ""
    finally:
        control.close()
        within.close()


# -- following


class Asked:
    """An agent's socket, or none."""

    def __init__(self) -> None:
        self.journal: Journal | None = Journal(lambda: NOW)

    def __call__(self, state: str, netns: int, question: str, seconds: float) -> dict[str, Any]:
        if self.journal is None:
            raise HostRefused("no agent runs")
        return dict(self.journal.asked(question.partition(" ")[2]))


Labels = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def follower(two: Cli, asked: Asked) -> Iterator[tuple[Labels, list[str]]]:
    said: list[str] = []
    identity = two.host.identity()
    store = Store(two.paths, identity.netns, identity.boot, readonly=True)
    made = Follower(OfAgent("", 1, asked), lambda: OfRecords(store, lambda: NOW), said.append, lambda: two.time)
    made.past()
    yield lambda: [(each["kind"], each["label"]) for each in made.read()], said
    made.close()
    store.close()


def test_from_the_agent_to_the_records_and_back(two: Cli, asked: Asked, follower: tuple[Labels, list[str]]) -> None:
    read, said = follower
    assert asked.journal is not None
    asked.journal.note("up", "a/0")
    assert read() == [("up", "a/0")] and read() == []
    asked.journal = None
    assert read() == [] and "only ups and downs are seen" in said[-1]
    two.host.remove_link("tap1")
    two("gc")
    assert read() == [("down", "web1/1")]
    two.time += AGAIN
    asked.journal = Journal(lambda: NOW + 9)
    asked.journal.note("drift", "b/0")
    assert read() == [("drift", "b/0")] and "an agent runs" in said[-1]


def test_another_agent_counts_from_the_beginning(asked: Asked, follower: tuple[Labels, list[str]]) -> None:
    read, _said = follower
    assert asked.journal is not None
    for number in range(5):
        asked.journal.note("up", f"{number}/0")
    assert len(read()) == 5
    asked.journal = Journal(lambda: NOW + 5)
    for number in range(7):
        asked.journal.note("down", f"{number}/0")
    assert [label for _kind, label in read()] == [f"{number}/0" for number in range(7)]


def test_who_is_too_slow_is_told(asked: Asked, follower: tuple[Labels, list[str]]) -> None:
    read, _said = follower
    asked.journal = Journal(lambda: NOW, 10)
    asked.journal.note("up", "a/0")
    assert read() == [("up", "a/0")]
    for number in range(50):
        asked.journal.note("up", f"{number}/0")
    found = read()
    assert found[0] == ("events lost", "") and len(found) == 11


def test_an_answer_that_makes_no_sense(two: Cli) -> None:
    rest = {"format": 1, "begun": 1, "missed": 0, "last": 0}
    for answer in ({}, {**rest, "events": [], "format": 2}, {**rest, "events": [1]}, {**rest, "events": [{}]}):
        with pytest.raises(HostRefused, match="another version"):
            OfAgent("", 1, lambda *_, told=answer: told).read()


def test_records_whose_folder_comes_later(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    identity = cli.host.identity()
    with Store(cli.paths, identity.netns, identity.boot, readonly=True) as store:
        records = OfRecords(store, lambda: NOW)
        assert records.read() == []
        equipped_cli = equipped(tmp_path)
        with_two(equipped_cli)
        assert sorted(each["label"] for each in records.read()) == ["web1/0", "web1/1"]
        records.close()


# -- lines


def test_a_line() -> None:
    one = Event(1, NOW, "device gone", "web1/0", "tap0", "u", "a\nb\x1b[31m")
    assert line(one, UTC, ASCII) == "2023-11-14 22:13:20 +0000  device gone   web1/0 on tap0: a\\nb\\x1b[31m"
    painted = line(one, UTC, UNICODE._replace(colour=True))
    assert "\x1b[1mdevice gone\x1b[0m" in painted


def test_about() -> None:
    one = Event(1, NOW, "up", "web1/0", "tap0", "u", "")
    assert about(one, ()) and about(one, ("x", "tap0")) and not about(one, ("web10", "tap"))
    assert not about(Event(1, NOW, "alarm", "", "", "", ""), ("",))


def test_moments() -> None:
    assert [moment(text, 1000.0) for text in ("90s", "10m", "2h", "1d")] == [910.0, 400.0, -6200.0, -85400.0]
    assert moment("2026-11-22 04:41:37", 0.0) == datetime(2026, 11, 22, 4, 41, 37).astimezone().timestamp()
    for text in ("", "yesterday", "10", "-1h", "1w", "2026-13-01", "9" * 12 + "s"):
        with pytest.raises(NicInvalid, match="--since"):
            moment(text, 1000.0)
