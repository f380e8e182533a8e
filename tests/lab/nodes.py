"""The laboratory's nodes: commands within them, a watch on each, and the agent.

What a laboratory is to offer: a folder with a lib.sh that defines node_exec NODE COMMAND... for the nodes node1 (the master), node2 and
wire (the network around them), each with mount, PID and network namespaces of its own and this checkout visible under its own path.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.bootstrap import ROOT, VENV

PYTHON = str(ROOT / "tests/support/python")
NETCOMMON = str(VENV / "bin/netcommon")
METRICS = "/run/netcommon-lab.metrics"
SETTINGS = f'[agent]\nmetrics_listen = "{METRICS}"\n'
EVENTS = ("stop", "remove", "migrate", "failover", "modify", "reboot")
PIDS = "/run/ganeti/kvm-hypervisor/pid"
CONTROL = "/run/ganeti/kvm-hypervisor/ctrl"


class Failed(Exception):
    """Something did not go as it should; the text says what."""


def until(what: str, seconds: float, met: Callable[[], bool], pause: float = 0.05) -> float:
    """Waits for a condition; how long it took. Raises Failed."""
    begin = time.monotonic()
    while not met():
        if time.monotonic() > begin + seconds:
            raise Failed(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
    return time.monotonic() - begin


class Watch:
    """What tests.lab.watch tells."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        until("the watch listens", 20, lambda: bool(self.told))

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.told.append(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)


