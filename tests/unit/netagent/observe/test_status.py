"""The agent's status: asked over its socket by root alone, as one document, and rendered for people."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from netagent.observe import control
from netagent.observe.control import Control, ask
from netagent.observe.status import document, render
from netcommon.doors.agent_report import folder
from runtime.errors import HostRefused, TryAgain
from runtime.folder import Folder
from tests.support.bootstrap import PYTHON
from tests.support.cli import Cli, equipped
from tests.support.standing import AGENT, NETNS, standing


@pytest.fixture
def netns() -> int:
    """Whose agent it is; no namespace is asked."""
    return NETNS


Start = Callable[[Callable[[], Mapping[str, object]]], Control]


@pytest.fixture
def start(within: Folder) -> Iterator[Start]:
    made: list[Control] = []

    def started(status: Callable[[], Mapping[str, object]]) -> Control:
        made.append(Control(within, status))
        made[-1].start()
        return made[-1]

    yield started
    for one in made:
        one.close()
    assert within.names() == []


def test_the_document() -> None:
    said = document(standing(), 1100.0, {"inventory": "it failed"}, AGENT)
    assert json.loads(json.dumps(said)) == said
    assert (said["format"], said["pid"], said["netns"], said["state"]) == (1, 77, NETNS, "running")
    assert (said["started"], said["uptime"], said["turned"]) == (1.7e9, 100.0, 0.5)
    assert said["alarms"] == {"inventory": "it failed"}
    assert said["agent"] == AGENT


def test_for_people() -> None:
    said = document(standing(), 1100.0, {"inventory": "it failed\x1b[2J"}, AGENT)
    assert render(said | {"version": "0.1"}) == (
        "agent 0.1, process 77: running for 1 min 40 s\n"
        "  settings: in force\n"
        "  loop: turned 0.5 s ago\n"
        "  nics: 4990 up, 10 closing\n"
        "  resync: took 0.4 s\n"
        "  waiting: 0\n"
        "  sources: kernel, ovs\n"
        "  lag: 0.25\n"
        "  none: none\n"
        "ALARM inventory: it failed\\x1b[2J"
    )
    assert render(document(standing(), 1100.0, {}, {})).endswith("\nno alarms")
    assert render({}) == "agent ?, process ?: ? for ?\n  settings: ?\n  loop: turned ? ago"
    facts = {"connected": True, "late": False, "nobody": None, "each": [True, None], "of": {"them": False}, "maybe": "not needed"}
    said = render(document(standing(), 1100.0, {}, facts))
    assert "  connected: yes\n  late: no\n  nobody: none\n  each: yes, none\n  of: no them\n  maybe: not needed\n" in said


@pytest.mark.parametrize(("seconds", "shown"), [(0.04, "0.0 s"), (310, "5 min 10 s"), (7260, "2 h 1 min"), (273600, "3 d 4 h")])
def test_times(seconds: float, shown: str) -> None:
    assert f"running for {shown}\n" in render(document(standing(), 1000 + seconds, {}, {}))


def test_who_asks_is_answered(state: str, start: Start) -> None:
    start(lambda: {"a": 1})
    assert ask(state, NETNS) == {"a": 1}
    assert ask(state, NETNS) == {"a": 1}


def test_another_question_is_an_error(state: str, start: Start) -> None:
    start(lambda: {"a": 1})
    with pytest.raises(HostRefused, match="no such question"):
        ask(state, NETNS, "stop")


def test_a_status_that_fails_is_said_and_the_next_one_is_answered(state: str, start: Start) -> None:
    answers: list[Mapping[str, object]] = [{"b": 2}]

    def status() -> Mapping[str, object]:
        if answers:
            return answers.pop()
        raise KeyError("x")

    start(status)
    assert ask(state, NETNS) == {"b": 2}
    with pytest.raises(HostRefused, match="KeyError"):
        ask(state, NETNS)
    answers.append({"c": 3})
    assert ask(state, NETNS) == {"c": 3}


def test_no_agent(state: str) -> None:
    with pytest.raises(HostRefused, match="no agent runs"):
        ask(state, NETNS)


def test_one_that_was_killed_left_its_socket(state: str, within: Folder, start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(f"{within.path}/{control.SOCKET}")
    with pytest.raises(HostRefused, match="no agent runs"):
        ask(state, NETNS)
    start(lambda: {"a": 1})
    assert ask(state, NETNS) == {"a": 1}


def test_an_agent_that_does_not_answer(state: str, within: Folder) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stuck:
        stuck.bind(f"{within.path}/{control.SOCKET}")
        stuck.listen(1)
        with pytest.raises(TryAgain, match="does not answer"):
            ask(state, NETNS, seconds=0.1)
        with contextlib.ExitStack() as waiting:
            with contextlib.suppress(BlockingIOError):
                while True:  # until there is no room for one more who waits
                    client = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                    client.connect(f"{within.path}/{control.SOCKET}")
            with pytest.raises(TryAgain, match="does not answer"):
                ask(state, NETNS, seconds=0.1)
    within.remove(control.SOCKET)


@pytest.mark.parametrize("data", [b"", b"no json\n", b"[1]\n", b'{"error": "out of\\nsorts"}\n'])
def test_what_is_no_answer(state: str, within: Folder, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as odd:
        odd.bind(f"{within.path}/{control.SOCKET}")
        odd.listen(1)

        def answer() -> None:
            client, _address = odd.accept()
            client.recv(100)
            client.sendall(data)
            client.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HostRefused) as caught:
            ask(state, NETNS)
        thread.join()
    assert str(caught.value).isprintable()
    within.remove(control.SOCKET)


def test_who_asks_nothing_keeps_nobody_waiting_for_long(state: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.1)
    start(lambda: {"a": 1})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(f"{folder(state, NETNS)}/{control.SOCKET}")
        assert ask(state, NETNS, seconds=10.0) == {"a": 1}


def test_only_root_may_ask(state: str, start: Start) -> None:
    start(lambda: {"a": 1})
    path = f"{folder(state, NETNS)}/{control.SOCKET}"
    assert os.stat(path).st_mode & 0o777 == 0o600
    os.chmod(state, 0o755)
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.sendall(b'status'); print(s.recv(100))"
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-IS", "-c", code]
    assert subprocess.run(other, capture_output=True, check=False).returncode == 1
    os.chmod(path, 0o666)
    ran = subprocess.run(other, capture_output=True, check=False)
    assert b"a" not in ran.stdout and (b"b''" in ran.stdout or b"ConnectionReset" in ran.stderr or b"BrokenPipe" in ran.stderr)


class TestCommand:
    """netcommon agent."""

    @pytest.fixture
    def cli(self, state: str) -> Cli:
        return equipped(Path(state))

    def serve(self, cli: Cli, alarms: Mapping[str, str]) -> tuple[Folder, Control]:
        within = Folder.make(folder(cli.paths.state, cli.host.identity().netns))
        made = Control(within, lambda: document(standing(), 1100.0, alarms, AGENT))
        made.start()
        return within, made

    def test_without_an_agent(self, cli: Cli) -> None:
        assert cli("agent", "status", status=69).stderr.startswith("netcommon: no agent runs in this network namespace\n")
        assert cli.json("agent", "status", status=69)["status"] == 69

    def test_with_one(self, cli: Cli) -> None:
        within, made = self.serve(cli, {})
        assert "nics: 4990 up, 10 closing\n" in cli("agent", "status").stdout
        assert cli.json("agent", "status")["agent"]["nics"] == {"up": 4990, "closing": 10}
        made.close()
        within.close()

    def test_an_alarm_shows_in_the_exit_status(self, cli: Cli) -> None:
        within, made = self.serve(cli, {"inventory": "it failed"})
        assert cli("agent", "status", status=1).stdout.endswith("\nALARM inventory: it failed\n")
        assert cli.json("agent", "status", status=1)["alarms"] == {"inventory": "it failed"}
        made.close()
        within.close()

    def test_only_root_runs_it(self, cli: Cli) -> None:
        cli.uid = 1000
        assert "only root" in cli("agent", "run", status=69).stderr
