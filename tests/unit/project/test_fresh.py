"""tests/fresh and .ci/run: what they understand, what goes along into a new root, what they leave.

The namespaces of tests/fresh: tests/kernel/test_fresh.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import bootstrap, fresh, lanes
from tests.support.bootstrap import ROOT
from tests.support.netns import wait_until


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (("demo", "cluster", "registry", "run"), False, ())),
        (["demo"], (("demo",), False, ())),
        (["run", "--keep", "run"], (("run",), True, ())),
        (["--", "--lane", "unit"], (("demo", "cluster", "registry", "run"), False, ("--lane", "unit"))),
        (["run", "--", "-k", "--", "--keep"], (("run",), False, ("-k", "--", "--keep"))),
    ],
)
def test_arguments(arguments: list[str], expected: tuple[tuple[str, ...], bool, tuple[str, ...]]) -> None:
    assert fresh.parse(arguments) == expected


@pytest.mark.parametrize(("arguments", "named"), [(["vm"], "'vm'"), (["--lane"], "'--lane'"), (["demo", "--", "-x"], "'-x'")])
def test_arguments_that_are_wrong(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fresh.main(arguments) == 64
    said = capsys.readouterr().err
    assert named in said and said.endswith(f"{fresh.USAGE}\n")


@pytest.mark.parametrize(
    ("script", "usage"),
    [
        ("tests/fresh", "tests/fresh [--keep] [demo|cluster|registry|run]..."),
        ("tests/setup", "usage: tests/setup [environment|"),
        ("examples/demo", "demo: real guests"),
        ("examples/cluster", "cluster: the registry of a cluster"),
        ("examples/mockcloud", "mockcloud [NODES]: 2,000 nodes"),
    ],
)
@pytest.mark.parametrize("argument", ["--help", "-h"])
def test_who_asks_for_help_gets_it(script: str, usage: str, argument: str) -> None:
    ended = subprocess.run([ROOT / script, argument], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "") and usage in ended.stdout


def test_what_makes_the_root_leaves_its_files_in_the_folder_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mmdebstrap keeps keys in TMPDIR, and leaves them there where a signal ends it."""
    given: list[dict[str, str]] = []
    monkeypatch.setattr(fresh, "confined", lambda argv, environ, output: given.append(environ) or 0)
    monkeypatch.setattr(fresh, "sources", list)
    fresh.make_root(tmp_path / "base", tmp_path / "apt.conf")
    assert [environ["TMPDIR"] for environ in given] == [str(tmp_path)]


def test_apt_downloads_as_here_and_calls_nothing() -> None:
    """Programs that other packages have apt call are not in the new root."""
    dump = 'APT "";\nAcquire "";\nAcquire::http::Proxy "http://192.0.2.1:3128";\nAcquire::Languages:: "none";\n'
    dump += 'DPkg::Pre-Install-Pkgs:: "/usr/bin/apt-listchanges --apt";\nAPT::Update::Post-Invoke:: "/usr/bin/test";\n'
    assert fresh.acquire_options(dump) == 'Acquire::http::Proxy "http://192.0.2.1:3128";\nAcquire::Languages:: "none";\n'


def test_only_variables_about_downloads_go_along() -> None:
    given = {"http_proxy": "a", "NO_PROXY": "b", "PIP_INDEX_URL": "c", "SSL_CERT_FILE": "d", "REQUESTS_CA_BUNDLE": "e"}
    others = {"NETCOMMON_CACHE": "/x", "PYTHONPATH": "/x", "PATH": "/x", "HOME": "/home/x", "MY_PIP_X": "x", "LC_ALL": "x"}
    found = fresh.variables(given | others)
    assert {name: value for name, value in found.items() if name not in ("PATH", "HOME")} == given
    assert (found["HOME"], "/x" in found["PATH"]) == ("/root", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("index-url = https://example.org/simple/\nfind-links = https://example.org/a /one/wheels/\n", ["/one/wheels"]),
        ("extra-index-url = file:///two/simple file:///three/simple/", ["/three", "/two"]),
        ("cert=/etc/x.pem", ["/etc/x.pem"]),
        ("timeout = 5\nproxy = http://a/b", []),
    ],
)
def test_what_pip_reads_on_this_machine(text: str, expected: list[str]) -> None:
    assert fresh.local_paths([text]) == expected


