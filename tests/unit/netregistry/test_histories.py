"""Let many clients ask several services over one store, with crashes, lost answers and late copies, and have each commit judged by a
checker that shares no code with the registry (tests/support/registry_checker.py).
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netregistry import use
from netregistry.core import Compact, Effect, Result
from netregistry.draft import Commit
from netregistry.local import Local
from netregistry.model.history import Identity
from netregistry.request import Call, Response, new_id
from netregistry.stores.base import Conflict, Delete, Expect, Put, Unknown
from netregistry.stores.sqlite import SqliteStore
from tests.support.registry import GANETI, NODES, OPERATOR, node
from tests.support.registry_checker import FOREVER, Checker

NETWORKS = ["13264fb6-0667-415f-9a43-786dc01cbf24", "23264fb6-0667-415f-9a43-786dc01cbf24"]
SMALL = NETWORKS[0]
NICS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(8)]
MACS = [f"aa:00:00:00:00:0{number}" for number in range(1, 4)]
ADDRESSES = [f"192.0.2.{number}" for number in range(1, 7)]
INSTANCES = ["web1", "web2", ""]
QUARANTINE = 100.0


class Shaky(SqliteStore):
    """A store whose answers get lost: the commit is done, not done, or done later, when nobody waits for it any more."""

    chance: random.Random
    late: list[tuple[tuple[Expect, ...], tuple[Put | Delete, ...]]]

    def commit(self, tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
        lost = self.chance.random()
        if lost < 0.05:
            raise Unknown("lost before it was done")
        if lost < 0.1:
            self.late.append((tuple(tests), tuple(changes)))
            raise Unknown("done later, if at all")
        done = super().commit(tests, changes)
        if lost < 0.15:
            raise Unknown("done, and the answer lost")
        return done

    def deliver(self) -> None:
        """Let one of the delayed commits arrive."""
        if self.late:
            try:
                super().commit(*self.late.pop(self.chance.randrange(len(self.late))))
            except Conflict:
                pass


class Running:
    """A request that a service is at."""

    def __init__(self, call: Call, who: Identity, service: Local) -> None:
        self.call, self.who, self.service = call, who, service
        self.steps: Generator[Effect, Result, Response] = service.core.answer(call, who)
        self.effect: Effect | None = None


class World:
    """Services, clients, and the checker that sees each commit as it is done."""

    def __init__(self, chance: random.Random, services: int) -> None:
        self.chance, self.time = chance, 1_800_000_000.0
        self.store = Shaky.create(":memory:", "first", lambda: self.time)
        assert isinstance(self.store, Shaky)
        self.store.chance, self.store.late = random.Random(0), []
        self.store.chance.random = lambda: 1.0  # type: ignore[method-assign]
        self.checker, self.watch = Checker(QUARANTINE), self.store.watch("", 1)
        self.services = [Local(self.store, lambda: self.time, f"s{number}") for number in range(services)]
        self.running: list[Running] = []
        self.sent: list[tuple[Call, Identity]] = []
        self.answered: dict[str, tuple[int, Any]] = {}
        self.released = f"addresses/{SMALL}/{ADDRESSES[0]}"
        for call, who in self._begin():
            assert self.services[0].answer(call, who).status < 300
        self.look()
        self.store.chance = chance

    def _begin(self) -> list[tuple[Call, Identity]]:
        small = {"uuid": NETWORKS[0], "name": "small", "subnet": "192.0.2.0/29", "gateway": "192.0.2.6", "mac_prefix": "aa:00:00:00:00"}
        calls = [("settings.set", "", {"quarantine": QUARANTINE, "history_seconds": 86400.0, "history_entries": 1000})]
        calls += [("network.add", "", small)]
        calls += [("node.join", "", {"uuid": NODES[number], "name": f"n{number}", "cluster": ""}) for number in range(2)]
        return [(Call(self._id(), *call, "*"), OPERATOR) for call in calls]

    def _id(self) -> str:
        return new_id(self.time, self.chance.getrandbits(74))

    def look(self) -> None:
        while (batch := self.watch.next(0.0)).changes:
            self.checker.commit(batch.revision, [(change.key, change.value) for change in batch.changes])

    # -- what happens by chance

    def step(self) -> None:
        kind = self.chance.choices(["ask", "go", "copy", "late", "crash", "time", "work"], [6, 20, 2, 2, 1, 2, 1])[0]
        if kind == "ask" and len(self.running) < 6:
            call, who = self.request()
            self.sent.append((call, who))
            self.running.append(Running(call, who, self.chance.choice(self.services)))
        elif kind == "copy" and self.sent:
            self.running.append(Running(*self.chance.choice(self.sent), self.chance.choice(self.services)))
        elif kind == "late":
            self.store.deliver()
        elif kind == "crash":
            self.crash(self.chance.randrange(len(self.services)))
        elif kind == "time":
            self.time += self.chance.choice([0.5, 0.5, 5.0, 30.0, 30.0, 150.0, 150.0, 4000.0, 90000.0])
        elif kind == "work":
            service = self.chance.choice(self.services)
            service.catch_up()
            self.drive(service, service.leader.work())
        elif self.running:
            self.go(self.chance.choice(self.running))
        self.look()

    def crash(self, number: int) -> None:
        """End a service in the middle of whatever it does; its clients get no answer, and ask again by the same id."""
        gone = self.services[number]
        gone.close()
        self.services[number] = Local(self.store, lambda: self.time, f"s{number}")
        for each in [each for each in self.running if each.service is gone]:
            self.running.remove(each)
            self.running.append(Running(each.call, each.who, self.chance.choice(self.services)))

    def drive(self, service: Local, steps: Any) -> None:
        try:
            effect = next(steps)
            while True:
                effect = steps.send(service.do(effect))
                self.look()
        except StopIteration:
            pass

    def go(self, one: Running) -> None:
        """Do one effect of a request."""
        try:
            if one.effect is None:
                one.effect = next(one.steps)
            else:
                assert not isinstance(one.effect, Compact)
                small = self.checker.to_give(SMALL) if isinstance(one.effect, Commit) else None
                before = self.checker.number
                result = one.service.do(one.effect)
                self.look()
                if self.checker.number > before:
                    self.given(one.call, small)
                one.effect = one.steps.send(result)
        except StopIteration as end:
            self.running.remove(one)
            self.told(one, end.value)

    def given(self, call: Call, lowest: str | None) -> None:
        """An allocation of the small network has given out what the rule says."""
        entry = self.checker.entries.get(call.id)
        if entry and entry["number"] == self.checker.number and call.action == "nic.add" and call.body.get("allocate") == ["ipv4"]:
            given = entry["body"]["ip"] or entry["body"]["addresses"][0]
            assert given == lowest, "another address than the lowest never used, or the longest freed"

    def told(self, one: Running, response: Response) -> None:
        if one.call.action == "report":
            return
        if response.status < 300:
            earlier = self.answered.get(one.call.id)
            assert earlier is None or earlier[0] >= 400 or earlier == (response.status, response.body), "a copy was answered otherwise"
            self.answered[one.call.id] = response.status, response.body
        elif response.status >= 500:
            self.running.append(Running(one.call, one.who, self.chance.choice(self.services)))
        elif response.status == 409 and response.body["type"].endswith("outdated"):
            pass  # it may have been done before; that it is not done now is what the checker sees
        else:
            # a copy of a refused request may be done by another service, later
            pass

    def request(self) -> tuple[Call, Identity]:
        pick = self.chance.choice
        who = pick([OPERATOR, OPERATOR, OPERATOR, GANETI, node(0), node(1)])
        service = pick(self.services)
        there = [uuid for uuid in NICS if service.view.nic(uuid)]
        absent = [uuid for uuid in NICS if uuid not in there]
        kind = pick(
            [
                "add",
                "add",
                "add",
                "give",
                "give",
                "set",
                "move",
                "delete",
                "primary",
                "reserve",
                "release",
                "release",
                "network",
                "report",
                "report",
                "report",
                "batch",
                "fence",
            ]
        )
        target = pick((absent if kind in ("add", "give") and pick([0, 1, 1, 1]) else there) or NICS)
        nic = service.view.nic(target)
        if nic and kind in ("set", "move", "delete") and pick([True, False]):
            who = {"ganeti": GANETI, "node": node(0 if nic.master.endswith(NODES[0]) else 1)}.get(nic.master.partition(":")[0], OPERATOR)
        at = service.view.shown_revision(f"nics/{target}")
        match = pick([at, at, "*"])
        if kind == "report" or (kind == "network" and who.role == "node"):
            who = node(pick([0, 1]))
            after = service.view.shown_revision(f"reports/{who.name}")
            report = {"nic": target, "state": pick(["running", "stopped", "incoming"])}
            if pick([True, True, False]):  # what its guest has may be what it wanted before, or somebody else's
                old = nic is None or pick([True, False])
                report |= {"ip": pick(ADDRESSES), "mac": pick(MACS)} if old else {"ip": nic.ip, "mac": nic.mac}
            return Call(
                self._id(), "report", "", {"after": after, "nics": [report], "removed": [pick([u for u in NICS if u != target])]}
            ), who
        if kind == "fence":
            return Call(self._id(), "node.fence", pick(NODES[:2]), None, "*"), OPERATOR
        body: Any = {"uuid": target, "instance": pick(INSTANCES)}
        if kind == "add":
            body |= {"mac": pick(MACS), "ip": pick(ADDRESSES), "network": pick([SMALL, SMALL, NETWORKS[1], ""])}
            if not service.view.network(body["network"]):
                del body["network"]
            if who.role == "node":
                body["found"] = pick([True, False])
            return Call(self._id(), "nic.add", "", body), who
        if kind == "give":
            return Call(self._id(), "nic.add", "", body | {"network": SMALL, "allocate": ["ipv4"]}), pick([OPERATOR, who])
        if kind == "set":
            return Call(self._id(), "nic.set", target, {"ip": pick(ADDRESSES), "mac": pick(MACS)}, match), who
        if kind == "move":
            body = {"network": pick([SMALL, NETWORKS[1], ""]), "instance": pick(INSTANCES), "reserved": pick([True, False])}
            return Call(self._id(), "nic.set", target, body, match), who
        if kind == "delete":
            return Call(self._id(), "nic.delete", target, None, match), who
        if kind == "primary":
            return Call(self._id(), "nic.set", target, {"primary": True, "instance": "web1"}, match), OPERATOR
        if kind == "reserve":
            return Call(self._id(), "claim.reserve", f"addresses/{SMALL}/{pick(ADDRESSES)}", {"reason": "printer"}), OPERATOR
        if kind == "release":
            given_up = [key for key in sorted(service.view.members("unheld", SMALL)) if use.still(service.view, key)]
            self.released = pick([f"addresses/{SMALL}/{pick(ADDRESSES)}", *given_up, self.released, self.released])
            return Call(self._id(), "claim.release", self.released), OPERATOR
        if kind == "network":
            if pick([True, False]):
                return Call(self._id(), "network.delete", NETWORKS[1], None, "*"), OPERATOR
            return Call(self._id(), "network.add", "", {"uuid": NETWORKS[1], "name": "other", "subnet": "192.0.2.0/24"}), OPERATOR
        parts = [{"action": "nic.delete", "target": target, "match": match}]
        parts += [{"action": "nic.add", "body": {"uuid": target, "mac": pick(MACS), "instance": "web2", "primary": True}}]
        return Call(self._id(), "batch", "", {"parts": parts}), OPERATOR


def history(chance: random.Random, steps: int, services: int) -> World:
    world = World(chance, services)
    for _ in range(steps):
        world.step()
    while world.running:
        world.go(world.running[0])
    while world.store.late:
        world.store.deliver()
    world.look()
    world.checker.finish(world.answered)
    world.store.chance = random.Random(0)
    world.store.chance.random = lambda: 1.0  # type: ignore[method-assign]
    world.services[0].work()
    world.look()
    world.checker.settled()
    for service in world.services:
        service.catch_up()
        assert service.view.unreadable == {}
    world.store.close()
    return world


@settings(suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.integers(1, 3))
def test_nothing_is_lost_done_twice_or_had_twice(seed: int, services: int) -> None:
    history(random.Random(seed), 400, services)


@given(st.integers(0, 1 << 32), st.sampled_from([1.0, 60.0, 2000.0, 4000.0, 100_000.0]))
def test_each_request_delivered_again_later_and_out_of_order_changes_nothing(seed: int, later: float) -> None:
    """Also after what it has made was deleted, also where it was refused; and to a service that has not seen it, where it was done."""
    chance = random.Random(seed)
    world = World(chance, 1)
    world.store.chance = random.Random(0)
    world.store.chance.random = lambda: 1.0  # type: ignore[method-assign]
    service = world.services[0]
    sent: list[tuple[Call, Identity, Response]] = []
    for _ in range(60):
        call, who = world.request()
        sent.append((call, who, service.answer(call, who)))
        world.time += chance.choice([0.1, 1.0, 70.0])
        if chance.random() < 0.2:
            again(service, *chance.choice(sent))
    world.time += later
    world.store.tick()
    service.work()
    for each in (service, Local(world.store, lambda: world.time, "another")):
        chance.shuffle(sent)
        for call, who, response in sent:
            if each is service or response.status < 300:
                again(each, call, who, response)


def again(service: Local, call: Call, who: Identity, response: Response) -> None:
    """Deliver a request once more: nothing changes, and the answer is the first one, or that it is too late to tell."""
    before = newest(service)
    told = service.answer(call, who)
    assert newest(service) == before
    if told.status != 409 or not told.body["type"].endswith("outdated"):
        stale = call.action == "report" and told.status == 412
        assert stale or (told.status, told.body) == (response.status, response.body)


def newest(service: Local) -> int:
    service.catch_up()
    return service.view.revision


def test_the_histories_are_not_idle() -> None:
    """What they are to try does happen."""
    worlds = [history(random.Random(seed), 1500, 2) for seed in range(8)]
    entries = [entry for world in worlds for entry in world.checker.entries.values()]
    done = {entry["action"] for entry in entries}
    assert done >= {
        "nic.add",
        "nic.set",
        "nic.delete",
        "batch",
        "claim.reserve",
        "claim.release",
        "network.delete",
        "quarantine.end",
        "node.fence",
    }
    claims = [change["after"] for entry in entries for change in entry["changes"] if change["after"] and "last" in change["after"]]
    assert any(claim["until"] == FOREVER for claim in claims), "nothing was freed that a guest has"
    contended = [change for entry in entries for change in entry["changes"] if change["after"] and change["after"].get("contenders")]
    assert contended and sum(len(world.answered) for world in worlds) > 100
    assert any(world.checker.reports for world in worlds) and any("floor" in world.checker.state["ledger"] for world in worlds)
