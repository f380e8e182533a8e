"""How far long work is: on a terminal, with --progress, and else not at all."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from netcommon.cli.progress import Progress, each, shown
from tests.support.cli import Cli, equipped, with_two
from tests.support.sources import imports, sources

LINES = ("check: 0 of 4", "check: 1 of 4, about 9 s left", "check: 2 of 4, about 6 s left", "check: 3 of 4, about 3 s left")


class Stream(io.StringIO):
    """Standard error, a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the terminal, whichever the tests run on."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("terminal", "kind", "wanted", "said"),
    [
        (True, "xterm", False, "".join(f"\r\x1b[K{line}" for line in (*LINES, ""))),
        (True, "dumb", False, ""),
        (True, "dumb", True, "".join(f"{line}\n" for line in LINES)),
        (False, "xterm", True, "".join(f"{line}\n" for line in LINES)),
        (False, "xterm", False, ""),
    ],
)
def test_what_is_said(monkeypatch: pytest.MonkeyPatch, terminal: bool, kind: str, wanted: bool, said: str) -> None:
    monkeypatch.setenv("TERM", kind)
    stream, time = Stream(terminal), Time()
    with Progress("check", 4, wanted, stream, time) as progress:
        for _item in progress.each("abcd"):
            time.now += 3
    assert stream.getvalue() == said


def test_it_is_not_said_at_every_step() -> None:
    stream, time = Stream(False), Time()
    with Progress("up", 1000, True, stream, time) as progress:
        for _item in progress.each(range(1000)):
            time.now += 0.01
    assert len(stream.getvalue().splitlines()) == 5


def test_what_others_wrote_cannot_write_to_the_terminal() -> None:
    stream, time = Stream(True), Time()
    with Progress("gc", stream=stream, now=time) as progress:
        progress.say("web\x1b[2J" + "x" * 500)
    first = stream.getvalue().split("\r\x1b[K")[1]
    assert "\x1b" not in first and len(first) == 100


def test_nobody_looks_any_more() -> None:
    stream = Stream(True)
    stream.close()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    done: list[int] = []
    with Progress("gc", 2, stream=stream) as progress:
        done += progress.each([1, 2])
    assert done == [1, 2]


def test_one_item_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    each([1], done.append, "up", wanted=True)
    assert done == [1] and capsys.readouterr().err == ""
    each([1, 2], done.append, "up", wanted=True)
    assert done == [1, 1, 2] and capsys.readouterr().err == "up: 0 of 2\n"


def test_things_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(shown([("for ganeti", 1)], "install", wanted=True)) == [1]
    assert capsys.readouterr().err == "install: for ganeti\n"


@pytest.fixture
def two(tmp_path: Path) -> Cli:
    return with_two(equipped(tmp_path))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("check", "--all"), "check: 0 of 2"),
        (("up", "--all"), "up: 0 of 2"),
        (("down", "--all", "--force"), "down: 0 of 2"),
        (("repair", "--all"), "check: 0 of 2"),
        (("gc",), "gc: reading the host"),
        (("adopt", "--all"), ""),
        (("upgrade",), ""),
        (("install", "--qemu"), "install: for qemu"),
    ],
)
def test_every_long_command_has_it(two: Cli, command: tuple[str, ...], said: str) -> None:
    """And says nothing where stderr is no terminal, unless it is asked to; what stands on stdout is the same."""
    assert said in two(*command, "--progress", status=None).stderr
    assert " of 2" not in two(*command, "--json", status=None).stderr


def test_no_hook_loads_it() -> None:
    others = [one for one in sources("runtime", "netcommon", "netagent", "hooks") if not one.module.startswith("netcommon.cli")]
    assert [one.module for one in others if any(item.module.startswith("netcommon.cli") for item in imports(one))] == []
