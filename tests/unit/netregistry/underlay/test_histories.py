"""Random histories: reports in every order, late and repeated ones, nodes that crash and come back, two services at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from netregistry.model import keys
from netregistry.request import Call
from netregistry.stores.base import Batch, Delete
from tests.support.registry import NODES, Registry, node
from tests.support.underlay import LIFE, SITE, ZONE, told_to
from tests.support.underlay_checker import Checker

GUESTS, STEPS = 4, 250
RESTS = 100.0


class History:
    """A site whose guests and nodes do what a seed says. What nodes have seen is theirs; what they say comes late, twice or not at all."""

    def __init__(self, seed: int, nodes: int = 4) -> None:
        self.chance = random.Random(seed)
        self.checker = Checker()
        self.registry = Registry(heard=self.hear, seed=seed)
        self.other = Registry(self.registry.store, seed=seed + 1_000_000)  # another service over the same store
        self.registry.do("underlay.init", "", {"prefix": SITE, "zone": ZONE, "minimum_age": RESTS, "ttl": 10})
        self.nodes = range(nodes)
        self.has: list[dict[str, str]] = [{} for _ in self.nodes]  # what each node has: NIC -> state
        self.said: list[dict[str, str]] = [{} for _ in self.nodes]
        self.addresses: list[tuple[int, tuple[str, ...]]] = [(0, ())] * nodes
        self.up = [True] * nodes
        for number in self.nodes:
            self.registry.join(number)
            self.alive(number)
        self.nics = [self.registry.nic(instance=f"web{number}", index=0).uuid for number in range(GUESTS)]
        self.copies: list[tuple[int, Call]] = []
        for _ in range(2 * GUESTS):
            self.start()

    def hear(self, batch: Batch | None) -> None:
        if batch is not None:
            self.checker.now = self.registry.time
            self.checker.commit((change.key, change.value) for change in batch.changes)

    def service(self) -> Registry:
        found = self.chance.choice((self.registry, self.registry, self.other))
        found.time = self.other.time = self.registry.time
        return found

    def alive(self, number: int) -> None:
        self.registry.local.sign_on(node(number), f"{LIFE}0", 80_000.0)

    def step(self) -> None:
        what = self.chance.choice(
            ("move", "arrive", "fail", "crash", "start", "stop", "say", "say", "say", "say", "do", "do", "late", "time", "work")
        )
        getattr(self, what)()

    # -- what happens to guests

    def _where(self, state: str) -> list[tuple[int, str]]:
        return [(number, nic) for number in self.nodes for nic, each in self.has[number].items() if each == state]

    def start(self) -> None:
        nic = self.chance.choice(self.nics)
        if not any(self.has[number].get(nic) in ("running", "incoming") for number in self.nodes):
            number = self.chance.choice(self.nodes)
            for other in self.nodes:
                self.has[other].pop(nic, None)
            self.has[number][nic] = "running"

    def stop(self) -> None:
        if running := self._where("running"):
            number, nic = self.chance.choice(running)
            self.has[number][nic] = "stopped"

    def move(self) -> None:
        if running := self._where("running"):
            source, nic = self.chance.choice(running)
            target = self.chance.choice([number for number in self.nodes if number != source])
            self.has[target].setdefault(nic, "incoming")

    def arrive(self) -> None:
        if coming := self._where("incoming"):
            target, nic = self.chance.choice(coming)
            for number in self.nodes:
                self.has[number].pop(nic, None)
            self.has[target][nic] = "running"

    def fail(self) -> None:
        if coming := self._where("incoming"):
            target, nic = self.chance.choice(coming)
            del self.has[target][nic]

    def crash(self) -> None:
        """A node loses power, and its guests, or comes back."""
        number = self.chance.choice(self.nodes)
        key = keys.alive(NODES[number])
        if self.up[number] and self.chance.random() < 0.7:
            return
        if self.up[number]:
            self.up[number] = False
            self.has[number].clear()
            held = self.registry.store.get(key)
            if held is not None:
                self.registry.store.commit((), (Delete(key),))
            if self.chance.random() < 0.5:
                self.service().ask("node.fence", NODES[number])
        else:
            self.up[number] = True
            self.said[number] = dict.fromkeys(self.nics, "")
            self.alive(number)

    # -- what nodes do and say

    def say(self) -> None:
        number = self.chance.choice(self.nodes)
        if not self.up[number]:
            return
        changed = [nic for nic in self.nics if self.has[number].get(nic, "") != self.said[number].get(nic, "")]
        some = self.chance.sample(changed, self.chance.randint(0, len(changed)))
        self.report(number, {nic: self.has[number].get(nic, "") for nic in some})

    def report(self, number: int, states: dict[str, str]) -> None:
        service = self.service()
        service.local.catch_up()
        nics = [{"nic": nic, "state": state, "endpoints": ["console"]} for nic, state in states.items() if state]
        body: dict[str, Any] = {"after": service.local.view.shown_revision(keys.reports(NODES[number])), "nics": nics}
        body["removed"] = [nic for nic, state in states.items() if not state]
        generation, addresses = self.addresses[number]
        if generation:
            body["underlay"] = {"generation": generation, "addresses": list(addresses)}
        call = service.call("report", "", body)
        response = service.local.answer(call, node(number))
        assert response.status == 200, response
        self.said[number] |= states
        self.copies.append((number, call))

    def do(self) -> None:
        """Let a node do what it is told; it says so with its next reports."""
        number = self.chance.choice(self.nodes)
        if self.up[number]:
            told = told_to(self.registry, number)
            self.addresses[number] = told["generation"], tuple(each["address"] for each in told["endpoints"])

    def late(self) -> None:
        """Let a copy of an earlier report come once more, to whichever service."""
        if self.copies:
            number, call = self.chance.choice(self.copies[-30:])
            self.service().local.answer(call, node(number))

    def time(self) -> None:
        self.registry.time += self.chance.choice((0.1, 1.0, 5.0, 60.0, 150.0))

    def work(self) -> None:
        service = self.service()
        service.local.work()
        self.registry.local.catch_up()

    def end(self) -> None:
        """Let nobody have a guest any more, and let all of it be forgotten."""
        for number in self.nodes:
            self.has[number].clear()
        for _ in range(3):
            self.settle()
            self.registry.time += 150.0

    def settle(self) -> None:
        """Let everybody say what there is, and do what he is told."""
        for number in self.nodes:
            if not self.up[number]:
                self.up[number] = True
                self.alive(number)
        for _ in range(4):
            for number in self.nodes:
                self.registry.local.catch_up()
                told = told_to(self.registry, number)
                self.addresses[number] = told["generation"], tuple(each["address"] for each in told["endpoints"])
                self.report(number, {nic: self.has[number].get(nic, "") for nic in self.nics})
            self.registry.passes(1)


@pytest.mark.parametrize("seed", range(12))
def test_names_follow_guests_whatever_comes_when(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.settle()
    assert history.checker.steps > GUESTS
    leads = {key.split("/")[2].split(".")[0]: NODES.index(name.node) for key, name in history.registry.local.view.all("names").items()}
    for place, nic in enumerate(history.nics):
        running = [number for number in history.nodes if history.has[number].get(nic) == "running"]
        coming = [number for number in history.nodes if history.has[number].get(nic) == "incoming"]
        if running:
            assert leads.get(f"web{place}") == running[0], (place, running, leads)
            assert (f"web{place}-migrating" in leads) == bool(coming)
        elif not coming:
            assert f"web{place}-migrating" not in leads
    history.end()
    view = history.registry.local.view
    assert view.all("endpoints") == view.all("names") == {}, "what nobody has is forgotten, all of it"
    assert all(view.get(keys.confirmed(NODES[number])).there.addresses == () for number in history.nodes)
