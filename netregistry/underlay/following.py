"""Follow what a node reports: what speaks for its guests, which addresses it has, and the steps that come of both, in the same commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netregistry.draft import Commit, Draft
from netregistry.model import keys
from netregistry.model.codec import Invalid, dump, load
from netregistry.model.nic import Report
from netregistry.model.underlay import Confirmed, Speaker, Speakers, There
from netregistry.stores.base import Delete, Put, commit_size
from netregistry.underlay.placing import Placing, healed, instances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netregistry.model.history import Identity
    from netregistry.model.underlay import NodePrefix
    from netregistry.view import View


def said(
    view: View, node: str, nics: Iterable[Report], removed: Iterable[str], spoken: Mapping[str, tuple[str, ...]]
) -> list[Put | Delete]:
    """Give what is to be written of what speaks for a node's guests; nothing where nothing of it has changed."""
    key = keys.speakers(node)
    before: Speakers | None = view.get(key)
    if before is None and not any(spoken.values()):
        return []
    known = {each.nic: each for each in (before.nics if before is not None else ()) if view.get(keys.seen(node, each.nic)) is not None}
    for report in nics:
        known.pop(report.nic, None)
        if kinds := spoken.get(report.nic, ()):
            known[report.nic] = Speaker(report.nic, kinds)
    for nic in removed:
        known.pop(nic, None)
    after = Speakers(tuple(each for _nic, each in sorted(known.items())))
    if before == after:
        return []
    return [Put(key, dump(after)) if after.nics else Delete(key)]


def followed(
    view: View, request: str, who: Identity, now: float, commit: Commit, reports: Mapping[str, Report | None], there: There | None
) -> Commit:
    """Give the commit of a node's reports with the steps that come of them, as many as have room; the leader takes the others.

    Raises Invalid where the node says that it has done what it was not told yet.
    """
    draft = Draft(view, request, who, now)
    for change in commit.changes:
        _laid(draft, change)
    speaks = draft.get(keys.speakers(who.name)) is not None
    concerned = [one for one in instances(draft, reports) if speaks or draft.get(keys.placement(*one)) is not None]
    if there is not None:
        concerned += _confirmed(draft, who.name, there)
    placing = Placing(draft, len(commit.tests), len(commit.changes), commit_size(*commit))
    for cluster, instance in dict.fromkeys(concerned):
        if not placing.advance(cluster, instance):
            break
    steps = draft.bare()
    return Commit((*commit.tests, *steps.tests), (*commit.changes, *steps.changes))


def _laid(draft: Draft, change: Put | Delete) -> None:
    made: Any = keys.TYPES[keys.kind(change.key)]
    draft.lay(change.key, load(made, change.value) if isinstance(change, Put) else None)


def _confirmed(draft: Draft, node: str, there: There) -> list[tuple[str, str]]:
    """Take in which addresses are there on a node; give the instances that may be concerned. Raises Invalid."""
    key, of = keys.confirmed(node), keys.prefix(node)
    prefix: NodePrefix | None = draft.get(of)
    if prefix is None or key in draft.view.unreadable:
        return []
    before: Confirmed | None = draft.get(key)
    own = tuple(each for each in there.addresses if ":" in each and prefix.number_of(each) >= 0)
    if before is None or before.epoch != draft.view.epoch:
        after = healed(prefix, there.generation, own)
        if after != prefix:
            draft.expect(of)
            draft.put(of, after)
    elif there.generation > prefix.generation:
        raise Invalid("underlay.generation", there.generation, f"at most {prefix.generation}, of the latest that the node was told")
    now = Confirmed(draft.view.epoch, there._replace(addresses=own))
    if now == before:
        return []
    draft.put(key, now)
    placed = (draft.get(each) for each in draft.members("placed", node))
    itself = draft.node(node)
    come = {*now.there.arriving} ^ {*(before.there.arriving if before is not None else ())}
    coming = [(itself.cluster, instance) for instance in sorted(come)] if itself is not None else []
    return [*((each.cluster, each.instance) for each in placed), *coming]
