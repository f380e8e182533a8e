"""Make, count, start and delete the nodes of a mock cloud: folders on disk, agents in this process, and entries of its registry.

Every step may be the last one: which UUID a node has follows from its number, what is there already is taken as it is, and a folder without
its sysinfo.json is no node, and is swept or made whole by the next call.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud import sysinfo
from mockcloud.hardware import PROFILES, Admin, build
from mockcloud.node import MockNode
from mockcloud.registry import MockRegistry
from mockcloud.replaced.scheduler import EPOCH, Scheduler
from mockcloud.replaced.watcher import SharedWatcher
from mockcloud.sysinfo import SERVERS, Sysinfo
from netregistry.client import Problem
from runtime.errors import HostRefused
from runtime.folder import Folder
from runtime.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE = uuid.UUID("6d6f636b-636c-4f75-8400-000000000000")  #: of which UUIDs of nodes are made
OUI = "02:4d:43"  #: of admin NICs: locally administered
ADMINS = {"uuid": str(uuid.uuid5(NAMESPACE, "admin")), "name": "mock-admin", "subnet": "100.64.0.0/14", "mac_prefix": OUI}
LENGTH = 14  #: of that prefix
FILE = "cloud.json"  #: what the cloud itself keeps: how often it was started, and what time it was
KEPT = 60.0  #: seconds of virtual time from one note of the time to the next
LONGEST = 1 << 16  #: bytes


class Counted(NamedTuple):
    """Count the nodes: whole on disk, with an agent that runs, and alive by the registry; and those that were refused."""

    nodes: int
    running: int
    alive: int
    refused: int


class MockCloud:
    """A cloud below the folder ``root``, which is made if need be. Its agents run when ``start`` is called."""

    def __init__(self, root: str, seed: int = 1, profile: str = "plain") -> None:
        if profile not in PROFILES:
            raise HostRefused(f"there is no hardware profile {profile!a:.80}", f"one of {', '.join(PROFILES)}")
        self.root, self._profile = os.path.abspath(root), profile
        self.log: list[str] = []
        self._starts, wall = self._begun()
        self.scheduler, self.watcher = Scheduler(seed, wall), SharedWatcher()
        self.scheduler.settle = self.watcher.pump
        self.registry = MockRegistry(self.scheduler, partial(self._note, "registry"), f"{self.root}/registry.sqlite")
        self.nodes: dict[str, MockNode] = {}  #: those whose agents run, by UUID
        self._loop = self.scheduler.loop()
        self._keep()

    def _note(self, name: str, text: str) -> None:
        self.log.append(f"{self.scheduler.now:.6f} {name} {text}")

    def _begun(self) -> tuple[int, float]:
        """Give which start this is, and when it begins: after all that was done before (seconds since the epoch). Raises HostRefused."""
        with Folder.make(self.root) as folder:
            data = folder.read(FILE, LONGEST)
        if data is None:
            return 1, EPOCH
        try:
            said = json.loads(data)
            return int(said["starts"]) + 1, float(said["time"]) + 2 * KEPT
        except (ValueError, KeyError, TypeError):
            raise HostRefused(f"{self.root}/{FILE} is not what mockcloud has written", "put it back, or begin in another folder") from None

    def _keep(self) -> None:
        self._loop.after(KEPT, self._keep)
        with Folder.make(self.root) as folder:
            folder.write(FILE, json.dumps({"starts": self._starts, "time": self._loop.wall()}).encode("ascii") + b"\n", 0o644)

    # -- nodes

    def create(self, number: int) -> list[Sysinfo]:
        """Make so many nodes more, under the numbers behind the last one, but for those of refused folders. Raises HostRefused, Problem."""
        tree = sysinfo.look(self.root)
        free = count(tree.nodes[-1].number + 1 if tree.nodes else 1)
        return [self._made(each) for each in islice((each for each in free if node_uuid(each) not in tree.refused), number)]

    def count(self, number: int) -> Counted:
        """Let there be so many nodes: new ones are made, or those of the highest numbers deleted. Raises HostRefused, Problem."""
        there = sysinfo.look(self.root).nodes
        if number < len(there):
            self.delete(each.uuid for each in there[number:])
        else:
            self.create(number - len(there))
        self.sweep()
        return self.counted()

    def _made(self, number: int) -> Sysinfo:
        made, hostname = node_uuid(number), f"mock{number}"
        with Folder.make(f"{self.root}/{SERVERS}/{made}"):
            pass
        paths = _paths(self.root, made)
        try:
            self.registry.join(made, hostname, paths)
        except Problem as refused:
            if refused.kind != "exists":
                raise
            self.registry.remember(made, hostname, paths)  # an earlier call was cut off
        found = Sysinfo(made, number, hostname, self._profile, self._admin(made, hostname))
        sysinfo.write(self.root, found)
        return found

    def _admin(self, node: str, hostname: str) -> Admin:
        """Let the registry give out the MAC and the address of a node's own NIC, once."""
        client = self.registry.client()
        wanted = {"uuid": admin_uuid(node), "belongs": "server", "instance": hostname, "network": ADMINS["uuid"], "name": "admin"}
        for place, body in (("networks", ADMINS), ("nics", {**wanted, "allocate": ["mac", "ipv4"]})):
            try:
                client.change("POST", place, body)
            except Problem as refused:
                if refused.kind not in ("exists", "taken"):
                    raise
        nic = client.get(f"nics/{wanted['uuid']}").body["nic"]
        return Admin(nic["mac"], nic["ip"] or nic["addresses"][0], LENGTH)

    def delete(self, uuids: Iterable[str]) -> None:
        """Delete nodes: agent, folder, and what the registry has of them. Raises Problem."""
        for each in uuids:
            self.stop([each])
            with Folder.make(f"{self.root}/{SERVERS}/{each}") as folder:
                folder.remove(sysinfo.NAME)
            self._forget(each)

    def _forget(self, node: str) -> None:
        """Do the rest of a deletion, as often as one likes."""
        client = self.registry.client()
        mastered = [f"nics/{each['nic']['uuid']}" for each in client.all("nics", master=f"node:{node}")]
        for place in (*mastered, f"nics/{admin_uuid(node)}", f"nodes/{node}"):
            try:
                client.change("DELETE", place, force=True)
            except Problem as refused:
                if refused.kind != "missing":
                    raise
        shutil.rmtree(f"{self.root}/{SERVERS}/{node}")

    def sweep(self) -> list[str]:
        """Remove what is left of nodes that were not made or not deleted to the end; give their UUIDs. Raises Problem."""
        left = list(sysinfo.look(self.root).unfinished)
        for each in left:
            self._forget(each)
        return left

    # -- agents

    def start(self, seconds: float = 2.0) -> None:
        """Start the agents of all nodes that have none, at moments by chance, and let so many seconds pass."""
        for each in sysinfo.look(self.root).nodes:
            if each.uuid not in self.nodes:
                host = build(PROFILES[each.profile], f"boot-{self._starts}", each.number, each.admin)
                given = (self.root, self.scheduler, self.watcher, self._note, self.registry.wire)
                node = MockNode(each.hostname, each.number, *given, host=host, folder=f"{SERVERS}/{each.uuid}")
                self.nodes[each.uuid] = node
                node.loop.after(self.scheduler.chance.random(), node.agent.start)
        self.scheduler.passes(seconds)

    def stop(self, uuids: Iterable[str]) -> None:
        """End agents, where they run."""
        for each in uuids:
            node = self.nodes.pop(each, None)
            if node is not None:
                node.close()

    def close(self) -> None:
        """End all agents and the registry; what is on disk stays."""
        self.stop(list(self.nodes))
        self._keep()
        self.registry.stop()
        self.watcher.close()

    # -- looking

    def counted(self) -> Counted:
        """Count the nodes."""
        tree = sysinfo.look(self.root)
        return Counted(len(tree.nodes), len(self.nodes), sum(each["alive"] for each in self._known().values()), len(tree.refused))

    def list(self) -> list[dict[str, Any]]:
        """List the nodes: what each is, and how it stands."""
        known = self._known()
        found = []
        for each in sysinfo.look(self.root).nodes:
            alive, running = known.get(each.uuid, {}).get("alive", False), each.uuid in self.nodes
            said = {"uuid": each.uuid, "hostname": each.hostname, "profile": each.profile, "system_type": sysinfo.VIRTUAL}
            found.append({**said, "mac": each.admin.mac, "address": each.admin.address, "running": running, "alive": alive})
        return found

    def status(self, node: str) -> dict[str, Any]:
        """Say how the agent of a node stands. Raises HostRefused where it has none."""
        if node not in self.nodes:
            raise HostRefused(f"node {node!a:.80} has no agent that runs", "list says which there are")
        return {"system_type": sysinfo.VIRTUAL, **self.nodes[node].agent.status()}

    def _known(self) -> dict[str, dict[str, Any]]:
        """Give what the registry says of simulated nodes."""
        return {each["node"]["uuid"]: each for each in self.registry.client().all("nodes", kind="virtual")}


def node_uuid(number: int) -> str:
    """Give the UUID of the node of a number."""
    return str(uuid.uuid5(NAMESPACE, f"node {number}"))


def admin_uuid(node: str) -> str:
    """Give the UUID of a node's own NIC."""
    return str(uuid.uuid5(uuid.UUID(node), "admin"))


def _paths(root: str, node: str) -> Paths:
    return Paths.under(f"{root}/{SERVERS}/{node}")