class Node:
    """One node."""

    def __init__(self, laboratory: str, name: str, log: str) -> None:
        self._within = ["bash", "-c", f'. {shlex.quote(laboratory)}/lib.sh; node_exec "$@"', "node", name]
        self.name, self._log = name, log
        self.settings = SETTINGS  #: of its config.toml, as ``install`` writes it
        self._agent: subprocess.Popen[bytes] | None = None
        self._mounted = ""
        # the namespace's first process, as seen from here: through it we see the node's files and sockets
        at = self.run("readlink", "/proc/self/ns/mnt").strip()
        within = [entry for entry in os.listdir("/proc") if entry.isdecimal() and _link(f"/proc/{entry}/ns/mnt") == at]
        self.init = int(next(entry for entry in within if _is_first(entry)))  # numbers begin anew: it need not have the lowest
        self._root = f"/proc/{self.init}/root"
        self.watch: Watch | None = None

    def command(self, *command: str) -> list[str]:
        return [*self._within, *command]

    def attempt(self, *command: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs a command in the node, whatever its exit status."""
        given = self.command(*command)
        return subprocess.run(given, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False)

    def run(self, *command: str, seconds: float = 300) -> str:
        """The output of a command that is to succeed. Raises Failed."""
        done = self.attempt(*command, seconds=seconds)
        if done.returncode:
            raise Failed(f"{self.name}: {shlex.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def path(self, within: str) -> str:
        """A path in the node, as it is to be opened from here."""
        return self._root + within

    # -- what is under test

    def install(self, hooks: bool) -> None:
        """Our kvm-ifup in place of Ganeti's, for this node alone, and nothing for the way down; ``hooks``: Ganeti's own hooks too."""
        scripts = self.run("readlink", "-f", "/usr/lib/ganeti/default/usr/lib/ganeti").strip()
        door = 'printf \'#!/bin/sh\\nexec %s "$@"\\n\' "$1" >/srv/netcommon-lab && chmod 755 /srv/netcommon-lab'
        mount = 'mount --bind /srv/netcommon-lab "$2"/kvm-ifup'
        self.run("sh", "-c", f"{door} && {mount}", "-", str(ROOT / "hooks/kvm-ifup"), scripts)
        self._mounted = f"{scripts}/kvm-ifup"
        self.configure(self.settings)
        for event in EVENTS if hooks else ():
            folder = f"/etc/ganeti/hooks/instance-{event}-post.d"
            self.run("sh", "-c", f"mkdir -p {folder} && ln -sfn {shlex.quote(str(ROOT / 'hooks/ganeti-hook'))} {folder}/netcommon")

    def configure(self, text: str) -> None:
        """Write its config.toml; who is to take it is not told."""
        self.settings = text
        self.run("sh", "-c", 'mkdir -p /etc/netcommon && printf %s "$1" >/etc/netcommon/config.toml', "-", text)

    def uninstall(self) -> None:
        for event in EVENTS:
            self.attempt("rm", "-f", f"/etc/ganeti/hooks/instance-{event}-post.d/netcommon")
        if self._mounted:
            self.run("umount", self._mounted)
            self._mounted = ""
        self.attempt("sh", "-c", "rm -f /srv/netcommon-lab /etc/netcommon/config.toml && rmdir /etc/netcommon")

    def start(self) -> None:
        """The watch, and the agent by hand."""
        self.watch = Watch(self.command(PYTHON, "tests.lab.watch"))
        with open(self._log, "ab") as log:
            self._agent = subprocess.Popen(
                self.command(NETCOMMON, "-v", "agent", "run"), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        until(f"{self.name}: the agent runs", 30, lambda: self.attempt(NETCOMMON, "agent", "status").returncode == 0, 0.2)

    def stop(self) -> None:
        """Ends the agent and the watch. Raises Failed where the agent ends with another status than 0."""
        if self.watch:
            self.watch.close()
            self.watch = None
        if self._agent:
            self.signal(signal.SIGTERM, int(self.agent_status()["pid"]))
            status, self._agent = self._agent.wait(20), None
            if status:
                raise Failed(f"{self.name}: the agent ended with status {status}")

    def agent_status(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.attempt(NETCOMMON, "agent", "status", "--json").stdout)
        return said

    def metrics(self) -> dict[str, float]:
        """What the agent counts, by name and labels as they are printed."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(self.path(METRICS))
            asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            data = b""
            while more := asked.recv(1 << 16):
                data += more
        lines = data.decode().partition("\r\n\r\n")[2].splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}

    # -- what is there

    def leftovers(self) -> list[str]:
        return self.run(PYTHON, "tests.lab.leftovers").split("\n")[:-1]

    def records(self) -> dict[str, dict[str, Any]]:
        """The records by UUID, read from their files."""
        folder, found = self.path("/run/netcommon/nics"), {}
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            with contextlib.suppress(FileNotFoundError), open(f"{folder}/{name}", encoding="utf-8") as file:
                found[name.removesuffix(".json")] = json.load(file)
        return found

    def check(self) -> str:
        """What has drifted, "" if nothing has."""
        done = self.attempt(NETCOMMON, "check")
        return "" if done.returncode == 0 else done.stdout + done.stderr

    # -- QEMU

    def qemu(self, instance: str) -> int:
        """The process of an instance, by its number in the node; 0: it does not run here."""
        try:
            with open(self.path(f"{PIDS}/{instance}"), encoding="ascii") as file:
                pid = int(file.read())
        except (FileNotFoundError, ValueError):
            return 0
        return pid if os.path.exists(self.path(f"/proc/{pid}/exe")) else 0

    def signal(self, number: int, pid: int) -> None:
        self.run("kill", f"-{number}", str(pid))

    def monitor(self, instance: str, command: str) -> None:
        """A command of QEMU's monitor."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(5)
            asked.connect(self.path(f"{CONTROL}/{instance}.monitor"))
            with contextlib.suppress(TimeoutError, ConnectionResetError):  # QEMU may be gone before it has answered
                for sent in (b"", command.encode() + b"\n"):
                    asked.sendall(sent)
                    said = b""
                    while b"\n(qemu) " not in said and (more := asked.recv(4096)):
                        said += more


def _is_first(entry: str) -> bool:
    """Tell whether a process is the first one of its PID namespace (proc_pid_status(5), NSpid)."""
    try:
        with open(f"/proc/{entry}/status", encoding="ascii", errors="replace") as file:
            return any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in file)
    except OSError:
        return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
