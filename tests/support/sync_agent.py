"""Run a node's synchronisation as the agent does, on a simulated host; the workers' work is done in the loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from netagent.loop import Loop
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.reconcile.keyed_pool import Key
from netagent.sync.driver import Around, Sync
from netagent.sync.rules import Rules
from netcommon.lifecycle.context import Clock
from netregistry.reach import Places
from runtime.nic import Nic
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic

LIMIT = 20.0  #: seconds for anything to happen
RULES = Rules(pause=0.1, first=(0.2, 0.2), every=0.3, confirm=0.1)


class Agent:
    """Give a Sync what it has of an agent: a loop, alarms and metrics; the workers' work is done in the loop, a piece at a time."""

    def __init__(self, sim: Sim, path: str | Places, rules: Rules = RULES) -> None:
        self.sim, self.path, self.rules = sim, path, rules
        self.service: Served
        self.metrics = Metrics()
        self.alarms = Alarms(sim.log, self.metrics)
        self.failures: list[Exception] = []
        self.broken = False
        self.asked: list[str] = []
        self.surveys = 0

    @contextmanager
    def running(self) -> Iterator[Sync]:
        self.loop = Loop(time.monotonic, self.failures.append)
        around = Around(self.loop, Clock(), self.sim.log, self.alarms, self.metrics, self._put, lambda _worker: self.sim.call())
        sim = self.sim
        sync = self.sync = Sync(NODES[0], self.path, self.rules, around, f"{sim.paths.state}/agent", sim.paths.lib, random.Random(0))
        try:
            sync.start()
            yield sync
        finally:
            sync.close(5.0)
            self.loop.close()
        assert self.failures == []

    def _put(self, key: Key, job: Callable[[Any], None], _today: bool) -> None:
        self.asked.append(key.sort)
        self.surveys += key.sort == "survey"
        worker = SimpleNamespace(node=self.sim.node, log=self.sim.log)

        def run() -> None:
            if self.broken:  # as a worker that cannot open its node
                self.sync.unworked(key, "the state directory cannot be read")
            else:
                job(worker)

        self.loop.tell(run)

    def forgotten(self, uuid: str) -> None:
        """Let the registry have no report of a NIC any more, as after a fence. The agent does not run."""
        client = self.service.client(f"node:{NODES[0]}")
        after = client.get(f"nodes/{NODES[0]}").body["reports"]
        client.change("POST", f"nodes/{NODES[0]}/reports", {"after": after, "nics": [], "removed": [uuid]})

    def passes(self, seconds: float) -> None:
        """Let the loop go on for a while."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.loop.turn(0.05)

    def compared(self) -> None:
        """Let three comparisons with the registry begin: by the last one what the first has found is done."""
        before = self.surveys
        self.until(lambda: self.surveys >= before + 3, "what there is on the node is compared with the registry")

    def until(self, holds: Callable[[], Any], what: str) -> None:
        limit = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < limit, f"not so after {LIMIT} s: {what}; {self.alarms.active()} {self.failures}"
            self.loop.turn(0.05)


def reports(service: Served) -> dict[str, dict[str, Any]]:
    return {item["report"]["nic"]: item["report"] for item in service.client().all("reports", node=NODES[0])}


def shown(service: Served, uuid: str = UUIDS[0]) -> dict[str, Any] | None:
    found = [item for item in service.client().all("nics") if item["nic"]["uuid"] == uuid]
    return found[0] if found else None


def one(number: int) -> Nic:
    """Give one of several NICs of plain QEMU."""
    more = {"INTERFACE": f"tap{number}", "INTERFACE_UUID": UUIDS[number], "MAC": f"aa:00:00:00:00:0{number + 1}"}
    return nic("bridged", **more, INTERFACE_INDEX=str(number))


def item_revision(service: Served) -> str:
    item = shown(service)
    assert item is not None
    return str(item["revision"])
