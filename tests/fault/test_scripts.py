"""Scripts of the site that do everything a script should not: the hook is back in time, and nothing of theirs runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.netns import run, slowness, wait_until, waited
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, rundoor
from tests.support.sample import FULL, sample
from tests.support.snapshot import diff, snapshot

#: What a hook may take beyond its limit (seconds), and the most data it may have in memory, whatever a script prints (bytes): it gets
#: no more. (What a process had at most is not told by its end: the kernel counts what its parent had too, getrusage(2).)
BEYOND, MEMORY = 2, 128 << 20

#: What each process of a script bears on its command line. (Dash forgets its traps in a subshell that it starts in the background.)
SLEEP = "sleep 77331"


class Case(NamedTuple):
    """A script, and what is to come of it: it ends well, or at the time limit; and whether it leaves a daemon, on purpose."""

    text: str
    good: bool = False
    stays: bool = False

    @property
    def timeout(self) -> int:
        """The hook's limit (seconds): enough for one that ends by itself, on a busy machine too."""
        return 8 if self.good else 1


CASES = {
    "hangs": Case(SLEEP),
    "hangs, busy": Case(f"{SLEEP} & while :; do :; done"),
    "stops": Case(f"{SLEEP} & kill -STOP $$"),
    "ignores SIGTERM": Case(f"trap '' TERM HUP INT; while :; do {SLEEP}; done"),
    "ignores SIGTERM, with children": Case(f"trap '' TERM HUP INT; {SLEEP} & ({SLEEP} & {SLEEP}) & wait; wait; {SLEEP}"),
    "forks": Case(f"for i in $(seq 100); do {SLEEP} & done; wait"),
    "forks, and ends": Case(f"for i in $(seq 100); do {SLEEP} & done", good=True),
    "forks, stopped children": Case(f"for i in $(seq 20); do {SLEEP} & kill -STOP $!; done; wait"),
    "double-forks": Case(f"({SLEEP} &) & {SLEEP}"),
    "double-forks, and ends": Case(f"({SLEEP} &) & sleep 0.1", good=True),
    "closes its descriptors": Case(f"exec <&- >&- 2>&-; {SLEEP}"),
    "closes its descriptors, and ends": Case(f"exec <&- >&- 2>&-; {SLEEP} &", good=True),
    "prints 100 MB": Case(f"{SLEEP} & head -c 104857600 /dev/zero", good=True),
    "prints 100 MB on one line": Case("head -c 104857600 /dev/zero | tr '\\0' x", good=True),
    "prints without end": Case(f"{SLEEP} & exec yes"),
    "prints without end, in the background": Case("yes 77331 & sleep 0.1", good=True),
    "leaves a daemon that holds its outputs": Case(f"{SLEEP} & exit 0", good=True),
    "leaves a daemon in a session of its own": Case(f"setsid {SLEEP} & sleep 0.2", good=True, stays=True),
    "leaves a daemon that ignores SIGTERM": Case(f"(trap '' TERM; {SLEEP}) & exit 0", good=True),
    "sets itself apart": Case(f"setsid {SLEEP}"),
    "sets itself apart, and hangs": Case(f"setsid {SLEEP} & {SLEEP}"),
    "sets itself apart from a parent that has ended": Case(f"(setsid {SLEEP} &) & {SLEEP}"),
    "sets itself apart, ignores SIGTERM": Case(f"(trap '' TERM HUP; setsid sh -c '{SLEEP}; {SLEEP}' & ) & {SLEEP}"),
    "sets itself apart, twice": Case(f"(setsid sh -c 'setsid {SLEEP} &' &) & {SLEEP}"),
    "ends by a signal, with children": Case(f"{SLEEP} & kill -SEGV $$", good=False),
}

#: Those that end by themselves, badly: before the time limit.
SOON = {"ends by a signal, with children"}


class Ended(NamedTuple):
    """A door's end: status, standard error, and wall time."""

    status: int
    stderr: str
    seconds: float


