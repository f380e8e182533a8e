"""The laboratory's Ganeti cluster with a registry: its service on the master, an importer on every node, agents that have joined.

The folder given as ``out`` is to be visible in the nodes under its own path, as this checkout is: it holds what a node has on its disk of
ours (/var/lib/netcommon, the registry's file), and the folder of the registry's socket, which is the same one in all nodes. Nothing of it
is in the machine's own folders: a mount in a node is gone when somebody removes the folder on which it is.
"""

from __future__ import annotations

import os
import signal
import subprocess

from netregistry.client import Client
from tests.lab.nodes import NETCOMMON, SETTINGS, Failed, Node, until

DOMAIN = ".gnt.example"
SOCKETS, FILE, LIBRARY = "/run/netregistry", "/var/lib/netregistry", "/var/lib/netcommon"
#: A node's own /var/lib, with all that is mounted below the one before; $1: a folder for it.
OWN = """
set -e
mkdir -p "$1/upper" "$1/work" "$1/whole"
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$1/upper,workdir=$1/work" "$1/whole"
for place in $(cut -d" " -f5 /proc/self/mountinfo | grep "^/var/lib/" | sort); do
    mount --bind "$place" "$1/whole/${place#/var/lib/}"
done
mount --rbind "$1/whole" /var/lib
"""
STARTED = 60.0  #: seconds for a program to be ready, or to end, on a busy machine


class Process:
    """A program that stays in the foreground within a node."""

    def __init__(self, node: Node, log: str, *command: str) -> None:
        with open(log, "ab") as output:
            self._process = subprocess.Popen(node.command(*command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and give its exit status."""
        if self._process.poll() is None:
            os.kill(leaf(self._process.pid), number)
        return self._process.wait(STARTED)


def leaf(pid: int) -> int:
    """Give the process at the end of those that only wait for one other: entering a node forks."""
    while True:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
        if len(children) != 1:
            return pid
        pid = int(children[0])


class Member(Node):
    """A node whose agent has joined the registry, and which has an importer."""

    def __init__(self, laboratory: str, name: str, out: str, settings: str) -> None:
        super().__init__(laboratory, name, f"{out}/agent-{name}.log")
        self._out, self.settings = out, settings
        self._importer: Process | None = None
        self._mounts: list[str] = []

    def own(self, *places: tuple[str, str]) -> None:
        """Mount folders of ``out`` over the node's (place, name): what is there on its disk is the machine's in a laboratory."""
        if not self._mounts:
            self.run("sh", "-c", OWN, "-", f"{self._out}/var-lib-{self.name}-{self.init}")
        for place, name in places:
            folder = f"{self._out}/{name}"
            os.makedirs(folder, 0o700, exist_ok=True)
            self.run("sh", "-c", 'mkdir -p -m 700 "$2" && mount --bind "$1" "$2"', "-", folder, place)
            self._mounts.append(place)

    def disown(self) -> None:
        """Take these mounts away."""
        had = bool(self._mounts)
        while self._mounts:
            self.run("umount", self._mounts.pop())
        if had:
            for place in ("/var/lib", f"{self._out}/var-lib-{self.name}-{self.init}/whole"):
                self.run("umount", "--lazy", "--recursive", place)  # Ganeti's daemons have files open there, which are the same as before

    def type(self, *words: str) -> str:
        """Run netcommon on the node. Raises Failed."""
        return self.run(NETCOMMON, *words)

    def follow(self) -> None:
        """Start the importer."""
        command = (NETCOMMON, "-v", "registry", "import", "--ganeti", "--watch")
        self._importer = Process(self, f"{self._out}/importer-{self.name}.log", *command)

    def unfollow(self) -> None:
        """End the importer. Raises Failed where it ends with another status than 0."""
        importer, self._importer = self._importer, None
        if importer and (status := importer.end()):
            raise Failed(f"{self.name}: the importer ended with status {status}")

    @property
    def joined(self) -> bool:
        return os.path.exists(self.path(f"{LIBRARY}/node.json"))

    @property
    def dead(self) -> bool:
        return not os.path.exists(f"/proc/{self.init}/exe")

    def die(self) -> None:
        """Lose power: every process of the node, and what is in its memory, is gone at once."""
        os.kill(self.init, signal.SIGKILL)
        until(f"{self.name} is gone", STARTED, lambda: self.dead)


class Cluster:
    """All of it. ``laboratory``: its folder; ``out``: where logs and state are kept; ``settings``: the nodes' config.toml."""

    def __init__(self, laboratory: str, out: str, settings: str = SETTINGS) -> None:
        self._laboratory, self._out, self._settings = laboratory, out, settings
        self.wire = Node(laboratory, "wire", f"{out}/wire.log")
        self.nodes = {name: Member(laboratory, name, out, settings) for name in ("node1", "node2")}
        self.master = self.nodes["node1"]
        self.name = self.ganeti("gnt-cluster", "info").partition("Cluster name: ")[2].split()[0]
        self.client = self.asked()
        self._service: Process | None = None

    def asked(self) -> Client:
        """Give a client of the registry, for one thread."""
        return Client(f"{self._out}/socket/socket", "operator:laboratory")

    def ganeti(self, *command: str) -> str:
        return self.master.run(*command)

    def start(self) -> None:
        """Start everything; the nodes have joined then."""
        for node in self.nodes.values():
            self._disk(node)
        keeper = self.nodes["node1"]
        keeper.own((FILE, "registry"))
        keeper.configure(keeper.settings)  # which the service reads when it starts
        keeper.type("registry", "init")
        self._service = Process(keeper, f"{self._out}/registry.log", NETCOMMON, "-v", "registry", "serve")
        until("the registry answers", STARTED, self.answers)
        keeper.type("registry", "settings", "quarantine=0")  # so that a free address is free at once
        for node in self.nodes.values():
            self._begin(node)

    def _disk(self, node: Member) -> None:
        node.own((LIBRARY, f"library-{node.name}"), (SOCKETS, "socket"))

    def _begin(self, node: Member) -> None:
        """Install our scripts on a node, let it join, and start its agent and its importer."""
        node.install(hooks=True)
        if not node.joined:
            node.type("registry", "node", "join", node.name)
            node.type("registry", "node", "set", node.name, f"cluster={self.name}")
        node.start()
        node.follow()
        until(f"{node.name} is alive in the registry", STARTED, lambda: node.name in self.alive())

    def back(self, name: str) -> Member:
        """Take a node in again that was dead, and has been set up anew."""
        node = self.nodes[name] = Member(self._laboratory, name, self._out, self._settings)
        self._disk(node)
        self._begin(node)
        return node

    def mastered(self, name: str) -> None:
        """Make another node the master."""
        self.nodes[name].run("gnt-cluster", "master-failover", "--yes-do-it")
        self.master = self.nodes[name]

    def alive(self) -> list[str]:
        """Name the nodes that are alive by the registry."""
        return [item["node"]["name"] for item in self.client.all("nodes") if item["alive"]]

    def answers(self) -> bool:
        try:
            self.client.get("status")
        except Exception:  # whatever it is that it does not do yet
            return False
        return True

    def stop(self) -> None:
        """End everything, and leave nothing on the nodes. Raises Failed for what does not end as it should."""
        faults: list[str] = []
        for node in self.nodes.values():
            for step in (node.unfollow, node.stop, node.uninstall):
                try:
                    step()
                except Failed as error:
                    faults.append(str(error))
        if self._service and (status := self._service.end()):
            faults.append(f"the registry ended with status {status}")
        self._service = None
        for node in self.nodes.values():
            node.disown()
        if faults:
            raise Failed("; ".join(faults))
