"""Running the site's scripts for NICs that went without a down: never inside the sandbox of the agent's unit.

Warm or cold, a script shall find the same: it runs with the environment, limits and capped output that a hook gives it
(netcommon.scripts.site, netcommon.process.run), outside of the unit. So a process of its own (netagent.script_launcher) runs it: started by
systemd in a transient unit (systemd-run(1)) where systemd has started us, else as our child. It gets everything by its standard input:
variables of a unit can be read by every user of the machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from netcommon.host.linux.daemons import program
from netcommon.process.run import GRACE, REAP, Outcome, run

#: Until the process that runs the script is there, and after it has ended until we know (seconds).
STARTING = 5.0

#: What the process says begins with this and a document on one line; the script's output follows.
MAGIC = b"netcommon-script-1 "

#: More than that document has (bytes).
HEADER = 4096

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_launcher.py")

#: Everything it needs is given to it, and nothing of an environment.
ENVIRONMENT = {b"PATH": b"/usr/sbin:/usr/bin:/sbin:/bin", b"LC_ALL": b"C"}


class Launcher:
    """Runs one script, as ``netcommon.process.run.run`` does; a ``custom.Execute``. ``before``: the command that starts ours elsewhere."""

    def __init__(self, before: Sequence[str] = (), problem: str = "") -> None:
        self._before, self._problem = tuple(before), problem

    def __call__(
        self, argv: Sequence[str], environment: Mapping[bytes, bytes], seconds: float, limit: int, clock: Callable[[], float]
    ) -> Outcome:
        if self._problem:
            return Outcome(error=self._problem)
        if seconds <= 0:
            return Outcome(timed_out=True)
        given = json.dumps(
            {
                "argv": [os.fsdecode(word) for word in argv],
                "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
                "seconds": seconds,
                "limit": limit,
            }
        ).encode("ascii")
        command = [*self._before, sys.executable, "-IS", LAUNCH]
        patience = seconds + GRACE + REAP + STARTING
        return outcome(run(command, ENVIRONMENT, patience, limit + HEADER, clock, given=given), limit)


def outcome(ran: Outcome, limit: int) -> Outcome:
    """How the script ended, from how the process that ran it did; what that says ends in an error in words where it says nothing."""
    before, magic, rest = ran.output.partition(MAGIC)
    line, _, output = rest.partition(b"\n")
    if ran.ok and magic and not before:
        try:
            said = json.loads(line)
            return Outcome(said["status"], said["signal"], said["timed_out"], output[:limit], said["written"], said["error"])
        except (ValueError, KeyError, TypeError):
            pass
    if ran.timed_out:
        return Outcome(timed_out=True)
    last = next((line.strip() for line in reversed(ran.output.decode("utf-8", "replace").splitlines()) if line.strip()), "")
    return Outcome(error=": ".join(filter(None, (ran.text or "it did not say how it ended", last[:200]))))


def launcher(
    environ: Mapping[str, str], find: Callable[[str], str] = program, ours: str = "/proc/self/ns/net", first: str = "/proc/1/ns/net"
) -> Launcher:
    """How scripts are run by an agent with this environment: INVOCATION_ID says that systemd has started it (systemd.exec(5)).

    A transient unit is in the network namespace of systemd itself, so it is told ours where that is another, or cannot be seen.
    """
    if "INVOCATION_ID" not in environ:
        return Launcher()
    command = find("systemd-run")
    if not command:
        return Launcher(problem="there is no systemd-run, and it must not run inside the agent's unit")
    try:
        same = os.stat(first).st_ino == os.stat(ours).st_ino
    except OSError:
        same = False
    properties = [
        "KillMode=process",  # a daemon that the site's script has started on purpose stays, as after a hook
        *([] if same else [f"NetworkNamespacePath=/proc/{os.getpid()}/ns/net"]),
    ]
    return Launcher(
        [
            *(command, "--wait", "--collect", "--pipe", "--quiet", "--no-ask-password", "--service-type=exec"),
            "--description=netcommon: a custom script",
            *(f"--property={each}" for each in properties),
            "--",
        ]
    )
