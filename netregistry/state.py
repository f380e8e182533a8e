"""Tell the state of a NIC from what is wanted and what nodes have seen: pure, and stored nowhere."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Literal, NamedTuple

from netregistry import use
from netregistry.model import keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netregistry.model.nic import Nic, Report
    from netregistry.view import View

State = Literal["provisioning", "running", "stopped", "moving", "conflict", "unknown", "pending restart"]

#: What cannot be put on a NIC that runs. What else waits for a restart its node says: tags that may be older than what the NIC has.
RESTART = ("mac", "ip", "mode", "link", "vlan", "model")
#: Of these "" means that there is none: a node always says it, a Ganeti cluster too. Of the others it means that nobody says anything.
SAID_EMPTY = ("ip", "vlan")


#: NICs that a conflict names of those that do not want what they have: a node may say it of thousands.
MOST_NAMED = 100


class Conflict(NamedTuple):
    """More than one NIC wants one MAC or address, or is reported with it."""

    claim: str  #: its key
    holder: str
    contenders: tuple[str, ...]
    reported: tuple[str, ...] = ()  #: those that do not want it, and have it on a live node: a hundred of them at most
    more: int = 0  #: how many of these are not named


class Shown(NamedTuple):
    """What people see of a NIC beside what is wanted."""

    state: State
    nodes: tuple[str, ...] = ()  #: UUIDs of those where it is, as far as is known; the latest last
    since: float = 0.0  #: seconds since the epoch; of ``unknown``: since when its node is
    pending: tuple[str, ...] = ()  #: fields that need a restart
    conflicts: tuple[Conflict, ...] = ()
    refused: str = ""  #: why its node could not do what is wanted
    applied: str = ""  #: EPOCH:REVISION of what is in force there
    drift: tuple[str, ...] = ()


def shown(view: View, nic: Nic) -> Shown:
    """Tell the state of a wanted NIC."""
    return _state(view, nic, [(node, report) for node, report, _revision in view.seen(nic.uuid) if view.node(node) is not None])


def _state(view: View, nic: Nic, reports: list[tuple[str, Report]]) -> Shown:
    live = [(node, report) for node, report in reports if view.heard(node)]
    running = [(node, report) for node, report in live if report.state == "running"]
    arriving = [(node, report) for node, report in live if report.state == "incoming"]
    clashes = tuple(conflicts(view, nic))
    there = running + arriving
    if there:
        nodes, latest = tuple(node for node, _report in there), there[-1][1]
        pending = _pending(nic, running[-1][1]) if running else ()
        state: State = "running"
        twice = len(running) > 1 and not _migrated(running)
        if twice or clashes:
            state = "conflict"
        elif arriving or len(running) > 1:
            state = "moving"
        elif pending:
            state = "pending restart"
        return Shown(state, nodes, latest.since, pending, clashes, latest.refused, latest.applied, latest.drift)
    if not reports:
        return Shown("conflict" if clashes else "provisioning", (), nic.made, (), clashes)
    node, latest = reports[-1]
    if not view.heard(node):
        gone, said = view.gone(node), view.reports(node)
        since = gone.since if gone else said.time if said else 0.0
        return Shown("unknown", (node,), since, (), clashes, latest.refused, latest.applied)
    return Shown("conflict" if clashes else "stopped", (node,), latest.since, (), clashes, latest.refused, latest.applied)


def _migrated(running: list[tuple[str, Report]]) -> bool:
    """Tell whether of two nodes on which a NIC runs one is where its guest came from just now, which has not told yet that it is gone."""
    (one, first), (other, second), *more = running
    return not more and (first.came_from == other or second.came_from == one)


def _pending(nic: Nic, report: Report) -> tuple[str, ...]:
    """Give the fields in which a NIC that runs is not as it is wanted."""
    ganeti = nic.master.startswith("ganeti:")
    found = []
    for field in RESTART:
        wanted, there = getattr(nic, field), getattr(report, field)
        said = wanted and there if field not in SAID_EMPTY else wanted or ganeti
        if said and wanted != there:
            found.append(field)
    return (*found, *(field for field in report.pending if field not in found))


def conflicts(view: View, nic: Nic) -> Iterator[Conflict]:
    """Give what of a NIC others want or have too, and what it has that others want."""
    for key in (*keys.claims(nic), *dict.fromkeys(use.beyond(view, nic))):
        conflict, concerned = _conflict(view, key)
        if conflict is not None and nic.uuid in concerned:
            yield conflict


def all_conflicts(view: View, shown: Iterable[str]) -> list[Conflict]:
    """Give every MAC and address that more than one NIC wants or has, by key. ``shown``: the keys of the NICs in the state "conflict"."""
    found = {key: _conflict(view, key)[0] for key in view.members("contended")}
    for key in shown:
        if (nic := view.get(key)) is not None:
            found |= {conflict.claim: conflict for conflict in conflicts(view, nic)}
    return [conflict for _key, conflict in sorted(found.items()) if conflict is not None]


def _conflict(view: View, key: str) -> tuple[Conflict | None, frozenset[str]]:
    """Give the conflict about a claim, and all NICs that it concerns; None where there is none.

    It is worked out once for each state of the registry: each of thousands of NICs that are reported with one address would ask for it.
    """
    known = view.worked_out.get(("conflict", key))
    if known is None:
        known = view.worked_out["conflict", key] = _worked_out(view, key)
    found: tuple[Conflict | None, frozenset[str]] = known
    return found


def _worked_out(view: View, key: str) -> tuple[Conflict | None, frozenset[str]]:
    claim = view.claim(key)
    if claim is None or not claim.holder:
        return None, frozenset()
    wanting = frozenset((claim.holder, *claim.contenders))
    having = {uuid for uuid, node in use.users(view, key) if uuid not in wanting and view.heard(node)}
    if not claim.contenders and not having:
        return None, frozenset()
    named = nsmallest(MOST_NAMED, having)
    return Conflict(key, claim.holder, claim.contenders, tuple(named), len(having) - len(named)), wanting | having


def missing_tags(view: View, node: str) -> tuple[str, ...]:
    """Give the tags of networks that a node should provide and does not."""
    wanted, said = view.node(node), view.reports(node)
    provided = said.about.provided if said else ()
    return tuple(tag for tag in (wanted.provides if wanted else ()) if tag not in provided)
