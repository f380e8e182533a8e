"""Take in what nodes report of their NICs, of themselves and of their underlay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from netregistry.draft import Commit
from netregistry.model import keys, kinds
from netregistry.model.codec import Invalid, dump, read
from netregistry.model.nic import Report
from netregistry.model.node import About, Reports
from netregistry.model.underlay import Kinds, Said
from netregistry.refusal import Refused
from netregistry.request import revision
from netregistry.stores.base import LARGEST, LONGEST_VALUE, Delete, Expect, Put, commit_size
from netregistry.underlay import following, sight
from netregistry.view import LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.model.history import Identity
    from netregistry.view import View

SETTLING = 10.0  #: seconds for a migration's source to tell that its guest is gone, after the target has told that it runs: the leader's
MOST_NICS = 4096  #: that one node reports, and that it is the master of: what it says is kept, in memory too
HEAVIEST = 8 << 20  #: bytes of those of its reports that are not light (netregistry.view): one alone may have half a million
LONGEST_ABOUT = 256 << 10  #: bytes


class Reporting(NamedTuple):
    """What a node reports at once. ``after``: EPOCH:REVISION of its reports before these; EPOCH:0 for its first."""

    after: kinds.Name
    nics: Annotated[tuple[Report, ...], kinds.Fifty] = ()
    removed: Annotated[tuple[kinds.Uuid, ...], kinds.Fifty] = ()  #: NICs of which it has no report any more
    about: About | None = None
    underlay: Said | None = None  #: what it has of the underlay


class Spoken(NamedTuple):
    """Hold what speaks on the node's side for a NIC's guest: a field of the NIC's report that is no part of what is kept of that."""

    endpoints: Kinds = ()


def reported(view: View, request: str, who: Identity, body: Any, now: float) -> Commit:
    """Give the commit of a node's reports. Raises Refused, Invalid."""
    body, spoken = _spoken(body)
    wanted = read(Reporting, body)
    node, key = view.node(who.name), keys.reports(who.name)
    if who.role == "node" and node is None and wanted.underlay is not None and wanted.underlay.prefix:
        return following.strange(view, who, wanted.underlay, revision(view.epoch, wanted.after), now)
    if who.role != "node" or node is None:
        raise Refused("forbidden", f"{who.role} {who.name!a:.80} is no node that has joined", master="node")
    if wanted.about is not None and len(dump(wanted.about)) > LONGEST_ABOUT:
        raise Refused("too-large", f"what there is on the node has more than {LONGEST_ABOUT} bytes")
    names = [report.nic for report in wanted.nics] + list(wanted.removed)
    if len(set(names)) != len(names):
        raise Invalid("nics", "a NIC twice", "each NIC once, reported or removed")
    added = sum(view.get(keys.seen(who.name, report.nic)) is None for report in wanted.nics)
    if added and (there := len(view.members("on", who.name)) + added) > MOST_NICS:
        raise Refused("too-large", f"{there} NICs would be reported by this node: {MOST_NICS} are at most", count=there)
    after, latest = revision(view.epoch, wanted.after), view.reports(who.name)
    if after != view.at(key):
        shown = view.shown_revision(key)
        raise Refused("stale", f"the node's latest reports are of {shown}, not {wanted.after}", revision=shown)
    about = wanted.about if wanted.about is not None else latest.about if latest else About()
    alive = view.alive(node.uuid)
    made = Reports(request, view.epoch, now, about, alive.incarnation if alive is not None else "")
    changes: list[Put | Delete] = [Put(key, dump(made))]
    noted = [Put(keys.seen(who.name, report.nic), dump(_noted(view, who.name, report, now))) for report in wanted.nics]
    _weighed(view, who.name, noted, wanted.removed)
    changes += noted
    changes += [Delete(keys.seen(who.name, nic)) for nic in wanted.removed]
    tests = [Expect(key, after), Expect(keys.node(node.uuid), view.at(keys.node(node.uuid)))]
    changes += following.said(view, node.uuid, wanted.nics, wanted.removed, spoken)
    reports = {**{report.nic: report for report in wanted.nics}, **dict.fromkeys(wanted.removed)}
    if keys.LEDGER not in view.unreadable and any(_news(view, who.name, nic, report) for nic, report in reports.items()):
        # what was planned without these reports is planned anew: it may give out what a guest has
        tests.append(Expect(keys.LEDGER, view.at(keys.LEDGER)))
        changes.append(Put(keys.LEDGER, dump(view.ledger)))
    if view.underlay is None and keys.UNDERLAY not in view.unreadable:
        changes += following.kept(view, node.uuid, wanted.underlay)
    commit = Commit(tuple(tests), tuple(changes))
    if view.underlay is not None:
        commit = following.followed(view, request, who, now, commit, reports, wanted.underlay)
    if any(isinstance(each, Put) and len(each.value) > LONGEST_VALUE for each in commit.changes):
        detail = f"what speaks, or has spoken, for guests on this node would have more than {LONGEST_VALUE} bytes"
        raise Refused("too-large", f"{detail}: fewer kinds of endpoints, or fewer guests")
    if commit_size(*commit) > LARGEST:
        raise Refused("too-large", f"the reports would have more than {LARGEST} bytes: report fewer NICs at once")
    return commit


