"""Stand for systemctl(1) where there is no systemd: start, stop and kill a service by what its unit's file and drop-ins say.

What etcd.service of Debian and netcommon-registry.service need is known. A service of Type=notify has started when it says so (sd_notify);
with --no-block nobody waits for that. Nothing is started again by itself. Standard library only: Debian's Python runs it as a script.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 60.0
RUNNING = Path("/run/units")  #: of each unit the process, its socket and what it has said
Unit = dict[tuple[str, str], list[str]]


def unit(name: str) -> Unit:
    """Read a unit's files: section and key lead to all values; an empty one forgets those before (systemd.unit(5))."""
    found: Unit = {}
    drop_ins = sorted(Path(f"/etc/systemd/system/{name}.service.d").glob("*.conf"))
    for path in (Path(f"/usr/lib/systemd/system/{name}.service"), *drop_ins):
        section = ""
        for line in map(str.strip, path.read_text().splitlines()):
            if line.startswith("["):
                section = line.strip("[]")
            elif line and line[0] not in "#;":
                key, _, value = (part.strip() for part in line.partition("="))
                before = found.get((section, key), [])
                found[section, key] = [*before, value] if value else []
    return found


def environment(name: str, found: Unit) -> dict[str, str]:
    """Give what the service finds in its environment."""
    given = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    lines = [each.replace("%H", os.uname().nodename) for each in found.get(("Service", "Environment"), [])]
    for path in found.get(("Service", "EnvironmentFile"), []):
        lines += Path(path.removeprefix("-").replace("%p", name)).read_text().splitlines()
    for key, equals, value in (line.partition("=") for line in lines):
        if equals and not key.startswith("#"):
            given[key] = " ".join(shlex.split(value))
    return given


def process(name: str) -> int | None:
    """Give the unit's process; None where it does not run."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((RUNNING / name).read_text())
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            return pid
    return None


def start(name: str, wait: bool) -> int:
    """Start a unit; give the exit status."""
    found = unit(name)
    conditions = found.get(("Unit", "ConditionPathExists"), [])
    if process(name) is not None or not all(map(os.path.exists, conditions)):
        return 0  # of a condition that does not hold systemctl says nothing either
    environ = environment(name, found)
    notified = RUNNING / f"{name}.notify"
    notified.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening, open(RUNNING / f"{name}.log", "ab") as log:
        listening.bind(str(notified))
        RUNNING.chmod(0o755)
        notified.chmod(0o777)
        (command,) = found["Service", "ExecStart"]
        argv = [word for each in shlex.split(command) for word in (shlex.split(environ.get(each[1:], "")) if each[0] == "$" else [each])]
        who = pwd.getpwnam(found.get(("Service", "User"), ["root"])[-1])
        started = subprocess.Popen(
            argv,
            env={**environ, "NOTIFY_SOCKET": str(notified)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=who.pw_uid,
            group=who.pw_gid,
            extra_groups=[],
            umask=int(found.get(("Service", "UMask"), ["022"])[-1], 8),
        )
        (RUNNING / name).write_text(str(started.pid))
        return _ready(name, started, listening) if wait else 0


def _ready(name: str, started: subprocess.Popen[bytes], listening: socket.socket) -> int:
    listening.settimeout(0.1)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and started.poll() is None:
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in listening.recv(4096):
                return 0
    last = (RUNNING / f"{name}.log").read_text().splitlines()[-5:]
    print(f"Job for {name}.service failed.", *last, sep="\n", file=sys.stderr)
    return 1


def end(name: str, number: signal.Signals) -> int:
    """End a unit by a signal; give the exit status."""
    pid = process(name)
    if pid is not None:
        os.kill(pid, number)
    limit = time.monotonic() + SECONDS
    while process(name) is not None:
        if time.monotonic() > limit:
            return 1
        time.sleep(0.02)
    return 0


def main(words: list[str]) -> int:
    """Do what is asked of each unit; give the exit status."""
    verb, *names = [word for word in words if not word.startswith("-")]
    now, status = "--now" in words, 0
    for name in (each.removesuffix(".service") for each in names):
        if verb in ("stop", "restart") or (verb == "disable" and now):
            status |= end(name, signal.SIGTERM)
        if verb == "kill":
            status |= end(name, signal.SIGKILL)
        if verb in ("start", "restart") or (verb == "enable" and now):
            status |= start(name, "--no-block" not in words)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
