"""The tools of tests/run: what they count, what they remember, what they leave on the machine."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import unsampled
from tests.support import bootstrap, junit, lanes, progress, sample, strace, vm

XML = """<?xml version="1.0"?><testsuites><testsuite tests="7" failures="1" errors="1" skipped="1"/><testsuite tests="2"/></testsuites>"""


def test_junit_counts(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(XML)
    assert junit.read(tmp_path / "a.xml") == (6, 3)
    assert junit.read(tmp_path / "none.xml") == (0, 0)


def test_the_files_that_take_the_longest(tmp_path: Path) -> None:
    cases = [("tests.unit.test_a", 1.5), ("tests.unit.test_b.TestClass", 4), ("tests.unit.test_a", 1), ("tests.unit.test_b", 1)]
    lines = "".join(f'<testcase classname="{name}" time="{spent}"/>' for name, spent in cases)
    (tmp_path / "a.xml").write_text(f"<testsuites><testsuite>{lines}</testsuite></testsuites>")
    assert junit.slowest(tmp_path / "a.xml", 5) == [("tests.unit.test_b", 5.0), ("tests.unit.test_a", 2.5)]
    assert junit.slowest(tmp_path / "a.xml", 1) == [("tests.unit.test_b", 5.0)]
    assert junit.slowest(tmp_path / "none.xml", 5) == []


class Case:
    """A case of a test that is marked ``sampled`` with a share; 0: not marked."""

    def __init__(self, nodeid: str, share: int) -> None:
        self.nodeid, self._share = nodeid, share

    def get_closest_marker(self, name: str) -> Any:
        return SimpleNamespace(args=(self._share,)) if self._share and name == "sampled" else None


@pytest.mark.parametrize(("full", "left"), [(False, 6), (True, 0)])
def test_of_sampled_cases_one_in_so_many_is_run(monkeypatch: pytest.MonkeyPatch, full: bool, left: int) -> None:
    monkeypatch.setattr(sample, "FULL", full)
    many, one = [Case(f"a.py::test_a[{number}]", 3) for number in range(10)], Case("a.py::test_b", 3)
    dropped = unsampled([*many, one, *(Case(f"b.py::test_c[{number}]", 0) for number in range(5))])  # type: ignore[list-item]
    assert len(dropped) == left and not {many[0], many[9], one} & dropped  # type: ignore[operator]


@pytest.mark.parametrize(
    ("counts", "status", "expected"),
    [
        ((5, 0), 0, (5, 0)),
        ((5, 2), 1, (5, 2)),
        ((5, 0), 1, (5, 1)),  # a broken conftest, a crash at the end
        ((0, 0), 5, (0, 0)),  # nothing selected
        ((0, 0), 124, (0, 1)),  # timed out
        ((3, 0), -9, (3, 1)),
    ],
)
def test_a_silent_failure_counts(counts: tuple[int, int], status: int, expected: tuple[int, int]) -> None:
    assert lanes.judged(junit.Counts(*counts), status) == expected


@pytest.mark.parametrize(("failed", "status"), [(0, 0), (1, 1)])
def test_the_last_line_says_the_sum(failed: int, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    results = {"unit": (lanes.Result(3, 0), 1.0), "kernel": (lanes.Result(2, failed), 2.5)}
    assert lanes.report(results) == status
    assert capsys.readouterr().out.splitlines()[-1] == f"5 passed, {failed} failed in 3.5 s"


def test_nothing_run_is_a_failure() -> None:
    assert lanes.report({"unit": (lanes.Result(0, 0), 0.0)}) == 1


def test_guard_sees_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    before = lanes.footprint()
    monkeypatch.setattr(lanes, "footprint", lambda: before)
    assert lanes.guard(before) == (1, 0)
    monkeypatch.setattr(lanes, "footprint", lambda: {**before, "rules": "another"})
    assert lanes.guard(before) == (0, 1)


def test_progress_goes_with_the_tree(tmp_path: Path) -> None:
    """Remembered for this content; a changed, new or removed file begins anew; bytes that came back are known again."""
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    (root / "a.py").write_text("1")
    progress.Progress(root, cache).remember("part", 3)
    assert progress.Progress(root, cache).passed("part") == 3
    assert progress.Progress(root, cache).passed("other") is None
    (root / "a.py").write_text("2")
    assert progress.Progress(root, cache).passed("part") is None
    (root / "a.py").write_text("1")
    (root / "b.py").write_text("")
    assert progress.Progress(root, cache).passed("part") is None
    (root / "b.py").unlink()
    assert progress.Progress(root, cache).passed("part") == 3


def test_progress_ignores_what_git_ignores(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*.log\n")
    before = progress.tree_key(tmp_path)
    (tmp_path / "x.log").write_text("x")
    assert progress.tree_key(tmp_path) == before
    (tmp_path / "x.py").write_text("x")
    assert progress.tree_key(tmp_path) != before


def test_sample_is_even_and_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "FULL", False)
    assert sample.sample(range(100), 3) == [0, 50, 99]
    assert sample.sample(range(3), 10) == [0, 1, 2]
    assert sample.sample(range(3), 1) == [0]
    monkeypatch.setattr(sample, "FULL", True)
    monkeypatch.setattr(sample, "DRAWN", False)
    assert len(sample.sample(range(100), 3)) == 100
    assert sample.sample(range(100), 3, 5)[::4] == [0, 99] and len(sample.sample(range(100), 3, 5)) == 5
    monkeypatch.setattr(sample, "DRAWN", True)
    assert len(sample.sample(range(100), 3, 5)) == 100


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bootstrap, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(bootstrap, "POLICY_ASIDE", tmp_path / "aside")
    return tmp_path / "policy-rc.d"


def refuses(policy: Path) -> bool:
    return subprocess.run([str(policy), "x", "start"], check=False).returncode == 101


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 101\n", bootstrap.POLICY_TEXT])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_starts_and_the_policy_is_put_back(policy: Path, before: str | None, fails: bool) -> None:
    """Whatever was there: no policy, one that allows, one that refuses, our own from a run that was killed."""
    if before is not None:
        policy.write_text(before)
        policy.chmod(0o755)
    with contextlib.suppress(bootstrap.SetupFailed), bootstrap.nothing_starts():
        assert refuses(policy)
        if fails:
            raise bootstrap.SetupFailed
    left = [path.name for path in policy.parent.iterdir()]
    if before in (None, bootstrap.POLICY_TEXT):
        assert left == []
    else:
        assert left == ["policy-rc.d"]
        assert policy.read_text() == before


def test_the_policy_goes_when_setup_is_ended(policy: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, bootstrap.nothing_starts():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert not policy.exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_guest_script_keeps_arguments_apart(tmp_path: Path) -> None:
    text = vm.guest_script(tmp_path, "vm and not slow", ["tests/vm/test_a.py"], ["-k", "a b; reboot"], {"NETCOMMON_TESTS_FULL": "1"})
    assert "-m 'vm and not slow'" in text
    assert "tests/vm/test_a.py -k 'a b; reboot'" in text
    assert "NETCOMMON_TESTS_FULL=1" in text
    assert f"cache=loose,msize=524288 {vm.USR} " in text


COLLECTED = """tests/vm/test_a.py::test_one[a b::c]
tests/vm/test_a.py::test_two
tests/contract/test_b.py::TestIt::test_three

