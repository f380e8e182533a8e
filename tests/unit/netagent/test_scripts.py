"""The site's scripts run by the agent: what a hook would give them, by a process of its own, and in a transient unit under systemd.

No systemd runs here: a stand-in for systemd-run records how it was called and does what `--pipe --wait` promises.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from netagent import scripts
from netagent.scripts import Launcher, launcher, outcome
from netcommon.lifecycle import gc
from netcommon.lifecycle.context import DEVICE_GONE
from netcommon.process import run as runner
from netcommon.process.run import Outcome
from netcommon.scripts import site as custom
from netcommon.scripts.site import Call, Result, Script, run
from netcommon.settings.model import Settings
from runtime.environment import nic_from_environment
from tests.support.processes import alive, until
from tests.support.sim import BASE, Sim

NIC = {"INTERFACE": "tap0", "MODE": "bridged", "TAGS": "a b", "ODD": "\udcff", "LINES": "a\nb", "QUOTED": "'\"$HOME%h\\"}

#: Records its arguments and its environment, then runs the command as the child of somebody who is not us.
STAND_IN = """#!/usr/bin/python3 -IS
import json, os, subprocess, sys
command = sys.argv[sys.argv.index("--") + 1 :]
open({record!r}, "w").write(json.dumps({{"argv": sys.argv[1:], "environment": dict(os.environ)}}))
sys.exit(subprocess.run(command, env={{"LANG": "C", "INVOCATION_ID": "b" * 32}}, cwd="/", start_new_session=True).returncode)
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return tmp_path / "called.json"


@pytest.fixture(params=["child", "transient"])
def execute(request: pytest.FixtureRequest, tmp_path: Path, recorded: Path) -> Launcher:
    """Both ways."""
    if request.param == "child":
        return launcher({"PATH": "/bin"})
    path = tmp_path / "systemd-run"
    path.write_text(STAND_IN.format(record=str(recorded)))
    path.chmod(0o755)
    return launcher({"INVOCATION_ID": "a" * 32}, {"systemd-run": str(path)}.get)  # type: ignore[arg-type] # it is asked for no other


def go(tmp_path: Path, text: str, execute: custom.Execute | None, seconds: float = 20.0, limit: int = 65536) -> Result:
    path = tmp_path / "script"
    path.write_text(text)
    path.chmod(0o755)
    call = Call("tap0", DEVICE_GONE, NIC, "u-1", "", "/run/x.json")
    return run(Script(str(path)), call, Settings(custom_output_limit=limit), seconds, execute=execute)


SHOWS = """#!/usr/bin/python3 -IS
import os, sys
print(sys.argv[1:], os.getcwd(), sys.stdin.read(), os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd"))[:3])
seen = {name: value for name, value in os.environb.items() if name not in (b"NETCOMMON_DOOR", b"NETCOMMON_SCRIPT", b"LC_CTYPE")}
print(sorted(seen.items()))
print("err", file=sys.stderr)
sys.exit(3)
"""


def test_warm_and_cold_are_alike(tmp_path: Path, execute: Launcher) -> None:
    """Arguments, environment to the byte, folder, input, session, output and status: what a hook gives it."""
    here, there = go(tmp_path, SHOWS, None), go(tmp_path, SHOWS, execute)
    assert there == here
    assert here.status == 3 and b"ODD" in here.output and b"\\xff" in here.output


def test_ganetis_umask(tmp_path: Path, execute: Launcher) -> None:
    assert go(tmp_path, "#!/bin/sh\numask\n", execute).output == b"0077\n"


def test_the_guard_names_who_ends_with_the_script(tmp_path: Path, execute: Launcher) -> None:
    """Not the agent, which lives on: a daemon that inherited that would never again be heard when it calls a door."""
    result = go(tmp_path, "#!/bin/sh\necho $NETCOMMON_DOOR; ps -o ppid= $$\n", execute)
    guard, parent = result.output.decode().split("\n")[:2]
    uuid, pid, tap = guard.split(" ")
    assert (uuid, tap) == ("u-1", "tap0")
    assert int(pid) == int(parent) != os.getpid()
    assert not alive(int(pid))


def test_output_is_capped_and_a_signal_told(tmp_path: Path, execute: Launcher) -> None:
    result = go(tmp_path, "#!/bin/sh\nhead -c 3000000 /dev/zero\nkill -9 $$\n", execute, limit=10)
    assert result.output == b"\0" * 10
    assert (result.status, result.signal) == (None, signal.SIGKILL)


def test_what_looks_like_our_own_word_is_output(tmp_path: Path, execute: Launcher) -> None:
    result = go(tmp_path, "#!/bin/sh\necho 'netcommon-script-1 {\"status\": 0}'\nexit 4\n", execute)
    assert result.status == 4
    assert result.output == b'netcommon-script-1 {"status": 0}\n'


