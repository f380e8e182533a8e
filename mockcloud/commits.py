"""Follow a registry commit by commit: what no commit may leave behind, by what is stored and by nothing of the code that stores it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mockcloud.underlay_commits import UnderlayCommits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from netregistry.client import Asker
    from netregistry.stores.base import Batch, Item
    from netregistry.view import View


class Commits:
    """Follow what is stored, commit by commit, and note what no commit may leave behind. A netregistry.service.registry.Part.

    ``seen``: NICs that a node has reported since they are wanted, in this epoch; ``instances``: those that were ever an instance's.
    ``underlay``: what is stored of that; ``now``, ``led``: see UnderlayCommits.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0, led: Callable[[str], float] = lambda _address: 0.0) -> None:
        self.found: list[str] = []
        self.underlay = UnderlayCommits(now, led)
        self.seen: set[str] = set()
        self.instances: set[str] = set()
        self._stored: dict[str, Any] = {}
        self._ended = False
        self._claims: dict[str, dict[str, None]] = {}  # a MAC or an address -> keys of its claims, of all scopes

    def begin(self, items: Iterable[Item]) -> Commits:
        """Begin with what is stored now."""
        self._stored.clear()
        self.seen.clear()
        self._claims.clear()
        stored = list(items)
        for key, value, _revision in stored:
            self._put(key, value)
        self.underlay.begin((key, value) for key, value, _revision in stored)
        return self

    def look(self, client: Asker) -> None:
        """Take in what a registry in another process lists, of which nobody hears each commit. Raises Problem, TryAgain."""
        wanted = {each["nic"]["uuid"] for each in client.all("nics", belongs="instance")}
        said = {each["report"]["nic"] for each in client.all("reports")}
        self.instances |= wanted
        self.seen = (self.seen | said) & wanted

    def end(self) -> None:
        """Take in nothing more, and forget what is stored."""
        self._ended = True
        self._stored.clear()
        self._claims.clear()
        self.underlay.end()

    def hear(self, _view: View, batch: Batch | None) -> None:
        """Take in one commit."""
        if batch is None or self._ended:
            return
        before = {key: self._stored.get(key) for key, _value in batch.changes}
        for key, value in batch.changes:
            self._put(key, value)
        for key, was in before.items():
            kind, _, name = key.partition("/")
            if kind == "nics":
                self.found += self._of_nic(name, was, batch.revision)
            elif kind in ("macs", "addresses"):
                self.found += self._of_claim(key, batch.revision)
        self.found += (f"revision {batch.revision}: {text}" for text in self.underlay.commit(batch.changes))

    def _put(self, key: str, value: bytes | None) -> None:
        kind, _, rest = key.partition("/")
        if kind not in ("nics", "macs", "addresses", "seen"):
            return
        if kind == "seen":
            if value is not None:
                self.seen.add(rest.partition("/")[2])
        elif kind != "nics":
            claims = self._claims.setdefault(key.rpartition("/")[2], {})
            claims.pop(key, None) if value is None else claims.setdefault(key)
        elif key not in self._stored:
            self.seen.discard(rest)  # what was said of an earlier one of the same name may have gone with that
        if value is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = json.loads(value)
            if kind == "nics" and self._stored[key].get("belongs", "instance") == "instance":
                self.instances.add(rest)

    def _has(self, key: str, uuid: str) -> bool:
        claim = self._stored[key]
        return claim.get("holder") == uuid or uuid in claim.get("contenders", ())

    def _of_nic(self, uuid: str, was: Any, revision: int) -> Iterator[str]:
        nic = self._stored.get(f"nics/{uuid}")
        has = _has(nic) if nic is not None else []
        for value in has:
            if not any(self._has(key, uuid) for key in self._claims.get(value, ())):
                yield f"revision {revision}: NIC {uuid} wants {value}, and has no claim to it"
        for value in _has(was) if was is not None else ():
            if value not in has and any(self._has(key, uuid) for key in self._claims.get(value, ())):
                yield f"revision {revision}: NIC {uuid} wants {value} no more, and has a claim to it"

    def _of_claim(self, key: str, revision: int) -> Iterator[str]:
        claim, value = self._stored.get(key), key.rpartition("/")[2]
        for uuid in (claim["holder"], *claim.get("contenders", ())) if claim is not None and claim.get("holder") else ():
            nic = self._stored.get(f"nics/{uuid}")
            if nic is None or value not in _has(nic):
                yield f"revision {revision}: {value} is held for NIC {uuid}, which does not want it"
        for nic_key, nic in self._stored.items():
            if nic_key.startswith("nics/") and value in _has(nic) and not self._claimed(nic_key.partition("/")[2], value):
                yield f"revision {revision}: {value} is wanted by NIC {nic_key.partition('/')[2]}, and not held for it"

    def _claimed(self, uuid: str, value: str) -> bool:
        return any(self._has(key, uuid) for key in self._claims.get(value, ()))


def _has(nic: dict[str, Any]) -> list[str]:
    return [value for value in (nic.get("mac"), nic.get("ip"), *nic.get("addresses", ())) if value]
