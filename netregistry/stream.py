"""Tell one node what concerns it, as it changes: pure, from the view and the commits that it takes in.

A node's own are the NICs that it has reported, and those whose master it is, with their networks. Of every other NIC of its cluster it is
told the operator's values, if there are any, and of every network that NICs of its cluster are in the value: they lie on a migration's
target before the guest comes. A cluster that is being renamed (netregistry.rules.renaming) is one under all its names.

A line is ``enter`` (the whole value, but for what a network does not give out), ``change`` (the same: who has missed one loses nothing),
``leave`` or ``ready``.

The operator's values are the options, as earlier versions have said alone, and what else a node keeps of the NIC beside them: a file that
has only a part must not be taken for the NIC at its revision.

A node that asks for it is told its underlay, as a whole: its prefix, and the endpoints that are to be there with their names.

A stream keeps in mind which of the node's own it has told. Of the cluster's it keeps nothing: a cluster may have thousands, and thousands
of nodes. What was told of these before a commit is worked out of what that has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from netregistry.model import keys
from netregistry.model.codec import write
from netregistry.underlay import told
from netregistry.view import groups

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from netregistry.model.importing import Import
    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node

What = Literal["nic", "network"]


class Keyed(Protocol):
    """One change of a commit, of which its key is looked at."""

    @property
    def key(self) -> str: ...


class Changes(Protocol):
    """One commit, as far as it is looked at: a Batch, or what is remembered of one."""

    @property
    def changes(self) -> Sequence[Keyed]: ...


class Known(Protocol):
    """What a stream is made from: a View, or what one was at an earlier revision. Its methods are View's."""

    epoch: str
    revision: int
    replaced: dict[str, tuple[Any, int]]  #: what the latest commit has changed: object (or None) and revision before

    @property
    def unreadable(self) -> Mapping[str, str]: ...

    def get(self, key: str) -> Any: ...

    def at(self, key: str) -> int: ...

    def members(self, name: str, *of: str) -> tuple[str, ...]: ...

    def has(self, name: str, *of: str) -> bool: ...

    def count(self, name: str, *of: str) -> int: ...

    def groups(self, name: str) -> tuple[tuple[str, ...], ...]: ...

    def network(self, uuid: str) -> Network | None: ...

    def nic(self, uuid: str) -> Nic | None: ...

    def node(self, uuid: str) -> Node | None: ...


class Line(NamedTuple):
    """One line of a stream. ``revision``: EPOCH:REVISION of what it tells; of ``ready``: up to which all was told."""

    event: Literal["enter", "change", "leave", "ready"]
    what: Literal["nic", "network", "options", "underlay", ""] = ""
    uuid: str = ""
    value: Any = None
    revision: str = ""
    beside: Any = None  #: of ``options``: what else a node keeps of the NIC


def hearers(view: Known, batch: Changes) -> Iterable[str]:
    """Give the only nodes that a commit can concern, after the view has taken it in: there may be thousands, and most concern one."""
    found: dict[str, None] = {}
    clusters: dict[str, None] = {}
    for change in batch.changes:
        kind, _, rest = change.key.partition("/")
        if kind in ("nodes", "seen", "prefixes"):
            found[rest.partition("/")[0]] = None
        elif kind == "nics":
            for nic in (view.replaced[change.key][0], view.get(change.key)):
                if nic is not None:
                    found |= dict.fromkeys(_owners(view, nic))
                    if nic.goes_ahead:
                        clusters[nic.cluster] = None
        elif kind == "networks":
            for key in view.members("network", rest):
                nic = view.get(key)
                found |= dict.fromkeys(_owners(view, nic))
                clusters[nic.cluster] = None
    clusters |= {cluster: None for cluster, _network in _begun_or_ended(view)}
    clusters = {name: None for cluster in clusters for name in sorted(_names(view, cluster))}
    for cluster in (*clusters, *_named_otherwise(view)):
        found |= dict.fromkeys(key.partition("/")[2] for key in view.members("nodes", cluster))
    return found


def _names(view: Known | Before, cluster: str) -> frozenset[str]:
    """Give all names of a cluster: more than one while it is being renamed. None of no cluster."""
    there: Import | None = view.get(keys.imported(cluster))
    others = view.members("imported", there.uuid) if there is not None else ()
    return frozenset((cluster, *(key.partition("/")[2] for key in others))) if cluster else frozenset()


