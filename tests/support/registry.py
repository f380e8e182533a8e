"""A registry over SQLite in memory, with a clock that the test turns, and short ways to ask it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from netregistry.local import Local
from netregistry.model.claim import Claim
from netregistry.model.history import Identity
from netregistry.model.nic import Nic
from netregistry.request import Call, Response, new_id
from netregistry.stores.base import Batch, Store
from netregistry.stores.sqlite import SqliteStore

OPERATOR = Identity("operator", "root", "unix")
GANETI = Identity("importer", "gnt.example.com", "unix")
NODES = tuple(f"{digit * 8}-0000-4000-8000-000000000000" for digit in "abcdef")


def node(number: int) -> Identity:
    return Identity("node", NODES[number], "unix")


class Registry:
    """``store``: another one than SQLite's in memory."""

    def __init__(self, store: Store | None = None, heard: Callable[[Batch | None], None] | None = None, seed: int = 0) -> None:
        self.time = 1_800_000_000.0
        self.chance = random.Random(seed)
        self.store: Store = store or SqliteStore.create(":memory:", "first", lambda: self.time)
        self.local = Local(self.store, lambda: self.time, "here", heard)

    def id(self) -> str:
        return new_id(self.time, self.chance.getrandbits(74))

    def call(self, action: str, target: str = "", body: Any = None, match: str = "*", dry_run: bool = False, id: str = "") -> Call:
        return Call(id or self.id(), action, target, body, match, dry_run)

    def ask(self, action: str, target: str = "", body: Any = None, who: Identity = OPERATOR, match: str = "*", **more: Any) -> Response:
        return self.local.answer(self.call(action, target, body, match, **more), who)

    def do(self, action: str, target: str = "", body: Any = None, who: Identity = OPERATOR, **more: Any) -> Any:
        """Ask, and give the body of an answer that must not be a refusal."""
        response = self.ask(action, target, body, who, **more)
        assert response.status < 300, response
        return response.body

    def refused(self, action: str, target: str = "", body: Any = None, who: Identity = OPERATOR, **more: Any) -> dict[str, Any]:
        """Ask, and give the problem that it must be refused with; nothing may have changed."""
        before = self.store.list("")
        response = self.ask(action, target, body, who, **more)
        assert response.status >= 400, response
        assert self.store.list("").items == before.items
        problem: dict[str, Any] = response.body
        assert problem["status"] == response.status
        return {**problem, "kind": problem["type"].rpartition("/")[2]}

    def network(self, name: str = "blue", subnet: str = "192.0.2.0/24", **more: Any) -> str:
        uuid: str = self.do("network.add", "", {"name": name, "subnet": subnet, **more})["uuid"]
        return uuid

    def nic(self, who: Identity = OPERATOR, id: str = "", **fields: Any) -> Nic:
        return self.wanted(self.do("nic.add", "", fields, who, id=id)["uuid"])

    def wanted(self, uuid: str) -> Nic:
        found = self.local.view.nic(uuid)
        assert found is not None
        return found

    def claim(self, key: str) -> Claim | None:
        return self.local.view.claim(key)

    def join(self, number: int, cluster: str = "", name: str = "") -> Identity:
        self.do("node.join", "", {"uuid": NODES[number], "name": name or f"node{number}", "cluster": cluster}, node(number))
        return node(number)

    def report(self, who: Identity, *reports: dict[str, Any], removed: tuple[str, ...] = (), **more: Any) -> Response:
        after = self.local.view.shown_revision(f"reports/{who.name}")
        return self.ask("report", "", {"after": after, "nics": list(reports), "removed": list(removed), **more}, who)

    def passes(self, seconds: float) -> None:
        """Let time pass, and all be done that is due by then."""
        self.time += seconds
        if isinstance(self.store, SqliteStore):
            self.store.tick()
        self.local.work()

    def everything(self) -> dict[str, bytes]:
        return {item.key: item.value for item in self.store.list("").items}
