"""The machine that tests/fresh makes of a folder: what a command finds in it, and that nothing of it outlives the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fresh
from tests.support.bootstrap import ROOT
from tests.support.netns import isolate, wait_until


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root that has this machine's programs, to be read."""
    isolate()
    monkeypatch.setattr(fresh, "READ", ("/usr",))
    for name in fresh.variables(os.environ).keys() - {"PATH", "HOME"}:
        monkeypatch.delenv(name)  # what is said here of pip, and so shown there, is not every machine's
    for folder in ("dev", "etc", "proc", "run", "sys", f"{fresh.PLACE}/tests", "etc/pip"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (tmp_path / name).symlink_to(f"usr/{name}")
    yield tmp_path
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def says(root: Path, script: str, status: int = 0) -> list[str]:
    """The lines that a script in place of tests/run writes to /said."""
    run = root / fresh.PLACE / "tests/run"
    run.write_text(f"#!/bin/bash\n{{\n{script}\n}} >/said 2>&1\n")
    run.chmod(0o755)
    ended = fresh.run(root, "run", ["an", "argument"])
    said = (root / "said").read_text()
    assert (ended.command, ended.status) == ("tests/run", status), said
    return said.splitlines()


def test_a_command_has_a_machine_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETCOMMON_CACHE", "/somewhere")
    said = says(root, 'pwd; echo "$@"; echo "$HOME,$NETCOMMON_CACHE,$$"; ls /; ls /run; stat -c %F /dev/null; tty; ls /sys/class/net')
    assert said[:2] == ["/root/netcommon", "an argument"]
    home, cache, pid = said[2].split(",")
    assert (home, cache) == ("/root", "") and int(pid) < 20
    assert said[3:] == [
        *sorted(["bin", "dev", "etc", "lib", "lib64", "proc", "root", "run", "said", "sbin", "sys", "usr"]),
        *("lock", "character special file", "not a tty"),
        *sorted(os.listdir("/sys/class/net")),
    ]


def test_what_is_bound_can_only_be_read(root: Path) -> None:
    assert "Read-only file system" in says(root, "touch /usr/share/netcommon-was-here || exit 7", 7)[0]


def test_devices_and_terminals_are_its_own(root: Path) -> None:
    script = "ls /dev; python3 -c 'import os, pty; print(os.ttyname(pty.openpty()[1]))'; touch /dev/shm/netcommon-was-here"
    said = says(root, script)
    expected = {name.partition("/")[0] for name in fresh.DEVICES if os.path.exists(f"/dev/{name}")}
    assert {*said[:-1]} == expected | {*fresh.DEVICE_LINKS, "pts", "shm"}
    assert said[-1] == "/dev/pts/0" and not os.path.exists("/dev/shm/netcommon-was-here")


def test_mounts_within_it_stay_there(root: Path) -> None:
    """It is a root that can be made private and have namespaces in it, as tests/run does."""
    says(root, "mount --make-rprivate / && mount -t tmpfs tmpfs /etc && unshare --mount --pid --fork --mount-proc mount -t tmpfs x /root")


def test_folders_that_pip_is_told_of_go_along(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    index = tmp_path_factory.mktemp("index")
    (index / "wheel").write_text("it\n")
    (root / "etc/pip.conf").write_text(f"[global]\nextra-index-url = file://{index}/simple\nfind-links = /does/not/exist\n")
    assert says(root, f"cat {index}/wheel") == ["it"]


def test_no_process_outlives_its_command(root: Path) -> None:
    """It ends with one left behind, in a session of its own."""
    (pid,) = says(root, "setsid sleep 600 >/dev/null 2>&1 & sleep 0; grep NSpid /proc/self/status | cut -f2")
    assert pid.isdigit()
    assert all("sleep\x00600" not in cmdline for cmdline in cmdlines(root))


KILLED = """
import pathlib, sys
from tests.support import fresh
fresh.READ = ("/usr",)
fresh.run(pathlib.Path(sys.argv[1]), "run", [])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_tests_fresh(root: Path, number: int) -> None:
    run = root / fresh.PLACE / "tests/run"
    run.write_text("#!/bin/bash\nsetsid sleep 600 &\n: >/begun\nwait\n")
    run.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(root)], cwd=ROOT)
    wait_until((root / "begun").exists, 20)
    process.send_signal(number)
    assert process.wait(20) == -number
    wait_until(lambda: cmdlines(root) == [], 10, "its processes are gone")


def cmdlines(root: Path) -> list[str]:
    """The command lines of all processes whose root is ``root``, as it is seen from here."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "root").stat().st_ino == root.stat().st_ino:
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return found
