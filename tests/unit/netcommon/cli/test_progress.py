"""Say how far long work is: on a terminal, with --progress, and else not at all."""

from __future__ import annotations

import io
import sys

import pytest

from netcommon.cli import progress
from netcommon.cli.progress import each, steps
from tests.support.cli import Cli
from tests.support.sources import imports, sources


class Stream(io.StringIO):
    """Standard error, a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def stderr(monkeypatch: pytest.MonkeyPatch, terminal: bool, kind: str = "xterm") -> Stream:
    """Give the process such a standard error."""
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", kind)
    return stream


def test_a_terminal_gets_a_bar_that_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stderr(monkeypatch, True)
    each("abcd", lambda item: None, "check")
    shown = stream.getvalue()
    assert [f"{done}/4" in shown for done in range(5)] == [True] * 5 and "check  [" in shown
    assert shown.endswith("\n\x1b[A\x1b[K")


@pytest.mark.parametrize(
    ("terminal", "kind", "wanted", "said"),
    [
        (True, "dumb", False, []),
        (True, "dumb", True, [1, 2, 3, 4]),
        (False, "xterm", True, [1, 2, 3, 4]),
        (False, "xterm", False, []),
    ],
)
def test_elsewhere_lines_if_wanted(monkeypatch: pytest.MonkeyPatch, terminal: bool, kind: str, wanted: bool, said: list[int]) -> None:
    stream, seconds = stderr(monkeypatch, terminal, kind), iter(range(0, 100, 3))
    monkeypatch.setattr(progress, "monotonic", lambda: next(seconds))
    each("abcd", lambda item: None, "check", wanted)
    assert stream.getvalue() == "".join(f"check: {number} of 4\n" for number in said)


def test_it_is_not_said_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = stderr(monkeypatch, False), [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    each(range(1000), lambda item: now.__setitem__(0, item / 100), "up", wanted=True)
    assert len(stream.getvalue().splitlines()) == 5


@pytest.mark.parametrize("terminal", [True, False])
def test_what_others_wrote_cannot_write_to_the_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = stderr(monkeypatch, terminal)
    with steps("gc", wanted=True) as step:
        step("web\x1b[2J" + "x" * 500)
    assert "\x1b[2J" not in stream.getvalue() and stream.getvalue().count("x") == 100 - len("web\\x1b[2J") + 1


def test_nobody_looks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of the pipe has gone: everything is done all the same."""

    def gone(_text: str) -> int:
        raise BrokenPipeError

    done: list[int] = []
    monkeypatch.setattr(stderr(monkeypatch, False), "write", gone)
    each([1, 2], done.append, "gc", wanted=True)
    assert done == [1, 2]


def test_one_item_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    each([1], done.append, "up", wanted=True)
    assert done == [1] and capsys.readouterr().err == ""
    each([1, 2], done.append, "up", wanted=True)
    assert done == [1, 1, 2] and capsys.readouterr().err == "up: 1 of 2\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("check", "--all"), "check: 1 of 2"),
        (("up", "--all"), "up: 1 of 2"),
        (("down", "--all", "--force"), "down: 1 of 2"),
        (("repair", "--all"), "check: 1 of 2"),
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
