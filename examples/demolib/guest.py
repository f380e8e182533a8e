"""One guest of the demonstration: its NIC, its QEMU process, its console, and the ways to end it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.demolib.image import Image
from examples.demolib.plans import Plan

QEMU = "/usr/bin/qemu-system-x86_64"

#: Where a guest's files lie: in the node's own /run.
RUN = Path("/run/demo")


class Guest:
    """A guest under QEMU, whose NIC goes through the hooks of ``hooks`` as anybody's QEMU would call them."""

    def __init__(
        self, plan: Plan, image: Image, hooks: Path, inside: Sequence[str] = (), root: str = "", variables: Mapping[str, str] | None = None
    ) -> None:
        """``inside``: the command that runs another one on the guest's node, whose files are below ``root``; where it is not this one.

        ``variables``: what its hypervisor says to the hooks, if it says more than the name of the tap.
        """
        self.plan, self._variables = plan, variables
        files = {kind: RUN / f"{plan.name}.{kind}" for kind in ("console", "log", "qmp")}
        self._files = {kind: Path(f"{root}{path}") for kind, path in files.items()}
        words = {"GUEST_ADDRESSES": plan.address, "GUEST_GATEWAY": plan.gateway, "GUEST_PINGS": ",".join(plan.pings)}
        words |= {"GUEST_WATCH": plan.watch} if plan.watch else {}
        # no_timer_check: on a busy machine an emulated timer may tick too late for the kernel's check, which then panics.
        append = " ".join(["console=ttyS0", "quiet", "panic=-1", "no_timer_check", *(f"{name}={value}" for name, value in words.items())])
        self.netdev = f"tap,id=net0,ifname={plan.tap},script={hooks}/kvm-ifup,downscript={hooks}/kvm-ifdown"
        self._command = [
            *inside,
            QEMU,
            "-name",
            plan.name,
            "-machine",
            "q35",
            "-accel",
            "tcg",
            "-m",
            "96",
            "-nodefaults",
            "-no-user-config",
        ]
        self._command += ["-display", "none", "-no-reboot"]
        self._command += ["-serial", f"file:{files['console']}", "-qmp", f"unix:{files['qmp']},server=on,wait=off"]
        self._command += ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", append]
        self._command += ["-netdev", self.netdev, "-device", f"virtio-net-pci,netdev=net0,mac={plan.mac},romfile="]
        self._started = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts QEMU, which calls the hook and then boots; returns at once."""
        self._started = time.monotonic()
        self._files["console"].unlink(missing_ok=True)  # what it said when it ran before
        with self._files["log"].open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=self._variables)

    def ended(self) -> bool:
        """Whether QEMU is not running any more."""
        return self.status() is not None

    @property
    def age(self) -> float:
        """Seconds since QEMU was started."""
        return time.monotonic() - self._started

    def read(self, kind: str) -> str:
        """The guest's "console", or the "log" of QEMU with what the hooks wrote to stderr."""
        try:
            return self._files[kind].read_bytes().decode("ascii", "replace").replace("\r", "")
        except FileNotFoundError:
            return ""

    def said(self, text: str) -> bool:
        """Whether the guest reported a line that begins with ``text``."""
        return f"\nguest: {text}" in "\n" + self.read("console")

    @property
    def reaches(self) -> bool | None:
        """Whether the address that the guest watches has answered it the last time; None before it has tried."""
        found = re.findall(r"^guest: reaches \S+ (yes|no)$", self.read("console"), re.MULTILINE)
        return found[-1] == "yes" if found else None

    def unanswered(self) -> list[str]:
        """The addresses that the guest pinged without an answer, or has not pinged."""
        answered = re.findall(r"^guest: ping (\S+) yes$", self.read("console"), re.MULTILINE)
        return [target for target in self.plan.pings if target not in answered]

    def press_power_button(self) -> None:
        """ACPI powerdown, through QEMU's monitor protocol (QMP). Raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as monitor:
            monitor.settimeout(10)
            monitor.connect(str(self._files["qmp"]))
            with monitor.makefile("rw") as stream:
                stream.readline()
                for verb in ("qmp_capabilities", "system_powerdown"):
                    stream.write(json.dumps({"execute": verb}) + "\n")
                    stream.flush()
                    stream.readline()

    def kill(self) -> None:
        """SIGKILL: no downscript is called."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)

    def status(self) -> int | None:
        """QEMU's exit status, None while it runs."""
        return None if self._process is None else self._process.poll()
