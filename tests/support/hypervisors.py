"""Move a guest by QEMU's own migration, as Ganeti's daemons do it with their KVM driver, and as somebody does who has QEMU alone.

In the order of hv_kvm of Ganeti 3.0.2, and of 3.2 where that calls more (/usr/share/ganeti/3.0/ganeti/hypervisor/hv_kvm; 3.2: "Redesign
KVM ifup logic and add optional ifdown scripts"): taps are opened, scripts are called, QEMU starts with the taps, the files of NICs follow.
The runtime file is written before all that at a start, and last of all on the target of a migration.
"""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.bootstrap import VENV
from tests.support.netns import run
from tests.support.qemu import Qemu
from tests.support.rundoor import HOOKS, rundoor
from tests.support.tap import Tap

GANETI = Path("/var/run/ganeti/kvm-hypervisor")
PORT = 8102  #: Ganeti's migration_port
VNC = "/run/vnc/{instance}.vnc"


class Hypervisor(ABC):
    """Have a guest on a node. ``there(f, x)`` does f(x) on it, and ``made(netdev, ...)`` gives a QEMU that is to be started there."""

    def __init__(self, there: Callable[..., Any], made: Callable[..., Qemu], nic: Mapping[str, str], at: str) -> None:
        self._there, self._made, self.nic, self._at = there, made, dict(nic), at
        self.instance = nic["INSTANCE"]
        self.qemu: Qemu | None = None
        self.up = 0.0  #: when the NIC has come up here (time.time()); by QEMU's script, or after the guest: when QEMU is there

    @property
    def serial(self) -> Path:
        """Give the socket of the guest's console."""
        return GANETI / f"ctrl/{self.instance}.serial"

    @property
    def where(self) -> str:
        """Give where a QEMU waits for the guest."""
        return f"tcp:[{self._at}]:{PORT}"

    def start(self) -> None:
        """Start the guest."""
        self._there(self._start, False)

    def accepts(self) -> None:
        """Let a QEMU wait for the guest, with all that is done beforehand."""
        self._there(self._start, True)

    def has_gone(self) -> None:
        """Do on the source what is done when the guest has gone."""
        self._there(self._has_gone)

    def is_here(self) -> None:
        """Do on the target what is done when the guest has come."""
        self._there(self._is_here)

    def gives_up(self) -> None:
        """Do on the target what is done when the guest has not come."""
        self._there(self._gives_up)

    def dies(self) -> None:
        """Let QEMU be killed, with nobody who does anything about it."""
        assert self.qemu is not None
        self.qemu.kill()

    def began(self, netdev: str, coming: bool, *more: str, descriptors: tuple[int, ...] = ()) -> None:
        for folder in (self.serial.parent, Path(VNC).parent):
            folder.mkdir(parents=True, exist_ok=True)
        sockets = ("-serial", f"unix:{self.serial},server=on,wait=off", "-vnc", f"unix:{VNC.format(instance=self.instance)}")
        self.qemu = self._made(netdev, *sockets, *(("-incoming", self.where) if coming else ()), *more)
        self.qemu.start(descriptors)

    @abstractmethod
    def _start(self, coming: bool) -> None: ...

    @abstractmethod
    def _has_gone(self) -> None: ...

    @abstractmethod
    def _is_here(self) -> None: ...

    @abstractmethod
    def _gives_up(self) -> None: ...