def door(name: str, variables: dict[str, str], *arguments: str) -> Ended:
    """Runs a door until it ends, and until nobody holds its outputs any more. Seconds for which others had the processors do not count."""
    start = time.monotonic()
    argv = ["prlimit", f"--data={MEMORY}", str(HOOKS / name), *arguments]
    with subprocess.Popen(argv, env={**BASE, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/") as child:
        assert child.stdout is not None
        said = child.stdout.read()
        seconds = time.monotonic() - start - waited(child.pid)
    return Ended(child.returncode, said.decode(), seconds)


def left() -> list[int]:
    """The processes of scripts that still run; a zombie does not."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if b"77331" in words and state != "Z":
            found.append(int(name))
    return found


def script(folder: str, text: str, timeout: int = 1) -> None:
    """The one script there, and the hook's limit."""
    Path("/etc/netcommon/config.toml").write_text(f"[hook]\ntimeout = {timeout}\nservice_timeout = {timeout}\n")
    path = Path(f"/etc/netcommon/{folder}/10-bad")
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def ready(node: Node) -> Iterator[Node]:
    """A NIC that has been up and down, and scripts' folders."""
    node.tap("tap0")
    for folder in ("ifup.d", "ifdown.d"):
        os.makedirs(f"/etc/netcommon/{folder}")
    assert rundoor("kvm-ifup", environment(), "tap0").status == 0
    assert rundoor("kvm-ifdown", environment(), "tap0", "hot-remove").status == 0
    yield node
    for pid in left():
        os.kill(pid, signal.SIGKILL)


def test_every_kind_of_bad_script(ready: Node) -> None:
    """At up the NIC is rolled back where the script failed; at down it is down whatever the script did."""
    names = sample(list(CASES), 4)
    before = snapshot(())
    for name in names:
        case = CASES[name]
        for folder, arguments in (("ifup.d", ("kvm-ifup", "tap0")), ("ifdown.d", ("kvm-ifdown", "tap0", "hot-remove"))):
            script(folder, case.text, case.timeout)
            if folder == "ifdown.d":
                assert rundoor("kvm-ifup", environment(), "tap0").status == 0
            ended = door(arguments[0], environment(), *arguments[1:])
            os.unlink(f"/etc/netcommon/{folder}/10-bad")
            judge(name, folder, case, ended)
            if folder == "ifup.d" and case.good:
                assert rundoor("kvm-ifdown", environment(), "tap0", "hot-remove").status == 0
            assert diff(before, snapshot(())) == [], (name, folder)
    figures.add("scripts", 2 * len(names), 0, 0)


def judge(name: str, folder: str, case: Case, ended: Ended) -> None:
    """The bar: within the limit and two seconds, with a word about it, the group gone, the memory bounded."""
    what = (name, folder, ended._replace(stderr=ended.stderr[:500]))
    assert ended.seconds < (case.timeout + BEYOND) * slowness(), what
    assert len(ended.stderr) < 4096 and ended.stderr.replace("\n", "").isprintable(), what
    if case.good:
        assert (ended.status, ended.stderr) == (0, ""), what
    else:
        assert ended.status == (69 if folder == "ifup.d" else 0) and "10-bad" in ended.stderr, what
        assert ("signal 11" if name in SOON else "time limit") in ended.stderr, what
    if case.stays:
        (daemon,) = left()
        assert os.getsid(daemon) == daemon, what
        os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not left(), 1, f"{what}: {left()} run on")


def test_a_daemon_of_an_earlier_script_outlives_a_later_one_that_hangs(ready: Node) -> None:
    """What is ended is what the script itself has begun."""
    Path("/etc/netcommon/ifdown.d/05-good").write_text(f"#!/bin/sh\nsetsid {SLEEP} & sleep 0.2\n")
    os.chmod("/etc/netcommon/ifdown.d/05-good", 0o755)
    script("ifdown.d", f"(setsid {SLEEP} 0 &) & {SLEEP} 0")
    assert rundoor("kvm-ifup", environment(), "tap0").status == 0
    ended = door("kvm-ifdown", environment(), "tap0", "hot-remove")
    assert ended.status == 0 and "10-bad" in ended.stderr and "05-good" not in ended.stderr
    (daemon,) = left()
    assert Path(f"/proc/{daemon}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"77331"]
    os.kill(daemon, signal.SIGKILL)
    figures.add("scripts", 1, 0, 0)


def test_a_script_that_never_stops_forking(ready: Node) -> None:
    """Until its time is over, half of them in sessions of their own."""
    script("ifup.d", f"for i in $(seq 300); do {SLEEP} & setsid {SLEEP} & (setsid {SLEEP} & ) & done; wait")
    before = snapshot(())
    ended = door("kvm-ifup", environment(), "tap0")
    assert ended.status == 69 and "10-bad" in ended.stderr and ended.seconds < (1 + BEYOND) * slowness(), ended
    wait_until(lambda: not left(), 1, "its processes are gone")
    os.unlink("/etc/netcommon/ifup.d/10-bad")
    assert diff(before, snapshot(())) == []
    figures.add("scripts", 1, 0, 0)


def test_scripts_that_become_another_program_all_the_time(ready: Node) -> None:
    """While execve(2) works a process has no environment to be known by: 4 of 60 went on when that was taken for "not ours"."""
    again = Path("/etc/netcommon/again")
    again.write_text("exec /bin/sh /etc/netcommon/again 77331\n")
    before = snapshot(())
    script("ifup.d", f"for i in 1 2 3; do (setsid /bin/sh {again} 77331 &); done; {SLEEP}")
    for _ in range(60 if FULL else 10):
        ended = door("kvm-ifup", environment(), "tap0")
        assert ended.status == 69 and "10-bad" in ended.stderr and ended.seconds < (1 + BEYOND) * slowness(), ended
        wait_until(lambda: not left(), 1, "its processes are gone")
    os.unlink("/etc/netcommon/ifup.d/10-bad")
    assert diff(before, snapshot(())) == []
    figures.add("scripts", 1, 0, 0)


def test_a_daemon_of_an_earlier_script_that_starts_others(ready: Node) -> None:
    """Those are younger than the later script that hangs, and no processes of it."""
    Path("/etc/netcommon/ifdown.d/05-good").write_text("#!/bin/sh\nsetsid sh -c 'while sleep 0.3; do :; done' daemon 77331 & sleep 0.2\n")
    os.chmod("/etc/netcommon/ifdown.d/05-good", 0o755)
    script("ifdown.d", f"(setsid {SLEEP} 0 &) & {SLEEP} 0")
    assert rundoor("kvm-ifup", environment(), "tap0").status == 0
    ended = door("kvm-ifdown", environment(), "tap0", "hot-remove")
    assert ended.status == 0 and "10-bad" in ended.stderr and "05-good" not in ended.stderr
    assert [each for each in left() if Path(f"/proc/{each}/cmdline").read_bytes().startswith(b"sh\0")], "the daemon goes on"
    for pid in sorted(left(), reverse=True):
        os.kill(pid, signal.SIGKILL)
    os.unlink("/etc/netcommon/ifdown.d/05-good")
    figures.add("scripts", 1, 0, 0)


@pytest.mark.parametrize("ignored", [False, True])
def test_what_the_caller_does_with_signals(ready: Node, ignored: bool) -> None:
    """A caller may block SIGALRM, or ignore SIGCHLD: time limits and exit statuses hold all the same."""
    script("ifup.d", "grep ^SigBlk /proc/self/status > /run/blocked; exit 3", 20)

    def inherited() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGALRM, signal.SIGIO, signal.SIGCHLD})
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    values = {**BASE, **environment()}
    ran = subprocess.run([HOOKS / "kvm-ifup", "tap0"], env=values, capture_output=True, text=True, preexec_fn=inherited, check=False)
    assert ran.returncode == 69 and "status 3" in ran.stderr, ran
    assert Path("/run/blocked").read_text() == "SigBlk:\t0000000000000000\n"
    os.unlink("/run/blocked")
    figures.add("scripts", 1, 0, 0)


def test_what_it_prints_is_cut(ready: Node) -> None:
    """Also in the log: so many lines, each so long, and in words how many there were."""
    script("ifup.d", "seq 1000000; head -c 20000000 /dev/zero | tr '\\0' x; exit 3", 20)
    ended = door("kvm-ifup", environment(), "tap0")
    assert ended.status == 69 and "status 3" in ended.stderr and len(ended.stderr) < 2048, ended
    assert "tap0" in run("ip", "link", "show", "tap0")
    figures.add("scripts", 1, 0, 0)
