"""Nodes and their registry in one process, under one clock: the real machine, the real core, and a network that loses, repeats and delays.

What a node has, and what is wanted by a Ganeti cluster, is the world's own truth: what the registry says is held against it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from netagent.sync.machine import Machine
from netagent.sync.requests import Add, Alarm, Asked, Inventory, Listing, Request, Send, Want, Watch
from netregistry.local import Local
from netregistry.model import keys
from netregistry.model.codec import write
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call, Response, new_id
from netregistry.service.streams import Channel, Streams
from netregistry.stores.base import Batch
from netregistry.stores.sqlite import SqliteStore

CLUSTER = "gnt.example.com"
OPERATOR, GANETI = Identity("operator", "root", "unix"), Identity("importer", CLUSTER, "unix")
ALIVE = 15.0


def uuid(kind: int, number: int) -> str:
    return f"{number:08x}-{kind:04x}-4000-8000-000000000000"


class Registry:
    """The real core over SQLite in memory, with streams as its service has them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epochs = 0
        self.store = SqliteStore.create(":memory:", "e0", lambda: world.time)
        self.streams: Streams | None = None
        self._open()

    def _open(self) -> None:
        self.local = Local(self.store, lambda: 1.8e9 + self._world.time, "here", self._hear)
        self.streams = Streams(self.local.view, 100)

    def _hear(self, batch: Batch | None) -> None:
        if self.streams is not None:
            self.streams.hear(self.local.view, batch)

    def answer(self, call: Call, who: Identity) -> Response:
        return self.local.answer(call, who)

    def copy(self) -> bytes:
        return bytes(self.store._database.serialize())

    def restore(self, copy: bytes) -> None:
        """Begin another epoch with what there was; everybody's stream ends."""
        for channel in self.streams.all() if self.streams else ():
            channel.end("restored")
        self.streams = None
        self.local.close()
        self.store.close()
        self.epochs += 1
        self.store = SqliteStore.create(":memory:", "x", lambda: self._world.time)
        self.store._database.deserialize(copy)
        self.store._ready()
        self.store.renew_epoch(f"e{self.epochs}")
        self._open()

    def tick(self) -> None:
        """What a service does by time."""
        self.store.tick()
        self.local.work()
        if self.streams is not None:
            self.streams.beat(self.local.view)


