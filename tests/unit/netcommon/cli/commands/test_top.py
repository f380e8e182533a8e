"""The command top on simulated nodes: once, as JSON, and on a terminal that the test plays."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from netcommon.cli.commands.top import Job, Looks, Watcher, aside, run
from netcommon.cli.terminal import FALLBACK, KEYS, Terminal, pressed
from netcommon.host.api.facts import Counters
from netcommon.host.api.requests import SetLink
from netcommon.views.live.top import Agent
from netcommon.views.topology.text import Style
from runtime.errors import HostRefused, TryAgain
from tests.support.cli import Cli

CALL = {"door": "kvm-ifup", "mode": "bridged", "path": "warm", "outcomes": {"ok": 3}, "buckets": [3, 0], "sum": 0.02}
HOOKS = {"format": 1, "bounds": [0.01], "calls": [CALL]}
STATUS = {"state": "running", "uptime": 200.0, "turned": 1.0, "alarms": {"inventory": "it failed"}}


def at_once(job: Job) -> Future[Looks]:
    done: Future[Looks] = Future()
    done.set_result(job())
    return done


def answering(question: str) -> Mapping[str, Any]:
    return STATUS if question == "status" else HOOKS


def silent(question: str) -> Mapping[str, Any]:
    raise HostRefused("no agent runs in this network namespace")


def watcher(two: Cli, ask: Callable[[str], Mapping[str, Any]] = answering) -> Watcher:
    return Watcher(two.app(), at_once, ask)


def carry(two: Cli, device: str, counters: Counters) -> None:
    link = two.host.kernel.named(device)
    assert link is not None
    two.host.kernel.counters[link.index] = counters


def test_once(two: Cli) -> None:
    """Two readings, with the interval between them; without an agent it says so, and all else is there."""
    said = two("top", "--once", "--interval", "5").stdout
    assert two.time == 1005.0
    assert ": 2 NICs, 2 up; all good (looked at 5 s ago)\nagent: no agent runs in this network namespace\n" in said
    assert "web1/0  tap0" in said and "web1/1  tap1" in said and "\x1b" not in said


def test_json(two: Cli) -> None:
    said = two.json("top", "--sort", "name")
    assert (said["schema"], said["version"], said["seconds"], said["looked"]) == ("netcommon-top", 1, 2.0, 2.0)
    assert [(each["label"], each["received_bits"]) for each in said["nics"]] == [("web1/0", 0.0), ("web1/1", 0.0)]
    assert said["agent"] == {"running": False, "text": "no agent runs in this network namespace", "alarms": []}
    assert said["conditions"] == {"good": 2}


def test_it_changes_nothing_and_needs_no_root(two: Cli) -> None:
    two.uid, before = 1000, list(two.host.requests)
    two("top", "--once")
    assert two.host.requests == before


def test_rates_between_pictures(two: Cli) -> None:
    seen = watcher(two)
    carry(two, "tap0", Counters(10, 20, 1000, 4000))
    two.time += 2
    shown = seen.picture("traffic")
    assert [(each.label, each.received_bits, each.sent_bits) for each in shown.nics] == [("web1/0", 16000.0, 4000.0), ("web1/1", 0.0, 0.0)]
    assert shown.agent == Agent(True, "running for 3 min", ("inventory: it failed",)) and shown.calls[0].number == 3
    two.time += 2
    assert seen.picture("traffic").nics[0].received_bits == 0.0


def test_drift_is_looked_at_less_often(two: Cli) -> None:
    """Every ten seconds, while the counters are read each time; new NICs come with it."""
    seen = watcher(two)
    seen.picture("name")
    two.time += 1
    assert [each.condition for each in seen.picture("name").nics] == ["good", "good"]
    link = two.host.kernel.named("tap0")
    assert link is not None
    two.host.kernel.set_link(SetLink(link.index, master=0))
    two.time += 1
    assert seen.picture("name").conditions == {"good": 2}
    two.time += 10
    seen.picture("name")
    two.time += 1
    shown = seen.picture("name")
    assert shown.conditions == {"good": 1, "drifted": 1} and [each.drift for each in shown.nics] == [2, 0]
    two.host.remove_link("tap1")
    two("gc")
    for _ in range(2):
        two.time += 10
        seen.picture("name")
    assert [each.label for each in seen.picture("name").nics] == ["web1/0"]


def test_what_does_not_answer_is_said(two: Cli) -> None:
    """The kernel once, the agent always: the last known is shown, and it goes on."""
    seen = watcher(two, silent)
    two.time += 2
    seen.picture("name")
    two.host.busy = True
    two.time += 20
    seen.picture("name")
    shown = seen.picture("name")
    assert len(shown.nics) == 2 and shown.nics[0].received_bits is None and shown.conditions == {"untold": 2}
    assert shown.problems == ("the simulated kernel is busy",)
    two.host.busy = False
    two.time += 20
    seen.picture("name")
    assert seen.picture("name").problems == () and not shown.agent.running


def test_an_agent_of_another_version(two: Cli) -> None:
    seen = watcher(two, lambda question: {"state": "running"})
    two.time += 2
    assert "another version" in seen.picture("name").agent.text


class Played:
    """A terminal: what is pressed at each wait, and what was drawn."""

    def __init__(self, two: Cli, *pressed: list[str], sizes: Sequence[tuple[int, int]] = ((100, 24),)) -> None:
        self._cli, self._pressed, self._sizes = two, list(pressed), list(sizes)
        self.drawn: list[list[str]] = []

    def size(self) -> tuple[int, int]:
        return self._sizes[min(len(self.drawn), len(self._sizes) - 1)]

    def draw(self, lines: Sequence[str]) -> None:
        self.drawn.append(list(lines))

    def keys(self, seconds: float) -> list[str]:
        keys = self._pressed.pop(0)
        self._cli.time += 0 if keys else max(seconds, 0.0)
        return keys


def test_on_a_terminal(two: Cli) -> None:
    played = Played(two, [], ["sort"], ["resized"], ["sort back"], ["quit"], sizes=[(100, 24), (100, 24), (100, 24), (40, 9), (40, 9)])
    run(watcher(two), played, two.app().clock, 2.0, "traffic", Style())
    feet = [lines[-1].split("   ")[0] for lines in played.drawn]
    assert feet == ["1-2 of 2 by traffic", "1-2 of 2 by traffic", "1-2 of 2 by in", "1-2 of 2 by in", "1-2 of 2 by traffic"]
    assert [len(lines) for lines in played.drawn] == [24, 24, 24, 9, 9] and max(map(len, played.drawn[3])) <= 40


def test_pages(two: Cli) -> None:
    played = Played(two, ["on"], ["on"], ["back", "back", "back"], ["end"], ["home"], ["quit"])
    run(watcher(two), played, two.app().clock, 2.0, "name", Style())
    firsts = [lines[-1].split("-")[0] for lines in played.drawn]
    assert firsts == ["1", "2", "2", "1", "2", "1"]


def test_what_runs_aside() -> None:
    """Its error is told to who takes the result."""

    def fails() -> Looks:
        raise TryAgain("busy")

    with pytest.raises(TryAgain):
        aside(fails).result(10)
    assert aside(lambda: Looks([], ["x"], None)).result(10).problems == ["x"]


def test_keys() -> None:
    assert pressed("q") == ["quit"] and pressed("\x1b[As\x1b[6~zz G") == ["back", "sort", "down", "down", "end"]
    assert pressed("\x1b") == [] and set(map(len, KEYS)) <= {1, 3, 4}


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: the person's, and the program's."""
    made = pty.openpty()
    yield made
    for end in made:
        os.close(end)


def test_the_terminal_is_given_back(ends: tuple[int, int]) -> None:
    """After an error too; keys come one by one, and the size is the terminal's."""
    line, its = ends
    before = termios.tcgetattr(line)
    with pytest.raises(KeyError), Terminal(its, its, "utf-8") as terminal:
        assert terminal.size() == FALLBACK
        fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        assert terminal.size() == (90, 30)
        assert not termios.tcgetattr(line)[3] & (termios.ECHO | termios.ICANON | termios.ISIG)
        os.write(line, b"s\x03")
        assert terminal.keys(5) == ["sort", "quit"] and terminal.keys(0) == []
        terminal.draw(["one", "two"])
        raise KeyError
    written = ""
    while not written.endswith("\x1b[?1049l"):
        written += os.read(line, 65536).decode()
    assert written.startswith("\x1b[?1049h") and "one\x1b[K\r\ntwo\x1b[K\x1b[J" in written
    assert termios.tcgetattr(line) == before