def test_sources_of_both_forms_and_none(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (tmp_path / "sources.list").write_text("\n")  # Debian's own images have it empty
    (folder / "old.list.disabled").write_text("deb http://example.org x main\n")
    with pytest.raises(bootstrap.SetupFailed, match="has no sources"):
        fresh.sources(tmp_path)
    for name in ("b.sources", "a.list"):
        (folder / name).write_text("deb http://example.org x main\n")
    assert fresh.sources(tmp_path) == [f"{folder}/a.list", f"{folder}/b.sources"]


def test_what_is_copied_is_whole(tmp_path: Path) -> None:
    """Certificates are links to other folders, some of which lead nowhere."""
    source, target = tmp_path / "certs", tmp_path / "new/etc/certs"
    source.mkdir()
    (tmp_path / "a.crt").write_text("a")
    (source / "a.pem").symlink_to(tmp_path / "a.crt")
    (source / "gone.pem").symlink_to(tmp_path / "gone.crt")
    target.mkdir(parents=True)
    (target / "there").write_text("")
    fresh.copy(source, target)
    assert sorted(path.name for path in target.iterdir()) == ["a.pem", "there"]
    assert not (target / "a.pem").is_symlink() and (target / "a.pem").read_text() == "a"
    (tmp_path / "resolv.conf").symlink_to("/nowhere")
    fresh.copy(source / "a.pem", tmp_path / "resolv.conf")
    assert not (tmp_path / "resolv.conf").is_symlink()
    fresh.copy(tmp_path / "nothing", tmp_path / "new/nothing")
    assert not (tmp_path / "new/nothing").exists()


def test_the_folder_goes_unless_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(SystemExit) as found, fresh.folder(keep=False) as place:
        (place / "file").write_text("")
        os.kill(os.getpid(), signal.SIGTERM)
    assert found.value.code == 143 and list(tmp_path.iterdir()) == []
    with fresh.folder(keep=True) as place:
        (place / "file").write_text("")
    assert [str(place)] == [str(path) for path in tmp_path.iterdir()] and f"kept: {place}" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (137, 1)])
def test_one_that_fails_fails_all(status: int, expected: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert fresh.report([fresh.Ended("examples/demo", 0, 61.2), fresh.Ended("tests/run", status, 1500.0)]) == expected
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == ["examples/demo", "61.2", "passed"]
    assert lines[-1].split()[:3] == ["tests/run", "1500.0", "failed:" if status else "passed"]


# -------------------------------------------------------------------------------------------- what tests/run sets up, and its end


@pytest.mark.parametrize(
    ("chosen", "root", "expected"),
    [
        (["lint"], True, {"guard"}),
        (["lint"], False, set()),
        (["unit"], True, {"unit", "guard"}),
        (["unit"], False, {"unit"}),
        (["kernel"], True, {"guard", "kernel", "browser"}),
        (["fault"], True, {"guard", "kernel"}),
        (["vm"], True, {"guard", "kernel", "vm"}),  # the machine has this one's files
    ],
)
def test_a_lane_finds_what_it_needs(chosen: list[str], root: bool, expected: set[str]) -> None:
    assert lanes.purposes(chosen, root) == ["environment", *(name for name in lanes.NEEDS if name in expected)]


@pytest.mark.parametrize(
    ("purpose", "downloads"), [("unit", True), ("kernel", True), ("environment", False), ("demo", False), ("cluster", False)]
)
def test_lanes_that_build_the_package_have_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: str, downloads: bool
) -> None:
    called = list[list[str]]()
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)  # whose lock another may hold
    monkeypatch.setattr(bootstrap, "command", called.append)
    for name in ("install", "environment", "bytecode", "unpacked"):
        monkeypatch.setattr(bootstrap, name, lambda *_given: None)
    bootstrap.setup([purpose])
    assert called == ([[f"{tmp_path}/packaging/build-deb", "--download"]] if downloads else [])