def _named_otherwise(view: Known) -> dict[str, None]:
    """Give the names of the clusters of which the latest commit has changed which names they have."""
    found: dict[str, None] = {}
    for key, (before, _at) in view.replaced.items():
        if keys.kind(key) == "imports" and len({each and each.uuid for each in (before, view.get(key))}) > 1:
            name = key.partition("/")[2]
            found |= dict.fromkeys(sorted(_names(Before(view), name) | _names(view, name)))
    return found


def _place(nic: Nic | None) -> tuple[str, str] | None:
    """Give the cluster and the network of a NIC that has both."""
    return (nic.cluster, nic.network) if nic is not None and nic.cluster and nic.network else None


def _begun_or_ended(view: Known) -> list[tuple[str, str]]:
    """Give the clusters and networks of which the latest commit has brought the first NIC in that network, or taken the last."""
    found: dict[tuple[str, str], None] = {}
    for key, (before, _at) in view.replaced.items():
        if keys.kind(key) == "nics" and (old := _place(before)) != (new := _place(view.get(key))):
            found |= {place: None for place in (old, new) if place is not None}
    return [place for place in found if _was_within(view, *place) != view.has("within", *place)]


def _was_within(view: Known, cluster: str, network: str) -> bool:
    """Tell whether a NIC of the cluster was in the network before the latest commit: there may be thousands, which are counted."""
    changed = [(before, view.get(key)) for key, (before, _at) in view.replaced.items() if keys.kind(key) == "nics"]
    if any(_place(before) == (cluster, network) for before, _after in changed):
        return True
    return view.count("within", cluster, network) > sum(_place(after) == (cluster, network) for _before, after in changed)


def _owners(view: Known, nic: Nic) -> Iterator[str]:
    """Give the nodes whose own a NIC is."""
    if nic.master.startswith("node:"):
        yield nic.master.partition(":")[2]
    for key in view.members("seen", nic.uuid):
        yield key.split("/")[1]


class Before:
    """What a view was before its latest commit."""

    def __init__(self, view: Known) -> None:
        self._view = view

    def get(self, key: str) -> Any:
        return self._view.replaced[key][0] if key in self._view.replaced else self._view.get(key)

    def at(self, key: str) -> int:
        return self._view.replaced[key][1] if key in self._view.replaced else self._view.at(key)

    def members(self, *group: str) -> tuple[str, ...]:
        there = dict.fromkeys((*self._view.members(*group), *self._view.replaced))
        return tuple(key for key in there if (value := self.get(key)) is not None and group in groups(key, value))


