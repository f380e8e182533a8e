"""A real agent for tests: the process, as systemd starts it but for its sandbox, in the calling thread's namespaces.

with agent() as running:
    ...
    running.restart(signal.SIGKILL)
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from netagent.dispatcher import THREADS
from netagent.hooks.server import SPARE
from netagent.observe.control import ask
from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.check import check
from netcommon.lifecycle.context import Clock, open_node
from netcommon.lifecycle.context import Node as OurNode
from netcommon.settings.model import Settings
from runtime.errors import TryAgain
from runtime.paths import Paths
from runtime.record import Record
from tests.support.bootstrap import ROOT, VENV
from tests.support.netns import slowness, wait_until, waited

PYTHON = str(VENV / "bin/python")
COMMAND = (PYTHON, "-m", "netagent", "-v")


class Agent:
    """A running agent. ``environment``: more variables for it."""

    def __init__(self, environment: Mapping[str, str] | None = None, command: Sequence[str] = COMMAND) -> None:
        self._environment, self._command = dict(environment or {}), list(command)
        self._folder = tempfile.mkdtemp(prefix="netcommon-agent-")
        self._process: subprocess.Popen[bytes] | None = None
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind(f"{self._folder}/notify")

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has logged since the first start, one line each."""
        with open(f"{self._folder}/output", encoding="utf-8", errors="replace") as file:
            return file.read()

    def start(self, seconds: float = 20) -> None:
        """Returns when it says that it is ready (sd_notify(3)). Raises AssertionError with its output if it ends, or is not in time."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NOTIFY_SOCKET": f"{self._folder}/notify",
            **self._environment,
        }
        with open(f"{self._folder}/output", "ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, umask=0o077
            )
        limit = time.monotonic() + seconds * slowness()
        self._notified.settimeout(0.05)
        while True:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in self._notified.recv(4096).split(b"\n"):
                    return
            assert self._process.poll() is None, f"the agent ended with status {self._process.returncode}:\n{self.output}"
            assert time.monotonic() < limit, f"the agent is not ready:\n{self.output}"

    def took(self, condition: Callable[[], object], limit: float = 5, what: str = "") -> float:
        """Give the seconds until ``condition`` is true, in those of a machine that has nothing else to do.

        What the agent was kept from a processor meanwhile does not count, nor does how busy the machine is at the end: the greater of
        the two. Raises AssertionError at the limit.
        """
        pid, before = self.pid, waited(self.pid)
        clock = seconds_until(condition, limit, f"{what}\n{self.output}")
        return min(clock - (waited(pid) - before), clock / contention())

    def lasts(self, seconds: float) -> None:
        """Leave it alone for so long. Raises AssertionError where it ends meanwhile."""
        assert self._process is not None, "it does not run"
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"it ended with {self._process.wait(seconds)}:\n{self.output}")

    def stop(self, number: int = signal.SIGTERM, seconds: float = 10) -> int:
        """Ends it; its exit status, negative for a signal."""
        assert self._process is not None, "it does not run"
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            return process.wait(seconds * slowness())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"signal {number} did not end the agent:\n{self.output}") from None
        finally:
            self._drain()

    def _drain(self) -> None:
        """What the one that ended has said is not said by the next."""
        self._notified.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self._notified.recv(4096):
                pass

    def restart(self, number: int = signal.SIGTERM) -> None:
        """Ends it, by SIGKILL if that is given, and starts it anew."""
        self.stop(number)
        self.start()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def waited(self) -> float:
        """Give the seconds for which it has waited for a processor."""
        return waited(self.pid)

    def logged(self, text: str, times: int = 1, seconds: float = 5) -> None:
        """Waits until it has logged lines with ``text`` so often."""
        wait_until(lambda: self.output.count(text) >= times, seconds, f"{times} lines with {text!r} in\n{self.output}")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGKILL)
        self._notified.close()
        for name in os.listdir(self._folder):
            os.unlink(f"{self._folder}/{name}")
        os.rmdir(self._folder)

    def surveys(self) -> int:
        """How many snapshots of the host it has looked at."""
        return int(self.status()["agent"]["surveys"])

    def looks(self) -> int:
        """How many single records it has looked at."""
        return int(self.status()["agent"]["looks"])

    def status(self) -> dict[str, Any]:
        """Its answer to ``netcommon agent status --json``."""
        found: dict[str, Any] = dict(ask("/run/netcommon", LinuxHost().identity().netns))
        return found

    def rested(self, seconds: float = 20) -> Agent:
        """Waits until it has nothing to do; what it does first of all is done by then."""
        wait_until(self._rests, seconds, self.output)
        return self

    def _rests(self) -> bool:
        said = self.status()["agent"]
        compared = isinstance(said["seconds since all was compared"], int | float)
        return compared and not said["work waiting"] and not said["work running"]

    # -- what it needs of the machine

    @property
    def memory(self) -> int:
        """Resident bytes."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu(self) -> float:
        """Seconds of user and system time since its start."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def descriptors(self) -> int:
        """How many it has open."""
        return len(self._open())

    @property
    def nodes(self) -> int:
        """How many of its threads, and of the calls it serves, have had a host and records to work with: these stay open for the next."""
        return self._open().count("/run/netcommon")

    def _open(self) -> list[str]:
        folder, found = f"/proc/{self.pid}/fd", []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.append(os.readlink(f"{folder}/{name}"))
        return found


#: What a node (see Agent.nodes) opens as it is needed: five folders of records and the one they are in, and a socket each for
#: rtnetlink, nfnetlink, OVSDB and syslog.
NODE_DESCRIPTORS = 10

#: As many nodes as an agent may have: its workers', those kept for hooks' calls, and its own.
MOST_NODES = THREADS + SPARE + 1


@contextlib.contextmanager
def agent(environment: Mapping[str, str] | None = None, settings: str = "", command: Sequence[str] = COMMAND) -> Iterator[Agent]:
    """An agent that is ready, for as long as it lasts. ``settings``: the text of /etc/netcommon/config.toml, if there is to be one."""
    if settings:
        with open("/etc/netcommon/config.toml", "w", encoding="utf-8") as file:
            file.write(settings)
    made = Agent(environment, command)
    try:
        made.start()
        yield made
    finally:
        made.close()


def contention() -> float:
    """How many times longer work takes now than on a machine of its own: of a short calculation the time on the clock by that used."""
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.02:
        pass
    return max((time.monotonic() - began) / 0.02, 1.0)


def seconds_until(condition: Callable[[], object], limit: float = 5, what: str = "", pause: float = 0.0005) -> float:
    """Poll every ``pause`` seconds until ``condition`` is true, and say how long that took. Raises AssertionError at the limit."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit * slowness():
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(pause)
    return time.monotonic() - start


class Watched:
    """The library's own look at the node, kept open: it is asked again and again while the agent works."""

    def __init__(self, node: OurNode) -> None:
        self.node = node

    @property
    def records(self) -> dict[str, Record]:
        return {record.device: record for record in self.node.store.all()[0]}

    def drift(self, device: str = "tap0") -> list[str]:
        """Say what does not hold of the NIC on ``device``; a daemon that is not back yet tells nothing."""
        try:
            report = check(self.node, self.node.host.view(), self.records[device])
        except TryAgain as error:
            return [str(error)]
        return [f"{step}: {text}" for step, text in report.drift]

    def mended(self, damage: Callable[[], object], device: str = "tap0", limit: float = 5) -> float:
        """Does ``damage``, which must be seen, and waits until all holds again: seconds since its end."""
        damage()
        begun = time.monotonic()
        while self.drift(device):
            assert time.monotonic() - begun < limit * slowness(), f"not within {limit} s: {self.drift(device)}"
            time.sleep(0.0005)
        return time.monotonic() - begun


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """See Watched."""
    made = open_node(Paths(), Settings(), Clock())
    try:
        yield Watched(made)
    finally:
        made.store.close()
        made.host.close()
