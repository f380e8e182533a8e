"""Run a registry's core on a store of this process: the effects done, one request after the other.

A service runs it in a thread, a simulation in its loop, tests as it is. Wanted changes go one after the other, for all of them advance one
key (netregistry.view): side by side they would only overtake each other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from netregistry.core import (
    CatchUp,
    Committed,
    Compact,
    Conflicted,
    Core,
    Forgotten,
    Found,
    Grant,
    Granted,
    Nothing,
    Oldest,
    Read,
    Some,
    Unanswered,
    anybody,
)
from netregistry.draft import Commit
from netregistry.leader import Leader
from netregistry.model import keys
from netregistry.stores.base import Compacted, Conflict, Lost, Unknown, commit_size
from netregistry.view import View
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from netregistry.core import Effect, Result
    from netregistry.model import keys
    from netregistry.model.history import Identity
    from netregistry.request import Call, Response
from netregistry.stores.base import Batch, Store, Watch

T = TypeVar("T")
PAGE = 10_000  #: items of a listing at once
WAITED = 1.0  #: seconds for what is known to be committed; after that the engine is asked how far it is


class Local:
    """A registry over a store. ``now``: seconds since the epoch.

    ``heard``: called with each batch after the view has taken it in, and with None where the view was made anew.
    ``behind``: how many commits the first view is behind the store, if it remembers as many: the next ``catch_up`` takes them in.
    ``passed``: seconds by a clock that nobody sets, against which ``now`` is held; None where nobody sets that either.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        name: str = "",
        heard: Callable[[Batch | None], None] | None = None,
        behind: int = 0,
        passed: Callable[[], float] | None = None,
    ) -> None:
        self._store, self._heard = store, heard
        self._lock = threading.RLock()
        self._watch: Watch | None = None
        self.written = 0  #: bytes of all commits so far, those that were not done as well
        self.core = Core(View(store.epoch), now)
        self.leader = Leader(self.core, name, passed)
        self._reload(behind)
        self.leader.begin()

    @property
    def view(self) -> View:
        return self.core.view

    def answer(self, call: Call, who: Identity, admit: Callable[[], None] = anybody) -> Response:
        """Answer a request (Core.answer). Raises Unavailable where the store cannot be used."""
        return self.run(self.core.answer(call, who, admit))

    def sign_on(self, who: Identity, incarnation: str, seconds: float) -> int:
        """Let a node be alive; give the lease that is to be kept (Store.keep). Raises Refused, Unavailable."""
        return self.run(self.core.sign_on(who, incarnation, seconds))

    def work(self) -> None:
        """Do the leader's work that is due. Raises Unavailable."""
        self.catch_up()
        if not self.leader.rests:
            self.run(self.leader.work())

    def catch_up(self) -> None:
        """Take in all that has been committed, by whomever."""
        with self._lock:
            self._caught_up()

    def close(self) -> None:
        """End the watch; the store stays open."""
        if self._watch is not None:
            self._watch.close()

    def run(self, steps: Generator[Effect, Result, T]) -> T:
        """Do the effects that a generator of the core gives, until it returns."""
        with self._lock:
            try:
                effect = next(steps)
                while True:
                    try:
                        result = self.do(effect)
                    except NetcommonError as error:  # what that means depends on what was sent before
                        effect = steps.throw(error)
                    else:
                        effect = steps.send(result)
            except StopIteration as end:
                value: T = end.value
                return value

    def do(self, effect: Effect) -> Result:
        """Do one effect; for who lets several generators of the core run by turns."""
        if isinstance(effect, Commit):
            self.written += commit_size(effect.tests, effect.changes)
            try:
                return Committed(self._store.commit(effect.tests, effect.changes))
            except Conflict as conflict:
                return Conflicted(conflict.key)
            except Unknown:
                return Unanswered()
        if isinstance(effect, Read):
            item = self._store.get(effect.key)
            return Found(item.value, item.revision) if item else Found(None)
        if isinstance(effect, Oldest):
            return Some(tuple((item.key, item.value) for item in self._store.list(effect.prefix, limit=effect.limit).items))
        if isinstance(effect, Grant):
            return Granted(self._store.grant(effect.seconds))
        if isinstance(effect, CatchUp):
            self._caught_up(effect.revision)
        elif isinstance(effect, Compact):
            try:
                self._store.compact(effect.revision)
            except Compacted as compacted:
                return Forgotten(compacted.floor)  # another one has done more
            return Forgotten(effect.revision)
        return Nothing()

    def _caught_up(self, revision: int = 0) -> None:
        """Take in what was committed, up to a revision at least; 0: up to the newest, for which an engine may have to be asked."""
        try:
            while self._watch is not None and not 0 < revision <= self.view.revision:
                batch = self._watch.next(WAITED if revision else 0.0)
                self.view.apply(batch)
                self.leader.hear(batch)
                if not batch.changes:
                    return
                if self._heard is not None:
                    self._heard(batch)
        except (Lost, Compacted):
            self._reload()

    def _reload(self, behind: int = 0) -> None:
        """List all anew, as it was so many commits ago, and watch from there."""
        self.close()
        newest = self._store.list(keys.LEDGER, limit=1).revision if behind else 0
        revision = max(newest - behind, 1) if newest else 0
        while True:
            try:
                self.core.view = self._listed(revision)
                self._watch = self._store.watch("", self.view.revision + 1)
            except Compacted as compacted:  # before it was asked for, or while it was listed
                revision = compacted.floor if revision else 0
                continue
            break
        self.leader.hear(None)
        if self._heard is not None:
            self._heard(None)

    def _listed(self, revision: int) -> View:
        """List all that a view holds, as it was at one revision (0: the newest): not the history, which may be the larger part."""
        view = View(self._store.epoch)
        for kind in keys.TYPES:
            after, more = "", kind != "history"
            while more:
                listing = self._store.list(kind, after, PAGE, revision)
                revision, more = listing.revision, listing.more
                view.load(listing.items, revision)
                after = listing.items[-1].key if listing.items else ""
        return view