3/9 tests collected (6 deselected) in 0.1s
"""


@pytest.mark.parametrize(
    ("status", "extra", "expected"),
    [
        (0, [], ["tests/vm/test_a.py", "tests/contract/test_b.py"]),
        (0, ["-k", "one"], ["tests/vm/test_a.py", "tests/contract/test_b.py"]),
        (2, [], list(vm.WITH_CASES)),  # the machine's pytest meets the same error, and the lane fails
        (5, [], list(vm.WITH_CASES)),  # nothing is selected there either
        (0, ["tests/vm/test_vrf.py::test_a"], []),
    ],
)
def test_the_machine_imports_what_has_tests_for_it(
    status: int, extra: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[str]] = []

    def run(argv: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        begun.append(argv)
        return subprocess.CompletedProcess(argv, status if "pytest" in argv else 0, COLLECTED if "pytest" in argv else "")

    monkeypatch.setattr(vm.subprocess, "run", run)
    assert vm.files("vm", extra, {}) == expected
    assert [word for word in begun[-1] if word in extra] == (extra if len(begun) > 1 else [])


def test_the_longest_files_go_first() -> None:
    tests = bootstrap.ROOT / "tests"
    files = [str(path.relative_to(bootstrap.ROOT)) for folder in ("fault", "unit") for path in (tests / folder).rglob("test_*.py")]
    found = lanes.longest_first(files)
    assert sorted(found) == sorted(files)
    for longest in lanes.LONGEST:  # each is there, before all others
        assert found[0].startswith(longest)
        while found[0].startswith(longest):
            del found[0]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (list(lanes.LANES), [["fault", "warm"], ["vm"]]),
        (["unit", "vm"], [["vm"]]),
        (["fault", "vm"], [["fault"], ["vm"]]),
        (["unit", "warm"], [["warm"]]),
        (["warm", "fault"], []),
        (["vm"], []),
        (["vm", "vm"], []),
        (["unit", "kernel"], []),
    ],
)
def test_which_lanes_run_beside_the_others(chosen: list[str], expected: list[list[str]]) -> None:
    assert lanes.processes(chosen) == expected


@pytest.mark.parametrize("named", [False, True])
def test_lanes_beside_the_others_say_what_became_of_each(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Take the results of all lanes from their one process; what it did not say has failed. That no lane was named goes with it."""
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(lanes.bootstrap, "cache", lambda: tmp_path)
    begun: list[list[str]] = []

    def begin(argv: list[str], **_streams: object) -> SimpleNamespace:
        begun.append(argv)
        Path(argv[argv.index("--results") + 1]).write_text('{"fault": [[3, 1], 2.5]}')
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(lanes.subprocess, "Popen", begin)
    results: dict[str, tuple[lanes.Result, float]] = {}
    with lanes.beside([["fault", "warm"]], ["--full", "--lane", "unit"], results, named):
        pass
    assert results == {"fault": (lanes.Result(3, 1), 2.5), "warm": (lanes.Result(0, 1), 0.0)}
    assert begun[0][3:] == [*([] if named else ["--unnamed"]), "--lane", "fault", "--lane", "warm", "--full"]
    assert list((tmp_path / "results").iterdir()) == []
    assert "fault and warm" in capsys.readouterr().out


