"""Run a little guest under QEMU that can be moved: its process, its monitor (QMP), and how it is moved from one process to another.

The calling thread's node is where it runs. The monitor is reached from everywhere. Emulated (TCG): a machine for tests may have no KVM.
What runs in it is little.c: it answers echo requests and lines on its console.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.netns import run, slowness, wait_until

QEMU = "/usr/bin/qemu-system-x86_64"
MACHINE = ("-machine", "pc,accel=tcg", "-m", "4", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
SOURCE = Path(__file__).with_name("little.c")
COMPILED = ("-m32", "-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-pic", "-fno-stack-protector", "-mgeneral-regs-only")
LINKED = ("-fno-asynchronous-unwind-tables", "-nostdlib", "-static", "-Wl,-N,-Ttext=0x100000,--build-id=none,--no-warn-rwx-segments")


def little(folder: Path) -> Path:
    """Give what a guest boots."""
    made = folder / "little"
    run("cc", *COMPILED, *LINKED, "-o", str(made), str(SOURCE))
    return made


class Monitor:
    """Speak QMP (docs/interop/qmp-spec.txt of QEMU): one command at a time; events that come meanwhile are kept."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._read(10, "QMP")
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: object) -> Any:
        """Give the answer to a command. Raises AssertionError where it is refused."""
        said = {"execute": command} | ({"arguments": arguments} if arguments else {})
        self._socket.sendall(json.dumps(said).encode() + b"\n")
        while True:
            answer = self._read(30, "return")
            if "event" not in answer:
                assert "return" in answer, f"{command}: {answer}"
                return answer["return"]
            self._events.append(answer)

    def event(self, name: str, seconds: float = 30) -> float:
        """Wait for an event, and say when it was (time.time())."""
        limit = time.monotonic() + seconds * slowness()
        while True:
            for event in [each for each in self._events if each["event"] == name]:
                self._events.remove(event)
                return float(event["timestamp"]["seconds"] + event["timestamp"]["microseconds"] / 1e6)
            self._events.append(self._read(limit - time.monotonic(), name))

    def _read(self, seconds: float, what: str) -> dict[str, Any]:
        limit = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = limit - time.monotonic()
            assert left > 0 and select.select([self._socket], [], [], left)[0], f"QEMU does not say {what!r}: {self._events}"
            data = self._socket.recv(1 << 16)
            assert data, f"QEMU has ended before it has said {what!r}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self._socket.close()


class Qemu:
    """Run one process of QEMU's, with a guest that has an ``address`` of IPv4. ``monitor`` is there when it has started.

    ``folder``: where its own files are; ``kernel``: see ``little``; ``netdev``: how it has the network ("tap,fd=7"); ``more``: arguments.
    """

    def __init__(self, folder: Path, kernel: Path, address: str, mac: str, netdev: str, *more: str) -> None:
        folder.mkdir(exist_ok=True)
        self._qmp, self._log = folder / "qmp", folder / "log"
        self._argv = [QEMU, *MACHINE, "-kernel", str(kernel), "-append", address, "-qmp", f"unix:{self._qmp},server=on,wait=off"]
        self._argv += ["-netdev", f"{netdev},id=net0", "-device", f"ne2k_isa,netdev=net0,mac={mac},iobase=0x300,irq=9", *more]
        self._process: subprocess.Popen[bytes] | None = None
        self._monitor: Monitor | None = None

    def start(self, descriptors: Iterable[int] = ()) -> None:
        """Run it. ``descriptors``: those that it is to have."""
        self._qmp.unlink(missing_ok=True)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", pass_fds=list(descriptors)
            )
        wait_until(self._answers, 30, f"QEMU is there: {self._log.read_text()}")

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self._monitor = Monitor(self._qmp)
        return self._monitor is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def monitor(self) -> Monitor:
        assert self._monitor is not None, "it has not started"
        return self._monitor

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a warning, if it runs: no downscript is called."""
        if self._process is not None:
            self._process.kill()
        self.ended()

    def quit(self) -> None:
        """End it as its administrator does."""
        with contextlib.suppress(AssertionError, OSError):
            self.monitor.ask("quit")
        self.ended()

    def ended(self) -> None:
        """Wait until it has ended."""
        if self._process is not None:
            self._process.wait(30 * slowness())
            self._process = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def sends(self, where: str) -> None:
        """Begin to send the guest to a QEMU that waits there ("tcp:ADDRESS:PORT")."""
        self.monitor.ask("migrate", uri=where)

    def slowly(self) -> None:
        """Let a migration take half a minute, so that something may happen meanwhile."""
        self.monitor.ask("migrate-set-parameters", **{"max-bandwidth": 16384})

    def status(self) -> str:
        """Say how far that is: "active", "completed", "failed"..., as QEMU calls it."""
        return str(self.monitor.ask("query-migrate").get("status", "none"))

    def sent(self, seconds: float = 60) -> None:
        """Wait until it is there."""
        wait_until(lambda: self.status() not in ("none", "setup", "active", "device", "pre-switchover"), seconds, "the guest has gone")
        assert self.status() == "completed", self.monitor.ask("query-migrate")

    def runs(self) -> bool:
        return bool(self.monitor.ask("query-status")["running"])
