"""Follow what a node reports: what speaks for its guests, which addresses it has, and the steps that come of both, in the same commit."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from netregistry.draft import Commit, Draft
from netregistry.model import keys
from netregistry.model.codec import Invalid, dump, load
from netregistry.model.nic import Report
from netregistry.model.underlay import Confirmed, Speaker, Speakers, Stranger, There
from netregistry.refusal import Refused
from netregistry.stores.base import Delete, Expect, Put, commit_size
from netregistry.underlay import healing, sight, told
from netregistry.underlay.placing import Placing, instances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netregistry.model.history import Identity
    from netregistry.model.underlay import NodePrefix, Said
    from netregistry.view import View

AT_ONCE = 500  #: instances that a node's word of its addresses concerns, and that are looked at with it; the leader looks at the others


def said(
    view: View, node: str, nics: Iterable[Report], removed: Iterable[str], spoken: Mapping[str, tuple[str, ...]]
) -> list[Put | Delete]:
    """Give what is to be written of what speaks for a node's guests; nothing where nothing of it has changed."""
    key = keys.speakers(node)
    before: Speakers | None = view.get(key)
    if key in view.unreadable:
        return []  # what it has said of its other NICs is nowhere else
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
    view: View, request: str, who: Identity, now: float, commit: Commit, reports: Mapping[str, Report | None], there: Said | None
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
    news = _news(draft, who.name, reports)
    placing = Placing(draft, len(commit.tests), len(commit.changes), commit_size(*commit))
    for cluster, instance in dict.fromkeys(concerned):
        if not placing.advance(cluster, instance, (cluster, instance) in news) and (cluster, instance) not in placing.failed:
            break
    steps = placing.commit()
    return Commit((*commit.tests, *steps.tests), (*commit.changes, *steps.changes))


def _news(draft: Draft, node: str, reports: Mapping[str, Report | None]) -> set[tuple[str, str]]:
    """Give the instances of which a node says something else than before: another state, also where it has said that in another life."""
    key = keys.reports(node)
    before, after = draft.view.get(key), draft.get(key)
    anew = before is None or before.incarnation != after.incarnation
    found = []
    for nic, report in reports.items():
        there: Report | None = draft.view.get(keys.seen(node, nic))
        if anew or (there.state if there is not None else "") != (report.state if report is not None else ""):
            found.append(nic)
    return set(instances(draft, found))


def _laid(draft: Draft, change: Put | Delete) -> None:
    made: Any = keys.TYPES[keys.kind(change.key)]
    draft.lay(change.key, load(made, change.value) if isinstance(change, Put) else None)


def kept(view: View, node: str, there: Said | None) -> list[Put | Delete]:
    """Give what is to be written of the prefix that a node has, where there is no underlay: it may be that of before a restore."""
    key = keys.confirmed(node)
    if there is None or not there.prefix or key in view.unreadable:
        return []
    before: Confirmed | None = view.get(key)
    had = before.had if before is not None and before.epoch == view.epoch else there.had
    return [Put(key, dump(Confirmed(view.epoch, There(*there[:3]), had)))]


