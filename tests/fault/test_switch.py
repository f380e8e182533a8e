"""ovsdb-server or ovs-vswitchd that does not answer (SIGSTOP), or is gone: before a hook begins, at each word between them, and after it.

The hook comes back within the limit of a service, with an exit status that is true; when the daemon is there again, one gc, the next up,
or a repair leaves what an undisturbed run does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import Call
from netcommon.log import recording
from runtime.errors import TryAgain
from tests.kernel.test_doors_parallel import collect, environment, leftovers
from tests.support import figures, strace
from tests.support.cases import SWITCHED, Host, network
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.ovs import RUN, OpenVswitch
from tests.support.routed import ours
from tests.support.rundoor import BASE, rundoor
from tests.support.sample import FULL, sample
from tests.support.snapshot import diff, snapshot

#: What is said of a limit on a switch in user space, which is the one that the running kernel can do.
UNLIMITED = "rate_out is not enforced: the datapath of"
NICS = {"plain": SWITCHED, "guarded": {**SWITCHED, "IP": "10.0.0.5", "TAGS": "netcommon:*:rate_out:4mbit"}}
DAEMONS = ("ovsdb-server", "ovs-vswitchd")
PLIGHTS = ("frozen", "gone")
DOORS: Mapping[str, tuple[str, ...]] = {"kvm-ifup": ("tap0",), "kvm-ifdown": ("tap0", "hot-remove")}

#: The limit of a service in the sweeps, and of a hook (seconds); the second is the default, which a full run waits for.
LIMIT, DEFAULT = 1.0, 10.0 if FULL else 1.0
WORDS = "connect,sendto,recvfrom"


class Point(NamedTuple):
    """One fault: which daemon, how, and before which system call of the hook (none: before it begins)."""

    daemon: str
    plight: str
    call: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"{self.daemon} {self.plight} {f'at {self.call} {self.number}' if self.call else 'before'}"


def _manages() -> bool:
    with socket.socket(socket.AF_UNIX) as made:
        try:
            made.connect(f"{RUN}/ovs0.mgmt")
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


class Switched:
    """A node with Open vSwitch, and one NIC on it."""

    def __init__(self, node: Node, ovs: OpenVswitch, nic: str) -> None:
        ovs.bridge("ovs0")
        ovs.vsctl("set", "Bridge", "ovs0", "other-config:hwaddr=02:00:00:00:00:01")
        self.limited(DEFAULT)
        self.ovs, self.nic = ovs, environment(0, **NICS[nic])
        self.host = Host(node, self.nic)
        self.failures: list[str] = []
        self.longest = 0.0
        self.usual = sum(rundoor(door, self.nic, *DOORS[door]).seconds for door in DOORS)

    def limited(self, seconds: float) -> None:
        Path("/etc/netcommon/config.toml").write_text(f"[hook]\nservice_timeout = {seconds}\n")

    def strike(self, point: Point) -> None:
        (self.ovs.freeze if point.plight == "frozen" else self.ovs.kill)(point.daemon)

    def heal(self, point: Point) -> None:
        """The daemon is there again, as after systemd has started it."""
        if point.plight == "frozen":
            self.ovs.thaw(point.daemon)
            self.ovs.vsctl("--timeout=60", "set", "Open_vSwitch", ".", "external_ids:thawed=again")  # the switch has done what had waited
        elif point.daemon == "ovsdb-server":
            self.ovs.start_database()
            self.ovs.vsctl("--timeout=60", "set", "Open_vSwitch", ".", "external_ids:started=again")  # the switch has found it again
        else:
            self.ovs.start_switch()
            wait_until(lambda: os.path.exists("/sys/class/net/ovs0"), 5, "ovs0")
            run("ip", "link", "set", "ovs0", "up")
        wait_until(_manages, 10, "the switch lets ovs0 be managed")  # of its database it says so a moment before

    def disturbed(self, door: str, point: Point) -> tuple[int, str, float]:
        """Runs the door with the fault: status, stderr, seconds."""
        if not point.call:
            self.strike(point)
            outcome = rundoor(door, self.nic, *DOORS[door])
            return outcome.status, outcome.stderr, outcome.seconds
        return paused(door, self.nic, DOORS[door], point, lambda: self.strike(point))

    def judge(self, door: str, point: Point, limit: float, way: str) -> None:
        """One point, and all of it set right again."""
        if door == "kvm-ifdown":
            self.host.up()
        self.limited(limit)
        status, stderr, seconds = self.disturbed(door, point)
        self.limited(DEFAULT)
        self.heal(point)
        self.longest = max(self.longest, seconds)
        wrong = []
        # what a hook takes anyway, on a machine that does other things as well
        if seconds > limit + 1 + 3 * self.usual:
            wrong.append(f"took {seconds:.1f} s of {limit:g}")
        said = [line for line in stderr.splitlines() if UNLIMITED not in line]
        if status not in (0, 69, 75) or (status == 0) == bool(said):
            wrong.append(f"status {status} and {stderr!r}")
        if door == "kvm-ifup" and status == 0:
            mended()
            wrong += diff(self.host.whole, network())
        elif way == "up":
            self.host.up()
            wrong += diff(self.host.whole, network())
        else:
            collect()
        self.down_again(point)
        wrong += [*leftovers(), *diff(self.host.bare, snapshot())]
        if wrong:
            self.failures.append(f"{door}, {point}, then {way}: {wrong}: {stderr}")
            run("ip", "link", "set", "tap0", "down")  # the next point begins as this one did

    def down_again(self, point: Point) -> None:
        """And what ovs-vswitchd has left on the device that it had opened is undone for it.

        One that is killed leaves it promiscuous; one that was frozen writes back all flags as it had read them before, IFF_UP too.
        """
        self.host.down()
        run("ip", "link", "set", "tap0", "promisc", "off")
        if point.daemon == "ovs-vswitchd" and point.plight == "frozen":
            run("ip", "link", "set", "tap0", "down")


def paused(
    door: str, variables: Mapping[str, str], arguments: Sequence[str], point: Point, then: Callable[[], None]
) -> tuple[int, str, float]:
    """Runs the door, halts it at the system call, does ``then``, lets it go on: status, stderr, seconds since then."""
    argv = ["strace", "-qq", "-o", strace.TRACE, "-e", f"trace={point.call}", f"--inject={point.call}:signal=STOP:when={point.number}"]
    tracer = subprocess.Popen(
        [*argv, strace.door_of(door), *arguments],
        env={**BASE, **variables},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: tracer.poll() is not None or "stopped by SIGSTOP" in traced(), 20, str(point))
        then()
        start = time.monotonic()
        if tracer.poll() is None:
            (child,) = Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children").read_text().split()
            os.kill(int(child), signal.SIGCONT)
        _, stderr = tracer.communicate(timeout=60 * slowness())
        return tracer.returncode, stderr, time.monotonic() - start
    finally:
        tracer.kill()
        tracer.wait()
        Path(strace.TRACE).unlink(missing_ok=True)


def traced() -> str:
    try:
        return Path(strace.TRACE).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def mended() -> None:
    """netcommon repair of what a daemon's end has taken (flows), if it has; it says so while the switch does not listen yet."""
    wait_until(_mended, 10, "the repair")