class Node:
    """One node: what it has (``taps``, ``defined``), what its disk keeps, and its agent's machine, which a restart makes anew."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.uuid = world, uuid(2, number)
        self.who = Identity("node", self.uuid, "unix")
        self.taps: dict[str, str] = {}  #: NIC -> running, incoming
        self.since: dict[str, int] = {}  #: NIC -> the step at which it came
        self.defined: set[str] = set()  #: NICs of this node's own
        self.disk: dict[tuple[str, str], Any] = {}
        self.waiting: list[Asked] = []  #: on their way to the registry
        self.answers: list[tuple[Asked, Response | None]] = []  #: on their way back; None: nothing comes
        self.lines: list[dict[str, Any]] = []
        self.reachable = True
        self.starts = 0
        self.start()

    # -- what the machine asks of it

    def report(self, nic: str) -> Mapping[str, Any] | None:
        return {"nic": nic, "state": self.taps[nic], "tap": "tap0"} if nic in self.taps else None

    def about(self) -> Mapping[str, Any]:
        return {"version": "1"}

    def definition(self, nic: str) -> Mapping[str, Any] | None:
        return {"uuid": nic, "found": True, "mode": "bridged"} if nic in self.defined else None

    def up(self, nic: str, state: str) -> None:
        """Let a NIC come."""
        self.taps[nic], self.since[nic] = state, self.world.steps
        self.machine.touched(nic)

    # -- its agent

    def start(self) -> None:
        """Kill the agent, and start another one, which knows what is on disk."""
        self.starts += 1
        self.incarnation = uuid(0x9000 + self.starts, int(self.uuid[:8], 16))
        self.waiting, self.answers, self.lines = [], [], []
        self.channel: Channel | None = None
        self.machine = Machine(self.uuid, self, self.world.id, self.world.chance.random, self.world.time, self.disk)
        for nic in self.taps:
            self.machine.touched(nic)

    def turn(self) -> None:
        """Do what the machine asks for."""
        for request in self.machine.requests(self.world.time):
            self._do(request)

    def _do(self, request: Request) -> None:
        if isinstance(request, Watch):
            self._watch(request)
        elif isinstance(request, Want):
            if request.value is None:
                for what in ("nic", "options") if request.what != "network" else ("network",):
                    self.disk.pop((what, request.uuid), None)
            else:
                if request.what != "network":
                    self.disk.pop(({"nic": "options", "options": "nic"}[request.what], request.uuid), None)
                self.disk[request.what, request.uuid] = request.value
            self.machine.applied(request.uuid) if request.what == "nic" else None
        elif isinstance(request, Inventory):
            odd = self.world.chance.random()
            self.machine.inventory(None if odd < self.world.trouble else {*self.taps, *self.defined}, self.world.time)
        elif not isinstance(request, Alarm):
            self.world.made.setdefault(request.id, self.world.steps) if not isinstance(request, Listing) else None
            self.waiting.append(request)

    def _watch(self, request: Watch) -> None:
        streams, local = self.world.registry.streams, self.world.registry.local
        assert streams is not None
        self.cut()
        if not self.reachable:
            self.machine.ended("not to be had", self.world.time)
            return
        channel = Channel(self.uuid, self.incarnation, lambda: None)
        try:
            local.sign_on(self.who, self.incarnation, ALIVE)
            streams.open(local.view, channel, request.start)
        except Refused as refused:
            if refused.kind in ("compacted", "epoch"):
                self.machine.compacted(self.world.time)
            else:
                self.machine.ended(refused.detail, self.world.time)
            return
        self.channel = channel
        self.machine.opened()

    def cut(self) -> None:
        """End the stream at the node's end."""
        if self.channel is not None:
            streams = self.world.registry.streams
            if streams is not None:
                streams.close(self.channel)
            self.channel = None
        self.lines = []

    def hear(self, most: int) -> bool:
        """Read some lines of the stream; True if there were any."""
        import json

        if self.channel is None:
            return False
        self.lines += [json.loads(line) for line in self.channel.take().splitlines()]
        read, self.lines = self.lines[:most], self.lines[most:]
        for line in read:
            what, name, value = line.get("what", ""), line.get("uuid", ""), line.get("value")
            assert self.machine.line(line["event"], what, name, line["revision"], value) == ""
        if self.channel.ended and not self.lines:
            self.channel = None
            self.machine.ended("ended", self.world.time)
        return bool(read)

    # -- the network

    def deliver(self, lost: bool) -> None:
        """Let the request that waits arrive; ``lost``: its answer does not."""
        asked = self.waiting.pop(0)
        response = self.world.ask(self, asked)
        self.answers.append((asked, None if lost else response))

    def lose(self) -> None:
        self.answers.append((self.waiting.pop(0), None))

    def take(self) -> None:
        """Let an answer arrive."""
        asked, response = self.answers.pop(0)
        now = self.world.time
        if response is None:
            self.machine.unanswered(now)
        elif isinstance(asked, Listing):
            self.machine.listed(response.revision, response.body, now)
        elif response.status < 300:
            self.machine.done(response.revision, now)
        else:
            self.machine.refused(response.body["type"].rpartition("/")[2], response.body["detail"], now)


