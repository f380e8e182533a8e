"""Make, count, start and delete the nodes of a mock cloud: folders on disk, agents in this process, and entries of its registry.

Every step may be the last one: which UUID a node has follows from its number, what is there already is taken as it is, and a folder without
its sysinfo.json is no node, and is swept or made whole by the next call.
"""

from __future__ import annotations

import os
import shutil
import uuid
from functools import partial
from itertools import count, islice
from socket import AF_INET
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud import limits, state, sysinfo
from mockcloud.hardware import PROFILES, Admin, External, add, build, taken
from mockcloud.node import MockNode
from mockcloud.registry import MockRegistry
from mockcloud.replaced.scheduler import Scheduler
from mockcloud.replaced.watcher import SharedWatcher
from mockcloud.sysinfo import SERVERS, Sysinfo
from netregistry.client import Problem
from runtime import validate
from runtime.errors import HostRefused, NicInvalid, escaped
from runtime.folder import Folder
from runtime.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mockcloud.replaced.transport import Client

NAMESPACE = uuid.UUID("6d6f636b-636c-4f75-8400-000000000000")  #: of which UUIDs of nodes are made
OUI = "02:4d:43"  #: of admin NICs: locally administered
ADMINS = {"uuid": str(uuid.uuid5(NAMESPACE, "admin")), "name": "mock-admin", "subnet": "100.64.0.0/14", "mac_prefix": OUI}
MOST_EXTERNAL = 20  #: networks in which every node has a NIC


class Counted(NamedTuple):
    """Count the nodes: whole on disk, with an agent that runs, and alive by the registry; and those that were refused."""

    nodes: int
    running: int
    alive: int
    refused: int


