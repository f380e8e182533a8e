"""Make, count, start and delete the nodes of a mock cloud: folders on disk, agents in this process, and entries of its registry.

Every step may be the last one: which UUID a node has follows from its number, what is there already is taken as it is, and a folder without
its sysinfo.json is no node, and is swept or made whole by the next call.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud import belongings, limits, lost, state, stored, sysinfo
from mockcloud.elsewhere import HTTPS, LIB, RegistryElsewhere
from mockcloud.externals import NoRoom, external
from mockcloud.hardware import OWN, PROFILES, build
from mockcloud.hypervisor import Hypervisor, NodeOff
from mockcloud.networks import ADMINS, CLUSTER, Claimed, Networks
from mockcloud.node import MockNode
from mockcloud.own_service import OwnService, members_of
from mockcloud.registry import MockRegistry, Reached
from mockcloud.replaced.scheduler import RealTime, Scheduler
from mockcloud.replaced.watcher import SharedWatcher
from mockcloud.served_registry import ServedRegistry
from mockcloud.sysinfo import SERVERS, TREE, Sort, Sysinfo, hostname_of, known, node_uuid, paths_of
from netregistry.client import Problem
from runtime.errors import FileRefused, HostRefused, NetcommonError, TryAgain, escaped
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence

    from mockcloud.namespace.host import NamespaceHost
    from mockcloud.stored import Vm
    from netcommon.host.simulated.host import MemoryHost
    from runtime.paths import Paths

REGISTRY = "registry.sqlite"  #: of a cloud that has one of its own
AT_ONCE = 100  #: agents that begin in a second, where the registry's service is one that others may ask too
FORGETS, LATER = 10.0, 0.1  #: seconds until a registry has forgotten a node that was deleted, and from one question to the next


class Counted(NamedTuple):
    """Count the nodes: whole on disk, with an agent that runs, and alive by the registry; and those that were refused."""

    nodes: int
    running: int
    alive: int
    refused: int


class MockCloud:
    """A cloud below the folder ``root``, which is made if need be. Its agents run when ``start`` is called.

    ``sort``: that of nodes that are made, as ``create`` has it. ``service``: the socket of its registry's service, https://HOST:PORT
    of one elsewhere, or "etcd:3" for one of its own over so many members; "": as before, at first a registry in this process, and time is
    virtual then. ``home``: where the certificate is by which this machine is an operator elsewhere.

    Raises HostRefused where its files are not what was written, TryAgain where another process is at work on it.
    """

    def __init__(self, root: str, seed: int = 1, profile: str = "plain", service: str = "", home: str = LIB, **sort: Any) -> None:
        self._home = home
        self.root, self._sort = os.path.abspath(root), known(Sort(profile, **sort))
        self.log: MutableSequence[str] = []
        self.live = False  #: it is served: agents run all the time
        self.hear: Callable[[str], None] = lambda line: None  #: is told each line of the log
        self._lock = state.lock(self.root)
        try:
            self._open(seed, service)
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self, seed: int, service: str) -> None:
        before = state.read(self.root)
        state.agree(self.root, before, service)
        self.service = service or before.registry
        if not self.service and not os.path.lexists(f"{self.root}/{REGISTRY}") and sysinfo.look(self.root).nodes:
            what = f"the registry of the nodes in {escaped(self.root)} is not there: neither {REGISTRY}, nor what {state.FILE} names"
            raise HostRefused(what, "put it back; if it is gone for good, remove the folder, and make another cloud")
        self._name = before.name or (f"mock-cloud-{os.urandom(8).hex()}" if self.service else "")
        self._starts, self.external, self.servers = before.starts + 1, before.external, before.servers
        self.vms = stored.Places(self.root)  #: files of instances
        self.watcher = SharedWatcher()
        # each process that goes on with a cloud draws anew: an epoch, a token or a moment is none of an earlier one's
        drawn = f"{seed} {before.starts}" if before.starts else seed
        # it is there before the registry, which has something to say, at a time, as soon as it begins
        self.scheduler: Scheduler = RealTime(drawn) if self.service else Scheduler(drawn, before.later)
        self.registry = self._reach()
        self.networks = Networks(self.registry)
        self.scheduler.hear(self.watcher.inotify.descriptor, self.watcher.pump)
        self.nodes: dict[str, MockNode] = {}  #: those whose agents run, by UUID
        self.hypervisors: dict[str, Hypervisor] = {}  #: of the same
        self.failed: dict[str, str] = {}  #: by UUID, nodes whose agents could not start, and why
        self.restored = False  #: the registry was replaced by an older copy, and may lack what it had
        self.lost: dict[str, dict[str, Any]] = {}  #: by UUID, NICs of instances as that registry had them
        self.networks_lost: dict[str, dict[str, Any]] = {}  #: by UUID, its networks
        self.let_go: set[str] = set()  #: NICs that a node has no more, as an operator has said: fence, forget
        self.forgotten: set[str] = set()  #: by UUID, nodes that an operator has forgotten, and that have not joined again since
        self.off: dict[str, MockNode] = {}  #: by UUID, nodes that have crashed, and not booted since
        self._loop = self.scheduler.loop()
        self._keep()
        try:
            self._claim()
        except BaseException as error:  # it is another cloud's
            self.registry.stop()
            self.watcher.close()
            self.scheduler.close()
            if not before.starts and (isinstance(error, Claimed) or (isinstance(error, Problem) and error.undone)):  # nothing is claimed
                state.remove(self.root)  # what is made here later asks that registry only if it is told to
            raise

    def _reach(self) -> Reached:
        """Give the registry, by the clock."""
        if not isinstance(self.scheduler, RealTime):
            return MockRegistry(self.scheduler, partial(self._note, "registry"), f"{self.root}/{REGISTRY}", self.servers)
        if members := members_of(self.service):
            return OwnService(self.scheduler, self.root, members)
        if self.service.startswith(HTTPS):
            return RegistryElsewhere(self.scheduler, self.service, self._home)
        return ServedRegistry(self.scheduler, self.service)

    def same(self) -> None:
        """Raise Claimed where another registry has come into the place of the cloud's; one that does not answer now may be the same."""
        try:
            self._claim()
        except Claimed:
            raise
        except NetcommonError:
            pass

    def _claim(self) -> None:
        """Let a registry's service be this cloud's. Raises Claimed also where nodes have joined another one; as ``Networks.claim``."""
        if not self.service:
            return
        if not any(True for _ in self.registry.client().all("networks", name=ADMINS["name"])) and sysinfo.look(self.root).nodes:
            what = f"the registry of {self.service} knows none of the nodes in {escaped(self.root)}"
            raise Claimed(
                f"{what}: it is another one than they have joined",
                "have that one served there again; if it is gone for good, remove the folder, and make another cloud",
            )
        self.networks.claim(f"{self._name}-{os.stat(self.root).st_ino:x}")  # a copy of the folder is another cloud

    @property
    def own(self) -> MockRegistry:
        """The cloud's own registry. Raises HostRefused where it is a process of its own."""
        if not isinstance(self.registry, MockRegistry):
            raise HostRefused("the registry of this mock cloud is a process of its own", "what is to happen to it is done to that process")
        return self.registry

    def _note(self, name: str, text: str) -> None:
        line = f"{self.scheduler.now:.6f} {name} {text}"
        self.log.append(line)
        self.hear(line)

    def _keep(self) -> None:
        self._loop.after(state.KEPT, self._keep)
        self._note_time()

    def _note_time(self, closed: bool = False) -> None:
        """Write what there is to note of a cloud; where its disk is full, what was noted before stays. Raises HostRefused."""
        try:
            self._write(closed)
        except FileRefused as error:
            if not state.there(self.root):
                raise
            self._note("cloud", str(error))

    def _write(self, closed: bool = False, **more: Any) -> None:
        now = state.State(self._starts, self._loop.wall(), closed, self.external, self.service, self._name, self.servers)
        state.write(self.root, now._replace(**more))

    def attaches(self, external: tuple[str, ...]) -> None:
        """Note in which networks every node has a NIC of its own, also nodes that are made later."""
        self._write(external=external)
        self.external = external

    def publish(self, servers: int) -> None:
        """Have so many name servers for an underlay that begins, now and whenever the cloud is opened again. Raises HostRefused."""
        if self.own.names is None:
            self._write(servers=servers)
            self.servers = self.own.servers = servers

    def _fits(self, number: int, there: int, depth: str = TREE, running: int = 0) -> None:
        """Raise HostRefused where this machine cannot hold so many nodes, ``there`` of which are on disk, and ``running`` run."""
        sockets = limits.SOCKETS if self.service else 0
        tls = self.service.startswith(HTTPS)
        limits.check(number, limits.room(self.root, sockets=sockets, depth=depth, there=there, running=running, tls=tls))

    def others(self) -> None:
        """Let the nodes that run have a turn, where time passes by itself: nobody is taken for gone since many are made or started."""
        if self.service:
            self.scheduler.passes(0.0)

    # -- nodes

    def create(self, number: int, **sort: Any) -> list[Sysinfo]:
        """Make so many nodes more, under the numbers behind the last one, but for those of refused folders. Raises HostRefused, Problem.

        What is left of a call that was killed, one that has made or deleted nodes, goes first.
        More than this machine can hold are refused before the first is made. ``sort``: fields of mockcloud.sysinfo.Sort.
        """
        self._sort = known(self._sort._replace(**sort))
        self._claim()  # while this one has served it there may have come another one
        self.sweep()
        tree = sysinfo.look(self.root)
        self._fits(len(tree.nodes) + number, len(tree.nodes), self._sort.depth, len(self.nodes))
        free = count(tree.nodes[-1].number + 1 if tree.nodes else 1)
        return [self._made(each) for each in islice((each for each in free if node_uuid(each) not in tree.refused), number)]

    def count(self, number: int, **sort: Any) -> Counted:
        """Let there be so many nodes: new ones are made, or those of the highest numbers deleted. Raises HostRefused, Problem."""
        there = sysinfo.look(self.root).nodes
        if number < len(there):
            self.delete(each.uuid for each in there[number:])
            self.sweep()  # behind that, which makes room where the disk is full
        else:
            self.create(number - len(there), **sort)
        return self.counted()

    def _made(self, number: int) -> Sysinfo:
        made, hostname = node_uuid(number), hostname_of(number)
        with Folder.make(f"{self.root}/{SERVERS}/{made}"):
            pass
        self._join(made, hostname, paths_of(self.root, made))
        try:
            attached = tuple(external(self.networks, made, hostname, name, self.networks.named(name)) for name in self.external)
        except NoRoom:
            self._forget(made)
            raise
        sort = self._sort
        admin = self.networks.own(made, hostname, OWN, ADMINS)
        found = Sysinfo(made, number, hostname, sort.profile, admin, attached, sort.depth, sort.ganeti, sort.hooked)
        sysinfo.write(self.root, found)
        self.others()
        return found

    def _join(self, made: str, hostname: str, paths: Paths) -> None:
        """Let the registry know a new node, when it has removed what a deleted one of the number has reported. Raises Problem."""
        end = self.scheduler.now + FORGETS
        while True:
            try:
                self.registry.join(made, hostname, paths, CLUSTER)
            except Problem as refused:
                if refused.kind == "exists":  # an earlier call was cut off
                    return self.registry.remember(made, hostname, paths)
                if refused.kind != "busy" or self.scheduler.now >= end:
                    raise
            else:
                return None
            self.scheduler.passes(LATER)

    def delete(self, uuids: Iterable[str]) -> None:
        """Delete nodes and the instances on them: agent, folder, and what the registry has of them and of nobody. Raises Problem."""
        for instance, nics in belongings.nobodys(self.registry.client(), self.vms).items():
            self.take_away(instance, nics)
        for each in uuids:
            self.stop([each])
            with Folder.make(f"{self.root}/{SERVERS}/{each}") as folder:
                folder.remove(sysinfo.NAME)
            self._empty(each)
            self._forget(each)
            self.off.pop(each, None)  # a node that is made under its number later is another one
            self.registry.wire.forget(each)
            self.others()

    # -- networks

    def network(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Let there be a network of a name that has these fields. Raises NicInvalid where one is there that has others; Problem."""
        return self.networks.make(name, fields)

    def tag(self, nodes: Iterable[str] | None, add: Sequence[str], remove: Sequence[str]) -> list[dict[str, Any]]:
        """Say what nodes should provide, after some tags more and some less; None: all nodes. Raises Problem."""
        client, found = self.registry.client(), []
        only = None if nodes is None else frozenset(nodes)
        for each in sysinfo.look(self.root).nodes:
            if only is None or each.uuid in only:
                item = client.get(f"nodes/{each.uuid}").body
                has = item["node"]["provides"]
                wanted = [tag for tag in dict.fromkeys((*has, *add)) if tag not in remove]
                if wanted != has:
                    client.change("PATCH", f"nodes/{each.uuid}", {"provides": wanted}, item["revision"])
                    item = client.get(f"nodes/{each.uuid}").body
                found.append({"uuid": each.uuid, "hostname": each.hostname, "provides": wanted, "missing": item["missing"]})
        return found

    # -- what is left

    def _empty(self, node: str) -> None:
        """Remove what nobody needs of a node that goes, before the registry writes that it does: the disk may be full."""
        with os.scandir(f"{self.root}/{SERVERS}/{node}") as there:
            for each in list(there):
                if each.name == stored.VMS:
                    continue
                if each.is_dir(follow_symlinks=False):
                    shutil.rmtree(each.path)
                else:
                    os.unlink(each.path)

    def _forget(self, node: str) -> None:
        """Do the rest of a deletion, as often as one likes."""
        for place in (*(f"nics/{each}" for each in belongings.of_node(self.registry.client(), self.root, self.vms, node)), f"nodes/{node}"):
            self.gone(place)
        shutil.rmtree(f"{self.root}/{SERVERS}/{node}")
        self.vms.gone(node)

    def take_away(self, instance: str, nics: Iterable[str]) -> None:
        """Take away an instance that no node has a file of. Raises Problem."""
        for each in self.hypervisors.values():  # one that begins later knows nothing of it
            each.end(stored.Vm(stored.vm_uuid(instance), instance))
        for nic in nics:
            self.gone(f"nics/{nic}")

    def gone(self, place: str) -> None:
        """Have something deleted from the registry, if it is there. Raises Problem."""
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
        nodes = [each for each in sysinfo.look(self.root).nodes if only is None or each.uuid in only or each.uuid in self.nodes]
        self._fits(len(nodes), len(nodes), running=len(self.nodes))
        if deep := [each for each in nodes if each.depth != TREE]:
            self._fits(len(deep), len(deep), deep[0].depth, sum(each.uuid in self.nodes for each in deep))
            limits.let_open()
        spread = max(len(nodes) / AT_ONCE, 1.0) if self.service else 1.0
        for each in nodes:
            if each.uuid not in self.nodes and each.uuid not in self.off:
                self.failed.pop(each.uuid, None)
                try:
                    self._start(each, spread)
                    self.others()
                except NetcommonError as error:  # the others go on
                    self.failed[each.uuid] = f"{each.hostname}: {error}"
        self.scheduler.passes(seconds)

    def _start(self, one: Sysinfo, spread: float = 1.0) -> None:
        """Put a node together as it was when another process ended, and start its agent at a moment by chance within ``spread`` seconds."""
        sysinfo.inside(self.root, one.uuid)
        if lost.is_lost(self.root, one.uuid):  # a command was killed that let the registry forget it
            lost.lose(self.root, one.uuid)
            self.gone(f"nodes/{one.uuid}")
            self._join(one.uuid, one.hostname, paths_of(self.root, one.uuid))
            lost.switch_on(self.root, one.uuid)
        self.registry.recognise(one.uuid, paths_of(self.root, one.uuid))
        boot = stored.counters(self.root, one.uuid).boot
        host = self._host(one, f"boot-{boot}")
        given = (self.root, self.scheduler, self.watcher, self._note, self.registry.wire)
        node = MockNode(one.hostname, one.number, *given, host=host, folder=f"{SERVERS}/{one.uuid}")
        hypervisor = Hypervisor(node, self.root, one.uuid, one.ganeti, one.hooked)
        hypervisor.prepare()
        hypervisor.resume(self._settled(one.uuid, hypervisor))
        self.nodes[one.uuid], self.hypervisors[one.uuid] = node, hypervisor
        node.loop.after(self.scheduler.chance.random() * spread, node.start)

    def _host(self, one: Sysinfo, boot: str) -> MemoryHost | NamespaceHost:
        """Make the host of a node, as deep as that is. Raises HostRefused."""
        host = build(PROFILES[one.profile], boot, one.number, one.admin, one.external)
        if one.depth == TREE:
            return host
        from mockcloud.namespace.building import built  # few clouds have any: it is slow to load

        return built(host, paths_of(self.root, one.uuid), PROFILES[one.profile].tables)

    def _settled(self, node: str, hypervisor: Hypervisor) -> list[Vm]:
        """Give the instances of a node. Those that are another's by now go, and those whose way here was cut off."""
        found = []
        for vm in stored.of_node(self.root, node)[0]:
            places = self.vms.places().get(vm.uuid, ())
            others = [other for place in places if place != node and (other := stored.kept(self.root, place, vm.uuid))]
            if vm.state == "incoming" or any(other.moves > vm.moves and other.state != "incoming" for other in others):
                hypervisor.clean(vm)
                self.vms.forget(node, vm.uuid)
            else:
                found.append(vm)
        return found

    def ready(self, nodes: Iterable[str], seconds: float) -> None:
        """Start agents of nodes that have none, and return when they are in step with the registry. Raises TryAgain after ``seconds``."""
        wanted = [each for each in nodes if each not in self.nodes]
        for each in wanted:
            if each in self.off:
                raise NodeOff(self.off[each].name)
        if not wanted:
            return
        self.start(0.0, wanted)
        for each in wanted:
            if each not in self.nodes:
                sysinfo.whole(self.root, each)
                raise HostRefused(self.failed.get(each, f"node {each} has not started"), "mockcloud list says how the nodes are")
        end = self.scheduler.now + seconds
        while late := [each for each in wanted if not str(self.nodes[each].status()["registry"]).startswith("in step")]:
            if self.scheduler.now >= end:
                node = self.nodes[late[0]]
                why = f": it cannot start: {node.failed}" if node.failed else ""
                raise TryAgain(f"after {seconds:g} s the agent of {node.name} is not in step with the registry{why}")
            self.scheduler.passes(0.1)

    def stop(self, uuids: Iterable[str]) -> None:
        """End agents, where they run."""
        for each in uuids:
            node = self.nodes.pop(each, None)
            if node is not None:
                del self.hypervisors[each]
                node.end()

    # -- power

    def crash(self, node: str) -> None:
        """Let a node lose its power: its kernel, its guests and its agent are gone at once, and its disk is as it was. Raises HostRefused.

        Its registry is not told that connections have ended.
        """
        machine = self.nodes.pop(node, None)
        if machine is None:
            raise HostRefused(f"node {node!a:.80} has no agent that runs", "list says which there are")
        self.hypervisors.pop(node).off = True
        self.registry.wire.dead.add(node)
        machine.kill()
        machine.end()
        self.off[node] = machine
        for vm in stored.of_node(self.root, node)[0]:
            if vm.state == "incoming":
                self.vms.forget(node, vm.uuid)
            elif vm.runs:
                self.vms.keep(node, vm.crashed())

    def boot(self, node: str) -> None:
        """Switch a node on that has crashed: another boot, nothing in /run and /proc, and its agent starts. Raises HostRefused."""
        if node not in self.off:
            raise HostRefused(f"node {node!a:.80} has not crashed", "crash it first")
        sysinfo.inside(self.root, node)
        del self.off[node]
        lost.switch_on(self.root, node)
        self.registry.wire.dead.discard(node)
        one = sysinfo.read(self.root, node)
        if one is not None:
            self._start(one)

    def close(self) -> None:
        """End all agents and the registry; what is on disk stays."""
        self.stop(list(self.nodes))
        self._note_time(closed=True)
        if not self.registry.stopped:
            self.registry.stop()
        self.watcher.close()
        self.scheduler.close()
        os.close(self._lock)

    # -- looking

    def counted(self) -> Counted:
        """Count the nodes."""
        tree = sysinfo.look(self.root)
        return Counted(len(tree.nodes), len(self.nodes), sum(each["alive"] for each in self._known().values()), len(tree.refused))

    def list(self) -> list[dict[str, Any]]:
        """List the nodes: what each is, and how it stands."""
        alive = {uuid for uuid, each in self._known().items() if each["alive"]}
        return [each.shown(each.uuid in self.nodes, each.uuid in alive) for each in sysinfo.look(self.root).nodes]

    def status(self, node: str) -> dict[str, Any]:
        """Say how the agent of a node stands. Raises HostRefused where it has none."""
        if node not in self.nodes:
            raise HostRefused(f"node {node!a:.80} has no agent that runs", "list says which there are")
        return {"system_type": sysinfo.VIRTUAL, **self.nodes[node].status()}

    def _known(self) -> dict[str, dict[str, Any]]:
        """Give what the registry says of simulated nodes."""
        return {each["node"]["uuid"]: each for each in self.registry.client().all("nodes", kind="virtual")}