def strange(view: View, who: Identity, said: Said, after: int, now: float) -> Commit:
    """Give the commit by which the /64 of a node that the registry does not know is nobody else's.

    ``after``: an epoch's, so it is this one that answers. Raises Refused: ``gone`` where the node is to have none any more, since it was
    forgotten in the epoch in which it was told of it, or the /64 is another node's by now.
    """
    draft, underlay, key = Draft(view, "", who, now), view.underlay, keys.stranger(who.name)
    if said.epoch == view.epoch:
        raise Refused("gone", f"node {who.name} was forgotten: {said.prefix} is not its own any more", node=who.name)
    if underlay is None or healing.taken(draft, underlay, who.name, said.prefix) is None:
        other = healing.owner(view, who.name, said.prefix)
        if other:
            raise Refused("gone", f"{said.prefix} is of node {other}", node=other)
        raise Refused("forbidden", f"node {who.name!a:.80} is no node that has joined", master="node")
    before = view.get(key)
    tests = (Expect(keys.node(who.name), 0), Expect(key, view.at(key)), Expect(keys.LEDGER, view.at(keys.LEDGER)))
    if key in view.unreadable or keys.LEDGER in view.unreadable:
        raise Refused("unavailable", f"what the registry holds at {key} cannot be read", key=key)
    if before is not None and before.prefix == said.prefix:
        return Commit(tests, (Put(key, dump(before)),))
    # of a node that was forgotten, and has said so first
    nobodys = [each for each, stranger in view.all("strangers").items() if stranger.prefix == said.prefix and each != key]
    taken = (Put(key, dump(Stranger(said.prefix, now))), Put(keys.LEDGER, dump(view.ledger)))
    return Commit((*tests, *(Expect(each, view.at(each)) for each in nobodys)), (*taken, *map(Delete, nobodys)))


def _confirmed(draft: Draft, node: str, there: Said) -> list[tuple[str, str]]:
    """Take in which addresses are there on a node; give the instances that may be concerned. Raises Invalid."""
    key, of = keys.confirmed(node), keys.prefix(node)
    known: NodePrefix | None = draft.get(of)
    if key in draft.view.unreadable or of in draft.view.unreadable:
        return []
    before: Confirmed | None = draft.get(key)
    first = before is None or before.epoch != draft.view.epoch
    prefix = _healed(draft, node, known, there) if first else known
    if prefix is None:
        if first and told.is_open(draft, node, there.prefix) and healing.spoken_for(draft).get(there.prefix, node) == node:
            draft.expect(key)  # something cannot be read, and nobody can tell now whose it is: its word is kept until that is settled
            draft.put(key, Confirmed(draft.view.epoch, There(*there[:3]), there.had))
        return []
    own = tuple(each for each in there.addresses if ":" in each and prefix.number_of(each) >= 0)
    if there.generation > prefix.generation:
        raise Invalid("underlay.generation", there.generation, f"at most {prefix.generation}, of the latest that the node was told")
    had = healing.lost(draft, node, prefix, there.had) if before is None or first else before.had
    now = Confirmed(draft.view.epoch, There(there.generation, own, there.prefix, there.arriving), had)
    if now == before:
        return []
    draft.expect(key)  # the leader takes what is had from it
    draft.put(key, now)
    found = sight.concerned(draft, node, before, now)
    come = {*now.there.arriving} ^ {*(before.there.arriving if before is not None else ())}
    coming = [one for instance in sorted(come) for one in sight.called(draft, instance)]
    return list(islice(dict.fromkeys((*coming, *found, *((each.cluster, each.instance) for each in had))), AT_ONCE))


def _healed(draft: Draft, node: str, known: NodePrefix | None, there: Said) -> NodePrefix | None:
    """Give a node's prefix by its first word in an epoch, and write it where the registry is behind that."""
    of, prefix = keys.prefix(node), known
    underlay = draft.view.underlay
    if there.prefix and underlay is not None and (known is None or known.prefix != there.prefix):
        other = healing.taken(draft, underlay, node, there.prefix)
        if other is not None and keys.LEDGER not in draft.view.unreadable:
            prefix = other
            healing.take(draft, node, other.prefix)
            draft.expect(keys.LEDGER)  # who has which prefix changes with the ledger alone
            if not draft.touched(keys.LEDGER):
                draft.put(keys.LEDGER, draft.view.ledger)
    if prefix is None:
        return None
    own = There(there.generation, tuple(each for each in there.addresses if ":" in each))
    after = healing.beyond(prefix, own, there.had)
    if known is not None and after.generation <= known.generation and after != known:
        after = after._replace(generation=known.generation + 1)
    if after != known:
        draft.expect(of)
        draft.put(of, after)
    return after
