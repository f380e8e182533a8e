"""Plan one commit: what a request reads of the view, with what it has changed so far laid over it (netregistry.view says why)."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from netregistry.model import keys
from netregistry.model.codec import dump, write
from netregistry.model.history import Change, Entry
from netregistry.refusal import Refused
from netregistry.stores.base import LARGEST, LONGEST_VALUE, MOST, Delete, Expect, Put, commit_size
from netregistry.view import groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.claim import Claim
    from netregistry.model.history import Identity
    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node
    from netregistry.view import View

T = TypeVar("T")

#: Tests, and changes, of a commit that are not the request's own: the ledger and the history.
OWN = 2


class Commit(NamedTuple):
    """What a store is to commit: netregistry.stores.base.Store.commit."""

    tests: tuple[Expect, ...]
    changes: tuple[Put | Delete, ...]


class Draft:
    """A commit in the making. ``request``: its UUID, from which all that is by chance is made, so that planning it anew gives the same."""

    def __init__(self, view: View, request: str, who: Identity, now: float) -> None:
        self.view, self.request, self.who, self.now = view, request, who, now
        self._after: dict[str, Any] = {}
        self._expected: dict[str, int] = {}
        self._laid: set[str] = set()  # keys that another part of the commit changes
        self._made = 0
        self._derived: dict[tuple[Any, str], tuple[Any, Any]] = {}

    # -- reading, with what was changed

    def get(self, key: str) -> Any:
        """Give the object at a key as it will be; None where there is none."""
        return self._after[key] if key in self._after else self.view.get(key)

    def derived(self, make: Callable[[str, Any], T], key: str) -> T:
        """Give what is made of the object at a key, once for each object: some are large, and one step after another asks for it."""
        value, made = self.get(key), self._derived.get((make, key))
        if made is None or made[0] is not value:
            made = self._derived[make, key] = (value, make(key, value))
        return cast("T", made[1])

    @property
    def room(self) -> int:
        """Count the things that may change beside those that do."""
        return MOST - OWN - len(self._after)

    def touched(self, key: str) -> bool:
        return key in self._after

    def written(self, kind: str) -> list[str]:
        """Give the keys that were changed, of those that begin with ``kind``."""
        return [key for key in self._after if keys.kind(key) == kind]

    def members(self, *group: str) -> list[str]:
        """Give the keys of a group as it will be: netregistry.view.View.members."""
        found = [key for key in self.view.members(*group) if key not in self._after]
        return found + [key for key, value in self._after.items() if value is not None and group in self.derived(_groups, key)]

    def using(self, what: str) -> tuple[str, ...]:
        """Give the keys of the reports that say that a MAC or an address is in use: netregistry.view.View.using."""
        return tuple(key for key in self.view.using(what) if self.get(key) is not None)

    def having(self, what: str) -> tuple[str, ...]:
        """Give the keys of the reports that have a MAC or an address as their NIC's own: netregistry.view.View.having."""
        return tuple(key for key in self.view.having(what) if self.get(key) is not None)

    def nic(self, uuid: str) -> Nic | None:
        return cast("Nic | None", self.get(keys.nic(uuid)))

    def network(self, uuid: str) -> Network | None:
        return cast("Network | None", self.get(keys.network(uuid)))

    def node(self, uuid: str) -> Node | None:
        return cast("Node | None", self.get(keys.node(uuid)))

    def claim(self, key: str) -> Claim | None:
        return cast("Claim | None", self.get(key))

    def nics(self, *group: str) -> list[Nic]:
        """Give the NICs of a group."""
        return [cast("Nic", self.get(key)) for key in self.members(*group)]

    # -- changing

    def put(self, key: str, value: Any) -> None:
        """Write an object; it need not be another than before."""
        self._readable(key)
        self._after[key] = value
        self._checked()

    def delete(self, key: str) -> None:
        self._readable(key)
        self._after[key] = None
        self._checked()

    def expect(self, key: str) -> None:
        """Let the commit be done only if a key is as the view has it: one that the ledger says nothing of, such as a node's reports."""
        self._expected[key] = self.view.at(key)

    def _readable(self, key: str) -> None:
        """Raise Refused where what is at a key cannot be read: whoever has an address may have it by that."""
        if key in self.view.unreadable:
            detail = f"what the registry holds at {key} cannot be read, and nothing is written over it: netcommon registry restore"
            raise Refused("unavailable", detail, key=key)

    def _checked(self) -> None:
        if len(self._after) > MOST - OWN:
            raise Refused("too-large", f"more than {MOST - OWN} things would change at once: ask for less in one request")

    def new_uuid(self) -> str:
        """Make a UUID: the same for the same request at the same place."""
        self._made += 1
        return str(uuid.uuid5(uuid.UUID(self.request), str(self._made)))

    def chance(self, below: int, of: str) -> int:
        """Give a number from 0 on that is below ``below``, by chance: the request's."""
        return int.from_bytes(hashlib.sha256(f"{self.request}/{of}".encode()).digest()[:16], "big") % below

    # -- a part of it

    def lay(self, key: str, value: Any) -> None:
        """Take an object for written: another part of the same commit writes it."""
        self._after[key] = value
        self._laid.add(key)

    def kept(self) -> tuple[dict[str, Any], dict[str, int]]:
        """Give what was changed and is tested so far, to go back to it."""
        return dict(self._after), dict(self._expected)

    def restore(self, kept: tuple[dict[str, Any], dict[str, int]]) -> None:
        """Take back what was changed since ``kept``."""
        self._after, self._expected = dict(kept[0]), dict(kept[1])

    # -- what comes of it

    @property
    def changes(self) -> tuple[Change, ...]:
        """What differs from before."""
        found = ((key, self.view.get(key), after) for key, after in self._after.items())
        return tuple(Change(key, write(before), write(after)) for key, before, after in found if before != after)

    def bare(self) -> Commit:
        """Give the commit of what is no wish of anybody, and has neither history nor number: whoever makes it tests what it changes."""
        tests = tuple(Expect(key, revision) for key, revision in self._expected.items())
        own = ((key, value) for key, value in self._after.items() if key not in self._laid)
        return Commit(tests, tuple(Delete(key) if value is None else Put(key, self.derived(_dumped, key)) for key, value in own))

    def commit(self, action: str, target: str, status: int, body: Any, asked: str = "") -> Commit:
        """Give the commit, with its entry of the history: of what is wanted. Raises Refused."""
        self._readable(keys.LEDGER)
        ledger = self.view.ledger
        changes = self.changes
        ledger = ledger._replace(number=ledger.number + 1, kept=ledger.kept + 1)
        wanted = tuple(change for change in changes if keys.kind(change.key) in keys.WANTED)
        entry = Entry(ledger.number, self.request, self.now, self.who, action, target, wanted, status, body, asked)
        data = dump(entry)
        if len(data) > LONGEST_VALUE:
            raise Refused("too-large", f"its entry in the history would have {len(data)} bytes, more than {LONGEST_VALUE}")
        done: list[Put | Delete] = [Put(keys.LEDGER, dump(ledger)), Put(keys.history(self.request), data)]
        for key, _before, _after in changes:
            value = self._after[key]
            done.append(Delete(key) if value is None else Put(key, dump(value)))
        tests = {keys.history(self.request): 0, keys.LEDGER: self.view.at(keys.LEDGER), **self._expected}
        commit = Commit(tuple(Expect(key, revision) for key, revision in tests.items()), tuple(done))
        if (size := commit_size(*commit)) > LARGEST:
            raise Refused("too-large", f"{size} bytes would change at once, more than {LARGEST}: ask for less in one request")
        return commit


def _groups(key: str, value: Any) -> frozenset[tuple[str, ...]]:
    return frozenset(groups(key, value))


def _dumped(_key: str, value: Any) -> bytes:
    return dump(value)