class World:
    """Nodes, a registry and a Ganeti cluster's configuration. ``trouble``: how often something is lost."""

    def __init__(self, seed: int, nodes: int = 2, trouble: float = 0.2) -> None:
        self.time, self.steps, self.trouble = 0.0, 0, trouble
        self.chance = random.Random(seed)
        self.made: dict[str, int] = {}  #: request -> the step at which it was thought of
        self.deleted: dict[str, int] = {}  #: NIC -> the step at which its deletion was acknowledged
        self.ganeti: dict[str, dict[str, Any]] = {}  #: NIC -> fields, by Ganeti's configuration
        self.late: list[tuple[Node, Asked]] = []  #: copies of requests, which come at any time
        self.reaped: list[str] = []
        self.registry = Registry(self)
        self.nodes: list[Node] = []
        for number in range(nodes):
            self.nodes.append(Node(self, number))
            body = {"uuid": self.nodes[-1].uuid, "name": f"node{number}", "cluster": CLUSTER}
            assert self.do("node.join", "", body, self.nodes[-1].who).status == 201

    def id(self) -> str:
        return new_id(1.8e9 + self.time, self.chance.getrandbits(74))

    def do(self, action: str, target: str = "", body: Any = None, who: Identity = OPERATOR, match: str = "*") -> Response:
        return self.registry.answer(Call(self.id(), action, target, body, match, False), who)

    def ask(self, node: Node, asked: Asked) -> Response:
        """Do what a node asks for, at the registry; what must never be is looked for."""
        view = self.registry.local.view
        if isinstance(asked, Listing):
            self.registry.local.catch_up()
            found = [write(view.get(key)) for key in view.members("on", node.uuid)]
            return Response(200, found, view.shown_revision(keys.reports(node.uuid)))
        if isinstance(asked, Send):
            return self.registry.answer(Call(asked.id, "report", "", asked.body, "", False), node.who)
        if isinstance(asked, Add):
            there = view.nic(asked.nic) is not None
            response = self.registry.answer(Call(asked.id, "nic.add", "", dict(asked.body), asked.after, False), node.who)
            if not there and asked.nic in self.deleted and self.registry.local.view.nic(asked.nic) is not None:
                assert self.made[asked.id] >= self.deleted[asked.nic], f"{asked.nic} came back by what was asked for before its deletion"
            return response
        there = view.nic(asked.nic) is not None
        response = self.registry.answer(Call(asked.id, "nic.delete", asked.nic, None, asked.revision, False), node.who)
        if there and self.registry.local.view.nic(asked.nic) is None:
            self.reaped.append(asked.nic)
            thought = self.made[asked.id]  # one that is back since then is reported, and made known anew
            alive = [each.uuid for each in self.nodes if asked.nic in each.taps and each.since.get(asked.nic, 0) < thought]
            assert not alive, f"{asked.nic} was reaped, and is alive on {alive}"
        return response

    def delete(self, nic: str, who: Identity) -> None:
        if self.do("nic.delete", nic, None, who).status == 200:
            self.deleted[nic] = self.steps

    def imported(self) -> None:
        """Let the importer make the registry what Ganeti's configuration is."""
        there = {
            key.partition("/")[2]: nic for key, nic in self.registry.local.view.all("nics").items() if nic.master == f"ganeti:{CLUSTER}"
        }
        for nic in sorted(there.keys() - self.ganeti.keys()):
            self.delete(nic, GANETI)
        for nic, fields in self.ganeti.items():
            if nic not in there:
                self.do("nic.add", "", {"uuid": nic, **fields}, GANETI)

    # -- one thing after the other

    def step(self) -> None:
        """Let one thing happen, by chance."""
        self.steps += 1
        chance, node = self.chance, self.chance.choice(self.nodes)
        self.time += chance.choice((0.0, 0.1, 1.0, 7.0)) if chance.random() < 0.98 else chance.choice((60.0, 4000.0))
        for each in self.nodes:
            each.turn()
        kind = chance.random()
        if kind < 0.62:
            self._network(node)
        elif kind < 0.92:
            self._life(node)
        else:
            self._disaster(node)
        self._signs_of_life()

    def _network(self, node: Node) -> None:
        chance = self.chance
        if node.answers and chance.random() < 0.5:
            node.take()
        elif node.waiting and (not node.reachable or chance.random() < self.trouble):
            if node.reachable and chance.random() < 0.5:
                self.late.append((node, node.waiting[0]))
            node.lose()
        elif node.waiting:
            if chance.random() < self.trouble:
                self.late.append((node, node.waiting[0]))
            node.deliver(chance.random() < self.trouble)
        elif self.late and chance.random() < 0.3:
            self.ask(*self.late.pop(chance.randrange(len(self.late))))
        else:
            node.hear(chance.choice((1, 2, 1000)))

    def _life(self, node: Node) -> None:
        chance = self.chance
        nic, other = uuid(3, chance.randrange(4)), uuid(4, chance.randrange(3))
        kind = chance.randrange(9)
        if kind == 0:  # Ganeti's: made, started, stopped, migrated, removed
            self.ganeti.setdefault(nic, {"instance": f"vm{nic[7]}", "index": 0})
            self.imported()
        elif kind == 1 and nic in self.ganeti and not any(nic in each.taps for each in self.nodes):
            node.up(nic, "running")
        elif kind == 2 and nic in node.taps:
            del node.taps[nic]
            node.machine.touched(nic)
        elif kind == 3 and node.taps.get(nic) == "running" and nic in self.ganeti:
            self._migrate(node, nic)
        elif kind == 3 and node.taps.get(other) == "running" and other in node.defined:
            self._migrate(node, other)
        elif kind == 4 and nic in self.ganeti and not any(nic in each.taps for each in self.nodes):
            del self.ganeti[nic]
            self.imported()
        elif kind == 5:  # the operator's values
            options = chance.choice(([], [{"name": "isolated", "value": chance.choice(("yes", "no"))}]))
            self.do("nic.set", chance.choice((nic, other)), {"options": options})
        elif kind == 6 and not any(other in each.defined or other in each.taps for each in self.nodes):  # a plain QEMU guest's
            home = self.nodes[int(other[:8], 16) % len(self.nodes)]
            home.defined.add(other)
            home.up(other, "running")
        elif kind == 7 and other in node.defined and not any(other in each.taps for each in self.nodes if each is not node):
            node.taps.pop(other, None)
            node.machine.touched(other)
            if chance.random() < 0.6:
                node.defined.discard(other)  # by rm
        elif kind == 8 and chance.random() < 0.3:
            self.delete(other, OPERATOR)

    def _migrate(self, node: Node, nic: str) -> None:
        others = [each for each in self.nodes if each is not node]
        target = self.chance.choice(others)
        if nic in target.taps:  # it arrives, or it fails
            if nic in node.defined and self.registry.local.view.get(keys.seen(target.uuid, nic)) is None:
                return  # of a guest that nobody else decides on the registry is to know where it comes to before it goes
            gone, stays = (node, target) if self.chance.random() < 0.7 else (target, node)
            del gone.taps[nic]
            stays.taps[nic] = "running"
            if nic in node.defined and stays is target:
                node.defined.discard(nic)
                target.defined.add(nic)
            gone.machine.touched(nic)
            stays.machine.touched(nic)
        else:
            target.up(nic, "incoming")

    def _disaster(self, node: Node) -> None:
        kind = self.chance.randrange(7)
        if kind == 0:
            node.cut()
            node.start()
        elif kind in (1, 2):
            node.reachable = not node.reachable
            if not node.reachable:
                self._cut_off(node)
        elif kind == 3 and node.channel is not None:
            self._cut_off(node)
        elif kind == 4:
            self._copy = self.registry.copy()
        elif kind == 5 and self.chance.random() < 0.3:
            self.restored(getattr(self, "_copy", None) or self.registry.copy())
        elif kind == 6 and not node.reachable:  # it is off
            node.taps.clear()
            node.start()
            self.do("node.fence", node.uuid, {"force": True})

    def _cut_off(self, node: Node) -> None:
        if node.channel is not None:
            node.cut()
            node.machine.ended("cut off", self.time)

    def restored(self, copy: bytes) -> None:
        self.registry.restore(copy)
        for node in self.nodes:
            if self.registry.local.view.node(node.uuid) is None:
                self.do("node.join", "", {"uuid": node.uuid, "name": f"node{node.uuid[7]}", "cluster": CLUSTER}, node.who)
        # what was deleted since the copy is wanted again: its master deletes it anew
        self.deleted = {nic: at for nic, at in self.deleted.items() if self.registry.local.view.nic(nic) is None}

    def _signs_of_life(self) -> None:
        self.registry.local.catch_up()
        if self.chance.random() < 0.3:
            for node in self.nodes:
                if node.channel is not None and node.reachable:
                    try:
                        self.registry.local.sign_on(node.who, node.incarnation, ALIVE)
                    except Refused:
                        self._cut_off(node)
            self.registry.tick()

    # -- the end

    def heal(self) -> int:
        """Let nothing be lost any more until nothing is left to say, and a comparison has been; give how many seconds that took."""
        self.trouble, begun = 0.0, self.time
        for node in self.nodes:
            node.reachable = True
        self.imported()
        until = self.time + 3 * 4000.0
        while self.time < until or not all(node.machine.clean for node in self.nodes):
            assert self.time < until + 20_000, [vars(node.machine) for node in self.nodes]
            later = min(node.machine.next() for node in self.nodes)
            self.time = max(self.time + 0.5, min(later, until)) if self.time > begun + 20 else self.time + 0.5
            for node in self.nodes:
                for _ in range(30):
                    node.turn()
                    while node.waiting:
                        node.deliver(False)
                    while node.answers:
                        node.take()
                    if not node.hear(10_000) and not node.waiting:
                        break
            self.steps += 1
            for node in self.nodes:
                if node.channel is not None:
                    try:
                        self.registry.local.sign_on(node.who, node.incarnation, ALIVE)
                    except Refused:
                        self._cut_off(node)
            self.registry.tick()
        return int(self.time - begun)

    def differences(self) -> Iterator[str]:
        """Tell in what the registry, the nodes and their disks differ, after all is said."""
        view = self.registry.local.view
        for node in self.nodes:
            seen = {key.rpartition("/")[2]: view.get(key).state for key in view.members("on", node.uuid)}
            for nic, there in node.taps.items():
                if seen.pop(nic, "") != there:
                    yield f"{nic} is {there} on {node.uuid}, and the registry does not say so"
            for nic, said in seen.items():
                if said != "stopped" or view.nic(nic) is None:
                    yield f"{nic} is {said} on {node.uuid} by the registry, and is not there"
            for nic in node.defined:
                if view.nic(nic) is None:
                    yield f"{nic} is defined on {node.uuid}, and the registry does not know it"
            yield from self._kept(node)
        for key, nic in view.all("nics").items():
            master = nic.master.partition(":")
            if master[0] == "ganeti" and nic.uuid not in self.ganeti:
                yield f"{key} is wanted, and Ganeti has none"
            if master[0] == "node" and view.members("seen", nic.uuid):
                owners = [each for each in self.nodes if each.uuid == master[2] and "reaping" not in each.machine.alarms]
                if owners and not any(nic.uuid in each.defined or nic.uuid in each.taps for each in self.nodes):
                    yield f"{key} is wanted by {nic.master}, which has it no more"
        for nic in self.ganeti:
            if view.nic(nic) is None:
                yield f"{nic} is Ganeti's, and not wanted"

    def _kept(self, node: Node) -> Iterator[str]:
        view = self.registry.local.view
        own = {key.rpartition("/")[2] for key in view.members("on", node.uuid)}
        own |= {key.rpartition("/")[2] for key in view.members("mastered", f"node:{node.uuid}")}
        wanted = {("nic", nic): write(view.nic(nic)) for nic in own if view.nic(nic) is not None}
        for key in view.members("optioned", CLUSTER):
            nic = key.rpartition("/")[2]
            if nic not in own:
                wanted["options", nic] = write(view.nic(nic).options)  # type: ignore[union-attr]
        if node.disk != wanted:
            yield f"{node.uuid} keeps {node.disk}, and {wanted} is wanted"
