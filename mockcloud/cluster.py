"""Run many simulated nodes together, and note what each does."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from mockcloud.node import MockNode
from mockcloud.registry import MockRegistry
from mockcloud.replaced.scheduler import Scheduler
from mockcloud.replaced.watcher import SharedWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
