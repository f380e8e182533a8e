"""Remember the latest commits, so that a stream that was cut off goes on where it was, as if it had not been."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from netregistry.model import keys
from netregistry.model.nic import Report
from netregistry.refusal import Refused
from netregistry.request import revision
from netregistry.stream import Line, Stream
from netregistry.view import groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node
    from netregistry.stores.base import Batch
    from netregistry.view import View

MOST = 10_000  #: changes that are remembered
MOST_BYTES = 64 << 20  #: of them together, as the store has them: one node has it write 115 MiB an hour, if it will
#: Commits before a service's start that it takes in, for streams that go on: who was cut off by that start was told the others before. Each
#: takes milliseconds where an etcd keeps the registry, and nobody is answered before.
BEFORE = 2_000
#: What it takes to go on with one stream is counted in keys of groups that are looked at: so many one missed change takes, and one line
#: that is told. Either is some 15 microseconds in which nobody else has a turn.
CHANGE, LINE = 20, 20
SPARE = 2_000  #: beyond what to begin that stream anew takes: a switch was down, and thousands come back behind thousands of changes
#: What concerns a stream.
TOLD = frozenset(("nics", "networks", "nodes", "seen", "imports", keys.UNDERLAY, "prefixes", "endpoints", "names"))


class Change(NamedTuple):
    """One key before and after a commit; None: it was, or is, not there. ``written``: the revision at which it was before."""

    key: str
    before: Any
    written: int
    after: Any


class Commit(NamedTuple):
    """One commit, as far as a stream may tell it. ``size``: bytes of what it has written."""

    revision: int
    changes: tuple[Change, ...]
    size: int


class Past:
    """A view as it was at an earlier revision, which goes on commit by commit until it is the view. The view must not change meanwhile.

    ``work``: what it has taken so far to go on (CHANGE).
    """

    def __init__(self, view: View, commits: list[Commit], at: int) -> None:
        self.epoch, self.revision = view.epoch, at
        self._view = view
        self._objects: dict[str, tuple[Any, int]] = {}
        self._groups: dict[tuple[str, ...], dict[str, None]] = {}
        self._laid_over: dict[tuple[str, ...], int] = {}  # group -> members in the view of which something else is said here
        self.replaced: dict[str, tuple[Any, int]] = {}
        self.work = 0
        for commit in reversed(commits):
            for change in commit.changes:
                self._put(change.key, change.before, change.written)

    def advance(self, commit: Commit) -> None:
        """Take in the next commit."""
        self.replaced = {change.key: (change.before, change.written) for change in commit.changes}
        for change in commit.changes:
            self._put(change.key, change.after, commit.revision if change.after is not None else 0)
        self.revision = commit.revision

    def _put(self, key: str, value: Any, written: int) -> None:
        if key not in self._objects and (there := self._view.get(key)) is not None:
            for group in groups(key, there):
                self._laid_over[group] = self._laid_over.get(group, 0) + 1
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

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Give what cannot be read today: of what could not be read then nothing is remembered."""
        return self._view.unreadable

    def members(self, name: str, *of: str) -> tuple[str, ...]:
        there, here = self._view.members(name, *of), self._groups.get((name, *of), ())
        self.work += len(there) + len(here)
        return (*(key for key in there if key not in self._objects), *here)

    def has(self, name: str, *of: str) -> bool:
        return self.count(name, *of) > 0

    def count(self, name: str, *of: str) -> int:
        group = name, *of
        return self._view.count(name, *of) - self._laid_over.get(group, 0) + len(self._groups.get(group, ()))

    def groups(self, name: str) -> tuple[tuple[str, ...], ...]:
        there = self._view.groups(name)
        self.work += len(there) + len(self._groups)
        found = dict.fromkeys((*there, *(group[1:] for group in self._groups if group[0] == name)))
        return tuple(of for of in found if self.has(name, *of))

    def network(self, uuid: str) -> Network | None:
        return cast("Network | None", self.get(keys.network(uuid)))

    def nic(self, uuid: str) -> Nic | None:
        return cast("Nic | None", self.get(keys.nic(uuid)))

    def node(self, uuid: str) -> Node | None:
        return cast("Node | None", self.get(keys.node(uuid)))


