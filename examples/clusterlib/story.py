"""The story that examples/cluster tells: each step as an operator would type it, and a look whether it is as it should be."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.demolib.show import Failed, command, heading, line, output, verdict
from netregistry.client import Client

SECONDS = 20.0
CLUSTER = "gnt.example.com"


class Registry:
    """A registry below a folder, its command line, and its service while it runs.

    ``machine``: the name of the machine that it is on, where it is not this one; ``inside``: the command that runs another one there, whose
    files are below ``outside``.
    """

    def __init__(self, checkout: Path, folder: Path, machine: str = "", inside: Sequence[str] = (), outside: str = "") -> None:
        self._checkout, self.root, self._inside = checkout, folder, inside
        self._prompt = f"{machine}: " if machine else ""
        self.socket = Path(f"{outside}{folder / 'run/netregistry/socket'}")
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._service: subprocess.Popen[bytes] | None = None

    def argv(self, *words: str) -> list[str]:
        """Give the command that runs one of netcommon registry."""
        root = () if self.root == Path("/") else ("--root", str(self.root))
        return [*self._inside, str(self._checkout / ".venv/bin/netcommon"), *root, "registry", *words]

    def type(self, *words: str) -> str:
        """Run a command of netcommon registry, and show both it and what it prints."""
        command(f"{self._prompt}netcommon registry " + " ".join(word if " " not in word else f'"{word}"' for word in words))
        done = subprocess.run(self.argv(*words), capture_output=True, text=True, check=False, timeout=SECONDS)
        output(done.stdout + done.stderr)
        if done.returncode:
            raise Failed
        return done.stdout

    def look(self, *words: str) -> list[dict[str, Any]]:
        """Give the items of a list, without showing it."""
        done = subprocess.run([*self.argv(*words), "--json"], capture_output=True, text=True, check=True, timeout=SECONDS)
        items: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return items

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        command(f"{self._prompt}systemctl start netcommon-registry")
        self._service = subprocess.Popen(self.argv("serve"), stderr=subprocess.DEVNULL)
        end = time.monotonic() + SECONDS
        with socket.socket(socket.AF_UNIX) as asking:
            while asking.connect_ex(str(self.socket)):
                if self._service.poll() is not None or time.monotonic() > end:
                    verdict(False, "the service runs")
                    raise Failed
                time.sleep(0.05)

    def stop(self) -> None:
        """End the service as systemd does, and show the command."""
        command(f"{self._prompt}systemctl stop netcommon-registry")
        self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> None:
        """End the service by a signal, if it runs."""
        if self._service is not None:
            self._service.send_signal(number)
            self._service.wait(SECONDS)
            self._service = None

    def client(self, role: str) -> Client:
        return Client(str(self.socket), role)


def promised(good: bool, text: str) -> None:
    """Say whether something is as it should be. Raises Failed where it is not."""
    verdict(good, text)
    if not good:
        raise Failed


def within(seconds: float, condition: Callable[[], Any], text: str) -> None:
    """Wait until something is so, and say after how long. Raises Failed where it is not in time."""
    begin = time.monotonic()
    while not (good := bool(condition())) and time.monotonic() < begin + seconds:
        time.sleep(0.05)
    promised(good, f"{text}, after {time.monotonic() - begin:.1f} s" if good else f"{text}: not within {seconds:.0f} s")


def play(checkout: Path, folder: Path) -> None:
    """Tell the whole story in a folder. Raises Failed."""
    registry = Registry(checkout, folder)
    try:
        tell(registry)
    finally:
        registry.end(signal.SIGTERM)


def tell(registry: Registry) -> None:
    """Tell the whole story of a registry, which runs at the end. Raises Failed."""
    _filled(registry)
    _in_conflict(registry)
    _killed(registry)
    _restored(registry)


def _filled(registry: Registry) -> None:
    heading("A registry, a network, and three NICs whose addresses are given out")
    registry.type("init")
    registry.start()
    registry.type(
        "network", "add", "blue", "subnet=192.0.2.0/24", "gateway=192.0.2.1", "ranges=192.0.2.10-192.0.2.99", "subnet6=2001:db8::/64"
    )
    for number in (1, 2, 3):
        registry.type("nic", "add", "network=blue", f"instance=web{number}", "index=0", "allocate=ipv4,ipv6")
    registry.type("nic", "list")
    addresses = {address for item in registry.look("nic", "list") for address in (item["nic"]["ip"], *item["nic"]["addresses"])}
    promised(len(addresses) == 6, "six addresses, each of one NIC")
    found = registry.type("find", "2.11")
    promised("web2/0" in found and "web1/0" not in found, "a NIC is found by a part of its address")


def _in_conflict(registry: Registry) -> None:
    heading("A Ganeti cluster has a guest with an address that was given out")
    line("Its importer says what is so, and is not refused; so both NICs show it.")
    network = registry.look("network", "list")[0]["network"]["uuid"]
    with registry.client(f"importer:{CLUSTER}") as importer:
        fields = {"network": network, "instance": "db1", "index": 0, "mac": "aa:00:00:12:34:56", "ip": "192.0.2.11"}
        uuid = importer.change("POST", "nics", fields).body["uuid"]
        registry.type("conflicts")
        registry.type("nic", "list", "state=conflict")
        states = {item["label"]: item["shown"]["state"] for item in registry.look("nic", "list")}
        wanted = {"web1/0": "provisioning", "web2/0": "conflict", "web3/0": "provisioning", "db1/0": "conflict"}
        promised(states == wanted, "both that want it are in conflict, and nobody else is")
        importer.change("DELETE", f"nics/{uuid}")
    promised(registry.type("conflicts").strip() == "no conflicts", "it ends when one of them goes")


def _killed(registry: Registry) -> None:
    heading("The service is killed")
    before = registry.look("nic", "list")
    registry.end(signal.SIGKILL)
    registry.start()
    promised(registry.look("nic", "list") == before, "what it had acknowledged is there, at the same revisions")


def _restored(registry: Registry) -> None:
    heading("A mistake is undone by a copy")
    before = [item["nic"] for item in registry.look("nic", "list")]
    copy = str(registry.root / "var/lib/netregistry/copy.sqlite")
    registry.type("backup", copy)
    registry.type("nic", "delete", "web1/0")
    registry.type("history")
    promised(len(registry.look("nic", "list")) == len(before) - 1, "the NIC is gone, and the history says who it was")
    registry.stop()
    registry.type("restore", copy)
    registry.start()
    promised([item["nic"] for item in registry.look("nic", "list")] == before, "it is back with its address")
