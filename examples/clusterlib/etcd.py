"""The etcd of ``examples/cluster registry``: a member on each machine, TLS between them and to whoever asks, by one small authority."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.clusterlib.machine import Machine
from examples.clusterlib.story import SECONDS
from examples.demolib.show import command
from tests.support.authority import authority

CLIENT, PEER = 2379, 2380
KEYS = "/etc/netregistry"  #: on each machine: the authority's certificate, and what it has signed for members and services


class Etcd:
    """An etcd of one member for each machine. ``program``: Debian's, which is unpacked and not installed; ``folder``: for keys and logs."""

    def __init__(self, program: Path, folder: Path, machines: Sequence[Machine]) -> None:
        self._program, self._folder, self._machines = program, folder, machines
        self._tls = authority(folder / "tls", ",".join(f"IP:{machine.address}" for machine in machines))
        for machine in machines:
            Path(f"{machine.root}{KEYS}").mkdir(mode=0o700)
            for name in ("ca.pem", "cert.pem", "key.pem", "server.pem", "server-key.pem"):
                shutil.copyfile(self._tls / name, f"{machine.root}{KEYS}/{name}")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Give its address, as [registry] store has it on each machine."""
        members = ",".join(f"{machine.address}:{CLIENT}" for machine in self._machines)
        return f"etcd://{members}?" + "&".join(f"{name}={KEYS}/{name}.pem" for name in ("ca", "cert", "key"))

    def start(self, machine: Machine) -> None:
        """Start the member of a machine, without waiting for anything."""
        command(f"{machine.name}: systemctl start etcd")
        data = Path("/var/lib/etcd")
        Path(f"{machine.root}{data}").mkdir(mode=0o700, exist_ok=True)
        members = ",".join(f"{each.name}=https://{each.address}:{PEER}" for each in self._machines)
        argv = [str(self._program), "--name", machine.name, "--data-dir", f"{data}/default", "--initial-cluster", members]
        for kind, port, advertised in (("client", CLIENT, "advertise-client"), ("peer", PEER, "initial-advertise-peer")):
            argv += [
                f"--listen-{kind}-urls",
                f"https://{machine.address}:{port}",
                f"--{advertised}-urls",
                f"https://{machine.address}:{port}",
            ]
        for prefix in ("", "peer-"):
            argv += [f"--{prefix}cert-file", f"{KEYS}/server.pem", f"--{prefix}key-file", f"{KEYS}/server-key.pem"]
            argv += [f"--{prefix}trusted-ca-file", f"{KEYS}/ca.pem", f"--{prefix}client-cert-auth"]
        with open(self.log(machine), "ab") as log:
            self._processes[machine.name] = subprocess.Popen([*machine.inside, *argv], stdout=log, stderr=log)

    def log(self, machine: Machine) -> Path:
        """Give the file that holds what a member has said."""
        return self._folder / f"etcd.{machine.name}"

    def kill(self, machine: Machine) -> None:
        """End a member without a warning."""
        process = self._processes.pop(machine.name)
        process.kill()
        process.wait(SECONDS)

    def end(self) -> None:
        """Kill all members that run."""
        for machine in self._machines:
            if machine.name in self._processes:
                self.kill(machine)

    def leader(self) -> Machine | None:
        """Give the machine whose member leads; None where no member leads now."""
        for machine in self._machines:
            said = self._status(machine)
            if "leader" in said and said["leader"] == said["header"]["member_id"]:
                return machine
        return None

    def led(self) -> int:
        """Count the members that answer and know a leader."""
        return sum("leader" in self._status(machine) for machine in self._machines)

    def _status(self, machine: Machine) -> dict[str, Any]:
        """Ask a member how it is, by its gateway; {} where it does not answer."""
        context = ssl.create_default_context(cafile=f"{self._tls}/ca.pem")
        context.load_cert_chain(f"{self._tls}/cert.pem", f"{self._tls}/key.pem")
        connection = http.client.HTTPSConnection(machine.address, CLIENT, timeout=2, context=context)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            connection.request("POST", "/v3/maintenance/status", "{}")
            said: dict[str, Any] = json.loads(connection.getresponse().read())
            return said
        return {}
