"""Heal what the registry knows of nodes' prefixes and endpoints by what the nodes say, after a restore from a copy that is older.

With its first word in an epoch a node says which /64 it has, and which endpoints were told to it. The /64 is its own as long as no other
node has it, its counter goes on behind its addresses, and each endpoint that no placement has is put back into that of its instance. Until
that is done it is told to the node on: nothing goes from a node by what a copy does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netregistry.model import keys
from netregistry.model.underlay import FIRST, Endpoint, NodePrefix, Placement
from netregistry.underlay import saga

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from netregistry.draft import Draft
    from netregistry.model.underlay import Confirmed, Had, Opened, There, Underlay
    from netregistry.view import View

WAIT = 60.0  #: seconds of an epoch in which nodes say which /64s they have, and none is given, at least
MOST_NAMED = 5  #: nodes that a text names


def numbers(draft: Draft, underlay: Underlay) -> set[int]:
    """Give the numbers of the /64s that nodes have, and of those that they say they have."""
    given = (draft.get(key) for key in (*draft.view.all("prefixes"), *draft.written("prefixes")))
    return {each.number for each in given if each is not None} | {underlay.number_of(each) for each in spoken_for(draft)} - {-1}


def spoken_for(draft: Draft) -> dict[str, str]:
    """Give each /64 that a node says it has, known to the registry or not, and the node."""
    said: dict[str, Confirmed | None] = {key: draft.get(key) for key in (*draft.view.all("confirmed"), *draft.written("confirmed"))}
    found: dict[str, str] = {}
    for key in draft.view.all("strangers"):
        stranger, node = draft.get(key), key.partition("/")[2]
        if stranger is not None and draft.node(node) is None:
            found[stranger.prefix] = node
    for key, each in said.items():
        node = key.partition("/")[2]
        if each is not None and each.there.prefix and draft.node(node) is not None:
            found[each.there.prefix] = node
    return found


def said_by(draft: Draft, node: str) -> str:
    """Give the /64 that a node says it has; "" for none. What it has said to the registry that was here before a restore counts too."""
    said: Confirmed | None = draft.get(keys.confirmed(node))
    if said is not None and said.there.prefix:
        return said.there.prefix
    stranger = draft.get(keys.stranger(node))
    return stranger.prefix if stranger is not None else ""


def taken(draft: Draft, underlay: Underlay, node: str, prefix: str) -> NodePrefix | None:
    """Give a /64 as a node says that it has it; None where it is none of the site's, or another node's, or nobody can tell."""
    number = underlay.number_of(prefix) if prefix else -1
    if number < 0 or any(keys.kind(key) == "prefixes" for key in draft.view.unreadable):
        return None
    for key in (*draft.view.all("prefixes"), *draft.written("prefixes")):
        other: NodePrefix | None = draft.get(key)
        if key != keys.prefix(node) and other is not None and other.number == number:
            return None
    return NodePrefix(number, underlay.of(number)) if spoken_for(draft).get(underlay.of(number), node) == node else None


def owner(view: View, prefix: str) -> str:
    """Give the node of the registry that has a /64, or had it before it was forgotten a short while ago; "" for none."""
    found = (key.partition("/")[2] for key, each in view.all("prefixes").items() if each.prefix == prefix)
    return next(found, "")


def beyond(prefix: NodePrefix, there: There, had: Iterable[Had] = ()) -> NodePrefix:
    """Give a prefix whose counter is behind all that its node has of it, and whose generation is behind what that has done."""
    return prefix.behind(there.generation, (*there.addresses, *(each.address for each in had)))


def lost(draft: Draft, node: str, prefix: NodePrefix, had: Iterable[Had]) -> tuple[Had, ...]:
    """Give those of a node's endpoints that are in its prefix, and in no placement."""
    placements: list[Placement] = [draft.get(key) for key in draft.members("placed", node)]
    known = {each.address for placement in placements for each in placement.endpoints}
    return tuple(each for each in had if each.instance and each.address not in known and prefix.number_of(each.address) >= FIRST)


