"""A node's agent, its underlay and registries' services: one after another of the same store, or of a copy that was restored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from netcommon.lifecycle.underlay import hold
from netregistry.model import keys
from netregistry.reach import Places
from netregistry.stores.base import Item, Put
from netregistry.stores.sqlite import SqliteStore
from netregistry.zone.publisher import Publisher
from tests.support.node_underlay import join, marked
from tests.support.registry import NODES
from tests.support.service import Served, served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent

SITE = {"prefix": "fd12:3456:789a::/48", "zone": "hosts.example.com"}
FIRST, SECOND, THIRD = ("fd12:3456:789a::1:0", "fd12:3456:789a::1:1", "fd12:3456:789a::1:2")


class Place:
    """See the module. ``agent``: the one that runs, or has run last."""

    def __init__(self, sim: Sim, folder: Path) -> None:
        self.sim, self._folder, self._numbers = sim, folder, itertools.count()
        join(sim.paths, NODES[0])
        sim.settings = sim.settings._replace(nic={"endpoints": ("console",)})
        self.agent: Agent
        self.gone: list[str] = []  #: addresses that were there, and were not any more

    @contextmanager
    def served(self, items: Iterable[Item] = (), epoch: str = "first", publisher: Publisher | None = None) -> Iterator[Served]:
        """Serve a registry. ``items``: of a copy, which is put back in another ``epoch``: what netregistry.transfer does."""
        folder = self._folder / f"service{next(self._numbers)}"
        folder.mkdir()
        store = SqliteStore.create(str(folder / "registry.sqlite"), epoch)
        for item in items:
            if item.key != keys.LEADER and keys.kind(item.key) != "alive":
                store.commit((), (Put(item.key, item.value),))
        with served(folder, store=store, publisher=publisher) as service:
            yield service

    @contextmanager
    def running(self, service: Served, places: Places | None = None) -> Iterator[Agent]:
        """Let the agent run. ``places``: where it finds the service; without, at its socket."""
        agent = self.agent = Agent(self.sim, places or service.path)
        agent.service = service

        def made() -> None:
            before = marked(self.sim.host.view())
            hold(self.sim.node, self.sim.log)
            self.gone += [each for each in before if each not in marked(self.sim.host.view())]
            agent.sync.underlaid()

        with agent.running() as sync:
            sync._around = sync._around._replace(underlay=made)
            yield agent

    @property
    def there(self) -> list[str]:
        return marked(self.sim.host.view())

    def starts(self, number: int, instance: str) -> None:
        """Let a guest start."""
        fields = {"INTERFACE_UUID": UUIDS[number], "INSTANCE": instance, "MAC": f"aa:00:00:00:00:0{number + 1}"}
        self.sim.tap(f"tap{number}")
        self.sim.up(nic("bridged", INTERFACE=f"tap{number}", **fields))
        self.agent.sync.marked(UUIDS[number])

    def in_step(self) -> None:
        sync = self.agent.sync
        self.agent.until(lambda: sync.machine.inbox.complete and sync.machine.idle and sync.machine.line.stream, "it is in step")


def wanted(service: Served, number: int, instance: str) -> None:
    """Let the registry want a NIC of an instance."""
    body = {"uuid": UUIDS[number], "instance": instance, "index": 0, "mac": f"aa:00:00:00:00:0{number + 1}"}
    service.client().change("POST", "nics", body)


def placed(service: Served) -> dict[str, list[tuple[str, str]]]:
    """Give the addresses of each instance's endpoints, and their states."""
    return {
        item["placement"]["instance"]: [(each["address"], each["state"]) for each in item["placement"]["endpoints"]]
        for item in service.client().all("endpoints")
    }


def names(service: Served) -> dict[str, str]:
    """Give all names without their zone, and the address to which each leads."""
    return {
        str(item["name"]).removesuffix(f".{SITE['zone']}").rstrip("."): item["leads"]["address"] for item in service.client().all("names")
    }


def given(service: Served) -> dict[str, str]:
    """Give the /64 of each node."""
    return {item["node"]: item["prefix"]["prefix"] for item in service.client().all("prefixes")}