def _mended() -> bool:
    with ours() as node:
        log, _lines = recording()
        for record in node.store.all()[0]:
            try:
                repair(node, record.key, Call(log, node.clock.now() + 30))
            except TryAgain:
                return False
            report = check(node, node.host.view(), record)
            assert not report.drift, report
    return True


def words(door: str, nic: Mapping[str, str]) -> list[tuple[str, int]]:
    """The system calls of an undisturbed run by which it speaks with Open vSwitch: each by its name and number."""
    ended, lines = strace._traced(door, nic, DOORS[door], "-y", "-e", f"trace={WORDS}")
    assert ended.status == 0, ended
    counts: dict[str, int] = {}
    found = []
    for line in lines:
        call, bracket, rest = line.partition("(")
        if not bracket or call not in WORDS:
            continue
        counts[call] = counts.get(call, 0) + 1
        if "UNIX" in rest.partition(">")[0] or "AF_UNIX" in rest:
            found.append((call, counts[call]))
    return found


@pytest.mark.parametrize("nic", NICS)
def test_silent_or_gone_before_and_during(node: Node, ovs: OpenVswitch, nic: str) -> None:
    """A default run tries a few points of each door."""
    switched = Switched(node, ovs, nic)
    before = [Point(daemon, plight) for daemon in DAEMONS for plight in PLIGHTS]
    spoken = {"kvm-ifup": words("kvm-ifup", switched.nic), "kvm-ifdown": words("kvm-ifdown", switched.nic)}
    assert all(len(found) > 5 for found in spoken.values()), spoken
    tried = 0
    for shift, door in enumerate(DOORS):
        points = [(point, DEFAULT) for point in (before if FULL else before[shift + (nic == "guarded") : 4 : 2])]
        during = [Point(daemon, plight, *word) for word in spoken[door] for daemon in DAEMONS for plight in PLIGHTS]
        points += [(point, LIMIT) for point in sample(during[1 - shift :], 2 if nic == "guarded" else 1)]
        for position, (point, limit) in enumerate(points):
            switched.judge(door, point, limit, "up" if position % 2 else "gc")
            tried += 1
    note = f"longest {switched.longest:.1f} s at a limit of {DEFAULT:g} s"
    figures.add("ovs", tried, len(switched.failures), len(switched.failures), note)
    print(f"{tried} points, {note}")
    assert not switched.failures, "\n".join(switched.failures)


def test_silent_or_gone_after_an_up(node: Node, ovs: OpenVswitch) -> None:
    """Without the agent: a repair brings back what went with the daemon, and a down undoes all."""
    switched = Switched(node, ovs, "guarded")
    for daemon, plight in sample([(daemon, plight) for daemon in DAEMONS for plight in PLIGHTS][::-1], 1):
        point = Point(daemon, plight)
        switched.host.up()
        switched.strike(point)
        switched.heal(point)
        mended()
        assert diff(switched.host.whole, network()) == []
        switched.down_again(point)
        assert diff(switched.host.bare, snapshot()) == []
        figures.add("ovs", 1, 0, 0)
