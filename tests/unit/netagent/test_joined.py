"""An agent whose registry is on another machine: a real service over TLS, the agent's own choice of where it asks, and as whom."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netagent.joined import MEMBER, Joined
from netagent.loop import Loop
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.reconcile.keyed_pool import Key
from netcommon.lifecycle.context import Clock
from netcommon.settings.model import Settings
from netregistry.credentials import Credentials
from runtime import membership
from tests.support.registry import NODES
from tests.support.sim import Sim
from tests.support.tls import Secured, free_port, secured


class Agent:
    """What Joined has of an agent; the workers' work is done in the loop."""

    def __init__(self, sim: Sim, settings: Settings) -> None:
        self.sim, self.failures = sim, list[Exception]()
        self.loop = Loop(time.monotonic, self.failures.append)
        self.metrics = Metrics()
        self.alarms = Alarms(sim.log, self.metrics)
        self.service = SimpleNamespace(
            settings=settings,
            paths=sim.paths,
            alarms=self.alarms,
            metrics=self.metrics,
            clock=Clock(),
            folder=f"{sim.paths.state}/agent",
        )
        jobs = SimpleNamespace(work=self._put)
        self.joined = Joined(cast("Any", self.service), self.loop, cast("Any", jobs), sim.log, random.Random(0))

    def _put(self, _key: Key, job: Callable[[Any], None], _today: bool) -> None:
        worker = SimpleNamespace(node=self.sim.node, log=self.sim.log)
        self.loop.tell(lambda: job(worker))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < limit, f"not so: {what}; {self.alarms.active()} {self.joined.status()} {self.failures}"
            self.loop.turn(0.05)

    @property
    def in_step(self) -> bool:
        return self.joined.status().get("registry") == "in step"

    def close(self) -> None:
        self.joined.close(5.0)
        self.loop.close()
        assert self.failures == []


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as found:
        yield found


def settle(sim: Sim, one: Credentials) -> None:
    """Let the simulated node be the one that has joined."""
    membership.write(sim.paths, membership.Membership(one.name, "node0"))
    shutil.copytree(f"{one.lib}/certificates", f"{sim.paths.lib}/certificates", dirs_exist_ok=True)


def test_it_speaks_by_tls_is_revoked_and_goes_on_when_it_has_joined_again(registry: Secured, sim: Sim) -> None:
    settle(sim, registry.join("node", NODES[0]))
    agent = Agent(sim, Settings())
    agent.joined.look()
    agent.until(lambda: agent.in_step, "it is told all")
    operator = registry.local.client()
    assert operator.get(f"nodes/{NODES[0]}").body["alive"]
    operator.change("POST", "certificates/revoke", {"role": "node", "name": NODES[0]})
    agent.until(lambda: "revoked" in str(agent.joined.status()["registry"]), "it says why it is away")
    assert "netcommon registry join URL TOKEN" in str(agent.joined.status()["registry"])
    settle(sim, registry.join("node", NODES[0], new=False))
    agent.joined.look()
    agent.until(lambda: agent.in_step, "it goes on by what is on disk now")
    agent.close()


def test_addresses_of_the_settings_come_first(registry: Secured, sim: Sim) -> None:
    one = registry.join("node", NODES[0])
    settle(sim, one._replace(addresses=(f"https://localhost:{free_port()}",)))
    agent = Agent(sim, Settings()._replace(registry_addresses=(f"https://localhost:{free_port()}", registry.url)))
    agent.joined.look()
    agent.until(lambda: agent.in_step, "the second address answers")
    agent.close()


def test_a_certificate_of_another_node_is_not_used(registry: Secured, sim: Sim) -> None:
    settle(sim, registry.join("node", NODES[0]))
    membership.write(sim.paths, membership.Membership(NODES[1], "node1"))
    agent = Agent(sim, Settings())
    agent.joined.look()
    assert NODES[0] in agent.alarms.active()[MEMBER] and agent.joined.status() == {}
    membership.write(sim.paths, membership.Membership(NODES[0], "node0"))
    agent.joined.look()
    agent.until(lambda: agent.in_step, "it is the node's own again")
    assert MEMBER not in agent.alarms.active()
    agent.close()
