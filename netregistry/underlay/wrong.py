"""Say what is wrong with an instance's endpoints and names, as far as the registry knows. Pure; nothing of it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.draft import Draft
from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.steady import past
from netregistry.underlay import names, placing, published, saga, sight
from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netregistry.model.underlay import Confirmed, Endpoint, Name, Placement
    from netregistry.view import View

LOOKING = Identity("reader")
LATE = 15.0  #: seconds in which a node has what it is told


def of(view: View, placement: Placement, now: float) -> Iterator[str]:
    """Give each problem in one line. ``now``: seconds since the epoch."""
    zone = view.underlay.zone if view.underlay is not None else ""
    whose = f"{placement.instance} of {placement.cluster}" if placement.cluster else placement.instance
    yield from (f"{whose}: {problem}" for problem in names.wrong(placement, zone))
    for name in names.wanted(placement, zone):
        has: Name | None = view.get(keys.name(zone, name))
        if has is not None and (has.cluster, has.instance) != (placement.cluster, placement.instance):
            other = f"{has.instance} of {has.cluster}" if has.cluster else has.instance
            yield f"{whose}: {name} is a name of {other}: rename one of them"
    draft = Draft(view, "", LOOKING, now)
    guest = sight.guest(draft, placement.cluster, placement.instance)
    beside = [node for node in guest.incoming if node not in (placement.leads, placement.incoming)]
    if beside and placement.incoming:
        yield f"{whose}: it comes to {_named(view, beside)}, too; the migration to {_named(view, (placement.incoming,))} is followed"
    settles = placement.left if guest.came.get(placement.leads) == placement.left else ""
    twice = [node for node in guest.running if node not in (placement.leads, placement.incoming, settles, *placement.refuted)]
    if twice and placement.leads in guest.running:
        yield f"{whose}: it runs on {_named(view, twice)}, too; its names lead to {_named(view, (placement.leads,))}"
    if refuted := [node for node in placement.refuted if node in guest.running or node in guest.incoming]:
        own = _named(view, (placement.left if placement.leads in refuted else placement.leads,))
        said = f"node {_named(view, refuted)} is not followed, as node {own} has gone on to say that it runs there"
        yield f"{whose}: {said}: look where it runs; where {own} is dead: netcommon registry underlay fence {own}"
    for node, state in sight.strangers(draft, placement.cluster, placement.instance).items():
        of = there.cluster if (there := view.node(node)) is not None else ""
        yield f"{whose}: node {_named(view, (node,))} of {of} says that it is {state} there, and is not followed: it is of another cluster"
    for each in placement.endpoints:
        if sight.heard(draft, each.node) and (what := _missed(view, each, now)):
            yield f"{whose}: node {_named(view, (each.node,))} {what}: netcommon agent status, on that node"
    for node in dict.fromkeys((*guest.running, placement.incoming)):
        if why := _none_given(draft, placement, node, guest.kinds.get(node, ())):
            yield f"{whose}: node {_named(view, (node,))} {why}"


def _none_given(draft: Draft, placement: Placement, node: str, kinds: tuple[str, ...]) -> str:
    """Say why an instance is given no address on a node; "" where it has all that it needs, or is given them in a moment."""
    if kinds and draft.get(keys.prefix(node)) is None:
        return "has no prefix to give it an address of"
    if node not in (placement.leads, placement.incoming):
        return ""
    there = {each.kind for each in placement.endpoints if each.live and each.node == node}
    if lacking := ", ".join(kind for kind in kinds if kind not in there):
        if not saga.has_room(placement.endpoints, node):
            return f"has no room for its {lacking}: it has too many addresses in quarantine: netcommon registry underlay quarantine"
        if placing.is_full(draft, node):
            return f"has no room for its {lacking}: the node has as many addresses as it can, those in quarantine too"
    return ""


def of_zones(view: View) -> Iterator[str]:
    """Say which name servers may have names yet of zones that were the underlay's before."""
    for zone, there in sorted(published.others(view).items()):
        for each in there.behind(view.epoch):
            which = f"zone {zone}, which was the underlay's, is not emptied at DNS server {each.server}"
            at = f"it is at generation {each.generation} there, and to be at {there.generation}"
            yield f"{which}: {at}; what is retired waits: netcommon registry underlay quarantine --release {zone} waits no longer"


def _missed(view: View, each: Endpoint, now: float) -> str:
    """Say what a node says of an endpoint that should be there; "" where it is, or may be soon."""
    said: Confirmed | None = view.get(keys.confirmed(each.node))
    if each.state == "there" and said is not None and not saga.reached(each, said.there):
        return f"says that {each.address} is not there any more"
    late = each.state == "wanted" and now - past(each.since, now) > LATE
    return f"does not say that it has {each.address}, since {local_time(min(each.since, now))}" if late else ""


def _named(view: View, nodes: Iterable[str]) -> str:
    return ", ".join(there.name if (there := view.node(node)) is not None else node for node in nodes)
