"""Remember the latest commits, so that a stream that was cut off goes on where it was, as if it had not been."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from netregistry.model import keys
from netregistry.refusal import Refused
from netregistry.request import revision
from netregistry.stream import Line, Stream
from netregistry.view import groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node
    from netregistry.stores.base import Batch
    from netregistry.view import View

MOST = 20_000  #: changes that are remembered
#: Commits before a service's start that it takes in, for streams that go on: who was cut off by that start was told the others before. Each
#: takes milliseconds where an etcd keeps the registry, and nobody is answered before.
BEFORE = 2_000
#: What concerns a stream.
TOLD = frozenset(("nics", "networks", "nodes", "seen"))


class Change(NamedTuple):
    """One key before and after a commit; None: it was, or is, not there. ``written``: the revision at which it was before."""

    key: str
    before: Any
    written: int
    after: Any


class Commit(NamedTuple):
    """One commit, as far as a stream may tell it."""

    batch: Batch
    changes: tuple[Change, ...]


class Past:
    """A view as it was at an earlier revision, which goes on commit by commit until it is the view. The view must not change meanwhile."""

    def __init__(self, view: View, commits: list[Commit], at: int) -> None:
        self.epoch, self.revision = view.epoch, at
        self._view = view
        self._objects: dict[str, tuple[Any, int]] = {}
        self._groups: dict[tuple[str, ...], dict[str, None]] = {}
        self.replaced: dict[str, tuple[Any, int]] = {}
        for commit in reversed(commits):
            for change in commit.changes:
                self._put(change.key, change.before, change.written)

    def advance(self, commit: Commit) -> None:
        """Take in the next commit."""
        self.replaced = {change.key: (change.before, change.written) for change in commit.changes}
        for change in commit.changes:
            self._put(change.key, change.after, commit.batch.revision if change.after is not None else 0)
        self.revision = commit.batch.revision

    def _put(self, key: str, value: Any, written: int) -> None:
        before = self._objects.get(key, (None, 0))[0]
        for group in groups(key, before) if before is not None else ():
            del self._groups[group][key]
        for group in groups(key, value) if value is not None else ():
            self._groups.setdefault(group, {})[key] = None
        self._objects[key] = value, written

    # -- what a View has

    def get(self, key: str) -> Any:
        return self._objects[key][0] if key in self._objects else self._view.get(key)

    def at(self, key: str) -> int:
        return self._objects[key][1] if key in self._objects else self._view.at(key)

    def members(self, name: str, *of: str) -> tuple[str, ...]:
        kept = (key for key in self._view.members(name, *of) if key not in self._objects)
        return (*kept, *self._groups.get((name, *of), ()))

    def has(self, name: str, *of: str) -> bool:
        return bool(self._groups.get((name, *of))) or any(key not in self._objects for key in self._view.members(name, *of))

    def groups(self, name: str) -> tuple[tuple[str, ...], ...]:
        found = dict.fromkeys((*self._view.groups(name), *(group[1:] for group in self._groups if group[0] == name)))
        return tuple(of for of in found if self.has(name, *of))

    def network(self, uuid: str) -> Network | None:
        return cast("Network | None", self.get(keys.network(uuid)))

    def nic(self, uuid: str) -> Nic | None:
        return cast("Nic | None", self.get(keys.nic(uuid)))

    def node(self, uuid: str) -> Node | None:
        return cast("Node | None", self.get(keys.node(uuid)))


class Recent:
    """The latest commits; kept by ``hear`` as a view is. ``floor``: the revision behind which none is missing."""

    def __init__(self, view: View, most: int = MOST) -> None:
        self._commits: deque[Commit] = deque()
        self._changes, self._most = 0, most
        self.floor = view.revision

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in the commit that the view has just taken in; None: the view was made anew."""
        if batch is None:
            self._commits.clear()
            self._changes, self.floor = 0, view.revision
            return
        told = [key for key in view.replaced if keys.kind(key) in TOLD]
        if not told:
            return
        changes = tuple(Change(key, *view.replaced[key], view.get(key)) for key in told)
        self._commits.append(Commit(batch, changes))
        self._changes += len(changes)
        while self._changes > self._most:
            gone = self._commits.popleft()
            self._changes -= len(gone.changes)
            self.floor = gone.batch.revision

    def resumed(self, view: View, stream: Stream, start: str) -> Iterator[Line]:
        """Tell what came after the revision ``start``, commit by commit; a stream is as if it had told all before.

        Raises Refused for what is not remembered, and for another epoch.
        """
        at = revision(view.epoch, start)
        if not self.floor <= at <= view.revision:
            detail = f"revisions from {view.epoch}:{self.floor} to {view.revision} are remembered: begin anew, without from, and compare"
            raise Refused("compacted", detail, field="from", revision=f"{view.epoch}:{view.revision}")
        missed = list(islice(self._commits, self._place(at), None))
        past = Past(view, missed, at)
        stream.assume(past)
        for commit in missed:
            past.advance(commit)
            yield from told(stream.next(past, commit.batch), past.epoch, past.revision)
        yield Line("ready", revision=f"{view.epoch}:{view.revision}")

    def _place(self, at: int) -> int:
        """Give the place of the first commit behind a revision."""
        low, high = 0, len(self._commits)
        while low < high:
            middle = (low + high) // 2
            if self._commits[middle].batch.revision <= at:
                low = middle + 1
            else:
                high = middle
        return low


def told(lines: Iterator[Line], epoch: str, at: int) -> Iterator[Line]:
    """Give the lines of one commit, and behind them that this was all of it: whoever is cut off goes on behind such a line."""
    last = None
    for last in lines:
        yield last
    if last is not None and last.event != "ready":
        yield Line("ready", revision=f"{epoch}:{at}")