def _spoken(body: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Take from reports of NICs what speaks for their guests. Raises Invalid."""
    nics = body.get("nics") if isinstance(body, dict) else None
    if not isinstance(nics, list) or not any(isinstance(each, dict) and "endpoints" in each for each in nics):
        return body, {}
    found: dict[str, tuple[str, ...]] = {}
    rest = []
    for place, each in enumerate(nics):
        if not isinstance(each, dict) or "endpoints" not in each:
            rest.append(each)
            continue
        rest.append({name: value for name, value in each.items() if name != "endpoints"})
        spoken = read(Spoken, {"endpoints": each["endpoints"]}, f"nics[{place}]")
        if isinstance(each.get("nic"), str):
            found[each["nic"].lower()] = spoken.endpoints
    return {**body, "nics": rest}, found


def _weighed(view: View, node: str, noted: list[Put], removed: Iterable[str]) -> None:
    """Raise Refused where what a node says of its NICs would be too much, in bytes, and more than before."""
    before = sum(view.heavy(each.key) for each in noted) + sum(view.heavy(keys.seen(node, nic)) for nic in removed)
    grown = sum(len(each.value) for each in noted if len(each.value) > LIGHT) - before
    if grown > 0 and (there := view.weight(node) + grown) > HEAVIEST:
        detail = f"reports of more than {LIGHT} bytes each would have {there} bytes together: {HEAVIEST} are at most"
        raise Refused("too-large", detail, count=there)


def _noted(view: View, node: str, report: Report, now: float) -> Report:
    """Give a report with what the registry alone says of it."""
    before: Report | None = view.get(keys.seen(node, report.nic))
    there = before is not None and before.state != "stopped"
    came = 0.0 if report.state == "stopped" else before.came if there and before is not None else now
    came_from, settles = _arrived(view, node, report, now)
    return _moved(view, node, report)._replace(came=came, came_from=came_from, settles=settles)


def _arrived(view: View, node: str, report: Report, now: float) -> tuple[str, float]:
    """Give the node from which a guest came that runs here, and until when about that one may say that it has it; "" and 0 for none."""
    before: Report | None = view.get(keys.seen(node, report.nic))
    if report.state != "running":
        return "", 0.0
    if before is not None and before.state == "running":
        return before.came_from, before.settles  # until the leader takes it away: this service's clock may be another one
    nic, said = view.nic(report.nic), view.get(keys.confirmed(node))
    announced = before is not None and before.state == "incoming"
    announced = announced or (nic is not None and said is not None and nic.instance in said.there.arriving)
    if announced or report.mode == "routed":  # of a routed NIC Ganeti says nothing before its guest runs there
        cluster = nic.cluster if nic is not None else ""
        running = (where for where, other, _at in view.seen(report.nic) if where != node and other.state == "running" and view.heard(where))
        others = [where for where in running if not sight.foreign(view, cluster, where)]
        if len(others) == 1 and not sight.foreign(view, cluster, node):
            return others[0], now + SETTLING
    return "", 0.0


def _moved(view: View, node: str, report: Report) -> Report:
    """Note on a report of a NIC's master on which other node its guest was, or came to, when it stopped here; none where several say so.

    It stays until the report goes: a node that says so afterwards could say it of any guest that is off.
    """
    before: Report | None = view.get(keys.seen(node, report.nic))
    nic = view.nic(report.nic)
    moved_to = before.moved_to if before is not None else ""
    stops = report.state == "stopped" and before is not None and before.state != "stopped"
    if stops and nic is not None and nic.master == f"node:{node}":
        others = [where for where, other, _at in view.seen(report.nic) if where != node and other.state != "stopped"]
        moved_to = others[0] if len(others) == 1 else ""
    return report._replace(moved_to=moved_to)


def _news(view: View, node: str, uuid: str, report: Report | None) -> bool:
    """Tell whether a report names another MAC, address or prefix than the one before, of those that its NIC does not want."""
    nic, before = view.nic(uuid), view.get(keys.seen(node, uuid))
    now, then = ((*each.uses, *each.whole) if each is not None else () for each in (report, before))
    said = {*now} ^ {*then}
    return bool(said.difference((nic.mac, *nic.all_addresses)) if nic is not None else said)
