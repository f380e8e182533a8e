"""System calls of a hook, as strace(1) sees and disturbs them: which of them change something, killed before any one, answered wrongly.

Only the hook's own process is traced, not what it starts: who kills ovs-ofctl or a script has killed no hook.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.netns import slowness
from tests.support.rundoor import BASE, HOOKS

TRACE = "/run/strace"

#: What can change the host or a file. Of openat, write and the sends, ``_changes`` tells which do.
CALLS = (
    *("openat", "write", "fchmod", "rename", "renameat", "renameat2", "symlink", "symlinkat", "link", "linkat", "unlink", "unlinkat"),
    *("mkdir", "mkdirat", "rmdir", "sendto", "sendmsg", "fork", "vfork", "clone", "clone3"),
)
_LINE = re.compile(r"([a-z_0-9]+)\((.*)", re.DOTALL)
#: A request to change something is acknowledged (netlink(7)), nftables' are in a batch, and OVSDB names its operation (RFC 7047, 5.2).
_CHANGE_SENT = re.compile(r'NLM_F_ACK|BATCH_BEGIN|\\"op\\": ?\\"(?:insert|update|mutate|delete)\\"')


class Moment(NamedTuple):
    """Right before the ``number``-th system call ``call`` of the process (from 1)."""

    call: str
    number: int
    what: str  #: its arguments, for people

    def __str__(self) -> str:
        return f"{self.call} {self.number} ({self.what[:120]})"


class Ended(NamedTuple):
    """How a disturbed hook ended: exit status (negative: signal), and what it wrote to stderr."""

    status: int
    stderr: str


def moments(door: str, variables: Mapping[str, str], arguments: Sequence[str]) -> list[Moment]:
    """Runs the door undisturbed, which must succeed; the system calls that changed something, in their order."""
    ended, lines = _traced(door, variables, arguments, "-y", "-s", "4000", "-e", f"trace={','.join(CALLS)}")
    assert ended.status == 0, ended
    counts: Counter[str] = Counter()
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue  # a signal
        call, rest = match[1], match[2]
        if "= ? ERESTART" in rest:  # the kernel does it again, as often as its lock is another's, which no other run repeats
            continue
        counts[call] += 1
        if _changes(call, rest):
            found.append(Moment(call, counts[call], rest))
    return found


def _changes(call: str, rest: str) -> bool:
    if call == "openat":
        return "O_CREAT" in rest and "/locks>" not in rest
    if call == "write":
        return not rest.startswith(("1<", "2<"))
    if call in ("sendto", "sendmsg"):
        return bool(_CHANGE_SENT.search(rest))
    return True


def killed(door: str, variables: Mapping[str, str], arguments: Sequence[str], moment: Moment) -> int:
    """Runs the door and kills it at the moment; its exit status, -9 if the moment came."""
    return _signalled(door, variables, arguments, moment, "KILL").status


def told_to_end(door: str, variables: Mapping[str, str], arguments: Sequence[str], moment: Moment) -> Ended:
    """Runs the door, which gets SIGTERM at the moment; how it ended."""
    return _signalled(door, variables, arguments, moment, "TERM")


def _signalled(door: str, variables: Mapping[str, str], arguments: Sequence[str], moment: Moment, name: str) -> Ended:
    injected = f"--inject={moment.call}:signal={name}:when={moment.number}"
    return _traced(door, variables, arguments, "-e", f"trace={moment.call}", injected)[0]


def disturbed(door: str, variables: Mapping[str, str], arguments: Sequence[str], call: str, effect: str, when: str) -> tuple[Ended, int]:
    """Runs the door with ``--inject=call:effect:when=when`` ("error=ENOBUFS", "3+"); how it ended, and how many calls were disturbed."""
    ended, lines = _traced(door, variables, arguments, "-e", f"trace={call}", f"--inject={call}:{effect}:when={when}")
    return ended, sum("(INJECTED)" in line for line in lines)


def counted(door: str, variables: Mapping[str, str], arguments: Sequence[str], call: str) -> int:
    """Runs the door undisturbed, which must succeed; how often it does the system call, every time: of recvfrom see ``answers``."""
    ended, lines = _traced(door, variables, arguments, "-yy", "-e", f"trace={'sendto,recvfrom' if call == 'recvfrom' else call}")
    assert ended.status == 0, ended
    return answers(lines) if call == "recvfrom" else sum(line.startswith(f"{call}(") for line in lines)


def calls(door: str, variables: Mapping[str, str], arguments: Sequence[str], call: str) -> list[Moment]:
    """Run the door undisturbed, which must succeed; give every system call of this name."""
    ended, lines = _traced(door, variables, arguments, "-e", f"trace={call}")
    assert ended.status == 0, ended
    made = (line.partition("(")[2] for line in lines if line.startswith(f"{call}("))
    return [Moment(call, number, rest) for number, rest in enumerate(made, 1)]


def so_far() -> list[str]:
    """Give the lines of the trace that is being written, none where there is none."""
    try:
        return Path(TRACE).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def answers(lines: Sequence[str]) -> int:
    """Count how often the process of the trace (sendto, recvfrom) receives at least, however what comes is cut into pieces.

    A datagram is received whole. Of a stream's answer only the first piece counts: the load of the machine decides how many there are.
    """
    asked, found = set[str](), 0
    for line in lines:
        call, _, rest = line.partition("(")
        place = rest.partition(",")[0].partition("->")[0].rstrip("]>")  # the peer is not known before it has accepted
        if call == "sendto":
            asked.add(place)
        elif call == "recvfrom" and ("-STREAM:" not in place or place in asked):
            asked.discard(place)
            found += 1
    return found


def door_of(name: str) -> str:
    """The file that does a door's work: what the launcher hands over to an agent is not done by the process that is traced.

    A path is the program itself.
    """
    if os.path.isabs(name):
        return name
    cold = HOOKS / "cold" / name
    return str(cold if cold.exists() else HOOKS / name)


def _traced(door: str, variables: Mapping[str, str], arguments: Sequence[str], *options: str) -> tuple[Ended, list[str]]:
    argv = ["strace", "-qq", "-o", TRACE, *options, door_of(door), *arguments]
    environment = {**BASE, **variables}
    try:
        done = subprocess.run(
            argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * slowness(), check=False
        )
        return Ended(done.returncode, done.stderr), Path(TRACE).read_text(errors="replace").splitlines()
    finally:
        Path(TRACE).unlink(missing_ok=True)


def orphans() -> list[str]:
    """What a killed hook had started and is still at work: processes of this PID namespace below its first that are not ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (1, os.getpid(), os.getppid()):
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if any(name in command for name in ("ovs-ofctl", "/ifup.d/", "/ifdown.d/")):
            found.append(command)
    return found