def test_one_that_hangs_is_ended_at_its_limit(tmp_path: Path, execute: Launcher) -> None:
    begun = time.monotonic()
    result = go(tmp_path, f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\nsleep 1000\n", execute, seconds=1.0)
    assert result.timed_out
    assert time.monotonic() - begun < 1.0 + runner.GRACE + runner.REAP + scripts.STARTING
    assert until(lambda: not alive(int((tmp_path / "pid").read_text())))


DAEMON = """#!/bin/sh
setsid --fork sh -c 'echo $$ > {0}/making; mv {0}/making {0}/pid; exec sleep 1000'
until test -e {0}/pid; do sleep 0.01; done
"""


def test_a_daemon_that_the_site_starts_stays(tmp_path: Path, execute: Launcher) -> None:
    assert go(tmp_path, DAEMON.format(tmp_path), execute).ok
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_one_that_is_none_cannot_be_started(tmp_path: Path, execute: Launcher) -> None:
    assert go(tmp_path, "#!/nowhere\n", execute).error == "could not be started: No such file or directory"


def test_no_time_left(tmp_path: Path, execute: Launcher) -> None:
    assert go(tmp_path, "#!/bin/sh\nexec sleep 60\n", execute, seconds=0).timed_out


def test_how_systemd_run_is_called(tmp_path: Path, recorded: Path) -> None:
    path = tmp_path / "systemd-run"
    path.write_text(STAND_IN.format(record=str(recorded)))
    path.chmod(0o755)
    execute = launcher({"INVOCATION_ID": "a" * 32}, lambda name: str(path), first="/proc/self/ns/net")
    assert go(tmp_path, "#!/bin/sh\n", execute).ok
    called = json.loads(recorded.read_text())
    assert called["argv"] == [
        *("--wait", "--collect", "--pipe", "--quiet", "--no-ask-password", "--service-type=exec"),
        *("--description=netcommon: a custom script", "--property=KillMode=process", "--"),
        *(sys.executable, "-IS", scripts.LAUNCH),
    ]
    assert "TAGS" not in json.dumps(called), "every user of the machine may read a unit's variables"


def test_in_another_network_namespace(tmp_path: Path) -> None:
    """The transient unit would be in that of systemd."""
    (tmp_path / "other").touch()
    for ours in (str(tmp_path / "other"), str(tmp_path / "none")):
        execute = launcher({"INVOCATION_ID": "a"}, lambda name: "/x/systemd-run", ours=ours)
        assert f"--property=NetworkNamespacePath=/proc/{os.getpid()}/ns/net" in execute._before


def test_without_systemd_run_nothing_is_run_in_the_sandbox(tmp_path: Path) -> None:
    result = go(tmp_path, f"#!/bin/sh\ntouch {tmp_path}/ran\n", launcher({"INVOCATION_ID": "a"}, lambda name: ""))
    assert "there is no systemd-run" in result.error
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("ran", "error"),
    [
        (Outcome(1, output=b"Failed to connect to bus: No such file\n"), "ended with status 1: Failed to connect to bus: No such file"),
        (Outcome(0, output=b""), "it did not say how it ended"),
        (Outcome(0, output=b"netcommon-script-1 {}\nx"), "it did not say how it ended: x"),
        (Outcome(0, output=b"netcommon-script-1 [1"), "it did not say how it ended: netcommon-script-1 [1"),
        (Outcome(None, 9), "was ended by signal 9"),
        (Outcome(error="no such file"), "could not be started: no such file"),
    ],
)
def test_who_does_not_say_how_it_ended_has_failed(ran: Outcome, error: str) -> None:
    assert outcome(ran, 100) == Outcome(error=error)


def test_the_outer_limit() -> None:
    assert outcome(Outcome(None, 9, timed_out=True), 100).timed_out


def test_the_lifecycle_runs_them_so(tmp_path: Path) -> None:
    """Node.execute is what the scripts of a NIC whose device is gone are run by, when the agent finishes its record."""
    ran: list[tuple[object, ...]] = []

    def execute(argv: Sequence[str], environment: Mapping[bytes, bytes], seconds: float, limit: int, clock: Callable[[], float]) -> Outcome:
        ran.append((*argv, environment[b"NETCOMMON_CONTEXT"]))
        return Outcome(0)

    sim = Sim(str(tmp_path))
    script = Path(sim.paths.etc) / "ifdown.d/50-site"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/false\n")
    script.chmod(0o755)
    sim.up(nic_from_environment(BASE | {"MODE": "bridged", "LINK": "br0"}))
    sim.host.remove_link("tap0")
    node = sim.node._replace(execute=execute)
    gc.gc(node, sim.call(DEVICE_GONE))
    assert ran == [(str(script), "tap0", "device-gone", b"device-gone")]