class Ganeti(Hypervisor):
    """Do as Ganeti's KVM driver; ``later``: of 3.2, which calls kvm-nic-setup, also on the way down."""

    def __init__(self, there: Callable[..., Any], made: Callable[..., Qemu], nic: Mapping[str, str], at: str, later: bool = False) -> None:
        super().__init__(there, made, nic, at)
        self._later = later

    @staticmethod
    def installed() -> None:
        """Make the folders that Ganeti's daemon makes when it starts."""
        for name in ("conf", "pid", "nic", "ctrl"):
            (GANETI / name).mkdir(parents=True, exist_ok=True)

    @property
    def _runtime(self) -> Path:
        return GANETI / f"conf/{self.instance}.runtime"

    def _start(self, coming: bool) -> None:
        if not coming:
            self._write_runtime()
        tap = Tap(self.nic["INTERFACE"])
        try:
            if not (coming and self._is_routed):
                self._up()
            more = ("-pidfile", str(GANETI / f"pid/{self.instance}"))
            self.began(f"tap,fd={tap.descriptor}", coming, *more, descriptors=(tap.descriptor,))
        finally:
            tap.close()
        if coming and self._is_routed:
            self.up = time.time()
        files = GANETI / f"nic/{self.instance}"
        files.mkdir(exist_ok=True)
        (files / self.nic["INTERFACE_INDEX"]).write_text(tap.name)

    @property
    def _is_routed(self) -> bool:
        return self.nic["MODE"] == "routed"

    def _has_gone(self) -> None:
        """Do as FinalizeMigrationSource."""
        if self._later:
            self._down()
        self._ends()

    def _is_here(self) -> None:
        """Do as FinalizeMigrationDst."""
        if self._is_routed:
            self._up(**({"MIGRATION_PHASE": "post"} if self._later else {}))
        self._write_runtime()

    def _gives_up(self) -> None:
        """Do as FinalizeMigrationDst, which stops the instance by force."""
        if self._later:
            self._down()
        self._ends()

    def _ends(self) -> None:
        if self.qemu is not None:
            self.qemu.kill()
        for path in (self._runtime, GANETI / f"pid/{self.instance}", self.serial):
            path.unlink(missing_ok=True)
        shutil.rmtree(GANETI / f"nic/{self.instance}", ignore_errors=True)

    def _write_runtime(self) -> None:
        nic = {
            "uuid": self.nic["INTERFACE_UUID"],
            "mac": self.nic["MAC"],
            "nicparams": {"mode": self.nic["MODE"], "link": self.nic["LINK"]},
        }
        if self.nic["IP"]:
            nic["ip"] = self.nic["IP"]
        beside = self._runtime.with_name(f"{self.instance}.runtime.new-{id(self)}")  # as ganeti.utils.WriteFile does it
        beside.write_text(json.dumps([["qemu"], [nic], {}, []]))
        beside.rename(self._runtime)

    def _up(self, **more: str) -> None:
        if self._later:
            self._door("kvm-nic-setup", ACTION="up", **more)
        else:
            self._door("kvm-ifup")

    def _down(self) -> None:
        self._door("kvm-nic-setup", ACTION="down")

    def _door(self, door: str, **more: str) -> None:
        done = rundoor(door, {**self.nic, **more})
        assert done.status == 0, done
        self.up = time.time()


class Plain(Hypervisor):
    """Use QEMU alone, which calls the scripts for its tap itself, on nodes that have the NIC defined; somebody runs commands besides."""

    def define(self) -> None:
        """Describe the NIC on the node."""
        self._there(self._define)

    def _define(self) -> None:
        names = {"interface": "INTERFACE", "mode": "MODE", "link": "LINK", "mac": "MAC", "instance": "INSTANCE", "index": "INTERFACE_INDEX"}
        words = [word for option, name in names.items() for word in (f"--{option}", self.nic[name])]
        netcommon("define", "--uuid", self.nic["INTERFACE_UUID"], *words)

    def _start(self, coming: bool) -> None:
        tap = self.nic["INTERFACE"]
        self.began(f"tap,ifname={tap},script={HOOKS}/kvm-ifup,downscript={HOOKS}/kvm-ifdown", coming)
        self.up = time.time()

    def _has_gone(self) -> None:
        self._gives_up()

    def _is_here(self) -> None:
        netcommon("up", self.nic["INTERFACE"])

    def _gives_up(self) -> None:
        if self.qemu is not None:
            self.qemu.quit()


class ByHand(Plain):
    """Use QEMU without scripts, on a tap that is made beforehand: somebody runs each command."""

    def _start(self, coming: bool) -> None:
        tap = self.nic["INTERFACE"]
        run("ip", "tuntap", "add", "dev", tap, "mode", "tap")
        netcommon("up", tap, *(("--incoming",) if coming else ()))
        self.up = time.time()
        self.began(f"tap,ifname={tap},script=no,downscript=no", coming)

    def _is_here(self) -> None:
        netcommon("up", "--arrived", self.nic["INTERFACE"])

    def _gives_up(self) -> None:
        super()._gives_up()
        netcommon("down", self.nic["INTERFACE"])
        run("ip", "tuntap", "del", "dev", self.nic["INTERFACE"], "mode", "tap")


def netcommon(*words: str) -> str:
    """Run the command on the calling thread's node."""
    return run(str(VENV / "bin/netcommon"), *words)
