"""Run many simulated nodes together without a cloud's folder, and do to one by hand what happens to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mockcloud.node import LIMIT, MockNode
from mockcloud.registry import MockRegistry
from mockcloud.replaced.scheduler import Scheduler
from mockcloud.replaced.watcher import SharedWatcher
from netcommon.lifecycle import down as lifecycle_down
from netcommon.lifecycle import up as lifecycle_up
from netcommon.lifecycle.context import HOT_REMOVE, START, Call, Node, Outcome
from runtime.environment import DownHint
from runtime.nic import Nic
from tests.support.netns import slowness

if TYPE_CHECKING:
    from mockcloud.cloud import MockCloud
    from netagent.sync.driver import MakeSession


class Cluster:
    """Many nodes. ``log``: what each has done, and when."""

    def __init__(
        self, root: str, count: int, seed: int, log: bool = True, session: MakeSession | None = None, registry: bool = False
    ) -> None:
        self.scheduler, self.watcher = Scheduler(seed), SharedWatcher()
        self.scheduler.hear(self.watcher.inotify.descriptor, self.watcher.pump)
        self.log: list[str] = []
        os.makedirs(root, exist_ok=True)
        note = self._note if log else lambda _name, _text: None
        self.registry = MockRegistry(self.scheduler, partial(note, "registry"), f"{root}/registry.sqlite") if registry else None
        way = session if self.registry is None else self.registry.wire
        self.nodes = [MockNode(f"node{number}", number, root, self.scheduler, self.watcher, note, way) for number in range(1, count + 1)]

    def _note(self, name: str, text: str) -> None:
        self.log.append(f"{self.scheduler.now:.6f} {name} {text}")

    def start(self) -> None:
        """Start all agents, at moments of a second by chance."""
        for node in self.nodes:
            node.loop.after(self.scheduler.chance.random(), node.start)
        self.scheduler.passes(2.0)

    def each(self, seconds: float, actions: Iterable[tuple[MockNode, Callable[[], object]]]) -> None:
        """Let each action be done at some time within so many seconds, by chance, and let that time pass."""
        for node, action in actions:
            node.loop.after(self.scheduler.chance.uniform(0.0, seconds), partial(_done, action))
        self.scheduler.passes(seconds)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        if self.registry is not None:
            self.registry.stop()
        self.watcher.close()


def _done(action: Callable[[], object]) -> None:
    action()


# -- one node


def tap(node: MockNode, name: str) -> None:
    """Let a guest's process open a tap."""
    node.machine.add_tap(name, 4242)


def up(node: MockNode, nic: Nic) -> Outcome:
    """Call the hook, which the agent serves."""
    return _hook(node, lambda opened, call: lifecycle_up.up(opened, nic, call))


def down(node: MockNode, nic: Nic) -> Outcome:
    hint = DownHint(nic.uuid, nic.interface, nic.instance, nic.index, nic.mac)
    return _hook(node, lambda opened, call: lifecycle_down.down(opened, hint, call), HOT_REMOVE)


def _hook(node: MockNode, work: Callable[[Node, Call], Outcome], context: str = START) -> Outcome:
    with node.inside:
        opened = node.process.open_node(node.state.settings)
        log = node.state.make_log()
        try:
            return work(opened, Call(log, node.loop.now() + LIMIT, "kvm", context))
        finally:
            opened.store.close()
            node.loop.behind = 0.0


@contextmanager
def deaf(node: MockNode) -> Iterator[None]:
    """Tell nothing that happens meanwhile. Raises TypeError where the kernel is the running one."""
    tell = node.host.tell
    hearers, tell.hearers = tell.hearers, []
    try:
        yield
    finally:
        tell.hearers = hearers


def records(node: MockNode) -> list[str]:
    """List the keys of the NICs on record, and their states."""
    opened = node.process.open_node(node.state.settings)
    try:
        found, problems = opened.store.all()
    finally:
        opened.store.close()
    if problems:
        raise RuntimeError(f"{node.name}: {problems}")
    return [f"{record.key} {record.state}" for record in found]


def picture(node: MockNode) -> dict[str, Any]:
    """Give everything on a host in memory that NICs have made; equal pictures, equal hosts."""
    kernel = node.host.kernel
    return {
        "links": dict(kernel.links),
        "rules": sorted(kernel.rules),
        "routes": sorted(kernel.routes),
        "neighbours": sorted(kernel.neighbours),
        "vlans": {index: dict(sorted(vlans.items())) for index, vlans in kernel.vlans.items()},
        "ports": {index: port for index in kernel.links if (port := kernel.bridge_ports.port(index))},
        "sysctls": dict(kernel.settings._values),
        "nftables": node.host.nftables.everything(),
    }


def until(cloud: MockCloud, holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Let time pass until something holds."""
    end = time.monotonic() + seconds * slowness()
    while not holds():
        assert time.monotonic() < end, (what, standing(cloud), [node.agent.status() for node in cloud.nodes.values()])
        cloud.scheduler.passes(0.05)


def standing(cloud: MockCloud) -> list[str]:
    """Say of each node how its agent stands with the registry: in step, away."""
    return [str(node.agent.status().get("registry", "away")).partition(":")[0] for node in cloud.nodes.values()]
