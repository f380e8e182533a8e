"""Answer what is only looked at: lists, objects, history, search, status. From the view, and of the history from the store."""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry import state, use
from netregistry.actions import ACTIONS
from netregistry.core import BACK
from netregistry.model import keys
from netregistry.model.claim import Claim
from netregistry.model.codec import Invalid, load, write
from netregistry.model.history import Entry
from netregistry.model.node import About
from netregistry.model.underlay import Confirmed, Speakers, Zone
from netregistry.refusal import Refused
from netregistry.request import new_id, revision
from netregistry.roles import LEADER, ROLES
from netregistry.rules import holders, underlay
from netregistry.service import answers, filters
from netregistry.service.filters import USUAL, Filter, Sight, chosen
from netregistry.service.listings import Listings, Row, Rows
from netregistry.stores.base import Ahead, Compacted
from netregistry.stores.etcd import EtcdStore
from netregistry.underlay import healing, wrong
from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node
    from netregistry.model.underlay import Placement
    from netregistry.service.index import Index
    from netregistry.service.states import States
    from netregistry.stores.base import Store
    from netregistry.view import View

ABILITIES = ("certificates", "batch", "dry-run", "find", "history", "watch", "backup", "underlay", "underlay-prefix", "prefixes")
NO_ROWS = Rows((), (), ())
#: Entries of the history that one request looks at, bytes of those that it gives or decodes, and entries that are in memory at once.
SCANNED, LARGEST, AT_ONCE = 5000, 4 << 20, 100


class Answer(NamedTuple):
    """A body for JSON, and the revision of what it shows ("" for none)."""

    body: Any
    revision: str = ""