def test_an_environment_that_is_a_link_is_not_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would be the one of another checkout, which is in use there."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "kept").touch()
    link = tmp_path / ".venv"
    link.symlink_to(others)
    monkeypatch.setattr(bootstrap, "VENV", link)
    with pytest.raises(bootstrap.SetupFailed, match="is a link to"):
        bootstrap.environment()
    assert (others / "kept").exists()


@pytest.mark.parametrize(
    ("purposes", "file"),
    [
        (["runtime"], "requirements.txt"),
        (["environment"], "requirements-test.txt"),
        (["runtime", "kernel"], "requirements-test.txt"),
        ([], "requirements-test.txt"),
    ],
)
def test_what_the_environment_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purposes: list[str], file: str) -> None:
    """A node in production has nothing of what tests need, and its file is the one that the package is built from."""
    made: list[Path] = []
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)  # whose lock another may hold
    monkeypatch.setattr(bootstrap, "environment", made.append)
    for name in ("install", "bytecode", "wheels", "unpacked"):
        monkeypatch.setattr(bootstrap, name, lambda *_given: None)
    assert bootstrap.main(purposes) == 0
    assert made == [bootstrap.VENV.parent / file]


def test_an_answer_counts_once_in_however_many_pieces() -> None:
    """A point that was counted is there in every run. Of netlink each datagram counts: nothing cuts it or joins it to another."""
    kernel, switch, flows = "3<NETLINK:[ROUTE:7]>", "9<UNIX-STREAM:[5->6]>", "10<UNIX-STREAM:[7->8]>"

    def lines(*calls: tuple[str, str]) -> list[str]:
        return [f'{call}({place}, "x", 1, 0, NULL, NULL) = 1' for call, place in calls]

    dump = lines(("sendto", kernel), ("recvfrom", kernel), ("recvfrom", kernel))
    asked = lines(("sendto", switch), ("sendto", "10<UNIX-STREAM:[7]>"))
    first, second = lines(("recvfrom", switch)), lines(("recvfrom", flows))
    for more in range(3):
        assert strace.answers([*dump, *asked, *first, *first * more, "--- SIGCHLD ---", *second, *second * more]) == 4
    assert strace.answers([*first, *asked, *second]) == 1, "what comes unasked may come together with an answer"
