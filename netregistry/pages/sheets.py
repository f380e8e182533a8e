"""Gather what each page says, in the registry's turn; the template of the same name shows it. Nothing of it is text of HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

from netregistry import state
from netregistry.model import keys, kinds
from netregistry.model.codec import Text
from netregistry.model.node import About
from netregistry.pages import live, order, search
from netregistry.pages.entries import Done, Link, done, link
from netregistry.pages.order import Orders, Part, Place
from netregistry.refusal import Refused
from netregistry.rules.allocation import given_out, room
from netregistry.service import filters
from netregistry.service.filters import Filter, Param, Sight
from netregistry.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node
    from netregistry.service.registry import Registry
    from netregistry.view import View

ROWS = 100  #: of one page
SOME = 20  #: of what is named beside something else
STATES: tuple[State, ...] = get_args(State)


class Sheet(NamedTuple):
    """Hold what one page says. ``live``: the topic of what it shows; "": it stays as it is."""

    template: str
    title: str
    live: str
    values: dict[str, Any]


class Fill(NamedTuple):
    """Say how full a network's addresses of one family are. ``free``: that can be given out now."""

    family: int
    subnet: str
    size: int
    held: int
    reserved: int
    quarantined: int
    reported: int

    @property
    def free(self) -> int:
        return max(self.size - self.held - self.reserved - self.quarantined - self.reported, 0)

    @property
    def taken(self) -> float:
        """Give the part that is not free, from 0 to 1."""
        return 1 - self.free / self.size if self.size else 1.0


class NicRow(NamedTuple):
    """A NIC in a list."""

    nic: Nic
    name: str
    shown: state.Shown
    network: Link | None
    nodes: tuple[Link, ...]


class NodeRow(NamedTuple):
    """A node in a list. ``since``: it is alive, or gone; ``said``: it has reported; 0: never."""

    node: Node
    alive: bool
    since: float
    said: float
    nics: int
    missing: tuple[str, ...]
    about: About


class NetworkRow(NamedTuple):
    """A network in a list."""

    network: Network
    fills: tuple[Fill, ...]
    nics: int


class ConflictRow(NamedTuple):
    """A MAC or an address that more than one NIC wants."""

    kind: str
    what: str
    scope: Link
    holder: Link
    contenders: tuple[Link, ...]


def _place(text: str) -> str:
    if len(text) > 1200 or ":" not in text:
        raise ValueError
    return text


Behind = Annotated[str, Text(_place, "what the link of a page before said")]
PAGING = (Param("after", Behind, "behind this"), Param("before", Behind, "before this"))
NIC_FILTERS = tuple(each for each in filters.NICS if each.name in ("state", "network", "node", "cluster", "instance", "owner"))
NODE_FILTERS = tuple(each for each in filters.NODES if each.name in ("alive", "cluster"))
NETWORK_FILTERS = tuple(each for each in filters.NETWORKS if each.name in ("cluster", "owner"))
NICS = (*(each.param for each in NIC_FILTERS), *PAGING)
NODES = (*(each.param for each in NODE_FILTERS), *PAGING)
NETWORKS = (*(each.param for each in NETWORK_FILTERS), *PAGING)
CONFLICTS = PAGING[:1]
FIND = (Param("text", kinds.NameOrNone, "any part of a name, MAC, address or UUID"),)