class Recent:
    """The latest commits; kept by ``hear`` as a view is. ``floor``: the revision behind which none is missing.

    ``most``: changes, and ``most_bytes``: bytes of all of them, that are remembered.
    """

    def __init__(self, view: View, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._commits: deque[Commit] = deque()
        self._changes, self._most = 0, most
        self._bytes, self._most_bytes = 0, most_bytes
        self.floor = view.revision

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in the commit that the view has just taken in; None: the view was made anew."""
        if batch is None:
            self._commits.clear()
            self._changes, self._bytes, self.floor = 0, 0, view.revision
            return
        found = (Change(key, *view.replaced[key], view.get(key)) for key in view.replaced if keys.kind(key) in TOLD)
        changes = tuple(each for each in map(_short, found) if each is not None)
        if not changes:
            return
        kept = {each.key for each in changes if keys.kind(each.key) != "seen"}
        size = sum(len(change.value) for change in batch.changes if change.key in kept and change.value is not None)
        self._commits.append(Commit(batch.revision, changes, size))
        self._changes += len(changes)
        self._bytes += size
        while self._changes > self._most or self._bytes > self._most_bytes:
            gone = self._commits.popleft()
            self._changes -= len(gone.changes)
            self._bytes -= gone.size
            self.floor = gone.revision

    def resumed(self, view: View, stream: Stream, start: str) -> Iterator[Line]:
        """Tell what came after the revision ``start``, commit by commit; a stream is as if it had told all before.

        Raises Refused for what is not remembered, for another epoch, and where to begin anew takes less: before any of it is looked at, or
        in the midst of it.
        """
        at = revision(view.epoch, start)
        if not self.floor <= at <= view.revision:
            raise _compacted(view, f"revisions from {view.epoch}:{self.floor} to {view.revision} are remembered")
        most = SPARE + LINE * stream.lines(view)  # to lay out what was missed may take as much, and so may to go on
        missed = self._missed(view, at, most // CHANGE)
        past = Past(view, missed, at)
        stream.assume(past)
        for commit in missed:
            past.advance(commit)
            for line in told(stream.next(past, commit), past.epoch, past.revision):
                past.work += LINE
                yield line
            if past.work > most:
                raise _compacted(view, f"too much has changed since {start}, for this node")
        yield Line("ready", revision=f"{view.epoch}:{view.revision}")

    def _missed(self, view: View, at: int, most: int) -> list[Commit]:
        """Give the commits behind a revision, the oldest first. Raises Refused where they have more changes."""
        found: list[Commit] = []
        changes = 0
        for commit in reversed(self._commits):
            if commit.revision <= at:
                break
            found.append(commit)
            changes += len(commit.changes)
            if changes > most:
                raise _compacted(view, f"more than {most} things have changed since {view.epoch}:{at}, and all of this node's are less")
        return found[::-1]


def _compacted(view: View, why: str) -> Refused:
    return Refused("compacted", f"{why}: begin anew, without from, and compare", field="from", revision=f"{view.epoch}:{view.revision}")


def _short(change: Change) -> Change | None:
    """Give of a change what a stream looks at; None for nothing: of a report that it is there, not what it says, which may be much."""
    if keys.kind(change.key) != "seen":
        return change
    if (change.before is None) == (change.after is None):
        return None
    before, after = (None if each is None else Report(each.nic, "running") for each in (change.before, change.after))
    return change._replace(before=before, after=after)


def told(lines: Iterator[Line], epoch: str, at: int) -> Iterator[Line]:
    """Give the lines of one commit, and behind them that this was all of it: whoever is cut off goes on behind such a line."""
    last = None
    for last in lines:
        yield last
    if last is not None and last.event != "ready":
        yield Line("ready", revision=f"{epoch}:{at}")