class Stream:
    """What one node is told. Of one commit, or of one view, it is told in an order that nothing else has a say in."""

    def __init__(self, node: str, underlay: bool = False) -> None:
        self.node, self._underlay = node, underlay
        self._stand = told.Stand()  # how the node's underlay stood when that was told
        self._told: dict[tuple[What, str], int] = {}  # the node's own NICs, and their networks -> revision of the value

    def begin(self, view: Known) -> Iterator[Line]:
        """Tell all that concerns the node, and that this was all."""
        yield from self._all(view, {}, {})

    def lines(self, view: Known) -> int:
        """Count the lines by which all is told, or a few more, without a look at what they tell."""
        clusters = self._clusters(view)
        found = view.count("on", self.node) + view.count("mastered", f"node:{self.node}")
        found += sum(view.count("ahead", cluster) for cluster in clusters)
        return found + sum(of in clusters for of, _network in view.groups("within")) + self._underlay

    def assume(self, view: Known) -> None:
        """Take all that concerns the node for told."""
        self._told = {("network", uuid): view.at(keys.network(uuid)) for uuid in self._own_networks(view)}
        self._told |= {("nic", uuid): view.at(keys.nic(uuid)) for uuid in sorted(self._owns(view))}
        self._stand = told.stand(view, self.node) if self._underlay else told.Stand()

    def next(self, view: Known, batch: Changes) -> Iterator[Line]:
        """Tell what a commit changes for the node, after the view has taken it in.

        A network enters before its NICs, and leaves after them.
        """
        yield from self._next(view, batch)
        yield from self._tell_underlay(view)

    def _next(self, view: Known, batch: Changes) -> Iterator[Line]:
        nics: dict[str, None] = {}
        networks: dict[str, None] = {}
        clusters = self._clusters(view)
        if any(change.key == keys.node(self.node) for change in batch.changes) or not clusters.isdisjoint(_named_otherwise(view)):
            yield from self._all(view, self._ahead_before(view), self._networks_before(view))  # it may be in another cluster
            return
        for change in batch.changes:
            kind, _, rest = change.key.partition("/")
            if kind == "nics":
                nics[rest] = None
            elif kind == "networks":
                networks[rest] = None
            elif kind == "seen" and rest.startswith(f"{self.node}/"):
                nics[rest.partition("/")[2]] = None
        lines = [line for uuid in nics for line in self._about(view, uuid, clusters)]
        networks |= {network: None for of, network in (_begun_or_ended(view) if nics else ()) if of in clusters}
        if not lines and not networks:
            return
        own: Container[str] = [uuid for uuid in networks if ("network", uuid) in self._told]
        if any(line.what == "nic" for line in lines):
            before = [uuid for what, uuid in sorted(self._told) if what == "network"]
            own = found = self._own_networks(view)
            networks |= {uuid: None for uuid in (*before, *found) if ("network", uuid) not in self._told or uuid not in found}
        told = {uuid: self._network_told(view, uuid, clusters) for uuid in networks}
        within = [uuid for uuid in networks if any(view.has("within", cluster, uuid) for cluster in clusters)]
        gone = [uuid for uuid in networks if view.network(uuid) is None or not (uuid in own or uuid in within)]
        for uuid in networks:
            if uuid not in gone:
                yield from self._tell_network(view, uuid, True, uuid in own, told[uuid])
        yield from lines
        for uuid in gone:
            yield from self._tell_network(view, uuid, False, False, told[uuid])

    # -- what is told

    def _all(self, view: Known, ahead: dict[str, int], networks: dict[str, int]) -> Iterator[Line]:
        """Tell all that concerns the node and was not told, and take back what concerns it no more.

        ``ahead``: of which NICs the operator's values were told, and the revisions of these; ``networks``: the same of networks.
        """
        of_own, own, clusters = self._own_networks(view), sorted(self._owns(view)), self._clusters(view)
        within = {uuid for of, uuid in view.groups("within") if of in clusters and view.network(uuid) is not None}
        concerned = sorted({*of_own, *within})
        for uuid in concerned:
            yield from self._tell_network(view, uuid, True, uuid in of_own, networks.get(uuid))
        for uuid in own:
            yield from self._tell(view, uuid, True)
        mine = frozenset(own)
        wanted = [key.partition("/")[2] for key in sorted(each for cluster in clusters for each in view.members("ahead", cluster))]
        beside = [uuid for uuid in wanted if uuid not in mine]
        for uuid in beside:
            yield from _line(view, "options", uuid, True, ahead.get(uuid))
        gone = sorted(uuid for what, uuid in self._told if what == "nic" and uuid not in mine)
        for uuid in gone:
            yield from self._tell(view, uuid, False)
        for uuid in sorted(ahead.keys() - frozenset(beside)):
            yield from _line(view, "options", uuid, False, ahead[uuid])
        for uuid in sorted(networks.keys() - frozenset(concerned)):
            yield from self._tell_network(view, uuid, False, False, networks[uuid])
        yield from self._tell_underlay(view)
        yield Line("ready", revision=f"{view.epoch}:{view.revision}")

    def _about(self, view: Known, uuid: str, clusters: frozenset[str]) -> Iterator[Line]:
        """Tell of one NIC. ``clusters``: of the node, before the latest commit and after it, which has changed none of their names."""
        before, key = Before(view), keys.nic(uuid)
        told = before.at(key) if self._beside(before, before.get(key), clusters) else None
        yield from _line(view, "options", uuid, self._beside(view, view.nic(uuid), clusters), told)
        yield from self._tell(view, uuid, self._own(view, view.nic(uuid)))

    def _tell(self, view: Known, uuid: str, concerned: bool) -> Iterator[Line]:
        yield from _line(view, "nic", uuid, concerned, self._told.get(("nic", uuid)))
        self._keep(view, "nic", uuid, concerned)

    def _tell_network(self, view: Known, uuid: str, concerned: bool, own: bool, told: int | None) -> Iterator[Line]:
        yield from _line(view, "network", uuid, concerned, told)
        self._keep(view, "network", uuid, own)

    def _tell_underlay(self, view: Known) -> Iterator[Line]:
        """Tell the node, if it has asked for that, what it is to have of the underlay: each step of that advances its prefix.

        Of what cannot be read it is told why: without a line it would take all of it for gone.
        """
        if not self._underlay:
            return
        now, before = told.stand(view, self.node), self._stand
        if now == before or (now.problem and now.problem == before.problem):
            return
        self._stand = now
        event: Literal["enter", "change"] = "change" if before.at or before.problem else "enter"
        if now.problem:
            yield Line(event, "underlay", self.node, {"problem": now.problem}, f"{view.epoch}:{now.at or view.revision}")
        elif now.at:
            yield Line(event, "underlay", self.node, told.of(view, self.node), f"{view.epoch}:{now.at}")
        else:
            yield Line("leave", "underlay", self.node, revision=f"{view.epoch}:{view.revision}")

    def _keep(self, view: Known, what: What, uuid: str, own: bool) -> None:
        if own:
            self._told[what, uuid] = view.at(keys.network(uuid) if what == "network" else keys.nic(uuid))
        else:
            self._told.pop((what, uuid), None)

    def _network_told(self, view: Known, uuid: str, clusters: frozenset[str]) -> int | None:
        """Give the revision at which a network was told before the latest commit; None where it was not. ``clusters``: its node's then."""
        told = self._told.get(("network", uuid))
        if told is None and any(_was_within(view, cluster, uuid) for cluster in clusters):
            told = Before(view).at(keys.network(uuid)) or None
        return told

    # -- what concerns the node

    def _owns(self, view: Known) -> Iterator[str]:
        """Give the node's own NICs."""
        found = dict.fromkeys(
            key.rpartition("/")[2] for key in (*view.members("on", self.node), *view.members("mastered", f"node:{self.node}"))
        )
        return (uuid for uuid in found if view.nic(uuid) is not None)

    def _cluster(self, view: Known | Before) -> str:
        node: Node | None = view.get(keys.node(self.node))
        return node.cluster if node is not None else ""

    def _clusters(self, view: Known | Before) -> frozenset[str]:
        """Give all names of the node's cluster."""
        return _names(view, self._cluster(view))

    def _own_networks(self, view: Known) -> dict[str, None]:
        """Give the networks of the node's own NICs."""
        found = sorted({nic.network for uuid in self._owns(view) if (nic := view.nic(uuid)) is not None})
        return {uuid: None for uuid in found if uuid and view.network(uuid) is not None}

    def _own(self, view: Known | Before, nic: Nic | None) -> bool:
        return nic is not None and (nic.master == f"node:{self.node}" or view.get(keys.seen(self.node, nic.uuid)) is not None)

    def _beside(self, view: Known | Before, nic: Nic | None, clusters: frozenset[str]) -> bool:
        """Tell whether a NIC is one of the node's cluster of which an operator has said something, and not the node's own."""
        return nic is not None and nic.cluster in clusters and nic.goes_ahead and not self._own(view, nic)

    def _networks_before(self, view: Known) -> dict[str, int]:
        """Give the networks that were told before the latest commit, and the revisions of these."""
        clusters = self._clusters(Before(view))
        places = {
            place for key, (before, _at) in view.replaced.items() if keys.kind(key) == "nics" and (place := _place(before)) is not None
        }
        within = {network for of, network in (*places, *view.groups("within")) if of in clusters}
        named = {*within, *(uuid for what, uuid in self._told if what == "network")}
        return {uuid: told for uuid in named if (told := self._network_told(view, uuid, clusters)) is not None}

    def _ahead_before(self, view: Known) -> dict[str, int]:
        """Give the NICs of which the operator's values were told before the latest commit, and the revisions of these."""
        before = Before(view)
        clusters = self._clusters(before)
        ahead = (key for cluster in clusters for key in view.members("ahead", cluster))
        found = {*ahead, *(key for key in view.replaced if keys.kind(key) == "nics")} if clusters else ()
        return {key.partition("/")[2]: before.at(key) for key in sorted(found) if self._beside(before, before.get(key), clusters)}


def _line(view: Known, what: Literal["nic", "network", "options"], uuid: str, concerned: bool, told: int | None) -> Iterator[Line]:
    """Give the line by which something is told that was told at a revision (None: it was not), if one is needed."""
    key = keys.network(uuid) if what == "network" else keys.nic(uuid)
    at = view.at(key)
    if not concerned:
        if told is not None:
            yield Line("leave", what, uuid, revision=f"{view.epoch}:{view.revision}")
    elif told != at:
        value = view.get(key)
        if what == "network":
            value = value._replace(reserved=(), barred=())  # a thousand ranges, of which no guest is told
        said, beside = (write(value.options), _beside(value)) if what == "options" else (write(value), None)
        yield Line("change" if told is not None else "enter", what, uuid, said, f"{view.epoch}:{at}", beside)


def _beside(nic: Nic) -> dict[str, Any]:
    said = {"master": nic.master, "network": nic.network, "addresses": list(nic.addresses), "tags": list(nic.tags)}
    return {**said, "index": nic.index, "ip": nic.ip}
