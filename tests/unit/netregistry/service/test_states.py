"""The states that are kept are those that are worked out, whatever happens."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from netregistry import state
from netregistry.service.states import States
from netregistry.state import State
from netregistry.stores.base import Batch
from tests.support.registry import GANETI, NODES, OPERATOR, Registry, node

CLUSTER = GANETI.name
NICS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(6)]
BLUE = "13264fb6-0667-415f-9a43-786dc01cbf24"
AGENTS = [f"{number:08x}-2222-4222-8222-222222222222" for number in range(2)]


class Kept(Registry):
    """A registry with the states of its NICs. ``met``: the states that there were."""

    def __init__(self, seed: int) -> None:
        self.states: States | None = None
        self.met: set[State] = set()
        super().__init__(None, self.hear, seed)
        self.states = States(self.local.view)

    def hear(self, batch: Batch | None) -> None:
        if self.states is None:
            return
        view = self.local.view
        self.states.hear(view, batch)
        expected = {key: state.shown(view, nic).state for key, nic in view.all("nics").items()}
        assert {key: self.states.of(key) for key in view.all("nics")} == expected
        self.met |= set(expected.values())
        for each in self.met:
            found = sorted(key for key, said in expected.items() if said == each)
            assert list(self.states.members(each)) == found and self.states.count(each) == len(found)


def something(registry: Kept, chance: random.Random) -> None:
    """Let one thing happen, by chance."""
    uuid, number = chance.choice(NICS), chance.randrange(2)
    mac = chance.choice(["aa:00:00:00:00:01", "aa:00:00:00:00:02", "aa:00:00:00:00:03"])
    who = chance.choice([OPERATOR, GANETI, node(number)])
    kind = chance.choice(["add", "set", "delete", "report", "report", "life", "life", "forget", "fence", "join", "time", "anew"])
    if kind == "add":
        registry.ask("nic.add", "", {"uuid": uuid, "mac": mac, "found": who.role != "operator", "cluster": ""}, who)
    elif kind == "set":
        registry.ask("nic.set", uuid, {"mac": mac, **({"network": chance.choice(["", BLUE])} if chance.random() < 0.3 else {})}, who)
    elif kind == "delete":
        registry.ask("nic.delete", uuid, {"force": True})
    elif kind == "report" and chance.random() < 0.8:
        registry.report(node(number), {"nic": uuid, "state": chance.choice(["running", "running", "stopped", "incoming"]), "mac": mac})
    elif kind == "report":
        registry.report(node(number), removed=(uuid,))
    elif kind == "life" and registry.local.view.node(NODES[number]):
        alive = registry.local.view.alive(NODES[number])
        registry.local.sign_on(node(number), alive.incarnation if alive else chance.choice(AGENTS), 20.0)
    elif kind in ("forget", "fence"):
        registry.ask(f"node.{kind}", NODES[number], {"force": chance.random() < 0.3})
    elif kind == "join":
        registry.ask("node.join", "", {"uuid": NODES[number], "name": f"node{number}"}, node(number))
    elif kind == "time":
        registry.passes(chance.choice([1, 5, 30]))
    elif kind == "anew":
        registry.local.catch_up()
        registry.hear(None)


def history(seed: int, steps: int) -> set[State]:
    registry, chance = Kept(seed), random.Random(seed)
    registry.network(uuid=BLUE)
    for number in range(2):
        registry.join(number, CLUSTER)
        registry.local.sign_on(node(number), AGENTS[number], 20.0)
    for _ in range(steps):
        something(registry, chance)
    return registry.met


@given(st.integers(0, 1 << 32))
def test_what_is_kept_is_what_is_worked_out(seed: int) -> None:
    history(seed, 40)


def test_every_state_is_met() -> None:
    met = set().union(*(history(seed, 80) for seed in range(6)))
    assert met == {"provisioning", "running", "stopped", "moving", "conflict", "unknown", "pending restart"}