class Reader:
    """What there is to look at. ``view``: gives the view as it is by now; ``clock``: seconds since the epoch."""

    def __init__(
        self,
        view: Callable[[], View],
        clock: Callable[[], float],
        index: Index,
        states: States,
        store: Store,
        listings: Listings,
        version: str,
    ) -> None:
        self._clock = clock
        self.whose = "", ""  #: who asks: a list that is kept is his
        self._now, self._index, self._states, self._store, self._listings, self._version = view, index, states, store, listings, version

    # -- lists

    def networks(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("networks", filters.NETWORKS, self._index.keys("networks"), wanted, self._network)

    def nics(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("nics", filters.NICS, self._index.keys("nics"), wanted, self._nic)

    def nodes(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("nodes", filters.NODES, self._index.keys("nodes"), wanted, self._node)

    def reports(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("seen", filters.REPORTS, (), wanted, _report)

    def claims(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("claims", filters.CLAIMS, (), wanted, _claim)

    def imports(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("imports", (), sorted(self._now().all("imports")), wanted, _import)

    def authorities(self, wanted: Mapping[str, Any]) -> Answer:
        view = self._now()
        counting = holders.authorities(view, self._clock())
        found = [keys.authority(each.id) for each in counting]
        signs = counting[-1].id if counting else ""

        def item(view: View, row: Row) -> answers.AuthorityItem:
            return answers.AuthorityItem(_shown(view, row), row.value, row.value.id == signs)

        return self._list("authorities", (), found, wanted, item)

    def certificates(self, wanted: Mapping[str, Any]) -> Answer:
        counting = {each.id for each in holders.authorities(self._now(), self._clock())}

        def item(view: View, row: Row) -> answers.CertificateItem:
            return answers.CertificateItem(_shown(view, row), row.value, row.value.revoked, row.value.authority not in counting)

        return self._list("certificates", (), sorted(self._now().all("certificates")), wanted, item)

    def tokens(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("tokens", (), sorted(self._now().all("tokens")), wanted, _token)

    def prefixes(self, wanted: Mapping[str, Any]) -> Answer:
        found = self._now().all("prefixes")
        return self._list("prefixes", (), sorted(found, key=lambda key: int(found[key].number)), wanted, _prefix)

    def endpoints(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("endpoints", filters.ENDPOINTS, sorted(self._now().all("endpoints")), wanted, self._placement)

    def _placement(self, view: View, row: Row) -> answers.PlacementItem:
        return answers.PlacementItem(_shown(view, row), row.value, tuple(wrong.of(view, row.value, self._clock())))

    def names(self, wanted: Mapping[str, Any]) -> Answer:
        return self._list("names", filters.NAMES, sorted(self._now().all("names")), wanted, _name)

    def conflicts(self, wanted: Mapping[str, Any]) -> Answer:
        view = self._now()
        found = state.all_conflicts(view, self._states.members("conflict")) if "cursor" not in wanted else []
        rows = Rows([each.claim for each in found], [0] * len(found), found)
        return self._paged("conflicts", rows, wanted, lambda _view, row: answers.ConflictItem(row.value))

    def _list(
        self, kind: str, known: tuple[Filter, ...], everything: Iterable[str], wanted: Mapping[str, Any], item: Callable[[View, Row], Any]
    ) -> Answer:
        asked = {name: value for name, value in wanted.items() if name not in ("limit", "cursor")}
        view, rows = self._now(), NO_ROWS
        if "cursor" not in wanted:
            if kind == "seen":
                everything = sorted(view.all("seen"))
            elif kind == "claims":
                everything = [*sorted(view.all("addresses")), *sorted(view.all("macs"))]
            get = view.get if kind == "claims" else view.all(kind).get
            found = chosen(known, Sight(view, self._states), everything, asked, get)
            rows = Rows(found, *view.columns(found))
        return self._paged(f"{kind} {sorted(asked.items())}", rows, wanted, item)

    def _paged(self, what: str, rows: Rows, wanted: Mapping[str, Any], item: Callable[[View, Row], Any]) -> Answer:
        view, limit = self._now(), wanted.get("limit", USUAL)
        if "cursor" in wanted:
            part = self._listings.more(what, wanted["cursor"], limit)
        else:
            part = self._listings.first(what, f"{view.epoch}:{view.revision}", rows, limit, self.whose)
        page = answers.Page(part.revision, tuple(item(view, row) for row in part.rows), part.cursor)
        return Answer(write(page), part.revision)

    # -- objects

    def network(self, uuid: str) -> Answer:
        return self._one("networks", uuid, "network", self._network)

    def nic(self, uuid: str) -> Answer:
        return self._one("nics", uuid, "NIC", self._nic)

    def node(self, uuid: str) -> Answer:
        return self._one("nodes", uuid, "node", self._node)

    def settings(self) -> Answer:
        view = self._now()
        shown = view.shown_revision(keys.SETTINGS)
        return Answer({"revision": shown, "settings": write(view.settings)}, shown)

    def underlay(self, _wanted: Mapping[str, Any]) -> Answer:
        """Give the underlay, and how it is used. Raises Refused where there is none."""
        view, now = self._now(), self._clock()
        there, given, shown = view.underlay, len(view.all("prefixes")), view.shown_revision(keys.UNDERLAY)
        if there is None:
            raise Refused("missing", "there is no underlay", command="netcommon registry underlay init PREFIX")
        without = tuple(islice(underlay.without(view), USUAL))
        placements: list[Placement] = list(view.all("endpoints").values())
        zone: Zone = view.get(keys.zone(there.zone)) or Zone()
        problems = (problem for each in placements for problem in wrong.of(view, each, now))
        item = answers.UnderlayItem(
            shown,
            there,
            given,
            max(there.most - given, 0),
            without,
            sum(len(each.endpoints) for each in placements),
            len(view.all("names")),
            zone.generation,
            tuple(islice(chain(self._withheld(view, without), healing.strangers(view), wrong.of_zones(view), problems), USUAL)),
        )
        return Answer(write(item), shown)

    def _withheld(self, view: View, without: tuple[str, ...]) -> tuple[str, ...]:
        """Say why no /64 is given, where nodes wait for one."""
        why = healing.withheld(view) if without else ""
        return (why,) if why else ()

    def _one(self, kind: str, uuid: str, what: str, item: Callable[[View, Row], Any]) -> Answer:
        view, key = self._now(), f"{kind}/{uuid}"
        value = view.get(key)
        if value is None or value.uuid != uuid:
            raise Refused("missing", f"there is no {what} {uuid!a:.80}")
        return Answer(write(item(view, Row(key, view.at(key), value))), view.shown_revision(key))

    def _network(self, view: View, row: Row) -> answers.NetworkItem:
        network: Network = row.value
        return answers.NetworkItem(_shown(view, row), network, len(view.members("network", network.uuid)))

    def _nic(self, view: View, row: Row) -> answers.NicItem:
        nic: Nic = row.value
        return answers.NicItem(_shown(view, row), nic, state.shown(view, nic), nic.label)

    def _node(self, view: View, row: Row) -> Any:
        """Give a node, with what it has said of the underlay, if it has."""
        node: Node = row.value
        alive, gone, said = view.alive(node.uuid), view.gone(node.uuid), view.reports(node.uuid)
        since = alive.since if alive else gone.since if gone else 0.0
        nics = len(view.members("on", node.uuid))
        missing, reports = state.missing_tags(view, node.uuid), view.shown_revision(keys.reports(node.uuid))
        about, life = (said.about, said.incarnation if said.epoch == view.epoch else "") if said else (About(), "")
        item = answers.NodeItem(
            _shown(view, row), node, alive is not None, since, said.time if said else 0.0, reports, nics, missing, about, life
        )
        confirmed: Confirmed | None = view.get(keys.confirmed(node.uuid))
        if confirmed is None or confirmed.epoch != view.epoch:
            return item  # what it has said before a restore it is to say again
        return {**write(item), "underlay": write(confirmed.there)}

    # -- search

    def find(self, wanted: Mapping[str, Any]) -> Answer:
        """Find by any part of a name, MAC, address or UUID; what is not given out by why it is reserved, too."""
        view, limit = self._now(), wanted.get("limit", USUAL)
        found: list[answers.FoundItem] = []
        for kind, key, word in self._index.find(wanted["text"]):
            if len(found) == limit:
                break
            value = view.get(key)
            if isinstance(value, Claim):
                found.append(answers.FoundItem(kind, value.last, _kept(view, key, value), word if word in key else key.rpartition("/")[2]))
            elif value is not None:
                found.append(answers.FoundItem(kind, value.uuid, getattr(value, "label", value.name), word))
        shown = f"{view.epoch}:{view.revision}"
        return Answer(write(answers.Page(shown, tuple(found))), shown)

    # -- history

    def history(self, wanted: Mapping[str, Any]) -> Answer:
        """Give what was done, the oldest first. A part may be shorter than was asked for, and another one follow all the same."""
        view, limit = self._now(), wanted.get("limit", USUAL)
        since = wanted.get("since") or 0.0
        # where an entry is kept says its id, which may be as much older than it; pages go by that alone
        first = wanted.get("placed") or max(since - BACK / 1000, 0.0)
        after, at = keys.history(new_id(first, 0)) if first else "", 0
        if "cursor" in wanted:
            shown, _, rest = wanted["cursor"].partition("~")
            after = keys.history(rest)
            if shown.rpartition(":")[0] == view.epoch and not shown.rpartition(":")[2].isdecimal():
                raise Invalid("cursor", wanted["cursor"], 'what "next" of the part before said')
            at = revision(view.epoch, shown)
        items: list[answers.HistoryItem] = []
        hints, scanned, size, more = _hints(wanted), 0, 0, True
        while more and scanned < SCANNED:  # in parts: an entry may have a megabyte
            try:
                listing = self._store.list("history/", after, AT_ONCE, at)
            except Compacted:
                raise Refused(
                    "compacted", "the history is not remembered as it was then: list anew, without a cursor", field="cursor"
                ) from None
            except (Ahead, ValueError):
                raise Invalid("cursor", wanted["cursor"], 'what "next" of the part before said') from None
            at, more = listing.revision, listing.more
            for item in listing.items:
                if len(items) == limit or size > LARGEST:
                    scanned, more = SCANNED, True
                    break
                after, scanned = item.key, scanned + 1
                if all(hint in item.value for hint in hints):
                    size += len(item.value)
                    entry = _entry(item.value)
                    if entry is not None and entry.time >= since and _meant(entry, wanted):
                        items.append(answers.HistoryItem(f"{view.epoch}:{item.revision}", entry))
        items.sort(key=lambda item: item.entry.number)  # their ids, by which they are stored, know milliseconds
        shown = f"{view.epoch}:{at}"
        return Answer(write(answers.Page(shown, tuple(items), f"{shown}~{after.partition('/')[2]}" if more else "")), shown)

    # -- the registry as a whole

    def abilities(self) -> Answer:
        view = self._now()
        shown = f"{view.epoch}:{view.revision}"
        actions = tuple(name for name in ACTIONS if ROLES[name] != LEADER)
        return Answer(write(answers.Abilities("netcommon registry", self._version, view.epoch, shown, ABILITIES, actions)), shown)

    def status(self, leader: bool, streams: int, held: int = 0) -> Answer:
        view = self._now()
        shown = f"{view.epoch}:{view.revision}"
        status = answers.Status(
            version=self._version,
            epoch=view.epoch,
            revision=shown,
            leader=leader,
            networks=len(view.all("networks")),
            nics=len(view.all("nics")),
            nodes=len(view.all("nodes")),
            alive=len(view.all("alive")),
            conflicts=len(state.all_conflicts(view, self._states.members("conflict"))),
            streams=streams,
            history=view.ledger.kept,
            unreadable=tuple(sorted(view.unreadable)[:USUAL]),
            waiting=view.unheard(),
            held=held,
            store="etcd" if isinstance(self._store, EtcdStore) else "file",
        )
        return Answer(write(status), shown)


def _prefix(view: View, row: Row) -> answers.PrefixItem:
    uuid, prefix = row.key.partition("/")[2], row.value
    node = view.node(uuid)
    return answers.PrefixItem(_shown(view, row), uuid, node.name if node is not None else "", prefix.itself, prefix)


def _name(view: View, row: Row) -> answers.NameItem:
    return answers.NameItem(_shown(view, row), row.key.split("/")[2], row.value)


def _report(view: View, row: Row) -> Any:
    """Give a report, with what speaks for the NIC's guest, if anything does."""
    node = row.key.split("/")[1]
    item = answers.ReportItem(_shown(view, row), node, row.value)
    speakers: Speakers | None = view.get(keys.speakers(node))
    kinds = next((each.kinds for each in (speakers.nics if speakers is not None else ()) if each.nic == row.value.nic), ())
    return {**write(item), "report": {**write(row.value), "endpoints": list(kinds)}} if kinds else item


def _claim(view: View, row: Row) -> answers.ClaimItem:
    return answers.ClaimItem(_shown(view, row), row.key, row.value.standing, row.value)


def _token(view: View, row: Row) -> answers.TokenItem:
    fields = {name: value for name, value in row.value._asdict().items() if name != "proof"}
    return answers.TokenItem(_shown(view, row), **fields)


def _kept(view: View, key: str, claim: Claim) -> str:
    """Say why a MAC or an address that no NIC wants is not given out."""
    if claim.reserved:
        return f"reserved: {claim.reserved}"
    names = [node.name if (node := view.node(where)) else where for _nic, where in use.users(view, key)]
    if names:
        return f"in use still, as {', '.join(sorted(set(names)))} reports"
    return f"in quarantine until {local_time(claim.until)}" if claim.until else "in quarantine"


def _import(view: View, row: Row) -> answers.ImportItem:
    return answers.ImportItem(_shown(view, row), row.key.partition("/")[2], row.value)


def _shown(view: View, row: Row) -> str:
    return f"{view.epoch}:{row.revision}"


def _hints(wanted: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Give what stands in each entry of the history that fits the filters: most others need not be decoded."""
    return tuple(json.dumps(wanted[name])[1:-1].encode("ascii") for name in ("target", "action", "role") if name in wanted)


def _entry(value: bytes) -> Entry | None:
    """Give an entry of the history; None for one that cannot be read: nothing of it counts, and its number is missing."""
    try:
        return load(Entry, value)
    except Invalid:
        return None


def _meant(entry: Entry, wanted: Mapping[str, Any]) -> bool:
    """Tell whether an entry of the history fits the filters."""
    target = wanted.get("target")
    if target is not None and entry.target.partition("/")[2] != target:
        touched = any(change.key.rpartition("/")[2] == target for change in entry.changes)
        if not touched:
            return False
    fits = (("action", entry.action), ("role", entry.who.role), ("by", entry.who.name))
    return all(wanted.get(name) in (None, value) for name, value in fits)
