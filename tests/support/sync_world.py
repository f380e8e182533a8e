"""Nodes that synchronise with a registry, all simulated but what is tried: the real machine, the real core of the registry and its streams.

Messages are late, lost, doubled and cut off; agents and the registry are killed, the registry is restored from an old copy or moved; guests
start, stop and migrate, are defined and taken out, inventories fail. One seed, one history. Each commit is looked at as it is done.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from netagent.sync.became import Did, Left
from netagent.sync.laid import DropUnderlay, SetUnderlay, Standing, UnderlayMarked
from netagent.sync.machine import Machine
from netagent.sync.messages import (
    Alarm,
    Answered,
    Apply,
    Ask,
    AskNode,
    Beat,
    Check,
    Close,
    Drop,
    DropNetwork,
    Ended,
    Event,
    Failed,
    Failure,
    Hello,
    Keep,
    Line,
    List,
    Local,
    Look,
    Looked,
    Marked,
    Retain,
    Save,
    Send,
    SetNetwork,
    Survey,
    Surveyed,
    Wanted,
    Watch,
)
from netagent.sync.rules import Rules
from netregistry.model.history import Identity
from netregistry.model.nic import Option, Report
from netregistry.model.node import About
from netregistry.refusal import Refused
from netregistry.request import Call, made, new_id
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry
from netregistry.service.streams import Channel
from netregistry.stores.base import Batch, Put
from netregistry.stores.sqlite import SqliteStore
from runtime.wanted import in_part
from tests.support.registry import NODES, OPERATOR
from tests.support.service import Lines

CLUSTER = "gnt.example.com"
GANETI = Identity("importer", CLUSTER, "unix")
RULES = Rules(pause=5.0, first=(20.0, 60.0), every=300.0, confirm=30.0, cap=2)
TIMEOUT = 20.0  #: seconds after which an answer is not waited for any more
VALUES = [("isolated", "yes"), ("isolated", "no"), ("rate_in", "512kbit"), ("firewall", "limited")]
UUIDS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(8)]


class Guest:
    """One NIC of a guest that is here."""

    def __init__(self, mac: str, since: float, incoming: bool = False) -> None:
        self.mac, self.since, self.incoming = mac, since, incoming
        self.force: tuple[Any, ...] = ()
        self.applied = ""
        self.network = self.told = ""  #: whose values it is told, and their revision


class Node:
    """One node: what is there, what is on its disk, and its agent while that runs."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.uuid, self.number = world, NODES[number], number
        self.guests: dict[str, Guest] = {}
        self.defined: dict[str, dict[str, Any]] = {}
        self.disk: dict[str, Wanted] = {}
        self.networks: dict[str, str] = {}
        self.underlay: dict[str, Any] | None = None  #: what is kept of it, and there
        self.document: Any = None
        self.trouble = ""  #: of inventories
        self.full = False  #: nothing can be written
        self.machine: Machine | None = None
        self.life = 0
        self.alarms: dict[str, str] = {}
        self.channel: Channel | None = None
        self.arrives = 0.0  #: when the last line of the stream does
        self.incarnation = ""
        self.timer: float = float("inf")

    # -- the agent

    def start(self) -> None:
        self.life += 1
        if not self.incarnation or self.world.chance.random() < 0.5:  # else the machine was not started anew, but its agent
            self.incarnation = new_id(self.world.time, self.world.chance.getrandbits(74))
        self.alarms = {}
        world = self.world
        self.machine = Machine(self.uuid, RULES, world.id, world.chance.random, world.time, self.document, self.incarnation)
        self.turn()

    def kill(self) -> None:
        self.machine = None
        self.life += 1
        self.timer = float("inf")
        if self.channel is not None:
            self.world.close(self.channel)
        self.channel = None

    def tell(self, event: Event) -> None:
        if self.machine is not None:
            self.machine.take(event, self.world.time)
            self.turn()

    def mark(self, uuid: str) -> None:
        """Mark what happens on the node; an event may be lost, as inotify loses some."""
        if self.world.faulty and self.world.chance.random() < 0.02:
            return
        self.tell(Marked(uuid))

    def turn(self) -> None:
        if self.machine is None:
            return
        for request in self.machine.turn(self.world.time):
            self.world.count[type(request).__name__] = self.world.count.get(type(request).__name__, 0) + 1
            self.ask(request)
        due = self.machine.due(self.world.time)
        if due < self.timer or self.timer <= self.world.time:
            self.timer = max(due, self.world.time)
            if due < float("inf"):
                self.world.at(self.timer, self._timed(self.life, self.timer))

    def _timed(self, life: int, when: float) -> Callable[[], None]:
        def run() -> None:
            if self.life == life and self.timer == when:
                self.timer = float("inf")
                self.turn()

        return run

    def later(self, make: Callable[[], Event], slow: float = 0.05) -> None:
        """Let the agent be answered by this node in a while: what is looked at is as it is then."""
        life = self.life

        def run() -> None:
            if self.life == life:
                self.tell(make())

        self.world.at(self.world.time + self.world.chance.uniform(0.0, slow), run)

    def ask(self, request: Any) -> None:
        world = self.world
        if isinstance(request, Look):
            self.later(lambda: self.looked(request))
        elif isinstance(request, Survey):
            self.later(self.surveyed)
        elif isinstance(request, Apply | Keep | Drop | SetNetwork | DropNetwork | SetUnderlay | DropUnderlay | Retain | Check):
            self.later(lambda: self.do(request), 1.0)
        elif isinstance(request, Save):
            self.document = json.loads(json.dumps(request.document))
        elif isinstance(request, Alarm):
            self.alarms[request.name] = request.text
        elif isinstance(request, Watch):
            world.watch(self, request.start, request.underlay)
        elif isinstance(request, Close):
            if self.channel is not None:
                world.close(self.channel)
                self.channel = None
            self.later(lambda: Ended(Failure("", "closed")))
        elif isinstance(request, Hello | AskNode | List | Send | Ask | Beat):
            if isinstance(request, Ask) and request.method == "DELETE":
                assert not self.here(request.uuid), "a NIC that is here is to be removed from the registry"
                assert not self.trouble, "something is removed by an inventory that was not whole"
            world.send(self, request)

    # -- what is on the node

    def here(self, uuid: str) -> bool:
        return uuid in self.guests or uuid in self.defined

    def local(self, uuid: str) -> Local | None:
        guest, defined = self.guests.get(uuid), self.defined.get(uuid)
        if guest is None and defined is None:
            return None
        fields = {"mac": mac_of(uuid), "instance": f"web{uuid[7]}", "index": 0, **(defined or {})}
        if guest is None:
            return Local(Report(uuid, "stopped", since=1.0), fields)
        options = tuple(Option(*each) for each in guest.force)
        state: Any = "incoming" if guest.incoming else "running"
        report = Report(uuid, state, f"tap{uuid[7]}", guest.mac, options=options, applied=guest.applied, since=guest.since)
        return Local(report, fields, self.world.is_ganeti(uuid), guest.network, guest.told, endpoints=("console",))

    def becomes(self, guest: Guest, wanted: Wanted) -> None:
        """Let a guest that is here, or comes, be what is wanted of its NIC, and be told what lies here of its network."""
        guest.force, guest.applied, guest.network = wanted.options, wanted.revision, wanted.network
        guest.told = self.networks.get(wanted.network, "")

    def looked(self, request: Look) -> Looked:
        unclear = self.trouble != "" or (self.world.faulty and self.world.chance.random() < 0.03)
        found = {uuid: local for uuid in request.uuids if (local := self.local(uuid)) is not None}
        unseen = frozenset(uuid for uuid in request.uuids if uuid not in found) if unclear else frozenset()
        standing = Standing(*self.standing) if request.underlay and not unclear else None
        return Looked(found, unseen, About(version="1") if request.about else None, self.world.time, standing)

    @property
    def standing(self) -> tuple[int, tuple[str, ...]]:
        """Give the generation and the addresses of the underlay that are there."""
        kept = self.underlay
        return (0, ()) if kept is None else (kept["generation"], tuple(each["address"] for each in kept["endpoints"]))

    def surveyed(self) -> Surveyed:
        found = {uuid: local for uuid in UUIDS if (local := self.local(uuid)) is not None}
        if self.trouble == "empty":
            return Surveyed({})
        if self.trouble:
            return Surveyed(dict(list(found.items())[: len(found) // 2]), "a folder cannot be read", len(self.defined))
        return Surveyed(found, defined=len(self.defined))

    def do(self, job: Any) -> Event:
        world = self.world
        if world.faulty and world.chance.random() < 0.1:
            return Did(job.key, "", again=True)
        uuid = job.key[1]
        if self.full and not isinstance(job, Check):
            revision = job.wanted.revision if isinstance(job, Apply | Keep) else job.revision
            return Did(job.key, revision, refused="the disk is full", host=True, again=isinstance(job, Retain))
        if isinstance(job, Apply):
            guest = self.guests.get(uuid)
            if guest is not None and uuid in world.stubborn and any(each.name == "firewall" for each in job.wanted.options):
                return Did(job.key, job.wanted.revision, refused="the host refuses it")
            self.disk[uuid] = job.wanted
            if guest is not None:
                self.becomes(guest, job.wanted)
            return Did(job.key, job.wanted.revision)
        if isinstance(job, Keep):
            if uuid in self.guests:
                return Did(job.key, job.wanted.revision, up=True)
            self.disk[uuid] = job.wanted
            return Did(job.key, job.wanted.revision)
        if isinstance(job, Check):
            lost = [("nic", each) for each, wanted in job.nics.items() if self.disk.get(each) != wanted]
            lost += [("network", each) for each, revision in job.networks.items() if self.networks.get(each) != revision]
            lost += [("nic", each) for each, there in self.disk.items() if job.parts and there.revision == in_part(there.revision)]
            return Did(job.key, "", left=tuple(map(Left, lost)))
        left = []
        if isinstance(job, SetNetwork):
            self.networks[uuid] = job.revision
            touched = tuple(each for each, guest in self.guests.items() if guest.network == uuid)
            return Did(job.key, job.revision, touched=touched)
        if isinstance(job, SetUnderlay | DropUnderlay):
            self.underlay = dict(job.value) if isinstance(job, SetUnderlay) else None
            self.later(UnderlayMarked)
        elif isinstance(job, DropNetwork):
            self.networks.pop(uuid, None)
        elif isinstance(job, Drop):
            if uuid in self.guests and uuid in self.disk:
                return Did(job.key, job.revision, up=True)
            self.disk.pop(uuid, None)
        else:
            going = [each for each in self.disk if each not in job.nics]
            left = [Left(("nic", each)) for each in going if each in self.guests]
            self.disk = {each: wanted for each, wanted in self.disk.items() if each not in going or each in self.guests}
            self.networks = {each: at for each, at in self.networks.items() if each in job.networks}
        return Did(job.key, job.revision, left=tuple(left))


def mac_of(uuid: str) -> str:
    return f"aa:00:00:00:00:0{uuid[7]}"


class Removal(NamedTuple):
    """A deletion that ``by`` has heard of, who asked for nothing meanwhile; others may know of it from its commit on. Seconds."""

    by: str
    committed: float
    acknowledged: float


class World:
    """Everything. ``faulty``: whether anything goes wrong."""

    def __init__(self, seed: int, nodes: int = 2) -> None:
        self.chance = random.Random(seed)
        self.time = 1_800_000_000.0
        self.faulty = True
        self.late = 0.0  #: when the last copy of a request comes
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.count: dict[str, int] = {}
        self.removed: dict[tuple[str, str], float] = {}  # what was removed -> when that was committed
        self.acknowledged: dict[tuple[str, str], Removal] = {}  # what was removed, and that it was has been acknowledged
        self.stubborn: set[str] = set()
        self.unwelcome: dict[str, str] = {}  #: NICs, and "about", whose reports the registry refuses -> how
        self.copies: list[tuple[list[tuple[str, bytes]], int]] = []
        self.epoch = self.ticks = 0
        self.registry: Registry | None = None
        self.store = SqliteStore.create(":memory:", "epoch0", lambda: self.time)
        self.open()
        for number in range(nodes):
            body = {"uuid": NODES[number], "name": f"n{number}", "cluster": CLUSTER}
            assert self.answer(Call(self.id(), "node.join", "", body), OPERATOR).status == 201
        network = {"uuid": NETWORK, "name": "blue", "subnet": "192.0.2.0/24", "cluster": CLUSTER}
        assert self.answer(Call(self.id(), "network.add", "", network), OPERATOR).status == 201
        if seed % 3 == 1:
            site = {"prefix": "fd12:3456:789a::/48", "zone": "hosts.example.com", "minimum_age": 60, "ttl": 10}
            assert self.answer(Call(self.id(), "underlay.init", "", site), OPERATOR).status == 200
        self.nodes = [Node(self, number) for number in range(nodes)]
        for node in self.nodes:
            node.start()
        self.at(self.time + 1.0, self.tick)

    def id(self) -> str:
        return new_id(self.time, self.chance.getrandbits(74))

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), action))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.time + seconds
        while self.events and self.events[0][0] <= until:
            when, _order, action = heapq.heappop(self.events)
            self.time = max(self.time, when)
            action()
        self.time = until

    def is_ganeti(self, uuid: str) -> bool:
        return int(uuid[7]) >= 4

    # -- the registry

    def open(self) -> None:
        self.registry = Registry(self.store, "1.2", Lines(), Limits(), lambda: self.time)
        self.looked = self.registry.local.view.revision
        self.judge = self.store.watch("", self.looked + 1)

    def down(self) -> None:
        """Kill the registry: streams are cut off where they are."""
        assert self.registry is not None
        for node in self.nodes:
            if node.channel is not None:
                channel, node.channel = node.channel, None
                self.cut(node, channel)
        self.registry.local.close()
        self.registry = None

    def restore(self, items: list[tuple[str, bytes]]) -> None:
        """Begin a new epoch with these items, by an earlier copy or the newest."""
        if self.registry is not None:
            self.down()
        self.epoch += 1
        self.store = SqliteStore.create(":memory:", f"epoch{self.epoch}", lambda: self.time)
        for place in range(0, len(items), 100):
            self.store.commit((), [Put(key, value) for key, value in items[place : place + 100]])
        self.removed.clear()
        self.acknowledged.clear()  # what was acknowledged since the copy is not so any more
        self.open()

    def copy(self) -> list[tuple[str, bytes]]:
        return [(item.key, item.value) for item in self.store.list("").items if not item.key.startswith(("alive/", "leader"))]

    def answer(self, call: Call, who: Identity) -> Any:
        assert self.registry is not None
        response = self.registry.answer(call, who)
        self.look()
        return response

    def look(self) -> None:
        """Judge what was committed: the registry has taken it in by now."""
        if self.registry is not None and self.registry.local.view.revision == self.looked:
            return
        while (batch := self.judge.next(0.0)).changes:
            self.judged(batch)
        self.looked = batch.revision

    def judged(self, batch: Batch) -> None:
        changed = {change.key: change.value for change in batch.changes}
        request = next((key.partition("/")[2] for key in changed if key.startswith("history/")), "")
        for key, value in changed.items():
            kind, _, rest = key.partition("/")
            if kind == "reports" and value is not None:
                request = json.loads(value)["request"]
        for key, value in changed.items():
            kind, _, rest = key.partition("/")
            if kind in ("nics", "seen") and value is not None and request:
                gone = self.acknowledged.get((kind, rest))
                writer = rest.partition("/")[0] if kind == "seen" else json.loads(changed[f"history/{request}"] or b"")["who"]["name"]
                after = gone is None or made(request) >= int((gone.acknowledged if writer == gone.by else gone.committed) * 1000)
                assert after, "a write from before was accepted after an acknowledged deletion"
            if kind in ("nics", "seen") and value is None:
                self.removed[kind, rest] = self.time
            if kind == "nics" and value is None and request:
                self.deleted(rest, json.loads(changed[f"history/{request}"] or b""))

    def acknowledge(self, what: tuple[str, str], by: str) -> None:
        """Note that somebody has heard that something is removed: from here on a write that was made before counts no more."""
        if what in self.removed:
            self.acknowledged[what] = Removal(by, self.removed[what], self.time)

    def deleted(self, uuid: str, entry: Any) -> None:
        """No node has deleted what somebody says to be alive."""
        if entry["who"]["role"] != "node":
            return
        for node in NODES:
            item = self.store.get(f"seen/{node}/{uuid}")
            assert item is None or json.loads(item.value)["state"] == "stopped", "a live NIC was removed from the registry"

    def tick(self) -> None:
        if self.registry is not None:
            self.registry.tick()
            self.ticks += 1
            if self.ticks % 3 == 0:
                self.registry.beat()
            self.look()
            self.pump()
        self.at(self.time + 2.0, self.tick)

    # -- the network

    def delay(self) -> float:
        if not self.faulty:
            return self.chance.uniform(0.0, 0.02)
        return self.chance.choice([0.0, 0.01, 0.1, 1.0, 8.0])

    def send(self, node: Node, request: Any) -> None:
        """Bring a request to the registry and the answer back; some of both get lost, and some requests come again much later."""
        life, given = node.life, [False]

        def back(event: Event) -> None:
            def run() -> None:
                if node.life == life and not given[0]:
                    given[0] = True
                    if isinstance(event, Answered) and isinstance(request, Ask) and request.method == "DELETE":
                        self.acknowledge(("nics", request.uuid), node.uuid)
                    if isinstance(event, Answered) and isinstance(request, Send):
                        for uuid in request.body["removed"]:
                            self.acknowledge(("seen", f"{node.uuid}/{uuid}"), node.uuid)
                    node.tell(event)

            if not (self.faulty and self.chance.random() < 0.05):
                self.at(self.time + self.delay(), run)

        def serve(first: bool) -> None:
            if self.registry is None:
                event: Event = Failed(Failure("", "nobody listens"))
            else:
                event = self.serve(node, request)
                self.pump()
            if first:
                back(event)

        def lost() -> None:
            if node.life == life and not given[0]:
                given[0] = True
                node.tell(Failed(Failure("", "no answer in time")))

        self.at(self.time + TIMEOUT, lost)
        if not (self.faulty and self.chance.random() < 0.05):
            self.at(self.time + self.delay(), lambda: serve(True))
        if self.faulty and isinstance(request, Send | Ask) and self.chance.random() < 0.15:
            self.late = max(self.late, when := self.time + self.chance.choice([0.5, 5.0, 60.0, 600.0, 2000.0]))
            self.at(when, lambda: serve(False))

    def serve(self, node: Node, request: Any) -> Event:
        """Do what the service does."""
        assert self.registry is not None
        reader, who = self.registry.reader, Identity("node", node.uuid, "unix")
        try:
            if isinstance(request, Hello):
                return self._shown(reader.abilities())
            if isinstance(request, AskNode):
                return self._shown(reader.node(node.uuid))
            if isinstance(request, List):
                narrowed = {"master": f"node:{node.uuid}"} if request.what == "mastered" else {"node": node.uuid}
                found = (reader.reports if request.what == "reports" else reader.nics)({**narrowed, "limit": 1000})
                return Answered(json.loads(json.dumps(found.body["items"])), found.revision)
            if isinstance(request, Beat):
                return Answered({"seconds": self.registry.heartbeat(who, node.uuid, {"incarnation": node.incarnation})})
        except Refused as refused:
            return Failed(Failure(refused.kind, refused.detail))
        if isinstance(request, Send):
            said = [each["nic"] for each in request.body["nics"]] + ["about"] * ("about" in request.body)
            if kinds := [self.unwelcome[each] for each in said if each in self.unwelcome]:
                return Failed(Failure(kinds[0], "the registry does not take it"))
            call = Call(request.id, "report", "", json.loads(json.dumps(request.body)), "")
        else:
            action = {"POST": "nic.add", "PATCH": "nic.set", "DELETE": "nic.delete"}[request.method]
            target = "" if request.method == "POST" else request.uuid
            call = Call(request.id, action, target, json.loads(json.dumps(request.body)), request.match)
        response = self.answer(call, who)
        if response.status >= 400:
            return Failed(Failure(response.body["type"].rpartition("/")[2], response.body["detail"]))
        return Answered(response.body, response.revision)

    def _shown(self, answer: Any) -> Answered:
        return Answered(json.loads(json.dumps(answer.body)), answer.revision)

    def watch(self, node: Node, start: str, underlay: bool) -> None:
        life = node.life

        def begin() -> None:
            if node.life != life:
                return
            if self.registry is None:
                node.tell(Ended(Failure("", "nobody listens")))
                return
            wanted = {"node": node.uuid, "incarnation": node.incarnation, "from": start, "underlay": int(underlay)}
            try:
                node.channel = self.registry.watch(Identity("node", node.uuid, "unix"), wanted, lambda: None)
            except Refused as refused:
                node.tell(Ended(Failure(refused.kind, refused.detail)))
                return
            self.look()
            self.pump()

        self.at(self.time + self.delay(), begin)

    def close(self, channel: Channel) -> None:
        if self.registry is not None:
            self.registry.streams.close(channel, "the hearer is gone")

    def cut(self, node: Node, channel: Channel) -> None:
        """End a stream in the middle of what it says."""
        lines = channel.take().decode("ascii").splitlines()
        self.lines(node, lines[: self.chance.randrange(len(lines) + 1)], Failure("", "cut off"))

    def pump(self) -> None:
        """Send on what streams have; in order, each at its time."""
        for node in self.nodes:
            channel = node.channel
            if channel is None:
                continue
            if self.faulty and self.chance.random() < 0.003:
                node.channel = None
                self.close(channel)
                self.cut(node, channel)
                continue
            if not (channel.waiting or channel.ended):
                continue
            ended, lines = channel.ended, channel.take().decode("ascii").splitlines()
            if ended and not lines:
                node.channel = None
                self.lines(node, [], Failure("", ended))
            elif lines:
                self.lines(node, lines)

    def lines(self, node: Node, lines: list[str], end: Failure | None = None) -> None:
        life = node.life
        node.arrives = max(node.arrives, self.time + self.delay())

        def run() -> None:
            if node.life == life and node.machine is not None:
                for line in lines:
                    node.machine.take(Line(json.loads(line), len(line)), self.time)
                if end is not None:
                    node.machine.take(Ended(end), self.time)
                node.turn()

        self.at(node.arrives, run)


NETWORK = "13264fb6-0667-415f-9a43-786dc01cbf24"
