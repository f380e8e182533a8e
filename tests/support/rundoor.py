"""Runs a door of hooks/ exactly as Ganeti 3.0 and QEMU do: working directory /, umask 0077, an empty pipe as standard input, no other
descriptor, an environment of nothing but what is given and a bare PATH."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from netcommon.doors.call import Door
from netcommon.doors.kvm import ifdown, ifup
from netcommon.lifecycle.context import Node, open_node

HOOKS = Path(__file__).resolve().parents[2] / "hooks"

#: What Ganeti's daemon gives every script besides the NIC (utils.RunCmd with reset_env; PATH as captured).
BASE = {"LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/usr/sbin"}


#: How many calls may have been done by an agent (tests.support.warm).
handed_over = 0


class Outcome(NamedTuple):
    """What a door left: exit status (negative: signal), both outputs, wall time in seconds."""

    status: int
    stdout: str
    stderr: str
    seconds: float


def argv_of(door: str, tap: str, *context: str) -> list[str]:
    """The arguments as Ganeti 3.0 gives them: kvm-vif-bridge none, else the tap as a Python repr of bytes."""
    path = str(HOOKS / door) if "/" not in door else door
    return [path] if door.endswith("kvm-vif-bridge") else [path, f"b'{tap}'", *context]


def rundoor(door: str, environment: Mapping[str, str], *arguments: str, timeout: float = 120) -> Outcome:
    """Runs hooks/``door`` (or an absolute path) with ``environment``; without ``arguments``, INTERFACE as Ganeti's ``b'tap0'``.

    Raises subprocess.TimeoutExpired when something still holds an output after ``timeout`` seconds: a door must not.
    """
    argv = argv_of(door, environment.get("INTERFACE", "tap0")) if not arguments else [argv_of(door, "")[0], *arguments]
    return execute(argv, {**BASE, **environment}, timeout)


def perform(door: str, environment: Mapping[str, str], *arguments: str) -> Outcome:
    """Do what ``rundoor`` does, in this process: no interpreter starts for what a test needs done beside the hook that it is about.

    Where tests have an agent, a hook does it: that is what they are about.
    """
    if os.environ.get("NETCOMMON_TESTS_WARM") == "1":
        return rundoor(door, environment, *arguments)
    start = time.monotonic()
    made = _Performed(door, environ={**BASE, **environment}, parent=os.getpid())
    umask = os.umask(0o077)
    try:
        made.load()
        body = {"kvm-ifup": ifup, "kvm-ifdown": ifdown}[door]
        status = made.perform(lambda: body(made, {**BASE, **environment}, arguments or (environment["INTERFACE"],)))
        made.finish()
        return Outcome(status, "", made.log.summary(), time.monotonic() - start)
    finally:
        os.umask(umask)
        made.close()


class _Performed(Door):
    """A door's call whose process goes on: its time is not limited by signals."""

    def open(self) -> Node:
        return open_node(self.paths, self.settings, self.clock)

    def close(self) -> None:
        self.log.close()
        if self._node is not None:
            self._node.store.close()
            self._node.host.close()


def execute(argv: Sequence[str], environment: Mapping[str, str], timeout: float = 120) -> Outcome:
    """The same for any command line and a complete environment."""
    global handed_over  # noqa: PLW0603
    handed_over += os.path.realpath(argv[0]) == str(HOOKS / "launcher")
    start = time.monotonic()
    done = subprocess.run(
        argv,
        cwd="/",
        env=dict(environment),
        input=b"",
        capture_output=True,
        umask=0o077,
        timeout=timeout,
        check=False,
    )
    taken = time.monotonic() - start
    return Outcome(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), taken)
