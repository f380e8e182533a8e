"""An instance as Ganeti 3.0 leaves it on a simulated node: its files, and the /proc of its QEMU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.cli import Cli

A, B, C, D = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abcd")
PID = 4321


class Guest:
    """An instance ``web`` as Ganeti 3.0 leaves it: runtime file, pid file, nic/ files, and QEMU's /proc."""

    def __init__(self, cli: Cli) -> None:
        self.cli, self.proc = cli, Path(cli.paths.proc)
        self.nics: list[dict[str, Any]] = []
        self.words = ["/usr/bin/qemu-system-x86_64", "-name", "web", "-m", "96"]
        self.files: dict[str, str] = {}
        self.descriptors: dict[int, str] = {}
        self.pid = PID

    def nic(self, uuid: str, mode: str = "bridged", link: str = "br0", ip: str = "", descriptor: int = 0, vlan: str = "") -> None:
        """A NIC in the runtime file; with ``descriptor`` also on QEMU's command line."""
        device, mac = f"nic-{uuid[:18]}", f"aa:00:00:00:00:{uuid[:2]}"
        params = {"mode": mode, "link": link, "vlan": vlan}
        self.nics.append({"uuid": uuid, "mac": mac, "nicparams": params, "hvinfo": {"id": device}} | ({"ip": ip} if ip else {}))
        if descriptor:
            self.plug(uuid, str(descriptor))

    def plug(self, uuid: str, descriptors: str) -> None:
        """A device on QEMU's command line."""
        device, mac = f"nic-{uuid[:18]}", f"aa:00:00:00:00:{uuid[:2]}"
        fds = f"fds={descriptors}" if ":" in descriptors else f"fd={descriptors}"
        self.words += [
            "-netdev",
            f"type=tap,id={device},{fds}",
            "-device",
            f"virtio-net-pci,bus=pci.0,id={device},mac={mac},netdev={device}",
        ]

    def tap(self, name: str, descriptor: int, bridge: str = "br0") -> int:
        """A tap that QEMU holds, up and a port of ``bridge`` ("" none), as Ganeti's script leaves it; its index."""
        self.descriptors[descriptor] = name
        master = self.cli.host.kernel.named(bridge) if bridge else None
        link = self.cli.host.add_tap(name, holder=PID, master=master.index if master else 0)
        self.cli.host.kernel.links[link.index] = self.cli.host.kernel.links[link.index]._replace(up=True)
        return link.index

    def write(self) -> None:
        """To disk."""
        run = Path(self.cli.paths.kvm_run)
        for folder in ("conf", "pid", "nic/web"):
            (run / folder).mkdir(parents=True, exist_ok=True)
        (run / "conf/web.runtime").write_text(json.dumps([["qemu"], self.nics, {}, []]))
        (run / "pid/web").write_text(f"{PID}\n")
        for name, tap in self.files.items():
            (run / "nic/web" / name).write_text(tap)
        for process in ("self", str(PID)):
            (self.proc / process / "ns").mkdir(parents=True, exist_ok=True)
        namespace = self.proc / "self/ns/net"
        if not namespace.exists():
            namespace.touch()
            (self.proc / f"{PID}/ns/net").hardlink_to(namespace)
        fdinfo = self.proc / f"{PID}/fdinfo"
        fdinfo.mkdir(exist_ok=True)
        (self.proc / f"{PID}/cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in self.words))
        (fdinfo / "0").write_text("pos:\t0\nflags:\t0100000\n")
        for descriptor, tap in self.descriptors.items():
            (fdinfo / str(descriptor)).write_text(f"pos:\t0\nflags:\t0104002\nmnt_id:\t24\nino:\t89\niff:\t{tap}\n")

    def adopt(self, *arguments: str, status: int = 0) -> dict[str, tuple[str, str]]:
        """Runs netcommon adopt; by UUID (or instance): tap, action."""
        self.write()
        found = self.cli.json("adopt", *(arguments or ("--all",)), status=status)
        self.why = {row["uuid"] or row["instance"]: row["why"] for row in found}
        return {row["uuid"] or row["instance"]: (row["device"], row["action"]) for row in found}
