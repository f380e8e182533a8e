"""Gather what nodes say of an instance: from the reports of its NICs, of nodes that are alive and of others. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.steady import past
from netregistry.underlay.saga import Guest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.draft import Draft
    from netregistry.model.nic import Report
    from netregistry.model.node import Alive, Node, Reports
    from netregistry.model.underlay import Confirmed, Placement, Speakers
    from netregistry.view import View

STATES = ("running", "incoming", "stopped")  #: the state of a node by that of the NICs there, the strongest first


def heard(draft: Draft, node: str) -> bool:
    """Tell whether a node is alive, and has said in this life what it has said: netregistry.view.View.heard."""
    alive: Alive | None = draft.get(keys.alive(node))
    said: Reports | None = draft.get(keys.reports(node))
    return alive is not None and (said is None or said.incarnation in ("", alive.incarnation))


def guest(draft: Draft, cluster: str, instance: str) -> Guest:
    """Give what nodes say of an instance."""
    on = {node: reports for node, reports in _reported(draft, cluster, instance).items() if not foreign(draft, cluster, node)}
    found: dict[str, list[tuple[float, str]]] = {each: [] for each in (*STATES, "unknown")}
    came: dict[str, str] = {}
    begun: dict[str, float] = {}
    for node, reports in on.items():
        state = _state(reports)
        having = [report for report in reports if report.state == state]
        since = max(report.came or report.since for report in having)
        begun[node] = max(since, _heard_since(draft, node))
        found[state if heard(draft, node) else "unknown"].append((past(since, draft.now), node))
        if known := next((report.came_from for report in having if report.came_from), ""):
            came[node] = known
    here = {node for state in ("running", "incoming") for _since, node in found[state]}
    coming = [node for node in _arriving(draft, cluster, instance) if node not in here]
    arriving = tuple(node for node in coming if heard(draft, node))
    for node in coming:  # what it says of NICs is of before
        found = {state: [each for each in of if each[1] != node] for state, of in found.items()}
        found["incoming" if node in arriving else "unknown"].append((draft.now, node))
        on.pop(node, None)
        begun.pop(node, None)
    said = {node: _kinds(draft, node, reports) for node, reports in on.items()}
    ordered = {state: tuple(node for _since, node in sorted(each)) for state, each in found.items()}
    return Guest(ordered["running"], ordered["incoming"], ordered["stopped"], ordered["unknown"], came, said, arriving, begun)


def _heard_since(draft: Draft, node: str) -> float:
    """Give since when a node is heard: its lease began then; now, where it has said nothing yet to a registry that was restored.

    What it has said before may be over, and it says so in a moment.
    """
    alive: Alive | None = draft.get(keys.alive(node))
    said: Reports | None = draft.get(keys.reports(node))
    if alive is None or said is None or said.epoch != draft.view.epoch:
        return draft.now
    return alive.since


def _arriving(draft: Draft, cluster: str, instance: str) -> list[str]:
    """Give the nodes that say by Ganeti's files that an instance comes there, since this registry is what it is.

    One that has no NIC any more comes nowhere: it was deleted, and a node that is dead never says that it does not come.
    """
    found: list[str] = []
    if not draft.members("instance", cluster, instance):
        return found
    for key in draft.members("arriving", instance):
        said: Confirmed = draft.get(key)
        there = draft.node(node := key.partition("/")[2])
        if there is not None and said.epoch == draft.view.epoch and _is_meant(draft, cluster, instance, there):
            found.append(node)
    return sorted(found)


def _is_meant(draft: Draft, cluster: str, instance: str, node: Node) -> bool:
    """Tell whether a node that names an instance by Ganeti's files means the one of a cluster: it says no more than the name.

    Of a node's own cluster it is. Where none is known of the node it is that of the one cluster which has such an instance.
    """
    if node.cluster == cluster or not cluster:
        return node.cluster == cluster
    if node.cluster:
        return not foreign(draft, cluster, node.uuid)
    clusters = {"", *(key.partition("/")[2] for key in draft.view.all("imports")), *(each for each, _instance in called(draft, instance))}
    return not any(draft.members("instance", each, instance) for each in clusters - {cluster})


def concerned(known: Draft | View, node: str, before: Confirmed | None, after: Confirmed) -> list[tuple[str, str]]:
    """Give the instances placed on a node of which a step may be due by what it says now of its addresses; of an epoch's first word, all.

    Of the others it says what it has said before; one that is leaving may go by the generation alone.
    """
    anew = before is None or before.epoch != after.epoch
    changed = {*after.there.addresses} ^ {*(before.there.addresses if before is not None else ())}
    placed: Iterable[Placement] = map(known.get, known.members("placed", node))
    meant = (one for one in placed if anew or any(each.address in changed or each.state == "leaving" for each in one.endpoints))
    return [(one.cluster, one.instance) for one in meant]


def called(known: Draft | View, instance: str) -> list[tuple[str, str]]:
    """Give the instances of all clusters that have a name, and endpoints: clusters and names."""
    placements: Iterable[Placement] = map(known.get, known.members("called", instance.lower()))
    found = [(each.cluster, each.instance) for each in placements if each.instance == instance]
    return [each for each in found if known.members("instance", *each)]


def foreign(view: Draft | View, cluster: str, node: str) -> bool:
    """Tell whether a node is one of another Ganeti cluster than an instance is of: that comes to its own cluster's nodes alone.

    A cluster that is being renamed is imported under both names (netregistry.rules.renaming).
    """
    there = view.node(node)
    if not cluster or there is None or there.cluster in ("", cluster):
        return False
    now, of = view.get(keys.imported(cluster)), view.get(keys.imported(there.cluster))
    return now is None or of is None or now.uuid != of.uuid


def strangers(draft: Draft, cluster: str, instance: str) -> dict[str, str]:
    """Give what nodes of other clusters say of an instance: the state, by node."""
    found = {node: reports for node, reports in _reported(draft, cluster, instance).items() if foreign(draft, cluster, node)}
    return {node: _state(reports) for node, reports in found.items() if heard(draft, node)}


def _reported(draft: Draft, cluster: str, instance: str) -> dict[str, list[Report]]:
    """Give the reports of an instance's NICs, by node. What one that was forgotten has reported counts no more."""
    on: dict[str, list[Report]] = {}
    for key in draft.members("instance", cluster, instance):
        for seen in draft.members("seen", key.partition("/")[2]):
            node = seen.split("/")[1]
            if draft.node(node) is not None:
                on.setdefault(node, []).append(draft.get(seen))
    return on


def _state(reports: list[Report]) -> str:
    return next(each for each in STATES if any(report.state == each for report in reports))


def _kinds(draft: Draft, node: str, reports: list[Report]) -> tuple[str, ...]:
    """Give what speaks for an instance on a node, by what that has said with the reports of its NICs."""
    said = draft.derived(_by_nic, keys.speakers(node))
    return tuple(dict.fromkeys(kind for nic in sorted(report.nic for report in reports) for kind in said.get(nic, ())))


def _by_nic(_key: str, said: Speakers | None) -> dict[str, tuple[str, ...]]:
    return {each.nic: each.kinds for each in said.nics} if said is not None else {}
