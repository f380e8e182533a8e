"""Running scripts that misbehave in every way: the caller is back in time, and nothing of theirs is left that should not be."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from netcommon.log import recording
from netcommon.process import run as runner
from netcommon.scripts.site import Call, Result, Script, run, run_each
from netcommon.settings.model import Settings
from tests.support.processes import alive, until

NIC = {"INTERFACE": "tap0", "MODE": "bridged", "TAGS": "a b", "ODD": "\udcff"}

Go = Callable[..., Result]


@pytest.fixture
def go(tmp_path: Path) -> Go:
    def started(text: str, seconds: float = 5.0, limit: int = 65536, arguments: bool = True, context: str = "up") -> Result:
        path = tmp_path / "script"
        path.write_text(text.format(here=tmp_path) if "{here}" in text else text)
        path.chmod(0o755)
        call = Call("tap0", context, NIC, "u-1", "", "/run/x.json")
        return run(Script(str(path), arguments), call, Settings(custom_output_limit=limit), seconds)

    return started


def test_a_good_script(go: Go, tmp_path: Path) -> None:
    result = go('#!/bin/sh\necho "$1 $2 $#"; echo err >&2; pwd; cat; env | grep -a ODD; exit 0\n')
    assert result.ok
    assert result.status == 0
    assert result.output == b"tap0 up 2\nerr\n/\nODD=\xff\n"


def test_the_legacy_script_gets_no_arguments(go: Go) -> None:
    assert go("#!/bin/sh\necho $#\n", arguments=False).output == b"0\n"


def test_no_descriptor_but_three_and_a_session_of_its_own(go: Go) -> None:
    held, kept = os.pipe()
    os.set_inheritable(held, True)
    os.set_inheritable(kept, True)
    try:
        result = go("#!/bin/bash\nexec 9<&-; ls /proc/$$/fd; set -- $(</proc/$$/stat); echo $$ $5 $6; readlink /proc/$$/fd/0\n")
    finally:
        os.close(held)
        os.close(kept)
    lines = result.output.decode().split("\n")
    assert lines[:3] == ["0", "1", "2"]
    pid, group, session = lines[-3].split()
    assert pid == group == session
    assert lines[-2] == "/dev/null"


@pytest.mark.parametrize(
    ("text", "status", "number", "error"), [("exit 7", 7, 0, "ended with status 7"), ("kill -9 $$", None, 9, "ended by signal 9")]
)
def test_a_failure_says_how(go: Go, text: str, status: int | None, number: int, error: str) -> None:
    result = go(f"#!/bin/sh\n{text}\n")
    assert (result.status, result.signal, result.ok) == (status, number, False)
    assert error in result.error


def test_what_cannot_be_started(go: Go) -> None:
    result = go("#!/no/such/interpreter\n")
    assert "could not be started: No such file" in result.error
    assert "could not be started: Exec format error" in go("").error


def test_a_script_that_hangs(go: Go) -> None:
    start = time.monotonic()
    result = go("#!/bin/sh\necho before\nsleep 100\n", seconds=2.0)
    assert 2.0 <= time.monotonic() - start < 4
    assert result.timed_out
    assert not result.ok
    assert result.output == b"before\n"
    assert result.signal == signal.SIGTERM


def test_a_script_that_ignores_sigterm(go: Go) -> None:
    start = time.monotonic()
    result = go("#!/bin/bash\ntrap '' TERM\necho $$\nwhile :; do sleep 100; done\n", seconds=2.0)
    assert time.monotonic() - start < 4
    assert result.timed_out
    assert result.signal == signal.SIGKILL
    assert not alive(int(result.output))


def test_a_script_that_cleans_up_at_sigterm(go: Go, tmp_path: Path) -> None:
    result = go("#!/bin/bash\ntrap 'echo cleaned; exit 3' TERM\nsleep 100 &\nwait\n", seconds=2.0)
    assert result.output == b"cleaned\n"
    assert (result.timed_out, result.status, result.ok) == (True, 3, False)


@pytest.mark.parametrize("start", ["exec ", "", "setsid "])
def test_who_cleans_up_is_told_once(go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    told, twice = os.killpg, "told\ntold\n"

    def slowly(group: int, number: int) -> None:
        told(group, number)
        until(lambda: twice in (tmp_path / "said").read_text() if (tmp_path / "said").exists() else False, 0.1)

    monkeypatch.setattr(os, "killpg", slowly)
    go(f"#!/bin/sh\n{start}bash -c 'trap \"echo told >>{{here}}/said\" TERM; while :; do sleep 0.01; done'\n", seconds=1.0)
    assert (tmp_path / "said").read_text() == "told\n"


def test_children_are_ended_with_a_script_that_hangs(go: Go) -> None:
    result = go("#!/bin/bash\nsleep 100 & echo $!\n( sleep 100 & echo $!; wait ) &\nwait\n", seconds=2.0)
    children = [int(word) for word in result.output.split()]
    assert len(children) == 2
    assert until(lambda: not any(alive(pid) for pid in children))


def test_a_child_in_another_session_is_ended_with_a_script_that_hangs(go: Go) -> None:
    result = go("#!/bin/sh\nsetsid sh -c 'echo $$; exec sleep 100'\n", seconds=2.0)
    assert result.timed_out
    assert until(lambda: not alive(int(result.output)))


def test_a_child_in_another_session_may_clean_up(go: Go, tmp_path: Path) -> None:
    go("#!/bin/sh\nsetsid bash -c 'trap \"touch {here}/cleaned; exit\" TERM; sleep 100 & wait'\n", seconds=2.0)
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("start", ["", "setsid "])
def test_what_is_started_to_clean_up_with_is_left_to_do_it(go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    """It bears the mark as well, and would be found on a machine where looking takes its time."""
    listed = os.listdir

    def slowly(path: str) -> list[str]:
        until((tmp_path / "hurt").exists, 0.1)
        return listed(path)

    monkeypatch.setattr(os, "listdir", slowly)
    monkeypatch.setattr(runner, "GRACE", 2.0)  # four processes are started meanwhile, on a machine that may be busy
    trap = "sleep 0.2 || touch {here}/hurt; touch {here}/cleaned; exit"
    go(f"#!/bin/sh\n{start}bash -c 'trap \"{trap}\" TERM; sleep 100 & wait'\n", seconds=1.0)
    assert (tmp_path / "cleaned").exists()
    assert not (tmp_path / "hurt").exists()


def test_a_child_that_holds_the_output_does_not_hold_the_hook(go: Go) -> None:
    start = time.monotonic()
    result = go("#!/bin/sh\nsleep 100 &\necho $!\nexit 0\n")
    assert time.monotonic() - start < 4
    assert result.ok
    assert until(lambda: not alive(int(result.output)))


def test_a_daemon_that_left_the_session_holds_nothing_and_stays(go: Go, tmp_path: Path) -> None:
    start = time.monotonic()
    text = (
        "#!/bin/sh\nsetsid sh -c 'echo $$ >{here}/tmp; mv {here}/tmp {here}/pid; exec sleep 100' &\nwhile ! [ -e {here}/pid ]; do :; done\n"
    )
    result = go(text)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert time.monotonic() - start < 4
        assert result.ok
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_daemon_that_never_stops_writing_does_not_hold_the_hook(go: Go, tmp_path: Path) -> None:
    start = time.monotonic()
    text = (
        "#!/bin/bash\nsetsid bash -c 'echo $$ >{here}/tmp; mv {here}/tmp {here}/pid; exec yes' &\nwhile ! [ -e {here}/pid ]; do :; done\n"
    )
    result = go(text, limit=1000)
    assert time.monotonic() - start < 4
    assert result.ok
    assert len(result.output) <= 1000
    assert until(lambda: not alive(int((tmp_path / "pid").read_text())))  # SIGPIPE: nobody reads any more


def test_a_hundred_megabytes_of_output(go: Go) -> None:
    result = go("#!/bin/sh\nhead -c 104857600 /dev/zero\necho end\n", limit=100, seconds=20)
    assert result.ok
    assert result.output == bytes(100)


def test_output_without_end(go: Go) -> None:
    start = time.monotonic()
    result = go("#!/bin/sh\nexec yes\n", limit=100, seconds=0.4)
    assert time.monotonic() - start < 2.4
    assert result.timed_out
    assert len(result.output) == 100


def test_all_output_of_a_short_script_is_there(go: Go) -> None:
    result = go("#!/bin/sh\nhead -c 60000 /dev/zero\n")
    assert len(result.output) == 60000


def test_a_script_that_closes_its_descriptors(go: Go) -> None:
    start = time.monotonic()
    assert go("#!/bin/sh\nexec <&- >&- 2>&-\nsleep 0.3\nexit 0\n").ok
    assert time.monotonic() - start >= 0.3
    busy = time.process_time()
    assert go("#!/bin/sh\nexec <&- >&- 2>&-\nsleep 100\n", seconds=0.3).timed_out
    assert time.process_time() - busy < 0.15


def test_a_stopped_script(go: Go) -> None:
    result = go("#!/bin/sh\nkill -STOP $$\n", seconds=0.3)
    assert result.timed_out
    assert result.signal == signal.SIGKILL


def test_no_time_left_means_not_started(go: Go, tmp_path: Path) -> None:
    assert go("#!/bin/sh\ntouch {here}/ran\n", seconds=0).timed_out
    assert not (tmp_path / "ran").exists()


def test_no_descriptor_and_no_zombie_is_left(go: Go) -> None:
    go("#!/bin/sh\nexit 0\n")
    before = os.listdir("/proc/self/fd")
    for text, seconds in (("exit 0", 5.0), ("exit 1", 5.0), ("sleep 9", 0.1), ("sleep 9 &", 5.0), ("setsid sleep 9", 0.1)):
        go(f"#!/bin/sh\n{text}\n", seconds=seconds)
    go("#!/no/interpreter\n")
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_an_interrupted_hook_ends_its_script(tmp_path: Path) -> None:
    calls = 0

    def clock() -> float:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt
        return time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        runner.run(["/bin/sh", "-c", f"echo $$ >{tmp_path}/pid; echo x; sleep 100"], {b"PATH": b"/bin:/usr/bin"}, 5, 100, clock)
    assert until(lambda: not alive(int((tmp_path / "pid").read_text())))
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


class TestEach:
    def scripts(self, tmp_path: Path, *texts: str) -> list[Script]:
        made = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}"
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
            made.append(Script(str(path)))
        return made

    def each(self, scripts: list[Script], seconds: float, stop: bool) -> tuple[list[Result], list[str], str]:
        log, lines = recording()
        results = run_each(scripts, Call("tap0", "shutdown", NIC), Settings(), time.monotonic() + seconds, log, stop)
        return results, lines, log.summary()

    def test_up_ends_at_the_first_failure(self, tmp_path: Path) -> None:
        scripts = self.scripts(tmp_path, "echo fine", "echo bad luck; exit 3", "exit 0")
        results, lines, summary = self.each(scripts, 5, stop=True)
        assert [result.status for result in results] == [0, 3]
        assert f"info: {tmp_path}/0: fine" in lines
        assert summary == f"netcommon: error: custom script {tmp_path}/1 ended with status 3: bad luck\n"

    def test_down_goes_on(self, tmp_path: Path) -> None:
        results, _, summary = self.each(self.scripts(tmp_path, "exit 3", "exit 0", "exit 4"), 5, stop=False)
        assert [result.status for result in results] == [3, 0, 4]
        assert summary.count("\n") == 2

    def test_one_that_hangs_does_not_cost_the_others_their_time(self, tmp_path: Path) -> None:
        start = time.monotonic()
        results, _, _ = self.each(self.scripts(tmp_path, "sleep 100", "echo still here"), 1.0, stop=False)
        assert time.monotonic() - start < 2.5
        assert [result.timed_out for result in results] == [True, False]
        assert results[1].output == b"still here\n"

    def test_output_is_logged_a_line_each_and_escaped(self, tmp_path: Path) -> None:
        _, lines, _ = self.each(self.scripts(tmp_path, r"printf 'a\033[31m\r\nb\377\n'; yes | head -n 500"), 5, stop=True)
        assert all(line.isprintable() for line in lines)
        assert len(lines) == 200 + 2
        assert f"info: {tmp_path}/0: 302 more lines" in lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_a_script_is_started(number: int, go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the program runs, and nobody holds its number yet: it is ended as at any later moment."""

    class Told(BaseException):
        pass

    def heed(_number: int, _frame: object) -> None:
        raise Told

    start = subprocess.Popen

    def started(*arguments: Any, **more: Any) -> Any:
        child = start(*arguments, **more)
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        signal.raise_signal(number)
        return child

    monkeypatch.setattr(subprocess, "Popen", started)
    before = signal.signal(number, heed)
    try:
        with pytest.raises(Told):
            go("#!/bin/sh\necho $$ >{here}/pid\nexec sleep 60\n")
        assert signal.getsignal(number) is heed
    finally:
        signal.signal(number, before)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_no_pipe_to_be_had(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals come as before."""

    def full(_flags: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "pipe2", full)
    with suppress(OSError):
        go("#!/bin/sh\n")
    assert signal.getsignal(signal.SIGTERM) is before
