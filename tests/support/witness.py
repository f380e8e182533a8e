"""Hear every commit of a registry's store, and say where a NIC, a MAC or an address is in force on two nodes. No code of the registry's
judges here: reports are read as JSON, below keys.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from netregistry.stores.base import Changed, Listing, Lost, Unavailable
from netregistry.stores.opening import opened

EVERY = 0.5  #: seconds for which a commit is waited for
PATIENCE = 60.0  #: seconds for a store to answer


class Judge:
    """Follow nodes' reports by commit. ``now``: monotonic seconds.

    ``wrong``: what was in force twice, and at which revision, but for a NIC that moves: one of two nodes had said that it is on its way
    there, or it is routed and has just come. ``longest``: seconds for which a NIC was in force twice, in any case.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.wrong: list[str] = []
        self.longest = 0.0
        self._since: dict[str, float] = {}  # NIC -> when it began to run twice
        self.commits = 0
        self.moves = 0  #: NICs that came to run on another node
        self.moving = 0  #: at most at once
        self._alive: set[str] = set()
        self._seen: dict[str, dict[str, dict[str, Any]]] = {}  # NIC -> node -> report
        self._users: dict[str, set[str]] = {}  # MAC or address -> NICs that run with it
        self._uses: dict[str, set[str]] = {}  # the same by NIC
        self._last: dict[str, str] = {}  # NIC -> the node where it ran last
        self._came: dict[str, str] = {}  # NIC -> the node where it runs and was on its way before
        self._moving: set[str] = set()

    def commit(self, revision: int, changes: Iterable[Changed]) -> None:
        """Take one commit."""
        self.commits += 1
        touched: set[str] = set()
        for key, value in changes:
            kind, _, rest = key.partition("/")
            if kind == "alive":
                (self._alive.discard if value is None else self._alive.add)(rest)
                touched |= {nic for nic, nodes in self._seen.items() if rest in nodes}
            elif kind == "seen":
                node, _, nic = rest.partition("/")
                nodes = self._seen.setdefault(nic, {})
                if value is None:
                    nodes.pop(node, None)
                else:
                    before, nodes[node] = nodes.get(node), json.loads(value)
                    was = "" if before is None else before["state"]
                    # of a routed NIC Ganeti says nothing before its guest runs there
                    if nodes[node]["state"] == "running" and (
                        was == "incoming" or (was != "running" and nodes[node].get("mode") == "routed")
                    ):
                        self._came[nic] = node
                touched.add(nic)
        for nic in touched:
            self._judge(revision, nic)
        self.moving = max(self.moving, len(self._moving))

    def _judge(self, revision: int, nic: str) -> None:
        live = {node: said for node, said in self._seen.get(nic, {}).items() if node in self._alive}
        running = sorted(node for node, said in live.items() if said["state"] == "running")
        (self._moving.add if any(said["state"] == "incoming" for said in live.values()) else self._moving.discard)(nic)
        if len(running) > 1:
            if nic not in self._since:
                self._since[nic] = self._now()
            if len(running) > 2 or self._came.get(nic) not in running:
                self.wrong.append(f"revision {revision}: NIC {nic} runs on {' and '.join(running)}")
        elif nic in self._since:
            self.longest = max(self.longest, self._now() - self._since.pop(nic))
            self._came.pop(nic, None)
        if len(running) == 1:
            self.moves += self._last.get(nic, running[0]) != running[0]
            self._last[nic] = running[0]
        for what in self._uses.pop(nic, ()):
            self._users[what].discard(nic)
        self._uses[nic] = {what for node in running for what in (live[node].get("mac", ""), live[node].get("ip", "")) if what}
        for what in self._uses[nic]:
            users = self._users.setdefault(what, set())
            users.add(nic)
            if len(users) > 1:
                self.wrong.append(f"revision {revision}: {what} is in force for {' and '.join(sorted(users))}")


class Witness:
    """Hear a store's commits in a thread of its own, from now on. ``where``: as [registry] store has it."""

    def __init__(self, where: str) -> None:
        self.judge = Judge()
        self.error: Exception | None = None
        self._store = opened(where)
        revision, after = 0, ""
        while True:
            page = self._page(after, revision)
            revision = page.revision
            self.judge.commit(revision, [Changed(item.key, item.value) for item in page.items])
            if not page.more:
                break
            after = page.items[-1].key
        self._watch = self._store.watch("", revision + 1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _page(self, after: str, revision: int) -> Listing:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._store.list("", after, 1000, revision)
            except Unavailable:  # an etcd that has too much to do
                if time.monotonic() > end:
                    raise

    def _hear(self) -> None:
        while not self._over.is_set():
            try:
                batch = self._watch.next(EVERY)
            except Lost:
                if not self._over.is_set():
                    raise
                return
            except Exception as error:  # it is said at the end
                self.error = error
                return
            if batch.changes:
                self.judge.commit(batch.revision, batch.changes)

    def close(self) -> Judge:
        """End it; give what it has heard."""
        self._over.set()
        self._thread.join()
        self._watch.close()
        self._store.close()
        if self.error is not None:
            raise self.error
        return self.judge
