"""Hold a whole registry in memory, as it was at one revision of its store.

How everything here reads and writes, so that the same code runs on any engine of a store (netregistry.stores.base):

* **Reading**: a View is made of one listing, and kept by one watch from the revision behind it. It is a mirror: it changes by batches of
  that watch alone, also by what this process has committed itself. History stays in the store.
* **Writing**: a request is planned against the view, without the store: a Draft (netregistry.draft). The commit that comes of it tests one
  key that every change of what is wanted advances, the ledger. So it is done only if nothing of what it was planned by has changed;
  otherwise the view catches up and the request is planned anew. Nobody has to name what he has read: neither a network that somebody
  deletes, nor the other primary NIC of an instance, nor an address that is free, can change in between.
* **Reports** of nodes do not touch the ledger, for there are a thousand times as many: each tests the node's last one (reports/NODE).
* **No answer** (Unknown) is decided by the ledger too: the same commit sent again fails if the first one was done, or if another was; then
  history/REQUEST says which, and the first one can never be done later.

A refusal is only as good as what it was judged by: before one is given the view catches up to the newest revision.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, insort
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, TypeVar, cast

from netregistry.model import keys, kinds
from netregistry.model.claim import Claim
from netregistry.model.codec import Invalid, load
from netregistry.model.history import Ledger, Settings
from netregistry.model.network import Network
from netregistry.model.nic import Nic, Report
from netregistry.model.node import Alive, Gone, Node, Reports
from netregistry.model.underlay import Confirmed, Name, NodePrefix, Placement, Underlay
from netregistry.pool import REPORTED, Joined, Place, Pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netregistry.stores.base import Batch, Item

T = TypeVar("T")
LIGHT = 2048  #: bytes of a report, up to which its number alone is bounded


class View:
    """All that a registry's store holds but its history. ``epoch``: of the store."""

    def __init__(self, epoch: str) -> None:
        self.epoch, self.revision = epoch, 0
        self.replaced: dict[str, tuple[Any, int]] = {}  #: what the latest commit has changed: object (or None) and revision before
        self.unreadable: dict[str, str] = {}  #: key -> what is wrong with its value: nothing of it counts
        self._objects: dict[str, Any] = {}
        self._revisions: dict[str, int] = {}
        self._kinds: dict[str, dict[str, Any]] = {}  # first part of the key -> key -> object
        # name of the group -> what it is of -> keys, in the order in which they came: no set, for a run is to be repeated
        self._groups: dict[str, dict[tuple[str, ...], dict[str, None]]] = {}
        self._pools: dict[tuple[str, int], Pool] = {}
        # a MAC or an address -> keys of the reports that say that it is in use; and of those that have it as their own
        self._using: dict[str, dict[str, None]] = {}
        self._having: dict[str, dict[str, None]] = {}
        self._reported: dict[tuple[tuple[str, int], int], int] = {}  # pool and number -> reports by which it is in use there
        # scope and family -> prefix, the first and the last of it -> keys of the reports by which a guest has it
        self._whole: dict[tuple[str, int], dict[tuple[int, int], dict[str, None]]] = {}
        self._heavy: dict[str, int] = {}  # reports of more bytes than LIGHT -> how many
        self._weights: dict[str, int] = {}  # node -> bytes of its heavy reports
        self.worked_out: dict[Any, Any] = {}  #: what was made of the whole of it, and holds until the next commit (netregistry.state)
        self._due: dict[type, list[tuple[float, str]]] = {}  # of NICs, claims and reports, sorted: when something of a key ends

    # -- kept by the store

    def load(self, items: tuple[Item, ...], revision: int) -> None:
        """Take in items of a listing, as they were at ``revision``."""
        self.worked_out = {}
        for key, value, written in items:
            self._put(key, value, written)
        self.revision = revision

    def apply(self, batch: Batch) -> None:
        """Take in one commit, or a heartbeat."""
        if not batch.changes:
            self.replaced, self.revision = {}, max(self.revision, batch.revision)
            return
        self.worked_out = {}
        self.replaced = {key: (self._objects.get(key), self.at(key)) for key, _value in batch.changes}
        for key, value in batch.changes:
            self._put(key, value, batch.revision)
        self.revision = max(self.revision, batch.revision)

    def _put(self, key: str, value: bytes | None, revision: int) -> None:
        kind = keys.kind(key)
        made = keys.TYPES.get(kind)
        if kind == "history" or made is None:
            return
        after = None
        self.unreadable.pop(key, None)
        if value is not None:
            try:
                after = load(made, value)
                if made is Claim:
                    tuple(_numbers(key, kind))
            except (Invalid, ValueError) as error:
                after, self.unreadable[key] = None, str(error)
        before = self._objects.get(key)
        moved = self._moved(key, before, after)
        for report in moved:
            self._unuse(report, self._objects[report])
        self._objects.pop(key, None)
        if before is not None:
            self._forget(key, kind, before)
        self._revisions.pop(key, None)
        if value is not None:
            self._revisions[key] = revision
        if after is not None:
            self._objects[key] = after
            self._learn(key, kind, after)
        if kind == "seen":
            self._weigh(key, len(value) if value is not None else 0)
        for report in moved:
            self._use(report, self._objects[report])

    def _weigh(self, key: str, size: int) -> None:
        before, node = self._heavy.pop(key, 0), key.split("/")[1]
        if size > LIGHT:
            self._heavy[key] = size
        if grown := self._heavy.get(key, 0) - before:
            self._weights[node] = self._weights.get(node, 0) + grown
            if not self._weights[node]:
                del self._weights[node]

    def _moved(self, key: str, before: Any, after: Any) -> tuple[str, ...]:
        """Give the reports of a NIC that is in another scope from now on: what they name is in use there, and here no more."""
        if not (isinstance(before, Nic) or isinstance(after, Nic)):
            return ()
        scopes = {each.scope if each is not None else "" for each in (before, after)}
        return self.members("seen", key.partition("/")[2]) if len(scopes) > 1 else ()

    def _learn(self, key: str, kind: str, value: Any) -> None:
        self._kinds.setdefault(kind, {})[key] = value
        for name, *of in groups(key, value):
            self._groups.setdefault(name, {}).setdefault(tuple(of), {})[key] = None
        if (end := due(value)) > 0:
            insort(self._due.setdefault(type(value), []), (end, key))
        if isinstance(value, Claim):
            for pool, number in _numbers(key, kind):
                self._pools.setdefault(pool, Pool()).add(number, Place(value.standing, value.freed))
        elif isinstance(value, Report):
            for each in value.uses:
                self._using.setdefault(each, {})[key] = None
            for each in value.own:
                self._having.setdefault(each, {})[key] = None
            self._use(key, value)

    def _forget(self, key: str, kind: str, value: Any) -> None:
        del self._kinds[kind][key]
        for name, *of in groups(key, value):
            members = self._groups[name][tuple(of)]
            del members[key]
            if not members:
                del self._groups[name][tuple(of)]
        if (end := due(value)) > 0:
            ends = self._due[type(value)]
            del ends[bisect_left(ends, (end, key))]
        if isinstance(value, Claim):
            for pool, number in _numbers(key, kind):
                self._pools[pool].remove(number, Place(value.standing, value.freed))
        elif isinstance(value, Report):
            self._unuse(key, value)
            for kept, names in ((self._using, value.uses), (self._having, value.own)):
                for each in names:
                    del kept[each][key]
                    if not kept[each]:
                        del kept[each]

    def _use(self, key: str, report: Report) -> None:
        """Note in the pools what is in use by a report: an address in the scope of its NIC, a MAC everywhere.

        Addresses of a NIC that nobody wants are in a pool without scope, which counts in each.
        """
        for at in self._places(key, report):
            count = self._reported[at] = self._reported.get(at, 0) + 1
            if count == 1:
                self._pools.setdefault(at[0], Pool()).add(at[1], REPORTED)
        for where, span in self._spans(key, report):
            self._whole.setdefault(where, {}).setdefault(span, {})[key] = None

    def _unuse(self, key: str, report: Report) -> None:
        for where, span in self._spans(key, report):
            del self._whole[where][span][key]
            if not self._whole[where][span]:
                del self._whole[where][span]
        for at in self._places(key, report):
            self._reported[at] -= 1
            if not self._reported[at]:
                del self._reported[at]
                self._pools[at[0]].remove(at[1], REPORTED)

    def _places(self, key: str, report: Report) -> Iterator[tuple[tuple[str, int], int]]:
        nic = self._objects.get(keys.nic(key.rpartition("/")[2]))
        for each in report.uses:
            if each == report.mac:
                found = _numbers(keys.mac("", each), "macs")
            else:  # of one that nobody wants nobody knows the scope
                found = _numbers(keys.address(nic.scope if nic is not None else "", each), "addresses")
            with contextlib.suppress(ValueError):  # a store may hold what no version of this has written
                yield from tuple(found)

    def _spans(self, key: str, report: Report) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
        """Give the prefixes of a report, each with the scope of its NIC; "" for one that nobody wants."""
        nic = self._objects.get(keys.nic(key.rpartition("/")[2])) if report.prefixes else None
        for each in report.whole:
            with contextlib.suppress(ValueError):  # a store may hold what no version of this has written
                prefix = ip_network(each)
                yield (nic.scope if nic is not None else "", prefix.version), (int(prefix.network_address), int(prefix.broadcast_address))

    # -- read by everybody

    def get(self, key: str) -> Any:
        """Give the object at a key; None where there is none."""
        return self._objects.get(key)

    def at(self, key: str) -> int:
        """Give the revision at which a key was written; 0 where it is not there."""
        return self._revisions.get(key, 0)

    def columns(self, found: Sequence[str]) -> tuple[list[int], list[Any]]:
        """Give the revisions, and the objects, of keys that are there: of a hundred thousand as quickly as can be."""
        return list(map(self._revisions.__getitem__, found)), list(map(self._objects.__getitem__, found))

    def members(self, name: str, *of: str) -> tuple[str, ...]:
        """Give the keys of a group (``groups`` below): ("network", UUID), ("instance", CLUSTER, NAME), ("seen", NIC), ..."""
        return tuple(self._groups.get(name, {}).get(of, ()))

    def has(self, name: str, *of: str) -> bool:
        """Tell whether a group has any member."""
        return of in self._groups.get(name, {})

    def count(self, name: str, *of: str) -> int:
        """Give how many members a group has."""
        return len(self._groups.get(name, {}).get(of, ()))

    def groups(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Give what there are groups of, of those with one name."""
        return tuple(self._groups.get(name, ()))

    def using(self, what: str) -> tuple[str, ...]:
        """Give the keys of the reports that say that a MAC or an address is in use, of whichever scope (netregistry.use)."""
        return tuple(self._using.get(what, ()))

    def having(self, what: str) -> tuple[str, ...]:
        """Give the keys of the reports that have a MAC or an address as their NIC's own, and not by an option alone."""
        return tuple(self._having.get(what, ()))

    def all(self, kind: str) -> dict[str, Any]:
        """Give all objects whose key begins with ``kind``, by key. Not to be changed."""
        return self._kinds.get(kind, {})

    def pool(self, kind: str, scope: str, family: int = 0) -> Pool:
        """Give the numbers of a scope that are claimed or in use; of MACs there is one pool for all scopes. Not to be changed."""
        own, beside = (self._pools.get((each, family)) for each in (kind if kind == "macs" else scope, ""))
        return own or Pool() if beside is None else Joined(own or Pool(), beside)

    def whole(self, scope: str, family: int) -> dict[tuple[int, int], tuple[str, ...]]:
        """Give the prefixes of which a guest has every address, in a scope and in none that is known, with the keys of the reports."""
        own, beside = (self._whole.get((each, family), {}) for each in (scope, ""))
        return {span: (*own.get(span, ()), *beside.get(span, ())) for span in own.keys() | beside.keys()}

    def due(self, kind: type, now: float, most: int) -> tuple[str, ...]:
        """Give the keys of NICs, claims or reports of which something has ended by then, the earliest first, and no more than ``most``."""
        ends = self._due.get(kind)
        if not ends or ends[0][0] > now:
            return ()
        return tuple(key for _end, key in ends[: min(most, bisect_left(ends, (now, "\x7f")))])

    def first_end(self, kind: type) -> float:
        """Give the first time at which something of a NIC, claim or report ends; infinity where nothing does."""
        ends = self._due.get(kind)
        return ends[0][0] if ends else float("inf")

    def far(self, kind: type, after: float, most: int) -> tuple[str, ...]:
        """Give the keys of NICs, claims or reports of which something ends later than that, and no more than ``most``."""
        ends = self._due.get(kind)
        if not ends or ends[-1][0] <= after:
            return ()
        first = bisect_left(ends, (after, "\x7f"))
        return tuple(key for _end, key in ends[first : first + most])

    def weight(self, node: str) -> int:
        """Give how many bytes the reports of a node have, those of more than LIGHT; no more than MOST_NICS of LIGHT are beside them."""
        return self._weights.get(node, 0)

    def heavy(self, key: str) -> int:
        """Give how many bytes a report has, if these are more than LIGHT; else 0."""
        return self._heavy.get(key, 0)

    @property
    def ledger(self) -> Ledger:
        return cast("Ledger", self.get(keys.LEDGER) or Ledger())

    @property
    def settings(self) -> Settings:
        return cast("Settings", self.get(keys.SETTINGS) or Settings())

    def network(self, uuid: str) -> Network | None:
        return cast("Network | None", self.get(keys.network(uuid)))

    def nic(self, uuid: str) -> Nic | None:
        return cast("Nic | None", self.get(keys.nic(uuid)))

    def node(self, uuid: str) -> Node | None:
        return cast("Node | None", self.get(keys.node(uuid)))

    def claim(self, key: str) -> Claim | None:
        return cast("Claim | None", self.get(key))

    @property
    def underlay(self) -> Underlay | None:
        return cast("Underlay | None", self.get(keys.UNDERLAY))

    def reports(self, node: str) -> Reports | None:
        return cast("Reports | None", self.get(keys.reports(node)))

    def alive(self, node: str) -> Alive | None:
        return cast("Alive | None", self.get(keys.alive(node)))

    def heard(self, node: str) -> bool:
        """Tell whether a node is alive, and what it has reported is of this life: what ran before its last boot runs no more."""
        alive, said = self.alive(node), self.reports(node)
        return alive is not None and (said is None or said.incarnation in ("", alive.incarnation))

    def gone(self, node: str) -> Gone | None:
        return cast("Gone | None", self.get(keys.gone(node)))

    def seen(self, nic: str) -> Iterator[tuple[str, Report, int]]:
        """Give the reports of a NIC: the node, what it says, and at which revision; the latest last."""
        for key in sorted(self.members("seen", nic), key=self.at):
            yield key.split("/")[1], self._objects[key], self.at(key)

    def unheard(self) -> tuple[str, ...]:
        """Give the live nodes of earlier epochs that have not reported in this one: what they have may be known to nobody."""
        found = []
        for key in self.all("alive"):
            uuid = key.partition("/")[2]
            node, reports = self.node(uuid), self.reports(uuid)
            if node is not None and node.epoch != self.epoch and (reports is None or reports.epoch != self.epoch):
                found.append(uuid)
        return tuple(found)

    def shown_revision(self, key: str) -> str:
        """Give the revision of a key as it leaves the registry: EPOCH:REVISION."""
        return f"{self.epoch}:{self.at(key)}"


def due(value: Any) -> float:
    """Give the time at which the leader has something to do with an object; 0: never."""
    if isinstance(value, Nic):
        return min((each.until for each in value.options if each.until), default=0.0)
    if isinstance(value, Report):
        return value.settles
    if isinstance(value, NodePrefix):
        return value.until
    if isinstance(value, Placement):
        return min((each.until for each in value.endpoints if each.state == "retired" and each.cleared), default=0.0)
    return value.until if isinstance(value, Claim) and not value.used else 0.0


def groups(key: str, value: Any) -> Iterator[tuple[str, ...]]:
    """Give the groups that an object is in, by what it says."""
    kind = keys.kind(key)
    if isinstance(value, Claim):
        if not value.holder:
            yield "unheld", key.split("/", 2)[1]
        if value.contenders:
            yield ("contended",)
        if value.used:
            yield ("used",)
        if value.holder and value.last:
            yield "kept", value.last
    elif isinstance(value, Placement):
        yield "called", value.instance.lower()
        for node in value.nodes:
            yield "placed", node
        if any(each.state == "retired" and not each.cleared for each in value.endpoints):
            yield ("uncleared",)
    elif isinstance(value, Confirmed):
        for name in value.there.arriving:
            yield "arriving", name
        for instance in dict.fromkeys((each.cluster, each.instance) for each in value.had):
            yield "had", *instance
    elif isinstance(value, NodePrefix):
        yield "prefix", value.prefix
    elif isinstance(value, Name):
        yield "names", value.cluster, value.instance
    elif kind == "nics":
        if value.network:
            yield "network", value.network
            if value.cluster:
                yield "within", value.cluster, value.network
        if value.instance:
            yield "instance", value.cluster, value.instance
        if value.cluster:
            yield "cluster", value.cluster
        if value.goes_ahead:
            yield "ahead", value.cluster
        if value.master.startswith("node:"):
            yield "mastered", value.master
    elif kind == "networks":
        yield "named", value.cluster, value.name
        if value.cluster:
            yield "cluster", value.cluster
    elif kind == "nodes":
        yield "node", value.name
        if value.cluster:
            yield "cluster", value.cluster
            yield "nodes", value.cluster
    elif kind == "imports":
        yield "imported", value.uuid
    elif kind == "seen":
        yield "seen", value.nic
        yield "on", key.split("/")[1]


def _numbers(key: str, kind: str) -> Iterator[tuple[tuple[str, int], int]]:
    """Give the pool and the number of a claim."""
    _, scope, what = key.split("/", 2)
    if kind == "macs":
        yield ("macs", 0), int(what.replace(":", ""), 16)
    else:
        yield (scope, kinds.family(what)), kinds.number(what)
