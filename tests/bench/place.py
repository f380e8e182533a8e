"""The node that is measured: bridge, uplink, Open vSwitch where that is asked for, Ganeti's scripts, our agent, and NICs that stay up."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.batch import up_all
from netcommon.lifecycle.context import Call, Clock, Outcome, open_node
from netcommon.log import Log, Recorder
from netcommon.settings.model import Settings
from runtime.environment import nic_from_environment
from runtime.paths import Paths
from tests.bench.nics import BRIDGE, KERNEL, SWITCH, SWITCHED, Measured
from tests.support.agent import Agent, agent
from tests.support.bootstrap import cache
from tests.support.netns import run, wait_until
from tests.support.node import Node, fresh
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import HOOKS

WARM = str(HOOKS)
COLD = str(HOOKS / "cold")
GANETI = "usr/lib/ganeti/3.0/usr/lib/ganeti"  #: within Debian's package ganeti-3.0
SCRIPTS = Path("/run/ganeti-scripts")
PORTS = 1000  #: of one bridge; it holds 1023
KEPT = 0xFF0000  #: the first number of those that stay up


class Spent(NamedTuple):
    """Milliseconds: on the clock; of CPU by the hook and the children it waited for; by the agent meanwhile; by the agent's children.

    The last are known in steps of a clock tick only: their mean says something, their median nothing.
    """

    wall: float
    cpu: float
    agent: float = 0.0
    children: float = 0.0


class Place:
    """A prepared node, in which the calling thread is."""

    def __init__(self, node: Node, running: Agent) -> None:
        self.node, self.agent = node, running
        self.host = LinuxHost()
        self._said = os.memfd_create("said")
        self._present: list[Measured] = []

    def close(self) -> None:
        self.host.close()
        os.close(self._said)

    # -- what a hook costs

    def start(self, argv: list[str], variables: Mapping[str, str]) -> int:
        """Starts a hook; its process id."""
        into = [(os.POSIX_SPAWN_DUP2, self._said, 1), (os.POSIX_SPAWN_DUP2, self._said, 2)]
        return os.posix_spawn(argv[0], argv, variables, file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *into])

    def said(self) -> str:
        """What the hooks have said; it is forgotten then."""
        os.lseek(self._said, 0, os.SEEK_SET)
        text = os.read(self._said, 4000).decode(errors="replace")
        os.ftruncate(self._said, 0)
        os.lseek(self._said, 0, os.SEEK_SET)
        return text

    def hook(self, argv: list[str], variables: Mapping[str, str]) -> Spent:
        """Runs one, and waits until the agent has nothing more to do. Raises RuntimeError if it fails."""
        agent, children = self.agent_cpu(), self._children()
        begin = time.perf_counter()
        pid = self.start(argv, variables)
        _pid, status, used = os.wait4(pid, 0)
        wall = time.perf_counter() - begin
        self.quiet()
        if status:
            raise RuntimeError(f"{' '.join(argv)}: exit {os.waitstatus_to_exitcode(status)}: {self.said()}")
        spent = (wall, used.ru_utime + used.ru_stime, self.agent_cpu() - agent, self._children() - children)
        return Spent(*(value * 1000 for value in spent))

    def agent_cpu(self) -> float:
        """Seconds that the agent has used, all of its threads: its CPU clock (clock_getcpuclockid(3)), since /proc counts in ticks."""
        return time.clock_gettime((~self.agent.pid << 3) | 2)

    def _children(self) -> float:
        """Seconds that programs have used that the agent ran, in ticks (proc_pid_stat(5), cutime and cstime)."""
        with open(f"/proc/{self.agent.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def quiet(self, seconds: float = 0.5) -> None:
        """Waits until the agent has used no CPU for 3 ms: what it makes of the events of the last call belongs to that."""
        limit, used = time.monotonic() + seconds, -1.0
        while (now := self.agent_cpu()) != used and time.monotonic() < limit:
            used = now
            time.sleep(0.003)

    def served(self) -> int:
        """How many calls of hooks the agent has served. Raises RuntimeError if it has handed any back: those were not warm."""
        said = self.agent.status()["agent"]
        if any(character.isdigit() for character in str(said["calls handed back"]).replace("0", "")):
            raise RuntimeError(f"the agent has handed calls back: {said['calls handed back']}")
        return int(said["calls served"])

    # -- what is there meanwhile

    def present(self, mode: str, count: int, guard: bool = True) -> None:
        """So many NICs of ``mode`` are up, besides those that are kept: more are made, by the library, in this process."""
        more = [
            Measured(mode, number, guard, f"br{number // PORTS}" if mode == "bridged" else "")
            for number in range(len(self._present), count)
        ]
        bridges = {one.link for one in more if one.link} - {BRIDGE} - {*os.listdir("/sys/class/net")}
        lines = [f"link add {name} type bridge forward_delay 0\nlink set {name} up" for name in sorted(bridges)]
        batch([*lines, *(f"tuntap add {one.tap} mode tap" for one in more)])
        self.bring_up(more)
        self._present += more
        self.agent.rested(120)

    def bring_up(self, wanted: Sequence[Measured]) -> None:
        """Raises RuntimeError unless each came up."""
        log = Log(Recorder())
        node = open_node(Paths(), Settings(), Clock())
        try:
            nics = [nic_from_environment(one.variables) for one in wanted]
            for nic, result in up_all(node, nics, lambda _nic: Call(log, time.monotonic() + 120)):
                if not (isinstance(result, Outcome) and result.changed):
                    raise RuntimeError(f"{nic.interface}: {result}")
        finally:
            node.store.close()
            node.host.close()


def batch(lines: Sequence[str]) -> None:
    """One ``ip -batch``."""
    run("ip", "-batch", "-", stdin="\n".join(lines) + "\n", timeout=600)


def ganeti() -> str:
    """Ganeti 3.0.2's kvm-ifup, copied below /run, with its own path in the place of /usr/lib/ganeti: nothing else is changed, and nothing
    is laid over /usr/lib, where Python and Perl live. Raises RuntimeError where tests/setup has not fetched it."""
    source = cache() / "packages/ganeti-3.0" / GANETI
    if not (source / "net-common").exists():
        raise RuntimeError(f"Ganeti's scripts, with which ours are compared, are not in {source}: tests/setup kernel fetches them")
    SCRIPTS.mkdir(exist_ok=True)
    shutil.copy(source / "net-common", SCRIPTS)
    script = SCRIPTS / "kvm-ifup"
    script.write_text((source / "kvm-ifup").read_text().replace("/usr/lib/ganeti/net-common", f"{SCRIPTS}/net-common"))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@contextlib.contextmanager
def prepared(switched: bool = False, kept: bool = True) -> Iterator[Place]:
    """The node, with an agent that is at rest. ``switched``: with Open vSwitch (userspace datapath), whose daemons wake at every change of
    a link, so the other modes do without. ``kept``: a guarded NIC of each mode stays up, as on any real node: the first one registers
    hooks with netfilter, which the kernel takes some 15 ms for."""
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(fresh())
        node.router()
        node.bridge(BRIDGE)
        if switched:
            stack.enter_context(OpenVswitch.started()).bridge(SWITCH)
        ganeti()
        running = stack.enter_context(agent())
        place = Place(node, running)
        stack.callback(place.close)
        if kept:
            modes = SWITCHED[:1] if switched else KERNEL[::2]
            keep = [Measured(mode, KEPT + number, guard=True) for number, mode in enumerate(modes)]
            for one in keep:
                node.tap(one.tap)
            place.bring_up(keep)
        running.rested(60)
        yield place


def until(condition: Callable[[], object], what: str) -> None:
    """Polls for what Open vSwitch does after its client has its answer."""
    wait_until(condition, 20, what)