def regained(draft: Draft, before: Placement, nodes: Iterable[str], rests: float, served: bool) -> tuple[Placement, dict[str, Confirmed]]:
    """Give a placement with the endpoints that nodes have had of it before a restore, and what else these have said then.

    ``nodes``: those that are alive and say anything of its guest. A node says first what it has, and then of which guests: until that was
    said, or a while is over, an endpoint stays as it is.
    """
    known = {each.address for each in before.endpoints}
    found = [each for each in before.endpoints if _is_in(draft.get(keys.prefix(each.node)), each.address)]
    left: dict[str, Confirmed] = {}
    over = not _waits(draft.get(keys.OPENED), draft.view.epoch, draft.now)
    for key in draft.members("had", before.cluster, before.instance):
        node, said = key.partition("/")[2], draft.get(key)
        if draft.node(node) is None or said.epoch != draft.view.epoch:
            continue
        taken = []
        for each in said.had:
            if (each.cluster, each.instance) != (before.cluster, before.instance) or not (over or each.retired or node in nodes):
                continue
            if each.address not in known:
                if not saga.has_room(found, node):
                    continue  # it stays as its node has it
                found.append(_endpoint(draft, node, each, each.address in said.there.addresses, rests, served))
            taken.append(each)
        if taken:
            left[node] = said._replace(had=tuple(each for each in said.had if each not in taken))
    return before._replace(endpoints=tuple(found)), left


def _is_in(prefix: NodePrefix | None, address: str) -> bool:
    """Tell whether an address is one of a node's prefix, which may be another one than a copy has said; True where it has none."""
    return prefix is None or address.startswith(prefix.prefix.partition("/")[0]) or prefix.number_of(address) >= 0


def _endpoint(draft: Draft, node: str, each: Had, there: bool, rests: float, served: bool) -> Endpoint:
    """Give an endpoint as its node says that it is. One that is retired rests from now on: nobody knows since when it has."""
    now = draft.now
    if each.retired:
        return Endpoint(each.kind, node, each.address, "retired", now, cleared=0.0 if served else now, until=now + rests)
    return Endpoint(each.kind, node, each.address, "there" if there else "wanted", now)


def _waits(opened: Opened | None, epoch: str, now: float) -> bool:
    """Tell whether nodes still have time to say what they have."""
    return opened is None or opened.epoch != epoch or 0 < opened.since + WAIT - now <= WAIT


def opening(view: View, now: float) -> bool:
    """Tell whether nodes still have time to say what they have; never for good: what cannot be read says nothing of that."""
    return keys.OPENED not in view.unreadable and _waits(view.get(keys.OPENED), view.epoch, now)


def withheld(view: View, now: float, get: Callable[[str], Any] | None = None) -> str:
    """Say why no /64 is given that no node says it has; "": they are given. ``get``: reads what is to be written, too."""
    if _waits((get or view.get)(keys.OPENED), view.epoch, now):
        return "no /64 is given yet: the registry was restored or moved, and nodes have a minute to say which ones they have"
    if missing := view.unheard():
        named = ", ".join(_names(view, missing[:MOST_NAMED]))
        named += f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"no /64 is given before all live nodes have said what they have, since the registry was restored or moved: {named}"
    return ""


def _names(view: View, nodes: Iterable[str]) -> Iterator[str]:
    return (there.name if (there := view.node(node)) is not None else node for node in nodes)


def strangers(view: View) -> Iterator[str]:
    """Say which nodes have a /64 that the registry does not know, each in one line."""
    for key, stranger in view.all("strangers").items():
        node = key.partition("/")[2]
        if view.node(node) is None:
            first = stranger.prefix.partition("/")[0]
            yield (
                f"{stranger.prefix} is of node {node}, which this registry does not know: let it join again (netcommon registry node "
                f"join), or stop it, and netcommon registry underlay quarantine --release {first}"
            )