def test_programs_that_tests_run_calls_itself_are_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its guard looks at the machine before any test, whichever the lane."""
    called = list[str]()

    def command(argv: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        called.append(argv[0].rpartition("/")[2])
        return subprocess.CompletedProcess(argv, 0, "")

    monkeypatch.setattr(bootstrap, "command", command)
    lanes.footprint()
    assert {*called} == {*bootstrap.PROGRAMS["guard"]}
    assert {*lanes.NEEDS["guard"]} == {*lanes.LANES}


STOPPED = """
import os, sys
from tests.support import bootstrap, inside, lanes
bootstrap.setup = lambda purposes: None
lanes.footprint = dict
os.geteuid = lambda: 0
WAIT = "import os, sys, time; open(f'{sys.argv[1]}/{os.getpid()}', 'x'); time.sleep(600)"
waits = [sys.executable, "-c", WAIT, sys.argv[1]]
inside.wrapped = lambda python, argv: waits
lanes.LANES["lint"] = lambda options: LANE
sys.exit(lanes.main(["--lane", "lint"]))
"""


@pytest.mark.parametrize(
    ("lane", "count"),
    [("lanes.program(waits)", 1), ("lanes.grouped(options, 'lint', ['tests/unit/runtime'], '', 600, 2, 6)", 2)],
    ids=["a program", "two threads"],
)
def test_a_signal_ends_what_a_lane_runs(lane: str, count: int, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    argv = [sys.executable, "-c", STOPPED.replace("options: LANE", f"options: {lane}"), str(there)]
    process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "NETCOMMON_CACHE": str(tmp_path)}, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(list(there.iterdir())) == count, 30, "all run")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    for path in there.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name), 0)


# --------------------------------------------------------------------------------------------------------------------- .ci/run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose tests/run says what cache it has, writes to it, and ends as its argument says."""
    for folder in (".ci", "tests", "folder"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    script = '#!/bin/sh\nls -A "$NETCOMMON_CACHE"\n: >"$NETCOMMON_CACHE/file"\necho "$NETCOMMON_CACHE"\n[ "$1" = wait ] || exit "$1"\n'
    (tmp_path / "tests/run").write_text(script + "exec sleep 600\n")
    (tmp_path / "tests/run").chmod(0o755)
    return tmp_path


def start(checkout: Path, argument: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "TMPDIR": str(checkout / "folder"), "NETCOMMON_CACHE": str(checkout)}
    argv = ["env", "--default-signal=INT", str(checkout / ".ci/run"), argument]  # in tests/run we ignore it, and a shell cannot undo that
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ, cwd="/")


@pytest.mark.parametrize("status", [0, 1, 69])
def test_ci_has_an_empty_cache_and_the_status_of_tests_run(checkout: Path, status: int) -> None:
    said, _ = (running := start(checkout, str(status))).communicate(timeout=30)
    assert running.returncode == status
    assert Path(said.strip()).parent == checkout / "folder"  # one line: the cache was empty
    assert list((checkout / "folder").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ci_takes_its_cache_away_on_a_signal(checkout: Path, number: int) -> None:
    running = start(checkout, "wait")
    assert running.stdout is not None
    assert Path(running.stdout.readline().strip()).parent == checkout / "folder"
    running.send_signal(number)
    assert running.wait(30) == 128 + number
    assert running.stdout.read() == ""  # nobody has it open: what it ran is gone too
    assert list((checkout / "folder").iterdir()) == []
    running.stdout.close()