class MockCloud:
    """A cloud below the folder ``root``, which is made if need be. Its agents run when ``start`` is called.

    Raises HostRefused where its files are not what was written, TryAgain where another process is at work on it.
    """

    def __init__(self, root: str, seed: int = 1, profile: str = "plain") -> None:
        if profile not in PROFILES:
            raise HostRefused(f"there is no hardware profile {profile!a:.80}", f"one of {', '.join(PROFILES)}")
        self.root, self._profile = os.path.abspath(root), profile
        self.log: list[str] = []
        self._lock = state.lock(self.root)
        try:
            self._open(seed)
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self, seed: int) -> None:
        before = state.read(self.root)
        self._starts, self.external = before.starts + 1, before.external
        self.scheduler, self.watcher = Scheduler(seed, before.later), SharedWatcher()
        self.scheduler.settle = self.watcher.pump
        self.registry = MockRegistry(self.scheduler, partial(self._note, "registry"), f"{self.root}/registry.sqlite")
        self.nodes: dict[str, MockNode] = {}  #: those whose agents run, by UUID
        self._loop = self.scheduler.loop()
        self._keep()

    def _note(self, name: str, text: str) -> None:
        self.log.append(f"{self.scheduler.now:.6f} {name} {text}")

    def _keep(self) -> None:
        self._loop.after(state.KEPT, self._keep)
        self._write()

    def _write(self, closed: bool = False) -> None:
        state.write(self.root, state.State(self._starts, self._loop.wall(), closed, self.external))

    def _attaches(self, external: tuple[str, ...]) -> None:
        state.write(self.root, state.State(self._starts, self._loop.wall(), False, external))
        self.external = external

    # -- nodes

    def create(self, number: int) -> list[Sysinfo]:
        """Make so many nodes more, under the numbers behind the last one, but for those of refused folders. Raises HostRefused, Problem.

        More than this machine can hold are refused before the first is made.
        """
        tree = sysinfo.look(self.root)
        limits.check(len(tree.nodes) + number, len(tree.nodes), limits.room(self.root))
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
        external = tuple(External(name, self._own(made, hostname, name, self._network(name))) for name in self.external)
        found = Sysinfo(made, number, hostname, self._profile, self._own(made, hostname, "admin", ADMINS), external)
        sysinfo.write(self.root, found)
        return found

    def _own(self, node: str, hostname: str, name: str, network: Mapping[str, Any]) -> Admin:
        """Let the registry give out the MAC and the address of a NIC of a node's own, once."""
        client = self.registry.client()
        wanted = {"uuid": own_uuid(node, name), "belongs": "server", "instance": hostname, "network": network["uuid"], "name": name}
        if name == "admin":
            _once(client, "networks", ADMINS)
        _once(client, "nics", {**wanted, "allocate": ["mac", "ipv4"]})
        nic = client.get(f"nics/{wanted['uuid']}").body["nic"]
        return Admin(nic["mac"], nic["ip"] or nic["addresses"][0], int(network["subnet"].rpartition("/")[2]))

    def delete(self, uuids: Iterable[str]) -> None:
        """Delete nodes: agent, folder, and what the registry has of them. Raises Problem."""
        for each in uuids:
            self.stop([each])
            with Folder.make(f"{self.root}/{SERVERS}/{each}") as folder:
                folder.remove(sysinfo.NAME)
            self._forget(each)

    # -- NICs of the nodes' own

    def attach(self, name: str, subnet: str = "") -> list[Sysinfo]:
        """Give every node, those made later too, a NIC of its own in a network; one that is not there is made with ``subnet``.

        Raises NicInvalid, HostRefused, Problem.
        """
        validate.interface(name, "NETWORK")
        if of := taken(name):
            raise NicInvalid("NETWORK", name, f"a name that no device has: {of}")
        if name not in self.external and len(self.external) >= MOST_EXTERNAL:
            raise HostRefused(f"every node has {MOST_EXTERNAL} NICs of its own already", "take another away first (--remove)")
        if subnet:
            validate.prefix(subnet, "--subnet", AF_INET)
            self._made_network(name, subnet)
        network = self._network(name)
        self._attaches((*(each for each in self.external if each != name), name))
        return [self._attached(each, name, network) for each in sysinfo.look(self.root).nodes]

    def _attached(self, one: Sysinfo, name: str, network: Mapping[str, Any]) -> Sysinfo:
        if any(each.name == name for each in one.external):
            return one
        made = External(name, self._own(one.uuid, one.hostname, name, network))
        found = one._replace(external=(*one.external, made))
        sysinfo.write(self.root, found)
        if one.uuid in self.nodes:
            add(self.nodes[one.uuid].host, name, made.own)
        return found

    def detach(self, name: str) -> list[Sysinfo]:
        """Take the NICs in a network from every node; the network stays. Raises HostRefused, Problem."""
        if name not in self.external:
            raise HostRefused(f"no node has a NIC of its own in {escaped(name)}", f"one of {', '.join(self.external) or 'none'}")
        nodes = [self._detached(each, name) for each in sysinfo.look(self.root).nodes]
        self._attaches(tuple(each for each in self.external if each != name))
        return nodes

    def _detached(self, one: Sysinfo, name: str) -> Sysinfo:
        self._gone(f"nics/{own_uuid(one.uuid, name)}")
        found = one._replace(external=tuple(each for each in one.external if each.name != name))
        if found != one:
            sysinfo.write(self.root, found)
        if one.uuid in self.nodes:
            self.nodes[one.uuid].host.remove_link(name)
        return found

    def _network(self, name: str) -> dict[str, Any]:
        """Give the network of a name. Raises HostRefused."""
        for each in self.registry.client().all("networks", name=name):
            found: dict[str, Any] = each["network"]
            if found["subnet"]:
                return found
        raise HostRefused(f"there is no network {escaped(name)} with an IPv4 subnet", "--subnet PREFIX makes it")

    def _made_network(self, name: str, subnet: str) -> None:
        client = self.registry.client()
        there = [each["network"] for each in client.all("networks", name=name)]
        if not there:
            made = {"uuid": str(uuid.uuid5(NAMESPACE, f"network {name}")), "name": name, "subnet": subnet, "mac_prefix": OUI}
            client.change("POST", "networks", made)
        elif there[0]["subnet"] != subnet:
            raise NicInvalid("--subnet", subnet, f"that of {name}, which is {there[0]['subnet'] or 'none'}, or none")

    # -- what is left

    def _forget(self, node: str) -> None:
        """Do the rest of a deletion, as often as one likes."""
        client = self.registry.client()
        mastered = [f"nics/{each['nic']['uuid']}" for each in client.all("nics", master=f"node:{node}")]
        own = [f"nics/{own_uuid(node, name)}" for name in ("admin", *self.external)]
        for place in (*mastered, *own, f"nodes/{node}"):
            self._gone(place)
        shutil.rmtree(f"{self.root}/{SERVERS}/{node}")

    def _gone(self, place: str) -> None:
        try:
            self.registry.client().change("DELETE", place, force=True)
        except Problem as refused:
            if refused.kind != "missing":
                raise

    def sweep(self) -> list[str]:
        """Remove what is left of nodes that were not made or not deleted to the end; give their UUIDs. Raises Problem."""
        left = list(sysinfo.look(self.root).unfinished)
        for each in left:
            self._forget(each)
        return left

    # -- agents

    def start(self, seconds: float = 2.0, wanted: Iterable[str] | None = None) -> None:
        """Start the agents of all nodes that have none, or of those ``wanted``, at moments by chance, and let so many seconds pass.

        Raises HostRefused where this machine cannot hold them.
        """
        only = None if wanted is None else frozenset(wanted)
        nodes = [each for each in sysinfo.look(self.root).nodes if only is None or each.uuid in only]
        limits.check(len(nodes), len(nodes), limits.room(self.root))
        for each in nodes:
            if each.uuid not in self.nodes:
                host = build(PROFILES[each.profile], f"boot-{self._starts}", each.number, each.admin, each.external)
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
        self._write(closed=True)
        self.registry.stop()
        self.watcher.close()
        os.close(self._lock)

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
            said = {"number": each.number, "uuid": each.uuid, "hostname": each.hostname, "profile": each.profile}
            own = [{"name": nic.name, "mac": nic.own.mac, "address": nic.own.address} for nic in each.external]
            at = {"mac": each.admin.mac, "address": each.admin.address, "external": own, "running": running, "alive": alive}
            found.append({**said, "system_type": sysinfo.VIRTUAL, **at})
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


def own_uuid(node: str, name: str) -> str:
    """Give the UUID of a NIC of a node's own, "admin" or one in a network."""
    return str(uuid.uuid5(uuid.UUID(node), name))


def _once(client: Client, place: str, body: Mapping[str, Any]) -> None:
    """Have something made that may be there already."""
    try:
        client.change("POST", place, body)
    except Problem as refused:
        if refused.kind not in ("exists", "taken"):
            raise


def _paths(root: str, node: str) -> Paths:
    return Paths.under(f"{root}/{SERVERS}/{node}")