class Sheets:
    """Make what there is to be shown of a registry. All methods are for its turn; the view has caught up before."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._orders = Orders(lambda: registry.local.view)
        registry.add(self._orders)

    @property
    def _view(self) -> View:
        return self._registry.local.view

    @property
    def _sight(self) -> Sight:
        return Sight(self._view, self._registry.states)

    # -- all of it

    def overview(self) -> Sheet:
        view, states = self._view, self._registry.states
        away = [self._node_row(view, node) for node in self._nodes_away(view)]
        status = self._registry.reader.status(self._registry.leads, self._registry.streams.count).body
        waiting = [link(view, keys.node(uuid)) for uuid in view.unheard()[:SOME]]
        counts = [(each, states.count(each)) for each in STATES]
        return Sheet("overview", "Overview", live.EVERYTHING, {"status": status, "counts": counts, "away": away, "waiting": waiting})

    def _nodes_away(self, view: View) -> list[Node]:
        """Give some of the nodes that are not alive."""
        if len(view.all("alive")) >= len(view.all("nodes")):
            return []
        part = self._orders.of("nodes").part(Place(), SOME, lambda key: view.alive(key.partition("/")[2]) is None)
        return [view.all("nodes")[key] for key in part.keys]

    def find(self, wanted: Mapping[str, Any]) -> Sheet:
        text = wanted.get("text", "")
        return Sheet("find", "Search", "", {"text": text, "found": search.found(self._sight, self._registry.index, text)})

    # -- lists

    def nics(self, wanted: Mapping[str, Any]) -> Sheet:
        part = self._part("nics", NIC_FILTERS, wanted)
        view, states = self._view, self._registry.states
        rows = [self._nic_row(view, view.all("nics")[key]) for key in part.keys]
        chosen = _chosen(wanted)
        named = {"network": keys.network, "node": keys.node}
        of = [(name, link(view, named[name](value)) if name in named else Link("", value)) for name, value in chosen.items()]
        counts = [(each, states.count(each)) for each in STATES]
        return Sheet(
            "nics",
            "NICs",
            "nics",
            {"rows": rows, "chosen": chosen, "of": of, "counts": counts, "total": len(view.all("nics")), **_links(part, rows)},
        )

    def nodes(self, wanted: Mapping[str, Any]) -> Sheet:
        part, view = self._part("nodes", NODE_FILTERS, wanted), self._view
        rows = [self._node_row(view, view.all("nodes")[key]) for key in part.keys]
        total, alive = len(view.all("nodes")), len(view.all("alive"))
        return Sheet(
            "nodes", "Nodes", "nodes", {"rows": rows, "chosen": _chosen(wanted), "total": total, "alive": alive, **_links(part, rows)}
        )

    def networks(self, wanted: Mapping[str, Any]) -> Sheet:
        part, view = self._part("networks", NETWORK_FILTERS, wanted), self._view
        rows = [self._network_row(view, view.all("networks")[key]) for key in part.keys]
        total = len(view.all("networks"))
        return Sheet("networks", "Networks", "networks", {"rows": rows, "chosen": _chosen(wanted), "total": total, **_links(part, rows)})

    def conflicts(self, wanted: Mapping[str, Any]) -> Sheet:
        """Show what several NICs want, by key; and NICs that are in conflict, most of them by that, others since they run twice."""
        view, after = self._view, wanted.get("after", "").partition(":")[2]
        found = [each for each in state.all_conflicts(view, self._registry.states.members("conflict")) if each.claim > after]
        rows = [self._conflict_row(view, each) for each in found[:ROWS]]
        twice: list[NicRow] = []
        for key in self._registry.states.members("conflict"):
            row = self._nic_row(view, view.all("nics")[key])
            if not row.shown.conflicts and len(twice) < ROWS:
                twice.append(row)
        later = f":{found[ROWS - 1].claim}" if len(found) > ROWS else ""
        return Sheet("conflicts", "Conflicts", "conflicts", {"rows": rows, "twice": twice, "later": later, "after": after})

    def _part(self, kind: str, known: Iterable[Filter], wanted: Mapping[str, Any]) -> Part:
        """Give the keys of one page of a list. By a group of keys that is small where there is one; else the list is gone through."""
        sight, made = self._sight, self._orders.of(kind)
        used = [each for each in known if each.name in wanted]
        among: list[str] | None = None
        for each in used:
            group = each.group(sight, wanted[each.name]) if each.group is not None else None
            if group is not None and (among is None or len(among) > order.FEW):
                among = list(group)
        get, tests = self._view.all(kind).get, [(each.fits, wanted[each.name]) for each in used]

        def fits(key: str) -> bool:
            value = get(key)
            return value is not None and all(test(sight, key, value, chosen) for test, chosen in tests)

        place = Place(wanted.get("after", ""), wanted.get("before", ""))
        return made.part(place, ROWS, fits, among if among is not None and len(among) <= order.FEW else None)

    # -- one of them

    def nic(self, uuid: str) -> Sheet:
        view = self._view
        nic: Nic = self._one(keys.nic(uuid), "NIC")
        row = self._nic_row(view, nic)
        seen = [(link(view, keys.node(node)), view.alive(node) is not None, report) for node, report, _revision in view.seen(uuid)]
        conflicts = [self._conflict_row(view, each) for each in row.shown.conflicts]
        values = {"row": row, "nic": nic, "seen": seen[::-1], "conflicts": conflicts, "at": view.shown_revision(keys.nic(uuid))}
        return Sheet("nic", f"NIC {row.name}", keys.nic(uuid), values)

    def node(self, uuid: str) -> Sheet:
        view = self._view
        node: Node = self._one(keys.node(uuid), "node")
        values = {"row": self._node_row(view, node), "node": node, "at": view.shown_revision(keys.node(uuid))}
        return Sheet("node", f"Node {node.name}", keys.node(uuid), values)

    def network(self, uuid: str) -> Sheet:
        view = self._view
        network: Network = self._one(keys.network(uuid), "network")
        values = {"row": self._network_row(view, network), "network": network, "at": view.shown_revision(keys.network(uuid))}
        return Sheet("network", f"Network {network.name}", keys.network(uuid), values)

    def named(self, uuid: str) -> Link:
        """Give what a history of something is headed with: it may be there no more."""
        view = self._view
        there = [key for key in (keys.nic(uuid), keys.node(uuid), keys.network(uuid)) if view.get(key) is not None]
        return link(view, there[0]) if there else Link("", uuid)

    def done(self, entries: Iterable[Mapping[str, Any]]) -> list[Done]:
        """Tell entries of the history."""
        return [done(self._view, each) for each in entries]

    def floor(self, uuid: str) -> float:
        """Give since when there may be something about it in the history, seconds since the epoch; ``uuid``: a NIC, or "" for all."""
        view = self._view
        kept, nic = view.ledger.floor / 1000, view.nic(uuid) if uuid else None
        return max(kept, nic.made - 86400.0) if nic is not None else kept

    def _one(self, key: str, what: str) -> Any:
        value = self._view.get(key)
        if value is None or f"{keys.kind(key)}/{value.uuid}" != key:
            raise Refused("missing", f"there is no {what} {key.partition('/')[2]!a:.80}")
        return value

    # -- parts of pages

    def _nic_row(self, view: View, nic: Nic) -> NicRow:
        shown = state.shown(view, nic)
        network = link(view, keys.network(nic.network)) if nic.network else None
        return NicRow(nic, nic.label, shown, network, tuple(link(view, keys.node(node)) for node in shown.nodes))

    def _node_row(self, view: View, node: Node) -> NodeRow:
        alive, gone, said = view.alive(node.uuid), view.gone(node.uuid), view.reports(node.uuid)
        return NodeRow(
            node,
            alive is not None,
            alive.since if alive else gone.since if gone else 0.0,
            said.time if said else 0.0,
            len(view.members("on", node.uuid)),
            state.missing_tags(view, node.uuid),
            said.about if said else About(),
        )

    def _network_row(self, view: View, network: Network) -> NetworkRow:
        return NetworkRow(network, fills(view, network), len(view.members("network", network.uuid)))

    def _conflict_row(self, view: View, conflict: state.Conflict) -> ConflictRow:
        kind, scope, what = conflict.claim.split("/", 2)
        contenders = tuple(link(view, keys.nic(each)) for each in conflict.contenders)
        return ConflictRow(kind, what, link(view, keys.network(scope)), link(view, keys.nic(conflict.holder)), contenders)


def fills(view: View, network: Network) -> tuple[Fill, ...]:
    """Tell how full a network is."""
    subnets = {4: network.subnet, 6: network.subnet6}
    return tuple(
        Fill(
            family,
            subnets[family],
            *room(view.pool("addresses", network.uuid, family), given_out(view, network, family), network.excluded(family)),
        )
        for family in network.families
    )


def _chosen(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Give the filters of a list as a query has them."""
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in wanted.items() if name not in Place._fields}


def _links(part: Part, rows: list[Any]) -> dict[str, str]:
    """Give the places of the page before and of the one behind; "" where there is none."""
    first, last = (rows[0][0], rows[-1][0]) if rows else (None, None)
    return {"earlier": order.place_of(first) if part.earlier and rows else "", "later": order.place_of(last) if part.later and rows else ""}
